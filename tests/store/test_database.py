"""The connections themselves: that somebody who is gone without a word is found out, on either side."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from psycopg import AsyncConnection
from sqlalchemy import text
from sqlalchemy.exc import InternalError
from sqlalchemy.ext.asyncio import AsyncEngine

from app.store import embedded
from app.store.copy import copy
from app.store.database import UNAVAILABLE, open_database

ADDRESS = "127.0.7.31"


@pytest.fixture(scope="module")
def old() -> Iterator[embedded.Server]:
    """A PostgreSQL that was the primary."""
    folder = Path(tempfile.mkdtemp(prefix="fe"))
    folder.chmod(0o711)
    server = embedded.start(folder, options=("fsync=off",))
    yield server
    server.stop()
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def listening() -> Iterator[str]:
    """The DSN of a PostgreSQL that is reached over TCP, as somebody's own is."""
    folder = Path(tempfile.mkdtemp(prefix="fd"))
    folder.chmod(0o711)
    server = embedded.start(folder, options=(f"listen_addresses={ADDRESS}", "fsync=off"))
    yield f"postgresql://postgres@{ADDRESS}/{embedded.DATABASE}"
    server.stop()
    shutil.rmtree(folder)


async def test_who_is_gone_without_a_word_is_found_out_within_a_minute(listening: str) -> None:
    database = open_database(listening)
    for engine in (database.read, database.write, database.turns):
        async with engine.connect() as conn:
            raw = await conn.get_raw_connection()
            driver = raw.driver_connection
            assert isinstance(driver, AsyncConnection)
            with socket.socket(fileno=os.dup(driver.fileno())) as ours:
                assert ours.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 30
                assert ours.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL) == 10
                assert ours.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 60_000
            for name, seconds in {"idle": "30", "interval": "10", "count": "3"}.items():
                assert (await conn.execute(text(f"SHOW tcp_keepalives_{name}"))).scalar_one() == seconds
    await database.close()


async def test_what_the_url_says_of_it_counts(listening: str) -> None:
    database = open_database(f"{listening}?keepalives_idle=7&connect_timeout=3")
    async with database.write.connect() as conn:
        driver = (await conn.get_raw_connection()).driver_connection
        assert isinstance(driver, AsyncConnection)
        assert {"keepalives_idle": "7", "connect_timeout": "3"}.items() <= driver.info.get_parameters().items()
    await database.close()


async def _where(engine: AsyncEngine) -> object:
    """The folder of the server's socket."""
    async with engine.connect() as conn:
        return (await conn.execute(text("SHOW unix_socket_directories"))).scalar_one()


async def _write(engine: AsyncEngine, *, times: int = 1) -> None:
    for _ in range(times):
        async with engine.begin() as conn:
            await conn.execute(text("CREATE TABLE IF NOT EXISTS written (id int)"))


async def _turn(engine: AsyncEngine, setting: str) -> None:
    """Whether the server takes no writes: of each session that there is, too, once it has read the settings again."""
    async with engine.connect() as conn:
        alone = await conn.execution_options(isolation_level="AUTOCOMMIT")
        await alone.execute(text(f"ALTER SYSTEM SET default_transaction_read_only = {setting}"))
        await alone.execute(text("SELECT pg_reload_conf()"))


async def test_a_server_that_takes_no_writes_any_more_is_left_for_the_one_that_does(
    old: embedded.Server, server: embedded.Server
) -> None:
    hosts = [one.dsn.partition("?host=")[2] for one in (old, server)]
    named = "&".join(f"host={one}" for one in hosts)
    database = open_database(f"postgresql://postgres@/{embedded.DATABASE}?{named}&target_session_attrs=read-write")
    by_hand = open_database(old.dsn)
    engines = (database.read, database.write, database.turns)
    assert {await _where(engine) for engine in (*engines, database.scoped)} == {hosts[0]}
    await _turn(by_hand.write, "on")
    try:
        with pytest.raises(UNAVAILABLE, match="read-only"):
            await _write(database.write, times=10_000)  # until the settings are read
        assert {await _where(engine) for engine in engines} == {hosts[1]}
    finally:
        await _turn(by_hand.write, "off")
        await by_hand.close()
        await database.close()


async def test_it_is_found_out_by_a_copy_too(listening: str) -> None:
    database = open_database(listening)
    await _write(database.write)
    async with database.write.connect() as conn:
        await conn.execute(text("SET TRANSACTION READ ONLY"))
        with pytest.raises(UNAVAILABLE, match="read-only"):
            await copy(conn, "written", {"id": "int4"}, [(1,)])
    await database.close()


async def test_who_may_only_read_and_writes_is_a_fault_of_ours(listening: str) -> None:
    database = open_database(listening)
    with pytest.raises(InternalError, match="read-only"):
        await _write(database.scoped)
    await database.close()
