"""From nothing to the schema that the program expects, in one line of revisions, and nothing beside it."""

from __future__ import annotations

import ast
import threading
from pathlib import Path
from typing import Any

import psycopg
import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, text
from sqlalchemy.dialects.postgresql import JSONB

from app.failures import Exit
from app.store import codec, embedded, slack_tables, tables
from app.store.database import DatabaseError, sqlalchemy_url
from app.store.metadata import metadata
from app.store.migrate import MIGRATION_LOCK, NewerDatabaseError, config, connect, head, migrate, ours
from app.store.partitions import SPAN
from app.store.record import WRITER_LOCK
from tests.conftest import dsn_of

TABLES = [Path(tables.__file__), Path(slack_tables.__file__)]


def drift(conn: Connection) -> list[Any]:
    """What differs between the database and the metadata."""

    def include(name: str | None, kind: str, _parents: object) -> bool:
        return kind != "table" or ours(conn, str(name))

    context = MigrationContext.configure(conn, opts={"include_name": include, "compare_server_default": True})
    return list(compare_metadata(context, metadata))


def narrow_keys(conn: Connection) -> list[str]:
    """Unique indexes of partitioned tables that do not begin with the cluster, or do not hold the time."""
    found = conn.execute(
        text(
            "SELECT i.indexrelid::regclass::text AS name, t.attname::text AS time,"
            " array_agg(a.attname::text ORDER BY k.n) AS columns"
            " FROM pg_index i JOIN pg_partitioned_table p ON p.partrelid = i.indrelid"
            " JOIN pg_attribute t ON t.attrelid = i.indrelid AND t.attnum = p.partattrs[0]"
            " CROSS JOIN unnest(i.indkey::int[]) WITH ORDINALITY AS k (attnum, n)"
            " JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum"
            " WHERE i.indisunique GROUP BY i.indexrelid, t.attname ORDER BY 1"
        )
    ).all()
    return [row.name for row in found if row.columns[0] != "cluster_id" or row.time not in row.columns]


def indexes(conn: Connection) -> set[tuple[str, tuple[str, ...]]]:
    """Table and columns of every index but primary keys; partitions inherit theirs."""
    found = conn.execute(
        text(
            "SELECT c.relname::text AS name, array_agg(a.attname::text ORDER BY k.n) AS columns FROM pg_index i"
            " JOIN pg_class c ON c.oid = i.indrelid AND NOT c.relispartition"
            " AND c.relnamespace = 'public'::regnamespace"
            " CROSS JOIN unnest(i.indkey::int[]) WITH ORDINALITY AS k (attnum, n)"
            " JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = k.attnum"
            " WHERE NOT i.indisprimary GROUP BY c.relname, i.indexrelid"
        )
    )
    return {(row.name, tuple(row.columns)) for row in found}


def reasons(source: str) -> dict[tuple[str, tuple[str, ...]], str]:
    """Table and columns of every index in tables.py -> the comment at the end of its line: the query that needs it."""
    lines = source.splitlines()
    found = {}
    for table in ast.walk(ast.parse(source)):
        if not (isinstance(table, ast.Call) and ast.unparse(table.func) == "Table"):
            continue
        name = ast.literal_eval(table.args[0])
        for part in table.args:
            if not isinstance(part, ast.Call):
                continue
            words = tuple(a.value for a in part.args if isinstance(a, ast.Constant) and isinstance(a.value, str))
            unique = any(k.arg == "unique" and ast.unparse(k.value) == "True" for k in part.keywords)
            if ast.unparse(part.func) in {"Index", "UniqueConstraint"} or unique:
                columns = words[1:] if words and words[0].endswith("_idx") else words  # one with a name of its own
                found[name, columns] = lines[(part.end_lineno or 0) - 1].partition("  # ")[2]
    return found


def test_there_is_one_head() -> None:
    assert len(ScriptDirectory.from_config(config()).get_heads()) == 1


def test_the_tables_are_what_the_migrations_make(dsn: str) -> None:
    with connect(dsn) as conn:
        assert drift(conn) == []
        conn.execute(text("ALTER TABLE tokens ADD COLUMN made_up integer"))
        conn.execute(text("DROP INDEX incidents_cluster_id_started_at_idx"))
        assert sorted(step[0] for step in drift(conn)) == ["add_index", "remove_column"]
        conn.rollback()


def test_every_log_is_partitioned_by_time_and_its_keys_begin_with_the_cluster(dsn: str) -> None:
    with connect(dsn) as conn:
        assert set(conn.execute(text("SELECT relname FROM pg_class WHERE relkind = 'p'")).scalars()) == set(SPAN)
        assert narrow_keys(conn) == []
        conn.execute(text("CREATE UNIQUE INDEX no_cluster ON changes (at, version_key)"))
        conn.execute(
            text("CREATE TABLE no_time (cluster_id int, at int, key int PRIMARY KEY) PARTITION BY RANGE (key)")
        )
        assert narrow_keys(conn) == ["no_cluster", "no_time_pkey"]
        conn.rollback()


def test_every_index_says_which_query_needs_it(dsn: str) -> None:
    told = {index: why for path in TABLES for index, why in reasons(path.read_text()).items()}
    with connect(dsn) as conn:
        assert indexes(conn) == set(told)
    assert [index for index, reason in told.items() if len(reason.split()) < 3] == []
    silent = 'Table("a", metadata, Column("b", Text, unique=True),\nIndex(None, "b", "c"),\nIndex(None, "c"),  # why\n)'
    assert reasons(silent) == {("a", ("b",)): "", ("a", ("b", "c")): "", ("a", ("c",)): "why"}


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
    done = threading.Event()

    def wait() -> None:
        migrate(dsn)
        done.set()

    with psycopg.connect(dsn) as other:
        other.execute("SELECT pg_advisory_xact_lock(%s)", (MIGRATION_LOCK,))
        waiting = threading.Thread(target=wait)
        waiting.start()
        assert not done.wait(0.5)
        other.rollback()
        assert done.wait(30)
        waiting.join()


def test_writers_do_not_wait_for_a_migration(dsn: str) -> None:
    with psycopg.connect(dsn) as migrating, psycopg.connect(dsn) as writing:
        migrating.execute("SELECT pg_advisory_xact_lock(%s)", (MIGRATION_LOCK,))
        taken = writing.execute("SELECT pg_try_advisory_xact_lock(%s, 1)", (WRITER_LOCK,)).fetchone()
        assert taken == (True,)


def test_a_newer_database_is_refused_in_words_and_left_as_it_is(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute("UPDATE alembic_version SET version_num = 'f00000000001'")
        try:
            with pytest.raises(NewerDatabaseError, match=r"newer Foreshock.*f00000000001.*install that one") as refused:
                migrate(dsn)
            assert conn.execute("SELECT version_num FROM alembic_version").fetchone() == ("f00000000001",)
        finally:
            conn.execute("UPDATE alembic_version SET version_num = %s", (head(),))
    assert refused.value.code == Exit.WRONG_USE


@pytest.mark.parametrize("dsn", ["mysql://host/db", "nonsense", "sqlite://"])
def test_another_kind_of_database_is_refused_in_words(dsn: str) -> None:
    with pytest.raises(DatabaseError, match="postgresql://"):
        sqlalchemy_url(dsn)


def test_audit_ids_are_the_same_before_and_after_they_are_packed(server: embedded.Server) -> None:
    ids = ["", "7f3b1c9e-3a1d-4b62-9c59-0f6a8d1e2b34", "anybody's", "0123456789abcdef"]
    with psycopg.connect(server.dsn, autocommit=True) as conn:
        conn.execute("CREATE DATABASE packed")
    dsn = dsn_of(server, "packed")
    with connect(dsn) as migrating, migrating.begin():
        command.upgrade(config(migrating), "20261122_0640")
        migrating.execute(
            text("CREATE TABLE changes_all PARTITION OF changes FOR VALUES FROM (MINVALUE) TO (MAXVALUE)")
        )
        migrating.execute(
            text(
                "INSERT INTO changes (at, version_key, object_id, cluster_id, kind_id, namespace_id, actor_id,"
                " agent_id, pod_id, verb, actor_source, diff_source, sources, noise,"
                " resource_version, summary, diff, audit_id)"
                " SELECT now(), n, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, false, '1', '', '[]', id"
                " FROM unnest(CAST(:ids AS text[])) WITH ORDINALITY AS told (id, n)"
            ),
            {"ids": ids},
        )
        for move, revision in ((command.upgrade, "head"), (command.downgrade, "20261122_0640")):
            move(config(migrating), revision)
            stored = migrating.scalars(text("SELECT audit_id FROM changes ORDER BY version_key")).all()
            assert [codec.unpacked_id(one) if isinstance(one, bytes) else one for one in stored] == ids
            assert all(isinstance(one, bytes if revision == "head" else str) for one in stored)


def test_what_is_not_known_is_null_and_no_value_of_json() -> None:
    """``coalesce`` and ``IS NULL`` tell the two apart."""
    columns = [one for table in metadata.tables.values() for one in table.columns]
    documents = {one: one.type.none_as_null for one in columns if isinstance(one.type, JSONB)}
    assert any(documents.values())
    assert [str(one) for one, is_null in documents.items() if is_null != one.nullable] == []


def test_values_of_json_that_stand_for_nothing_become_null(server: embedded.Server) -> None:
    with psycopg.connect(server.dsn, autocommit=True) as conn:
        conn.execute("CREATE DATABASE nulls")
    with connect(dsn_of(server, "nulls")) as migrating, migrating.begin():
        command.upgrade(config(migrating), "20261128_1100")
        migrating.execute(
            text("CREATE TABLE symptoms_all PARTITION OF symptoms FOR VALUES FROM (MINVALUE) TO (MAXVALUE)")
        )
        migrating.execute(
            text(
                "INSERT INTO symptoms (cluster_id, at, fingerprint, source, reason, resource, workload, namespace_id,"
                " message, severity, count, labels)"
                " SELECT 1, now(), n, 'event', '', CAST(r AS jsonb), CAST(w AS jsonb), 0, '', '', 1, '[]'"
                " FROM (VALUES (1, '[1]', 'null'), (2, 'null', '[2]'), (3, '[3]', '[4]')) AS told (n, r, w)"
            )
        )
        command.upgrade(config(migrating), "head")
        told = migrating.execute(text("SELECT resource, workload FROM symptoms ORDER BY fingerprint")).all()
        assert [tuple(row) for row in told] == [([1], None), (None, [2]), ([3], [4])]
