"""What is upgraded by its chart, and needs a right more from then on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from functools import partial
from itertools import count

from tests.lab import objects
from tests.lab.alerts import restarts
from tests.lab.api import Kind, now, path
from tests.lab.apps import CrashError, Process
from tests.lab.families.by_annotation import rolled
from tests.lab.families.databases import ANY
from tests.lab.families.not_in_mind import TEAMS
from tests.lab.lab import Lab
from tests.lab.programs import LONGEST_BACKOFF, both, every, informer, leading
from tests.lab.scenario import family

LEASE = ("coordination.k8s.io", "leases", "*")

OPERATORS = (
    ("RabbitmqCluster", "rabbitmq.com", "rabbitmq-cluster-operator", "2.15.0", "2.16.1", "PodDisruptionBudget", True),
    ("Postgresql", "acid.zalan.do", "postgres-operator", "v1.14.0", "v1.15.0", "EndpointSlice", False),
    ("Kafka", "kafka.strimzi.io", "strimzi-cluster-operator", "0.47.0", "0.48.0", "NetworkPolicy", False),
    ("Valkey", "hyperspike.io", "valkey-operator", "v0.0.59", "v0.1.0", "NetworkPolicy", True),
)
"""With the kind that each watches since its later version, and whether it ends when it has not got all to watch."""
SYNC_SECONDS = 12.0
"""For how long such a one waits for what it is to watch."""


@dataclass
class _Operator:
    """It carries out what is asked for, once it has all in its memory that it watches."""

    kind: Kind
    newer: str
    needed: str
    gives_up: bool
    asked: dict[str, float] = field(default_factory=dict)
    """When each was asked for that is not there yet."""
    numbers: count[int] = field(default_factory=lambda: count(1))
    done: int = 0

    async def run(self, process: Process) -> None:
        watches = [informer(self.kind.path())]
        if process.tag == self.newer:
            await self._sync(process)
            watches.append(informer(path(self.needed)))
        await both(*watches, every(1.0, self._reconcile))(process)

    async def _sync(self, process: Process) -> None:
        """The list of what it is to watch is asked for again and again, after a back-off that doubles."""
        await process.api.call("GET", self.kind.path())
        wait, began = 0.8, now()
        while not (await process.api.call("GET", path(self.needed))).ok:
            if self.gives_up and (now() - began).total_seconds() > SYNC_SECONDS:
                waited = f"failed to wait for {self.kind.name.lower()} caches to sync kind source: *v1.{self.needed}"
                late = f"timed out waiting for cache to be synced for Kind *v1.{self.needed}"
                raise CrashError(f"problem running manager: {waited}: {late}")
            await asyncio.sleep(wait * process.rng.uniform(1.0, 1.5))
            wait = min(wait * 2, LONGEST_BACKOFF)

    async def _reconcile(self, process: Process) -> None:
        for one in (await process.api.call("GET", self.kind.path())).body.get("items", ()):
            home, name = one["metadata"]["namespace"], one["metadata"]["name"]
            if one.get("status", {}).get("state") == "Running":
                self.asked.pop(name, None)
                continue
            is_begun = "status" in one
            if is_begun:
                secret = {"metadata": {"name": f"{name}-credentials"}, "stringData": {"username": name}}
                await process.api.call("POST", path("Secret", home), secret)
            status = {"state": "Running" if is_begun else "Creating"}
            self.done += (await process.api.call("PATCH", self.kind.path(home, name), {"status": status})).ok

    async def ask(self, process: Process, home: str) -> None:
        """Another one, as a team begins something; the oldest that is there is given back."""
        listed = (await process.api.call("GET", self.kind.path(home))).body.get("items", ())
        there = sorted(one["metadata"]["name"] for one in listed if one.get("status", {}).get("state") == "Running")
        for one in there[:-6]:
            await process.api.call("DELETE", self.kind.path(home, one))
            await process.api.call("DELETE", path("Secret", home, f"{one}-credentials"))
        name = f"team-{next(self.numbers):04}"
        body = {"apiVersion": f"{self.kind.group}/v1", "kind": self.kind.name, "metadata": {"name": name}}
        spec = {"replicas": process.rng.choice((1, 3)), "storage": "10Gi"}
        if (await process.api.call("POST", self.kind.path(home), {**body, "spec": spec})).ok:
            self.asked[name] = now().timestamp()

    def oldest(self) -> float:
        return now().timestamp() - min(self.asked.values()) if self.asked else 0.0


@family(
    "An operator is upgraded by its chart. Its rights are kept elsewhere, as no chart may give any in this company, and"
    " the new version watches one more kind: it is answered that it may not list that, and does nothing for anybody"
    " until it may.",
    joined=97,
)
async def one_right_more(lab: Lab) -> AsyncIterator[None]:
    """As those tell who read *is forbidden: cannot list resource* after the value rbac.create had been false."""
    name, group, operator, old, new, needed, gives_up = lab.rng.choice(OPERATORS)
    home, desk, other = lab.rng.choice(
        (
            ("shop", "order-desk", "basket-export"),
            ("payments", "settlement-desk", "payout-export"),
            ("media", "render-desk", "clip-export"),
            ("search", "crawl-desk", "index-export"),
        )
    )
    by, minor = lab.rng.choice(("flux", "argocd", "ci")), lab.rng.randrange(2, 30)
    kind = await lab.custom(name, group, ANY)
    await lab.served(kind)
    works = _Operator(kind, new, needed, gives_up)
    rights = (group, kind.plural, "get,list,watch,patch"), ("", "secrets", "get,list,watch,create,patch")
    program = both(works.run, leading("platform", operator))
    await lab.controller("platform", operator, program, *rights, LEASE, replicas=1, tag=old)
    await rolled(lab, "platform", operator, old)
    rights = (group, kind.plural, "get,list,create,delete"), ("", "secrets", "delete")
    asking = every(5.0, partial(works.ask, home=home))
    await lab.controller(home, desk, asking, *rights, replicas=1, tag=f"2.{minor}.0")
    await rolled(lab, home, desk, f"2.{minor}.0")
    await lab.apply(objects.config_map(home, other, LOG_LEVEL="info", EVERY="60s"))
    await lab.app(home, other, replicas=2, tag="1.4.0", config=other)
    await rolled(lab, home, other, "1.4.0")
    told = {"namespace": "platform", "service": operator, "controller": name.lower()}
    lab.measure("controller_runtime_reconcile_total", lambda: works.done, "counter", **told, result="success")
    image = f"registry.corp.example/platform/{operator}"
    forbidden = {"namespace": "platform", "service": operator, "code": "403", "method": "GET"}
    lab.measure("rest_client_requests_total", lab.refused(image, 403), "counter", **forbidden)
    many = lambda: restarts(lab.world, "platform", operator) >= 2  # noqa: E731
    summary = f"platform/{operator} restarts again and again"
    lab.alert("KubePodCrashLooping", many, summary, 4, namespace="platform", container=operator)
    summary = f"who asks for a {name} waits for a long time"
    lab.alert("ProvisioningSlow", lambda: works.oldest() > 18, summary, 5, namespace=home, service=desk)
    await lab.until(lambda: works.done > 4 and lab.is_well())

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(5, 10))
        await lab.roll(lab.rng.choice(("ci", "argocd")), home, desk, f"2.{minor}.1")

    yield
    await lab.roll(lab.rng.choice(("ci", "argocd")), home, other, "1.4.1")
    await lab.pause(lab.rng.uniform(5, 9))
    await lab.edit(lab.rng.choice((*TEAMS, "flux")), "ConfigMap", home, other, {"data": {"EVERY": "30s"}})
    await lab.pause(lab.rng.uniform(4, 8))
    await lab.roll(by, "platform", operator, new, culprit=True)
    lab.start(afterwards())
