"""A ranking -> for each suspect the one piece of evidence that its place hangs on.

Who reads a ranking asks what they would have to doubt for it to be another: the weakest single piece of evidence for a
suspect without which what stands behind it would come before it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from msgspec.structs import replace

from app.core.findings import NONE, Evidence, Ranking, Suspect


def with_flips(ranking: Ranking) -> Ranking:
    """The ranking with ``would_flip`` of each of its suspects."""
    return replace(ranking, suspects=tuple(replace(one, would_flip=_flip(one, ranking)) for one in ranking.suspects))


def _flip(suspect: Suspect, ranking: Ranking) -> str:
    enough = [e for e in suspect.evidence if passed_by(suspect, ranking, without=e)]
    return min(enough, key=lambda e: e.weight).rule if enough else ""


@dataclass(frozen=True, slots=True)
class Flip:
    """The evidence that a suspect's place hangs on, and the name of what it would be behind without that."""

    rule: str
    sentence: str
    behind: str


def flip(suspect: Suspect, ranking: Ranking) -> Flip | None:
    """What its place hangs on; None where no single piece of evidence does it."""
    reason = next((e for e in suspect.evidence if e.rule == suspect.would_flip), None)
    passing = passed_by(suspect, ranking, without=reason) if reason else ""
    if not reason or not passing:
        return None
    names = {one.change.id: one.change.resource.name for one in ranking.suspects}
    return Flip(reason.rule, reason.sentence, names.get(passing, "“none of these”"))


def passed_by(suspect: Suspect, ranking: Ranking, *, without: Evidence) -> str:
    """What would come before a suspect of the ranking if it lacked that evidence: the next one's change id, or NONE
    where it leads and "none of these" would then; "" for nothing.

    Scores are log-odds, so that without a weight its odds against "none of these" are e to that weight times less.
    """
    behind = ranking.suspects[suspect.rank] if suspect.rank < len(ranking.suspects) else None
    if behind is not None and behind.score <= suspect.score - without.weight:
        behind = None
    leads = suspect.rank == 1 and not ranking.none_leads
    none_would_lead = leads and suspect.probability * math.exp(-without.weight) < ranking.none_of_these
    if none_would_lead and (behind is None or behind.probability < ranking.none_of_these):
        return NONE
    return behind.change.id if behind is not None else ""
