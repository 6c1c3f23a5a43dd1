"""How far each spool is recorded: moved in the transaction that records, so that each record counts once."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import func, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from app.store import codes, tables

_table = tables.spool_positions


@dataclass(frozen=True, slots=True)
class SpoolPosition:
    """The position behind the last record, and what is remembered of the last ones to know them again."""

    position: int
    recent: bytes


async def read(conn: AsyncConnection, cluster: str, spool: str) -> SpoolPosition | None:
    """How far a spool, known by its identity, is recorded; None where nothing of it is."""
    found = await conn.execute(
        select(_table.c.position, _table.c.recent).where(
            _table.c.cluster_id == await codes.find_cluster(conn, cluster), _table.c.spool == spool
        )
    )
    row = found.one_or_none()
    return None if row is None else SpoolPosition(row.position, row.recent)


async def write(conn: AsyncConnection, cluster: str, spool: str, *, told: SpoolPosition) -> None:
    """Notes how far a spool is recorded, in the transaction that records it."""
    statement = insert(_table).values(
        cluster_id=await codes.cluster(conn, cluster),
        spool=spool,
        position=told.position,
        recent=told.recent,
        updated_at=func.now(),
    )
    new = statement.excluded
    await conn.execute(
        statement.on_conflict_do_update(
            index_elements=["cluster_id", "spool"],
            set_={name: new[name] for name in ("position", "recent", "updated_at")},
        )
    )
