"""Requests that carry an Idempotency-Key: what each made is made once, however often it is sent."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from sqlalchemy import select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from app.failures import Expected
from app.store.tables import idempotency_keys


class OtherRequestError(Expected):
    """A request of this key came before, and told something else."""


async def claim(conn: AsyncConnection, digest: bytes, body: bytes, *, now: datetime) -> list[str] | None:
    """The ids of what the request with this key made when it came first, or None: then this is the first one.

    ``digest`` is of the key and of whose it is, ``body`` of what is told. One that is sent twice at once waits for
    itself. Raises OtherRequestError.
    """
    key = idempotency_keys.c
    statement = insert(idempotency_keys).values(digest=digest, body=body, made=[], at=now)
    claimed = await conn.execute(statement.on_conflict_do_nothing().returning(key.digest))
    if claimed.first() is not None:
        return None
    known = (await conn.execute(select(key.body, key.made).where(key.digest == digest))).one()
    if known.body != body:
        raise OtherRequestError("a request with this key came before, and told something else")
    return list(known.made)


async def keep(conn: AsyncConnection, digest: bytes, made: Iterable[str]) -> None:
    """Notes the ids of what a request made that was claimed in this transaction."""
    await conn.execute(update(idempotency_keys).where(idempotency_keys.c.digest == digest).values(made=list(made)))
