"""What graphs are drawn from: series by their names, and counted calls laid into bins. A window, never everything."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from datetime import datetime, timedelta

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.core.metrics.blocks import Block
from app.core.metrics.callers import Ints, Tally
from app.core.metrics.lines import TARGET, Grid, Target
from app.core.metrics.measures import LOOKBACK_SECONDS
from app.core.model import SLOT_SECONDS
from app.core.onset import Floats
from app.core.stale import quiet
from app.store import calls, chunks, codec, series
from app.store.chunks import Columns
from app.store.series_keys import Key

Places = NDArray[np.intp]

_NAMES = """
SELECT DISTINCT k.name FROM series_keys k
WHERE k.cluster_id = (SELECT id FROM clusters WHERE name = :cluster) ORDER BY k.name
"""


async def read_series(
    conn: AsyncConnection, cluster: str, names: Collection[str], axis: Grid, *, end: datetime
) -> list[Block]:
    """The series of these names from LOOKBACK_SECONDS before the grid's begin to ``end``, as fine as its bins need.

    Raises series.TooMuchError.
    """
    start, step = codec.utc(axis.start - LOOKBACK_SECONDS), timedelta(seconds=axis.step)
    coarse = step if step >= series.MINUTE else None
    rows, greatest, keys = await series.read_rows(conn, cluster, start, end, names=names, step=coarse, around=True)
    return await asyncio.to_thread(_tables, rows, greatest, keys)


def _tables(rows: Columns, greatest: Floats, keys: Mapping[int, Key]) -> list[Block]:
    """What was scraped of one target at the same times, as one block each."""
    values = quiet(rows.values)
    highest = values if greatest is rows.values else quiet(greatest)
    begins = chunks.starts_of(rows.series)
    lengths = np.diff(begins, append=len(rows.series))
    groups: dict[tuple[str, int, int, Target], tuple[list[dict[str, str]], list[int]]] = {}
    ids, firsts = rows.series[begins].tolist(), rows.times[begins].tolist()
    for number, begin, length, first in zip(ids, begins.tolist(), lengths.tolist(), firsts, strict=True):
        labels = dict(keys[number].labels)
        target = tuple([labels.get(name, "") for name in TARGET])
        known, places = groups.setdefault((keys[number].name, length, first, target), ([], []))
        known.append(labels)
        places.append(begin)
    scraped: dict[bytes, Floats] = {}
    found = []
    for (name, length, *_), (about, places) in groups.items():
        cells = np.array(places)[:, np.newaxis] + np.arange(length)
        for some in _alike(rows.times[cells]):
            mine = cells if len(some) == len(cells) else cells[some]
            known = [about[place] for place in some]
            times = rows.times[mine[0]]
            at = scraped.setdefault(times.tobytes(), times / 1000)
            told = values[mine]
            found.append(Block(name, known, at, told, told if highest is values else highest[mine]))
    return found


def _alike(times: Ints) -> list[list[int]]:
    """Which rows are the same, nearly always all of them."""
    if (times == times[0]).all():
        return [list(range(len(times)))]
    groups: dict[bytes, list[int]] = {}
    for place, row in enumerate(times):
        groups.setdefault(row.tobytes(), []).append(place)
    return list(groups.values())


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
