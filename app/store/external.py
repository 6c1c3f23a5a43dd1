"""Requests that tell of external changes: what each told is recorded once, however often it is sent."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from app.core.changes.external import states_of
from app.core.model import Batch, Change
from app.store import idempotency
from app.store.record import record
from app.store.tables import clusters
from app.store.timeline import read_change


async def list_clusters(conn: AsyncConnection) -> list[str]:
    """The names of the clusters of which anything is recorded."""
    return list(await conn.scalars(select(clusters.c.name).order_by(clusters.c.name)))


async def told_before(conn: AsyncConnection, digest: bytes, body: bytes, *, now: datetime) -> list[Change] | None:
    """The changes that the request with this key made when it came first (idempotency.claim), or None.

    Changes that are forgotten since are left out. Raises OtherRequestError.
    """
    known = await idempotency.claim(conn, digest, body, now=now)
    if known is None:
        return None
    found = [await read_change(conn, change_id) for change_id in known]
    return [change for change in found if change is not None]


async def tell(conn: AsyncConnection, changes: Sequence[Change], *, digest: bytes | None, now: datetime) -> None:
    """Records external changes, at most one a cluster, under the key of the request that told of them, if it has one.

    In the order of the clusters' names, so that two requests about several clusters never wait for each other.
    """
    for change in sorted(changes, key=lambda change: change.resource.cluster):
        batch = Batch(change.resource.cluster, changes=(change,), objects=states_of([change]), read_at=now)
        await record(conn, batch)
    if digest is not None:
        await idempotency.keep(conn, digest, [change.id for change in changes])
