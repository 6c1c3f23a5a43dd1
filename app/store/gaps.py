"""Intervals in which something was not seen."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from sqlalchemy import func, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from app.core.model import Gap
from app.store import codec, codes, partitions, tables

LONGEST = timedelta(days=60)
"""A gap that began longer than this before a window is not looked for."""


async def write(conn: AsyncConnection, cluster_id: int, told: Iterable[Gap]) -> int:
    """Stores gaps; the same beginning told again moves the end forward."""
    batch: dict[tuple[datetime, str], Gap] = {}
    for gap in told:
        key = (gap.from_at, gap.kind)
        if key not in batch or batch[key].to_at < gap.to_at:
            batch[key] = gap
    if not batch:
        return 0
    await partitions.ensure(conn, "gaps", (gap.from_at for gap in batch.values()))
    statement = insert(tables.gaps)
    await conn.execute(
        statement.on_conflict_do_update(
            index_elements=["cluster_id", "from_at", "kind"],
            set_={"to_at": func.greatest(tables.gaps.c.to_at, statement.excluded.to_at)},
        ),
        [
            {
                "cluster_id": cluster_id,
                "from_at": gap.from_at,
                "kind": codec.clean(gap.kind),
                "to_at": gap.to_at,
                "why": codec.clean(gap.why),
            }
            for gap in batch.values()
        ],
    )
    return len(batch)


async def read_window(conn: AsyncConnection, cluster: str, start: datetime, end: datetime) -> list[Gap]:
    """The gaps that overlap [start, end], oldest first."""
    number = await codes.find_cluster(conn, cluster)
    c = tables.gaps.c
    statement = select(tables.gaps).where(
        c.cluster_id == number, c.from_at.between(start - LONGEST, end), c.to_at >= start
    )
    rows = await conn.execute(statement.order_by(c.from_at, c.kind))
    return [Gap(cluster, row.kind, row.from_at, row.to_at, row.why) for row in rows]
