"""What a scope reaches: by tables and connections; tests/web/test_scope_matrix.py asks every route."""

from __future__ import annotations

import re
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError, ProgrammingError
from sqlalchemy.ext.asyncio import AsyncConnection

from app.core.roles import Role, Scope
from app.store import embedded, scope, slack_tables, tokens
from app.store.database import Database, open_database
from app.store.migrate import connect, migrate
from app.store.tokens import Purpose
from tests.conftest import dsn_of
from tests.web import scoped
from tests.web.world import END

APP = Path(scope.__file__).parents[1]
OF_ONE = Scope.parse(["canaryca/canarya1"])
COUNTS = {
    "clusters": (1, 1, 2),
    "objects": (2, 6, 8),
    "changes": (2, 6, 8),
    "rollouts": (1, 2, 3),
    "symptoms": (1, 3, 4),
    "kinds": (2, 5, 6),
    "incidents": (2, 8, 10),
    "rankings": (1, 4, 5),
    "verdicts": (0, 4, 5),
    "series_keys": (0, 2, 4),
    "gaps": (1, 1, 2),
    "views": (0, 0, 1),
}
"""How many rows of what scoped.py records a namespace, its cluster and everybody sees."""


@pytest.fixture(scope="module", autouse=True)
async def _filled(database: Database) -> None:
    await scoped.fill(database)


@asynccontextmanager
async def limited(database: Database, to: Scope | None) -> AsyncIterator[AsyncConnection]:
    async with database.scoped.connect() as conn:
        if to is not None:
            await scope.limit(conn, to)
        yield conn


async def count(conn: AsyncConnection, table: str) -> int:
    return int(await conn.scalar(text(f"SELECT count(*) FROM {table}")) or 0)


def test_every_table_is_shown_or_hidden() -> None:
    assert scope.VISIBLE.keys().isdisjoint(scope.HIDDEN)
    assert scope.VISIBLE.keys() | scope.HIDDEN.keys() == slack_tables.metadata.tables.keys()
    assert all(scope.HIDDEN.values())


@pytest.mark.parametrize("table", COUNTS)
async def test_a_scope_reaches_its_rows(database: Database, table: str) -> None:
    found = []
    for to in (OF_ONE, Scope.parse(["canaryca"])):
        async with limited(database, to) as conn:
            found.append(await count(conn, table))
    async with database.read.connect() as conn:
        found.append(await count(conn, table))
    assert tuple(found) == COUNTS[table]


@pytest.mark.parametrize("places", [None, [], ["elsewhere", "elsewhere/canarya1"]])
async def test_without_a_place_every_view_is_empty(database: Database, places: list[str] | None) -> None:
    async with limited(database, None if places is None else Scope.parse(places)) as conn:
        for table in scope.VISIBLE.keys() - {"words"}:
            assert await count(conn, table) == 0, table


@pytest.mark.parametrize("table", [*scope.HIDDEN, "alembic_version"])
async def test_what_is_hidden_is_not_there(database: Database, table: str) -> None:
    async with limited(database, Scope.parse(["canaryca"])) as conn:
        with pytest.raises(ProgrammingError, match="does not exist"):
            await count(conn, table)


@pytest.mark.parametrize(
    "statement", ["DELETE FROM changes", "UPDATE views SET name = ''", "CREATE TABLE foreshock_scoped.more (id int)"]
)
async def test_a_limited_connection_changes_nothing(database: Database, statement: str) -> None:
    async with limited(database, Scope.parse(["canaryca"])) as conn:
        with pytest.raises(DBAPIError, match="in a read-only transaction"):
            await conn.execute(text(statement))


async def test_a_scope_ends_with_its_transaction(database: Database) -> None:
    async with limited(database, OF_ONE) as conn:
        assert await count(conn, "changes") == 2
        await conn.rollback()
        assert await count(conn, "changes") == 0


async def test_a_whole_cluster_is_shown_once_though_a_namespace_of_it_is_named_too(database: Database) -> None:
    async with limited(database, Scope.parse(["canaryca", "canaryca/canarya1"])) as conn:
        assert await count(conn, "changes") == COUNTS["changes"][1]


def test_no_statement_names_a_schema() -> None:
    """One that did would pass the views by."""
    named = re.compile(rf"\bpublic\.\w|search_path|{scope.SCHEMA}\.")
    found = {str(path.relative_to(APP)) for path in APP.rglob("*.py") if named.search(path.read_text())}
    assert found <= {"store/scope.py", "store/database.py"}


def views(dsn: str) -> list[str]:
    with connect(dsn) as conn:
        asked = text("SELECT viewname FROM pg_views WHERE schemaname = :schema ORDER BY 1")
        return list(conn.scalars(asked, {"schema": scope.SCHEMA}))


def test_views_that_are_another_programs_are_made_anew(dsn: str) -> None:
    mine = views(dsn)
    with connect(dsn) as conn, conn.begin():
        conn.exec_driver_sql(f"DROP VIEW {scope.SCHEMA}.changes")
    migrate(dsn)
    assert views(dsn) == [name for name in mine if name != "changes"]  # they bear this program's mark
    with connect(dsn) as conn, conn.begin():
        conn.exec_driver_sql(f"COMMENT ON SCHEMA {scope.SCHEMA} IS 'another'")
    migrate(dsn)
    assert views(dsn) == mine == sorted({*scope.VISIBLE, "granted", "arrivals_number_seq"})


@pytest.fixture
def bare(server: embedded.Server, template: str) -> Iterator[str]:
    """A database whose user may make no schema."""
    name = f"b{uuid.uuid4().hex[:12]}"
    with psycopg.connect(server.dsn, autocommit=True) as conn:
        conn.execute(f"CREATE ROLE {name} LOGIN")
        conn.execute(f"CREATE DATABASE {name}")
        with psycopg.connect(dsn_of(server, name), autocommit=True) as inside:
            inside.execute(f"GRANT CREATE ON SCHEMA public TO {name}")
        yield re.sub(r"//[^@/]*@|//", f"//{name}@", dsn_of(server, name), count=1)
        conn.execute(f"DROP DATABASE {name} WITH (FORCE)")
        conn.execute(f"DROP ROLE {name}")


async def test_where_no_schema_may_be_made_limited_tokens_are_refused_in_words(bare: str) -> None:
    migrate(bare)
    assert views(bare) == []
    database = open_database(bare)
    try:
        async with database.write.begin() as conn:
            await tokens.create(conn, Role.VIEWER, purpose=Purpose.API, now=END)
            with pytest.raises(scope.NoViewsError, match="GRANT CREATE ON DATABASE"):
                await tokens.create(conn, Role.VIEWER, purpose=Purpose.API, now=END, scope=OF_ONE)
        async with database.scoped.connect() as conn:
            with pytest.raises(scope.NoViewsError, match="foreshock migrate"):
                await scope.limit(conn, OF_ONE)
    finally:
        await database.close()
