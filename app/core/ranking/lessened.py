"""What leaves a program less to work with hurts where answers are late, and as late as more is asked of it."""

from __future__ import annotations

import math

from app.core.edges.amounts import left_of
from app.core.findings import Evidence
from app.core.objects.values import moved
from app.core.phrases import percent
from app.core.ranking.case import Case, Facts, say
from app.core.ranking.ways import SCARCE
from app.core.signals.signal import SignalKind

HALVED, MOST = 0.8, 1.6
"""What it weighs that half is left, for each time that it is halved, and at most."""
AT_MOST = frozenset({"TooManyReplicas"})
"""An autoscaler says so that would make more pods than it may."""


def lessened(_case: Case, facts: Facts) -> Evidence | None:
    """A change leaves half, or less, of what a program does at once, and leads to complaints of too little."""
    if not facts.matches or (left := left_of(facts.candidate.change)) is None:
        return None
    share, diff = left
    if share > 0.5 or not is_short(facts):
        return None
    weight = min(MOST, -HALVED * math.log2(share))
    return say("lessened", weight, f"It leaves {percent(share)} of what there was ({moved(diff).strip()}).")


def is_short(facts: Facts) -> bool:
    """Whether what a change leads to may be that there is too little of something."""
    told = [match.signal for match in facts.matches if match.signal.kind is SignalKind.SYMPTOM]
    return any(SCARCE.search(signal.text) or signal.facts.get("reason") in AT_MOST for signal in told)


def comes_later(facts: Facts) -> bool:
    """Whether a change takes effect as more is asked, whenever that is."""
    left = left_of(facts.candidate.change) if facts.matches else None
    return left is not None and left[0] <= 0.5 and is_short(facts)
