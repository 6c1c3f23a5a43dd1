"""What has something done many times as often, or as much of it at once, burdens whom that calls."""

from __future__ import annotations

import math

from app.core.edges.multiples import multiplied
from app.core.findings import Evidence
from app.core.ranking.case import Case, Facts, say
from app.core.signals.signal import SignalKind

DOUBLED, MOST = 0.4, 1.6
"""What it weighs for each doubling, and at most: half of what *lessened* weighs for each halving, as most servers bear
that more is asked."""
_WAYS = (("burdens",), ("shares",))


def more_often(_case: Case, facts: Facts) -> Evidence | None:
    """A change has something done twice as often or more, and leads by its calls to who complains."""
    if not any(m.via[:1] in _WAYS and m.signal.kind is SignalKind.SYMPTOM for m in facts.matches):
        return None
    found = multiplied(facts.candidate.change)
    if found is None or found[0] < 2:
        return None
    times, name = found
    sentence = f"Its {name} has something done {times:,.0f} times as often, or as much of it at once."
    return say("more often", min(MOST, DOUBLED * math.log2(times)), sentence)
