"""Samples of Prometheus series, packed by the hour."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from hashlib import blake2b

import numpy as np
from sqlalchemy import select, text
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from app.core.model import MetricSeries
from app.store import codec, codes, partitions, tables

CHUNK_SECONDS = 3600
"""No chunk spans two hours of the clock: a window is read from at most this long before it."""

_NEW_KEYS = """
INSERT INTO series_keys (cluster_id, digest, name, labels, kind)
SELECT :cluster, digest, name, CAST(labels AS jsonb), kind
FROM unnest(CAST(:digest AS bytea[]), CAST(:name AS text[]), CAST(:labels AS text[]), CAST(:kind AS text[]))
     AS new (digest, name, labels, kind)
ON CONFLICT DO NOTHING
"""
_KNOWN_KEYS = "SELECT id, digest FROM series_keys WHERE digest = ANY(CAST(:digest AS bytea[]))"


def _digest(cluster_id: int, series: MetricSeries) -> bytes:
    return blake2b(codec.dumps([cluster_id, series.name, series.labels]), digest_size=16).digest()


async def _ids(conn: AsyncConnection, cluster_id: int, batch: list[MetricSeries]) -> list[int]:
    cache = codes.codes_of(conn)
    digests = [_digest(cluster_id, series) for series in batch]
    unknown = {d: s for d, s in zip(digests, batch, strict=True) if cache.get(("series", d)) is None}
    ids: dict[bytes, int] = {}
    if unknown:
        names = sorted(unknown)
        columns = {
            "cluster": cluster_id,
            "digest": names,
            "name": [codec.clean(unknown[d].name) for d in names],
            "labels": [codec.jsonb_text(unknown[d].labels) for d in names],
            "kind": [unknown[d].kind for d in names],
        }
        await conn.execute(text(_NEW_KEYS), columns)
        for found, name in (await conn.execute(text(_KNOWN_KEYS), {"digest": names})).all():
            ids[bytes(name)] = found
            cache.learn(("series", bytes(name)), found)
    return [ids[d] if d in ids else _known(cache.get(("series", d))) for d in digests]


def _known(found: int | None) -> int:
    if found is None:
        raise LookupError("a series without an id")
    return found


def _chunks(series: MetricSeries) -> Iterator[tuple[float, float, bytes]]:
    """(first time, last time, payload) for each hour of the series."""
    times, values = np.array(series.times, dtype="<f8"), np.array(series.values, dtype="<f8")
    hours = times // CHUNK_SECONDS
    cuts = np.flatnonzero(np.diff(hours)) + 1
    for some, those in zip(np.split(times, cuts), np.split(values, cuts), strict=True):
        if len(some):
            yield float(some[0]), float(some[-1]), codec.pack(some.tobytes() + those.tobytes())


async def write(conn: AsyncConnection, cluster_id: int, told: Iterable[MetricSeries]) -> int:
    """Stores samples; returns how many were told. A chunk told again is replaced only by a longer one."""
    batch = [series for series in told if series.times]
    if not batch:
        return 0
    ids = await _ids(conn, cluster_id, batch)
    rows: dict[tuple[float, int], dict[str, object]] = {}
    for series, series_id in zip(batch, ids, strict=True):
        for first, last, payload in _chunks(series):
            at, until = codec.utc(first), codec.utc(last)
            known = rows.get((first, series_id))
            if known is None or known["until"] < until:  # type: ignore[operator]
                rows[(first, series_id)] = {
                    "cluster_id": cluster_id,
                    "at": at,
                    "series_id": series_id,
                    "until": until,
                    "payload": payload,
                }
    await partitions.ensure(conn, "samples", (codec.utc(first) for first, _ in rows))
    statement = insert(tables.samples)
    new = statement.excluded
    await conn.execute(
        statement.on_conflict_do_update(
            index_elements=["cluster_id", "at", "series_id"],
            set_={"until": new.until, "payload": new.payload},
            where=tables.samples.c.until < new.until,
        ),
        list(rows.values()),
    )
    return sum(len(series.times) for series in batch)


async def read(conn: AsyncConnection, cluster: str, start: datetime, end: datetime) -> list[MetricSeries]:
    """Every series with samples in [start, end], those samples only; a sample told twice comes once."""
    number = await codes.find_cluster(conn, cluster)
    s, k = tables.samples, tables.series_keys
    early = start - timedelta(seconds=CHUNK_SECONDS)
    statement = (
        select(k.c.id, k.c.name, k.c.labels, k.c.kind, s.c.payload)
        .join(k, k.c.id == s.c.series_id)
        .where(s.c.cluster_id == number, s.c.at.between(early, end), s.c.until >= start)
        .order_by(s.c.at)
    )
    names: dict[int, tuple[str, list[list[str]], str]] = {}
    samples: dict[int, dict[float, float]] = defaultdict(dict)
    low, high = start.timestamp(), end.timestamp()
    for series_id, name, labels, kind, payload in await conn.execute(statement):
        names[series_id] = (name, labels, kind)
        times, values = np.frombuffer(codec.unpack(payload), dtype="<f8").reshape(2, -1)
        inside = (times >= low) & (times <= high)
        samples[series_id].update(zip(times[inside].tolist(), values[inside].tolist(), strict=True))
    found = []
    for series_id, (name, labels, kind) in names.items():
        if points := sorted(samples[series_id].items()):
            pairs = tuple((label, value) for label, value in labels)
            found.append(MetricSeries(name, pairs, kind, tuple(t for t, _ in points), tuple(v for _, v in points)))
    return sorted(found, key=lambda series: (series.name, series.labels))
