"""What finds no room may run on some nodes only: who has pods there takes that room, and nobody else.

The scheduler says how many nodes lack what, not which; a ``nodeSelector`` says which nodes are asked
(https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/#nodeselector). Affinities are not read.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from app.core.edges.topology import Topology, pod_spec
from app.core.entities import WORKLOADS, Entity, workload
from app.core.objects.untyped import fields, part
from app.core.ranking.candidates import Candidate
from app.core.ranking.consequences import lacks_room
from app.core.signals.signal import Signal, SignalKind


def with_rooms(signals: list[Signal], top: Topology) -> list[Signal]:
    """Complaints of one workload that finds no room: with those that have pods on the nodes where it may run."""
    lacking = {n for n, one in enumerate(signals) if one.kind is SignalKind.SYMPTOM and lacks_room(one)}
    homes = {home for n in lacking for home in _homes(signals[n])}
    asked = {home: selector for home, selector in _selectors(top).items() if home in homes} if homes else {}
    labels = {
        resource.name: fields(part(state, "metadata", "labels"))
        for resource, state in (top.states.items() if asked else ())
        if resource.kind == "Node"
    }
    return [replace(one, room=_room(one, asked, labels, top)) if n in lacking else one for n, one in enumerate(signals)]


def has_pods(candidate: Candidate, room: frozenset[Entity] | None) -> bool:
    """Whether what a change made has pods in a room (Signal.room); in None, which is anywhere."""
    return room is None or any(candidate.reach.get(home, 1.0) < 1.0 for home in room)


def _homes(signal: Signal) -> list[Entity]:
    return [entity for entity in signal.about if entity[0] == "workload"]


def _selectors(top: Topology) -> dict[Entity, dict[str, Any]]:
    """What the workloads ask of their nodes."""
    found = {}
    for resource, state in top.states.items():
        selector = fields(pod_spec(state).get("nodeSelector")) if resource.kind in WORKLOADS else None
        if selector:
            found[workload(resource.namespace, resource.name)] = selector
    return found


def _room(
    signal: Signal, asked: dict[Entity, dict[str, Any]], labels: dict[str, dict[str, Any]], top: Topology
) -> frozenset[Entity] | None:
    """Who has pods on the nodes that one workload asks for; None where it asks for none, or none is known."""
    homes = _homes(signal)
    if len(homes) != 1 or homes[0] not in asked:
        return None
    nodes = [name for name, has in labels.items() if asked[homes[0]].items() <= has.items()]
    return frozenset(workload(*home) for name in nodes for home in top.by_node.get(name, ())) if nodes else None
