"""How much each thing that turned bad is what the alert is about, and what merely follows from another."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from app.core.alerted import text_of, told_in
from app.core.edges.front_doors import PROXIES
from app.core.edges.operators import run_by
from app.core.edges.topology import Topology
from app.core.entities import Entity, workload
from app.core.findings import Incident, Scope
from app.core.model import Resource, Symptom
from app.core.objects.actors import AUTOSCALER, service_account
from app.core.objects.dependencies import Named, closure
from app.core.phrases import names
from app.core.ranking.consequences import is_consequence
from app.core.ranking.downstream import DEPTH, roots
from app.core.ranking.probed import NOT_ANSWERED
from app.core.signals.complaints import WIDE, is_over
from app.core.signals.newborn import Newborn, is_newborn
from app.core.signals.signal import Signal, SignalKind

STEP = 0.9
"""Each step from the alert's workload to what it calls keeps this much of the relevance."""
NEWBORN = 0.1
"""Relevance of a complaint of what was only made in the window and is named by no alert."""
UNMEASURED = 0.02
"""The same of an autoscaler that was just made: of pods that have only just started, metrics are not known yet. And of
what Kubernetes' own one does where nobody serves metrics: it asks, fails and says so for ever."""
_OF_WORDS = re.compile(r"[A-Z][a-z]+[A-Z]")
"""A kind of one word, as Application or Cluster, is a word of alerts that are not about it."""
_AUTOSCALER_KIND = "HorizontalPodAutoscaler"
_OF_AUTOSCALING = frozenset({"autoscaler", "autoscalers", "autoscaling", "horizontalpodautoscaler", "metrics"})
"""Words of an alert that is about autoscalers, or what they measure by."""
FOLLOWS = 0.4
"""What a client's complaint keeps where what it calls complained before it."""
BY_THE_WAY = 0.3
"""What the work that moving pods gives Kubernetes' own controllers keeps of its relevance where workloads suffer."""
OVER = 0.3
"""What a complaint keeps that was over long before the alert began: too little to date an onset by."""
LONG = timedelta(minutes=1)
"""So long before it all must have been well already (complaints.is_over): probes may be asked once a minute."""


@dataclass(frozen=True, slots=True)
class Near:
    """What surrounds an alert: its own words, what its workloads call (in steps), what is new in the window, all
    that it says, when it began, and in which namespaces stands who told of another's.

    An alert that says "cannot create pods" is about calls that create pods.
    """

    words: frozenset[str]
    upstream: dict[Named, int]
    newborn: Newborn
    said: str
    at: datetime
    told_in: tuple[str, ...] = ()


def surroundings(incident: Incident, top: Topology, *, new: Newborn) -> Near:
    """What surrounds an incident's alerts."""
    named = [(namespace, name) for namespace, _, name in (one.partition("/") for one in incident.scope.workloads)]
    words = frozenset(re.findall(r"[a-z]{4,}", " ".join(_said(alert) for alert in incident.alerts).lower()))
    said = " ".join(f"{alert.message} {text_of(alert.labels)}" for alert in incident.alerts)
    told = {namespace for alert in incident.alerts if (namespace := told_in(alert.labels))}
    beside = dict.fromkeys(_operating(incident, said, top) | _letting_in(named, top), 1)
    upstream = beside | closure(named, top.rests_on, depth=DEPTH)
    return Near(words, upstream, new, said, incident.started_at, tuple(sorted(told)))


def _operating(incident: Incident, said: str, top: Topology) -> set[Named]:
    """Who acts on custom resources of the kinds that alerts tell of: CacheClusterNotReady is what its operator fails
    to see to, in whichever namespace that runs."""
    told = " ".join((said, *(alert.reason for alert in incident.alerts)))
    kinds = [(group, kind) for group, kind in top.customs if _OF_WORDS.match(kind) and kind in told]
    return {key for group, kind in kinds for key in run_by(Resource(incident.cluster, group, kind, None, ""), top)}


def _letting_in(named: Iterable[Named], top: Topology) -> set[Named]:
    """Who serves the doors of the cluster, where one of these stands behind one: nobody outside reaches it but so."""
    behind = {service for services in top.doors.values() for service in services}
    if not any(front in behind for key in named for front in top.fronts.get(key, ())):
        return set()
    return {key for key in top.labels if PROXIES.search(key[1])}


def _said(alert: Symptom) -> str:
    parts = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", alert.reason)
    return f"{parts} {alert.message} {text_of(alert.labels)}"


def weigh(signals: list[Signal], scope: Scope, *, near: Near, top: Topology) -> list[tuple[Signal, float]]:
    """Each signal with its relevance × strength.

    Where a workload complains and something that it calls complained before it, it is the latter that matters: what
    a client suffers from is handed on to what it suffers under; so is what is said of an object to that one, and that a
    node is lost to what it was short of.
    """
    if _only_newborn(signals, scope, near=near):  # whom else the alert may be about does not complain
        near = replace(near, newborn={})
    weights = [relevance(signal, scope, near=near) * signal.strength for signal in signals]
    long_before = near.at - LONG
    weights = [OVER * w if is_over(signal, long_before) else w for signal, w in zip(signals, weights, strict=True)]
    final = list(weights)
    following = dict(roots(signals, top))
    for n in following:
        final[n] = FOLLOWS * weights[n]
    for n, behind in following.items():
        first = _origins(n, following) or behind
        strongest = max(first, key=lambda m: weights[m])
        final[strongest] = max(final[strongest], weights[n])
    return list(zip(signals, final, strict=True))


def _origins(n: int, following: dict[int, list[int]]) -> list[int]:
    """Of what is behind a complaint, and behind that, what follows from nothing."""
    seen, border = {n}, [n]
    while border:
        border = [m for one in border for m in following.get(one, ()) if m not in seen]
        seen.update(border)
    return [m for m in seen if m not in following]


def relevance(signal: Signal, scope: Scope, *, near: Near) -> float:
    """How much a signal is what the alert is about, 0 to 1."""
    if signal.facts.get("reason") == NOT_ANSWERED:
        return 1.0  # the alert says so itself
    if _is_echo(signal, scope, near=near):
        return UNMEASURED
    if _is_newborn(signal, scope, near=near):
        return UNMEASURED if _of_autoscaler(signal) else NEWBORN
    within, words, base = inside(signal, scope, upstream=near.upstream), near.words, _base(signal, scope)
    if near.told_in:
        within = max(within, inside(signal, Scope(near.told_in), upstream={}))
    said = frozenset(re.findall(r"[a-z]{4,}", f"{signal.sentence} {signal.text}".lower()))
    overlap = len(said & words) / max(4.0, math.sqrt(len(said) * max(1, len(words)))) if words else 0.0
    return min(1.0, max(base, within) + 0.3 * overlap)


def _base(signal: Signal, scope: Scope) -> float:
    """Its relevance by what sort of thing turned bad, wherever it is."""
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
        if is_consequence(signal) and signal.kind is not SignalKind.SYMPTOM:
            base *= BY_THE_WAY
    else:
        base = 0.25 if _is_lone(signal) else 0.6
        if scope.nodes and is_consequence(signal) and signal.kind is not SignalKind.SYMPTOM:
            base *= BY_THE_WAY
    return base


def _is_echo(signal: Signal, scope: Scope, *, near: Near) -> bool:
    """Whether it is only the autoscaler's complaint that it knows no metrics, in calls or in what counts them, or how
    often Events are written: what these say is a signal of its own."""
    if _OF_AUTOSCALING & near.words:
        return False
    if signal.kind is SignalKind.METRIC:
        of_events = signal.facts.get("resource") == "events" and not scope.control_plane
        return of_events or signal.facts.get("name") == "horizontalpodautoscaler"
    served = signal.passed is not None and signal.passed.counts.sum() > 0
    return bool(signal.users) and set(signal.users) == {AUTOSCALER} and not served


def _only_newborn(signals: list[Signal], scope: Scope, *, near: Near) -> bool:
    """Whether only what is new complains in the alert's namespaces."""
    there = [s for s in signals if s.kind is SignalKind.SYMPTOM and inside(s, scope, upstream=near.upstream)]
    if not _OF_AUTOSCALING & near.words:
        there = [s for s in there if not _of_autoscaler(s)]
    return bool(scope.namespaces) and bool(there) and all(_is_newborn(s, scope, near=near) for s in there)


def _of_autoscaler(signal: Signal) -> bool:
    return any(entity[:2] == ("object", _AUTOSCALER_KIND) for entity in signal.about)


def _is_lone(signal: Signal) -> bool:
    """Whether fewer than WIDE objects complain."""
    if signal.kind is not SignalKind.SYMPTOM:
        return False
    return sum(entity[0] in ("workload", "object", "node") for entity in signal.about) < WIDE


def _is_newborn(signal: Signal, scope: Scope, *, near: Near) -> bool:
    """Whether only objects complain, a few, that are new and that no alert names: nobody relies on them yet."""
    objects = [entity for entity in signal.about if entity[0] == "object"]  # an autoscaler complains for itself
    homes = objects or [entity for entity in signal.about if entity[0] == "workload"]
    few = signal.kind is SignalKind.SYMPTOM and 0 < len(homes) < WIDE
    return few and all(is_newborn(home, signal.low, near.newborn) and not _named(home, scope, near) for home in homes)


def _named(home: Entity, scope: Scope, near: Near) -> bool:
    """Whether an alert names it. An autoscaler mostly has the name of what it scales, which is then the one meant."""
    if home[0] == "workload" and f"{home[1]}/{home[2]}" in scope.workloads:
        return True
    if home[:2] == ("object", _AUTOSCALER_KIND) and not _OF_AUTOSCALING & near.words:
        return False
    return names(near.said, home[-1])


def inside(signal: Signal, scope: Scope, *, upstream: dict[Named, int]) -> float:
    """1 where the signal is about the alert's own workload, 0.9 what that calls, 0.8 its namespace, 0 elsewhere."""
    best = 0.0
    for entity, weight in signal.about.items():
        if entity[0] in ("workload", "loses"):
            if f"{entity[1]}/{entity[2]}" in scope.workloads:
                best = max(best, min(1.0, 0.4 + weight))
            elif (steps := upstream.get((entity[1], entity[2]))) is not None:
                best = max(best, STEP**steps * min(1.0, 0.4 + weight))
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
