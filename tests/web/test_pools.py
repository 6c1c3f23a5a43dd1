"""Who reads has connections of their own: recording cannot take them.

Who waits for a connection or a lock that is not let go is answered 503, after five seconds.
"""

from __future__ import annotations

from contextlib import AsyncExitStack

import pytest
from sqlalchemy import text
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.ext.asyncio import AsyncEngine
from starlette.types import Message, Scope

from app.core.model import Batch
from app.store.record import lock, record
from tests.web import world
from tests.web.conftest import Site

PATHS = ("/api/v1/changes", "/api/v1/what-changed", "/api/v1/incidents", "/api/v1/calls?cluster=shop", "/changes")


async def test_rest_answers_while_every_connection_that_writes_is_taken(site: Site) -> None:
    async with AsyncExitStack() as taken:
        for engine in (site.database.write, site.database.turns):
            for _ in range(engine.pool.size()):  # type: ignore[attr-defined]
                conn = await taken.enter_async_context(engine.connect())
                await conn.execute(text("SELECT 1"))
        async with site.client() as client:
            for path in PATHS:
                answer = await client.get(path)
                assert answer.status_code == 200, answer.text
        with pytest.raises(PoolTimeoutError):  # so they were all taken
            await taken.enter_async_context(site.database.write.connect())


async def test_rest_does_not_wait_for_a_batch_that_is_being_recorded(site: Site) -> None:
    async with site.database.write.connect() as conn, conn.begin() as transaction:
        await lock(conn, world.CLUSTER)
        await record(conn, Batch(world.CLUSTER, changes=(world.a_change("half", version="half"),)))
        async with site.client() as client:
            for path in PATHS:
                answer = await client.get(path)
                assert answer.status_code == 200, answer.text
                assert "image of half" not in answer.text
        await transaction.rollback()


async def test_who_reads_an_answer_slowly_holds_no_connection(site: Site) -> None:
    """A phone on a bad line takes as long as it takes, and eight of them are as many as there are connections."""
    read: AsyncEngine = site.app.state.deps.read
    paths = (*PATHS, f"/api/v1/changes/{world.CULPRIT.id}", "/api/v1/series?cluster=shop&metric=up", "/explore")
    for path in paths:
        held: list[str] = []

        async def send(_message: Message, held: list[str] = held) -> None:
            held.append(read.pool.status())

        await site.app(_get(path, site.bearer["viewer"]), _no_body, send)
        assert len(held) > 1, path
        assert all("Current Checked out connections: 0" in one for one in held), (path, held)


def _get(path: str, token: str) -> Scope:
    where, _, query = path.partition("?")
    head = [(b"host", b"foreshock.test"), (b"authorization", f"Bearer {token}".encode())]
    scope = {"type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "GET", "scheme": "http"}
    told = {"path": where, "raw_path": where.encode(), "query_string": query.encode(), "headers": head}
    return {**scope, **told, "root_path": "", "client": ("192.0.2.7", 40000), "server": ("foreshock.test", 80)}


async def _no_body() -> Message:
    return {"type": "http.request", "body": b"", "more_body": False}
