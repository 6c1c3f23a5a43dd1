"""What leaves a program less to work with hurts where answers are late, and as late as more is asked of it."""

from __future__ import annotations

import math
import re

from app.core.edges.amounts import SIZES, left_of
from app.core.findings import Evidence, Incident
from app.core.model import FieldDiff
from app.core.objects.values import moved
from app.core.phrases import percent
from app.core.ranking.case import Case, Facts, say
from app.core.ranking.short_of import is_short

HALVED, MOST = 0.8, 1.6
"""What it weighs each time that what there is is halved, and at most."""
IS_TOLD = 1.5
"""What it weighs that an alert is about just that, as much as a scale to zero, which is as plain."""
_AT_MOST = re.compile(r"maxed ?out|\bmax(?:imum)? (?:number of )?replicas", re.IGNORECASE)
"""How alerts say that an autoscaler has made as many pods as it may: KubeHpaMaxedOut of
https://github.com/kubernetes-monitoring/kubernetes-mixin."""
_MOST_PODS = frozenset({"maxReplicas", "maxReplicaCount"})


def lessened(case: Case, facts: Facts) -> Evidence | None:
    """A change leaves half, or less, of what a program does at once, and leads to complaints of too little."""
    if (found := left(facts)) is None:
        return None
    share, diff = found
    weight = min(MOST, -HALVED * math.log2(share))
    of_file = "" if diff in facts.candidate.change.diffs else f"{diff.path[-1]}: "  # a summary says that it changed
    sentence = f"It leaves {percent(share)} of what there was ({of_file}{moved(diff).strip()})."
    if diff.path[-1] in _MOST_PODS and facts.scope is not None and _is_at_most(case.incident):
        return say("lessened", weight + IS_TOLD, f"{sentence} The alert says that no more pods may be.")
    if SIZES.search(str(diff.path[-1])):
        return say("lessened", weight + IS_TOLD, f"{sentence} What is complained of is larger than it may be.")
    return say("lessened", weight, sentence)


def _is_at_most(incident: Incident) -> bool:
    """Whether an alert says that an autoscaler may make no more pods."""
    return any(_AT_MOST.search(f"{alert.reason} {alert.message}") for alert in incident.alerts)


def left(facts: Facts) -> tuple[float, FieldDiff] | None:
    """How little is left, and of what, where what the change leads to may be that there is too little of that."""
    change = facts.candidate.change
    return left_of(change) if any(is_short(change, match.signal) for match in facts.matches) else None
