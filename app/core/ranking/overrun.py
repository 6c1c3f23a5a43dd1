"""Where far more came than before, whoever fails may be well: what brings nobody to ask more hardly began it."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping

from app.core.edges.burdens import tries_again
from app.core.edges.served import ASKED
from app.core.findings import Evidence, Incident
from app.core.ranking.case import Case, Facts, say
from app.core.ranking.explain import BY_CALLING
from app.core.ranking.lessened import left
from app.core.signals.signal import Signal

DOUBLED, MOST = -0.5, -1.0
"""What it weighs each time that twice as many came, and at most: who fails may be asked again and again for that."""
CLEAR = 0.5
"""So salient is such a complaint, of the most salient one."""


_WHAT = r"\b(?:requests?|req|rps|calls|queries|visit(?:or)?s|log-?ins|sign-?ins|traffic)\b"
_NUMBER = r"\b(\d+(?:\.\d+)?)"
_BETWEEN = r"(?:(?!fail|error|\. )[^;()]){0,60}?"
_TIMES = re.compile(
    rf"{_WHAT}{_BETWEEN}{_NUMBER} ?(?:times|x\b|×) (?:the|usual|above|over|more|as many)\b", re.IGNORECASE
)
_BEFORE = re.compile(rf"{_NUMBER} ?{_WHAT}{_BETWEEN}\((?:usual|normal)?(?:ly)? ?{_NUMBER}", re.IGNORECASE)
"""How alerts say by how much more is asked: "requests are 12 times the usual", "5200 requests/s (usually 580)"."""


def told_by(incident: Incident) -> float:
    """How many times as many requests came as alerts say themselves; 1 where they say nothing of it."""
    text = "\n".join(alert.message.replace(",", "") for alert in incident.alerts)
    times = [float(found) for found in _TIMES.findall(text)]
    rates = [(float(now), float(before)) for now, before in _BEFORE.findall(text)]
    return max((*times, *(now / before for now, before in rates if before)), default=1.0)


def grown(incident: Incident, signals: Iterable[Signal], salience: Mapping[int, float]) -> float:
    """How many times as many requests came, as alerts say or clear ones of the signals; 1 where none does."""
    clear = (float(s.facts.get(ASKED, 1)) for s in signals if salience[id(s)] >= CLEAR)
    return max(told_by(incident), *clear, 1.0)


def overrun(case: Case, facts: Facts) -> Evidence | None:
    """What turned bad did so as far more was asked, and the change neither makes anybody ask more nor leaves less to
    answer with."""
    if case.grown <= 1:
        return None
    asks = any(match.via[:1] in BY_CALLING for match in facts.matches) or tries_again(facts.candidate.change)
    if asks or facts.candidate.set_off or left(facts):
        return None
    told = f"{case.grown:.1f} times as many requests came then, and nothing known leads from it to who sends them."
    return say("overrun", max(MOST, DOUBLED * math.log2(case.grown)), told)
