"""Changes by what no index leads to, and how many there are: bounded in what is read."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any

from sqlalchemy import Select, func, select, true
from sqlalchemy.ext.asyncio import AsyncConnection

from app.core.model import Change
from app.store.tables import changes
from app.store.timeline import ChangeFilter, Cursor, asked, conditions, list_changes, owners, shape

SEARCHED_FIRST = (timedelta(days=1), timedelta(days=7))
"""How far back words, an actor or a verb are looked for before all the rest is: mostly that fills a page."""


async def find_changes(
    conn: AsyncConnection, wanted: ChangeFilter, now: datetime, *, before: Cursor | None = None, limit: int = 100
) -> list[Change]:
    """What list_changes finds. One query, or up to three where no index leads to what is wanted.

    Then each of all clusters would be searched until it alone fills the page; so the newest days are searched by
    themselves first, counted back from the cursor, else from the window's end, else from ``now``.
    """
    scans = wanted.cluster is None and (wanted.text or wanted.actor or wanted.verb)
    searched = SEARCHED_FIRST if scans else ()
    end = before.at if before else wanted.to_at or now
    found: list[Change] = []
    for back in searched:
        start = end - back
        if wanted.from_at is not None and start <= wanted.from_at:
            break
        part = replace(wanted, from_at=start)
        found += await list_changes(conn, part, before=before, limit=limit - len(found))
        if len(found) == limit:
            return found
        wanted = replace(wanted, to_at=start)
    return found + await list_changes(conn, wanted, before=before, limit=limit - len(found))


async def count_changes(conn: AsyncConnection, wanted: ChangeFilter, *, most: int) -> int:
    """How many changes fit, counted no further than ``most``. One query."""
    counted: int = (await conn.execute(_counted(shape(wanted), most), asked(wanted))).scalar_one()
    return counted


@lru_cache(maxsize=256)
def _counted(wanted: ChangeFilter, most: int) -> Select[Any]:
    of, own = owners(wanted)
    each = select(changes.c.at).where(*own, *conditions(wanted)).limit(most).lateral("each")
    counted = select(each.c.at).select_from(of.join(each, true())).limit(most).subquery("counted")
    return select(func.count()).select_from(counted)
