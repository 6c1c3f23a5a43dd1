"""A namespace that was never seen is told from one in which nothing changed, and no more of it than may be seen."""

from __future__ import annotations

import pytest
from sqlalchemy import event

from app.core.model import Batch, Resource
from app.core.roles import Scope
from app.store.database import Database
from app.store.namespaces import unknown_namespace, unknown_namespaces
from app.store.record import record
from tests.store.factories import a_state
from tests.store.test_scope import limited
from tests.web import scoped


@pytest.fixture(scope="module", autouse=True)
async def _filled(database: Database) -> None:
    await scoped.fill(database)


async def test_what_may_not_be_seen_is_not_there(database: Database) -> None:
    async with limited(database, Scope.parse(["canaryca/canarya1"])) as conn:
        for name in ("canarya2", "canarya9"):  # one that is recorded, and one that is not
            said = await unknown_namespace(conn, "canaryca", name)
            assert said == f"no namespace {name!r} is recorded in canaryca; the nearest: canarya1"
        assert await unknown_namespace(conn, "canaryca", "canarya1") == ""


async def test_each_cluster_has_its_own(database: Database) -> None:
    async with database.read.connect() as conn:
        assert await unknown_namespace(conn, "canaryca", "canarya2") == ""
        assert "canaryb" in await unknown_namespace(conn, "canarycb", "canarya2")
        assert await unknown_namespace(conn, None, "canarya2") == ""


async def test_of_many_each_is_answered_for_in_order_and_once(database: Database) -> None:
    named = ["canarya9", "canarya2", "2H", "canarya1", "canarya9", *(f"else-{number}" for number in range(100))]
    statements: list[str] = []
    async with database.read.connect() as conn:
        event.listen(conn.sync_connection, "before_cursor_execute", lambda *told: statements.append(told[2]))
        said = await unknown_namespaces(conn, "canaryca", named)
        assert await unknown_namespaces(conn, "canaryca", ()) == []
    assert said[0].startswith("no namespace 'canarya9' is recorded in canaryca; the nearest: canarya")
    assert said[1] == "no namespace '2H' is recorded in canaryca; a length of time is written 2h"
    assert [one.split("'")[1] for one in said[2:]] == named[5:]
    assert len(statements) == 2


async def test_one_in_which_nothing_is_yet_is_known_by_itself(database: Database) -> None:
    itself = Resource("bare", "", "Namespace", None, "empty")
    async with database.write.begin() as conn:
        await record(conn, Batch(itself.cluster, objects=(a_state(resource=itself),)))
        assert await unknown_namespace(conn, itself.cluster, "empty") == ""
        assert (await unknown_namespace(conn, itself.cluster, "emty")).endswith("; the nearest: empty")
