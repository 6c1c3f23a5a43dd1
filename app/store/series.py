"""Samples of Prometheus series, packed by the hour."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from hashlib import blake2b
from typing import Any

import numpy as np
from sqlalchemy import select, text
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from app.core.aftermath import METRICS, Measured
from app.core.model import SLOT_SECONDS, CallCount, CallKey, MetricSeries
from app.store import calls, codec, codes, partitions, tables

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
    rows = [tuple(row) for row in await conn.execute(statement)]
    return sorted(_series(rows, start.timestamp(), end.timestamp()), key=lambda one: (one.name, one.labels))


def _series(chunks: Iterable[tuple[Any, ...]], low: float, high: float) -> list[MetricSeries]:
    """Chunks (series id, name, labels, kind, payload), in order of time -> the series' samples in [low, high]."""
    names: dict[int, tuple[str, Any, str]] = {}
    parts: dict[int, list[tuple[tuple[float, ...], tuple[float, ...]]]] = defaultdict(list)
    alike: dict[bytes, tuple[tuple[float, ...], slice]] = {}  # what is scraped together has its times read once
    for series_id, name, labels, kind, payload in chunks:
        names[series_id] = (name, labels, kind)
        raw = codec.unpack(payload)
        half = raw[: len(raw) // 2]
        if half not in alike:
            every = np.frombuffer(half, dtype="<f8")
            inside = slice(int(np.searchsorted(every, low)), int(np.searchsorted(every, high, side="right")))
            alike[half] = (tuple(every[inside].tolist()), inside)
        times, inside = alike[half]
        if times:
            values = np.frombuffer(raw, dtype="<f8", offset=len(half))[inside]
            parts[series_id].append((times, tuple(values.tolist())))
    found = []
    for series_id, told in parts.items():
        name, labels, kind = names[series_id]
        found.append(
            MetricSeries(name, tuple(map(tuple, labels)), kind, *(told[0] if len(told) == 1 else _merged(told)))
        )
    return found


def _merged(
    parts: list[tuple[tuple[float, ...], tuple[float, ...]]],
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """(times, values) of one series' chunks; of a sample that is told twice, the later telling."""
    samples = {time: value for times, values in parts for time, value in zip(times, values, strict=True)}
    times = tuple(sorted(samples))
    return times, tuple(samples[time] for time in times)


_AROUND = """
WITH mine AS (SELECT id FROM clusters WHERE name = :cluster)
SELECT 'minute' AS what, at, payload, NULL AS id, NULL AS name, NULL AS labels, NULL AS kind
FROM call_minutes
WHERE cluster_id = (SELECT id FROM mine) AND at > :minute AND at < :end
UNION ALL
SELECT 'key', NULL, NULL, k.id, w.word, jsonb_build_array(k.verb, k.api_group, k.resource, k.code), NULL
FROM call_keys k JOIN words w ON w.id = k.user_id
WHERE w.word = ANY(CAST(:users AS text[]))
UNION ALL
SELECT 'chunk', s.at, s.payload, k.id, k.name, k.labels, k.kind
FROM samples s JOIN series_keys k ON k.id = s.series_id
WHERE s.cluster_id = (SELECT id FROM mine) AND s.at BETWEEN :hour AND :end AND s.until >= :start
  AND k.name = ANY(CAST(:names AS text[]))
ORDER BY at
"""


async def read_around(
    conn: AsyncConnection, cluster: str, users: Iterable[str], *, start: datetime, end: datetime
) -> Measured:
    """What ``users`` asked of the API server and the control plane's series, in [start, end). One query.

    Keys of calls hold no pod, agent or namespace here: who, what and the answer's code are enough to draw a line.
    """
    asked = {
        "cluster": cluster,
        "users": list(users),
        "names": sorted(METRICS),
        "start": start,
        "end": end,
        "minute": start - timedelta(seconds=calls.MINUTE),
        "hour": start - timedelta(seconds=CHUNK_SECONDS),
    }
    minutes, keys, chunks = [], {}, []
    for what, at, payload, number, name, labels, kind in await conn.execute(text(_AROUND), asked):
        if what == "minute":
            minutes.append((int(at.timestamp()), payload))
        elif what == "key":
            verb, group, resource, code = labels
            keys[number] = CallKey(name, "", "", verb, group, resource, "", code)
        else:
            chunks.append((number, name, labels, kind, payload))
    slots, counts = _counts(minutes, keys, start.timestamp(), end=end.timestamp())
    return Measured(slots, tuple(counts), tuple(_series(chunks, start.timestamp(), end.timestamp())))


def _counts(
    minutes: list[tuple[int, bytes]], keys: dict[int, CallKey], start: float, *, end: float
) -> tuple[tuple[int, int] | None, list[CallCount]]:
    """The first and the last slot that holds any call, and the counts of ``keys``."""
    parts = [np.empty((0, 4), dtype=np.int64)]
    for at, payload in minutes:
        part = calls.unpack(payload)
        part[:, 1] = part[:, 1] * SLOT_SECONDS + at
        parts.append(part[(part[:, 1] >= start) & (part[:, 1] < end)])
    every = np.concatenate(parts)
    if not len(every):
        return None, []
    mine = every[np.isin(every[:, 0], np.array(list(keys), dtype=np.int64))]
    counts = [CallCount(keys[key], slot, count, latency) for key, slot, count, latency in mine.tolist()]
    return (int(every[:, 1].min()), int(every[:, 1].max())), counts
