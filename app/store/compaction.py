"""Compaction: what was told of an hour becomes that hour's blocks, or part of them, and is deleted where it stood."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.store import chunks, partitions
from app.store.chunks import BLOCK, Columns
from app.store.copy import copy
from app.store.series import HOUR

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
_TAKE = text(
    "DELETE FROM samples WHERE cluster_id = :cluster AND at = :at AND block = ANY(CAST(:blocks AS int[]))"
    " RETURNING block, payload"
)
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
    await partitions.ensure(conn, "samples", [hour.at])
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
    """Puts samples into the hour's blocks: of those that are there already, what is told now counts."""
    new = chunks.blocks_of(told)
    found = await conn.execute(_TAKE, hour.asked(blocks=[block for block, _ in new]))
    known = {int(row.block): bytes(row.payload) for row in found}
    packed = await asyncio.to_thread(_packed, new, known)
    await copy(conn, "samples", COLUMNS, ((hour.cluster_id, hour.at, block, payload) for block, payload in packed))


def _packed(new: Sequence[tuple[int, Columns]], known: dict[int, bytes]) -> list[tuple[int, bytes]]:
    return [
        (block, chunks.pack_block(chunks.merged([chunks.unpack(known[block]), rows]) if block in known else rows))
        for block, rows in new
    ]
