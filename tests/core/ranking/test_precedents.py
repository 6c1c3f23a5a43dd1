"""How a change went before, elsewhere and by what people said, moves a suspect by odds."""

from __future__ import annotations

import math
from datetime import timedelta

import pytest
from msgspec.structs import replace

from app.core.findings import Evidence, Onset, Opinion, Ranking, Suspect
from app.core.model import Change
from app.core.ranking.precedents import HARM, Memory, Precedent, remembered
from tests.core.factories import a_change, a_resource, after

WEEK, DAY = timedelta(days=7), timedelta(days=1)
CHANGE = a_change()
RIVAL = a_change(a_resource("Deployment", "rival"), at=after(1), new="rival:2")


def suspect(place: int, probability: float, change: Change) -> Suspect:
    return Suspect(place, probability, math.log(probability), change, (Evidence("time", 0.2, "Near."),))


def a_ranking() -> Ranking:
    """A half for the first, two tenths for its rival and for none, and a tenth for what is not shown."""
    onset = Onset(after(5), after(4), after(6), "errors")
    suspects = (suspect(1, 0.5, CHANGE), suspect(2, 0.2, RIVAL))
    return Ranking("i", after(60), onset, suspects, 0.2, 3, (after(-60), after(60)))


def before(
    span: timedelta,
    *,
    incident: str = "",
    cluster: str = "",
    alerted: bool = True,
    change: Change = CHANGE,
    said: str = "",
) -> Precedent:
    resource = replace(change.resource, cluster=cluster or change.resource.cluster)
    opinions = (Opinion(said),) if said else ()
    return Precedent(replace(change, at=change.at - span, resource=resource), incident, alerted, opinions)


def of_first(*precedents: Precedent, **more: object) -> tuple[Evidence, ...]:
    found = remembered(a_ranking(), Memory(precedents, **more))  # type: ignore[arg-type]
    first = next(one for one in found.suspects if one.change is CHANGE)
    return tuple(e for e in first.evidence if e.rule != "time")


def test_nothing_remembered_moves_nothing() -> None:
    assert remembered(a_ranking(), Memory()) == a_ranking()


def test_the_same_change_elsewhere_speaks_for_it_where_an_incident_began_there() -> None:
    (said,) = of_first(before(WEEK, cluster="stage", incident="Checkout fails"), before(DAY, cluster="eu"))
    assert (said.rule, said.weight) == ("elsewhere", 0.8)
    assert said.sentence == 'The same change was made in stage, and there "Checkout fails" began soon after.'


def test_the_same_change_elsewhere_speaks_against_it_where_all_is_well() -> None:
    (one,) = of_first(before(DAY, cluster="stage"))
    (more,) = of_first(before(DAY, cluster="stage"), before(DAY, cluster="eu"))
    assert more.weight < one.weight < 0
    assert "in eu, stage: no incident began there" in more.sentence


@pytest.mark.parametrize(
    "precedent",
    [
        before(DAY, cluster="stage", change=replace(CHANGE, diffs=RIVAL.diffs)),
        before(DAY, cluster="stage", change=RIVAL),
        before(DAY, cluster="stage", alerted=False),
        before(HARM / 2, cluster="stage"),
    ],
    ids=["another image", "another object", "nobody tells of incidents there", "not yet an hour ago"],
)
def test_what_says_nothing_of_it_is_left_out(precedent: Precedent) -> None:
    assert of_first(precedent) == ()


def test_what_is_made_every_week_and_went_well_is_a_habit() -> None:
    (said,) = of_first(before(WEEK + timedelta(minutes=50)), before(2 * WEEK), before(4 * WEEK))
    assert said.rule == "habit"
    assert said.weight == pytest.approx(-0.5 * math.log(4), abs=0.001)
    assert said.sentence.startswith(f"It is made every {CHANGE.at:%A} at about this time, in 3 of the last 5 weeks")
    (daily,) = of_first(*(before(n * DAY) for n in range(1, 6)))
    assert "every day at about this time, in 5 of the last 7 days" in daily.sentence


@pytest.mark.parametrize(
    "precedents",
    [
        [before(WEEK)],
        [before(WEEK), before(2 * WEEK, incident="Slow")],
        [before(WEEK + timedelta(hours=2)), before(2 * WEEK + timedelta(hours=2))],
    ],
    ids=["once", "an incident followed", "at another time"],
)
def test_what_is_no_harmless_habit(precedents: list[Precedent]) -> None:
    assert of_first(*precedents) == ()


def test_the_first_ever_is_said_where_the_record_is_long_enough() -> None:
    scaled = a_change(path=("spec", "replicas"), old=1, new=2)
    others = [before(n * DAY, change=scaled) for n in (4, 9, 11)]
    (said,) = of_first(*others, since=CHANGE.at - 23 * DAY)
    assert said.rule == "first ever"
    assert said.sentence == "It is the first of its sort of this object in 23 days, after 3 other changes."
    assert of_first(*others, since=CHANGE.at - 6 * DAY) == ()
    assert of_first(*others, before(20 * DAY), since=CHANGE.at - 23 * DAY) == ()
    assert of_first(*others[:2], since=CHANGE.at - 23 * DAY) == (), "of a quiet object whatever is done is that"


def test_what_people_said_of_such_changes_counts() -> None:
    (was,) = of_first(before(20 * DAY, said="it"))
    (was_not,) = of_first(before(20 * DAY, said="not it"), before(30 * DAY, said="not it"))
    (both,) = of_first(before(20 * DAY, said="it"), said=((CHANGE.id, Opinion.NOT_IT), (RIVAL.id, Opinion.IT)))
    assert was_not.weight < 0 < both.weight < was.weight
    assert (
        both.sentence
        == "Of such a change of this object people said one time that it was it and one time that it was not."
    )


def test_the_odds_move_and_the_order_with_them() -> None:
    memory = Memory(said=((RIVAL.id, Opinion.IT), (RIVAL.id, Opinion.IT), (CHANGE.id, Opinion.NOT_IT)))
    found = remembered(a_ranking(), memory)
    rival, first = found.suspects
    assert (rival.change, rival.rank, first.rank) == (RIVAL, 1, 2)
    assert rival.would_flip == "verdicts"
    gain = 0.8 * math.log2(3)
    assert rival.probability / found.none_of_these == pytest.approx(math.exp(gain), rel=0.01)
    hidden = found.none_of_these / 2  # what is not shown keeps its odds against "none of these"
    assert rival.probability + first.probability + found.none_of_these + hidden == pytest.approx(1)
