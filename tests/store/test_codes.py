"""Ids are remembered when their transaction commits, and forgotten when it does not."""

from __future__ import annotations

import psycopg
import pytest
from sqlalchemy import text
from sqlalchemy.exc import OperationalError

from app.store.codes import cluster, codes_of
from app.store.database import Database

KEY = ("cluster", "prod")


async def remembered(database: Database) -> int | None:
    async with database.write.begin() as conn:
        return codes_of(conn).get(KEY)


async def test_an_id_outlives_its_transaction_only_when_that_commits(database: Database) -> None:
    async with database.write.connect() as conn:
        await conn.begin()
        await cluster(conn, "prod")
        await conn.rollback()
    assert await remembered(database) is None
    async with database.write.begin() as conn:
        made = await cluster(conn, "prod")
    assert await remembered(database) == made


async def test_a_connection_that_broke_says_so_and_leaves_no_id_behind(database: Database, dsn: str) -> None:
    async with database.write.begin() as conn:
        await cluster(conn, "prod")

    async def cut_off() -> None:
        async with database.write.begin() as conn:
            codes_of(conn).learn(KEY, -1)
            process = (await conn.execute(text("SELECT pg_backend_pid()"))).scalar_one()
            with psycopg.connect(dsn, autocommit=True) as other:
                other.execute("SELECT pg_terminate_backend(%s)", (process,))
            await conn.execute(text("SELECT 1"))

    with pytest.raises(OperationalError):
        await cut_off()
    assert await remembered(database) is None
    async with database.write.begin() as conn:
        assert await cluster(conn, "prod") > 0


async def test_an_id_that_is_noted_lasts_as_long_as_its_transaction(database: Database) -> None:
    noted = ("object", 1)
    for ends in ("commit", "rollback"):
        async with database.write.connect() as conn:
            await conn.begin()
            codes_of(conn).note(noted, 7)
            assert codes_of(conn).get(noted) == 7
            await getattr(conn, ends)()
            await conn.begin()
            assert codes_of(conn).get(noted) is None
