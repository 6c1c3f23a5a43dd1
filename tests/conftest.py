"""A real PostgreSQL for every test that needs one: one server a session, one database a module, one savepoint a test.

FORESHOCK_TEST_POSTGRES names the folder of another server's programs (the default is the wheel's).
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import psycopg
import pytest
from hypothesis import settings
from sqlalchemy.ext.asyncio import AsyncConnection

from app.store import embedded
from app.store.database import Database, open_database
from app.store.migrate import migrate

TEMPLATE = "foreshock_template"
settings.register_profile("untimed", settings(), deadline=None)  # a busy machine refutes nothing
settings.load_profile("untimed")
os.environ["KUBECONFIG"] = os.devnull  # no test follows the cluster of who runs it
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # begun in the background: what it starts would not hear Ctrl-C
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def server() -> Iterator[embedded.Server]:
    """A PostgreSQL in a folder of its own (pytest's own are closed to the account it runs as)."""
    folder = Path(tempfile.mkdtemp(prefix="fs"))
    folder.chmod(0o711)
    asked_for = os.environ.get("FORESHOCK_TEST_POSTGRES")
    started = embedded.start(
        folder,
        programs=Path(asked_for) if asked_for else None,
        options=("fsync=off", "synchronous_commit=off", "full_page_writes=off"),
    )
    yield started
    started.stop()
    shutil.rmtree(folder)


def dsn_of(server: embedded.Server, name: str) -> str:
    return server.dsn.replace(f"/{embedded.DATABASE}?", f"/{name}?")


@pytest.fixture(scope="session")
def template(server: embedded.Server) -> str:
    """The name of a migrated, empty database to copy from."""
    with psycopg.connect(server.dsn, autocommit=True) as conn:
        conn.execute(f"CREATE DATABASE {TEMPLATE}")
    migrate(dsn_of(server, TEMPLATE))
    return TEMPLATE


@pytest.fixture(scope="module")
def dsn(server: embedded.Server, template: str) -> Iterator[str]:
    """The DSN of a migrated database that this module alone uses."""
    name = f"t{uuid.uuid4().hex[:12]}"
    with psycopg.connect(server.dsn, autocommit=True) as conn:
        conn.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
        yield dsn_of(server, name)
        conn.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture(scope="module")
async def database(dsn: str) -> AsyncIterator[Database]:
    """The two pools of that database."""
    opened = open_database(dsn)
    yield opened
    await opened.close()


@pytest.fixture
async def conn(database: Database) -> AsyncIterator[AsyncConnection]:
    """A connection in a transaction that is rolled back after the test."""
    async with database.write.connect() as connection:
        transaction = await connection.begin()
        yield connection
        await transaction.rollback()
