"""What graphs are drawn from is read by name, added up where nobody tells it apart, and only of its window."""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from msgspec.structs import replace
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.core.metrics.blocks import Block, block_graph
from app.core.metrics.lines import Grid
from app.core.metrics.measures import Measure, SeriesQuery, window_grid
from app.core.metrics.scraped import Rows
from app.core.model import Batch, MetricSeries
from app.core.stale import STALE
from app.store import compaction, lines
from app.store.record import record
from tests.store.factories import CLUSTER, NOON, a_count

EPOCH = NOON.timestamp()
HOUR = timedelta(hours=1)
TIMES = tuple(EPOCH + 15.0 * n for n in range(300))
QUERY = SeriesQuery(("apiserver_request_total",), Measure.RATE, ("verb",))


def a_series(resource: str, *, reset: bool = False, name: str = "apiserver_request_total") -> MetricSeries:
    labels = (("instance", "a"), ("resource", resource), ("verb", "GET"))
    values = tuple(float(n % 100 if reset else n) for n in range(len(TIMES)))
    return MetricSeries(name, labels, "counter", TIMES, values)


def asked(blocks: Iterable[Block]) -> list[Rows]:
    return [rows for block in blocks if (rows := block.asked(QUERY)) is not None]


async def told(conn: AsyncConnection, *series: MetricSeries, minutes: float = 30) -> list[MetricSeries]:
    await record(conn, Batch(CLUSTER, series=series))
    end = NOON + timedelta(minutes=minutes)
    axis = Grid(EPOCH + 600, 15.0, int(minutes * 4))
    blocks = await lines.read_series(conn, CLUSTER, QUERY.names, axis, end=end)
    return [one for rows in asked(blocks) for one in rows.series(QUERY.by, range(len(rows.asked)))]


async def test_series_that_nobody_tells_apart_are_one_and_others_are_not_read(conn: AsyncConnection) -> None:
    (one,) = await told(conn, a_series("pods"), a_series("nodes"), a_series("pods", name="go_goroutines"))
    assert (one.name, one.labels) == (QUERY.metrics[0], (("instance", "a"), ("verb", "GET")))
    assert one.times[0] == EPOCH + 300, "a window begins with the samples that its first rate needs"
    assert one.times[-1] == EPOCH + 1800
    assert one.values[:2] == (40.0, 42.0)


async def test_a_counter_that_was_reset_stays_by_itself(conn: AsyncConnection) -> None:
    found = await told(conn, a_series("pods"), a_series("nodes", reset=True))
    assert sorted(one.values[-1] for one in found) == [20.0, 120.0]


async def test_a_window_over_the_hour_is_whole_and_what_was_told_twice_comes_once(conn: AsyncConnection) -> None:
    first = a_series("pods")
    await record(conn, Batch(CLUSTER, series=(replace(first, times=TIMES[:100], values=first.values[:100]),)))
    (one,) = await told(conn, first, minutes=70)
    assert one.times == TIMES[20:281]
    assert np.diff(one.values).tolist() == [1.0] * 260


async def test_a_cluster_of_which_nothing_is_known_has_no_lines(conn: AsyncConnection) -> None:
    assert await lines.read_series(conn, "nowhere", QUERY.names, Grid(EPOCH, 60.0, 60), end=NOON + HOUR) == []
    assert await lines.list_names(conn, "nowhere") == []


async def test_names_are_told_once_each(conn: AsyncConnection) -> None:
    await told(conn, a_series("pods"), a_series("nodes"), a_series("pods", name="go_goroutines"))
    assert await lines.list_names(conn, CLUSTER) == ["apiserver_request_total", "go_goroutines"]


async def test_calls_are_added_up_by_bin_whichever_batch_told_them(conn: AsyncConnection) -> None:
    for _ in range(2):
        await record(conn, Batch(CLUSTER, calls=tuple(a_count(slot) for slot in (0, 1, 12))))
    axis = Grid(EPOCH, 60.0, 2)
    tally = await lines.read_calls(conn, CLUSTER, axis, end=NOON + HOUR)
    one = a_count(0)
    assert tally.keys == (one.key,)
    assert (tally.place.tolist(), tally.count.tolist()) == ([0, 1], [4 * one.count, 2 * one.count])
    assert tally.latency_us.tolist() == [4 * one.latency_us, 2 * one.latency_us]
    assert tally.until == EPOCH + 65
    nothing = await lines.read_calls(conn, CLUSTER, Grid(EPOCH + 7200, 60.0, 2), end=NOON + 3 * HOUR)
    assert (nothing.keys, nothing.until) == ((), EPOCH + 7200)


async def test_a_long_window_is_read_as_fine_as_it_is_drawn(conn: AsyncConnection) -> None:
    await told(conn, a_series("pods"))
    axis = Grid(EPOCH, 300.0, 15)
    (block,) = await lines.read_series(conn, CLUSTER, QUERY.names, axis, end=NOON + 2 * HOUR)
    (rows,) = asked([block])
    (one,) = rows.series(QUERY.by, [0])
    assert [value for value in one.values if value % 20 != 19] == [one.values[0]], "the last of each five minutes"


async def test_a_series_that_ended_does_not_end_those_that_it_is_added_up_with(conn: AsyncConnection) -> None:
    first = a_series("pods")
    ended = replace(a_series("nodes"), values=(*first.values[:-1], STALE))
    found = await told(conn, first, ended, minutes=80)
    assert [one.values[-1] for one in found if one.values[-1] == one.values[-1]] == [299.0]


async def a_month(conn: AsyncConnection, measure: Measure) -> list[float]:
    """Two hours of a level that is 5, for one scrape 90, and for the whole second hour 7, drawn over thirty days."""
    values = [7.0 if n >= 240 else 5.0 for n in range(480)]
    values[100] = 90.0
    times = tuple(EPOCH + 15.0 * n for n in range(480))
    level = MetricSeries("workqueue_depth", (("instance", "a"), ("name", "pods")), "gauge", times, tuple(values))
    await record(conn, Batch(CLUSTER, series=(level,)))
    while await compaction.compact(conn, now=NOON + timedelta(days=3)):
        pass
    end = NOON + timedelta(days=20)
    axis = window_grid((end - timedelta(days=30)).timestamp(), end.timestamp(), most=110)
    query = SeriesQuery((level.name,), measure)
    blocks = await lines.read_series(conn, CLUSTER, query.names, axis, end=end)
    (curve,) = block_graph(blocks, axis, query).curves
    return [value for value in curve.values.tolist() if not math.isnan(value)]


async def steady(conn: AsyncConnection, hours: int) -> None:
    """A rate of 2 and a level of 4, compacted."""
    times = tuple(EPOCH + 15.0 * n for n in range(240 * hours))
    about = (("instance", "a"), ("verb", "GET"))
    counter = MetricSeries(QUERY.metrics[0], about, "counter", times, tuple(30.0 * n for n in range(len(times))))
    level = MetricSeries("workqueue_depth", about, "gauge", times, (4.0,) * len(times))
    await record(conn, Batch(CLUSTER, series=(counter, level)))
    while await compaction.compact(conn, now=NOON + timedelta(days=10)):
        pass


async def whole(conn: AsyncConnection, start: float, end: float) -> None:
    """The window has a value in each bin."""
    axis = window_grid(start, end, most=109)
    for query, value in ((QUERY, 2.0), (SeriesQuery(("workqueue_depth",), Measure.LEVEL), 4.0)):
        blocks = await lines.read_series(conn, CLUSTER, query.names, axis, end=datetime.fromtimestamp(end, UTC))
        (curve,) = block_graph(blocks, axis, query).curves
        assert curve.values.tolist() == pytest.approx([value] * axis.size)


@pytest.mark.parametrize("kept", ["samples_minutes", "samples_hours"])
@pytest.mark.parametrize("minutes", [60, 10])
async def test_a_short_window_is_whole_where_only_what_is_coarser_is_kept(
    conn: AsyncConnection, kept: str, minutes: int
) -> None:
    await steady(conn, 5)
    for table in {"samples", "samples_minutes"} - {kept}:
        await conn.execute(text(f"DELETE FROM {table}"))
    start = EPOCH + 2 * 3600 + 300
    await whole(conn, start, start + minutes * 60)


@pytest.mark.parametrize("ends_after", [3600.0 * 3 + 25, 86_400.0 * 4 + 600])
async def test_a_window_is_whole_that_ends_within_a_bin_of_what_is_read(
    conn: AsyncConnection, ends_after: float
) -> None:
    await steady(conn, 5 if ends_after < 86_400 else 24 * 5)
    await whole(conn, EPOCH + 3600, EPOCH + ends_after)


async def test_a_peak_of_one_sample_is_seen_in_a_month(conn: AsyncConnection) -> None:
    assert await a_month(conn, Measure.HIGHEST) == [90.0]


async def test_a_level_of_a_month_is_the_mean_of_the_last_of_each_hour(conn: AsyncConnection) -> None:
    assert await a_month(conn, Measure.LEVEL) == [6.0]


async def test_a_level_of_hours_is_the_mean_of_the_last_of_each_minute(conn: AsyncConnection) -> None:
    values = tuple(float(n % 4) for n in range(len(TIMES)))
    level = MetricSeries("workqueue_depth", (("instance", "a"),), "gauge", TIMES, values)
    await told(conn, level)
    axis = Grid(EPOCH, 300.0, 15)
    blocks = await lines.read_series(conn, CLUSTER, [level.name], axis, end=NOON + 2 * HOUR)
    for measure in (Measure.LEVEL, Measure.HIGHEST):
        (curve,) = block_graph(blocks, axis, SeriesQuery((level.name,), measure)).curves
        assert curve.values.tolist() == [3.0] * 15
    fine = Grid(EPOCH, 30.0, 150)
    blocks = await lines.read_series(conn, CLUSTER, [level.name], fine, end=NOON + 2 * HOUR)
    (curve,) = block_graph(blocks, fine, SeriesQuery((level.name,), Measure.LEVEL)).curves
    assert curve.values.tolist() == [0.5, 2.5] * 75
