"""How good rankings were by what people said: only what is known counts, also that no change began it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from msgspec.structs import replace

from app.core.evaluation.accuracy import wilson
from app.core.evaluation.verdicts import Found, Judged, Own, own
from app.core.findings import NONE, Also, Onset, Opinion, Ranking, Suspect, Verdict
from app.core.model import change_id
from tests.core.factories import a_change

AT = datetime(2026, 11, 22, 12, tzinfo=UTC)
NOT_IT = Opinion.NOT_IT


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


def shares(found: Own, when: str = "at first") -> tuple[float | None, float | None]:
    """AC@1 and AC@3."""
    return found.ranked[when].first.share, found.ranked[when].among_three.share


def counts(found: Own, where: str, when: str = "at first") -> tuple[int, int, int]:
    """How many count, of how many of these nobody said what it was, and how many are left out."""
    one: Found = getattr(found.ranked[when], where)
    return one.cases, one.unnamed, one.left_out


def test_where_the_culprit_stood_at_first_and_at_last() -> None:
    found = own([judged(a_ranking(0.6, 0.2), said(2), newest=a_ranking(0.1, 0.8)), judged(a_ranking(0.9), said(1))])
    assert (found.judged, found.without_culprit) == (2, 0)
    assert shares(found) == (0.5, 1.0)
    assert [(one.cases, one.said, one.right) for one in found.reliability] == [(1, 0.6, 0.0), (1, 0.9, 1.0)]


def test_a_culprit_that_was_not_listed_was_missed_and_of_several_the_first_counts() -> None:
    found = own([judged(a_ranking(0.6, 0.2), said(7)), judged(a_ranking(0.6, 0.2), said(2), said(9))])
    assert shares(found) == (0.0, 0.5)
    assert found.ranked["at first"].first.interval == wilson(0, 2)


def test_a_culprit_that_was_written_with_the_suspect_stood_where_that_did() -> None:
    ranking = a_ranking(0.2, 0.6)
    second = ranking.suspects[1]
    also = Also(change_id(AT, 7), AT, second.change.resource)
    first = replace(ranking, suspects=(replace(second, rank=1, beside=(also,)), replace(ranking.suspects[0], rank=2)))
    found = own([judged(first, said(7))])
    assert shares(found)[0] == 1.0
    assert [(one.said, one.right) for one in found.reliability] == [(0.6, 1.0)]


def test_an_incident_that_no_change_began_is_right_where_none_of_these_led() -> None:
    found = own([judged(a_ranking(0.2, none=0.7), said(None)), judged(a_ranking(0.8), said(None))])
    assert (found.judged, found.without_culprit, found.none_led) == (2, 2, 1)
    assert not found.ranked
    assert [(one.said, one.right) for one in found.reliability] == [(0.7, 1.0), (0.8, 0.0)]


def test_that_the_leader_was_not_it_says_that_it_was_wrong_and_nothing_of_the_rest() -> None:
    found = own([judged(a_ranking(0.8, 0.1), said(1, NOT_IT)), judged(a_ranking(0.8, 0.1), said(2, NOT_IT))])
    assert (found.judged, found.unnamed) == (0, 2)
    assert counts(found, "first") == (1, 1, 1)
    assert counts(found, "among_three") == (0, 0, 2)
    assert shares(found) == (0.0, None)
    assert [(one.cases, one.right) for one in found.reliability] == [(1, 0.0)]


def test_a_culprit_that_nobody_named_is_missed_where_all_that_stood_there_was_not_it() -> None:
    ranking = a_ranking(0.4, 0.3, 0.1, 0.05)
    three = judged(ranking, *(said(number, NOT_IT) for number in (1, 2, 3)))
    found = own([three, judged(ranking, said(1, NOT_IT), said(2, NOT_IT)), judged(ranking, said(1))])
    assert (found.judged, found.unnamed) == (1, 2)
    assert counts(found, "first") == (3, 2, 0)
    assert counts(found, "among_three") == (2, 1, 1)
    assert shares(found) == (1 / 3, 1 / 2)
    assert found.of_unnamed.startswith("Of 2 incidents people said only what it was not.")


def test_where_none_of_these_led_it_must_be_denied_too() -> None:
    ranking = a_ranking(0.2, none=0.7)
    found = own([judged(ranking, said(1, NOT_IT)), judged(ranking, said(1, NOT_IT), said(None, NOT_IT))])
    assert counts(found, "first") == counts(found, "among_three") == (1, 1, 1)
    nothing_listed = own([judged(a_ranking(none=0.9), said(None, NOT_IT))])
    assert counts(nothing_listed, "first") == (1, 1, 0)


def test_each_ranking_counts_by_what_stood_in_it() -> None:
    last = a_ranking(0.1, 0.8)
    last = replace(last, suspects=(replace(last.suspects[1], rank=1), replace(last.suspects[0], rank=2)))
    found = own([judged(a_ranking(0.8, 0.1), said(1, NOT_IT), newest=last)])
    assert (counts(found, "first"), counts(found, "first", "at last")) == ((1, 1, 0), (0, 0, 1))


def test_few_are_said_to_be_few() -> None:
    assert own([judged(a_ranking(0.9), said(1))] * 19).few
    assert not own([judged(a_ranking(0.9), said(1))] * 20).few


def test_nothing_said_is_nothing_known() -> None:
    found = own([])
    assert (found.judged, found.ranked, found.reliability, found.of_unnamed) == (0, {}, (), "")
