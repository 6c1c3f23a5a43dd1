"""The keys of this installation, made once, never shown: for fingerprints of secret values, and to seal spools. With
the first goes what is secret here besides what is secret everywhere: whoever redacts has both from one place.
"""

from __future__ import annotations

import secrets

import msgspec
from sqlalchemy import select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from app.core.objects.own_rules import OwnRules
from app.core.objects.redact import Redactor
from app.store.migrate import connect
from app.store.tables import installation

NAME = "redaction key"
SPOOL = "spool key"
RULES = "redaction rules"


async def read_redactor(conn: AsyncConnection) -> Redactor:
    """What redacts here, as the key and the rules of now say; the key is made at first use, and the caller commits."""
    key = await _key(conn, NAME)
    found = await conn.execute(select(installation.c.value).where(installation.c.name == RULES))
    rules = found.scalar_one_or_none()
    return Redactor(key, msgspec.json.decode(rules, type=OwnRules) if rules is not None else OwnRules())


def keep_rules(dsn: str, rules: OwnRules) -> None:
    """These are the rules from now on, for whoever begins to redact."""
    value = msgspec.json.encode(rules)
    with connect(dsn) as conn:
        conn.execute(
            insert(installation)
            .values(name=RULES, value=value)
            .on_conflict_do_update(index_elements=[installation.c.name], set_={"value": value})
        )
        conn.commit()


async def spool_key(conn: AsyncConnection) -> bytes:
    """32 bytes for what waits on disk to be recorded. Two first users agree on one."""
    return await _key(conn, SPOOL)


async def _key(conn: AsyncConnection, name: str) -> bytes:
    """Written once and read ever after: a server that takes no writes has it, too."""
    wanted = select(installation.c.value).where(installation.c.name == name)
    found = (await conn.execute(wanted)).scalar_one_or_none()
    if found is None:
        made = insert(installation).values(name=name, value=secrets.token_bytes(32))
        await conn.execute(made.on_conflict_do_nothing())
        found = (await conn.execute(wanted)).scalar_one()
    return bytes(found)
