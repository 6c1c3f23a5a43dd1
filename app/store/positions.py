"""How far each file has been read: what makes an import resumable, and told twice, counted once."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from sqlalchemy import Row, func, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from app.core.model import Position
from app.store import codec, codes, tables

_table = tables.import_positions


async def read_positions(
    conn: AsyncConnection, cluster: str, hashes: Collection[str] | None = None
) -> dict[str, Position]:
    """Every file that was read into a cluster, wholly or in part, by its hash; only those of ``hashes`` where given."""
    return await _read(conn, await codes.find_cluster(conn, cluster), hashes)


async def _read(conn: AsyncConnection, cluster_id: int | None, hashes: Collection[str] | None) -> dict[str, Position]:
    query = select(_table).where(_table.c.cluster_id == cluster_id)
    rows = await conn.execute(query if hashes is None else query.where(_table.c.file_hash.in_(hashes)))
    return {row.file_hash: _position(row) for row in rows}


async def read_sizes(conn: AsyncConnection, cluster: str) -> dict[int, set[str]]:
    """The files that were read into a cluster, by the bytes that they had: what another may have grown from.

    They are kept for as long as the changes: a log that is imported each minute leaves 130,000 of them.
    """
    found: dict[int, set[str]] = {}
    columns = select(_table.c.size, _table.c.file_hash)
    cluster_id = await codes.find_cluster(conn, cluster)
    for size, file_hash in await conn.execute(columns.where(_table.c.cluster_id == cluster_id, _table.c.size > 0)):
        found.setdefault(size, set()).add(file_hash)
    return found


def _position(row: Row[Any]) -> Position:
    return Position(row.file_hash, row.path, row.offset, row.lines, done=row.done, size=row.size)


async def covered(conn: AsyncConnection, cluster_id: int, told: Iterable[Position]) -> bool:
    """Whether a batch with these positions was recorded before: none of them goes beyond what is stored."""
    batch = list(told)
    if not batch:
        return False
    known = await _read(conn, cluster_id, {position.file_hash for position in batch})

    def reached(position: Position) -> bool:
        stored = known.get(position.file_hash)
        return stored is not None and (stored.offset, stored.done) >= (position.offset, position.done)

    return all(reached(position) for position in batch)


async def write(conn: AsyncConnection, cluster_id: int, told: Iterable[Position]) -> None:
    """Moves positions forward, never back."""
    rows = {position.file_hash: position for position in sorted(told, key=lambda p: (p.offset, p.done))}
    if not rows:
        return
    statement = insert(_table).values(updated_at=func.now())
    new = statement.excluded
    await conn.execute(
        statement.on_conflict_do_update(
            index_elements=["cluster_id", "file_hash"],
            set_={name: new[name] for name in ("path", "offset", "lines", "done", "updated_at")},
            where=(_table.c.offset < new.offset) | (_table.c.done < new.done),
        ),
        [
            {
                "cluster_id": cluster_id,
                "file_hash": position.file_hash,
                "path": codec.clean(position.path),
                "offset": position.offset,
                "lines": position.lines,
                "done": position.done,
                "size": position.size,
            }
            for position in rows.values()
        ],
    )
