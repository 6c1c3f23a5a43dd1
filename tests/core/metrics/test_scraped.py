"""Tables of what was scraped together are made whole as their series would be one by one."""

from __future__ import annotations

import math
from collections import defaultdict

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from app.core.metrics.lines import STARTED, TARGET, whole
from app.core.metrics.scraped import Rows, asked_of, rows_of, since_first_scrape
from app.core.model import MetricSeries
from app.core.stale import table

BY = ("code",)
TARGETS: tuple[dict[str, str], ...] = (
    {"job": "apiserver", "instance": "a"},
    {"job": "apiserver", "instance": "b"},
    {"job": "apiserver"},  # a sum over both
    {},
)


@st.composite
def a_series(draw: st.DrawFn) -> MetricSeries:
    name = draw(st.sampled_from(["requests_total", "requests_total", "apiserver_current_inflight_requests", STARTED]))
    labels = dict(draw(st.sampled_from(TARGETS)))
    if name != STARTED:
        labels["code"] = str(draw(st.integers(200, 209)))
    first, last = draw(st.integers(0, 4)), draw(st.integers(5, 8))
    times = tuple(30.0 * scrape for scrape in range(first, last))
    number = st.integers(0, 3).map(float) | st.just(math.nan)
    values = draw(st.lists(number, min_size=len(times), max_size=len(times)))
    return MetricSeries(name, tuple(sorted(labels.items())), "", times, tuple(values))


def told(series: list[MetricSeries]) -> list[tuple[object, ...]]:
    """What is known of them: names, labels, times and values, which may be NaN."""
    return sorted((one.name, one.labels, one.times, tuple(map(str, one.values))) for one in series)


def tables(series: list[MetricSeries]) -> list[Rows]:
    groups: dict[tuple[str, tuple[str, ...], tuple[float, ...]], list[MetricSeries]] = defaultdict(list)
    for one in series:
        labels = dict(one.labels)
        groups[one.name, tuple(labels.get(name, "") for name in TARGET), one.times].append(one)
    return [
        Rows(
            name,
            target,
            [asked_of(dict(one.labels), BY) for one in some],
            np.array(times),
            table([one.values for one in some]),
        )
        for (name, target, times), some in groups.items()
    ]


def one_by_one(rows: list[Rows]) -> list[MetricSeries]:
    return [series for one in rows for series in one.series(BY, range(len(one.asked)))]


@given(st.lists(a_series(), min_size=1, max_size=12))
def test_what_begins_late_is_whole_as_it_is_by_itself(series: list[MetricSeries]) -> None:
    expected = [one for one in whole(one_by_one(tables(series))) if one.name != STARTED]
    found = [one for one in one_by_one(since_first_scrape(tables(series), BY)) if one.name != STARTED]
    assert told(found) == told(expected)


def test_series_come_back_from_tables_with_what_is_asked_of_them() -> None:
    series = [
        MetricSeries("wait_bucket", (("code", "200"), ("instance", "a"), ("le", "0.1")), "", (0.0, 30.0), (1.0, 2.0)),
        MetricSeries("wait_bucket", (("instance", "a"), ("le", "+Inf")), "", (0.0, 30.0), (3.0, 4.0)),
    ]
    rows = rows_of(series, BY)
    assert [list(one.asked) for one in rows] == [[(("200",), "0.1")], [(("",), "+Inf")]]
    assert rows[0].times is rows[1].times, "scraped together"
    assert one_by_one(rows) == series


def test_each_series_of_a_table_can_tell_of_a_restart() -> None:
    """What begins with it did not begin at zero."""
    target = (("instance", "a"), ("job", "apiserver"))

    def counter(code: str, values: tuple[float, ...], *, since: int = 0) -> MetricSeries:
        times = (0.0, 30.0, 60.0, 90.0)[since:]
        return MetricSeries("requests_total", (("code", code), *target), "", times, values)

    series = [counter("200", (1, 2, 3, 4)), counter("404", (7, 8, math.nan, 5)), counter("500", (60,), since=3)]
    found = {one.labels[0][1]: one.values for one in one_by_one(since_first_scrape(tables(series), BY))}
    assert found["500"] == (60.0, 60.0, 60.0, 60.0)
    assert [one.telling() for one in tables(series)] == [[0, 1], [0]]
