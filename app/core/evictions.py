"""Who evicts pods: an eviction is said of the pod that it takes away, and not who asked for it, nor why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta

from app.core.calls import caller_name, program
from app.core.counted import Calls
from app.core.entities import Entity
from app.core.grants import Grant
from app.core.model import SLOT_SECONDS
from app.core.pod_states import EVICTED
from app.core.signals import Signal
from app.core.topology import Topology

EVICTION: Grant = ("", "pods/eviction", "create")
"""The call that evicts a pod (https://kubernetes.io/docs/concepts/scheduling-eviction/api-eviction/)."""
ASKED = 0.9
"""How much an eviction is about who asked for all of them."""
DRAINED = 0.8
"""How much it is about the node that all of them left."""
SLOT = timedelta(seconds=SLOT_SECONDS)


def with_evictors(signals: Iterable[Signal], calls: Calls, top: Topology) -> list[Signal]:
    """The signals; evictions are about who asked for them, too, and about the nodes from which the pods went."""
    return [_with_evictors(one, calls, top) if one.facts.get("reason") == EVICTED else one for one in signals]


def _with_evictors(signal: Signal, calls: Calls, top: Topology) -> Signal:
    homes = {(entity[1], entity[2]) for entity in (*signal.about, *signal.spread) if entity[0] == "loses"}
    left = Counter(
        node for node, gone in top.left.items() for home, at in gone if home in homes and at >= signal.low - SLOT
    )
    about: dict[Entity, float] = {("node", node): DRAINED * n / left.total() for node, n in left.items()}
    asked = _askers(signal, calls, {namespace for namespace, _ in homes})
    for user, count in asked.items():
        share = count / asked.total()
        about[("user", user)] = ASKED * share
        about |= {entity: weight * share for entity, weight in program(user).items()}
    by = f", by {caller_name(asked.most_common(1)[0][0])}" if asked else ""
    return replace(signal, about=signal.about | about, spread={}, sentence=signal.sentence + by)


def _askers(signal: Signal, calls: Calls, namespaces: set[str]) -> Counter[str]:
    """How many evictions each caller was granted there while pods were evicted."""
    granted = calls.where(
        lambda one: (
            (one.api_group, one.resource, one.verb) == EVICTION and one.code < 400 and one.namespace in namespaces
        )
    )
    found = Counter[str]()
    for key, count in granted.during(_epoch(signal.low - SLOT), _epoch((signal.until or signal.high) + SLOT)).sums():
        found[key.user] += count
    return found


def _epoch(at: datetime) -> int:
    return int(at.timestamp())
