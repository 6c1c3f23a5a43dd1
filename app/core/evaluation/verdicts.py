"""How good this installation's own rankings were, by what people said of its suspects."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from app.core.evaluation.accuracy import Accuracy, Rank, Reliability, accuracy, reliability
from app.core.findings import NONE, Opinion, Ranking, Verdict


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


@dataclass(frozen=True, slots=True)
class Own:
    """How good this installation's rankings were. ``accuracy`` by when they were made, of incidents with a culprit."""

    judged: int
    """Incidents of which it is known what it was, a change or none."""
    without_culprit: int
    """Of these, those that no change began."""
    none_led: int
    """Of those, the ones of which "none of these" led in the first ranking."""
    accuracy: dict[str, Accuracy]
    reliability: tuple[Reliability, ...]
    """Of what led in the first ranking, wherever it is known whether that was right."""


def own(cases: Sequence[Judged]) -> Own:
    """From every incident of which somebody said something. What nobody said anything of says nothing here."""
    known = [case for case in cases if case.culprits]
    with_culprit = [case for case in known if case.culprits != {NONE}]
    without = [case for case in known if case.culprits == {NONE}]
    made = {
        "at first": [_rank(case.first, case.culprits) for case in with_culprit],
        "at last": [_rank(case.newest, case.culprits) for case in with_culprit],
    }
    leaders = [told for case in cases if (told := _leader(case)) is not None]
    return Own(
        judged=len(known),
        without_culprit=len(without),
        none_led=sum(case.first.none_leads for case in without),
        accuracy={when: accuracy(ranks) for when, ranks in made.items()} if with_culprit else {},
        reliability=tuple(reliability(leaders)),
    )


def _rank(ranking: Ranking, culprits: Iterable[str]) -> Rank | None:
    """Where the first of several culprits stands, by itself or within what another stands for."""
    places = ranking.places
    return min((Rank(places[one] - 1) for one in culprits if one in places), key=lambda rank: rank.above, default=None)


def _leader(case: Judged) -> tuple[float, bool] | None:
    """How likely what led was said to be, and whether that was right; None where nobody said so."""
    leaders, (_, probability) = case.first.leaders, case.first.leader
    if case.culprits:
        return probability, not case.culprits.isdisjoint(leaders)
    is_not_it = any(one.change_id in leaders and one.opinion is Opinion.NOT_IT for one in case.verdicts)
    return (probability, False) if is_not_it else None
