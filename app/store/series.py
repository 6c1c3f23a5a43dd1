"""Samples of Prometheus series, packed by the hour."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import blake2b
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import select, text
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from app.core.aftermath import METRICS, Measured, added_up, told_apart
from app.core.model import SLOT_SECONDS, CallCount, CallKey, MetricSeries
from app.core.onset import Floats
from app.store import calls, codec, codes, partitions, tables

Ints = NDArray[np.intp]
Line = TypeVar("Line", bound=Hashable)

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
    keys, chunks = {}, []
    for series_id, name, labels, kind, payload in await conn.execute(statement):
        keys[series_id] = (name, tuple(map(tuple, labels)), kind)
        chunks.append((series_id, payload))
    together = _together(chunks, dict.fromkeys(keys), start.timestamp(), high=end.timestamp())
    found = (
        MetricSeries(*keys[series_id], one.times, tuple(row))
        for one in together
        for series_id, row in zip(one.series, one.values.tolist(), strict=True)
    )
    return sorted(found, key=lambda one: (one.name, one.labels))


@dataclass(frozen=True, slots=True)
class Together(Generic[Line]):
    """Series ids of one line that were scraped at the same ``times``; ``values`` has the shape (series, times)."""

    line: Line
    series: tuple[int, ...]
    times: tuple[float, ...]
    values: Floats


def _together(
    chunks: Iterable[tuple[int, bytes]], line_of: dict[int, Line], low: float, *, high: float
) -> Iterator[Together[Line]]:
    """Chunks (series id, payload), in order of time -> the samples in [low, high]; nothing of series without any.

    What is scraped together is read together: a page asks for a thousand series of two dozen samples each.
    """
    scrapes: dict[bytes, int] = {}
    parts: dict[int, list[tuple[int, bytes]]] = defaultdict(list)
    for series_id, payload in chunks:
        raw = codec.unpack(payload)
        half = len(raw) // 2
        parts[series_id].append((scrapes.setdefault(raw[:half], len(scrapes)), raw[half:]))
    groups: dict[tuple[Line, tuple[int, ...]], list[tuple[int, tuple[bytes, ...]]]] = defaultdict(list)
    for series_id, told in parts.items():
        scraped, chunks_of = zip(*told, strict=True)
        groups[line_of[series_id], scraped].append((series_id, chunks_of))
    times_of = [np.frombuffer(times, dtype="<f8") for times in scrapes]
    inside = {scraped: _inside([times_of[one] for one in scraped], low, high) for scraped in {key[1] for key in groups}}
    for (line, scraped), members in groups.items():
        times, places = inside[scraped]
        if times:
            series, told_by = zip(*members, strict=True)
            hours = [np.frombuffer(b"".join(hour), dtype="<f8") for hour in zip(*told_by, strict=True)]
            values = np.hstack([hour.reshape(len(series), -1) for hour in hours])[:, places]
            yield Together(line, series, times, values)


def _inside(chunks: list[Floats], low: float, high: float) -> tuple[tuple[float, ...], Ints]:
    """The times of one series' chunks in [low, high] and where they stand; of one told twice, the later telling's."""
    every = np.concatenate(chunks)
    times, places = np.unique(every[::-1], return_index=True)
    wanted = (low <= times) & (times <= high)
    return tuple(times[wanted].tolist()), len(every) - 1 - places[wanted]


_AROUND = """
WITH mine AS (SELECT id FROM clusters WHERE name = :cluster),
around AS (
  SELECT at, 'minute' AS what, CAST(extract(epoch FROM at) AS bigint) AS number, '' AS name, '' AS told, payload
  FROM call_minutes
  WHERE cluster_id = (SELECT id FROM mine) AND at > :minute AND at < :end
  UNION ALL
  SELECT NULL, 'key', k.id, w.word, CAST(jsonb_build_array(k.verb, k.api_group, k.resource, k.code) AS text), NULL
  FROM call_keys k JOIN words w ON w.id = k.user_id
  WHERE w.word = ANY(CAST(:users AS text[]))
  UNION ALL
  SELECT s.at, 'chunk', k.id, k.name, CAST(k.labels AS text), s.payload
  FROM samples s JOIN series_keys k ON k.id = s.series_id
  WHERE s.cluster_id = (SELECT id FROM mine) AND s.at BETWEEN :hour AND :end AND s.until >= :start
    AND k.name = ANY(CAST(:names AS text[]))
)
SELECT what, number, name, told, payload FROM around ORDER BY at
"""
"""Few and plain columns: of a thousand chunks, turning rows into values costs more than finding them."""


async def read_around(
    conn: AsyncConnection, cluster: str, users: Iterable[str], *, start: datetime, end: datetime
) -> Measured:
    """What ``users`` asked of the API server and the control plane's lines, in [start, end). One query.

    Keys of calls hold no pod, agent or namespace here: who, what and the answer's code are enough to draw a line.
    Series that no line tells apart are added up.
    """
    low, high = start.timestamp(), end.timestamp()
    asked = {
        "cluster": cluster,
        "users": list(users),
        "names": sorted(METRICS),
        "start": start,
        "end": end,
        "minute": start - timedelta(seconds=calls.MINUTE),
        "hour": start - timedelta(seconds=CHUNK_SECONDS),
    }
    minutes, keys, names, told, chunks = [], {}, {}, [], []
    for what, number, name, about, payload in await conn.execute(text(_AROUND), asked):
        if what == "minute":
            minutes.append((number, payload))
        elif what == "key":
            verb, group, resource, code = codec.loads(about)
            keys[number] = CallKey(name, "", "", verb, group, resource, "", code)
        else:
            if number not in names:
                names[number] = name
                told.append(about)
            chunks.append((number, payload))
    slots, counts = _counts(minutes, keys, low, end=high)
    labels = codec.loads(f"[{','.join(told)}]")
    lines = {number: (name, told_apart(of)) for (number, name), of in zip(names.items(), labels, strict=True)}
    series = [
        one
        for group in _together(chunks, lines, low, high=high)
        for one in added_up(*group.line, times=group.times, values=group.values)
    ]
    return Measured(slots, tuple(counts), tuple(series))


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
