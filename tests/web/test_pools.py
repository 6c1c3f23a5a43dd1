"""Who reads has connections of their own: recording cannot take them."""

from __future__ import annotations

from contextlib import AsyncExitStack
from time import monotonic

import pytest
from sqlalchemy import text
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from app.core.model import Batch
from app.store.record import lock, record
from tests.web import world
from tests.web.conftest import Site

IN_TIME = 2.0
"""Seconds; a pool that is used up is waited for for five."""
PATHS = ("/api/v1/changes", "/api/v1/what-changed", "/api/v1/incidents", "/api/v1/calls?cluster=shop", "/changes")


async def test_rest_answers_in_time_while_every_connection_that_writes_is_taken(site: Site) -> None:
    async with AsyncExitStack() as taken:
        for engine in (site.database.write, site.database.turns):
            for _ in range(engine.pool.size()):  # type: ignore[attr-defined]
                conn = await taken.enter_async_context(engine.connect())
                await conn.execute(text("SELECT 1"))
        async with site.client() as client:
            for path in PATHS:
                began = monotonic()
                answer = await client.get(path)
                assert answer.status_code == 200, answer.text
                assert monotonic() - began < IN_TIME, path
        with pytest.raises(PoolTimeoutError):  # so they were all taken
            await taken.enter_async_context(site.database.write.connect())


async def test_rest_does_not_wait_for_a_batch_that_is_being_recorded(site: Site) -> None:
    async with site.database.write.connect() as conn, conn.begin() as transaction:
        await lock(conn, world.CLUSTER)
        await record(conn, Batch(world.CLUSTER, changes=(world.a_change("half", version="half"),)))
        async with site.client() as client:
            for path in PATHS:
                began = monotonic()
                answer = await client.get(path)
                assert answer.status_code == 200, answer.text
                assert monotonic() - began < IN_TIME, path
                assert "image of half" not in answer.text
        await transaction.rollback()
