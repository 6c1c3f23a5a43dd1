"""Input for the benchmarks, made from a seed: a company's changes, requests and calls of no particular incident."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from uuid import UUID

from app.core.model import (
    Actor,
    ActorSource,
    CallCount,
    CallKey,
    Change,
    DiffSource,
    FieldDiff,
    Object,
    ObjectState,
    Path,
    Request,
    Resource,
    Verb,
    version_key,
)

CLUSTER = "bench"
START = datetime(2026, 11, 16, 8, tzinfo=UTC)
KINDS = (
    ("apps", "Deployment"),
    ("", "ConfigMap"),
    ("apps", "ReplicaSet"),
    ("", "Service"),
    ("rbac.authorization.k8s.io", "Role"),
)
_TEMPLATE: Path = ("spec", "template", "spec", "containers", (("name", "app"),))
_VERBS = ("create", "update", "patch", "delete")


class Company:
    """Objects and actors that write to them, the same for the same seed."""

    def __init__(self, seed: int, objects: int = 2000) -> None:
        self.random = random.Random(seed)
        self.version = 1_000_000 * seed
        self.now = START
        self.resources = [self._resource(number) for number in range(objects)]
        self.actors = [
            Actor(
                f"system:serviceaccount:team-{number % 40}:deployer-{number}",
                ActorSource.AUDIT,
                self.random.choice(("kubectl", "argocd-application-controller", "helm", "kube-controller-manager")),
                f"deployer-{number}-{self.random.randrange(16**5):05x}",
            )
            for number in range(120)
        ]

    def _resource(self, number: int) -> Resource:
        group, kind = self.random.choices(KINDS, weights=(5, 4, 4, 1, 1))[0]
        return Resource(CLUSTER, group, kind, f"team-{number % 40}", f"{kind.lower()}-service-{number}")

    def states(self) -> Iterator[ObjectState]:
        """Every object, once."""
        for number, resource in enumerate(self.resources):
            state: Object = {
                "metadata": {"labels": {"app": resource.name, "team": resource.namespace}},
                "spec": {"n": number},
            }
            yield ObjectState(resource, f"uid-{number}", "1", START, state)

    def _diffs(self) -> tuple[FieldDiff, ...]:
        """An edit as people and controllers make them: mostly one field, now and then a whole file."""
        rand = self.random
        kind = rand.random()
        if kind < 0.3:
            old = f"registry.example.com/payments/api:v1.{rand.randrange(90)}.{rand.randrange(20)}"
            return (FieldDiff((*_TEMPLATE, "image"), "replace", old, old + f"-{rand.randrange(16**7):07x}"),)
        if kind < 0.45:
            stamp = f"2026-11-16T{rand.randrange(10, 24)}:{rand.randrange(10, 60)}:00Z"
            annotation: Path = ("spec", "template", "metadata", "annotations", "kubectl.kubernetes.io/restartedAt")
            return (FieldDiff(annotation, "replace", "2026-11-15T10:10:00Z", stamp),)
        if kind < 0.7:
            name = f"FEATURE_{rand.randrange(400)}"
            return (FieldDiff((*_TEMPLATE, "env", (("name", name),), "value"), "replace", "false", "true"),)
        if kind < 0.9:
            return (FieldDiff(("spec", "replicas"), "replace", rand.randrange(9), rand.randrange(9)),)
        text = "\n".join(f"setting.{n}.limit = {rand.randrange(10**6)}" for n in range(12))
        return (FieldDiff(("data", "application.properties"), "replace", text, text[:-3] + "777"),)

    def changes(self, count: int) -> list[Change]:
        """``count`` new writes, two a second, after the last ones."""
        made = []
        for _ in range(count):
            self.version += self.random.randrange(1, 9)
            which = self.random.randrange(len(self.resources))
            resource, actor = self.resources[which], self.random.choice(self.actors)
            made.append(
                Change(
                    resource,
                    self._later(500_000),
                    Verb.UPDATE,
                    version_key(CLUSTER, f"uid-{which}", str(self.version)),
                    actor=actor,
                    uid=f"uid-{which}",
                    resource_version=str(self.version),
                    generation=self.version // 1000,
                    diffs=self._diffs(),
                    diff_source=DiffSource.STATES,
                    summary=f"image of {resource.name}: v1.41.0 → v1.42.0, by {actor.name.rsplit(':', 1)[1]}",
                    sources=frozenset({"audit"}),
                    audit_id=str(UUID(int=self.random.getrandbits(128))),
                )
            )
        return made

    def _later(self, microseconds: int) -> datetime:
        self.now += timedelta(microseconds=self.random.randrange(2 * microseconds))
        return self.now

    def _key(self, number: int) -> CallKey:
        actor = self.actors[number % len(self.actors)]
        verb = _VERBS[number % 4] if number % 7 else "list"
        return CallKey(
            actor.name, actor.pod or "", actor.user_agent, verb, "apps", "deployments", f"team-{number % 40}", 200
        )

    def requests(self, count: int) -> list[Request]:
        """``count`` write requests, 100 a second, after the last ones."""
        return [
            Request(
                self._key(self.random.randrange(900)),
                self._later(10_000),
                self.random.getrandbits(63),
                f"service-{self.random.randrange(4000)}-{self.random.randrange(16**5):05x}",
                int(self.random.lognormvariate(8, 1)),
            )
            for _ in range(count)
        ]

    def minute(self, keys: int, number: int) -> list[CallCount]:
        """One minute of calls of ``keys`` callers, seven calls each on average, some far busier than others."""
        begin = int(START.timestamp()) + 60 * number
        made = []
        for key in self.random.sample(range(keys * 3), keys):
            calls = max(1, round(self.random.gammavariate(0.4, 7 / 0.4)))
            slots: dict[int, int] = {}
            for _ in range(calls):
                slot = begin + 5 * self.random.randrange(12)
                slots[slot] = slots.get(slot, 0) + 1
            for slot, count in slots.items():
                latency = sum(int(self.random.lognormvariate(7.5, 1)) for _ in range(count))
                made.append(CallCount(self._key(key), slot, count, latency))
        return made
