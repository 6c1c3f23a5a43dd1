"""Precedents: what became of earlier changes of the suspects' objects, here and in other clusters."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime
from functools import cache
from typing import Any

from msgspec.structs import replace
from sqlalchemy import (
    ARRAY,
    Column,
    Integer,
    Select,
    Subquery,
    Text,
    and_,
    any_,
    bindparam,
    case,
    cast,
    exists,
    func,
    select,
    true,
)
from sqlalchemy.dialects.postgresql import distinct_on
from sqlalchemy.ext.asyncio import AsyncConnection

from app.core.findings import Opinion
from app.core.model import Change, Resource
from app.core.ranking.precedents import ELSEWHERE, HARM, MOST, REMEMBERED, Memory, Precedent
from app.store import codec, codes, tables
from app.store.change_rows import SOURCE_BITS, VERBS
from app.store.changes import told_diff
from app.store.reach import ALERTS, TELL_OF_HARM
from app.store.verdicts import of_whole

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
    c = tables.changes.c
    # What a cluster remembers of itself reaches back to where nothing else was seen.
    seen = select(c.at).where(c.cluster_id == number, c.sources.op("&")(_SEEN) != 0).order_by(c.at).limit(1)
    wanted = sorted({one.resource for one in suspects})
    asked = {
        "groups": [one.api_group for one in wanted],
        "kinds": [one.kind for one in wanted],
        "namespaces": [one.namespace or "" for one in wanted],
        "names": [one.name for one in wanted],
        "own": number,
        "incident": incident_id,
        "before": before,
        "now": now,
    }
    rows = (await conn.execute(_remembered(most_bytes), asked)).all()
    found = [(_change(wanted, row), soon or "", alerted) for *row, soon, alerted in rows]
    said = await _said(conn, incident_id, [one.id for one in (*(change for change, *_ in found), *suspects)])
    return Memory(
        precedents=tuple(Precedent(change, soon, alerted, tuple(said[change.id])) for change, soon, alerted in found),
        said=tuple((one.id, opinion) for one in suspects for opinion in said[one.id]),
        since=await conn.scalar(seen),
    )


def _change(wanted: Sequence[Resource], row: Sequence[Any]) -> Change:
    """What a change did to which of the objects ``wanted``, and when; not who wrote it."""
    place, cluster, at, key, verb, version, diff = row
    resource = replace(wanted[place - 1], cluster=cluster)
    return Change(resource, at, VERBS[verb], key, resource_version=version, diffs=codec.diffs_of(diff))


@cache
def _remembered(most_bytes: int) -> Select[Any]:
    """The newest changes of some objects in the cluster ``own`` ``before`` a time and in others up to ``now``, as
    _change takes them, each with what ailed its cluster soon after. Building it takes as long as running it."""
    c, i = tables.changes.c, tables.incidents.c
    own, now = bindparam("own", type_=Integer), bindparam("now", type_=c.at.type)
    told = i.status.in_(["open", "resolved"])
    same = _objects()
    until = case((same.c.cluster_id == own, bindparam("before", type_=c.at.type)), else_=now)
    newest = (
        select(c.at, c.version_key, c.verb, c.resource_version, told_diff(most_bytes))
        .where(c.object_id == same.c.id, c.at.between(now - REMEMBERED, now), c.at < until, ~c.noise, c.begun_by == "")
        .order_by(c.at.desc())
        .limit(case((same.c.cluster_id == own, MOST), else_=ELSEWHERE))
        .lateral("newest")
    )
    page = select(same, newest).select_from(same.join(newest, true())).subquery("page")
    soon = (
        select(i.title)
        .where(i.cluster_id == page.c.cluster_id, i.started_at.between(page.c.at, page.c.at + HARM))
        .where(told, i.id != bindparam("incident", type_=Text))
        .order_by(i.started_at)
        .limit(1)
        .scalar_subquery()
    )
    r = tables.recorded.c
    alerted = and_(
        exists().where(i.cluster_id == page.c.cluster_id, told),
        exists().where(
            r.cluster_id == page.c.cluster_id,
            r.source.in_(sorted(TELL_OF_HARM | {ALERTS})),
            r.to_at >= page.c.at + HARM,
        ),
    ).label("alerted")
    p = page.c
    return select(p.place, p.cluster, p.at, p.version_key, p.verb, p.resource_version, p.diff, soon, alerted)


def _objects() -> Subquery:
    """The objects of the kinds and names asked for in every cluster, those that went too; each with its place among
    those asked for, from 1 on."""
    o, k, w = tables.objects.c, tables.kinds.c, tables.words.c
    asked = func.unnest(*(bindparam(name, type_=ARRAY(Text)) for name in ("groups", "kinds", "namespaces", "names")))
    names = (Column(name, Text) for name in ("api_group", "kind", "namespace", "name"))
    wanted = asked.table_valued(*names, with_ordinality="place").render_derived("wanted")
    a = wanted.c
    word = select(w.id).where(w.word == a.namespace).scalar_subquery()
    namespace = o.namespace_id == case((a.namespace == "", 0), else_=word)
    return (
        select(o.id, o.cluster_id, tables.clusters.c.name.label("cluster"), a.place)
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
    """What people said of changes as suspects of other incidents: of one change once in each, the last that was said.
    What is merged is one incident."""
    found: dict[str, list[Opinion]] = defaultdict(list)
    for row in await conn.execute(_SAID, {"ids": codec.id_array(ids), "incident": incident_id}):
        found[row.change_id].append(Opinion(row.opinion))
    return found


def _opinions() -> Select[Any]:
    v = tables.verdicts.c
    whole = of_whole(tables.incidents)
    wanted = (
        select(v.change_id, v.opinion, v.said_at)
        .join(tables.incidents, tables.incidents.c.id == v.incident_id)
        .where(v.change_id == any_(cast(bindparam("ids"), ARRAY(Text))), whole != bindparam("incident"))
        .ext(distinct_on(v.change_id, whole))
        .order_by(v.change_id, whole, v.said_at.desc())
        .subquery()
    )
    return select(wanted).order_by(wanted.c.said_at)


_SAID = _opinions()
