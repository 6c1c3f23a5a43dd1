"""Partitions by time: made when a time first arrives, so that they can be dropped whole.

A partition is made beside its table (LIKE) and then attached: that waits for nobody, where CREATE TABLE ...
PARTITION OF would stop every writer behind the slowest reader. There is no DEFAULT partition, because PostgreSQL
then refuses DETACH CONCURRENTLY.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.store.codes import codes_of

DAY = timedelta(days=1)
WEEK = timedelta(days=7)
SPAN: dict[str, timedelta] = {
    "changes": WEEK,
    "rollouts": WEEK,
    "symptoms": WEEK,
    "rankings": WEEK,
    "gaps": WEEK,
    "requests": DAY,
    "call_minutes": DAY,
    "samples_told": DAY,
    "samples": DAY,
    "samples_minutes": WEEK,
    "samples_hours": 4 * WEEK,
}
"""How much time one partition of each log holds."""

_WITH = dict.fromkeys(SPAN, "") | {"changes": "WITH (toast_tuple_target = 128)"}
"""Diffs are compressed in their row: what was and what is are nearly the same text."""

OLDEST = timedelta(days=400)
NEWEST = timedelta(days=1)
LOCK = 0x50617274  # "Part": one maker of partitions at a time
_MONDAY = datetime(1970, 1, 5, tzinfo=UTC)


def storable(at: datetime, now: datetime) -> bool:
    """Whether a time may be stored: [now - 400 d, now + 1 d]. Others are for quarantine, not for a partition."""
    return now - OLDEST <= at <= now + NEWEST


def start_of(table: str, at: datetime) -> datetime:
    """The start of the partition of ``table`` that holds ``at``: midnight UTC, of a Monday for weeks."""
    span = SPAN[table]
    return _MONDAY + (at - _MONDAY) // span * span


def name_of(table: str, start: datetime) -> str:
    return f"{table}_{start:%Y%m%d}"


async def ensure(conn: AsyncConnection, table: str, times: Iterable[datetime]) -> None:
    """Makes the partitions of ``table`` that ``times`` fall into, within the caller's transaction.

    Raises OperationalError (lock timeout, 200 ms) when a long statement holds the table: the batch is to be
    tried again, nobody has been kept waiting.
    """
    codes = codes_of(conn)
    found = list(times)
    ends = {start_of(table, min(found)), start_of(table, max(found))} if found else set()
    starts = ends if len(ends) < 2 else {start_of(table, at) for at in found}
    for start in sorted(starts):
        name = name_of(table, start)
        if codes.get(("partition", name)) is not None:
            continue
        if not await _exists(conn, name):
            await conn.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": LOCK})
            if not await _exists(conn, name):
                await _attach(conn, table, start)
        codes.learn(("partition", name), 1)


async def ensure_ahead(conn: AsyncConnection, now: datetime, *, days: int = 14) -> None:
    """Makes every log's partitions from now to ``days`` ahead, so that no batch has to."""
    for table in SPAN:
        await ensure(conn, table, (now + DAY * n for n in range(days + 1)))


async def _exists(conn: AsyncConnection, name: str) -> bool:
    found = await conn.execute(
        text("SELECT 1 FROM pg_class WHERE oid = to_regclass(:name) AND relispartition"), {"name": name}
    )
    return found.scalar() is not None


async def _attach(conn: AsyncConnection, table: str, start: datetime) -> None:
    name = name_of(table, start)  # of our own table names and a date: nothing to quote
    await conn.execute(text("SET LOCAL lock_timeout = '200ms'"))
    await conn.execute(text(f"CREATE TABLE {name} (LIKE {table} INCLUDING DEFAULTS INCLUDING STORAGE) {_WITH[table]}"))
    await conn.execute(
        text(
            f"ALTER TABLE {table} ATTACH PARTITION {name} "
            f"FOR VALUES FROM ('{start.isoformat()}') TO ('{(start + SPAN[table]).isoformat()}')"
        )
    )
    await conn.execute(text("SET LOCAL lock_timeout = DEFAULT"))
