"""Who is signed in with a browser. A session is a token of its own purpose (store/tokens), which a login makes."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import ColumnElement, not_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from app.store import audit, tables, tokens
from app.store.tokens import Purpose, Token, token_of

_SESSION: ColumnElement[bool] = tables.tokens.c.purpose == Purpose.SESSION.value


async def read(conn: AsyncConnection, *, now: datetime) -> list[Token]:
    """Who is signed in now as far as their use was noted, oldest first: the note says who it is, "" where a login link
    let them in."""
    return await _read(conn, tokens.is_good(now))


async def read_idle(conn: AsyncConnection, *, now: datetime) -> list[Token]:
    """Whose session was not noted to be used for IDLE and has not expired, oldest first: it is over, unless it was used
    since that was noted last."""
    return await _read(conn, tokens.is_in_force(now), not_(tokens.is_good(now)))


async def _read(conn: AsyncConnection, *which: ColumnElement[bool]) -> list[Token]:
    found = await conn.execute(select(tables.tokens).where(_SESSION, *which).order_by(tables.tokens.c.id))
    return [token_of(row) for row in found]


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
