"""The evidence rules: each a small function (Case, Candidate's facts) -> Evidence or nothing, in one tuple.

A weight is a log-odds contribution, capped to ±CAP. A rule that lacks its input says so (``measured`` False) and
weighs nothing: what was not measured never counts against a change. docs/ranking.md explains each.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Protocol

from app.core.candidates import Candidate
from app.core.entities import WORKLOADS, workload
from app.core.explain import Match, is_consequence
from app.core.grants import only_allows_more
from app.core.model import SLOT_SECONDS, Evidence, Incident, Onset, Outcome, Verb
from app.core.signals import Signal, SignalKind

CAP = 4.0
TAU_ONSET = timedelta(minutes=5)
SKEW = timedelta(seconds=1)
SLOT = timedelta(seconds=SLOT_SECONDS)

SYSTEM_NAMESPACES = frozenset({"kube-system", "calico-system", "cilium", "istio-system", "tigera-operator"})
ADMISSION = frozenset(
    {
        "ValidatingWebhookConfiguration",
        "MutatingWebhookConfiguration",
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
        "CustomResourceDefinition",
        "APIService",
        "FlowSchema",
        "PriorityLevelConfiguration",
    }
)
CLUSTER_ACCESS = frozenset({"ClusterRole", "ClusterRoleBinding"})
SELECTING = ("labels", "selector", "matchLabels", "ownerReferences", "podSelector", "namespaceSelector")
"""Fields that tie objects together: 51 % of injected cluster-wide failures were in one of these (Mutiny, DSN'24)."""


@dataclass(frozen=True, slots=True)
class Case:
    """What every rule may look at: the incident, its onset, what turned bad, and how busy the window was."""

    incident: Incident
    onset: Onset
    signals: tuple[Signal, ...]
    salience: dict[int, float]
    """By id(signal): relevance × strength, 1 for the most salient signal of the incident."""
    quality: float
    """0 to 1: how strong the most salient signal is in itself."""
    typical_pods: float
    audited: bool
    now: datetime


@dataclass(frozen=True, slots=True)
class Facts:
    """One candidate with what it explains and how many others came between it and the onset."""

    candidate: Candidate
    matches: tuple[Match, ...]
    between: int


class Rule(Protocol):
    """One piece of evidence; ``__name__`` is what an ablation calls it."""

    __name__: str

    def __call__(self, case: Case, facts: Facts, /) -> Evidence | None: ...


def _say(rule: str, weight: float, sentence: str) -> Evidence:
    return Evidence(rule, round(max(-CAP, min(CAP, weight)), 3), sentence)


def _explains(kind: SignalKind, rule: str, factor: float) -> Rule:
    def explains(case: Case, facts: Facts) -> Evidence | None:
        scored = [
            (case.salience[id(m.signal)] * m.score, m)
            for m in facts.matches
            if m.signal.kind is kind and id(m.signal) in case.salience
        ]
        if not scored:
            return None
        scored.sort(key=lambda pair: -pair[0])
        best = scored[0][0]
        # What explains all that is bad is likelier than what explains one part of it.
        clear = [case.salience[id(s)] for s in case.signals if s.kind is kind and case.salience[id(s)] >= best / 2]
        explained = sum(score for score, m in scored if case.salience[id(m.signal)] >= best / 2) / sum(clear)
        weight = factor * best * (0.6 + 0.6 * explained) * (0.15 + 0.85 * case.quality)
        if weight < 0.05:
            return None
        return _say(rule, weight, _sentence(facts.candidate, scored[0][1]))

    explains.__name__ = rule
    return explains


def _sentence(candidate: Candidate, match: Match) -> str:
    signal, change = match.signal, candidate.change
    since = f", {seconds(match.lag)} after this change" if match.lag else ", at once"
    if match.via[0] == "named":
        return f'Error messages name "{match.via[1]}": {signal.sentence}{since}.'
    if match.via[0] == "churn":
        return f"It moves {candidate.pods} pods, most of what moved then: {signal.sentence}{since}."
    if match.via[0] == "access":
        return f"It took away what this caller needs: {signal.sentence}{since}."
    sentence = f"{signal.sentence}{since}."
    new_share = signal.facts.get("new_share")
    if new_share and signal.kind is SignalKind.LOAD and float(new_share) >= 0.5:
        sentence += f" {float(new_share):.0%} of it comes from pods that were not there before."
    if match.via[0] == "workload" and match.via != workload(change.resource.namespace, change.resource.name):
        sentence = f"{match.via[-1]} depends on it: {sentence}"
    return sentence[:1].upper() + sentence[1:]


def time_before(case: Case, facts: Facts) -> Evidence | None:
    """Closer is likelier, both in minutes and in how many other changes came after it and before the onset."""
    at = facts.candidate.change.at
    if at > case.onset.high + SKEW:
        return None
    lag = max(timedelta(), case.onset.at - at)
    weight = 1.0 - math.log1p(lag / TAU_ONSET) - 0.25 * math.log1p(facts.between)
    count = "one other change" if facts.between == 1 else f"{facts.between} other changes"
    rivals = f"; {count} came between" if facts.between else "; nothing came between"
    when = f"{seconds(lag)} before the onset" if lag >= SKEW else "At the onset"
    return _say("time", weight, f"{when}{rivals}.")


def after_onset(case: Case, facts: Facts) -> Evidence | None:
    """What came after the trouble began did not begin it; less so if it explains a part that began later still."""
    late = facts.candidate.change.at - case.onset.high
    if late <= SKEW:
        return None
    explained = max((case.salience.get(id(m.signal), 0.0) * m.score for m in facts.matches), default=0.0)
    weight = -(3.0 + min(1.0, late / TAU_ONSET)) * (1.0 - 0.7 * min(1.0, explained))
    return _say("after onset", weight, f"It came {seconds(late)} after the onset.")


def in_scope(case: Case, facts: Facts) -> Evidence | None:
    """Whether it touches what the alert names."""
    scope, reached = case.incident.scope, facts.candidate.reach
    for named in scope.workloads:
        namespace, _, name = named.partition("/")
        hops = reached.get(workload(namespace, name))
        resource = facts.candidate.change.resource
        if (resource.namespace or "", resource.name) == (namespace, name):
            hops = 0  # whatever its kind: an alert's "service" label names the Service
        if hops is not None:
            how = "It is" if hops == 0 else "It reaches"
            return _say("scope", 1.5 * 0.7**hops, f"{how} {name}, which the alert names.")
    for node in scope.nodes:
        if ("node", node) in reached:
            return _say("scope", 1.2, f"It touches node {node}, which the alert names.")
    if named_in_alert(case.incident, facts.candidate):
        return _say("scope", 1.0, f"The alert names {facts.candidate.change.resource.name}.")
    hops_to = [reached[("ns", ns)] for ns in scope.namespaces if ("ns", ns) in reached]
    if hops_to:
        own = facts.candidate.change.resource.namespace or facts.candidate.change.resource.name
        return _say("scope", 0.6, f"It is in namespace {own}, which the alert names.")
    if scope.namespaces and not scope.control_plane and not facts.matches and facts.candidate.change.resource.namespace:
        return _say("scope", -0.8, "It is in another namespace than the alert, and nothing measured ties them.")
    return None


def named_in_alert(incident: Incident, candidate: Candidate) -> bool:
    """Whether an alert says the object's own name, in its message or as a label's value."""
    name = candidate.change.resource.name
    said = re.compile(rf"(?<![\w.-]){re.escape(name)}(?![\w-])")
    return len(name) >= 5 and any(
        said.search(alert.message) or name in (value for _, value in alert.labels) for alert in incident.alerts
    )


def plane(case: Case, facts: Facts) -> Evidence | None:
    """What kind of thing breaks what: cluster-wide trouble seldom comes from one namespaced object, and back."""
    change = facts.candidate.change
    kind, namespace = change.resource.kind, change.resource.namespace
    wide = case.incident.scope.control_plane or not case.incident.scope.namespaces
    system = bool(set(case.incident.scope.namespaces) & SYSTEM_NAMESPACES)
    if kind in ADMISSION or kind in CLUSTER_ACCESS:
        weight = 1.0 if wide or system else 0.3
        return _say("plane", weight, f"A {kind} acts on the whole cluster.")
    if kind == "DaemonSet":
        return _say("plane", 0.9 if wide or system else 0.3, "A DaemonSet acts from every node.")
    if kind in WORKLOADS and facts.candidate.pods >= 10 * case.typical_pods:
        ratio = facts.candidate.pods / max(1.0, case.typical_pods)
        return _say(
            "plane",
            min(2.0, 0.6 * math.log(ratio)),
            f"It moves {facts.candidate.pods} pods; a rollout here usually moves {case.typical_pods:.0f}.",
        )
    if (wide or system) and namespace and kind not in WORKLOADS and not facts.matches:
        return _say("plane", -0.7, f"A namespaced {kind} seldom reaches beyond {namespace}.")
    return None


def risk(_case: Case, facts: Facts) -> Evidence | None:
    """How often changes of this sort are what began an incident (triggers: Google SRE Workbook, appendix C)."""
    change = facts.candidate.change
    paths = [diff.path for diff in change.diffs]
    words = {step for path in paths for step in path if isinstance(step, str)}
    if change.resource.kind in WORKLOADS and ("image" in words or change.verb is Verb.CREATE):
        return _say("kind of change", 0.5, "A new image: binary pushes begin 37 % of incidents.")
    if change.resource.kind in WORKLOADS and "template" in words:
        return _say("kind of change", 0.4, "A new pod template: configuration pushes begin 31 % of incidents.")
    if change.resource.kind in ADMISSION | CLUSTER_ACCESS | {"Role", "RoleBinding", "NetworkPolicy", "ResourceQuota"}:
        if only_allows_more(change):
            return _say("kind of change", -0.4, "It only allows more than before.")
        return _say("kind of change", 0.4, f"It changes what others may do ({change.resource.kind}).")
    if change.verb is Verb.DELETE:
        return _say("kind of change", 0.6, f"It deletes the {change.resource.kind}.")
    if paths and all(path[:1] == ("metadata",) for path in paths if path) and words & {"annotations", "labels"}:
        return _say("kind of change", -0.7, "Only labels or annotations changed.")
    if words & set(SELECTING):
        return _say("kind of change", 0.5, "It changes a field that ties objects together.")
    to_zero = any(d.path == ("spec", "replicas") and d.new == 0 and d.old for d in change.diffs)
    if to_zero:
        return _say("kind of change", 1.0, "It scales the workload to zero.")
    if words == {"spec", "replicas"} and facts.candidate.pods <= 10:
        return _say("kind of change", -0.4, "Only the number of replicas changed, by a few.")
    return None


def novelty(_case: Case, facts: Facts) -> Evidence | None:
    """Changes like this one that did no harm speak for it; the first of its sort speaks against it."""
    alike, routine = facts.candidate.alike, facts.candidate.routine
    if routine >= 2:
        return _say(
            "routine",
            -math.log1p(routine),
            f"The same actor made this same edit {routine} times before in this window.",
        )
    if alike == 0:
        return _say("novelty", 0.6, "The first change of its sort in this window.")
    if alike >= 3:
        return _say("novelty", -0.2 * math.log1p(alike), f"{alike} changes of the same sort came before it.")
    return None


def own_rollout(case: Case, facts: Facts) -> Evidence | None:
    """A rollout that failed or hangs is suspicious by itself; one that went through speaks a little for it."""
    rollout = facts.candidate.rollout
    if rollout is None:
        return None
    if rollout.outcome is Outcome.FAILED:
        return _say("rollout", 1.0, f"Its rollout failed: {rollout.reason or 'progress deadline exceeded'}.")
    if rollout.outcome is Outcome.ROLLED_BACK:
        return _say("rollout", 0.6, "It was rolled back.")
    running = (rollout.ended_at or case.now) - rollout.started_at
    if rollout.outcome is Outcome.RUNNING and running > timedelta(seconds=20):
        return _say("rollout", 0.4, f"Its rollout has not finished after {seconds(running)}.")
    if rollout.outcome is not Outcome.COMPLETE or rollout.ended_at is None:
        return None
    main = max(facts.matches, key=lambda m: case.salience.get(id(m.signal), 0.0) * m.score, default=None)
    well = (main.signal.low if main else case.onset.low) - rollout.ended_at
    if well > max(running, SLOT):
        weight = -0.4 * math.log1p(well / max(running, SLOT))
        return _say("rollout", weight, f"Its rollout went through and its pods were well for {seconds(well)} after.")
    if case.incident.scope.workloads:
        return _say("rollout", -0.2, f"Its rollout finished in {seconds(running)}: the new pods are available.")
    return None


def chain(_case: Case, facts: Facts) -> Evidence | None:
    """The order in which churn takes a control plane down: pods move, watches are lost, memory and latency rise."""
    found = sorted((m.signal for m in facts.matches if m.score >= 0.2), key=lambda signal: signal.low)
    links: list[Signal] = []
    for stage in range(4):
        since = links[-1].low - SLOT if links else datetime.min.replace(tzinfo=UTC)
        link = next((signal for signal in found if _stage(signal) == stage and signal.low >= since), None)
        if link is None and stage <= 1:
            return None
        if link is not None:
            links.append(link)
    if len(links) < 3:
        return None
    told = ", then ".join(f"{re.split(r'[,:] ', link.sentence)[0]} at {link.low:%H:%M:%S}" for link in links)
    return _say("chain", 1.0, f"In this order: {told}.")


def _stage(signal: Signal) -> int | None:
    """How far down the chain from churn to restart a signal belongs; None for what is not of it."""
    family = signal.facts.get("family", "")
    if "relist" in signal.facts or family == "Watches ended":
        return 1
    if family in ("Memory", "CPU", "Latency", "etcd latency", "In flight"):
        return 2
    if family == "Restarts":
        return 3
    return 0 if is_consequence(signal) else None


def unexplained(case: Case, facts: Facts) -> Evidence | None:
    """Where much is measured and nothing of it leads to this change, that is said."""
    if facts.matches or not case.signals:
        return None
    return _say("unexplained", -1.0 * case.quality, "Nothing that turned bad leads to it.")


def not_measured(case: Case, _facts: Facts) -> Evidence | None:
    if case.audited:
        return None
    return Evidence("callers", 0.0, "Who called the API is not measured: no audit log.", measured=False)


RULES: tuple[Rule, ...] = (
    _explains(SignalKind.FIGHT, "write fight", 4.0),
    _explains(SignalKind.LOAD, "load", 4.0),
    _explains(SignalKind.ERROR, "errors", 4.0),
    _explains(SignalKind.SYMPTOM, "symptoms", 4.0),
    _explains(SignalKind.METRIC, "metrics", 2.0),
    own_rollout,
    time_before,
    after_onset,
    in_scope,
    plane,
    chain,
    risk,
    novelty,
    unexplained,
    not_measured,
)


def seconds(span: timedelta) -> str:
    """A duration as a person says it during an incident: 0.4 s, 4 s, 2 min, 3 h, 5 d."""
    value = span.total_seconds()
    if value < 1:
        return f"{value:.1f} s"
    for unit, size, limit in (("s", 1, 120), ("min", 60, 7200), ("h", 3600, 172800)):
        if value < limit:
            return f"{value / size:.0f} {unit}"
    return f"{value / 86400:.0f} d"
