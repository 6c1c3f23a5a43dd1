"""Changes by what no index leads to, and how many there are: bounded in what is read."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache
from typing import Any

from sqlalchemy import BigInteger, Select, bindparam, func, select, true
from sqlalchemy.ext.asyncio import AsyncConnection

from app.core.model import Change
from app.store.change_rows import change_of
from app.store.tables import changes
from app.store.timeline import (
    LONG_AGO,
    ChangeFilter,
    Cursor,
    after,
    asked,
    conditions,
    list_changes,
    listed,
    owners,
    shape,
)

AT_FIRST = 40_000
"""Changes that a page looks at for words, an actor or a verb: so many take some 15 ms."""
FURTHER = 400_000
"""The same of a request that goes on searching, and of a program's, which wait for what is rare."""


@dataclass(frozen=True, slots=True)
class Found:
    """Changes, newest first. Behind ``next`` the search goes on; None when nothing older can fit."""

    changes: list[Change]
    next: Cursor | None


async def find_changes(
    conn: AsyncConnection, wanted: ChangeFilter, *, before: Cursor | None = None, limit: int, within: int
) -> Found:
    """The newest ``limit`` changes that fit. One query.

    Where no index leads to them no more than about ``within`` of the newest changes are looked at, and ``next`` may
    stand behind a page that is not full, or empty.
    """
    if not (wanted.text or wanted.actor or wanted.verb):
        found = await list_changes(conn, wanted, before=before, limit=limit)
        return Found(found, after(found[-1]) if len(found) == limit else None)
    values = asked(wanted) | {"within": within}
    if before is not None:
        values |= {"before_at": before.at, "before_key": before.key}
    query = _searched(shape(wanted), limit=limit, paged=before is not None)
    rows = (await conn.execute(query, values)).all()
    found = [change_of(row) for row in rows if row.version_key is not None]
    if len(found) == limit:
        return Found(found, after(found[-1]))
    reached: datetime | None = rows[0].reached
    return Found(found, Cursor(reached, 0) if reached else None)


@lru_cache(maxsize=256)
def _searched(wanted: ChangeFilter, *, limit: int, paged: bool) -> Select[Any]:
    """How far back is looked, and beside it what was found; one row of that alone where there is nothing."""
    edge = _edge(_indexed(wanted), paged=paged).cte("edge")
    newer = changes.c.at >= func.coalesce(select(edge.c.reached).scalar_subquery(), LONG_AGO)
    rows = listed(wanted, limit=limit, paged=paged, also=[newer]).subquery("rows")
    beside = select(rows, edge.c.reached).select_from(edge.outerjoin(rows, true()))
    return beside.order_by(rows.c.at.desc(), rows.c.version_key.desc())


def _indexed(wanted: ChangeFilter) -> ChangeFilter:
    """As much of a filter as one index answers alone: of namespace and kind, the kind where both are wanted."""
    namespace = None if wanted.kind else wanted.namespace
    return replace(wanted, namespace=namespace, text=None, actor=None, verb=None, derived="shown")


def _edge(indexed: ChangeFilter, *, paged: bool) -> Select[Any]:
    """How far back ``within`` changes reach, each cluster (and kind) having its share; NULL: to the beginning."""
    of, own = owners(indexed)
    where = [*own, *conditions(indexed)]
    if paged:
        # What is left of the moment at which the page before ended is looked at anyway. Were it counted, then a search
        # would never get past a moment that has more changes than are looked at.
        where.append(changes.c.at < bindparam("before_at", type_=changes.c.at.type))
    share = select(bindparam("within", type_=BigInteger) // func.greatest(func.count(), 1)).select_from(of)
    newest = select(changes.c.at).where(*where).order_by(changes.c.at.desc())
    edge = newest.offset(share.scalar_subquery()).limit(1).lateral("edge")
    return select(func.max(edge.c.at).label("reached")).select_from(of.join(edge, true()))


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
