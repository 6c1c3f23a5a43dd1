"""What surrounds the changes of a window: rollouts, problems, marks, and how far the record reaches."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache, lru_cache
from typing import Any

from sqlalchemy import (
    CTE,
    BigInteger,
    Column,
    ColumnElement,
    Double,
    Select,
    and_,
    bindparam,
    false,
    func,
    or_,
    select,
    true,
)
from sqlalchemy.dialects.postgresql import ARRAY, aggregate_order_by
from sqlalchemy.ext.asyncio import AsyncConnection

from app.core.model import Outcome, Progress, Resource, Rollout, change_id
from app.core.objects.starting import PASSED
from app.core.screen.lanes import Mark, Problem
from app.store.seen import CLUSTER, FROM_AT, TO_AT, Seen, blind, followed, fresh, mine_of, seen_of, several, time_of
from app.store.tables import changes, clusters, kinds, objects, rollouts, symptoms, words

SPOTS = 160
"""Places of the axis that marks are aggregated to: five pixels of a full-width page, less than a mark is wide."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a window of one cluster holds besides its rows."""

    seen: Seen
    marks: tuple[Mark, ...]
    derived: int
    rollouts: tuple[Rollout, ...]
    problems: tuple[Problem, ...]


EARLIER = timedelta(days=7)
"""What is still under way and began longer ago than this is not looked for."""
SHOWN = 40
"""Problems beside the changes of a window."""


def _hurting(mine: CTE, *, most: int = SHOWN, spaced: bool = False) -> Select[Any]:
    """``spaced``: of the one namespace that is asked for."""
    what = func.coalesce(symptoms.c.workload, symptoms.c.resource)
    query = (
        select(
            symptoms.c.reason,
            what.label("what"),
            func.min(symptoms.c.at).label("first_at"),
            func.max(symptoms.c.at).label("last_at"),
            func.sum(symptoms.c.count).label("number"),
        )
        .join(mine, mine.c.id == symptoms.c.cluster_id)
        .where(symptoms.c.source != "alert", symptoms.c.severity != PASSED)
        .where(symptoms.c.at >= FROM_AT, symptoms.c.at < TO_AT)
        .group_by(symptoms.c.reason, what)
        .order_by(func.sum(symptoms.c.count).desc(), symptoms.c.reason, what)
        .limit(most)
    )
    return query.where(what[2].astext == bindparam("namespace")) if spaced else query


def _rolling(mine: CTE) -> Select[Any]:
    namespace = words.alias("namespace")
    return (
        select(
            rollouts,
            mine.c.name.label("cluster"),
            kinds.c.api_group,
            kinds.c.kind,
            namespace.c.word.label("namespace"),
            objects.c.name,
            objects.c.uid,
        )
        .join(mine, mine.c.id == rollouts.c.cluster_id)
        .join(objects, objects.c.id == rollouts.c.object_id)
        .join(kinds, kinds.c.id == objects.c.kind_id)
        .outerjoin(namespace, namespace.c.id == objects.c.namespace_id)
        .where(rollouts.c.started_at < TO_AT)
        .order_by(rollouts.c.started_at.desc(), rollouts.c.object_id)
    )


def _began() -> ColumnElement[bool]:
    return rollouts.c.started_at >= FROM_AT


def _under_way() -> ColumnElement[bool]:
    """Those that began before the window and were not over at its start are of it, too; a week back, as each look
    reads what began since."""
    c = rollouts.c
    return and_(c.started_at >= FROM_AT - EARLIER, or_(_began(), c.ended_at.is_(None), c.ended_at >= FROM_AT))


def _marks() -> Select[Any]:
    """The changes of a window that are not controllers' because of another, a row for each kind and ``spot`` seconds.

    The columns are those of core.lanes.Mark.
    """
    place = func.floor(func.extract("epoch", changes.c.at - FROM_AT) / bindparam("spot", type_=Double)).label("spot")
    grouped = (
        select(
            changes.c.kind_id,
            place,
            func.count().label("number"),
            func.min(changes.c.at).label("at"),
            _first(changes.c.version_key).label("version_key"),
            _first(changes.c.object_id).label("object_id"),
        )
        .where(*_within(), changes.c.noise == false())
        .group_by(changes.c.kind_id, place)
        .subquery("grouped")
    )
    return (
        select(
            kinds.c.api_group,
            kinds.c.kind,
            grouped.c.at,
            grouped.c.number,
            grouped.c.version_key,
            objects.c.name,
        )
        .join(kinds, kinds.c.id == grouped.c.kind_id)
        .join(objects, objects.c.id == grouped.c.object_id)
        .order_by(grouped.c.at, grouped.c.version_key)
    )


def _within() -> tuple[ColumnElement[bool], ...]:
    mine = select(clusters.c.id).where(clusters.c.name == CLUSTER).scalar_subquery()
    return changes.c.cluster_id == mine, changes.c.at >= FROM_AT, changes.c.at < TO_AT


def _first(column: Column[Any]) -> ColumnElement[Any]:
    """The value of the group's earliest change."""
    ordered = aggregate_order_by(column, changes.c.at, changes.c.version_key)
    return func.array_agg(ordered, type_=ARRAY(column.type))[1]


@cache
def _around() -> Select[Any]:
    mine = mine_of(named=True)
    return several(
        fresh=fresh(mine),
        blind=blind(mine, since=True, until=True),
        followed=followed(mine),
        known=select(kinds.c.kind).limit(0),
        marks=_marks(),
        derived=select(func.count().label("number")).where(*_within(), changes.c.noise == true()),
        rolling=_rolling(mine).where(_under_way()).limit(1000),
        hurting=_hurting(mine),
    )


async def read_surroundings(conn: AsyncConnection, cluster: str, *, from_at: datetime, to_at: datetime) -> Surroundings:
    """Everything that is drawn of [from_at, to_at) except what the ranking holds. One query."""
    spot = max((to_at - from_at).total_seconds() / SPOTS, 0.001)
    values = {"cluster": cluster, "from_at": from_at, "to_at": to_at, "spot": spot}
    row = (await conn.execute(_around(), values)).one()
    return Surroundings(
        seen=seen_of(row, from_at, to_at),
        marks=tuple(_mark(found) for found in row.marks or ()),
        derived=row.derived[0]["number"],
        rollouts=tuple(_rollout(found) for found in row.rolling or ()),
        problems=tuple(_problem(found) for found in row.hurting or ()),
    )


async def list_problems(
    conn: AsyncConnection, cluster: str, *, namespace: str | None, from_at: datetime, to_at: datetime, limit: int
) -> list[Problem]:
    """What hurt in [from_at, to_at), the most frequent first; of one ``namespace``, or of all. One query."""
    values: dict[str, Any] = {"cluster": cluster, "from_at": from_at, "to_at": to_at}
    values |= {} if namespace is None else {"namespace": namespace}
    answer = await conn.execute(_hurt(most=limit, spaced=namespace is not None), values)
    return [_problem(found) for found in answer.scalar_one() or ()]


@lru_cache(maxsize=64)
def _hurt(*, most: int, spaced: bool) -> Select[Any]:
    return several(hurting=_hurting(mine_of(named=True), most=most, spaced=spaced))


async def list_rollouts(
    conn: AsyncConnection,
    cluster: str | None,
    *,
    from_at: datetime,
    to_at: datetime,
    limit: int = 1000,
    behind: tuple[datetime, int] | None = None,
) -> tuple[list[Rollout], tuple[datetime, int] | None]:
    """Rollouts that began in [from_at, to_at), newest first; and the place behind which there may be more."""
    values: dict[str, Any] = {"from_at": from_at, "to_at": to_at}
    values |= {} if cluster is None else {"cluster": cluster}
    values |= {} if behind is None else {"behind_at": behind[0], "behind_id": behind[1]}
    answer = await conn.execute(_rolled(named=cluster is not None, limit=limit, goes_on=behind is not None), values)
    rows: list[dict[str, Any]] = answer.scalar_one() or []
    last = (time_of(rows[-1]["started_at"]), rows[-1]["object_id"]) if len(rows) == limit else None
    return [_rollout(found) for found in rows], last


@lru_cache(maxsize=64)
def _rolled(*, named: bool, limit: int, goes_on: bool) -> Select[Any]:
    query, c = _rolling(mine_of(named=named)).where(_began()).limit(limit), rollouts.c
    if goes_on:
        at, number = bindparam("behind_at", type_=c.started_at.type), bindparam("behind_id", type_=BigInteger)
        query = query.where(c.started_at <= at, or_(c.started_at < at, c.object_id > number))
    return several(rolling=query)


def _maybe(text: str | None) -> datetime | None:
    return None if text is None else time_of(text)


def _mark(found: dict[str, Any]) -> Mark:
    at = time_of(found["at"])
    return Mark(
        api_group=found["api_group"],
        kind=found["kind"],
        at=at,
        count=found["number"],
        change_id=change_id(at, found["version_key"]),
        name=found["name"],
    )


def _rollout(found: dict[str, Any]) -> Rollout:
    where = (found["cluster"], found["api_group"], found["kind"], found["namespace"], found["name"])
    return Rollout(
        resource=Resource(*where),
        uid=found["uid"],
        generation=found["generation"],
        started_at=time_of(found["started_at"]),
        outcome=Outcome(found["outcome"]),
        ended_at=_maybe(found["ended_at"]),
        change_id=found["change_id"],
        images=tuple(found["images"]),
        images_before=tuple(found["images_before"]),
        progress=tuple(Progress(datetime.fromtimestamp(at, UTC), *counts) for at, *counts in found["progress"]),
        reason=found["reason"],
    )


def _problem(found: dict[str, Any]) -> Problem:
    _group, kind, namespace, name = found["what"] or ["", "", None, ""]
    return Problem(
        reason=found["reason"],
        kind=kind,
        namespace=namespace,
        name=name,
        first_at=time_of(found["first_at"]),
        last_at=time_of(found["last_at"]),
        count=found["number"],
    )
