"""What leaves a program less to work with hurts where answers are late, and as late as more is asked of it."""

from __future__ import annotations

import math

from app.core.edges.amounts import left_of
from app.core.findings import Evidence
from app.core.model import FieldDiff
from app.core.objects.values import moved
from app.core.phrases import percent
from app.core.ranking.case import Case, Facts, say
from app.core.ranking.short_of import is_short

HALVED, MOST = 0.8, 1.6
"""What it weighs each time that what there is is halved, and at most."""


def lessened(_case: Case, facts: Facts) -> Evidence | None:
    """A change leaves half, or less, of what a program does at once, and leads to complaints of too little."""
    if (found := left(facts)) is None:
        return None
    share, diff = found
    weight = min(MOST, -HALVED * math.log2(share))
    return say("lessened", weight, f"It leaves {percent(share)} of what there was ({moved(diff).strip()}).")


def left(facts: Facts) -> tuple[float, FieldDiff] | None:
    """How little is left, and of what, where what the change leads to may be that there is too little of that."""
    change = facts.candidate.change
    return left_of(change) if any(is_short(change, match.signal) for match in facts.matches) else None
