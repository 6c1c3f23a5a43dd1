"""Evictions that budgets refuse, for pods that were not ready before: as many as a budget lets be away are away.

https://kubernetes.io/docs/tasks/run-application/configure-pdb/#unhealthy-pod-eviction-policy ,
https://kubernetes.io/docs/concepts/scheduling-eviction/api-eviction/#how-api-initiated-eviction-works
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from app.core.edges.mechanism import ILL
from app.core.edges.topology import Named, State, Topology
from app.core.entities import Entity
from app.core.objects.selectors import selects
from app.core.objects.untyped import fields, part
from app.core.signals.signal import Signal, SignalKind

REFUSED = "429"
HELD, OTHERS = 0.95, 0.2
"""How much a refusal is about what is not ready, and how much as before about all budgets there."""


def with_unready(signals: Sequence[Signal], top: Topology) -> list[Signal]:
    """The signals; evictions that budgets refuse are about those workloads there whose pods complained before, and
    still do, and which a budget is for."""
    ill = [one for one in signals if one.facts.get("reason") in ILL]
    return [_told(one, ill, top) if one.facts.get("code") == REFUSED else one for one in signals] if ill else [*signals]


def _told(signal: Signal, ill: Sequence[Signal], top: Topology) -> Signal:
    spaces = {entity[1] for entity in signal.about if entity[0] == "evictions"}
    still = (one for one in ill if one.low < signal.low and (one.until is None or one.until >= signal.low))
    unready = {home for one in still for home in _homes(one) if home[0] in spaces}
    found = {home: budgets for home in unready if (budgets := _budgets(home, top))}
    if signal.kind is not SignalKind.ERROR or not found:
        return signal
    about: dict[Entity, float] = {
        entity: weight * (OTHERS if entity[0] == "evictions" else 1.0) for entity, weight in signal.about.items()
    }
    about |= {("workload", *home): HELD for home in found}
    about |= {("object", "PodDisruptionBudget", home[0], name): HELD for home in found for name in found[home]}
    names = ", ".join(sorted(name for _, name in found)[:3])
    return replace(signal, about=about, sentence=f"{signal.sentence}, while pods of {names} were not ready")


def _homes(signal: Signal) -> Iterable[Named]:
    return ((entity[1], entity[2]) for entity in signal.about if entity[0] == "workload")


def _budgets(home: Named, top: Topology) -> list[str]:
    """The budgets that are for the pods of a workload."""
    known: list[State] = top.of_kind["policy", "PodDisruptionBudget"]
    return [
        str(metadata.get("name"))
        for state in known
        if (metadata := fields(state.get("metadata"))).get("namespace") == home[0]
        and selects(part(state, "spec", "selector") or {}, top.labels.get(home, {}))
    ]
