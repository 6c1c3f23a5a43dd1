"""Pieces of input that could not be used: where each stood, what is wrong, a redacted excerpt."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from sqlalchemy import delete, func
from sqlalchemy.ext.asyncio import AsyncConnection

from app.core.model import Reject
from app.store import codec, tables


async def write(conn: AsyncConnection, cluster_id: int, rejects: Iterable[Reject]) -> int:
    """Appends what was refused, at the time of the transaction; returns how many."""
    rows = [
        {
            "cluster_id": cluster_id,
            "source": codec.clean(reject.source),
            "line": reject.line,
            "column": reject.column,
            "reason": codec.clean(reject.reason),
            "excerpt": codec.clean(reject.excerpt),
            "again": reject.again,
        }
        for reject in rejects
    ]
    if rows:
        await conn.execute(tables.quarantine.insert().values(at=func.now()), rows)
    return len(rows)


async def drop_again(conn: AsyncConnection, cluster_id: int, grown: Collection[str]) -> None:
    """Drops what was refused because a file ended within it, now that the file, known by its hash, has ``grown``.

    That was written in the transaction that ended its import: the time tells it from what another file left that once
    had the same name.
    """
    if not grown:
        return
    q, p = tables.quarantine.c, tables.import_positions.c
    await conn.execute(
        delete(tables.quarantine).where(
            q.cluster_id == cluster_id,
            p.cluster_id == cluster_id,
            p.file_hash.in_(grown),
            q.at == p.updated_at,
            q.source == p.path,
            q.again,
        )
    )
