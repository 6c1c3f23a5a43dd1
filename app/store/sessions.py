"""Who is signed in with a browser. A session is a token of its own purpose (store/tokens), which a login makes."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import ColumnElement, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from app.store import audit, tables, tokens
from app.store.tokens import Purpose, Token, token_of

_SESSION: ColumnElement[bool] = tables.tokens.c.purpose == Purpose.SESSION.value


async def read(conn: AsyncConnection, *, now: datetime) -> list[Token]:
    """Who is signed in now, oldest first: the note says who it is, "" where a login link let them in."""
    return [
        token_of(row)
        for row in await conn.execute(
            select(tables.tokens).where(_SESSION, tokens.is_good(now)).order_by(tables.tokens.c.id)
        )
    ]


async def end(conn: AsyncConnection, *, session_id: int | None = None, who: str | None = None, now: datetime) -> int:
    """Ends sessions: the one of an id, those of a person, or all. How many there were to end: also what seems to be
    idle, as its last use may not be noted yet."""
    t = tables.tokens.c
    which = [_SESSION, tokens.is_in_force(now)]
    if session_id is not None:
        which.append(t.id == session_id)
    if who is not None:
        which.append(t.note == who)
    ended = (
        await conn.execute(update(tables.tokens).where(*which).values(revoked_at=now).returning(tables.tokens))
    ).all()
    for one in ended:
        await audit.note(
            conn, audit.Action.SESSION_ENDED, f"token {one.id}: {one.role}, {one.note or 'a login link'}", now=now
        )
    return len(ended)
