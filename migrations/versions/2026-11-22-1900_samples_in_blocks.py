"""Keep samples as they came until their hour has ended, then in blocks of many series; what there is goes through both.

What was told of an hour becomes one row of samples_told, in the order of its chunks.
"""

from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import Any

import numpy as np
import zstandard
from alembic import op
from sqlalchemy import Row, text

from app.store.chunks import BLOCK, Columns, joined, merged, pack_told, unpack

revision = "20261122_1900"
down_revision = "20261122_1850"
branch_labels = None
depends_on = None


def upgrade() -> None:
    _set_aside("samples")
    op.execute("CREATE SEQUENCE samples_told_number")
    op.execute(
        "CREATE TABLE samples_told ("
        " cluster_id integer NOT NULL,"
        " at timestamptz NOT NULL,"
        " number bigint NOT NULL DEFAULT nextval('samples_told_number'),"
        " count integer NOT NULL,"
        " blocks integer[] NOT NULL,"
        " payload bytea NOT NULL"
        ") PARTITION BY RANGE (at)"
    )
    op.execute("ALTER TABLE samples_told ALTER COLUMN payload SET STORAGE EXTERNAL")
    op.execute("CREATE INDEX samples_told_cluster_id_at_idx ON samples_told (cluster_id, at)")
    _create_samples("block integer NOT NULL", key="block")
    op.execute("CREATE INDEX series_keys_cluster_id_name_idx ON series_keys (cluster_id, name)")
    _rewrite(
        "SELECT cluster_id, date_trunc('hour', at, 'UTC') AS hour, series_id, payload FROM {before}"
        " WHERE at >= :day AND at < :next ORDER BY cluster_id, hour, at",
        into="samples_told",
        insert="INSERT INTO samples_told (cluster_id, at, count, blocks, payload)"
        " VALUES (:cluster, :at, :count, :blocks, :payload)",
        rows=_told,
    )
    _drop("samples_before")


def downgrade() -> None:
    op.execute("ALTER TABLE samples_told RENAME TO told_before")
    _set_aside("samples")
    _create_samples("series_id integer NOT NULL, until timestamptz NOT NULL", key="series_id")
    _rewrite(
        "SELECT cluster_id, at AS hour, payload, 0 AS number FROM samples_before WHERE at >= :day AND at < :next"
        " UNION ALL"
        " SELECT cluster_id, at, payload, number FROM told_before WHERE at >= :day AND at < :next ORDER BY 1, 2, 4",
        into="samples",
        insert="INSERT INTO samples VALUES (:cluster, :at, :series, :until, :payload)",
        rows=_chunks,
    )
    for table in ("samples_before", "told_before"):
        _drop(table)
    op.execute("DROP SEQUENCE samples_told_number")
    op.execute("DROP INDEX series_keys_cluster_id_name_idx")


def _create_samples(columns: str, *, key: str) -> None:
    op.execute(
        f"CREATE TABLE samples (cluster_id integer NOT NULL, at timestamptz NOT NULL, {columns}, payload bytea NOT NULL,"
        f" CONSTRAINT samples_pkey PRIMARY KEY (cluster_id, at, {key})) PARTITION BY RANGE (at)"
    )
    op.execute("ALTER TABLE samples ALTER COLUMN payload SET STORAGE EXTERNAL")


def _partitions(table: str) -> list[str]:
    found = op.get_bind().execute(
        text(f"SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = '{table}'::regclass")
    )
    return list(found.scalars())


def _set_aside(table: str) -> None:
    """Its name, and those of its partitions, are free again."""
    op.execute(f"ALTER TABLE {table} RENAME TO {table}_before")
    op.execute(f"ALTER TABLE {table}_before RENAME CONSTRAINT {table}_pkey TO {table}_before_pkey")
    for name in _partitions(f"{table}_before"):
        op.execute(f"ALTER TABLE {name} RENAME TO {name}_before")


def _drop(table: str) -> None:
    for name in _partitions(table):
        op.execute(f"DROP TABLE {name}")
    op.execute(f"DROP TABLE {table}")


def _rewrite(
    select: str, *, into: str, insert: str, rows: Callable[[list[Row[Any]]], Iterable[dict[str, object]]]
) -> None:
    """Every hour of a cluster, one after the other, day by day."""
    conn = op.get_bind()
    before = ["samples_before"] + (["told_before"] if into == "samples" else [])
    every = " UNION ".join(f"SELECT date_trunc('day', at, 'UTC') FROM {table}" for table in before)
    for day in conn.execute(text(every)).scalars().all():
        conn.execute(
            text(
                f"CREATE TABLE {into}_{day:%Y%m%d} PARTITION OF {into}"
                f" FOR VALUES FROM ('{day.isoformat()}') TO ('{(day + timedelta(days=1)).isoformat()}')"
            )
        )
        found = conn.execute(text(select.format(before="samples_before")), {"day": day, "next": day + timedelta(days=1)})
        for (cluster, hour), of_hour in groupby(found, lambda row: (row.cluster_id, row.hour)):
            for row in rows(list(of_hour)):
                conn.execute(text(insert), {"cluster": cluster, "at": hour, **row})


def _told(found: list[Row[Any]]) -> Iterator[dict[str, object]]:
    """One row of all chunks of an hour: each is zstd of float64 times, then of float64 values."""
    parts = []
    for row in found:
        times, values = np.frombuffer(zstandard.decompress(row.payload), "<f8").reshape(2, -1)
        parts.append(Columns(np.full(len(times), row.series_id), np.rint(times * 1000).astype(np.int64), values))
    told = joined(parts)
    blocks = np.unique(told.series // BLOCK).tolist()
    yield {"count": len(told.times), "blocks": blocks, "payload": pack_told(told)}


def _chunks(found: list[Row[Any]]) -> Iterator[dict[str, object]]:
    """A chunk for each series of the hour."""
    rows = merged(unpack(row.payload) for row in found)
    for series in np.unique(rows.series).tolist():
        mine = rows.where(rows.series == series)
        times = mine.times / 1000
        payload = zstandard.compress(times.tobytes() + mine.values.tobytes())
        first, last = (datetime.fromtimestamp(float(times[end]), UTC) for end in (0, -1))
        yield {"at": first, "series": series, "until": last, "payload": payload}
