"""What graphs are drawn from: series by their names, and counted calls laid into bins. A window, never everything."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.core.aftermath import added_up
from app.core.callers import Ints, Tally
from app.core.lines import Grid
from app.core.measures import LOOKBACK_SECONDS, SeriesQuery
from app.core.model import SLOT_SECONDS, MetricSeries
from app.store import calls, codec
from app.store.series import CHUNK_SECONDS

Labels = tuple[tuple[str, str], ...]
Places = NDArray[np.intp]

MOST_CHUNKS = 200_000
"""Chunks of one reading: at a sample every 15 s they are 50 million samples."""


class TooMuchError(Exception):
    """More is stored of what is asked for than can be read at once; the message says what to do."""


_NAMED = """
SELECT k.name, CAST(k.labels AS text), chunks.payloads
FROM (
  SELECT series_id, array_agg(payload ORDER BY at) AS payloads FROM (
    SELECT s.series_id, s.at, s.payload FROM samples s JOIN series_keys k ON k.id = s.series_id
    WHERE s.cluster_id = (SELECT id FROM clusters WHERE name = :cluster)
      AND s.at BETWEEN :hour AND :end AND s.until >= :start AND k.name = ANY(CAST(:names AS text[]))
    LIMIT :most
  ) found GROUP BY series_id
) chunks JOIN series_keys k ON k.id = chunks.series_id
"""
_NAMES = """
SELECT DISTINCT k.name FROM series_keys k
WHERE k.cluster_id = (SELECT id FROM clusters WHERE name = :cluster) ORDER BY k.name
"""


def wanted_by(queries: Iterable[SeriesQuery]) -> dict[str, frozenset[str]]:
    """The series that these questions need: their names, with the labels by which any of them tells them apart."""
    found: dict[str, frozenset[str]] = {}
    for query in queries:
        for name in query.names:
            found[name] = found.get(name, frozenset()) | query.told_apart
    return found


async def read_series(
    conn: AsyncConnection, cluster: str, wanted: Mapping[str, frozenset[str]], *, start: datetime, end: datetime
) -> list[MetricSeries]:
    """The series of these names in [start, end], and from LOOKBACK_SECONDS before. One query.

    Those that differ only in labels that are not ``wanted`` and were scraped together are added up.

    Raises TooMuchError.
    """
    early = start - timedelta(seconds=LOOKBACK_SECONDS)
    asked = {
        "cluster": cluster,
        "names": sorted(wanted),
        "start": early,
        "hour": early - timedelta(seconds=CHUNK_SECONDS),
        "end": end,
        "most": MOST_CHUNKS + 1,
    }
    rows = (await conn.execute(text(_NAMED), asked)).all() if wanted else []
    if sum(len(payloads) for _, _, payloads in rows) > MOST_CHUNKS:
        raise TooMuchError("this is too much to read at once: ask for a shorter time")
    told = codec.loads(f"[{','.join(row[1] for row in rows)}]")
    groups: dict[tuple[str, Labels, tuple[bytes, ...]], list[bytes]] = defaultdict(list)
    for (name, _, payloads), labels in zip(rows, told, strict=True):
        kept = wanted[name]
        chunks = [codec.unpack(payload) for payload in payloads]
        times = tuple(chunk[: len(chunk) // 2] for chunk in chunks)
        values = b"".join(chunk[len(chunk) // 2 :] for chunk in chunks)
        groups[name, tuple((label, value) for label, value in labels if label in kept), times].append(values)
    places: dict[tuple[bytes, ...], tuple[tuple[float, ...], Places]] = {}
    found: list[MetricSeries] = []
    for (name, labels, chunks_of), members in groups.items():
        if chunks_of not in places:
            places[chunks_of] = _inside(chunks_of, early.timestamp(), end.timestamp())
        inside, place = places[chunks_of]
        if inside:
            values_of = np.frombuffer(b"".join(members), dtype="<f8").reshape(len(members), -1)[:, place]
            found += added_up(name, labels, times=inside, values=values_of)
    return found


def _inside(chunks: Iterable[bytes], low: float, high: float) -> tuple[tuple[float, ...], Places]:
    """The times of chunks in [low, high] and where they stand; of one told twice, the later telling's."""
    every = np.frombuffer(b"".join(chunks), dtype="<f8")
    times, places = np.unique(every[::-1], return_index=True)
    wanted = (low <= times) & (times <= high)
    return tuple(times[wanted].tolist()), len(every) - 1 - places[wanted]


async def list_names(conn: AsyncConnection, cluster: str) -> list[str]:
    """The names of all series that were ever stored of a cluster and are still kept."""
    return list((await conn.scalars(text(_NAMES), {"cluster": cluster})).all())


async def read_calls(conn: AsyncConnection, cluster: str, axis: Grid, *, end: datetime) -> Tally:
    """The calls that were counted from the begin of the grid to ``end``. Two queries."""
    low, high = axis.start, min(end.timestamp(), axis.epoch(axis.size))
    statement = text("""
        SELECT CAST(extract(epoch FROM at) AS bigint), payload FROM call_minutes
        WHERE cluster_id = (SELECT id FROM clusters WHERE name = :cluster) AND at > :minute AND at < :end
    """)
    asked = {"cluster": cluster, "minute": codec.utc(low) - timedelta(seconds=calls.MINUTE), "end": codec.utc(high)}
    parts = [np.empty((0, 4), dtype=np.int64)]
    for at, payload in await conn.execute(statement, asked):
        part = calls.unpack(payload)
        part[:, 1] = part[:, 1] * SLOT_SECONDS + at
        parts.append(part[(part[:, 1] >= low) & (part[:, 1] < high)])
    every = np.concatenate(parts)
    ids, number = np.unique(every[:, 0], return_inverse=True)
    keys = await calls.load_keys(conn, ids.tolist()) if len(ids) else {}
    until = float(every[:, 1].max()) + SLOT_SECONDS if len(every) else low
    place = ((every[:, 1] - low) // axis.step).astype(np.int64)
    cells, cell = np.unique(number * axis.size + place, return_inverse=True)
    return Tally(
        keys=tuple(keys[number] for number in ids.tolist()),
        key=cells // axis.size,
        place=cells % axis.size,
        count=_added(cell, every[:, 2], len(cells)),
        latency_us=_added(cell, every[:, 3], len(cells)),
        until=until,
    )


def _added(cell: Places, values: Ints, size: int) -> Ints:
    """Entries of one cell added up: a minute is told in as many rows as there were batches."""
    return np.bincount(cell, weights=values, minlength=size).astype(np.int64)
