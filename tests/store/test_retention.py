"""Retention: old partitions go whole, beside readers and writers, also when a run was cut off half way."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace
from sqlalchemy import text
from sqlalchemy.exc import OperationalError

from app.core.findings import NONE, Incident, Opinion, Verdict
from app.core.model import Batch
from app.store import incidents, partitions, retention, surroundings, timeline, verdicts
from app.store.codes import codes_of
from app.store.database import Database
from app.store.record import record
from tests.store.factories import NOON, a_change, a_resource, a_rollout, a_state

NOW = datetime(2026, 3, 4, 12, tzinfo=UTC)  # a Wednesday
DAY = timedelta(days=1)
SAMPLES = retention.SampleAges(each=7 * DAY, minutes=14 * DAY, hours=90 * DAY)
AGES = retention.ages(changes=30 * DAY, calls=7 * DAY, requests=2 * DAY, samples=SAMPLES)


async def partitions_of(database: Database) -> set[str]:
    async with database.read.connect() as conn:
        found = await conn.execute(text("SELECT relname FROM pg_class WHERE relname ~ '_[0-9]{8}$' AND relkind = 'r'"))
        return set(found.scalars())


async def make(database: Database, table: str, *times: datetime) -> None:
    async with database.write.begin() as conn:
        await partitions.ensure(conn, table, times)


async def test_each_log_is_forgotten_at_its_age(database: Database) -> None:
    for table in ("changes", "requests", "samples"):
        await make(database, table, NOW, NOW - 3 * DAY, NOW - 20 * DAY, NOW - 60 * DAY)
    dropped = await retention.drop_expired(database.write, AGES, now=NOW)
    left = await partitions_of(database)
    assert {name for name in left if name.startswith("changes")} == {
        "changes_20260302", "changes_20260223", "changes_20260209"
    }  # fmt: skip
    assert {name for name in left if name.startswith("samples")} == {"samples_20260304", "samples_20260301"}
    assert {name for name in left if name.startswith("requests")} == {"requests_20260304"}
    assert left.isdisjoint(dropped)
    assert await retention.drop_expired(database.write, AGES, now=NOW) == []


async def test_a_partition_goes_when_its_last_moment_is_too_old_and_not_before(database: Database) -> None:
    await make(database, "requests", NOW)
    end = datetime(2026, 3, 5, tzinfo=UTC)
    almost = end + AGES["requests"] - timedelta(seconds=1)
    assert "requests_20260304" not in await retention.drop_expired(database.write, AGES, now=almost)
    assert "requests_20260304" in await retention.drop_expired(database.write, AGES, now=end + AGES["requests"])


async def test_a_dropped_partition_is_made_again_when_its_time_returns(database: Database) -> None:
    old = NOW - 300 * DAY
    await make(database, "changes", old)
    name = partitions.name_of("changes", partitions.start_of("changes", old))
    await retention.drop_expired(database.write, AGES, now=NOW)
    assert name not in await partitions_of(database)
    async with database.write.connect() as conn:
        assert codes_of(conn).get(("partition", name)) is None
    await make(database, "changes", old)
    assert name in await partitions_of(database)


@pytest.mark.parametrize("cut_off", ["detached", "detaching"])
async def test_a_run_that_was_cut_off_is_finished(database: Database, cut_off: str) -> None:
    old = NOW - 200 * DAY
    await make(database, "changes", old)
    name = partitions.name_of("changes", partitions.start_of("changes", old))
    autocommit = database.write.execution_options(isolation_level="AUTOCOMMIT")
    async with autocommit.connect() as conn:
        if cut_off == "detached":
            await conn.execute(text(f"ALTER TABLE changes DETACH PARTITION {name} CONCURRENTLY"))
        else:
            await leave_detaching(database, name)
            pending = await conn.execute(
                text(f"SELECT inhdetachpending FROM pg_inherits WHERE inhrelid = '{name}'::regclass")
            )
            assert pending.scalar_one() is True
    assert name in await retention.drop_expired(database.write, AGES, now=NOW)
    assert name not in await partitions_of(database)


async def leave_detaching(database: Database, name: str) -> None:
    """An old reader holds up the second half of DETACH CONCURRENTLY until its patience ends."""
    autocommit = database.write.execution_options(isolation_level="AUTOCOMMIT")
    async with database.write.begin() as reader, autocommit.connect() as conn:
        await reader.execute(text("SELECT count(*) FROM changes"))
        await conn.execute(text("SET statement_timeout = '300ms'"))
        with pytest.raises(Exception, match="statement timeout"):
            await conn.execute(text(f"ALTER TABLE changes DETACH PARTITION {name} CONCURRENTLY"))
        await conn.execute(text("RESET statement_timeout"))


async def test_a_writer_is_not_kept_waiting_behind_a_long_reader(database: Database) -> None:
    await make(database, "gaps", NOW, NOW - 100 * DAY)
    async with database.read.execution_options(isolation_level="REPEATABLE READ").connect() as reader:
        await reader.execute(text("SELECT count(*) FROM gaps"))
        sweep = asyncio.create_task(retention.drop_expired(database.write, AGES, now=NOW))
        await asyncio.sleep(0.3)  # the sweep waits for the reader now
        assert not sweep.done()
        async with asyncio.timeout(0.25), database.write.begin() as writer:
            await writer.execute(text("INSERT INTO gaps VALUES (1, :at, 'Pod', :at, 'the watch was cut')"), {"at": NOW})
        await reader.rollback()
    assert "gaps_20251124" in await sweep


async def test_behind_a_long_reader_of_one_log_all_else_is_forgotten(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "PATIENCE", timedelta(milliseconds=300))
    for table in ("changes", "requests"):
        await make(database, table, NOW - 100 * DAY)
    async with database.write.begin() as conn:
        await conn.execute(
            text("INSERT INTO quarantine VALUES (1, :at, 'audit.jsonl', 1, 1, 'not JSON', '{')"), {"at": NOW - 90 * DAY}
        )
    async with database.read.execution_options(isolation_level="REPEATABLE READ").connect() as reader:
        await reader.execute(text("SELECT count(*) FROM changes"))
        with pytest.raises(OperationalError, match="statement timeout"):
            await retention.drop_expired(database.write, AGES, now=NOW)
        left = await partitions_of(database)
        await reader.rollback()
    assert [name for name in left if name.startswith("requests_")] == []
    assert [name for name in left if name.startswith("changes_")] != []
    async with database.read.connect() as conn:
        assert (await conn.execute(text("SELECT count(*) FROM quarantine"))).scalar_one() == 0
    assert any(name.startswith("changes_") for name in await retention.drop_expired(database.write, AGES, now=NOW))


async def test_what_lies_beside_the_logs_goes_with_them(database: Database) -> None:
    async with database.write.begin() as conn:
        for days in (1, 36, 38):
            await conn.execute(
                text("INSERT INTO quarantine VALUES (1, :at, 'audit.jsonl', 1, 1, 'not JSON', '{')"),
                {"at": NOW - days * DAY},
            )
    await retention.drop_expired(database.write, AGES, now=NOW)
    async with database.read.connect() as conn:
        left = await conn.execute(text("SELECT at FROM quarantine"))
        assert left.scalars().all() == [NOW - DAY, NOW - 36 * DAY]


async def test_an_incident_goes_once_it_and_all_that_was_merged_into_it_are_over_for_long(database: Database) -> None:
    """What is open is not forgotten, however old it is; a part and its whole stay as long as the younger of them."""
    old, lately = NOW - 60 * DAY, NOW - DAY

    def an_incident(name: str, status: str, resolved_at: datetime | None, into: str | None = None) -> Incident:
        return Incident(name, "shop", name, status, "", old, resolved_at=resolved_at, merged_into=into)

    open_one, whole = an_incident("open", "open", None), an_incident("whole of today", "resolved", lately)
    old_whole = an_incident("old whole", "resolved", old)
    stay = [
        open_one,
        an_incident("resolved today", "resolved", lately),
        an_incident("part of open", "merged", old, open_one.id),
        whole,
        an_incident("part of that", "merged", old, whole.id),
        old_whole,
        an_incident("merged today", "merged", lately, old_whole.id),
    ]
    go = [
        an_incident("resolved", "resolved", old),
        an_incident("suspected", "suspected", None),
        an_incident("part of resolved", "merged", old, "resolved"),
        an_incident("its whole is gone", "merged", old, "gone"),
    ]
    async with database.write.begin() as conn:
        await record(conn, Batch("shop"))
        for one in (*stay, *go):
            await incidents.save_incident(conn, one)
            await verdicts.say(conn, one.id, Verdict(NONE, Opinion.IT, "alice", old))
    await retention.drop_expired(database.write, AGES, now=NOW)
    async with database.read.connect() as conn:
        left = await incidents.read_incidents(conn, [one.id for one in (*stay, *go)])
    assert {one.id for one in left} == {one.id for one in stay}
    assert all(one.verdicts for one in left)


@pytest.mark.parametrize("name", ["changes", "changes_2026", "clusters_20260101", "changes_20260101_x"])
def test_only_partitions_of_ours_have_an_end(name: str) -> None:
    assert retention.end_of(name) is None


async def test_a_name_that_comes_again_after_its_object_was_forgotten_is_an_object_again(database: Database) -> None:
    """Also where the process remembers the number that it had; that of another cluster stays."""
    place = a_resource("comes-again")
    clusters = {"gone": NOW - 60 * DAY, "stays": None}
    for name, deleted_at in clusters.items():
        mine = replace(place, cluster=name)
        async with database.write.begin() as conn:
            await record(conn, Batch(name, changes=(a_change("1", resource=mine, uid=""),)))
        async with database.write.begin() as conn:
            await record(conn, Batch(name, objects=(a_state(resource=mine, uid="", deleted_at=deleted_at),)))
    await retention.drop_expired(database.write, AGES, now=NOW)
    for name in clusters:
        again = a_change("2", resource=replace(place, cluster=name), uid="", seconds=1)
        async with database.write.begin() as conn:
            await record(
                conn, Batch(name, changes=(again,), rollouts=(replace(a_rollout(), resource=again.resource, uid=""),))
            )
        async with database.read.connect() as conn:
            found = await timeline.list_changes(conn, timeline.ChangeFilter(name), limit=1)
            rolled, _ = await surroundings.list_rollouts(conn, name, from_at=NOON, to_at=NOON + DAY)
        assert [one.key for one in found] == [again.key]
        assert [one.resource for one in rolled] == [again.resource]
