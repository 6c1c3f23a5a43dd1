"""A COPY that is cancelled ends with its connection: who writes again and again has to stop when asked to."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import timedelta

import pytest
from sqlalchemy import text

from app.core.model import MetricSeries
from app.store import codes, series
from app.store.copy import copy
from app.store.database import UNAVAILABLE, Database
from tests.store.factories import CLUSTER, NOON

TIMES = 80
"""Without closing the connection one cancellation in nine was lost, at whatever point of the write."""


async def test_whoever_is_cancelled_as_he_writes_ends_by_that(database: Database) -> None:
    async def write(number: int) -> None:
        while True:
            async with database.write.begin() as conn:
                at = (NOON + timedelta(milliseconds=number)).timestamp()
                told = [MetricSeries("up", (("pod", str(pod)),), "", (at,), (1.0,)) for pod in range(20)]
                await series.write(conn, await codes.cluster(conn, CLUSTER), told)

    ends = Counter[str]()
    for number in range(TIMES):
        task = asyncio.create_task(write(number))
        await asyncio.sleep(0.03 * number / TIMES)
        task.cancel()
        (end,) = await asyncio.wait_for(asyncio.gather(task, return_exceptions=True), 10)
        ends[type(end).__name__] += 1
    assert ends == {"CancelledError": TIMES}


async def test_a_server_that_is_gone_within_a_copy_is_said_to_be_away(database: Database) -> None:
    async with database.write.connect() as conn, database.turns.connect() as other:
        await conn.execute(text("CREATE TEMP TABLE told (at int)"))
        me = (await conn.execute(text("SELECT pg_backend_pid()"))).scalar_one()
        await other.execute(text("SELECT pg_terminate_backend(:pid)"), {"pid": me})
        with pytest.raises(UNAVAILABLE):
            await copy(conn, "told", {"at": "int4"}, ((number,) for number in range(100_000)))
    async with database.write.connect() as conn:
        assert (await conn.execute(text("SELECT 1"))).scalar_one() == 1
