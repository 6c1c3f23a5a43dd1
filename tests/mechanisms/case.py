"""Small incidents, each a mechanism of Kubernetes: objects, what was changed, who complains, and which change it was.

They are written down in ``cases/*.yaml`` by somebody who did not see the ranking; README.md has their form.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from dataclasses import replace as replace_fields
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from msgspec.structs import replace

from app.core.changes.summaries import summary
from app.core.counted import Calls
from app.core.edges.mechanism import only_labels
from app.core.edges.references import is_custom
from app.core.findings import Ranking
from app.core.model import (
    Actor,
    ActorSource,
    Change,
    ObjectState,
    Outcome,
    Progress,
    Resource,
    Rollout,
    Symptom,
    SymptomSource,
    Verb,
    version_key,
)
from app.core.objects.diff import diff
from app.core.objects.kinds import plural_of
from app.core.objects.normalise import normalise
from app.core.objects.pod_states import PREEMPTED
from app.core.objects.redact import Redactor
from app.core.ranking.suspects import Gathered, rank
from tests.core.company import background, noise
from tests.core.factories import after, an_alert, an_incident, calls
from tests.mechanisms.revisions import manifest, workload

CASES = Path(__file__).with_name("cases")
REDACTOR = Redactor(b"a key of at least 16 bytes")
WINDOW = (-150.0, 45.0)
"""Seconds, about the moment at which harm begins: from when on is recorded, and how long after the last that is told it
is ranked at the least."""
LISTENED = 60.0
"""For how many seconds the audit log has told before calls change."""


class MalformedError(Exception):
    """A case that cannot be read: which, and why."""


@dataclass(frozen=True, slots=True)
class Told:
    """A case, and what the ranking said. ``rank`` is the best of the right changes (None: not among those shown)."""

    name: str
    why: str
    has_culprit: bool
    ranking: Ranking
    rank: int | None

    @property
    def probability(self) -> float:
        """That was given to the right answer: a change, or "none of these"."""
        if not self.has_culprit:
            return self.ranking.none_of_these
        return self.ranking.suspects[self.rank - 1].probability if self.rank else 0.0


@cache
def cases() -> dict[str, dict[str, Any]]:
    """Every case by its name."""
    found: dict[str, dict[str, Any]] = {}
    for name, read in _read().items():
        for case in read:
            if case["name"] in found:
                raise MalformedError(f"{name}: {case['name']} is there twice")
            found[case["name"]] = case
    return found


def files() -> dict[str, list[str]]:
    """The names of cases by that of their file."""
    return {name: [case["name"] for case in read] for name, read in _read().items()}


@cache
def _read() -> dict[str, list[dict[str, Any]]]:
    return {
        file.name: yaml.load(file.read_text(), yaml.CSafeLoader)  # three megabytes: in C it takes a sixth
        for file in sorted(CASES.glob("*.yaml"))
    }


class _World:
    """The objects as they are, and the changes that made them so."""

    def __init__(self, objects: list[dict[str, Any]]) -> None:
        self.objects = {_resource(one): one for one in objects}
        self.deleted: dict[Resource, dict[str, Any]] = {}
        self.changes: dict[str, Change] = {}
        self.written: dict[str, tuple[dict[str, Any] | None, dict[str, Any] | None]] = {}
        self.owners: dict[tuple[str | None, str], Resource] = {}
        self.revisions: list[ObjectState] = []

    def change(self, said: dict[str, Any]) -> None:
        verb = Verb(said["verb"])
        if verb is Verb.CREATE:
            resource, old, new = _resource(said["object"]), None, said["object"]
        else:
            resource = self._find(said)
            old = self.objects[resource]
            new = None if verb is Verb.DELETE else merged(old, said["patch"])
        before, now = (None if one is None else _desired(resource, one) for one in (old, new))
        diffs = diff(before, now)
        at = after(said["at"])
        if new is None:
            self.deleted[resource] = self.objects.pop(resource)
        else:
            self.objects[resource] = new
        self.written[said["id"]] = (old, new)
        actor = Actor(said["by"], ActorSource.AUDIT)
        self.changes[said["id"]] = Change(
            resource=resource,
            at=at,
            verb=verb,
            key=version_key("lab", str(resource), f"{at.isoformat()}{said['id']}"),
            actor=actor,
            diffs=diffs,
            summary=summary(resource, verb, diffs, old=before, new=now),
            begun_by=self._owner(said["by"], resource, at),
        )

    def _owner(self, by: str, resource: Resource, at: datetime) -> str | None:
        """The change of the custom resource of which an operator made an object, as owner references tell: cases do not
        write these down, but call the object like it."""
        if by.endswith((":namespace-controller", ":cronjob-controller")):
            kind, name = ("Namespace", resource.namespace) if "namespace-" in by else ("CronJob", resource.name)
            made_it = (
                one.id
                for one in self.changes.values()
                if one.resource.kind == kind and f"{name}-".startswith(f"{one.resource.name}-")
            )
            return next(made_it, None)
        told = (
            one.id
            for one in self.changes.values()
            if is_custom(one.resource) and one.actor.name != by and one.at <= at and not only_labels(one)
            if one.resource.namespace == resource.namespace and f"{resource.name}-".startswith(f"{one.resource.name}-")
        )
        return next(told, None) if by.startswith("system:serviceaccount:") else None

    def _find(self, said: dict[str, Any]) -> Resource:
        where = (said["kind"], said.get("namespace"), said["name"])
        fits = [one for one in self.objects if (one.kind, one.namespace, one.name) == where]
        fits = [one for one in fits if one.api_group == said["group"]] if "group" in said else fits
        if len(fits) != 1:
            raise MalformedError(f"change {said['id']}: {len(fits)} objects are {where}")
        return fits[0]

    def resource(self, said: dict[str, Any]) -> Resource:
        """Of what complains, also where it is not among the objects."""
        for one in (*self.objects, *self.deleted):
            if (one.kind, one.namespace, one.name) == (said["kind"], said.get("namespace"), said["name"]):
                return one
        return _resource({"apiVersion": said.get("group", "") + "/v1", "metadata": said, "kind": said["kind"]})

    def revise(self, said: dict[str, Any]) -> None:
        """The ReplicaSets, or the pods of a DaemonSet or StatefulSet, ``before`` and ``after`` a change."""
        owner = self.changes[said["change"]].resource
        for when, whole in zip(("before", "after"), self.written[said["change"]], strict=True):
            for told in said.get(when) or ():
                name = told if told.startswith(f"{owner.name}-") else f"{owner.name}-{told}"
                if whole is None:
                    raise MalformedError(f"revisions of {said['change']}: there is nothing {when} it")
                one = manifest(owner, name, whole)
                of, now = _resource(one), _desired(_resource(one), one)
                self.owners[of.namespace, of.name] = owner
                self.revisions.append(
                    ObjectState(of, f"uid-{of}", "1", after(0), now, owner_kind=owner.kind, owner_name=owner.name)
                )

    def states(self) -> Iterator[ObjectState]:
        for resource, one in self.objects.items():
            yield ObjectState(resource, f"uid-{resource}", "1", after(0), _desired(resource, one))
        yield from self.revisions


def merged(old: Any, patch: Any) -> Any:
    """A JSON merge patch applied (RFC 7396)."""
    if not isinstance(patch, dict):
        return deepcopy(patch)
    new = dict(old) if isinstance(old, dict) else {}
    for key, value in patch.items():
        if value is None:
            new.pop(key, None)
        else:
            new[key] = merged(new.get(key), value)
    return new


def _resource(one: dict[str, Any]) -> Resource:
    group, slash, _ = str(one.get("apiVersion", "v1")).partition("/")
    metadata = one["metadata"]
    return Resource("lab", group if slash else "", one["kind"], metadata.get("namespace"), metadata["name"])


def _desired(resource: Resource, one: dict[str, Any]) -> dict[str, Any]:
    redacted = REDACTOR.object(resource.api_group, resource.kind, deepcopy(one))
    return normalise(redacted, resource.api_group, kind=resource.kind)


def _rollout(said: dict[str, Any], change: Change, state: dict[str, Any] | None) -> Rollout:
    wanted = ((state or {}).get("spec") or {}).get("replicas", 1)
    desired = wanted if isinstance(wanted, int) else 1
    at = change.at
    steps = [Progress(at, desired, 0, desired)]
    outcome, ended, reason = Outcome.RUNNING, None, ""
    if "ready" in said:
        outcome, ended = Outcome.COMPLETE, after(said["ready"])
        steps.append(Progress(ended, desired, desired, desired))
    elif "failed" in said:
        outcome, ended, reason = Outcome.FAILED, after(said["failed"]), said.get("reason", "ProgressDeadlineExceeded")
        steps.append(Progress(ended, desired, 1, max(0, desired - 1)))
    return Rollout(
        change.resource,
        f"uid-{change.resource}",
        2,
        at,
        outcome,
        ended,
        change.id,
        progress=tuple(steps),
        reason=reason,
    )


OWN_WORDS = re.compile(r"[Bb]ack-off|unready status|not ready")
"""Of kubelets and controllers, for what they call so."""
SEEN_AS = {"Preempted": PREEMPTED, "ContainerLog": "Error"}
"""What a case calls a complaint -> what is recorded of it: who is preempted is told by a condition of the pod, and what
a program logs, by how it ends."""


def _symptom(said: dict[str, Any], world: _World) -> Symptom:
    resource = world.resource(said["of"])
    reason, message = SEEN_AS.get(said["reason"], said["reason"]), said.get("message", "")
    if reason in ("CrashLoopBackOff", "BackOff", "Unready") and message and not OWN_WORDS.search(message):
        reason = "Error"  # what the program said as it ended
    if reason == "Error" and "exit code" not in message:
        message = f"{resource.name} ended with exit code 1: {message}"
    return Symptom(
        source=SymptomSource.EVENT,
        reason=reason,
        at=after(said["at"]),
        fingerprint=f"{resource}{reason}{said['at']}{message}",
        resource=resource,
        workload=workload(resource, world.owners),
        message=message,
        count=said.get("count", 3),
    )


def gathered(case: dict[str, Any]) -> tuple[Gathered, frozenset[str]]:
    """What is recorded around a case's incident, and the ids of the changes that are right."""
    world = _World(deepcopy(case.get("objects") or []))
    for said in sorted(case["changes"], key=lambda one: one["at"]):
        world.change(said)
    for said in case.get("revisions") or []:
        world.revise(said)
    rollouts = [
        _rollout(said, (change := world.changes[said["change"]]), world.objects.get(change.resource))
        for said in case.get("rollouts") or []
    ]
    alert = case["alert"]
    labels = {key: str(value) for key, value in (alert.get("labels") or {}).items()}
    told = an_alert(after(alert["at"]), name=alert["name"], message=alert.get("message", ""))
    incident = an_incident(replace(told, labels=tuple(sorted({"alertname": alert["name"], **labels}.items()))))
    groups = {plural_of(one.api_group, one.kind): one.api_group for one in (*world.objects, *world.deleted)}
    begin, rest = WINDOW
    told_from = [said[when] for said in case.get("calls") or [] for when in ("from", "until") if when in said]
    begin = min([begin, *(at - LISTENED for at in told_from)])
    load = background(start=begin) if case.get("calls") else []
    for said in case.get("calls") or []:
        load += calls(
            said["user"],
            said["verb"],
            said["resource"],
            rate=said["rate"],
            start=max(begin, said.get("from", begin)),
            end=said.get("until", alert["at"] + rest),
            code=said.get("code", 200),
            error=said.get("error") or "",
            group=said.get("group", groups.get(said["resource"].partition("/")[0], "")),
            namespace=said.get("namespace", ""),
            pod=said.get("pod", ""),
        )
    times = [said["at"] for said in case["changes"]]
    right = case["culprit"]
    ids = [] if right == "none" else right if isinstance(right, list) else [right]
    return Gathered(
        incident=incident,
        start=after(min([begin, *(at - 10 for at in times)])),
        now=after(max(alert["at"] + 5, rest)),
        changes=(*noise(), *world.changes.values()),
        rollouts=tuple(rollouts),
        symptoms=tuple(_symptom(said, world) for said in case.get("complaints") or []),
        calls=Calls.of(load),
        states=tuple(world.states()),
    ), frozenset(world.changes[one].id for one in ids)


def told(case: dict[str, Any], beside: Sequence[Change] = ()) -> Told:
    """Ranks a case, with more changes ``beside`` it."""
    found, right = gathered(case)
    ranking = rank(replace_fields(found, changes=(*found.changes, *beside)) if beside else found)
    ranks = [one.rank for one in ranking.suspects if one.change.id in right or right & set(one.derived)]
    return Told(case["name"], case["why"], bool(right), ranking, min(ranks, default=None))
