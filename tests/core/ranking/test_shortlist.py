"""Of a busy window, what is read to be ranked, and what is known of the rest."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.ranking.shortlist import BOUT, EACH, RUN, Sketches, shortlist, unread
from app.core.signals.fights import MIN_WRITES, PAUSE

ALERT = 100_000.0
Row = tuple[float, int, int, bool]
"""Seconds before the alert, object, actor, near."""


def sketches(rows: list[Row]) -> Sketches:
    told = sorted(rows)
    before, object_, actor, near = zip(*told, strict=True) if told else ((), (), (), ())
    return Sketches(
        ALERT - np.array(before, dtype=float),
        np.array(object_, dtype=np.int64),
        np.array(actor, dtype=np.int64),
        np.array(near, dtype=bool),
    )


def chosen(rows: list[Row], most: int, *, blows: int = 100) -> list[float]:
    """Seconds before the alert of those that are read."""
    told = sketches(rows)
    return [ALERT - told.at[place] for place in shortlist(told, alert=ALERT, most=most, blows=blows)]


rows = st.lists(
    st.tuples(st.integers(-3000, 86_400).map(float), st.integers(0, 4), st.integers(0, 2), st.booleans()), max_size=60
)


@given(rows, st.integers(0, 60))
def test_so_many_are_read_and_the_rest_is_counted(made: list[Row], most: int) -> None:
    told = sketches(made)
    places = shortlist(told, alert=ALERT, most=most, blows=20)
    assert len(places) == len(set(places.tolist())) <= min(len(made), most + 20)
    assert (np.diff(places) > 0).all()
    keys = 1000 + places
    rest = unread(told, places, keys)
    left = sorted(set(range(len(made))) - set(places.tolist()))
    pair = [(o, a) for o, a in zip(told.object.tolist(), told.actor.tolist(), strict=True)]
    earlier = {1000 + place: sum(pair[one] == pair[place] and one > place for one in left) for place in places.tolist()}
    assert rest.count == len(left)
    assert dict(rest.earlier) == {key: count for key, count in earlier.items() if count}
    first = [told.at[one] for one in left if pair[one] not in pair[one + 1 :]]
    assert rest.times.tolist() == sorted(first)
    assert rest.oldest == (float(told.at[-1]) if made else None)


def test_where_there_are_few_all_are_read() -> None:
    assert chosen([(n * 600.0, n, 0, False) for n in range(50)], 50) == [n * 600.0 for n in range(50)]


def test_what_is_where_the_alert_is_goes_before_what_is_a_little_newer() -> None:
    elsewhere: list[Row] = [(60.0 * n, n, 0, False) for n in range(1, 100)]
    assert 3600.0 in chosen([*elsewhere, (3600.0, 500, 0, True)], 40)
    assert 3600.0 not in chosen([*elsewhere, (3600.0, 500, 0, False)], 40)
    assert 80_000.0 not in chosen([*elsewhere, (80_000.0, 500, 0, True)], 40)


def test_of_what_is_written_again_and_again_the_newest_stands_for_the_rest() -> None:
    again: list[Row] = [(300.0 + 200.0 * n, 7, 3, False) for n in range(300)]
    once: list[Row] = [(10_000.0 + n, 100 + n, 0, False) for n in range(20)]
    found = chosen([*again, *once], 40)
    assert 300.0 in found
    assert set(found) >= {10_000.0 + n for n in range(20)}


def test_what_came_after_the_alert_goes_behind() -> None:
    before: list[Row] = [(60.0 + n, n, 0, False) for n in range(30)]
    later: list[Row] = [(-60.0 - n, 100 + n, 0, False) for n in range(30)]
    assert chosen([*before, *later], 30) == [60.0 + n for n in range(30)]


def test_every_blow_of_what_may_be_a_fight_is_read() -> None:
    blows: list[Row] = [(40_000.0 + 2 * n, 1, n % 2, False) for n in range(EACH)]
    others: list[Row] = [(60.0 * n, 10 + n, 5, False) for n in range(200)]
    found = Counter(chosen([*blows, *others], 20, blows=1000))
    assert all(found[before] == 1 for before, *_ in blows)
    assert sum(found.values()) == 20 + EACH
    newest = chosen([*blows, *others], 20, blows=50)
    assert [before for before in newest if before >= 40_000.0] == [40_000.0 + 2 * n for n in range(50)]


def test_of_a_storm_of_blows_runs_are_read_from_the_first_to_the_last() -> None:
    blows: list[Row] = [(100.0 + 0.05 * n, 1, n % 2, False) for n in range(5000)]
    told = sketches(blows)
    places = shortlist(told, alert=ALERT, most=10, blows=1000)
    assert places[:RUN].tolist() == list(range(RUN))
    assert places[-RUN:].tolist() == list(range(5000 - RUN, 5000))
    assert EACH <= len(places) <= EACH + 3 * RUN
    in_turn = told.actor[places[:-1]] != told.actor[places[1:]]
    assert in_turn.mean() > 0.9
    rest = unread(told, places, places)
    assert sum(rest.stands_for.values()) == pytest.approx(5000)


def test_no_slow_fight_seems_to_pause() -> None:
    blows: list[Row] = [(100.0 + 55 * n, 1, n % 2, False) for n in range(1200)]
    told = sketches(blows)
    places = shortlist(told, alert=ALERT, most=10, blows=5000)
    assert (-np.diff(told.at[places])).max() < PAUSE.total_seconds()


def test_writes_too_far_apart_are_no_fight() -> None:
    apart = BOUT / (MIN_WRITES - 2)
    assert len(chosen([(apart * n, 1, 0, False) for n in range(100)], 5)) == 5
