"""How many pods a change makes, replaces or adds: nodes, the API server and who shares a server feel them."""

from __future__ import annotations

from typing import Any

from app.core.edges.mechanism import cordons
from app.core.edges.topology import Topology, pod_template, pods_at_once
from app.core.entities import WORKLOADS
from app.core.model import Change, Rollout, Verb
from app.core.objects.untyped import fields


def pods_moved(change: Change, rollout: Rollout | None, topology: Topology) -> int:
    """How many pods the change makes or replaces, or took from a node that it cordoned; 0 where it moves none, or
    nothing is known."""
    if cordons(change):
        return sum(at >= change.at for _, at in topology.left.get(change.resource.name, ()))
    if change.resource.kind not in WORKLOADS:
        return 0
    state = topology.states.get(change.resource) or {}
    replicas = pods_at_once(fields((_made(change) or state).get("spec")))
    desired = max((p.desired for p in rollout.progress), default=0) if rollout else 0
    before = after = replicas if isinstance(replicas, int) else 1
    for diff in change.diffs:
        if diff.path[-1:] in (("replicas",), ("parallelism",)):
            before, after = (v if isinstance(v, int) else 1 for v in (diff.old, diff.new))
    retemplated = any("template" in diff.path for diff in change.diffs) or change.verb is not Verb.UPDATE
    if retemplated and pod_template(state) is not None:
        return max(before, after, desired)
    return abs(after - before)


def _made(change: Change) -> dict[str, Any] | None:
    """What was made, as it was then."""
    made = next((diff.new for diff in change.diffs if not diff.path), None)
    return made if isinstance(made, dict) and "spec" in made else None


def pods_added(change: Change, topology: Topology) -> int:
    """How many more pods there are after the change: what takes room from others."""
    if change.resource.kind not in WORKLOADS or change.verb is Verb.DELETE:
        return 0
    if change.verb is Verb.CREATE:
        return pods_moved(change, None, topology)
    more = 0
    for diff in change.diffs:
        if diff.path[-1:] in (("replicas",), ("parallelism",)):
            before, after = (value if isinstance(value, int) else 1 for value in (diff.old, diff.new))
            more += max(0, after - before)
    return more
