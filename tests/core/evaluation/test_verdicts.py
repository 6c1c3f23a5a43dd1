"""How good rankings were by what people said: only what is known counts, also that no change began it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from msgspec.structs import replace

from app.core.evaluation.verdicts import Judged, own
from app.core.findings import NONE, Also, Onset, Opinion, Ranking, Suspect, Verdict
from app.core.model import change_id
from tests.core.factories import a_change

AT = datetime(2026, 11, 22, 12, tzinfo=UTC)


def a_ranking(*chances: float, none: float = 0.05) -> Ranking:
    """Of changes 1, 2, …, in this order."""
    suspects = tuple(
        Suspect(rank=number, probability=chance, score=0.0, change=replace(a_change(), at=AT, key=number), evidence=())
        for number, chance in enumerate(chances, 1)
    )
    return Ranking(
        incident_id="i",
        ranked_at=AT,
        onset=Onset(AT, AT, AT, "x"),
        suspects=suspects,
        none_of_these=none,
        candidates=9,
        window=(AT, AT),
    )


def said(number: int | None, opinion: Opinion = Opinion.IT) -> Verdict:
    return Verdict(NONE if number is None else change_id(AT, number), opinion, "alice", AT + timedelta(hours=1))


def judged(first: Ranking, *verdicts: Verdict, newest: Ranking | None = None) -> Judged:
    return Judged("i", "It broke", first, newest or first, verdicts)


def test_where_the_culprit_stood_at_first_and_at_last() -> None:
    found = own([judged(a_ranking(0.6, 0.2), said(2), newest=a_ranking(0.1, 0.8)), judged(a_ranking(0.9), said(1))])
    assert (found.judged, found.without_culprit) == (2, 0)
    assert (found.accuracy["at first"].ac1, found.accuracy["at first"].ac3) == (0.5, 1.0)
    assert [(one.cases, one.said, one.right) for one in found.reliability] == [(1, 0.6, 0.0), (1, 0.9, 1.0)]


def test_a_culprit_that_was_not_listed_was_missed_and_of_several_the_first_counts() -> None:
    found = own([judged(a_ranking(0.6, 0.2), said(7)), judged(a_ranking(0.6, 0.2), said(2), said(9))])
    assert (found.accuracy["at first"].ac1, found.accuracy["at first"].ac3) == (0.0, 0.5)


def test_a_culprit_that_was_written_with_the_suspect_stood_where_that_did() -> None:
    ranking = a_ranking(0.2, 0.6)
    second = ranking.suspects[1]
    also = Also(change_id(AT, 7), AT, second.change.resource)
    first = replace(ranking, suspects=(replace(second, rank=1, beside=(also,)), replace(ranking.suspects[0], rank=2)))
    found = own([judged(first, said(7))])
    assert found.accuracy["at first"].ac1 == 1.0
    assert [(one.said, one.right) for one in found.reliability] == [(0.6, 1.0)]


def test_an_incident_that_no_change_began_is_right_where_none_of_these_led() -> None:
    found = own([judged(a_ranking(0.2, none=0.7), said(None)), judged(a_ranking(0.8), said(None))])
    assert (found.judged, found.without_culprit, found.none_led) == (2, 2, 1)
    assert not found.accuracy
    assert [(one.said, one.right) for one in found.reliability] == [(0.7, 1.0), (0.8, 0.0)]


def test_that_the_leader_was_not_it_says_that_it_was_wrong_and_nothing_of_the_rest() -> None:
    not_it = Opinion.NOT_IT
    found = own([judged(a_ranking(0.8, 0.1), said(1, not_it)), judged(a_ranking(0.8, 0.1), said(2, not_it))])
    assert (found.judged, found.accuracy) == (0, {})
    assert [(one.cases, one.right) for one in found.reliability] == [(1, 0.0)]


def test_nothing_said_is_nothing_known() -> None:
    found = own([])
    assert (found.judged, found.accuracy, found.reliability) == (0, {}, ())
