"""What people said of suspects: one verdict for each change of an incident, the last that was said."""

from __future__ import annotations

from datetime import datetime

import msgspec
from sqlalchemy import ColumnElement, CompoundSelect, FromClause, delete, func, literal, select, union_all
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from app.core.evaluation.verdicts import Judged
from app.core.findings import Opinion, Ranking, Verdict
from app.store import audit, codec, tables
from app.store.audit import Action

MOST_JUDGED = 500
"""The newest incidents of which somebody said something: what was true years ago says little of today."""
_table = tables.verdicts


class MergedError(Exception):
    """An incident of which nothing is said any more; ``into`` is the id of the one that it is a part of."""

    def __init__(self, into: str) -> None:
        super().__init__(f"it was merged into incident {into}, of which it is a part now: say it of that one")
        self.into = into


async def check_whole(conn: AsyncConnection, incident_id: str) -> None:
    """Raises LookupError for an unknown incident, and MergedError for a part of another. What was said of it before, or
    is said as it becomes that, is said of the other."""
    i = tables.incidents.c
    found = (await conn.execute(select(i.id, i.merged_into).where(i.id == incident_id))).one_or_none()
    if found is None:
        raise LookupError(f"no incident {incident_id}")
    if found.merged_into is not None:
        raise MergedError(found.merged_into)


async def say(conn: AsyncConnection, incident_id: str, verdict: Verdict) -> None:
    """Keeps a verdict in the place of an earlier one of the same change. Raises LookupError for an unknown incident."""
    known = select(tables.incidents.c.id).where(tables.incidents.c.id == incident_id)
    if (await conn.execute(known)).scalar_one_or_none() is None:
        raise LookupError(f"no incident {incident_id}")
    statement = insert(_table).values(
        incident_id=incident_id,
        change_id=verdict.change_id,
        opinion=verdict.opinion.value,
        said_by=codec.clean(verdict.by),
        said_at=verdict.at,
    )
    new = {name: statement.excluded[name] for name in ("opinion", "said_by", "said_at")}
    await conn.execute(statement.on_conflict_do_update(index_elements=["incident_id", "change_id"], set_=new))
    about = f"{incident_id}: {verdict.opinion.value}, {verdict.change_id}"
    await audit.note(conn, Action.VERDICT_SAID, about, by=verdict.by, now=verdict.at)


async def take_back(conn: AsyncConnection, incident_id: str, change_id: str, *, now: datetime) -> bool:
    """Forgets what was said of a change of an incident, and of its parts; whether there was anything."""
    wanted = _table.c.incident_id.in_(with_parts(literal(incident_id)))
    gone = delete(_table).where(wanted, _table.c.change_id == change_id)
    if (await conn.execute(gone)).rowcount == 0:
        return False
    await audit.note(conn, Action.VERDICT_TAKEN_BACK, f"{incident_id}: {change_id}", now=now)
    return True


def with_parts(incident_id: ColumnElement[str]) -> CompoundSelect[str]:
    """The ids of an incident and of what was merged into it: what is said of those is said of it."""
    part = tables.incidents.alias("part").c
    own, parts = select(incident_id), select(part.id).where(part.merged_into == incident_id)
    return union_all(*(one.correlate(tables.incidents) for one in (own, parts)))


def of_whole(incident: FromClause) -> ColumnElement[str]:
    """Of which incident it is said what is said of one: of the one that this is a part of since they were merged."""
    return func.coalesce(incident.c.merged_into, incident.c.id)


async def read_judged(conn: AsyncConnection) -> list[Judged]:
    """The newest incidents of which somebody said something, the newest first, with their first and newest rankings.

    What was said of the parts of an incident was said of it; of what was said of one change the last counts.
    """
    i, r = tables.incidents.c, tables.rankings.c
    part = tables.incidents.alias("part")
    whole = of_whole(part).label("whole")
    said_of = select(whole, *_table.c).join(part, part.c.id == _table.c.incident_id).subquery("said_of")
    ends = (
        select(r.incident_id, func.min(r.at).label("first"), func.max(r.at).label("newest"))
        .join(tables.incidents, i.id == r.incident_id)
        .where(r.incident_id.in_(select(said_of.c.whole)))
        .group_by(r.incident_id, i.started_at)
        .order_by(i.started_at.desc(), r.incident_id)
        .limit(MOST_JUDGED)
        .subquery()
    )
    found = await conn.execute(
        select(i.id, i.title, i.started_at, r.at, r.payload)
        .join(ends, ends.c.incident_id == i.id)
        .join(tables.rankings, (r.incident_id == i.id) & ((r.at == ends.c.first) | (r.at == ends.c.newest)))
        .order_by(i.started_at.desc(), i.id, r.at)
    )
    rankings: dict[tuple[str, str], list[Ranking]] = {}
    for row in found:
        rankings.setdefault((row.id, row.title), []).append(msgspec.convert(row.payload, Ranking))
    ids = [incident_id for incident_id, _ in rankings]
    said: dict[str, dict[str, Verdict]] = {}
    for row in await conn.execute(select(said_of).where(said_of.c.whole.in_(ids)).order_by(said_of.c.said_at)):
        verdicts = said.setdefault(row.whole, {})
        verdicts.pop(row.change_id, None)  # they stand in the order in which they were said
        verdicts[row.change_id] = Verdict(row.change_id, Opinion(row.opinion), row.said_by, row.said_at)
    return [
        Judged(incident_id, title, made[0], made[-1], tuple(said[incident_id].values()))
        for (incident_id, title), made in rankings.items()
    ]
