"""Precedents: what became of earlier changes of the suspects' objects, here and in other clusters."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Text as Words
from sqlalchemy import Values, and_, case, column, exists, select, true, values
from sqlalchemy.ext.asyncio import AsyncConnection

from app.core.findings import Opinion
from app.core.model import Change, Resource
from app.core.precedents import ELSEWHERE, HARM, MOST, REMEMBERED, Memory, Precedent
from app.store import codes, tables
from app.store.change_rows import SOURCE_BITS, change_of, named
from app.store.changes import without_large

_SEEN = SOURCE_BITS["audit"] | SOURCE_BITS["watch"]


async def read_memory(
    conn: AsyncConnection,
    incident_id: str,
    suspects: Sequence[Change],
    *,
    cluster: str,
    before: datetime,
    now: datetime,
    most_bytes: int,
) -> Memory:
    """What is remembered of the objects that the suspects of an incident of a cluster changed.

    In their own cluster ``before`` its window, in others up to ``now``. Of values that take more than ``most_bytes``,
    as stored, the fields alone.
    """
    if not suspects:
        return Memory()
    number = await codes.find_cluster(conn, cluster)
    c, i = tables.changes.c, tables.incidents.c
    told = tables.incidents.c.status.in_(["open", "resolved"])
    same = _objects({one.resource for one in suspects})
    until = case((same.c.cluster_id == number, before), else_=now)
    newest = (
        select(*without_large(most_bytes))
        .where(c.object_id == same.c.id, c.at.between(now - REMEMBERED, now), c.at < until, ~c.noise, c.begun_by == "")
        .order_by(c.at.desc())
        .limit(case((same.c.cluster_id == number, MOST), else_=ELSEWHERE))
        .lateral("newest")
    )
    page = select(newest).select_from(same.join(newest, true())).subquery("page")
    soon = (
        select(i.title)
        .where(i.cluster_id == page.c.cluster_id, i.started_at.between(page.c.at, page.c.at + HARM))
        .where(told, i.id != incident_id)
        .order_by(i.started_at)
        .limit(1)
        .scalar_subquery()
    )
    alerted = exists().where(i.cluster_id == page.c.cluster_id, told)
    # What a cluster remembers of itself reaches back to where nothing else was seen.
    seen = select(c.at).where(c.cluster_id == number, c.sources.op("&")(_SEEN) != 0).order_by(c.at).limit(1)
    rows = (await conn.execute(named(page).add_columns(soon.label("soon"), alerted.label("alerted")))).all()
    made = [change_of(row) for row in rows]
    said = await _said(conn, incident_id, [one.id for one in (*made, *suspects)])
    return Memory(
        precedents=tuple(
            Precedent(change, row.soon or "", row.alerted, tuple(said[change.id]))
            for change, row in zip(made, rows, strict=True)
        ),
        said=tuple((one.id, opinion) for one in suspects for opinion in said[one.id]),
        since=await conn.scalar(seen),
    )


def _objects(resources: set[Resource]) -> Any:
    """The objects of these kinds and names in every cluster, those that went too."""
    o, k, w = tables.objects.c, tables.kinds.c, tables.words.c
    wanted: Values = values(
        *(column(name, Words) for name in ("api_group", "kind", "namespace", "name")), name="wanted"
    ).data([(one.api_group, one.kind, one.namespace or "", one.name) for one in sorted(resources)])
    a = wanted.c
    word = select(w.id).where(w.word == a.namespace).scalar_subquery()
    namespace = o.namespace_id == case((a.namespace == "", 0), else_=word)
    return (
        select(o.id, o.cluster_id)
        .select_from(wanted)
        .join(tables.kinds, and_(k.api_group == a.api_group, k.kind == a.kind))
        .join(tables.clusters, true())
        .join(
            tables.objects,
            and_(o.cluster_id == tables.clusters.c.id, o.kind_id == k.id, namespace, o.name == a.name),
        )
        .subquery("same")
    )


async def _said(conn: AsyncConnection, incident_id: str, ids: Sequence[str]) -> dict[str, list[Opinion]]:
    """What people said of changes as suspects of other incidents."""
    v = tables.verdicts.c
    found: dict[str, list[Opinion]] = defaultdict(list)
    wanted = select(v.change_id, v.opinion).where(v.change_id.in_(ids), v.incident_id != incident_id)
    for row in await conn.execute(wanted.order_by(v.said_at)):
        found[row.change_id].append(Opinion(row.opinion))
    return found
