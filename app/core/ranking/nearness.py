"""How near what a signal is about is to what a change reaches: over shared entities, or over names in messages."""

from __future__ import annotations

import re
from collections.abc import Collection
from functools import lru_cache
from operator import itemgetter

from app.core.edges.reach import Reach
from app.core.entities import READ, Entity
from app.core.objects.actors import service_account
from app.core.phrases import names
from app.core.ranking.candidates import Candidate
from app.core.signals.signal import Signal

LOCAL = frozenset(
    {
        "ConfigMap",
        "Secret",
        "ServiceAccount",
        "PersistentVolumeClaim",
        "ResourceQuota",
        "LimitRange",
        "Role",
        "RoleBinding",
    }
)
"""Kinds whose objects mean something within their own namespace only: each namespace may have one of the same name."""
UNCALLED = LOCAL | {"HorizontalPodAutoscaler", "PodDisruptionBudget", "NetworkPolicy"}
"""Kinds that nothing calls: a server that messages name by its address is another object of that name."""
_CALLER = re.compile(r'User "[^"]*"')
"""Who was refused is not what refused it."""


def distance(reached: Reach, entity: Entity) -> float | None:
    """Hops from a change to an entity, or else to what is as good as it."""
    if entity in reached:
        return reached[entity]
    others = alike(reached, entity)
    return min(map(reached.__getitem__, others)) if others else None


def alike(reached: Collection[Entity], entity: Entity) -> list[Entity]:
    """Those entities, of ``reached``, that are as good as this one: "*" in one that is about calls matches anything,
    and a ServiceAccount is in the group of its namespace."""
    if entity[0] in ("api", "access", "gained", "asked", "altered", "throttle"):
        return [
            other
            for other in reached
            if other[0] == entity[0]
            and len(other) == len(entity)
            and all(a in (b, "*") or b == "*" for a, b in zip(other[1:], entity[1:], strict=True))
        ]
    account = service_account(entity[1]) if entity[0] == "user" else None
    group: Entity = ("user", f"group:system:serviceaccounts:{account[0]}") if account else ()
    return [group] if group in reached else []


def mentioned(candidate: Candidate, signal: Signal) -> tuple[str, float] | None:
    """The name of this change's object, of a part of it or of what reads it as its own configuration, that the signal's
    messages say in quotes or whole; with the hops to it.

    Only names that could not be an accident: at least five characters, and not those of the workloads that complain
    and of their namespaces, which name themselves.
    """
    text = said(signal)
    if not text:
        return None
    about = [entity for entity in (*signal.about, *signal.spread) if entity[0] in ("workload", "ns")]
    complaining = {entity[-1] for entity in signal.about if entity[0] in ("workload", "ns")}
    complaining |= {entity[1] for entity in signal.about if entity[0] == "object"}
    resource = candidate.change.resource
    namespaces = {entity[1] for entity in about}
    elsewhere = resource.kind in LOCAL and bool(namespaces) and resource.namespace not in namespaces
    known = [(hops, entity[1]) for entity, hops in candidate.reach.items() if entity[0] == "named" and hops <= READ]
    for hops, name in sorted(known, key=itemgetter(0)):
        if name in complaining:
            continue
        if elsewhere and name == resource.name:
            continue  # another one of that name
        if resource.kind in UNCALLED and name == resource.name and _is_called(text, name):
            continue  # a server of that name
        if names(text, name):
            return name, hops
    return None


def _is_called(text: str, name: str) -> bool:
    """Whether a text names something as a server: by its address."""
    return (
        re.search(rf"(?:tcp|udp|lookup|//|@|host:?) ?{re.escape(name)}\b|\b{re.escape(name)}[\w.-]*:\d", text)
        is not None
    )


def said(signal: Signal) -> str:
    """What a signal's messages say, without who was refused."""
    return _without_caller(signal.text)


@lru_cache(maxsize=1_000)  # it is asked for each candidate
def _without_caller(text: str) -> str:
    return _CALLER.sub("", text)
