"""Curves from samples that are known to the last one: rates, levels, quantiles; resets, gaps, a replica that joins."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.matching import parse, written
from app.core.metrics.blocks import block_graph
from app.core.metrics.lines import SINCE, STARTED, Grid
from app.core.metrics.measures import Graph, Measure, SeriesQuery, histogram_quantile, window_grid
from app.core.metrics.panels import GROUPS, METRICS, PANELS
from app.core.model import MetricSeries
from app.core.screen.axis import Axis
from app.core.screen.plots import plot
from tests.core.graphs import blocks, graph

AXIS = Grid(0.0, 60.0, 10)
EVERY_15 = tuple(float(t) for t in range(0, 601, 15))
INF = float("inf")


def a_series(name: str, values: list[float], times: tuple[float, ...] = EVERY_15, **labels: str) -> MetricSeries:
    told = {"job": "apiserver", "instance": "a"} | labels
    return MetricSeries(name, tuple(sorted(told.items())), "counter", times[: len(values)], tuple(values))


def counting(per_second: float, *, times: tuple[float, ...] = EVERY_15, first: float = 1000.0) -> list[float]:
    return [first + per_second * (time - times[0]) for time in times]


def values(found: Graph, number: int = 0) -> list[float | None]:
    return [None if np.isnan(value) else round(float(value), 6) for value in found.curves[number].values]


def a_rate(**asked: object) -> SeriesQuery:
    return SeriesQuery(("requests_total",), Measure.RATE, **asked)  # type: ignore[arg-type]


def test_a_counter_becomes_its_rate_in_every_bin_that_was_seen() -> None:
    assert values(graph([a_series("requests_total", counting(5))], AXIS, a_rate())) == [5.0] * 10


@given(st.lists(st.floats(0, 1e6), min_size=10, max_size=40), st.integers(1, 60))
def test_what_is_counted_is_neither_lost_nor_doubled(steps: list[float], interval: int) -> None:
    times = tuple(float(number * interval) for number in range(len(steps) + 1))
    told = np.concatenate([[0.0], np.cumsum(steps)])
    axis = window_grid(0.0, times[-1], most=7)
    (curve,) = graph([a_series("requests_total", told.tolist(), times)], axis, a_rate()).curves
    seconds = np.clip(times[-1] - axis.start - axis.step * np.arange(axis.size), 0, axis.step)
    assert np.nansum(curve.values * seconds) == pytest.approx(told[-1], rel=1e-6, abs=1e-6)


def test_a_reset_counts_from_zero_again_and_never_gives_a_negative_rate() -> None:
    told = counting(4)
    told[20:] = [4 * 15 * (number + 1) for number in range(len(told) - 20)]
    assert values(graph([a_series("requests_total", told)], AXIS, a_rate())) == [4.0] * 10


def test_a_gap_stays_one_and_a_single_missing_scrape_is_bridged() -> None:
    seen = tuple(time for time in EVERY_15 if time != 90 and not 240 < time < 420)
    found = graph([a_series("requests_total", counting(2, times=seen), seen)], AXIS, a_rate())
    assert values(found) == [2.0, 2.0, 2.0, 2.0, None, None, None, 2.0, 2.0, 2.0]


def test_a_replica_that_joins_adds_its_own_calls_and_not_all_it_ever_answered() -> None:
    late = tuple(time for time in EVERY_15 if time >= 300)
    found = graph(
        [
            a_series("requests_total", counting(3)),
            a_series("requests_total", counting(2, times=late, first=1e9), late, instance="b"),
        ],
        AXIS,
        a_rate(),
    )
    assert values(found) == [3.0] * 5 + [5.0] * 5


def test_a_counter_that_is_made_at_its_first_use_was_zero_before() -> None:
    late = tuple(time for time in EVERY_15 if time >= 315)
    alone = [a_series("requests_total", counting(1, times=late, first=15), late, code="429")]
    found = graph(alone, AXIS, a_rate())
    assert values(found)[:4] == [None] * 4, "nothing that was asked for tells that its target was scraped"
    both = graph(
        [
            a_series("requests_total", counting(3), code="200"),
            a_series("requests_total", counting(1, times=late, first=15), late, code="429"),
        ],
        AXIS,
        a_rate(by=("code",)),
    )
    assert values(both, 1) == [0.0] * 5 + [1.0] * 5


@pytest.mark.parametrize("joins", [8.0, 150.0])
def test_who_tells_of_a_target_under_other_labels_adds_nothing_that_was_counted_before(joins: float) -> None:
    later = tuple(time + joins for time in EVERY_15 if time + joins <= 600)
    told = [
        a_series("requests_total", counting(5, first=1e6), replica="a"),
        a_series(STARTED, [100.0] * 41, replica="a"),
        a_series("requests_total", counting(5, times=later, first=1e6), later, replica="b"),
        a_series(STARTED, [100.0] * len(later), later, replica="b"),
        # what is made at its first use afterwards was zero before, whoever tells of it
        a_series("requests_total", counting(2, times=later[20:], first=30.0), later[20:], replica="b", code="500"),
    ]
    assert max(one or 0 for one in values(graph(told, AXIS, a_rate()))) < 13
    assert values(graph(told, AXIS, a_rate(by=("code",))), 1)[:4] == [0.0] * 4


def test_most_lines_stay_and_the_others_are_added_up() -> None:
    told = [a_series("requests_total", counting(number), verb=f"V{number}") for number in range(1, 6)]
    found = graph(told, AXIS, a_rate(by=("verb",), most=2))
    assert [(curve.name, values(found, n)[3]) for n, curve in enumerate(found.curves)] == [
        ("V5", 5.0), ("V4", 4.0), ("3 others", 6.0),
    ]  # fmt: skip
    whole = graph(told, AXIS, a_rate(by=("verb",), most=4))
    assert [curve.name for curve in whole.curves] == ["V5", "V4", "V3", "V2", "V1"], "one other is shown as itself"


def test_a_mean_of_the_others_is_that_of_all_their_requests() -> None:
    told = []
    for verb, rate, wait in (("A", 1, 9.0), ("B", 10, 1.0), ("C", 30, 2.0)):
        told.append(a_series("latency_count", counting(rate), verb=verb))
        told.append(a_series("latency_sum", counting(rate * wait), verb=verb))
    found = graph(told, AXIS, SeriesQuery(("latency",), Measure.MEAN, ("verb",), most=1))
    assert [(curve.name, values(found, n)[3]) for n, curve in enumerate(found.curves)] == [
        ("A", 9.0), ("2 others", 1.75),
    ]  # fmt: skip


def test_levels_add_up_over_replicas_and_what_all_tell_alike_does_not() -> None:
    told = [a_series("pods", [7.0] * 41, instance=instance) for instance in ("a", "b", "c")]
    assert values(graph(told, AXIS, SeriesQuery(("pods",), Measure.LEVEL)))[0] == 21.0
    assert values(graph(told, AXIS, SeriesQuery(("pods",), Measure.HIGHEST)))[0] == 7.0


def test_a_line_that_ended_has_no_last_value() -> None:
    grid = Grid(AXIS.start, 60.0, 20)
    axis = Axis(datetime.fromtimestamp(grid.start, UTC), datetime.fromtimestamp(grid.epoch(grid.size), UTC))
    until = {"ended": 600.0, "late": 1080.0, "whole": 1200.0}
    told = []
    for verb, end in until.items():
        times = tuple(float(t) for t in range(0, int(end) + 1, 15))
        told.append(a_series("requests_total", counting(2, times=times), times, verb=verb))
    found = plot("a", "A", "/s", graph=graph(told, grid, a_rate(by=("verb",))), axis=axis, asked=Measure.RATE)
    assert {trace.name: trace.last for trace in found.traces} == {"ended": "–", "late": "2/s", "whole": "2/s"}


def test_a_line_of_nothing_is_left_out_beside_others_and_one_below_zero_is_not() -> None:
    told = [a_series("skew", [level] * 41, node=node) for node, level in (("a", 2.0), ("b", 0.0), ("c", -3.0))]
    found = graph(told, AXIS, SeriesQuery(("skew",), Measure.LEVEL, ("node",)))
    assert [curve.of for curve in found.curves] == [("a",), ("c",)]


def test_a_level_lasts_until_the_next_sample_but_not_over_a_gap() -> None:
    axis = Grid(0.0, 10.0, 24)
    times = (0.0, 30.0, 60.0, 180.0, 210.0)
    found = graph([a_series("depth", [1, 2, 3, 4, 5], times)], axis, SeriesQuery(("depth",), Measure.LEVEL))
    told: list[float | None] = [1.0] * 3 + [2.0] * 3 + [3.0] + [None] * 11 + [4.0] * 3 + [5.0] + [None] * 2
    assert values(found) == told


def test_a_start_time_that_changes_is_a_restart_in_its_bin() -> None:
    told = [100.0] * 20 + [400.0] * 21
    query = SeriesQuery(("process_start_time_seconds",), Measure.CHANGES)
    found = graph([a_series("process_start_time_seconds", told)], AXIS, query)
    assert values(found) == [0.0] * 5 + [1.0] + [0.0] * 4


def a_life(started: float, first: int, last: int, *, address: str = "10.0.0.1:6443") -> MetricSeries:
    """Of an API server that is scraped by ourselves, whose every life has a name of its own."""
    times = EVERY_15[first:last]
    return a_series(STARTED, [started] * len(times), times, instance=f"{address}{SINCE}{started}")


def restarts(*lives: MetricSeries) -> dict[str, float]:
    query = SeriesQuery((STARTED,), Measure.CHANGES, ("instance",))
    return {curve.name: float(np.nansum(curve.values)) for curve in graph(lives, AXIS, query).curves}


def test_lives_that_follow_one_another_at_one_address_are_restarts_there() -> None:
    (curve,) = graph(
        [a_life(-9e4, 0, 20), a_life(310.0, 21, 41)], AXIS, SeriesQuery((STARTED,), Measure.CHANGES)
    ).curves
    assert curve.values.tolist() == [0.0] * 5 + [1.0] + [0.0] * 4
    assert restarts(a_life(-9e4, 0, 12), a_life(190.0, 13, 25), a_life(390.0, 26, 41)) == {"10.0.0.1:6443": 2.0}


def test_others_behind_the_address_go_on() -> None:
    assert restarts(a_life(-9e4, 0, 41), a_life(-8e4, 1, 41)) == {"10.0.0.1:6443": 0.0}
    assert restarts(a_life(-9e4, 0, 41), a_life(-8e4, 0, 20), a_life(310.0, 22, 41)) == {"10.0.0.1:6443": 1.0}
    elsewhere = restarts(a_life(-9e4, 0, 20), a_life(310.0, 21, 41, address="10.0.0.2:6443"))
    assert elsewhere == {"10.0.0.1:6443": 0.0, "10.0.0.2:6443": 0.0}


def test_the_first_name_that_is_stored_counts_and_one_thing_is_not_counted_twice() -> None:
    query = SeriesQuery(("new_objects", "old_objects"), Measure.LEVEL)
    old, new = a_series("old_objects", [5.0] * 41), a_series("new_objects", [6.0] * 41)
    assert values(graph([old, new], AXIS, query))[0] == 6.0
    assert values(graph([old], AXIS, query))[0] == 5.0


# -- quantiles


@pytest.mark.parametrize(
    ("quantile", "buckets", "expected"),
    [
        (0.5, {0.1: 10, 0.2: 20, INF: 20}, 0.1),
        (0.75, {0.1: 10, 0.2: 20, INF: 20}, 0.15),
        (0.25, {0.1: 10, 0.2: 20, INF: 20}, 0.05),  # the lowest bucket begins at zero
        (0.99, {0.1: 10, 0.2: 20, INF: 40}, 0.2),  # within +Inf: the highest finite bound
        (0.5, {-1.0: 10, 1.0: 12, INF: 12}, -1.0),  # the lowest bucket of values below zero
        (0.9, {0.1: 10, 0.2: 9.999, INF: 10}, 0.09),  # not monotonic: replicas are not scraped at one moment
        (0.5, {0.1: 0, 0.2: 0, INF: 0}, None),  # nothing was observed
        (0.5, {0.1: 10, 0.2: 20}, None),  # no bucket +Inf
        (0.5, {INF: 20}, None),
    ],
)
def test_a_quantile_is_that_of_promql(quantile: float, buckets: dict[float, float], expected: float | None) -> None:
    (found,) = histogram_quantile(quantile, {bound: np.array([float(rate)]) for bound, rate in buckets.items()})
    assert found == pytest.approx(expected) if expected is not None else np.isnan(found)


@given(st.lists(st.floats(0.001, 9.9), min_size=1, max_size=200), st.floats(0.01, 0.99))
def test_a_quantile_lies_in_the_bucket_of_the_value_that_it_stands_for(waits: list[float], quantile: float) -> None:
    bounds = [0.5, 1, 2, 4, 8, 16, INF]
    buckets = {bound: np.array([float(sum(wait <= bound for wait in waits))]) for bound in bounds}
    (found,) = histogram_quantile(quantile, buckets)
    true = sorted(waits)[max(0, int(np.ceil(quantile * len(waits) - 1e-9)) - 1)]
    upper = next(bound for bound in bounds if true <= bound)
    lower = max((bound for bound in bounds if bound < true), default=0.0)
    assert lower - 1e-9 <= found <= upper + 1e-9


def test_a_bucket_is_one_however_its_bound_is_written() -> None:
    """Two replicas, or one before and after its Prometheus was upgraded: le="1" and le="1.0"."""
    told = [
        a_series("wait_bucket", counting(rate), instance=instance, le=bound)
        for instance, bounds in (("a", ("1", "2", "+Inf")), ("b", ("1.0", "2.0", "+Inf")))
        for bound, rate in zip(bounds, (1.0, 2.0, 2.0), strict=True)
    ]
    odd = [a_series("wait_bucket", counting(9), le=bound) for bound in ("many", "NaN")]
    found = graph([*told, *odd], AXIS, SeriesQuery(("wait",), Measure.QUANTILE, quantile=0.5))
    assert values(found) == [1.0] * 10


def test_what_is_infinite_is_not_known_and_hides_nothing_else() -> None:
    endless = [INF if 120 <= time < 180 else 4.0 for time in EVERY_15]
    for measure in (Measure.LEVEL, Measure.HIGHEST):
        found = graph([a_series("depth", endless)], AXIS, SeriesQuery(("depth",), measure))
        assert values(found) == [4.0, 4.0, None, *[4.0] * 7]
    told = counting(2)
    told[10] = INF
    assert values(graph([a_series("requests_total", told)], AXIS, a_rate()))[4:] == [2.0] * 6


def test_a_quantile_over_replicas_and_the_mean_where_no_bucket_is_stored() -> None:
    told = [
        a_series("wait_bucket", counting(rate), instance=instance, le=le)
        for instance in ("a", "b")
        for le, rate in (("0.1", 5), ("0.2", 10), ("+Inf", 10))
    ]
    query = SeriesQuery(("wait",), Measure.QUANTILE, quantile=0.75)
    found = graph(told, AXIS, query)
    assert (found.measure, values(found)[3]) == (Measure.QUANTILE, 0.15)
    sums = [a_series("wait_sum", counting(2)), a_series("wait_count", counting(10))]
    mean = graph(sums, AXIS, query)
    assert (mean.measure, values(mean)[3]) == (Measure.MEAN, 0.2)


def test_lines_without_buckets_beside_some_that_have_them_are_counted() -> None:
    told = [a_series("wait_bucket", counting(10), queue="a", le=le) for le in ("0.1", "+Inf")]
    told += [a_series(f"wait_{part}", counting(10), queue=queue) for queue in "abc" for part in ("sum", "count")]
    found = graph(told, AXIS, SeriesQuery(("wait",), Measure.QUANTILE, ("queue",), quantile=0.5))
    assert ([curve.name for curve in found.curves], found.bucketless) == (["a"], 2)
    together = graph(told, AXIS, SeriesQuery(("wait",), Measure.QUANTILE, quantile=0.5))
    assert together.bucketless == 0
    window = Axis(datetime.fromtimestamp(0, UTC), datetime.fromtimestamp(600, UTC))
    drawn = plot("wait", "Wait, p50", "s", graph=found, axis=window, asked=Measure.QUANTILE)
    assert (drawn.title, drawn.remark) == ("Wait, p50", "not drawn: 2 lines without stored buckets")


@pytest.mark.parametrize(
    ("beside", "remark"),
    [
        ((), 'not drawn: one line whose buckets have no le="+Inf", without which there is no quantile'),
        (("sum", "count"), 'its buckets have no le="+Inf", without which there is no quantile: this is the mean'),
        (("whole",), 'not drawn: one line whose buckets have no le="+Inf", without which there is no quantile'),
    ],
)
def test_of_buckets_without_the_last_it_is_said_why_there_is_no_quantile(beside: tuple[str, ...], remark: str) -> None:
    told = [a_series("wait_bucket", counting(10), queue="a", le=le) for le in ("0.1", "0.2")]
    told += [a_series("wait_bucket", counting(10), queue="b", le=le) for le in ("0.1", "+Inf") if "whole" in beside]
    told += [a_series(f"wait_{part}", counting(10), queue="a") for part in beside if part != "whole"]
    found = graph(told, AXIS, SeriesQuery(("wait",), Measure.QUANTILE, ("queue",), quantile=0.5))
    assert found.measured is bool(beside)
    window = Axis(datetime.fromtimestamp(0, UTC), datetime.fromtimestamp(600, UTC))
    assert plot("wait", "Wait, p50", "s", graph=found, axis=window, asked=Measure.QUANTILE).remark == remark


# -- conditions, and the panels themselves


@pytest.mark.parametrize(
    ("text", "labels", "fits"),
    [
        ("verb=LIST|GET", {"verb": "GET"}, True),
        ("verb=LIST|GET", {"verb": "PUT"}, False),
        ("code=4*", {"code": "429"}, True),
        ("code!=4*, verb=LIST", {"code": "200", "verb": "LIST"}, True),
        ("subresource=", {}, True),
        ("subresource=", {"subresource": "status"}, False),
        ("", {"verb": "GET"}, True),
    ],
)
def test_conditions_are_read_as_they_are_written(text: str, labels: dict[str, str], fits: bool) -> None:
    found = parse(text)
    assert all(one.fits(labels.get(one.name, "")) for one in found) is fits
    assert parse(written(found)) == found


@pytest.mark.parametrize("text", ["verb", "=GET", "1a=b", "a~b", ",".join(f"a{n}=b" for n in range(11))])
def test_what_is_no_condition_is_refused_in_words(text: str) -> None:
    with pytest.raises(ValueError, match="condition"):
        parse(text)


def test_every_panel_has_its_own_key_and_its_series_are_collected() -> None:
    assert len(PANELS) == sum(len(group.panels) for group in GROUPS)
    for panel in PANELS.values():
        if isinstance(panel.query, SeriesQuery):
            assert METRICS.issuperset(panel.query.names), panel.key


@pytest.mark.parametrize(("key", "resource", "other"), [("nodechurn", "nodes", "pods"), ("churn", "pods", "nodes")])
def test_nodes_and_pods_that_come_and_go_are_shown_apart(key: str, resource: str, other: str) -> None:
    query = PANELS[key].query
    assert isinstance(query, SeriesQuery)

    def requests(each: float, verb: str, of: str, code: str, subresource: str = "") -> MetricSeries:
        told = counting(each)
        return a_series("apiserver_request_total", told, verb=verb, resource=of, code=code, subresource=subresource)

    told = [
        requests(3, "POST", resource, "201"),
        requests(2, "DELETE", resource, "200"),
        requests(9, "POST", other, "201"),
        requests(9, "PUT", resource, "200"),
        requests(9, "POST", resource, "403"),
        requests(9, "POST", resource, "201", "status"),
    ]
    found = block_graph(blocks(told), AXIS, query)
    assert {curve.name: curve.values[3] for curve in found.curves} == {"POST": 3.0, "DELETE": 2.0}


@pytest.mark.parametrize("hours", [1 / 60, 1, 6, 24, 24 * 7, 24 * 400])
def test_a_window_of_any_length_has_a_bounded_number_of_bins(hours: float) -> None:
    axis = window_grid(1000.0, 1000.0 + hours * 3600)
    assert axis.start <= 1000.0
    assert axis.epoch(axis.size) >= 1000.0 + hours * 3600
    assert axis.size <= 181
