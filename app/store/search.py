"""Changes by what no index leads to, and how many there are: bounded in what is read."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from sqlalchemy import BigInteger, Select, bindparam, func, select, true
from sqlalchemy.ext.asyncio import AsyncConnection

from app.core.model import Change
from app.store.tables import changes
from app.store.timeline import ChangeFilter, Cursor, after, asked, conditions, list_changes, owners, shape

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
    """The newest ``limit`` changes that fit. One query, or two where no index leads to them.

    Then no more than about ``within`` of the newest changes are looked at, and ``next`` may stand behind a page that
    is not full, or empty.
    """
    reached = None
    if wanted.text or wanted.actor or wanted.verb:
        indexed = _indexed(wanted)
        values = asked(indexed) | {"within": within} | ({"before_at": before.at} if before else {})
        reached = (await conn.execute(_edge(shape(indexed), paged=before is not None), values)).scalar()
    part = wanted if reached is None else replace(wanted, from_at=reached)
    found = await list_changes(conn, part, before=before, limit=limit)
    if len(found) == limit:
        return Found(found, after(found[-1]))
    return Found(found, None if reached is None else Cursor(reached, 0))


def _indexed(wanted: ChangeFilter) -> ChangeFilter:
    """As much of a filter as one index answers alone: of namespace and kind, the kind where both are wanted."""
    namespace = None if wanted.kind else wanted.namespace
    return replace(wanted, namespace=namespace, text=None, actor=None, verb=None, derived="shown")


@lru_cache(maxsize=256)
def _edge(indexed: ChangeFilter, *, paged: bool) -> Select[Any]:
    """How far back ``within`` changes reach, each cluster (and kind) having its share; NULL: to the beginning."""
    of, own = owners(indexed)
    where = [*own, *conditions(indexed)]
    if paged:
        where.append(changes.c.at <= bindparam("before_at", type_=changes.c.at.type))
    share = select(bindparam("within", type_=BigInteger) // func.greatest(func.count(), 1)).select_from(of)
    newest = select(changes.c.at).where(*where).order_by(changes.c.at.desc())
    edge = newest.offset(share.scalar_subquery()).limit(1).lateral("edge")
    return select(func.max(edge.c.at)).select_from(of.join(edge, true()))


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
