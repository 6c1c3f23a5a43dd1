"""What the cards and the change page say, from values made here."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from msgspec import structs

from app.core.changes.recipe import Known
from app.core.findings import Ranking
from app.core.model import Object, ObjectState
from app.core.screen.axis import Axis
from app.core.screen.timeline import Moment
from app.store.seen import Seen
from app.store.surroundings import Surroundings
from app.web import views
from app.web.cards import distance, suspect_card, turn
from app.web.change_views import After, change_page
from app.web.views import IncidentPage, Opened
from tests.web import world

MINUTE = timedelta(minutes=1)
AROUND = Surroundings(marks=(), derived=0, rollouts=(), problems=(), seen=Seen(freshness=(), gaps=(), kinds=()))


@pytest.mark.parametrize(
    ("away", "expected"),
    [
        (timedelta(seconds=40), "40 s before"),
        (timedelta(seconds=-90), "1 min 30 s after"),
        (timedelta(milliseconds=-200), "at"),
    ],
)
def test_a_change_within_the_onsets_uncertainty_is_neither_before_nor_after(away: timedelta, expected: str) -> None:
    ranking = world.ranking()
    onset = ranking.onset.at
    ranking = structs.replace(
        ranking,
        onset=structs.replace(ranking.onset, low=onset - timedelta(seconds=1), high=onset + timedelta(seconds=1)),
    )
    first = ranking.suspects[0]
    suspect = structs.replace(first, change=structs.replace(first.change, at=onset - away), t_minus=away)
    assert distance(suspect, ranking) == expected


def test_what_a_place_hangs_on_is_said_with_what_would_come_before_it() -> None:
    ranking = world.ranking()
    cards = [suspect_card(suspect, ranking) for suspect in ranking.suspects]
    third = ranking.suspects[2].change.resource.name
    told = [(card.flip.rule, card.flip.behind) for card in cards if card.flip]
    assert told == [("load", "“none of these”"), ("time", third)]
    assert cards[2].flip is None


def test_a_whole_object_is_told_by_its_summary() -> None:
    change = world.ranking().suspects[0].change
    field = change.diffs[0]
    assert turn(change) is not None
    assert turn(structs.replace(change, diffs=(structs.replace(field, path=()),))) is None


@pytest.mark.parametrize("untouched", [True, False])
def test_the_revert_uses_the_state_only_while_nobody_wrote_the_same_again(*, untouched: bool) -> None:
    first = world.ranking().suspects[0].change
    custom = structs.replace(first.resource, api_group="example.com", kind="Widget")
    path = ("spec", "parts", (("name", "a"),), "size")
    change = structs.replace(
        first,
        resource=custom,
        resource_version="7",
        diffs=(structs.replace(first.diffs[0], path=path, op="replace", old=1, new=2),),
    )
    state: Object = {"spec": {"parts": [{"name": "a", "size": 2}, {"name": "b", "size": 5}]}}
    last = ObjectState(custom, change.uid, "7", change.at, state)
    again = structs.replace(change, at=change.at + timedelta(seconds=9), resource_version="8")
    known = Known(last, () if untouched else (again,))
    page = change_page(change, (), AROUND, known=known, after=After((), 0.0, (), ()), address="http://here/changes/1")
    assert ("kubectl patch" in page.recipe.command) is untouched
    assert ('"name":"b"' in page.recipe.command) is untouched


def test_what_was_not_seen_for_one_reason_is_told_once() -> None:
    gone, slow = "the watch cannot go on: too old resource version: {} (853)", "the watch was behind"
    gaps = (
        world.gap(),
        *(
            structs.replace(world.gap(), kind=f"K{n}", to_at=world.gap().to_at + n * MINUTE, why=gone.format(n))
            for n in (1, 2, 3)
        ),
        structs.replace(world.gap(), kind="Node", to_at=world.gap().to_at + 9 * MINUTE, why=slow),
    )
    around = replace(AROUND, seen=Seen(freshness=(), gaps=gaps, kinds=()))
    page = an_incident_page(world.ranking(), around)
    assert [(gap.why, alike) for gap, alike in page.unseen] == [(slow, 0), (gone.format(3), 2), (world.gap().why, 0)]
    assert len(page.gaps) == 5


def test_rows_that_end_after_the_onset_are_not_said_to_be_before_it() -> None:
    onset = world.ranking().onset
    for later in (timedelta(0), MINUTE):
        ranking = structs.replace(world.ranking(), onset=structs.replace(onset, high=onset.at + later))
        page = an_incident_page(ranking, AROUND)
        assert page.onset_latest == (onset.at + later if later else None)


def an_incident_page(ranking: Ranking, around: Surroundings) -> IncidentPage:
    incident = world.incident()
    follow = views.follow(incident, ranking, Opened((), None), now=world.START)
    axis = Axis(world.START - MINUTE, world.START + MINUTE)
    return views.incident_page(
        incident, ranking, axis=axis, around=around, rows=(), next_cursor=None, asked={}, follow=follow
    )


@pytest.mark.parametrize(
    ("onset", "alert", "rows"),
    [(500.0, 640.0, [0, 1]), (500.0, 690.0, [0, 0]), (640.0, 500.0, [0, 1]), (880.0, 930.0, [0, 0])],
    ids=["near on a phone", "far", "the alert was first", "one to the left, one to the right"],
)
def test_labels_of_moments_do_not_cover_each_other_on_a_phone(onset: float, alert: float, rows: list[int]) -> None:
    found = views.flags((Moment("onset", onset, "onset"), Moment("alert", alert, "alert")))
    assert [flag.row for flag in found] == rows
