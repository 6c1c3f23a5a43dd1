"""How good this installation's own rankings were, by what people said of its suspects."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from app.core.evaluation.accuracy import Reliability, reliability, wilson
from app.core.findings import NONE, Opinion, Ranking, Verdict
from app.core.phrases import of_unnamed

FEW = 20
"""Of fewer incidents figures say little."""


@dataclass(frozen=True, slots=True)
class Judged:
    """An incident of which somebody said something: its first ranking, its newest, and what was said."""

    incident_id: str
    title: str
    first: Ranking
    newest: Ranking
    verdicts: tuple[Verdict, ...]

    @property
    def culprits(self) -> frozenset[str]:
        """The changes that somebody said were it; NONE among them where it was none."""
        return frozenset(one.change_id for one in self.verdicts if one.opinion is Opinion.IT)

    @property
    def cleared(self) -> frozenset[str]:
        """The changes that somebody said were not it; NONE among them where it was some change."""
        return frozenset(one.change_id for one in self.verdicts if one.opinion is Opinion.NOT_IT)


@dataclass(frozen=True, slots=True)
class Found:
    """In how many incidents the culprit was among the first suspects, of those where it is known whether it was."""

    cases: int
    unnamed: int
    """Of these, the ones of which it is known only that it was not there: nobody said what it was."""
    left_out: int
    """Further incidents: nobody said what it was, and it may have been there."""
    share: float | None
    """None where there are no cases."""
    interval: tuple[float, float] | None


@dataclass(frozen=True, slots=True)
class Ranked:
    """Where culprits stood in rankings that were made at about the same time of an incident."""

    first: Found
    among_three: Found


@dataclass(frozen=True, slots=True)
class Own:
    """How good this installation's rankings were. ``ranked`` by when they were made, of incidents that a change began
    as far as is known: with a culprit, or of which nobody said what it was."""

    judged: int
    """Incidents of which it is known what it was, a change or none."""
    without_culprit: int
    """Of these, those that no change began."""
    none_led: int
    """Of those, the ones of which "none of these" led in the first ranking."""
    unnamed: int
    """Further incidents, of which people said only what it was not."""
    ranked: dict[str, Ranked]
    reliability: tuple[Reliability, ...]
    """Of what led in the first ranking, wherever it is known whether that was right."""

    @property
    def few(self) -> bool:
        """Whether chance decides more than the ranking."""
        return self.judged + self.unnamed < FEW

    @property
    def of_unnamed(self) -> str:
        """How incidents count of which nobody said what it was; "" where there are none."""
        return of_unnamed(self.unnamed)


def own(cases: Sequence[Judged]) -> Own:
    """From every incident of which somebody said something. What nobody said anything of says nothing here."""
    known = [case for case in cases if case.culprits]
    without = [case for case in known if case.culprits == {NONE}]
    unnamed = [case for case in cases if not case.culprits]
    others = [case for case in cases if case.culprits != {NONE}]
    made = {
        "at first": [(case.first, case) for case in others],
        "at last": [(case.newest, case) for case in others],
    }
    leaders = [told for case in cases if (told := _leader(case)) is not None]
    return Own(
        judged=len(known),
        without_culprit=len(without),
        none_led=sum(case.first.none_leads for case in without),
        unnamed=len(unnamed),
        ranked={when: Ranked(_found(of, 1), _found(of, 3)) for when, of in made.items()} if others else {},
        reliability=tuple(reliability(leaders)),
    )


def _found(made: Sequence[tuple[Ranking, Judged]], k: int) -> Found:
    """Among the first ``k``, by itself or within what another stands for; of several culprits one is enough."""
    named = [
        any(ranking.places.get(one, k + 1) <= k for one in case.culprits) for ranking, case in made if case.culprits
    ]
    without = [_missed(ranking, case.cleared, k) for ranking, case in made if not case.culprits]
    missed, right = sum(without), sum(named)
    n = len(named) + missed
    return Found(n, missed, len(without) - missed, right / n if n else None, wilson(right, n) if n else None)


def _missed(ranking: Ranking, cleared: frozenset[str], k: int) -> bool:
    """Whether people said of all the first ``k`` that they were not it; of "none of these", too, where that led: else
    it may have been right."""
    stood = [one.ids for one in ranking.suspects[:k]]
    if ranking.none_leads:
        stood.append((NONE,))
    return all(not cleared.isdisjoint(ids) for ids in stood)


def _leader(case: Judged) -> tuple[float, bool] | None:
    """How likely what led was said to be, and whether that was right; None where nobody said so."""
    leaders, (_, probability) = case.first.leaders, case.first.leader
    if case.culprits:
        return probability, not case.culprits.isdisjoint(leaders)
    is_not_it = any(one.change_id in leaders and one.opinion is Opinion.NOT_IT for one in case.verdicts)
    return (probability, False) if is_not_it else None
