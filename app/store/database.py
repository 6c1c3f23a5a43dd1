"""Connections to PostgreSQL: a pool to read from, one for who may read a part alone, one to write with, one for the
locks of workers."""

from __future__ import annotations

from dataclasses import dataclass
from time import monotonic
from typing import Any

import psycopg
from psycopg.errors import ReadOnlySqlTransaction
from sqlalchemy import event
from sqlalchemy.engine import URL, ExceptionContext, make_url
from sqlalchemy.exc import ArgumentError, DisconnectionError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from app.failures import Exit, Expected
from app.store import codec, scope

OLDEST_SERVER = 15
UNAVAILABLE = (OperationalError, InterfaceError, PoolTimeoutError)
"""The database is away, busy, takes no writes, or was asked too much. Any other error of SQLAlchemy's is a fault of
who asks it."""
TURNS = 8
"""Workers that may have their turn at once; what is not used is not connected."""
_READS = "-c statement_timeout=5s"
_RANDOM_READS = "-c random_page_cost=1.1"
"""What PostgreSQL's documentation advises for solid-state drives. Its default is that of a disk with a head: with that
the newest changes of a cluster, which an index has in order, are found by sorting all of the day's, in twice the time.
"""
_ALIVE = {
    "connect_timeout": "10",
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": "60000",
}
"""A server that is gone without a word, with its node or behind a firewall that forgot us, is known to be within a
minute, unless DATABASE_URL says otherwise. Linux finds out after 15 minutes where something was sent, else after two
hours: https://www.postgresql.org/docs/current/libpq-connect.html#LIBPQ-PARAMKEYWORDS"""
_SEEN_ALIVE = "-c tcp_keepalives_idle=30 -c tcp_keepalives_interval=10 -c tcp_keepalives_count=3"
"""The same of us, by the server: else it kept the locks of a process whose node is gone for two hours, and no other
process got a worker's turn."""


class DatabaseError(Expected):
    """The database cannot be used as it is; the message says what to do."""

    code = Exit.NOT_NOW


@dataclass(frozen=True, slots=True)
class Database:
    """The pools of one process: ``read`` commits nothing and gives up after 5 s, ``write`` is for record(), ``turns``
    for the locks of workers: who holds one waits for a connection of another pool, and never for one of this.
    ``scoped`` reads as ``read`` does, in transactions that see what store/scope.py shows them, and change nothing."""

    read: AsyncEngine
    scoped: AsyncEngine
    write: AsyncEngine
    turns: AsyncEngine

    async def close(self) -> None:
        for engine in (self.read, self.scoped, self.write, self.turns):
            await engine.dispose()


def sqlalchemy_url(dsn: str) -> URL:
    """``postgresql://`` as people write it, for psycopg 3. Raises DatabaseError on any other scheme."""
    try:
        url = make_url(dsn)
    except ArgumentError:
        raise DatabaseError("DATABASE_URL is not a URL like postgresql://user:password@host:5432/database") from None
    if url.drivername not in {"postgresql", "postgres", "postgresql+psycopg"}:
        raise DatabaseError(f"DATABASE_URL begins with {url.drivername}://; only postgresql:// works")
    return url.set(drivername="postgresql+psycopg")


def _engine(url: URL, settings: str, *, size: int, isolation_level: str) -> AsyncEngine:
    engine = create_async_engine(
        url,
        isolation_level=isolation_level,
        pool_size=size,
        max_overflow=0,
        pool_timeout=5,
        pool_pre_ping=True,
        json_deserializer=codec.loads,
        json_serializer=codec.jsonb_text,
        connect_args={
            **{name: value for name, value in _ALIVE.items() if name not in url.query},
            "options": f"-c timezone=UTC {_SEEN_ALIVE} {_RANDOM_READS} {settings}",
            "application_name": "foreshock",
        },
    )

    @event.listens_for(engine.sync_engine, "connect")
    def connected(connection: object, _record: object) -> None:
        codec.adapt(connection.driver_connection)  # type: ignore[attr-defined]

    return engine


def away(error: psycopg.Error) -> OperationalError:
    """What the driver says of a server that is gone, or takes no writes for now, as SQLAlchemy says it."""
    return OperationalError(None, None, error, connection_invalidated=True)


class _Primary:
    """Leaves a server that takes no writes, as one that was the primary before a failover: of every pool, what was
    connected before that was found out is connected anew, so that none goes on to read there, or to take turns."""

    def __init__(self) -> None:
        self._left_at = 0.0

    def lead(self, engine: AsyncEngine, *, finds_out: bool) -> None:
        """``finds_out``: who writes by this one is told so by the server, and by no setting of ours."""

        @event.listens_for(engine.sync_engine, "connect")
        def connected(_connection: object, record: Any) -> None:
            record.info["connected_at"] = monotonic()

        @event.listens_for(engine.sync_engine, "checkout")
        def checked_out(_connection: object, record: Any, _proxy: object) -> None:
            if record.info["connected_at"] < self._left_at:
                raise DisconnectionError

        @event.listens_for(engine.sync_engine, "handle_error")
        def failed(context: ExceptionContext) -> OperationalError | None:
            if not finds_out or not isinstance(context.original_exception, ReadOnlySqlTransaction):
                return None
            self._left_at = monotonic()
            context.is_disconnect = True
            return away(context.original_exception)


def open_database(dsn: str, *, readers: int = 8, writers: int = 4) -> Database:
    """The pools for ``dsn``; nothing is connected yet. Reads have their own: ingest cannot starve them."""
    url = sqlalchemy_url(dsn)
    seen = f"-c search_path={scope.SCHEMA} -c default_transaction_read_only=on"
    of_scoped = url
    if url.query.get("target_session_attrs") == "read-write":  # which by our own setting no session would be
        of_scoped = url.update_query_dict({"target_session_attrs": "primary"})
    database = Database(
        read=_engine(url, _READS, size=readers, isolation_level="AUTOCOMMIT"),
        scoped=_engine(of_scoped, f"{_READS} {seen}", size=readers, isolation_level="REPEATABLE READ"),
        write=_engine(url, "", size=writers, isolation_level="READ COMMITTED"),
        turns=_engine(url, "", size=TURNS, isolation_level="AUTOCOMMIT"),
    )
    primary = _Primary()
    for engine in (database.read, database.scoped, database.write, database.turns):
        primary.lead(engine, finds_out=engine is not database.scoped)
    return database


async def check(database: Database) -> int:
    """The server's major version. Raises DatabaseError when it cannot be reached or is too old."""
    try:
        async with database.read.connect() as conn:
            version = int((await conn.exec_driver_sql("SHOW server_version_num")).scalar_one()) // 10_000
    except OperationalError as error:
        raise DatabaseError(f"cannot reach PostgreSQL: {str(error.orig).strip()}") from error
    if version < OLDEST_SERVER:
        raise DatabaseError(f"PostgreSQL {version} is too old: {OLDEST_SERVER} to 18 work")
    return version
