"""From nothing to the schema that the program expects, in one line of revisions, and nothing beside it."""

from __future__ import annotations

import threading

import psycopg
import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import text

from app.store import embedded
from app.store.database import DatabaseError, sqlalchemy_url
from app.store.migrate import LOCK, config, connect, head, migrate, ours
from app.store.partitions import SPAN
from app.store.tables import metadata
from tests.conftest import dsn_of

PRIMARY_KEYS = {
    "changes": ["cluster_id", "at", "version_key"],
    "rollouts": ["cluster_id", "started_at", "object_id"],
    "symptoms": ["cluster_id", "at", "fingerprint"],
    "samples": ["cluster_id", "at", "series_id"],
    "gaps": ["cluster_id", "from_at", "kind"],
    "rankings": ["cluster_id", "at", "incident_id"],
}


def test_there_is_one_head() -> None:
    assert len(ScriptDirectory.from_config(config()).get_heads()) == 1


def test_the_tables_are_what_the_migrations_make(dsn: str) -> None:
    with connect(dsn) as conn:

        def include(name: str | None, kind: str, _parents: object) -> bool:
            return kind != "table" or ours(conn, str(name))

        context = MigrationContext.configure(conn, opts={"include_name": include, "compare_server_default": True})
        assert compare_metadata(context, metadata) == []


def test_every_log_is_partitioned_by_time_and_its_keys_begin_with_the_cluster(dsn: str) -> None:
    with connect(dsn) as conn:
        partitioned = conn.execute(text("SELECT relname FROM pg_class WHERE relkind = 'p'")).scalars()
        assert set(partitioned) == set(SPAN)
        keys = conn.execute(
            text(
                "SELECT c.relname, array_agg(a.attname::text ORDER BY k.n) AS attnames FROM pg_index i"
                " JOIN pg_class c ON c.oid = i.indrelid AND c.relkind = 'p'"
                " CROSS JOIN unnest(i.indkey::int[]) WITH ORDINALITY AS k (attnum, n)"
                " JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = k.attnum"
                " WHERE i.indisunique GROUP BY c.relname, i.indexrelid"
            )
        )
        assert {row.relname: row.attnames for row in keys} == PRIMARY_KEYS


def test_a_second_run_changes_nothing(dsn: str) -> None:
    assert migrate(dsn) == head()


def test_two_programs_migrate_an_empty_database_once(server: embedded.Server) -> None:
    name = "migrated_twice"
    with psycopg.connect(server.dsn, autocommit=True) as conn:
        conn.execute(f"CREATE DATABASE {name}")
        reached: list[str] = []
        threads = [threading.Thread(target=lambda: reached.append(migrate(dsn_of(server, name)))) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert reached == [head(), head()]
        conn.execute(f"DROP DATABASE {name} WITH (FORCE)")


def test_a_migration_waits_for_another_one(dsn: str) -> None:
    with psycopg.connect(dsn) as other:
        other.execute("SELECT pg_advisory_xact_lock(%s)", (LOCK,))
        done = threading.Event()
        waiting = threading.Thread(target=lambda: (migrate(dsn), done.set()))
        waiting.start()
        assert not done.wait(0.5)
        other.rollback()
        assert done.wait(30)
        waiting.join()


@pytest.mark.parametrize("dsn", ["mysql://host/db", "nonsense", "sqlite://"])
def test_another_kind_of_database_is_refused_in_words(dsn: str) -> None:
    with pytest.raises(DatabaseError, match="postgresql://"):
        sqlalchemy_url(dsn)
