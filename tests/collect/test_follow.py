"""A spool into a real database: all of it counts once, whatever fails meanwhile, and what is unusable stops nothing."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import text
from sqlalchemy.exc import DataError, OperationalError, ProgrammingError
from sqlalchemy.ext.asyncio import AsyncConnection

from app.collect import learning, told
from app.collect.follow import Follower
from app.collect.spool import Spool
from app.collect.words import Saw, Served
from app.core.model import Batch
from app.store import collectors
from app.store.record import Recorded, record
from tests.collect.test_importer import NOW, T0, Lab, audited, deployment, lab, read, write

__all__ = ["lab"]
KEY = b"k" * 32
EVENTS = [read(1), audited(10, 12, "web:2"), read(15), audited(20, 13, "web:3"), read(25)]
COUNTED = {"calls": 5, "changes": 2, "requests": 2, "quarantine": 0}


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[Spool]:
    with Spool(tmp_path / "spool", most_bytes=1 << 26, key=KEY) as opened:
        yield opened


def follower(lab: Lab, spool: Spool) -> Follower:
    """A follower that waits for nothing, as after a start of the program."""
    return Follower(lab.database.write, lab.cluster, spool, held=timedelta(0), idle=timedelta(0))


def body(events: list[str]) -> bytes:
    return b'{"kind":"EventList","apiVersion":"audit.k8s.io/v1","metadata":{},"items":[%s]}' % ",".join(events).encode()


def send(spool: Spool, events: list[str]) -> int:
    return spool.append(told.encode(told.AuditBody(NOW, body(events))), durable=True)


async def counted(lab: Lab) -> dict[str, int]:
    [[calls]] = await lab.rows("call_minutes", "coalesce(sum(total), 0)")
    found = {table: (await lab.rows(table))[0][0] for table in ("changes", "requests", "quarantine")}
    return {"calls": calls, **found}


async def reasons(lab: Lab) -> list[tuple[int, str]]:
    return [(row.line, row.reason) for row in await lab.rows("quarantine", "line, reason")]


async def test_what_the_webhook_sends_is_what_an_import_of_the_log_finds(
    lab: Lab, spool: Spool, tmp_path: Path
) -> None:
    send(spool, EVENTS[:2])
    send(spool, EVENTS[2:])
    await follower(lab, spool).round()
    assert await counted(lab) == COUNTED
    there = Lab(lab.database, f"{lab.cluster}-imported")
    await there.imported(*write(tmp_path, log="\n".join(EVENTS) + "\n"))
    assert [(one.summary, one.diffs, one.actor) for one in await lab.stored()] == [
        (one.summary, one.diffs, one.actor) for one in await there.stored()
    ]
    assert await lab.rows("recorded", "source, to_at") == await there.rows("recorded", "source, to_at")


async def test_batches_that_are_sent_at_once_are_put_in_order(lab: Lab, spool: Spool) -> None:
    send(spool, [audited(30, 14, "web:4")])
    send(spool, [audited(10, 12, "web:2")])
    send(spool, [audited(20, 13, "web:3")])
    await follower(lab, spool).round()
    found = [(one.diffs[0].old, one.diffs[0].new) for one in await lab.stored() if one.diffs[0].old]
    assert found[-2:] == [("web:2", "web:3"), ("web:3", "web:4")]


async def test_started_again_it_counts_nothing_again_and_room_comes_back(lab: Lab, spool: Spool) -> None:
    end = send(spool, EVENTS[:3])
    await follower(lab, spool).round()
    assert spool.size == 0
    send(spool, EVENTS[3:])
    await follower(lab, spool).round()
    await follower(lab, spool).round()
    assert await counted(lab) == COUNTED
    assert spool.begin > end


async def test_what_the_audit_log_told_before_a_start_is_met_by_the_watch_behind_it(lab: Lab, spool: Spool) -> None:
    """A watch that goes on tells of the time in whole seconds: the write seems to be older than it was told."""
    send(spool, [audited(10.7, 12, "web:2")])
    await follower(lab, spool).round()
    shown = json.dumps(deployment(12, "web:2")).encode()
    served = Served("apps", "v1", "Deployment", "deployments")
    word = Saw(T0 + timedelta(seconds=10), "MODIFIED", shown, "12")
    async with lab.database.write.begin() as conn:
        epoch = await collectors.take(conn, lab.cluster, spool.identity)
    assert epoch is not None
    spool.append(told.encode(told.Watched(served, word, epoch)), durable=True)
    await follower(lab, spool).round()
    assert [one.sources for one in await lab.stored()] == [{"audit", "watch"}]


async def test_its_vitals_say_what_waits_and_what_was_recorded(lab: Lab, spool: Spool) -> None:
    send(spool, EVENTS)
    spool.append(told.encode(told.AuditBody(NOW, b"no JSON")), durable=True)
    one = follower(lab, spool)
    assert one.vitals().unrecorded_bytes == one.vitals().spool_bytes == spool.size > 0
    await one.round()
    done = one.vitals()
    assert (done.unrecorded_bytes, done.quarantined) == (0, 1)
    assert (done.changes, done.calls) == (COUNTED["changes"], len(EVENTS))


async def test_a_request_that_is_sent_again_is_counted_once_also_after_a_start(lab: Lab, spool: Spool) -> None:
    one = follower(lab, spool)
    send(spool, EVENTS)
    send(spool, EVENTS)
    await one.round()
    send(spool, EVENTS)
    await one.round()
    send(spool, EVENTS)
    await follower(lab, spool).round()
    assert await counted(lab) == COUNTED


async def test_what_came_while_a_batch_was_recorded_is_not_held_once_more(
    lab: Lab, spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    held, waits = timedelta(milliseconds=20), list[float]()

    async def slow(conn: AsyncConnection, batch: Batch) -> Recorded:
        await asyncio.sleep(2 * held.total_seconds())
        return await record(conn, batch)

    async def growth(seconds: float) -> None:
        waits.append(seconds)

    one = Follower(lab.database.write, lab.cluster, spool, held=held, idle=timedelta(0))
    monkeypatch.setattr(learning, "record", slow)
    send(spool, EVENTS[:1])
    await one.round()
    send(spool, EVENTS)
    monkeypatch.setattr(one, "_growth", growth)
    await one.round()
    assert waits == []
    assert await counted(lab) == COUNTED


async def test_a_database_that_goes_away_within_a_batch_loses_and_doubles_nothing(
    lab: Lab, spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def lost(conn: AsyncConnection, batch: Batch) -> Recorded:
        await record(conn, batch)
        raise OperationalError("COMMIT", {}, Exception("server closed the connection unexpectedly"))

    one = follower(lab, spool)
    send(spool, EVENTS)
    for _ in range(3):
        with monkeypatch.context() as patched:
            patched.setattr(learning, "record", lost)
            with pytest.raises(OperationalError):
                await one.round()
    assert (await counted(lab))["calls"] == 0
    await one.round()
    assert await counted(lab) == COUNTED


async def test_an_error_of_the_driver_itself_is_no_fault_of_what_is_recorded(
    lab: Lab, spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    send(spool, EVENTS)
    one = follower(lab, spool)

    async def full(conn: AsyncConnection, batch: Batch) -> Recorded:
        await record(conn, batch)
        raise psycopg.errors.DiskFull("could not extend file")

    with monkeypatch.context() as patched:
        patched.setattr(learning, "record", full)
        for _ in range(4):
            with pytest.raises(psycopg.errors.DiskFull):
                await one.round()
    while spool.size:
        await one.round()
    assert await counted(lab) == COUNTED


async def test_a_database_that_takes_no_writes_costs_no_record(
    lab: Lab, spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def read_only(conn: AsyncConnection, batch: Batch) -> Recorded:
        await conn.execute(text("SET TRANSACTION READ ONLY"))
        return await record(conn, batch)

    send(spool, EVENTS)
    one = follower(lab, spool)
    with monkeypatch.context() as patched:
        patched.setattr(learning, "record", read_only)
        for _ in range(4):
            with pytest.raises(OperationalError, match="read-only"):
                await one.round()
    while spool.size:
        await one.round()
    assert await counted(lab) == COUNTED


async def test_a_database_that_a_newer_process_migrates_costs_no_record(lab: Lab, spool: Spool) -> None:
    async def change(sql: str) -> None:
        async with lab.database.write.begin() as conn:
            await conn.execute(text(sql))

    send(spool, EVENTS)
    one = follower(lab, spool)
    await change("ALTER TABLE call_minutes RENAME TO newer_minutes")
    try:
        for _ in range(4):
            with pytest.raises((ProgrammingError, psycopg.errors.UndefinedTable)):
                await one.round()
    finally:
        await change("ALTER TABLE newer_minutes RENAME TO call_minutes")
    while spool.size:
        await one.round()
    assert await counted(lab) == COUNTED


async def test_what_no_batch_can_hold_goes_to_quarantine_and_the_rest_is_recorded(
    lab: Lab, spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def failing(conn: AsyncConnection, batch: Batch) -> Recorded:
        if any(call.key.user == "poison" for call in batch.calls):
            raise DataError("INSERT", {}, Exception("unsupported Unicode escape sequence"))
        return await record(conn, batch)

    monkeypatch.setattr(learning, "record", failing)
    one = follower(lab, spool)
    for event in [*EVENTS[:3], read(16, "poison"), *EVENTS[3:]]:
        send(spool, [event])
    failed = 0
    for _ in range(12):
        try:
            await one.round()
        except DataError:
            failed += 1
    assert await counted(lab) == {**COUNTED, "quarantine": 1}
    assert failed == 2
    assert await reasons(lab) == [(0, "it could not be recorded; the log says why: its events are missing")]


def event(**fields: Any) -> str:
    """A good event with other fields; None leaves a field out."""
    made = json.loads(read(2)) | fields
    return json.dumps({name: value for name, value in made.items() if value is not None})


WROTE = json.loads(audited(30, 30, "web:9")) | {"auditID": "x"}
POISON = {
    "null": "null",
    "a number": "17",
    "a string": '"event"',
    "an array": "[[]]",
    "an empty object": "{}",
    "another kind": json.dumps({"kind": "Pod", "metadata": {"name": "a"}}),
    "no stage": event(stage=None),
    "no verb": event(verb=None),
    "no time": event(requestReceivedTimestamp=None),
    "a time that is none": event(requestReceivedTimestamp="yesterday"),
    "a time without a zone": event(stageTimestamp="2026-11-21T11:00:00"),
    "1970": event(stageTimestamp="1970-01-01T00:00:00Z"),
    "tomorrow": event(requestReceivedTimestamp="2026-11-23T11:00:00Z"),
    "a user that is none": event(user=[]),
    "a status code that is none": event(responseStatus={"code": "200"}),
    "an object that is a number": json.dumps(WROTE | {"responseObject": 7}),
}


@pytest.mark.parametrize("name", POISON)
async def test_a_poison_item_is_refused_and_the_others_are_recorded(lab: Lab, spool: Spool, name: str) -> None:
    send(spool, [EVENTS[0], POISON[name], *EVENTS[1:]])
    await follower(lab, spool).round()
    found = await counted(lab)
    assert found["quarantine"] == 1, found
    assert (found["calls"], found["changes"]) in {(5, 2), (6, 2)}
    assert (await reasons(lab))[0][0] in {0, 2}


async def test_an_item_that_is_nested_too_deep_is_refused_alone(lab: Lab, spool: Spool) -> None:
    deep = event(requestObject=None)[:-1] + ', "requestObject": ' + '{"a":' * 100_000 + "1" + "}" * 100_001
    send(spool, [EVENTS[0], deep, *EVENTS[1:]])
    await follower(lab, spool).round()
    assert await counted(lab) == {**COUNTED, "quarantine": 1}
    assert "nested deeper" in (await reasons(lab))[0][1]


@pytest.mark.parametrize("wrong", [b"", b"{}", b"[]", b"not JSON", b'{"items": 3}', b"\xff\xfe", b'{"kind": "Event'])
async def test_a_body_that_is_no_list_is_refused_whole(lab: Lab, spool: Spool, wrong: bytes) -> None:
    spool.append(told.encode(told.AuditBody(NOW, wrong)), durable=True)
    send(spool, EVENTS)
    await follower(lab, spool).round()
    assert await counted(lab) == {**COUNTED, "quarantine": 1}


async def test_a_body_that_is_cut_gives_what_is_whole_of_it(lab: Lab, spool: Spool) -> None:
    spool.append(told.encode(told.AuditBody(NOW, body(EVENTS)[:-40])), durable=True)
    await follower(lab, spool).round()
    assert await counted(lab) == {**COUNTED, "calls": 4, "quarantine": 1}


async def test_what_was_lost_is_a_gap(lab: Lab, spool: Spool) -> None:
    spool.append(told.encode(told.AuditLost(NOW, "an audit request was too large")), durable=True)
    await follower(lab, spool).round()
    [gap] = await lab.rows("gaps", "from_at, to_at, why")
    assert tuple(gap) == (NOW - timedelta(seconds=30), NOW, "an audit request was too large")


async def test_a_folder_from_a_backup_is_told_again_rather_than_passed_over(lab: Lab, spool: Spool) -> None:
    send(spool, EVENTS[:4])
    await follower(lab, spool).round()
    with Spool(spool.folder.parent / "restored", most_bytes=1 << 26, key=KEY) as older:
        older.identity = spool.identity
        send(older, EVENTS[4:])
        assert older.end < spool.end
        await follower(lab, older).round()
    assert await counted(lab) == COUNTED
