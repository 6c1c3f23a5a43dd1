"""A database that takes no writes, as a standby does or a server whose disk is full, still answers who reads."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import httpx2
import psycopg
import pytest
from structlog.testing import capture_logs

from app.clusters import Clusters
from app.core.roles import Role
from app.store import tokens
from app.store.database import UNAVAILABLE, Database, open_database
from app.store.redaction import spool_key
from app.store.tokens import Purpose, Token
from app.supervise import Pulses
from app.web import guard
from app.web.deps import Deps
from app.web.known_tokens import KnownTokens
from app.web.routes import create_app
from tests.web.conftest import HOST, NOW

LATER = NOW + timedelta(minutes=90)
SECOND = timedelta(seconds=1)


@asynccontextmanager
async def unwritable(dsn: str) -> AsyncIterator[Database]:
    """The database as who connects now finds it: it takes no writes."""
    with psycopg.connect(dsn, autocommit=True) as conn:
        name = conn.info.dbname
        conn.execute(f'ALTER DATABASE "{name}" SET default_transaction_read_only = on')
        opened = open_database(dsn)
        try:
            yield opened
        finally:
            await opened.close()
            conn.execute("SET default_transaction_read_only = off")
            conn.execute(f'ALTER DATABASE "{name}" RESET default_transaction_read_only')


async def listed(database: Database, note: str) -> Token:
    """What is known of the token with this note."""
    async with database.read.connect() as conn:
        return next(one for one in await tokens.read(conn, now=NOW) if one.note == note)


@pytest.mark.parametrize("purpose", [Purpose.API, Purpose.SESSION])
async def test_who_reads_is_answered(database: Database, dsn: str, purpose: Purpose) -> None:
    async with database.write.begin() as conn:
        token = await tokens.create(conn, Role.VIEWER, purpose=purpose, now=NOW)
    sent = {"Cookie": f"{guard.COOKIE}={token}"} if purpose is Purpose.SESSION else {"Authorization": f"Bearer {token}"}
    async with unwritable(dsn) as no_writes:
        known = KnownTokens(no_writes.write, lambda: LATER)
        app = create_app(Deps(no_writes.read, no_writes.write, HOST, lambda: LATER, note_use=known.note_use))
        async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app), base_url=HOST, headers=sent) as client:
            assert [(await client.get("/api/v1/gaps")).status_code for _ in range(2)] == [200, 200]


async def test_a_session_ends_two_hours_after_its_use_though_that_is_not_noted_yet(
    database: Database, dsn: str
) -> None:
    async with database.write.begin() as conn:
        session = await tokens.create(conn, Role.VIEWER, purpose=Purpose.SESSION, now=NOW)
    at = NOW
    async with unwritable(dsn) as no_writes:
        known = KnownTokens(no_writes.write, lambda: at)
        deps = Deps(no_writes.read, no_writes.write, HOST, lambda: at, note_use=known.note_use, used=known.used)
        sent = {"Cookie": f"{guard.COOKIE}={session}"}
        found = []
        async with httpx2.AsyncClient(
            transport=httpx2.ASGITransport(app=create_app(deps)), base_url=HOST, headers=sent
        ) as client:
            for later in (tokens.IDLE - SECOND, SECOND * 2, tokens.IDLE - SECOND, tokens.IDLE):
                at += later
                found.append((await client.get("/api/v1/gaps")).status_code)
    assert found == [200, 200, 200, 401]


async def test_which_tokens_of_clusters_are_good_is_read_all_the_same(database: Database, dsn: str) -> None:
    async with database.write.begin() as conn:
        token = await tokens.create_for_cluster(conn, "shop", now=NOW)
    async with unwritable(dsn) as no_writes:
        known = KnownTokens(no_writes.write, lambda: LATER)
        await known.refresh()
        assert known.cluster_of(token) == "shop"
        with pytest.raises(UNAVAILABLE, match="read-only"):
            await known.note()
        await known.refresh()


async def test_that_use_cannot_be_noted_is_said_and_it_is_once_it_can_be(
    database: Database, dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.clusters.NOTE_EVERY", timedelta(milliseconds=20))
    async with database.write.begin() as conn:
        token = await tokens.create(conn, Role.VIEWER, purpose=Purpose.API, now=NOW, note="a dashboard")
        await spool_key(conn)
    at, pulses, spool = NOW, Pulses(lambda: NOW), tmp_path / "spool"
    async with unwritable(dsn) as no_writes:
        clusters = Clusters(no_writes, pulses, wanted=tuple, folder=spool, spool_bytes=100_000_000, clock=lambda: at)
        app = create_app(Deps(no_writes.read, no_writes.write, HOST, lambda: at, note_use=clusters.tokens.note_use))
        sent = {"Authorization": f"Bearer {token}"}
        with capture_logs() as lines:
            async with clusters.running(), asyncio.timeout(60):
                async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app), base_url=HOST) as client:
                    assert (await client.get("/api/v1/gaps", headers=sent)).status_code == 200
                while True:
                    failed = [one for one in lines if one["event"] == "worker failed"]
                    if failed:
                        break
                    await asyncio.sleep(0.02)
        assert {(one["worker"], one["log_level"]) for one in failed} == {("use of tokens", "error")}
        assert "read-only" in failed[0]["why"]
    kept, at = clusters.tokens, LATER
    monkeypatch.setattr(kept, "_write", database.write)
    assert (await listed(database, "a dashboard")).last_used_at is None
    await kept.note()
    assert (await listed(database, "a dashboard")).last_used_at == NOW, "when it was used, and not when that was noted"
