"""How far each kind of a cluster has been watched: moved in the transaction that records what the watch told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from app.store import codec, codes, tables

Name = tuple[str, str]
"""A kind whatever its version: its group and its plural."""
_table = tables.watch_positions


@dataclass(frozen=True, slots=True)
class WatchPosition:
    """Everything up to ``resource_version`` was told, and that is known since ``at``.

    Where ``lost`` says why what happened since ``at`` cannot be told one by one, there is no version.
    """

    resource_version: str
    at: datetime
    lost: str = ""


async def read(conn: AsyncConnection, cluster: str) -> dict[Name, WatchPosition]:
    """Every kind that was ever watched."""
    rows = await conn.execute(select(_table).where(_table.c.cluster_id == await codes.find_cluster(conn, cluster)))
    return {(row.api_group, row.plural): WatchPosition(row.resource_version, row.at, row.lost) for row in rows}


async def write(conn: AsyncConnection, cluster: str, told: Mapping[Name, WatchPosition]) -> None:
    """Notes how far these kinds have been watched."""
    if not told:
        return
    number = await codes.cluster(conn, cluster)
    rows = [
        {
            "cluster_id": number,
            "api_group": name[0],
            "plural": name[1],
            "resource_version": codec.clean(one.resource_version),
            "at": one.at,
            "lost": codec.clean(one.lost),
        }
        for name, one in sorted(told.items())
    ]
    statement = insert(_table)
    new = {name: statement.excluded[name] for name in ("resource_version", "at", "lost")}
    await conn.execute(
        statement.on_conflict_do_update(index_elements=["cluster_id", "api_group", "plural"], set_=new), rows
    )
