"""Graphs of what was scraped together, where some of it ended (NaN): it ends by itself, and nothing beside it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.matching import parse
from app.core.metrics.blocks import block_graph
from app.core.metrics.lines import Grid
from app.core.metrics.measures import Graph, Measure, SeriesQuery
from app.core.model import MetricSeries
from app.core.stale import STALE
from tests.core.graphs import blocks, graph

TIMES = tuple(float(time) for time in range(0, 601, 15))
FINE = Grid(0.0, 15.0, 40)
MINUTES = Grid(0.0, 60.0, 10)
FAILED = 20
"""The scrape at 300 s."""
Draw = Callable[[list[MetricSeries], Grid, SeriesQuery], Graph]


def a_series(name: str, values: Iterable[float], *, times: tuple[float, ...] = TIMES, **labels: str) -> MetricSeries:
    told = {"job": "apiserver", "instance": "a"} | labels
    return MetricSeries(name, tuple(sorted(told.items())), "", times, tuple(values))


def of_blocks(series: list[MetricSeries], axis: Grid, query: SeriesQuery) -> Graph:
    return block_graph(blocks(series), axis, query)


both = pytest.mark.parametrize("draw", [graph, of_blocks])


def counting(per_second: float, *, failed: int | None = None) -> list[float]:
    return [STALE if number == failed else 1000 + per_second * time for number, time in enumerate(TIMES)]


def level(value: float, *, failed: int | None = None) -> list[float]:
    return [STALE if number == failed else value for number in range(len(TIMES))]


def line(found: Graph, number: int = 0) -> list[float | None]:
    return [None if math.isnan(value) else round(value, 6) for value in found.curves[number].values.tolist()]


RATE = SeriesQuery(("requests_total",), Measure.RATE)


@both
def test_a_failed_scrape_of_a_target_is_a_gap_of_its_own_series_alone(draw: Draw) -> None:
    told = [a_series("requests_total", counting(2, failed=FAILED), code=str(code)) for code in (200, 404, 409)]
    assert line(draw(told, FINE, RATE)) == [6.0] * 19 + [None] * 2 + [6.0] * 19
    beside = a_series("requests_total", counting(1), instance="b", code="200")
    assert line(draw([*told, beside], FINE, RATE)) == [7.0] * 19 + [1.0] * 2 + [7.0] * 19
    by_code = draw([*told, beside], FINE, SeriesQuery(("requests_total",), Measure.RATE, ("code",)))
    assert [line(by_code, number)[FAILED] for number in range(3)] == [1.0, None, None]


@both
def test_in_a_longer_step_what_was_seen_of_it_counts_once(draw: Draw) -> None:
    told = [a_series("requests_total", counting(2, failed=FAILED), code=str(code)) for code in (200, 404)]
    assert line(draw(told, MINUTES, RATE)) == [4.0] * 10
    depth = [a_series("depth", level(3, failed=FAILED), queue=queue) for queue in "xy"]
    assert line(draw(depth, MINUTES, SeriesQuery(("depth",), Measure.LEVEL))) == [6.0] * 10


@both
def test_one_series_that_ends_is_missing_where_it_ended_and_the_others_are_not(draw: Draw) -> None:
    """A target that tells one of its series no longer, and then again."""
    values = [STALE if FAILED <= number < 30 else 1000 + 2 * time for number, time in enumerate(TIMES)]
    told = [a_series("requests_total", values, code="404"), a_series("requests_total", counting(1), code="200")]
    assert line(draw(told, FINE, RATE)) == [3.0] * 19 + [1.0] * 11 + [3.0] * 10


@both
def test_what_ends_and_begins_again_has_nothing_between(draw: Draw) -> None:
    times = (*TIMES[:11], 450.0, 465.0, 480.0)
    told = [a_series("requests_total", [*counting(2)[:10], STALE, 5.0, 35.0, 65.0], times=times)]
    assert line(draw(told, FINE, RATE)) == [2.0] * 9 + [None] * 21 + [2.0] * 2 + [None] * 8
    depth = [a_series("depth", [*level(3)[:10], STALE, 5.0, 5.0, 5.0], times=times)]
    query = SeriesQuery(("depth",), Measure.LEVEL)
    assert line(draw(depth, FINE, query)) == [3.0] * 10 + [None] * 20 + [5.0] * 3 + [None] * 7


@both
@pytest.mark.parametrize(("measure", "usual", "failed"), [(Measure.LEVEL, 12.0, 5.0), (Measure.HIGHEST, 7.0, 5.0)])
def test_levels_are_those_of_who_was_scraped(draw: Draw, measure: Measure, usual: float, failed: float) -> None:
    told = [
        a_series("pods", level(7, failed=FAILED), instance="a"),
        a_series("pods", level(5), instance="b"),
    ]
    found = draw(told, FINE, SeriesQuery(("pods",), measure))
    assert line(found) == [usual] * FAILED + [failed] + [usual] * 19
    alone = draw(told[:1], FINE, SeriesQuery(("pods",), measure))
    assert line(alone) == [7.0] * FAILED + [None] + [7.0] * 19


@both
def test_the_highest_is_that_of_every_sample_of_a_step(draw: Draw) -> None:
    values = [90.0 if number == 21 else 5.0 for number in range(len(TIMES))]
    found = draw([a_series("pods", values)], MINUTES, SeriesQuery(("pods",), Measure.HIGHEST))
    assert line(found) == [5.0] * 5 + [90.0] + [5.0] * 4


@both
def test_means_and_quantiles_go_on_after_a_failed_scrape(draw: Draw) -> None:
    told = [
        a_series(f"wait_{part}", counting(rate, failed=FAILED), verb=verb)
        for verb in ("GET", "LIST")
        for part, rate in (("sum", 2), ("count", 10))
    ]
    expected: list[float | None] = [0.2] * 19 + [None] * 2 + [0.2] * 19
    assert line(draw(told, FINE, SeriesQuery(("wait",), Measure.MEAN))) == expected
    buckets = [
        a_series("wait_bucket", counting(rate, failed=FAILED), le=le, verb=verb)
        for verb in ("GET", "LIST")
        for le, rate in (("0.1", 5), ("0.2", 10), ("+Inf", 10))
    ]
    found = draw([*told, *buckets], FINE, SeriesQuery(("wait",), Measure.QUANTILE, quantile=0.75))
    assert found.measure is Measure.QUANTILE
    assert line(found) == [None if value is None else 0.15 for value in expected]


@both
def test_an_end_is_no_change_and_what_begins_again_as_another_changed_once(draw: Draw) -> None:
    query = SeriesQuery(("process_start_time_seconds",), Measure.CHANGES, ("instance",))
    same = a_series(query.metrics[0], level(100, failed=FAILED), instance="same")
    values = [*level(100)[:FAILED], STALE, STALE, *level(400)[FAILED + 2 :]]
    another = a_series(query.metrics[0], values, instance="another")
    found = draw([same, another], MINUTES, query)
    assert [curve.name for curve in found.curves] == ["another"], "a line of nothing but zeros says nothing beside it"
    assert line(found) == [0.0] * 5 + [1.0] + [0.0] * 4
    assert line(draw([same], MINUTES, query)) == [0.0] * 10


@both
def test_what_a_process_tells_anew_after_a_failed_scrape_does_not_count_from_zero(draw: Draw) -> None:
    """Its start is told before and after the scrape that failed, not at it."""
    late = TIMES[FAILED + 1 :]
    told = [
        a_series("process_start_time_seconds", [*level(0)[:FAILED], STALE, *level(290)[FAILED + 1 :]]),
        a_series("requests_total", counting(1, failed=FAILED), code="200"),
        a_series("requests_total", [5000 + 2 * (time - late[0]) for time in late], times=late, code="500"),
    ]
    found = line(draw(told, FINE, RATE))
    assert found[FAILED - 1 : FAILED + 2] == [0.0, 0.0, 3.0]


@pytest.mark.parametrize(("before", "after"), [(1.0, 290.0), (None, None)])
def test_a_counter_that_is_lower_after_a_failed_scrape_tells_of_a_restart(
    before: float | None, after: float | None
) -> None:
    """With its start told, and without."""
    late = TIMES[FAILED + 1 :]
    told = [
        a_series("requests_total", [*counting(1)[:FAILED], STALE, *(time - 300 for time in late)], code="200"),
        a_series("requests_total", [5000 + 2 * (time - late[0]) for time in late], times=late, code="500"),
    ]
    if before is not None and after is not None:
        starts = [*level(before)[:FAILED], STALE, *level(after)[FAILED + 1 :]]
        told.append(a_series("process_start_time_seconds", starts))
    found = [value for value in line(graph(told, FINE, RATE)) if value is not None]
    assert max(found) == 3.0


def test_series_of_which_nothing_is_a_number_have_no_line() -> None:
    told = [a_series("requests_total", [STALE] * len(TIMES))]
    for measure in Measure:
        assert not of_blocks(told, FINE, SeriesQuery(("requests_total",), measure)).measured


def test_only_what_meets_the_conditions_is_drawn() -> None:
    told = [a_series("requests_total", counting(rate), code=code) for code, rate in (("200", 3), ("429", 1))]
    assert (
        line(of_blocks(told, MINUTES, SeriesQuery(("requests_total",), Measure.RATE, (), parse("code=4*"))))
        == [1.0] * 10
    )


numbers = st.integers(0, 3).map(float) | st.just(math.nan)


@given(
    st.lists(st.lists(numbers, min_size=9, max_size=9), min_size=1, max_size=6),
    st.sampled_from([Measure.RATE, Measure.LEVEL, Measure.HIGHEST, Measure.CHANGES]),
)
def test_what_was_added_up_before_is_drawn_as_if_it_had_not_been(rows: list[list[float]], measure: Measure) -> None:
    told = [a_series("pods", values, times=TIMES[:9], pod=str(number)) for number, values in enumerate(rows)]
    query, axis = SeriesQuery(("pods",), measure), Grid(0.0, 30.0, 5)
    one, other = graph(told, axis, query), of_blocks(told, axis, query)
    assert [curve.name for curve in one.curves] == [curve.name for curve in other.curves]
    for ours, theirs in zip(one.curves, other.curves, strict=True):
        np.testing.assert_allclose(ours.values, theirs.values)
