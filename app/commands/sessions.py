"""Sessions at the command line: who is signed in, and how they are signed out."""

from __future__ import annotations

from datetime import datetime

import typer

from app.store import sessions
from app.store.database import Database
from app.store.tokens import Token

IDLE = "(idle: ended, unless it was used within the last minute)"
"""Behind whose use was last noted too long ago."""


async def listed(database: Database, *, now: datetime) -> list[str]:
    """A line for each session that is open now, and then for each that may be: its last use may not be noted yet; or
    the one that there is none."""
    async with database.read.connect() as conn:
        idle = await sessions.read_idle(conn, now=now)
        is_open = await sessions.read(conn, now=now)  # after it: what is noted meanwhile is in one of them
    found = [*(line(one) for one in is_open), *(f"{line(one)}  {IDLE}" for one in idle)]
    return found or ["nobody is signed in"]


def line(found: Token) -> str:
    """What `session list` says of one. Times are UTC."""
    of = f" of {', '.join(found.scope.texts)}" if found.scope else ""
    used = found.last_used_at or found.created_at
    return (
        f"{found.id:>6}  {found.role}{of}  since {found.created_at:%Y-%m-%d %H:%M}  used {used:%Y-%m-%d %H:%M}"
        f"  {found.note or 'a login link'}"
    )


def check_one(session_id: int | None, who: str | None, *, every: bool) -> None:
    """Raises typer.BadParameter unless exactly one of the three says which sessions are meant."""
    if [session_id is not None, who is not None, every].count(True) != 1:
        raise typer.BadParameter("name one of ID, --who NAME and --all")


async def revoke(database: Database, session_id: int | None, who: str | None, *, now: datetime) -> str:
    """Ends the session of an id, those of a person, or all; how many, in words. Raises typer.BadParameter where one is
    named that is not open."""
    async with database.write.begin() as conn:
        ended = await sessions.end(conn, session_id=session_id, who=who, now=now)
    if not ended and (session_id is not None or who is not None):
        raise typer.BadParameter(f"no open session {session_id}" if who is None else f"no open session of {who}")
    return f"{ended} session{'' if ended == 1 else 's'} ended"
