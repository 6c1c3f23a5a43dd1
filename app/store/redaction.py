"""The key under which this installation fingerprints secret values: made once, never shown."""

from __future__ import annotations

import secrets

from sqlalchemy import select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from app.store.tables import installation

NAME = "redaction key"


async def redaction_key(conn: AsyncConnection) -> bytes:
    """The 32 bytes, made at first use; the caller commits. Two first users agree on one."""
    await conn.execute(insert(installation).values(name=NAME, value=secrets.token_bytes(32)).on_conflict_do_nothing())
    found = await conn.execute(select(installation.c.value).where(installation.c.name == NAME))
    return bytes(found.scalar_one())
