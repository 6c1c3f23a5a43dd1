"""One process at a time follows a cluster, and who was stalled meanwhile writes nothing."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
from sqlalchemy import text
from sqlalchemy.exc import OperationalError

from app.core.watching import LATE, Followed, Unseen, Watching
from app.store import codes, collectors
from app.store.collectors import FencedError, Standing
from app.store.database import Database
from app.store.record import WRITER_LOCK
from app.store.seen import read_seen


@pytest.fixture
def name() -> str:
    return f"shop-{uuid4().hex[:8]}"


async def take(database: Database, name: str, holder: str) -> int | None:
    async with database.write.begin() as conn:
        return await collectors.take(conn, name, holder)


async def taken(database: Database, name: str, holder: str) -> int:
    async with asyncio.timeout(30):
        while True:
            if epoch := await take(database, name, holder):
                return epoch
            await asyncio.sleep(0.2)


async def grow_late(database: Database, name: str) -> None:
    """As if the holder had not renewed for a lease."""
    async with database.write.begin() as conn:
        await conn.execute(
            text(
                "UPDATE collectors SET renewed_at = renewed_at - CAST(:lease AS interval)"
                " WHERE cluster_id = (SELECT id FROM clusters WHERE name = :name)"
            ),
            {"lease": collectors.LEASE, "name": name},
        )


async def test_one_has_a_cluster_until_it_is_late(database: Database, name: str) -> None:
    assert await take(database, name, "a") == 1
    assert await take(database, name, "b") is None
    assert await take(database, name, "a") == 1
    await grow_late(database, name)
    assert await take(database, name, "b") == 2
    async with database.write.begin() as conn:
        assert not await collectors.renew(conn, name, 1, Watching())
        assert await collectors.renew(conn, name, 2, Watching())
        assert await collectors.epoch_of(conn, name, "a") is None
        assert await collectors.epoch_of(conn, name, "b") == 2
        await collectors.check(conn, name, 2)
        with pytest.raises(FencedError, match=name):
            await collectors.check(conn, name, 1)


async def test_who_comes_back_in_time_keeps_its_epoch(database: Database, name: str) -> None:
    assert await take(database, name, "a") == 1
    await grow_late(database, name)
    assert await take(database, name, "a") == 1


async def test_what_is_given_up_may_be_taken_at_once(database: Database, name: str) -> None:
    assert await take(database, name, "a") == 1
    async with database.write.begin() as conn:
        await collectors.leave(conn, name, 1, standing=Standing.LEFT)
    assert await take(database, name, "b") == 2


async def test_how_well_a_cluster_is_followed_is_read_until_it_is_ended(database: Database, name: str) -> None:
    at = datetime(2026, 11, 22, 14, tzinfo=UTC)
    watching = Watching("v1.36.3", 40, (Unseen("Pod", at, "refused"),), 7, ("may write",))
    epoch = await take(database, name, "a")
    assert epoch
    async with database.write.begin() as conn:
        await collectors.renew(conn, name, epoch, watching)
        (found,) = (await read_seen(conn, name, from_at=None, to_at=None)).followed
        assert (found.holder, found.watching) == ("a", watching)
        await collectors.leave(conn, name, epoch, standing=Standing.ENDED)
        assert (await read_seen(conn, name, from_at=None, to_at=None)).followed == ()


async def test_a_write_that_was_stopped_does_not_keep_the_next_from_its_turn(
    database: Database, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collectors, "LEASE", timedelta(seconds=1))
    epoch = await take(database, name, "a")
    assert epoch
    async with database.write.connect() as stopped:
        await collectors.check(stopped, name, epoch)
        await stopped.execute(
            text("SELECT pg_advisory_xact_lock(:lock, :cluster)"),
            {"lock": WRITER_LOCK, "cluster": await codes.cluster(stopped, name)},
        )
        assert await taken(database, name, "b") == epoch + 1
        with pytest.raises(OperationalError, match="terminat"):
            await stopped.execute(text("SELECT 1"))


def test_what_is_not_seen_is_a_gap_once_it_is_late() -> None:
    now = datetime(2026, 11, 22, 14, tzinfo=UTC)
    early, late = now - LATE, now - LATE - timedelta(seconds=1)
    watching = Watching(unseen=(Unseen("Pod", early, "x"), Unseen("Node", late, "timed out")))
    (found,) = Followed("shop", "a", now, watching).gaps(now)
    assert (found.kind, found.from_at, found.to_at, found.why) == ("Node", late, now, "not seen for now: timed out")
    (found,) = Followed("shop", "a", late, watching).gaps(now)
    assert (found.kind, found.from_at) == ("", late)
    assert "no collector" in found.why


async def test_what_is_followed_is_listed_until_it_is_given_up(database: Database, name: str) -> None:
    epoch = await taken(database, name, "one")

    async def is_listed() -> bool:
        async with database.read.connect() as conn:
            return name in await collectors.list_lively(conn, since=datetime.now(UTC))

    for standing, listed in ((Standing.LEFT, True), (Standing.ENDED, False)):
        assert await is_listed()
        async with database.write.begin() as conn:
            await collectors.leave(conn, name, epoch, standing=standing)
        assert await is_listed() is listed
