"""Brings a database to the newest schema, one program at a time."""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, create_engine, text
from sqlalchemy.pool import NullPool

from app.failures import Exit
from app.store import scope
from app.store.database import DatabaseError, sqlalchemy_url

MIGRATIONS = Path(__file__).parents[2] / "migrations"
MIGRATION_LOCK = 0x466F7265
"""The advisory lock under which migrations run: "Fore". A lock of one number never meets one of two, as the writers'
are (store.record): https://www.postgresql.org/docs/current/functions-admin.html#FUNCTIONS-ADVISORY-LOCKS"""


class NewerDatabaseError(DatabaseError):
    """The database holds what this program does not know."""

    code = Exit.WRONG_USE


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
    rather than queue every reader behind it: nothing is half done, run it again. Raises NewerDatabaseError.
    """
    with connect(dsn) as connection, connection.begin():
        connection.execute(text("SET LOCAL statement_timeout = '60s'"))
        connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": MIGRATION_LOCK})
        connection.execute(text("SET LOCAL lock_timeout = '5s'"))
        connection.execute(text("SET LOCAL statement_timeout = '10min'"))
        _refuse_newer(connection)
        if MigrationContext.configure(connection).get_current_heads() != (head(),):
            scope.remove_views(connection)  # they stand in the way of what alters a table
            command.upgrade(config(connection), "head")
        scope.make_views(connection)
    return head()


def _refuse_newer(connection: Connection) -> None:
    known = {revision.revision for revision in ScriptDirectory.from_config(config()).walk_revisions()}
    newer = [one for one in MigrationContext.configure(connection).get_current_heads() if one not in known]
    if newer:
        raise NewerDatabaseError(
            f"the database was made by a newer Foreshock (its schema is {newer[0]}, this one knows {head()}):"
            " install that one, or use another database"
        )


def ours(connection: Connection, table: str) -> bool:
    """Whether a table in the database is one that migrations own: partitions are made at run time."""
    found = connection.execute(
        text("SELECT relispartition FROM pg_class WHERE oid = to_regclass(:table)"), {"table": table}
    ).scalar()
    return not found and table != "alembic_version"
