"""Complaints of custom resources: it is the program that acts on them which says so, and which may be why."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from app.core.edges.operators import SEVERAL, acting
from app.core.edges.references import is_custom
from app.core.edges.topology import Topology
from app.core.entities import Entity
from app.core.signals.signal import Signal, SignalKind

OPERATED = 0.6
"""How much a complaint of a custom resource is about who acts on it."""


def with_operators(signals: Iterable[Signal], top: Topology) -> list[Signal]:
    """The signals; those of custom resources are about the few programs that act on these, too."""
    return [_told(one, top) if one.kind is SignalKind.SYMPTOM else one for one in signals]


def _told(signal: Signal, top: Topology) -> Signal:
    users = set[str]().union(*(_programs(entity, top) for entity in signal.about))
    if not users or len(users) > SEVERAL:
        return signal
    return replace(signal, about={**{("user", user): OPERATED for user in users}, **signal.about})


def _programs(entity: Entity, top: Topology) -> set[str]:
    if entity[0] != "object":
        return set()
    _, kind, namespace, name = entity
    resources = (one for one in top.beside.get((namespace, kind), ()) if one.name == name and is_custom(one))
    return set[str]().union(*(acting(one, top) for one in resources))
