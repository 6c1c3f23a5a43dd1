"""What is looked up to be told in a chat: incidents that are open, and who calls the API server."""

from __future__ import annotations

from datetime import datetime, timedelta

from sqlalchemy.ext.asyncio import AsyncConnection

from app.core.screen.talkers import talkers
from app.core.screen.who_calls import ROWS, who_calls
from app.notify.lines import incident_line
from app.store import calls, incidents
from app.store.called import calls_of
from app.store.seen import Seen

LONGEST_CALLS = timedelta(hours=6)
"""What of calls is asked for at most: what is added up well within three seconds."""


async def open_incidents(
    conn: AsyncConnection, cluster: str | None, *, url: str, now: datetime, most: int
) -> tuple[list[str], bool]:
    """The ``most`` that began last, in a few lines each, and whether these are all."""
    found = await incidents.list_incidents(conn, cluster=cluster, status="open", limit=most + 1)
    firsts = await incidents.first_suspects(conn, [incident.id for incident in found])
    lines = [incident_line(one, firsts.get(one.id), url=url, now=now) for one in found[:most]]
    return lines, len(found) <= most


async def callers(
    conn: AsyncConnection, cluster: str, seen: Seen, *, to_at: datetime, minus: timedelta, what: str | None = None
) -> str:
    """A table of who called in the ``minus`` before ``to_at`` and in as long before that; of one resource where
    ``what`` names it. ``seen`` is of both times."""
    heard = await calls.read(conn, cluster, to_at - 2 * minus, to_at)
    wanted = await calls_of(conn, cluster, heard, what, seen=seen)
    boundary = (to_at - minus).timestamp()
    found = talkers(wanted, boundary=boundary, seconds=minus.total_seconds(), most=ROWS)
    gaps = seen.unheard(to_at - 2 * minus, to_at).gaps
    return who_calls(found, cluster=cluster, to_at=to_at, minus=minus, gaps=gaps, heard=bool(heard))
