"""Changes that wait.

What pods start with does nothing to those that run, until the next rollout starts some, or those of a node begin anew
elsewhere; what a CronJob runs does nothing until its next Job, what else has a schedule until its next run, and how
nodes are made nothing until the next one.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from datetime import UTC, datetime

from msgspec.structs import replace

from app.core.edges.leads import NODE_KINDS
from app.core.edges.mechanism import by_schedule, cordons, halts, is_for_next_rollout, only_adds
from app.core.edges.operators import acting, starts
from app.core.edges.reach import Reach
from app.core.edges.references import is_custom
from app.core.edges.topology import Named, Topology
from app.core.entities import READ, WORKLOADS, Entity, of_resource, workload
from app.core.model import Change, ObjectState, Resource, Rollout, Verb
from app.core.objects.actors import service_account, short
from app.core.objects.untyped import fields, part
from app.core.ranking.candidates import Candidate

WAITS = frozenset({"ServiceAccount", "Secret", "ConfigMap", "LimitRange", "Namespace", "PriorityClass", "RuntimeClass"})
"""Kinds by which pods are made, or that they read as they start."""
_WHEN = frozenset({"schedule", "schedules", "cron"})
_STOPPED = re.compile(r"suspend|pause", re.IGNORECASE)
_MINUTE = re.compile(r"\d{8}")
_ENDING = frozenset({"lifecycle", "preStop", "terminationGracePeriodSeconds"})
Started = dict[Entity, list[datetime]]
"""By workload: when pods of it were started, in order; by node: when it was made."""


def started(
    rollouts: Iterable[Rollout], changes: Iterable[Change], states: Iterable[ObjectState] = (), *, top: Topology
) -> Started:
    """When the rollouts of each workload began, when it was given more pods or a node of it was emptied, when each
    CronJob made a Job (Jobs are seldom told as changes, but their states are), and when each node was made."""
    found: Started = defaultdict(list)
    for state in states:
        if state.resource.kind == "Job" and state.owner_kind == "CronJob":
            found[workload(state.resource.namespace, state.owner_name)].append(_made_at(state))
    for rollout in rollouts:
        found[of_resource(rollout.resource)[0]].append(rollout.started_at)
    for change in changes:
        is_node = change.resource.kind == "Node" and change.verb is Verb.CREATE
        if is_node or (change.resource.kind in WORKLOADS and only_adds(change)):
            found[of_resource(change.resource)[0]].append(change.at)
        elif made_by := _scheduled_by(change):
            found[workload(change.resource.namespace, made_by)].append(change.at)
        for schedule in _customs_schedules(change, top):
            found[of_resource(schedule)[0]].append(change.at)
        for home in _left_behind(change, top):
            found[workload(*home)].append(change.at)
    return {home: sorted(times) for home, times in found.items()}


def _left_behind(change: Change, top: Topology) -> set[Named]:
    """The workloads whose pods have to go from a node, to begin anew elsewhere: it is cordoned, as it is drained, or
    deleted."""
    if not (cordons(change) or (change.resource.kind == "Node" and change.verb is Verb.DELETE)):
        return set()
    node = change.resource.name
    return top.by_node.get(node, set()) | {home for home, at in top.left.get(node, ()) if at >= change.at}


def _made_at(job: ObjectState) -> datetime:
    """When a CronJob made a Job: its name ends with the minute since 1970 for which it was due (getJobName in
    https://github.com/kubernetes/kubernetes/blob/master/pkg/controller/cronjob/utils.go); else when it was last told
    of."""
    minute = job.resource.name.rpartition("-")[2]
    due = datetime.fromtimestamp(60 * int(minute), UTC) if _MINUTE.fullmatch(minute) else job.seen_at
    return min(due, job.seen_at)


def _scheduled_by(change: Change) -> str:
    """The CronJob of which a Job was made, by the name that its controller gives it: CRONJOB-MINUTE; "" for other
    changes."""
    is_made = change.resource.kind == "Job" and change.verb is Verb.CREATE
    by_clock = is_made and (by_schedule(change) or change.actor.name.endswith(":cronjob-controller"))
    return change.resource.name.rpartition("-")[0] if by_clock else ""


def _customs_schedules(change: Change, top: Topology) -> list[Resource]:
    """The custom resources with a schedule by which a program made an object, by the name that it gives it: a Backup
    city-20261014140000 of Velero's Schedule city (https://velero.io/docs/main/api-types/schedule/)."""
    if change.verb is not Verb.CREATE or service_account(change.actor.name) is None:
        return []
    here, made = change.resource.namespace or "", change.resource
    named = (one for start in starts(made.name) for one in top.customs_named.get((here, start), ()))
    timed = (one for one in named if not _WHEN.isdisjoint(fields(part(top.states.get(one, {}), "spec"))))
    return [one for one in timed if made.api_group == one.api_group or change.actor.name in acting(one, top)]


def acts_at(change: Change, reached: Reach, begun: Started) -> datetime | None:
    """When the first pods started with a change that waits for that; None for what acts at once, or waits still."""
    [own, *_] = of_resource(change.resource)
    by_clock = (
        own in begun
        and own[0] == "object"
        and not any(_STOPPED.search(str(step)) for diff in change.diffs for step in diff.path)
    )
    within = 0 if by_clock else _within(change)
    if within is None:
        return None
    by_nodes = _says_how_nodes_are_made(change)
    near = (home for home in reached.keys() & begun.keys() if reached[home] <= within)
    near = (home for home in near if (home[0] == "node") == by_nodes)
    return min((at for home in near for at in begun[home] if at > change.at), default=None)


def _within(change: Change) -> float | None:
    """How many hops away pods start with a change; None for what acts at once. What calls a new Service by its name
    calls it at once; what reads its variables does so as it starts."""
    if change.resource.kind == "Service" and change.verb is Verb.CREATE:
        return READ
    if change.resource.kind == "CronJob":  # how many ended Jobs it keeps is nothing to the next one
        return None if halts(change) or is_for_next_rollout(change) else 0
    if _says_how_pods_end(change):
        return 0
    if _says_how_nodes_are_made(change):
        return 1
    return 1 if change.resource.kind in WAITS or is_for_next_rollout(change) else None


def _says_how_pods_end(change: Change) -> bool:
    """Whether an update says how the pods of a workload end: that shows as the next ones take their place."""
    return change.verb is Verb.UPDATE and any(
        not _ENDING.isdisjoint(str(step) for step in diff.path) for diff in change.diffs if "template" in diff.path
    )


def _says_how_nodes_are_made(change: Change) -> bool:
    """Whether a write of a pool, or of a class, of nodes says how the next ones are made: not how many, or when they
    go."""
    kind = change.resource.kind
    is_whole = kind.endswith(("Class", "Template"))
    return NODE_KINDS.match(kind) is not None and any(
        "template" in diff.path or (is_whole and diff.path[:1] == ("spec",)) for diff in change.diffs
    )


def waiting(candidate: Candidate, begun: Started) -> Candidate:
    """A candidate with when it acted, where it waited for that."""
    at = acts_at(candidate.change, candidate.reach, begun)
    if at is None:
        return _acted_on(candidate)
    inert = candidate.inert and not is_for_next_rollout(candidate.change)
    return replace(candidate, acts_at=at, acts_as=_acts_as(candidate.change), inert=inert)


def _acts_as(change: Change) -> str:
    """How it is said that something acted for the first time."""
    if change.resource.kind == "CronJob":
        return "Its first Job since was made"
    if is_custom(change.resource) and not _says_how_nodes_are_made(change):
        return "It was run for the first time since"
    return "Its first node since was made" if _says_how_nodes_are_made(change) else "The first pods started with it"


def _acted_on(candidate: Candidate) -> Candidate:
    """What a program was told does what that does, which may go by an interval, or wait until something is due."""
    first = min(candidate.set_off, key=lambda act: act.at, default=None)
    if first is None:
        return candidate
    return replace(candidate, acts_at=first.at, acts_as=f"{short(first.actor)} first acted on it")


def began(candidate: Candidate, by: datetime) -> datetime:
    """When a candidate began to act, as far as that was by a time; else when it was written."""
    at = candidate.acts_at
    return at if at is not None and at <= by else candidate.change.at
