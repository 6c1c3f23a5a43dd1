"""What leaves a program less to work with hurts where answers are late, and as late as more is asked of it."""

from __future__ import annotations

import math

from app.core.edges.amounts import KILLED, left_of
from app.core.findings import Evidence
from app.core.model import FieldDiff
from app.core.objects.values import moved
from app.core.phrases import percent
from app.core.ranking.case import Case, Facts, say
from app.core.ranking.ways import SCARCE
from app.core.signals.signal import Signal, SignalKind

HALF, HALVED, MOST = 0.5, 0.8, 1.6
"""From which share on; what it weighs each time that it is halved, and at most."""
AT_MOST = frozenset({"TooManyReplicas"})
"""An autoscaler says so that would make more pods than it may."""


def lessened(_case: Case, facts: Facts) -> Evidence | None:
    """A change leaves half, or less, of what a program does at once, and leads to complaints of too little."""
    if (left := _left(facts)) is None:
        return None
    share, diff = left
    weight = min(MOST, -HALVED * math.log2(share))
    return say("lessened", weight, f"It leaves {percent(share)} of what there was ({moved(diff).strip()}).")


def comes_later(facts: Facts) -> bool:
    """Whether a change takes effect as more is asked, whenever that is."""
    return _left(facts) is not None


def _left(facts: Facts) -> tuple[float, FieldDiff] | None:
    """How little is left, and of what, where what the change leads to may be that there is too little of that."""
    left = left_of(facts.candidate.change) if facts.matches else None
    if left is None or left[0] > HALF:
        return None
    short = _of_memory if left[1].path[-1] == "memory" else _of_anything
    told = (match.signal for match in facts.matches if match.signal.kind is SignalKind.SYMPTOM)
    return left if any(map(short, told)) else None


def _of_memory(signal: Signal) -> bool:
    return signal.facts.get("reason") == "OOMKilled" or KILLED.search(signal.text) is not None


def _of_anything(signal: Signal) -> bool:
    return signal.facts.get("reason") in AT_MOST or SCARCE.search(signal.text) is not None
