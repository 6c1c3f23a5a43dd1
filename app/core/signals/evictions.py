"""Who takes pods away: of one that is evicted or deleted no Event says who asked for it, nor why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta

from app.core.counted import Calls
from app.core.edges.topology import Topology
from app.core.entities import Entity, only_reacts
from app.core.model import SLOT_SECONDS
from app.core.objects.grants import Grant
from app.core.objects.pod_states import EVICTED
from app.core.signals.calls import caller_name, program
from app.core.signals.signal import Signal, SignalKind

EVICTION: Grant = ("", "pods/eviction", "create")
"""The call that evicts a pod (https://kubernetes.io/docs/concepts/scheduling-eviction/api-eviction/)."""
ASKED = 0.9
"""How much an eviction is about who asked for all of them."""
DRAINED = 0.8
"""How much it is about the node that all of them left."""
SLOT = timedelta(seconds=SLOT_SECONDS)
DELETIONS = frozenset({"delete", "deletecollection"})
MISSED = timedelta(minutes=1)
"""For so long a pod that was deleted is missed, at least: it has half a minute to end
(https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#pod-termination), the next one has to start."""
DELETER = "deleter"
"""The fact that says who deleted pods of what complains."""


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
    return _callers(granted.during(_epoch(signal.low - SLOT), _epoch((signal.until or signal.high) + SLOT)))


def with_deleters(signals: Iterable[Signal], calls: Calls, top: Topology) -> list[Signal]:
    """The signals; what workloads complain of whose pods somebody deleted just before is about that caller, too.

    Those that Kubernetes' own controllers delete go by a rollout, by scaling, or with their node.
    """
    deleted = calls.where(
        lambda one: (
            (one.api_group, one.resource) == ("", "pods")
            and one.verb in DELETIONS
            and one.code < 400
            and not only_reacts(one.user)
        )
    )
    return [_with_deleters(one, deleted, top) for one in signals] if deleted else list(signals)


def _with_deleters(signal: Signal, deleted: Calls, top: Topology) -> Signal:
    if signal.kind is not SignalKind.SYMPTOM:
        return signal
    homes = {(entity[1], entity[2]) for entity in (*signal.about, *signal.spread) if entity[0] == "workload"}
    since = signal.low - MISSED
    gone = Counter(
        home for left in top.left.values() for home, at in left if home in homes and since <= at <= signal.high
    )
    namespaces = {namespace for namespace, _ in gone}
    found = _callers(
        deleted.where(lambda one: one.namespace in namespaces).during(_epoch(since), _epoch(signal.high + SLOT))
    )
    if not found:
        return signal
    user, count = found.most_common(1)[0]
    weight = ASKED * min(1.0, count / gone.total())
    about: dict[Entity, float] = {("user", user): weight}
    about |= {entity: weight * share for entity, share in program(user).items()}
    name = caller_name(user)
    return replace(
        signal,
        about=about | signal.about,
        sentence=f"{signal.sentence}, after {name} deleted pods there",
        facts=signal.facts | {DELETER: name},
    )


def _callers(calls: Calls) -> Counter[str]:
    found = Counter[str]()
    for key, count in calls.sums():
        found[key.user] += count
    return found


def _epoch(at: datetime) -> int:
    return int(at.timestamp())
