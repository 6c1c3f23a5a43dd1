"""The keys of this installation, made once, never shown: for fingerprints of secret values, and to seal spools."""

from __future__ import annotations

import secrets

from sqlalchemy import select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from app.store.tables import installation

NAME = "redaction key"
SPOOL = "spool key"


async def redaction_key(conn: AsyncConnection) -> bytes:
    """The 32 bytes, made at first use; the caller commits. Two first users agree on one."""
    return await _key(conn, NAME)


async def spool_key(conn: AsyncConnection) -> bytes:
    """As ``redaction_key``, for what waits on disk to be recorded."""
    return await _key(conn, SPOOL)


async def _key(conn: AsyncConnection, name: str) -> bytes:
    await conn.execute(insert(installation).values(name=name, value=secrets.token_bytes(32)).on_conflict_do_nothing())
    found = await conn.execute(select(installation.c.value).where(installation.c.name == name))
    return bytes(found.scalar_one())
