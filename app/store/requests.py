"""Write requests, one by one: who wrote in these seconds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from app.core.model import Request
from app.store import calls, codec, codes, partitions, tables
from app.store.copy import copy

COLUMNS = {
    "at": "timestamptz",
    "event_key": "int8",
    "cluster_id": "int4",
    "key_id": "int4",
    "latency_us": "int4",
    "name": "text",
}
_MOST = 2**31 - 1  # 36 minutes: no request takes longer


async def write(conn: AsyncConnection, cluster_id: int, requests: Iterable[Request]) -> int:
    """Appends requests; returns how many. Told twice, they are stored twice: see record()."""
    batch = list(requests)
    if not batch:
        return 0
    await partitions.ensure(conn, "requests", (request.at for request in batch))
    await copy(conn, "requests", COLUMNS, await rows(conn, cluster_id, batch))
    return len(batch)


async def rows(conn: AsyncConnection, cluster_id: int, batch: list[Request]) -> Iterator[tuple[object, ...]]:
    """The requests as rows of COLUMNS, with ids made for keys that are new."""
    ids = await calls.key_ids(conn, (request.key for request in batch))
    return ((r.at, r.event_key, cluster_id, ids[r.key], min(r.latency_us, _MOST), codec.clean(r.name)) for r in batch)


async def read(conn: AsyncConnection, cluster: str, start: datetime, end: datetime, *, limit: int) -> list[Request]:
    """The newest ``limit`` requests in [start, end], oldest first."""
    number = await codes.find_cluster(conn, cluster)
    c = tables.requests.c
    statement = select(tables.requests).where(c.cluster_id == number, c.at.between(start, end))
    rows = (await conn.execute(statement.order_by(c.at.desc()).limit(limit))).all()
    keys = await calls.load_keys(conn, {row.key_id for row in rows})
    return [Request(keys[row.key_id], row.at, row.event_key, row.name, row.latency_us) for row in reversed(rows)]
