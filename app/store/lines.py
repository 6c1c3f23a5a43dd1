"""What graphs are drawn from: series by their names, and counted calls laid into bins. A window, never everything."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.core.blocks import Block
from app.core.callers import Ints, Tally
from app.core.lines import TARGET, Grid
from app.core.measures import LOOKBACK_SECONDS
from app.core.model import SLOT_SECONDS
from app.core.stale import table
from app.store import calls, codec, series

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
    rows, greatest, keys = await series.read_rows(conn, cluster, start, end, names=names, step=coarse)
    groups: dict[tuple[str, bytes, str | None, str | None, str | None], tuple[list[dict[str, str]], list[slice]]] = {}
    for number, part in series.by_series(rows):
        key, labels = keys[number], dict(keys[number].labels)
        instance, job, path = map(labels.get, TARGET)
        known, parts = groups.setdefault((key.name, rows.times[part].tobytes(), instance, job, path), ([], []))
        known.append(labels)
        parts.append(part)
    seconds = {times: series.seconds(np.frombuffer(times, np.int64)) for _, times, *_ in groups}
    found = []
    for (name, times, *_), (known, parts) in groups.items():
        values = table([rows.values[part] for part in parts])
        highest = values if greatest is rows.values else table([greatest[part] for part in parts])
        found.append(Block(name, known, seconds[times], values, highest))
    return found


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
