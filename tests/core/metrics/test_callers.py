"""Curves of counted calls: who called how often, in which bin; and where nobody counted."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from app.core.matching import parse
from app.core.metrics.callers import CallsQuery, Tally, call_graph
from app.core.metrics.lines import Grid
from app.core.metrics.measures import Measure
from app.core.model import CallKey

AXIS = Grid(0.0, 10.0, 6)
KEY = CallKey("alice", "", "kubectl", "list", "", "pods", "shop", 200)
KEYS = (KEY, replace(KEY, user="bob"), replace(KEY, user="bob", code=429), replace(KEY, user="carol", verb="get"))


def a_tally(*entries: tuple[int, int, int, int], until: float = 60.0) -> Tally:
    """(key, bin, count, latency in microseconds)"""
    key, place, count, latency = np.array(entries, dtype=np.int64).reshape(-1, 4).T
    return Tally(KEYS, key, place, count, latency, until)


def rows(query: CallsQuery, tally: Tally) -> dict[str, list[float | None]]:
    return {
        curve.name: [None if np.isnan(value) else float(value) for value in curve.values]
        for curve in call_graph(tally, AXIS, query).curves
    }


TALLY = a_tally((0, 0, 10, 20_000), (1, 0, 30, 0), (2, 1, 50, 0), (3, 3, 5, 1_000_000), (3, 3, 5, 2_000_000))


def test_calls_are_rates_and_a_bin_without_any_call_is_a_gap() -> None:
    found = rows(CallsQuery(("user",)), TALLY)
    assert found == {
        "bob": [3.0, 5.0, None, 0.0, None, None],
        "alice": [1.0, 0.0, None, 0.0, None, None],
        "carol": [0.0, 0.0, None, 1.0, None, None],
    }


def test_conditions_choose_among_the_calls() -> None:
    assert list(rows(CallsQuery(("user",), parse("code=429")), TALLY)) == ["bob"]
    assert list(rows(CallsQuery(("verb",), parse("verb!=list")), TALLY)) == ["get"]
    assert rows(CallsQuery(("user",), parse("namespace=none")), TALLY) == {}


def test_most_stay_and_the_others_are_added_up() -> None:
    found = rows(CallsQuery(("user",), most=1), TALLY)
    assert found["2 others"][:4] == [1.0, 0.0, None, 1.0]


def test_latency_is_the_mean_of_its_calls() -> None:
    found = rows(CallsQuery(("user",), measure=Measure.MEAN), TALLY)
    assert found["alice"][0] == pytest.approx(0.002)
    assert found["carol"] == [None, None, None, 0.3, None, None]


def test_a_bin_that_has_only_begun_is_divided_by_what_it_has_lasted() -> None:
    assert rows(CallsQuery(()), a_tally((0, 0, 10, 0), until=5.0)) == {"all": [2.0, *[None] * 5]}


def test_no_calls_make_no_curves() -> None:
    assert rows(CallsQuery(), a_tally(until=0.0)) == {}
