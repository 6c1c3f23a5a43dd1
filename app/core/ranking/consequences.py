"""What moving pods makes: calls, watch events, LISTs of those who could not follow, and no room for others."""

from __future__ import annotations

import re

from app.core.edges.mechanism import FULL
from app.core.entities import only_reacts
from app.core.objects.pod_states import PREEMPTED
from app.core.signals.signal import Signal, SignalKind

SHORT = frozenset(
    {
        *("SystemOOM", "NodeHasInsufficientMemory", "MemoryPressure", "EvictionThresholdMet"),
        *("NodeHasDiskPressure", "DiskPressure", "Evicted"),
    }
)
"""What is said of nodes that are too full
(https://kubernetes.io/docs/concepts/scheduling-eviction/node-pressure-eviction/)."""
_NO_ROOM = re.compile(r"\A(?!.*(?:unreachable|not-ready)).*(?:Insufficient |Too many pods)", re.DOTALL)
"""What the scheduler says where nodes are full, and none is lost."""
LOSE_WATCHES = 12
"""Pods from which on, moved at once, they can make clients lose their watches: the API server keeps the last 100 events
of a resource at least, more of one that changes a lot (defaultLowerBoundCapacity,
https://github.com/kubernetes/kubernetes/blob/v1.36.0/staging/src/k8s.io/apiserver/pkg/storage/cacher/watch_cache.go),
and a pod that is replaced makes some 8 or 9, as is reckoned: two are made, bound, reported on and deleted."""


def is_consequence(signal: Signal) -> bool:
    """Whether the signal is what moving pods makes: controllers' calls, their queues, watch events, LISTs of those who
    could not follow them, no room left."""
    if signal.kind is SignalKind.LOAD:
        reacts = bool(signal.users) and all(only_reacts(user) for user in signal.users)
        return reacts or _podlike(signal.facts.get("relist", ""))
    if signal.kind is SignalKind.SYMPTOM:
        return lacks_room(signal) and (bool(signal.spread) or signal.facts.get("reason") == PREEMPTED)
    if signal.kind is not SignalKind.METRIC:
        return False
    return _podlike(signal.facts.get("resource", "")) or signal.facts.get("family") in (
        "Queue adds",
        "Queue depth",
        "Watches ended",
        "Initial events",
        "Memory",
        "CPU",
        "etcd latency",
        "Goroutines",
    )


def takes_lost_watches(signal: Signal) -> bool:
    """Whether pods that move bring it about only where they are so many that clients lose their watches, and list anew:
    who keeps a watch lists nothing."""
    if signal.kind is SignalKind.LOAD:
        return "relist" in signal.facts
    return signal.kind is SignalKind.METRIC and signal.facts.get("verb") == "LIST"


def lacks_room(signal: Signal) -> bool:
    """Whether pods find no place for those that are there, or are taken from theirs, or a node is too full of them."""
    if signal.kind is not SignalKind.SYMPTOM or signal.facts.get("reason") in SHORT:
        return signal.kind is SignalKind.SYMPTOM
    if signal.facts.get("reason") not in FULL:
        return False
    return bool(signal.spread) or signal.facts["reason"] == PREEMPTED or bool(_NO_ROOM.search(signal.text))


def _podlike(resource: str) -> bool:
    """Whether objects of this resource move with pods."""
    return resource.partition(".")[0] in ("pods", "events", "endpointslices", "endpoints", "replicasets", "bindings")
