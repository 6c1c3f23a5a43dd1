"""Where far more came than before, whoever fails may be well: what brings nobody to ask more hardly began it."""

from __future__ import annotations

import math

from app.core.edges.served import ASKED
from app.core.findings import Evidence
from app.core.ranking.case import Case, Facts, say
from app.core.ranking.explain import BY_CALLING
from app.core.ranking.lessened import left

DOUBLED, MOST = -0.5, -1.0
"""What it weighs each time that twice as many came, and at most: who fails may be asked again and again for that."""
CLEAR = 0.5
"""So salient is such a complaint, of the most salient one."""


def overrun(case: Case, facts: Facts) -> Evidence | None:
    """What turned bad did so as far more was asked, and the change neither makes anybody ask more nor leaves less to
    answer with."""
    times = max((float(s.facts.get(ASKED, 1)) for s in case.signals if case.salience[id(s)] >= CLEAR), default=1.0)
    asks = any(match.via[:1] in BY_CALLING for match in facts.matches)
    if times <= 1 or asks or facts.candidate.set_off or left(facts):
        return None
    told = f"{times:.1f} times as many requests came then, and nothing known leads from it to who sends them."
    return say("overrun", max(MOST, DOUBLED * math.log2(times)), told)
