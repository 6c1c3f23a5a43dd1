"""Requests that tell of external changes: what each told is recorded once, however often it is sent."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from app.core.external import states_of
from app.core.model import Batch, Change
from app.failures import Expected
from app.store.record import record
from app.store.tables import clusters, idempotency_keys
from app.store.timeline import read_change


class OtherRequestError(Expected):
    """A request of this key came before, and told something else."""


async def list_clusters(conn: AsyncConnection) -> list[str]:
    """The names of the clusters of which anything is recorded."""
    return list(await conn.scalars(select(clusters.c.name).order_by(clusters.c.name)))


async def told_before(conn: AsyncConnection, digest: bytes, body: bytes, *, now: datetime) -> list[Change] | None:
    """The changes that the request with this key made when it came first, or None: then this is the first one.

    ``digest`` is of the key and of whose it is, ``body`` of what is told. One that is sent twice at once waits for
    itself. Changes that are forgotten since are left out. Raises OtherRequestError.
    """
    key = idempotency_keys.c
    claim = insert(idempotency_keys).values(digest=digest, body=body, change_ids=[], at=now)
    claimed = await conn.execute(claim.on_conflict_do_nothing().returning(key.digest))
    if claimed.first() is not None:
        return None
    known = (await conn.execute(select(key.body, key.change_ids).where(key.digest == digest))).one()
    if known.body != body:
        raise OtherRequestError("a request with this key came before, and told something else")
    found = [await read_change(conn, change_id) for change_id in known.change_ids]
    return [change for change in found if change is not None]


async def tell(conn: AsyncConnection, changes: Sequence[Change], *, digest: bytes | None, now: datetime) -> None:
    """Records external changes, at most one a cluster, under the key of the request that told of them, if it has one.

    In the order of the clusters' names, so that two requests about several clusters never wait for each other.
    """
    for change in sorted(changes, key=lambda change: change.resource.cluster):
        batch = Batch(change.resource.cluster, changes=(change,), objects=states_of([change]), read_at=now)
        await record(conn, batch)
    if digest is not None:
        ids = [change.id for change in changes]
        await conn.execute(update(idempotency_keys).where(idempotency_keys.c.digest == digest).values(change_ids=ids))
