"""How well a candidate explains a signal: shared entities, names in messages, and time.

The match is the specificity with which the signal is about an entity, times a discount for each hop between the
change and that entity. Nothing that came after a signal can explain it.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from datetime import datetime, timedelta

from app.core.actors import service_account
from app.core.candidates import Candidate
from app.core.complaints import WIDE
from app.core.entities import POD_MAKING, Entity, only_reacts, pods_in, workload
from app.core.mechanism import plausible
from app.core.model import Scope
from app.core.reach import Reach
from app.core.signals import Signal, SignalKind

HOP = 0.6
"""Each hop away keeps this much of a match."""
TAU = timedelta(minutes=10)
"""A lag of this length halves how well a change explains a signal."""
CLOCK_SKEW = timedelta(seconds=1)

_CROWDED = frozenset({"FailedScheduling", "Unschedulable", "Pending"})
_CALLER = re.compile(r'User "[^"]*"')
"""Who was refused is not what refused it."""


@dataclass(frozen=True, slots=True)
class Match:
    """``score`` 0 to 1: how well this candidate explains this signal; ``via`` the entity they share."""

    signal: Signal
    score: float
    via: Entity
    lag: timedelta


def explain(candidate: Candidate, signal: Signal, *, churn_share: float) -> Match | None:
    """The match of a candidate with a signal, or None.

    ``churn_share`` is the candidate's share of all pods that candidates moved shortly before the signal.
    """
    if candidate.change.at > signal.high + CLOCK_SKEW:
        return None
    best: float = 0.0
    via: Entity = ()
    for entity, weight in signal.about.items():
        hops = distance(candidate.reach, entity)
        if hops is not None and weight * HOP**hops > best:
            best, via = weight * HOP**hops, entity
    share, reached = _covered(candidate, signal)
    if share > best:
        best, via = share, ("spread", str(reached), str(len(signal.spread)))
    if (named := mentioned(candidate, signal)) and best < 1.0:
        best, via = max(best, 0.95), ("named", named)
    if churn_share and is_consequence(signal):
        churned = 0.9 * churn_share
        if churned > best:
            best, via = churned, ("churn", candidate.change.resource.name)
    if signal.kind is SignalKind.SYMPTOM and via[:1] != ("named",):
        facts = signal.facts
        best *= plausible(candidate.change, facts.get("reason", ""), refused=facts.get("refused", ""))
    if best <= 0.05:
        return None
    lag = max(timedelta(), signal.low - candidate.change.at)
    return Match(signal, best / (1.0 + lag / TAU), via, lag)


def _covered(candidate: Candidate, signal: Signal) -> tuple[float, int]:
    """Of a complaint that many share: the part made by those whom the change reaches, less the hops; and how many."""
    covered, reached = 0.0, 0
    for home, share in signal.spread.items():
        ways = [home, POD_MAKING] if home[0] != "workload" else [home, pods_in(home[1]), POD_MAKING]
        hops = min((candidate.reach[way] for way in ways if way in candidate.reach), default=None)
        if hops is not None:
            covered, reached = covered + share * HOP**hops, reached + 1
    return covered, reached


def is_consequence(signal: Signal) -> bool:
    """Whether the signal is what moving pods makes: controllers' calls, their queues, watch events, no room left."""
    if signal.kind is SignalKind.LOAD:
        return bool(signal.users) and all(only_reacts(user) for user in signal.users)
    if signal.kind is SignalKind.SYMPTOM:
        return bool(signal.spread) and signal.facts.get("reason") in _CROWDED
    if signal.kind is not SignalKind.METRIC:
        return False
    family, resource = signal.facts.get("family", ""), signal.facts.get("resource", "")
    podlike = resource.split(".")[0] in ("pods", "events", "endpointslices", "endpoints", "replicasets", "bindings")
    return podlike or family in (
        "Queue adds",
        "Queue depth",
        "Watches ended",
        "Memory",
        "CPU",
        "etcd latency",
        "Goroutines",
    )


def distance(reached: Reach, entity: Entity) -> float | None:
    """Hops from a change to an entity; "*" in an api or access entity of the change matches anything."""
    if entity in reached:
        return reached[entity]
    if entity[0] in ("api", "access"):
        hops = [
            hops
            for other, hops in reached.items()
            if other[0] == entity[0]
            and len(other) == len(entity)
            and all(a in (b, "*") or b == "*" for a, b in zip(other[1:], entity[1:], strict=True))
        ]
        return min(hops, default=None)
    if entity[0] == "user" and (account := service_account(entity[1])):
        return reached.get(("user", f"group:system:serviceaccounts:{account[0]}"))
    return None


def mentioned(candidate: Candidate, signal: Signal) -> str | None:
    """The name of this change's object, or of a part of it, that the signal's messages say in quotes or whole.

    Only names that could not be an accident: at least five characters, and not those of the workloads that complain
    and of their namespaces, which name themselves.
    """
    text = _CALLER.sub("", signal.text)
    if not text:
        return None
    complaining = {entity[-1] for entity in signal.about if entity[0] in ("workload", "ns")}
    for entity, hops in candidate.reach.items():
        if entity[0] == "named" and hops == 0 and len(entity[1]) >= 5 and entity[1] not in complaining:
            name = entity[1]
            if re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w-])", text):
                return name
    return None


def relevance(signal: Signal, scope: Scope, *, words: frozenset[str]) -> float:
    """How much a signal is what the alert is about, 0 to 1.

    ``words`` are the alerts' own words: an alert that says "cannot create pods" is about calls that create pods.
    """
    inside = _inside(signal, scope)
    widely = signal.kind in (SignalKind.LOAD, SignalKind.FIGHT, SignalKind.METRIC)
    if scope.control_plane:
        base = {SignalKind.SYMPTOM: 0.4, SignalKind.ERROR: 0.7}.get(signal.kind, 1.0)
        if _is_lone(signal):
            base = 0.15  # one object's complaint is no control plane's
    elif scope.namespaces or scope.workloads:
        base = 0.5 if signal.kind in (SignalKind.LOAD, SignalKind.FIGHT) else 0.35 if widely else 0.25
        if signal.kind is SignalKind.ERROR:
            base = 0.45
        if _is_lone(signal):
            base = 0.12  # one object's complaint somewhere else
        elif signal.spread:
            base = 0.5  # what many complain of is seldom beside the point
    else:
        base = 0.25 if _is_lone(signal) else 0.6
    said = frozenset(re.findall(r"[a-z]{4,}", f"{signal.sentence} {signal.text}".lower()))
    overlap = len(said & words) / max(4.0, math.sqrt(len(said) * max(1, len(words)))) if words else 0.0
    return min(1.0, max(base, inside) + 0.3 * overlap)


def _is_lone(signal: Signal) -> bool:
    """Whether fewer than WIDE objects complain."""
    if signal.kind is not SignalKind.SYMPTOM:
        return False
    return sum(entity[0] in ("workload", "object", "node") for entity in signal.about) < WIDE


def _inside(signal: Signal, scope: Scope) -> float:
    """1 where the signal is about the alert's own workload, 0.8 about its namespace, 0 elsewhere."""
    best = 0.0
    for entity, weight in signal.about.items():
        if entity[0] == "workload":
            if f"{entity[1]}/{entity[2]}" in scope.workloads:
                best = max(best, min(1.0, 0.4 + weight))
            elif entity[1] in scope.namespaces:
                best = max(best, 0.75 * min(1.0, 0.4 + weight))
        elif entity[0] == "ns" and entity[1] in scope.namespaces:
            best = max(best, 0.7)
        elif entity[0] == "node" and entity[1] in scope.nodes:
            best = max(best, 0.9)
        elif entity[0] == "user" and (account := service_account(entity[1])) and account[0] in scope.namespaces:
            same = workload(*account)[1:] in {tuple(w.split("/", 1)) for w in scope.workloads}
            best = max(best, 1.0 if same else 0.8)
    return best


def window_of(at: datetime) -> tuple[datetime, datetime]:
    """The moves that a signal at ``at`` could be the consequence of."""
    return at - timedelta(minutes=15), at + timedelta(seconds=5)
