"""Brings a database to the newest schema, one program at a time."""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, create_engine, text
from sqlalchemy.pool import NullPool

from app.store.database import sqlalchemy_url

MIGRATIONS = Path(__file__).parents[2] / "migrations"
LOCK = 0x466F7265  # "Fore": the advisory lock under which migrations run


def _engine(dsn: str) -> Engine:
    return create_engine(sqlalchemy_url(dsn), poolclass=NullPool)


def connect(dsn: str) -> Connection:
    """A plain connection for migrations, closed by its ``with``."""
    return _engine(dsn).connect()


def config(connection: Connection | None = None) -> Config:
    """Alembic's configuration, made in code: the program needs no ini file to migrate."""
    made = Config()
    made.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    made.attributes["connection"] = connection
    return made


def head() -> str:
    """The revision that this program expects. Raises when the migrations have two heads."""
    found = ScriptDirectory.from_config(config()).get_current_head()
    if found is None:
        raise RuntimeError(f"no migrations in {MIGRATIONS}")
    return found


def migrate(dsn: str) -> str:
    """Runs what is missing in one transaction and returns the revision reached.

    A second program waits up to a minute for the first. A statement that cannot get its lock in 5 s gives up
    rather than queue every reader behind it: nothing is half done, run it again.
    """
    with connect(dsn) as connection, connection.begin():
        connection.execute(text("SET LOCAL statement_timeout = '60s'"))
        connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": LOCK})
        connection.execute(text("SET LOCAL lock_timeout = '5s'"))
        connection.execute(text("SET LOCAL statement_timeout = '10min'"))
        command.upgrade(config(connection), "head")
    return head()


def ours(connection: Connection, table: str) -> bool:
    """Whether a table in the database is one that migrations own: partitions are made at run time."""
    found = connection.execute(
        text("SELECT relispartition FROM pg_class WHERE oid = to_regclass(:table)"), {"table": table}
    ).scalar()
    return not found and table != "alembic_version"
