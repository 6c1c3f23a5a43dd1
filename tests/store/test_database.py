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

from app.store import embedded
from app.store.database import open_database

ADDRESS = "127.0.7.31"


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
