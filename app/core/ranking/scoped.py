"""Whether a change touches what an alert names: evidence for it, or, elsewhere and tied by little, against it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from app.core.entities import workload
from app.core.findings import Evidence
from app.core.objects.brought import quoted
from app.core.phrases import SHORTEST, names
from app.core.ranking.candidates import Candidate
from app.core.ranking.case import Case, Facts, say
from app.core.ranking.explain import Match

ALONE = 0.5
"""So much more it weighs where nothing turned bad clearly: what the alert names is then all that is told."""
NAMED = 1.05
"""What it weighs that the alert names the very object: alerts sit on what suffers, which seldom is what was changed."""
QUOTED = 1.5
"""The same where it quotes a host, a path or a key that the change put in or took away."""
TIED = 0.3
"""A match at least this strong ties a change to the incident whatever its namespace."""
UNTIED = 0.1
"""One that is weaker than this is none."""
_OTHERS = frozenset({"PodDisruptionBudget", "NetworkPolicy", "ServiceAccount", "ServiceMonitor", "PodMonitor"})
"""Kinds whose objects are called like what they are for, and are never what an alert means."""
_WAYS = (
    ("calls", "calls it or what depends on it"),
    ("reads", "reads what is kept up by it or by what depends on it"),
    ("shares", "calls what it calls"),
)


def in_scope(case: Case, facts: Facts) -> Evidence | None:
    """Whether it touches what the alert names."""
    found = facts.scope
    if found is None or found.weight < 0:
        return found
    told = 1.0 + ALONE * (1.0 - case.quality)
    return say("scope", found.weight * told * facts.keeps * (0.5 if facts.candidate.inert else 1.0), found.sentence)


def touches(case: Case, candidate: Candidate, matches: Sequence[Match], *, explained: float) -> Evidence | None:
    """The same, whether or not anything acts by the change: ``scope`` of its Facts; ``explained`` is as there."""
    scope, reached = case.incident.scope, candidate.reach
    if said := _quoted_by_alert(case, candidate):
        return say("scope", QUOTED, f'The alert says "{said}", which this change put in or took away.')
    told = [_touches_workload(candidate, matches, *named.split("/", 1)) for named in scope.workloads]
    touched = [found for found in told if found is not None]
    if touched:  # one of several that suffer together is seldom why the others do
        most = max(touched, key=lambda found: found.weight)
        return say("scope", most.weight * math.sqrt(len(touched) / len(told)), most.sentence)
    for node in scope.nodes:
        if ("node", node) in reached:
            return say("scope", 0.85, f"It touches node {node}, which the alert names.")
    if named_in_alert(case, candidate):
        return say("scope", 0.7, f"The alert names {candidate.change.resource.name}.")
    homes = [namespace for namespace in scope.namespaces if ("ns", namespace) in reached]
    if homes:
        own = candidate.change.resource.namespace or candidate.change.resource.name
        where = f"is in namespace {own}" if own in homes else f"reaches namespace {homes[0]}"
        return say("scope", 0.4, f"It {where}, which the alert names.")
    is_elsewhere = scope.namespaces and not scope.control_plane and candidate.change.resource.namespace
    if is_elsewhere and explained * case.quality < TIED:
        return say("scope", -0.55, "It is in another namespace than the alert, and little measured ties them.")
    return None


def is_untied(case: Case, facts: Facts) -> bool:
    """Whether it touches nothing that the alert names, and leads to nothing that turned bad."""
    if facts.explained * case.quality >= UNTIED:
        return False
    return facts.scope is None or facts.scope.weight < 0


def _touches_workload(candidate: Candidate, matches: Sequence[Match], namespace: str, name: str) -> Evidence | None:
    reached, resource = candidate.reach, candidate.change.resource
    hops = reached.get(workload(namespace, name))
    if (resource.namespace or "", resource.name) == (namespace, name) and resource.kind not in _OTHERS:
        hops = 0  # whatever its kind, mostly: an alert's "service" label names the Service
    if hops is not None:
        how = "It is" if hops == 0 else "It reaches"
        return say("scope", NAMED * 0.7**hops, f"{how} {name}, which the alert names.")
    shown = reached.get(("entrance", namespace, name))
    if shown is not None:
        what = "It is" if shown <= 1 else "What comes of it is"  # as of an issuer its certificates
        return say(
            "scope", NAMED * 0.7**shown, f"{what} shown to who comes from outside to {name}, which the alert names."
        )
    for way, what in _WAYS:
        steps = reached.get((way, namespace, name))
        # That others call the same is felt where there is too little for all, and that is what matches say.
        if steps is not None and (way != "shares" or any(match.via[0] == way for match in matches)):
            return say("scope", 0.85 * 0.7**steps, f"{name}, which the alert names, {what}.")
    return None


def _quoted_by_alert(case: Case, candidate: Candidate) -> str:
    """The longest word of the change that an alert quotes, "" for none; what it calls its object is no quotation."""
    if not case.alert_words:
        return ""
    found = quoted(candidate.change) & case.alert_words
    return max(found - {candidate.change.resource.name}, key=len, default="")


def named_in_alert(case: Case, candidate: Candidate) -> bool:
    """Whether an alert says the object's own name, in its message or as a label's value."""
    name = candidate.change.resource.name
    return len(name) >= SHORTEST and (name in case.alert_labels or names(case.alert_messages, name))
