"""Up to when a cluster is recorded: by every source that tells of it, also where nothing changed."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

from alembic import command
from msgspec.structs import replace
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.core.model import Batch, MetricSeries, SymptomSource
from app.core.record import NEVER, NO_MORE, NOT_YET
from app.core.stale import STALE
from app.store import collectors, measured, reach, scope
from app.store.database import Database
from app.store.migrate import config, connect, migrate
from app.store.record import record
from app.store.seen import Freshness, Seen, read_seen
from tests.store.factories import CLUSTER, NOON, a_change, a_count, a_request, a_symptom


async def sources(conn: AsyncConnection) -> Mapping[str, datetime]:
    (one,) = (await read_seen(conn, CLUSTER, from_at=None, to_at=None)).freshness
    return one.sources


def minutes(number: float) -> datetime:
    return NOON + timedelta(minutes=number)


def samples(at: datetime) -> MetricSeries:
    return MetricSeries("up", (), "gauge", (at.timestamp() - 60, at.timestamp()), (1.0, 1.0))


async def test_each_source_reaches_as_far_as_what_it_told(conn: AsyncConnection) -> None:
    alert = replace(a_symptom(seconds=240), source=SymptomSource.ALERT)
    warning = replace(a_symptom("other", seconds=900), source=SymptomSource.EVENT)
    change = a_change(seconds=60, sources=frozenset({"watch", "audit"}))
    requests, calls = (a_request(seconds=120),), (a_count(1 * 12),)
    batch = Batch(CLUSTER, changes=(change,), requests=requests, calls=calls, symptoms=(alert, warning))
    await record(conn, batch)
    await record(conn, Batch(CLUSTER, series=(samples(minutes(3)),), read_to=(("dump", minutes(-5)),)))
    assert await sources(conn) == {
        "alerts": minutes(4),
        "metrics": minutes(3),
        "audit log": minutes(2),
        "watch": minutes(1),
        "dump": minutes(-5),
    }
    assert next(iter(await sources(conn))) == "alerts", "the newest first"
    assert await reach.read(conn, CLUSTER) == await sources(conn)
    assert await reach.read(conn, "another") == {}


async def test_a_cluster_in_which_nothing_changes_is_recorded_too(conn: AsyncConnection) -> None:
    await record(conn, Batch(CLUSTER, changes=(a_change(sources=frozenset({"audit"})),)))
    await record(conn, Batch(CLUSTER, calls=(a_count(30 * 12),)))
    assert await sources(conn) == {"audit log": minutes(30)}
    await record(conn, Batch(CLUSTER, read_to=(("watch", minutes(31)),)))
    assert (await sources(conn))["watch"] == minutes(31)


async def test_the_record_begins_with_the_oldest_that_was_ever_told(conn: AsyncConnection) -> None:
    async def began() -> datetime | None:
        return (await read_seen(conn, CLUSTER, from_at=None, to_at=None)).freshness[0].since

    await record(conn, Batch(CLUSTER, series=(samples(minutes(1)),)))
    assert await began() is None, "metrics tell of no change"
    await record(conn, Batch(CLUSTER, read_to=(("watch", minutes(9)),)))
    assert await began() == minutes(9)
    await record(conn, Batch(CLUSTER, changes=(a_change(seconds=300, sources=frozenset({"audit"})),)))
    await record(conn, Batch(CLUSTER, calls=(a_count(4 * 12), a_count(8 * 12))))
    assert await began() == minutes(4)


async def test_what_was_asked_for_outside_the_record_is_not_seen(conn: AsyncConnection) -> None:
    await record(conn, Batch(CLUSTER, read_to=(("watch", minutes(10)), ("watch", minutes(20)))))
    await record(conn, Batch("old", read_to=(("watch", minutes(-2880)),)))
    await record(conn, Batch("pages", symptoms=(replace(a_symptom(seconds=900), source=SymptomSource.ALERT),)))

    async def told(cluster: str | None) -> list[tuple[str, datetime, datetime, str]]:
        seen = await read_seen(conn, cluster, from_at=minutes(0), to_at=minutes(30))
        return [(gap.cluster, gap.from_at, gap.to_at, gap.why) for gap in seen.gaps]

    ends = [(CLUSTER, minutes(0), minutes(10), NOT_YET), (CLUSTER, minutes(20), minutes(30), NO_MORE)]
    assert await told(CLUSTER) == ends
    assert await told("old") == [("old", minutes(0), minutes(30), NO_MORE)]
    assert await told("pages") == [("pages", minutes(0), minutes(30), NEVER)]
    assert await told(None) == ends, "of several, what was given up, or never told a change, is passed over"


async def test_of_a_cluster_that_is_followed_its_collector_says_how_far_it_is(conn: AsyncConnection) -> None:
    await record(conn, Batch(CLUSTER, read_to=(("watch", minutes(10)),)))
    await collectors.take(conn, CLUSTER, "one")
    seen = await read_seen(conn, CLUSTER, from_at=minutes(12), to_at=None)
    assert [gap.why for gap in seen.gaps] == []


async def test_what_is_older_moves_nothing_back(conn: AsyncConnection) -> None:
    await record(conn, Batch(CLUSTER, read_to=(("watch", minutes(5)),)))
    await record(conn, Batch(CLUSTER, read_to=(("watch", minutes(1)), ("watch", minutes(2)))))
    assert await sources(conn) == {"watch": minutes(5)}


async def test_what_is_to_come_is_not_recorded_yet(conn: AsyncConnection) -> None:
    ahead = Batch(CLUSTER, calls=(a_count(600 * 12),), read_to=(("watch", minutes(5)), ("audit log", minutes(700))))
    await record(conn, replace(ahead, read_at=minutes(6)))
    assert await sources(conn) == {"audit log": minutes(6), "watch": minutes(5)}


def test_only_who_would_have_told_of_a_change_says_that_there_was_none() -> None:
    told = {"alerts": minutes(9), "watch": minutes(5), "metrics": minutes(8), "dump": minutes(7)}
    seen = Seen((Freshness("a", told), Freshness("b", {})), (), ())
    assert [one.at for one in seen.freshness] == [minutes(5), None]
    assert seen.recorded == {"a": minutes(5)}
    assert Seen((Freshness("a", {"metrics": minutes(8)}),), (), ()).recorded == {}


async def test_an_older_database_is_looked_at_once(database: Database, dsn: str) -> None:
    alert = replace(a_symptom(seconds=240), source=SymptomSource.ALERT)
    async with database.write.begin() as conn:
        await record(conn, Batch(CLUSTER, changes=(a_change(seconds=60, sources=frozenset({"watch"})),)))
        calls = (a_count(1 * 12),)
        await record(conn, Batch(CLUSTER, calls=calls, series=(samples(minutes(3)),), symptoms=(alert,)))
        before = dict(await sources(conn))
    with connect(dsn) as connection, connection.begin():
        scope.remove_views(connection)
        command.downgrade(config(connection), "20261121_2330")
    migrate(dsn)
    async with database.write.begin() as conn:
        assert await sources(conn) == {name: at for name, at in before.items() if name != "alerts"}
        await conn.execute(text("DELETE FROM recorded"))


async def test_metrics_that_are_asked_for_or_scraped_reach_as_far_as_a_target_answered(conn: AsyncConnection) -> None:
    times = tuple(minutes(number).timestamp() for number in range(4))
    told = [
        MetricSeries("up", (), "gauge", times[:2], (1.0, 1.0)),
        MetricSeries("workqueue_depth", (), "gauge", times[:2], (3.0, 4.0)),
    ]
    await measured.record(conn, CLUSTER, told)
    assert await reach.read(conn, CLUSTER) == {reach.METRICS: minutes(1)}
    down = [
        MetricSeries("up", (), "gauge", times[2:], (0.0, 0.0)),
        MetricSeries("workqueue_depth", (), "gauge", times[3:], (STALE,)),
    ]
    await measured.record(conn, CLUSTER, down)
    assert await reach.read(conn, CLUSTER) == {reach.METRICS: minutes(1)}
