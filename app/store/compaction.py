"""Compaction: what was told of an hour becomes part of that hour's blocks and of the tiers', and is deleted there."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

import numpy as np
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.core.metrics.series_bins import kept
from app.store import chunks, partitions, series_keys
from app.store.chunks import BLOCK, Columns, Integers
from app.store.copy import copy
from app.store.series import HOUR, RAW, TIERS, Tier

GRACE = timedelta(minutes=5)
"""So long after its end an hour is still told of: a sender that was held up repeats for some minutes."""
MOST = 2_000_000
"""Samples at a time, some 200 MB: a larger hour is gone through several times, each time for a part of its blocks."""
LOCK = 0x53616D70
"""With the cluster's id, the advisory lock of one compaction a cluster ("Samp")."""
COLUMNS = {"cluster_id": "int4", "at": "timestamptz", "block": "int4", "payload": "bytea"}

_READY = text(
    "SELECT cluster_id, at FROM samples_told WHERE at <= :before GROUP BY cluster_id, at ORDER BY at, cluster_id"
)
_LOCK = text("SELECT pg_try_advisory_xact_lock(:lock, :cluster)")
_NUMBERS = text("SELECT number, count FROM samples_told WHERE cluster_id = :cluster AND at = :at ORDER BY number")
_TOLD = text(
    "SELECT payload FROM samples_told WHERE cluster_id = :cluster AND at = :at AND number <= :last"
    " AND number = ANY(CAST(:numbers AS bigint[])) ORDER BY number"
)
_TAKE = {
    tier: text(
        f"DELETE FROM {tier.table} WHERE cluster_id = :cluster AND at = :start"  # noqa: S608 - our own text only
        " AND block = ANY(CAST(:blocks AS int[])) RETURNING block, payload"
    )
    for tier in TIERS
}
_FORGET = text(
    "DELETE FROM samples_told WHERE cluster_id = :cluster AND at = :at AND number = ANY(CAST(:numbers AS bigint[]))"
)


@dataclass(frozen=True, slots=True)
class Hour:
    """An hour of a cluster, and the rows of samples_told that are to become blocks; those that come later wait."""

    cluster_id: int
    at: datetime
    numbers: tuple[int, ...]
    samples: int

    def asked(self, **more: object) -> dict[str, object]:
        return {"cluster": self.cluster_id, "at": self.at, **more}


async def compact(conn: AsyncConnection, *, now: datetime) -> Hour | None:
    """Makes blocks of the oldest hour that ended GRACE ago and that no other process is at, in the caller's
    transaction: all of it or nothing. None when there is none; else there may be another.
    """
    hour = await _next(conn, now - HOUR - GRACE)
    if hour is not None:
        await _compact(conn, hour)
    return hour


async def _compact(conn: AsyncConnection, hour: Hour) -> None:
    for tier in TIERS:
        await partitions.ensure(conn, tier.table, [tier.start_of(hour.at)])
    passes = -(-hour.samples // MOST)
    for turn in range(passes):
        await _merge(conn, hour, await _told(conn, hour, turn, passes=passes))
    await conn.execute(_FORGET, hour.asked(numbers=list(hour.numbers)))


async def _next(conn: AsyncConnection, before: datetime) -> Hour | None:
    for cluster_id, at in (await conn.execute(_READY, {"before": before})).all():
        if await conn.scalar(_LOCK, {"lock": LOCK, "cluster": cluster_id}):
            # Only who has the lock deletes: what is there now stays there until we do.
            found = (await conn.execute(_NUMBERS, {"cluster": cluster_id, "at": at})).all()
            if found:
                return Hour(cluster_id, at, tuple(number for number, _ in found), sum(samples for _, samples in found))
    return None


async def _told(conn: AsyncConnection, hour: Hour, turn: int, *, passes: int) -> Columns:
    """What was told of the blocks whose turn it is."""
    parts = []
    asked = hour.asked(numbers=list(hour.numbers), last=hour.numbers[-1])
    async with conn.stream(_TOLD, asked) as stream:
        async for (payload,) in stream:
            rows = chunks.unpack(payload)
            parts.append(rows if passes == 1 else rows.where(rows.series // BLOCK % passes == turn))
    return await asyncio.to_thread(chunks.merged, parts)


async def _merge(conn: AsyncConnection, hour: Hour, told: Columns) -> None:
    """Puts samples into the hour's blocks, and what is kept of them into the tiers': of those that are there already,
    what is told now counts."""
    new = chunks.blocks_of(told)
    ids = np.unique(told.series).tolist()
    await series_keys.note_seen(conn, ids, hour.at)
    counters = np.array(await series_keys.counters(conn, ids), np.int64)
    for tier in TIERS:
        at = tier.start_of(hour.at)
        found = await conn.execute(_TAKE[tier], hour.asked(start=at, blocks=[block for block, _ in new]))
        known = {int(row.block): bytes(row.payload) for row in found}
        blocks, packed = await asyncio.to_thread(_packed, new, known, tier, counters=counters)
        if tier is RAW:
            new = blocks  # the whole hour: what a tier kept of it before may have been told otherwise since
        rows = ((hour.cluster_id, at, block, payload) for block, payload in packed)
        await copy(conn, tier.table, COLUMNS, rows)


def _packed(
    new: Iterable[tuple[int, Columns]], known: Mapping[int, bytes], tier: Tier, *, counters: Integers
) -> tuple[list[tuple[int, Columns]], list[tuple[int, bytes]]]:
    """The blocks of a tier with what is new, as rows and packed."""
    blocks = []
    for block, rows in new:
        merged = chunks.merged([chunks.unpack(known[block]), rows]) if block in known else rows
        if tier.step is not None:
            step, counted = tier.step // timedelta(milliseconds=1), np.isin(merged.series, counters)
            merged = merged.where(kept(*merged, counters=counted, step=step))
        blocks.append((block, merged))
    return blocks, [(block, chunks.pack_block(rows)) for block, rows in blocks]
