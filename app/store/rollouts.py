"""Rollouts: one row each, updated while they go on."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from functools import cache
from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    FromClause,
    Integer,
    Row,
    Select,
    Text,
    bindparam,
    func,
    or_,
    select,
    true,
    tuple_,
)
from sqlalchemy.dialects.postgresql import ARRAY, distinct_on, insert
from sqlalchemy.ext.asyncio import AsyncConnection

from app.core.changes.recent import BEGAN_WITHIN
from app.core.changes.rollouts import KINDS
from app.core.model import Change, Outcome, Progress, Resource, Rollout, parse_change_id
from app.store import codec, codes, notices, objects, partitions, tables
from app.store.changes import SAME_WRITE
from app.store.merge import merge_rollouts

_table = tables.rollouts


async def write(conn: AsyncConnection, cluster_id: int, told: Iterable[Rollout]) -> int:
    """Stores new rollouts and brings known ones up to date; returns how many rows were written.

    One generation of one object rolls out once, however many tell of its start: the first start told is kept.
    """
    batch = list(told)
    if not batch:
        return 0
    ids = await objects.identify(conn, cluster_id, [(r.resource, r.uid, r.started_at) for r in batch])
    stored = await _stored(conn, cluster_id, batch, ids)
    merged: dict[tuple[int, int], Rollout] = dict(stored)
    for object_id, rollout in zip(ids, batch, strict=True):
        key = (object_id, rollout.generation)
        merged[key] = merge_rollouts(merged[key], rollout) if key in merged else rollout
    last: dict[tuple[int, datetime], Rollout] = {}  # of two generations that began at once, the later one rolls out
    for (object_id, _), rollout in sorted(merged.items(), key=lambda item: item[0]):
        last[(object_id, rollout.started_at)] = rollout
    rows = [
        _row(cluster_id, object_id, rollout)
        for (object_id, _), rollout in last.items()
        if stored.get((object_id, rollout.generation)) != rollout
    ]
    if rows:
        await partitions.ensure(conn, "rollouts", (row["started_at"] for row in rows))
        statement = insert(_table)
        keys = {"cluster_id", "started_at", "object_id"}
        news = {name: statement.excluded[name] for name in rows[0] if name not in keys}
        await conn.execute(statement.on_conflict_do_update(index_elements=sorted(keys), set_=news), rows)
    turned = [one.change_id for key, one in stored.items() if one.change_id and _was_over(one, merged[key])]
    if turned:
        await notices.wake(conn, cluster_id, turned, at=max(map(_last_told, batch)))
    return len(rows)


def _was_over(stored: Rollout, now: Rollout) -> bool:
    """Whether how it ended was told, and is so no more."""
    return stored.outcome is not Outcome.RUNNING and now.outcome is not stored.outcome


def _last_told(rollout: Rollout) -> datetime:
    return max(rollout.started_at, rollout.ended_at or rollout.started_at, *(step.at for step in rollout.progress))


def _row(cluster_id: int, object_id: int, rollout: Rollout) -> dict[str, Any]:
    return {
        "cluster_id": cluster_id,
        "started_at": rollout.started_at,
        "object_id": object_id,
        "generation": rollout.generation,
        "outcome": rollout.outcome.value,
        "ended_at": rollout.ended_at,
        "change_id": rollout.change_id,
        "images": [codec.clean(image) for image in rollout.images],
        "images_before": [codec.clean(image) for image in rollout.images_before],
        "progress": [[p.at.timestamp(), p.desired, p.updated, p.available] for p in rollout.progress],
        "reason": codec.clean(rollout.reason),
        "templates": list(rollout.templates),
    }


async def _stored(
    conn: AsyncConnection, cluster_id: int, batch: list[Rollout], ids: list[int]
) -> dict[tuple[int, int], Rollout]:
    """What is stored of these generations, and what began when these begin; not the others of their objects, of which
    a fight over a template makes many."""
    starts = [rollout.started_at for rollout in batch]
    c, at = _table.c, _table.c.started_at.type
    told = func.unnest(
        bindparam("ids", ids, type_=ARRAY(BigInteger)),
        bindparam("generations", [rollout.generation for rollout in batch], type_=ARRAY(Integer)),
        bindparam("starts", starts, type_=ARRAY(at)),
    )
    own = told.table_valued(Column("id", BigInteger), Column("generation", Integer), Column("at", at)).render_derived(
        "own"
    )
    statement = _select().where(
        c.cluster_id == cluster_id,
        c.started_at.between(min(starts) - SAME_WRITE, max(starts) + SAME_WRITE),
        or_(
            tuple_(c.object_id, c.generation).in_(select(own.c.id, own.c.generation)),
            tuple_(c.object_id, c.started_at).in_(select(own.c.id, own.c.at)),
        ),
    )
    return {(row.object_id, row.generation): _rollout(row) for row in await conn.execute(statement)}


def _select(rows: FromClause = _table) -> Select[Any]:
    """``rows`` (columns of ``rollouts``) with their codes turned into names."""
    o, k, w = tables.objects, tables.kinds, tables.words
    return (
        select(
            rows,
            tables.clusters.c.name.label("cluster"),
            k.c.api_group,
            k.c.kind,
            w.c.word.label("namespace"),
            o.c.name.label("name"),
            o.c.uid.label("uid"),
        )
        .join(tables.clusters, tables.clusters.c.id == rows.c.cluster_id)
        .join(o, o.c.id == rows.c.object_id)
        .join(k, k.c.id == o.c.kind_id)
        .outerjoin(w, w.c.id == o.c.namespace_id)
    )


def _rollout(row: Row[Any]) -> Rollout:
    return Rollout(
        Resource(row.cluster, row.api_group, row.kind, row.namespace, row.name),
        row.uid,
        row.generation,
        row.started_at,
        Outcome(row.outcome),
        ended_at=row.ended_at,
        change_id=row.change_id,
        images=tuple(row.images),
        images_before=tuple(row.images_before),
        progress=tuple(Progress(codec.utc(at), *counts) for at, *counts in row.progress),
        reason=row.reason,
        templates=tuple(row.templates),
    )


@cache
def _begun_by() -> Select[Any]:
    """The rollout that each of some changes began. Each is looked for around its change alone: that walks the primary
    key of one partition, where one question for all of them would read every rollout since the oldest.

    Of two that one change began, that which began later: an Argo Rollout that has its template from a Deployment, which
    has no pods of its own.
    """
    c, at = _table.c, _table.c.started_at.type
    texts, times = ARRAY(Text), ARRAY(at)
    asked = func.unnest(
        bindparam("clusters", type_=texts), bindparam("ids", type_=texts), bindparam("ats", type_=times)
    )
    each = asked.table_valued(Column("cluster", Text), Column("id", Text), Column("at", at)).render_derived("each")
    known = select(tables.clusters.c.id).where(tables.clusters.c.name == each.c.cluster)
    own = known.correlate(each).scalar_subquery()
    near = c.started_at.between(each.c.at - BEGAN_WITHIN, each.c.at + BEGAN_WITHIN)
    began = select(_table).where(c.cluster_id == own, near, c.change_id == each.c.id).order_by(c.started_at.desc())
    found = began.limit(1).lateral("found")
    return _select(select(found).select_from(each.join(found, true())).subquery("begun"))


async def begun_by(conn: AsyncConnection, changes: Iterable[Change]) -> dict[str, Rollout]:
    """The rollouts that these changes began, by the change's id. One query; none where nothing of it rolls out."""
    asked = [one for one in changes if (one.resource.api_group, one.resource.kind) in KINDS]
    if not asked:
        return {}
    values = {
        "clusters": [one.resource.cluster for one in asked],
        "ids": [one.id for one in asked],
        "ats": [one.at for one in asked],
    }
    return {row.change_id: _rollout(row) for row in await conn.execute(_begun_by(), values)}


async def read_begun(conn: AsyncConnection, public_id: str) -> Rollout | None:
    """The rollout that a change began, by the change's public id; None where there is none. One query."""
    try:
        at, _ = parse_change_id(public_id)
        near = _table.c.started_at.between(at - BEGAN_WITHIN, at + BEGAN_WITHIN)
    except (ValueError, OverflowError):
        return None
    began = _select().where(near, _table.c.change_id == public_id).order_by(_table.c.started_at.desc())
    row = (await conn.execute(began.limit(1))).first()
    return _rollout(row) if row else None


async def read_last(conn: AsyncConnection, cluster: str) -> list[Rollout]:
    """The last rollout of each workload: what an import goes on from."""
    number = await codes.find_cluster(conn, cluster)
    c = _table.c
    statement = _select().where(c.cluster_id == number).ext(distinct_on(c.object_id))
    rows = await conn.execute(statement.order_by(c.object_id, c.started_at.desc()))
    return [_rollout(row) for row in rows]


async def read_window(conn: AsyncConnection, cluster: str, start: datetime, end: datetime) -> list[Rollout]:
    """The rollouts that were under way in [start, end] or started in it, oldest first.

    One that started more than a week before ``start`` is not looked for: it would have ended long since.
    """
    number = await codes.find_cluster(conn, cluster)
    asked = {"cluster": number, "earliest": start - SAME_WRITE, "start": start, "end": end}
    return [_rollout(row) for row in await conn.execute(_under_way(), asked)]


@cache
def _under_way() -> Select[Any]:
    """Building it takes as long as running it."""
    c = _table.c
    start = bindparam("start", type_=c.started_at.type)
    return (
        _select()
        .where(
            c.cluster_id == bindparam("cluster"),
            c.started_at.between(bindparam("earliest"), bindparam("end")),
            (c.started_at >= start) | c.ended_at.is_(None) | (c.ended_at >= start),
        )
        .order_by(c.started_at, c.object_id)
    )
