"""Samples are the same in whatever order, division and repetition they are told, and whenever they are compacted."""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import datetime, timedelta
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.core.model import MetricSeries
from app.core.stale import STALE
from app.store import chunks, codes, compaction, series
from app.store.database import Database
from tests.samples import plain
from tests.store.factories import CLUSTER, NOON

MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
WEST = "west"
LATER = NOON + 8 * HOUR
Sample = tuple[str, int, float]
"""The name of a series, the second after noon, the value."""


def told(samples: Iterable[Sample]) -> list[MetricSeries]:
    """Each sample as a series of its own, as if it came alone."""
    return [
        MetricSeries(name, (("job", "api"),), "gauge", (NOON.timestamp() + at,), (value,))
        for name, at, value in samples
    ]


async def kept(
    conn: AsyncConnection,
    start: datetime = NOON,
    end: datetime = LATER,
    *,
    cluster: str = CLUSTER,
    names: list[str] | None = None,
) -> list[Sample]:
    """What is read, values by their bits where they are no numbers."""
    return [
        (one.name, round(time - NOON.timestamp()), bits(value) if math.isnan(value) else value)
        for one in await series.read(conn, cluster, start, end, names=names)
        for time, value in zip(one.times, one.values, strict=True)
    ]


def bits(value: float) -> float:
    return float(np.float64(value).view(np.int64))


async def compact_all(conn: AsyncConnection, now: datetime = LATER) -> int:
    """How many hours of how many clusters became blocks."""
    done = 0
    while await compaction.compact(conn, now=now):
        done += 1
    return done


async def rows(conn: AsyncConnection, table: str) -> int:
    return int((await conn.execute(text(f"SELECT count(*) FROM {table}"))).scalar_one())


samples = st.tuples(
    st.sampled_from(["a", "b"]), st.integers(0, 7200), st.sampled_from([0.0, 1.0, 0.25, math.nan, STALE])
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.lists(samples, min_size=1, max_size=6), min_size=1, max_size=6), st.data())
async def test_any_cut_and_any_compaction_leave_the_same_samples(
    conn: AsyncConnection, cuts: list[list[Sample]], data: st.DataObject
) -> None:
    savepoint = await conn.begin_nested()
    try:
        cluster_id = await codes.cluster(conn, CLUSTER)
        expected: dict[tuple[str, int], float] = {}
        for cut in cuts:
            await series.write(conn, cluster_id, told(cut))
            expected |= {(name, at): value for name, at, value in cut}
            if data.draw(st.booleans()):
                await compact_all(conn)
            if data.draw(st.booleans()):
                await series.write(conn, cluster_id, told(cut))
        wanted = [(n, at, bits(v) if math.isnan(v) else v) for (n, at), v in sorted(expected.items())]
        assert await kept(conn) == wanted
        await compact_all(conn)
        assert await kept(conn) == wanted
        assert await kept(conn, names=["b", "c"]) == [one for one in wanted if one[0] == "b"]
    finally:
        await savepoint.rollback()


async def test_an_hour_is_compacted_once_it_has_ended_and_the_grace_too(conn: AsyncConnection) -> None:
    cluster_id = await codes.cluster(conn, CLUSTER)
    await series.write(conn, cluster_id, told([("a", 0, 1.0), ("a", 3599, 2.0), ("a", 3600, 3.0)]))
    assert await rows(conn, "samples_told") == 2
    early = NOON + HOUR + compaction.GRACE - timedelta(seconds=1)
    assert await compact_all(conn, early) == 0
    assert await compact_all(conn, NOON + HOUR + compaction.GRACE) == 1
    assert (await rows(conn, "samples_told"), await rows(conn, "samples")) == (1, 1)


async def test_a_large_hour_is_gone_through_in_parts(conn: AsyncConnection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "MOST", 100)
    cluster_id = await codes.cluster(conn, CLUSTER)
    many = [(f"m{n:03}", 5, float(n)) for n in range(300)]
    for first in range(0, 300, 50):
        await series.write(conn, cluster_id, told(many[first : first + 50]))
    assert await compact_all(conn) == 1
    assert await rows(conn, "samples_told") == 0
    assert await kept(conn) == many


async def test_who_dies_while_compacting_leaves_everything_as_it_was(database: Database) -> None:
    async with database.write.begin() as conn:
        await series.write(conn, await codes.cluster(conn, WEST), told([("a", 0, 1.0)]))
    async with database.write.connect() as dying:
        await dying.begin()
        process = (await dying.execute(text("SELECT pg_backend_pid()"))).scalar_one()
        assert await compaction.compact(dying, now=LATER)
        async with database.write.begin() as other:
            assert await kept(other, cluster=WEST) == [("a", 0, 1.0)]
            assert await compaction.compact(other, now=LATER) is None, "the other one is at it"
            await series.write(other, await codes.cluster(other, WEST), told([("a", 1, 2.0)]))
        await dying.invalidate()
    async with database.write.begin() as conn:  # PostgreSQL may see only later that a connection is gone
        await conn.execute(text("SELECT pg_terminate_backend(:process, 30000)"), {"process": process})
    async with database.write.begin() as conn:
        assert await kept(conn, cluster=WEST) == [("a", 0, 1.0), ("a", 1, 2.0)]
        assert await compact_all(conn) == 1
        assert await kept(conn, cluster=WEST) == [("a", 0, 1.0), ("a", 1, 2.0)]
        assert await rows(conn, "samples_told") == 0


async def test_what_comes_while_an_hour_is_compacted_waits_for_the_next_time(database: Database) -> None:
    async with database.write.begin() as conn:
        await series.write(conn, await codes.cluster(conn, "south"), told([("a", 0, 1.0)]))
    async with database.write.begin() as conn:
        hour = await compaction._next(conn, LATER)
        assert hour is not None
        async with database.write.begin() as other:
            await series.write(other, await codes.cluster(other, "south"), told([("a", 0, 5.0)]))
        await compaction._compact(conn, hour)
    async with database.write.begin() as conn:
        assert await rows(conn, "samples_told") == 1
        assert await compact_all(conn) == 1
        [one] = plain(await series.read(conn, "south", NOON, LATER))
    assert one.values == (5.0,)


async def test_a_series_is_found_by_its_name_in_what_is_old_and_what_is_new(conn: AsyncConnection) -> None:
    cluster_id = await codes.cluster(conn, CLUSTER)
    await series.write(conn, cluster_id, told([("a", 0, 1.0), ("b", 0, 1.0)]))
    await compact_all(conn)
    await series.write(conn, cluster_id, told([("a", 5, 2.0), ("b", 5, 2.0)]))
    assert await kept(conn, names=["a"]) == [("a", 0, 1.0), ("a", 5, 2.0)]
    assert await kept(conn, NOON + timedelta(seconds=1), NOON + timedelta(seconds=5), names=["a"]) == [("a", 5, 2.0)]
    assert await kept(conn, names=[]) == []


DAY = timedelta(days=1)


def scraped(name: str, values: list[float], *, every: int = 15) -> MetricSeries:
    times = tuple(NOON.timestamp() + every * n for n in range(len(values)))
    return MetricSeries(name, (), "unknown", times, tuple(values))


def increase(values: Iterable[float]) -> float:
    """As Prometheus has it: what is lower than the one before counted up from zero."""
    told = list(values)
    return sum(new - old if new >= old else new for old, new in pairwise(told))


async def drawn(conn: AsyncConnection, step: timedelta) -> series.Rows:
    """What is read for a graph in steps of so much."""
    return await series.read_rows(conn, CLUSTER, NOON, NOON + DAY, step=step)


async def tell_and_compact(conn: AsyncConnection, *told: MetricSeries) -> None:
    await series.write(conn, await codes.cluster(conn, CLUSTER), told)
    assert await compact_all(conn, NOON + 2 * DAY)


async def test_a_counter_rises_as_much_in_minutes_and_hours_as_in_all_its_samples(conn: AsyncConnection) -> None:
    steps = np.random.default_rng(3).poisson(9, 4 * 60 * 8)
    values: list[float] = []
    for n, step in enumerate(steps.tolist()):
        values.append(float(step) if n % 97 == 96 or not n else values[-1] + step)
    await tell_and_compact(conn, scraped("http_requests_total", values))
    for bins in (timedelta(minutes=1), timedelta(minutes=5), HOUR):
        found = await drawn(conn, bins)
        # The first sample of a window is that of its first bin: what came before it there is not in the window's lines.
        assert increase(found.rows.values) == increase(values)
        assert len(found.rows.values) < len(values) / 2


async def test_a_level_shows_the_last_and_the_greatest_of_each_bin_that_is_kept(conn: AsyncConnection) -> None:
    values = [5.0] * 960
    values[130], values[131], values[500] = 90.0, 0.5, 70.0
    await tell_and_compact(conn, scraped("queue_depth", values))
    for bins, each in ((HOUR, 240), (4 * HOUR, 240), (MINUTE, 4), (5 * MINUTE, 4)):
        found = await drawn(conn, bins)
        assert found.rows.values.tolist() == values[each - 1 :: each]
        assert found.greatest.tolist() == [max(values[at : at + each]) for at in range(0, 960, each)]


async def test_a_level_that_ends_within_a_bin_had_its_greatest_before(conn: AsyncConnection) -> None:
    await tell_and_compact(conn, scraped("queue_depth", [5.0, 90.0, 5.0, STALE, STALE, 7.0]))
    found = await drawn(conn, HOUR)
    assert np.nan_to_num(found.rows.values, nan=-1).tolist() == [5.0, -1.0, -1.0, 7.0]
    assert np.nan_to_num(found.greatest, nan=-1).tolist() == [90.0, -1.0, -1.0, 90.0]


async def test_what_is_too_old_for_one_tier_is_read_from_the_next_and_there_is_no_seam(conn: AsyncConnection) -> None:
    level = scraped("queue_depth", [float(n) for n in range(4 * 60 * 7)])
    await tell_and_compact(conn, level)
    assert plain(await series.read(conn, CLUSTER, NOON, NOON + DAY)) == [level]
    await conn.execute(text("DELETE FROM samples WHERE at < :at"), {"at": NOON + 6 * HOUR})
    [minutes] = plain(await series.read(conn, CLUSTER, NOON, NOON + DAY))
    assert set(np.diff(minutes.times)) == {60.0}
    assert minutes.values[:2] == (3.0, 7.0)
    [fine] = await series.read(conn, CLUSTER, NOON + 6 * HOUR, NOON + DAY)
    assert set(np.diff(fine.times)) == {15.0}


async def around(conn: AsyncConnection, at: datetime) -> list[float]:
    """Seconds after noon at which was scraped what is read around a change."""
    within = timedelta(minutes=10)
    found = await series.read_around(conn, CLUSTER, [], start=at - within, end=at + within)
    return [time - NOON.timestamp() for one in found.series for time in one.times]


async def test_around_a_change_every_sample_is_read_before_its_hour_is_packed(conn: AsyncConnection) -> None:
    await series.write(conn, await codes.cluster(conn, CLUSTER), [scraped("workqueue_depth", [1.0] * 240 * 3)])
    assert await compact_all(conn, NOON + 2 * HOUR + 10 * MINUTE) == 2
    assert await around(conn, NOON + 2.5 * HOUR) == [8400.0 + 15 * n for n in range(81)]


async def test_around_a_change_nothing_is_left_out_where_every_sample_is_kept_of_a_part(conn: AsyncConnection) -> None:
    await tell_and_compact(conn, scraped("workqueue_depth", [1.0] * 240 * 2))
    await conn.execute(text("DELETE FROM samples WHERE at < :at"), {"at": NOON + HOUR})
    for minute in (55, 65):
        last_of_each = [60.0 * n - 15 for n in range(minute - 9, minute + 11)]
        assert await around(conn, NOON + minute * MINUTE) == [*last_of_each, 60.0 * (minute + 10)]


async def test_hours_are_read_where_the_minutes_do_not_reach(conn: AsyncConnection) -> None:
    """A week later: what is left of a tier is known by its oldest stretch."""
    names = ("old", "new")
    for name, shift in zip(names, (0, 8 * 86_400), strict=True):
        one = scraped(name, [float(n) for n in range(480)])
        await series.write(
            conn, await codes.cluster(conn, CLUSTER), [replace(one, times=tuple(t + shift for t in one.times))]
        )
    await compact_all(conn, NOON + 10 * DAY)
    for table in ("samples", "samples_minutes"):
        await conn.execute(text(f"DELETE FROM {table} WHERE at < :at"), {"at": NOON + DAY})
    found = {one.name: one for one in plain(await series.read(conn, CLUSTER, NOON, NOON + 10 * DAY))}
    assert [found[name].values for name in names] == [(239.0, 479.0)] * 2
    [one] = await series.read(conn, CLUSTER, NOON + 8 * DAY, NOON + 10 * DAY)
    assert len(one.values) == 480


async def test_what_was_told_last_is_seen_in_every_tier_before_it_is_packed(conn: AsyncConnection) -> None:
    await tell_and_compact(conn, scraped("queue_depth", [1.0] * 240))
    late = MetricSeries("queue_depth", (), "unknown", (NOON.timestamp() + 3700, NOON.timestamp() + 3705), (7.0, 8.0))
    await series.write(conn, await codes.cluster(conn, CLUSTER), [late])
    found = await drawn(conn, HOUR)
    assert found.rows.values.tolist() == [1.0, 8.0]


async def test_a_value_that_is_told_otherwise_is_the_later_one_in_every_tier(conn: AsyncConnection) -> None:
    await tell_and_compact(conn, scraped("queue_depth", [1.0, 99.0, 1.0, 1.0]))
    await tell_and_compact(conn, scraped("queue_depth", [1.0, 2.0]))
    for bins in (timedelta(seconds=15), MINUTE, HOUR):
        assert max((await drawn(conn, bins)).greatest) == 2.0


@pytest.mark.parametrize("wanted", [[], [7], [7, 9, 300], [7, 7 + 2 * chunks.MOST_APART]])
def test_the_series_that_are_wanted_are_chosen_however_far_apart_they_are(wanted: list[int]) -> None:
    some = np.array([0, 5, 6, 7, 8, 9, 299, 300, 301, 2**31 - 1, *wanted])
    chosen = chunks.chooser(np.array(wanted, np.int64))(some)
    assert chosen.tolist() == [one in wanted for one in some.tolist()]


async def test_of_what_apps_served_those_of_the_namespaces_that_are_asked_about_come_first(
    conn: AsyncConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(series, "MOST_SERVED", 2)
    cluster_id = await codes.cluster(conn, CLUSTER)
    served = [
        MetricSeries("http_requests_total", ((label, one), ("pod", pod)), "counter", (NOON.timestamp(),), (1.0,))
        for label, one in (("exported_namespace", "web"), ("namespace", "shop"), ("namespace", "pay"))
        for pod in ("a", "b")
    ]
    await series.write(conn, cluster_id, [*served, *told([("up", 0, 1.0)])])

    async def read(near: list[str] | None) -> list[tuple[str, str]]:
        found = await series.read(conn, CLUSTER, NOON, LATER, names=["up"], near=near)
        return [(one.name, dict(one.labels).get("namespace", "")) for one in found]

    assert await read(None) == [("up", "")]
    assert await read(["shop"]) == [("http_requests_total", "shop")] * 2 + [("up", "")]
    assert len(await read(["web"])) == 3
    assert ("http_requests_total", "pay") not in await read(["web"])
    assert len(await read([])) == 3
    monkeypatch.setattr(series, "MOST_SERVED", 3)
    assert sorted(await read(["web"])) == [("http_requests_total", one) for one in ("", "", "shop")] + [("up", "")]
    monkeypatch.setattr(series, "MOST_SERVED", 9)
    assert len(await read(["web"])) == 7
