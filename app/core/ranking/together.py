"""Others that a change does not reach begin to complain with whom it reaches: likelier what all of them share."""

from __future__ import annotations

import re

from app.core.edges.said import NO_CONNECTION
from app.core.findings import Evidence
from app.core.phrases import many
from app.core.ranking.case import Case, Facts, say
from app.core.ranking.explain import BY_CALLING, out_of_reach
from app.core.signals.signal import SignalKind

EACH, MOST = -0.7, -1.4
"""What each of them weighs, and all of them at most. A guess between half and all of what nearness in time weighs: of
one complaint both say where it came from."""
_TAKEN = re.compile(
    r"too many|limit exceeded|(?:rate|over|exceed).{0,40}limit|\b429\b|throttl|exhaust|overload|saturat",
    re.IGNORECASE,
)
"""What one of them may have taken from the others."""
_BY_LONG = re.compile(r"\b(?:dai|week|month)ly\b|\b(?:per|of the) (?:day|week|month)\b", re.IGNORECASE)
"""What is given for so long is hardly used up by what came minutes ago."""


def together(case: Case, facts: Facts) -> Evidence | None:
    """Who complains of what the change leads to is not alone: others, out of its reach, do in the same words, or call
    the same server outside."""
    complaints = [m for m in facts.matches if m.signal.kind is SignalKind.SYMPTOM and id(m.signal) in case.salience]
    main = max(complaints, key=lambda m: case.salience[id(m.signal)], default=None)
    if main is None or main.via[0] == "named" or any(m.via[:1] in BY_CALLING for m in complaints):
        return None
    text = main.signal.text
    is_taken = _TAKEN.search(text) is not None and _BY_LONG.search(text) is None
    if facts.candidate.added or NO_CONNECTION.search(text) or is_taken:
        return None
    if not (apart := sorted(one[-1] for one in out_of_reach(facts.candidate, main.signal))):
        return None
    others = f" and {many(len(apart) - 1, 'other')}" if apart[1:] else ""
    sentence = f"{apart[0]}{others}, which it does not reach, began to complain of the same then."
    return say("together", max(MOST, EACH * len(apart)), sentence)
