"""Changes that wait: what pods start with does nothing to those that run, until the next rollout starts some."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime

from msgspec.structs import replace

from app.core.edges.mechanism import is_for_next_rollout, only_adds
from app.core.edges.reach import Reach
from app.core.entities import READ, WORKLOADS, Entity, of_resource
from app.core.model import Change, Rollout, Verb
from app.core.ranking.candidates import Candidate

WAITS = frozenset({"ServiceAccount", "Secret", "ConfigMap", "LimitRange", "Namespace", "PriorityClass", "RuntimeClass"})
"""Kinds by which pods are made, or that they read as they start."""
_ENDING = frozenset({"lifecycle", "preStop", "terminationGracePeriodSeconds"})
Started = dict[Entity, list[datetime]]
"""By workload: when pods of it were started, in order."""


def started(rollouts: Iterable[Rollout], changes: Iterable[Change]) -> Started:
    """When the rollouts of each workload began, and when it was given more pods."""
    found: Started = defaultdict(list)
    for rollout in rollouts:
        found[of_resource(rollout.resource)[0]].append(rollout.started_at)
    for change in changes:
        if change.resource.kind in WORKLOADS and only_adds(change):
            found[of_resource(change.resource)[0]].append(change.at)
    return {home: sorted(times) for home, times in found.items()}


def acts_at(change: Change, reached: Reach, begun: Started) -> datetime | None:
    """When the first pods started with a change that waits for that; None for what acts at once, or waits still."""
    within = _within(change)
    if within is None:
        return None
    near = (home for home in reached.keys() & begun.keys() if reached[home] <= within)
    return min((at for home in near for at in begun[home] if at > change.at), default=None)


def _within(change: Change) -> float | None:
    """How many hops away pods start with a change; None for what acts at once. What calls a new Service by its name
    calls it at once; what reads its variables does so as it starts."""
    if change.resource.kind == "Service" and change.verb is Verb.CREATE:
        return READ
    if _says_how_pods_end(change):
        return 0
    return 1 if change.resource.kind in WAITS or is_for_next_rollout(change) else None


def _says_how_pods_end(change: Change) -> bool:
    """Whether an update says how the pods of a workload end: that shows as the next ones take their place."""
    return change.verb is Verb.UPDATE and any(
        not _ENDING.isdisjoint(str(step) for step in diff.path) for diff in change.diffs if "template" in diff.path
    )


def waiting(candidate: Candidate, begun: Started) -> Candidate:
    """A candidate with when it acted, where it waited for that."""
    at = acts_at(candidate.change, candidate.reach, begun)
    if at is None:
        return candidate
    return replace(candidate, acts_at=at, inert=candidate.inert and not is_for_next_rollout(candidate.change))


def began(candidate: Candidate, by: datetime) -> datetime:
    """When a candidate began to act, as far as that was by a time; else when it was written."""
    at = candidate.acts_at
    return at if at is not None and at <= by else candidate.change.at
