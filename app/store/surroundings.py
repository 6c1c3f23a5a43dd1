"""What surrounds the changes of a window: rollouts, problems, blind spots, how far the record reaches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache, lru_cache
from typing import Any

import msgspec
from sqlalchemy import (
    CTE,
    Column,
    ColumnElement,
    Double,
    Row,
    Select,
    Text,
    bindparam,
    false,
    func,
    literal_column,
    select,
    true,
)
from sqlalchemy.dialects.postgresql import ARRAY, aggregate_order_by
from sqlalchemy.ext.asyncio import AsyncConnection

from app.core.lanes import Mark, Problem
from app.core.model import Gap, Outcome, Progress, Resource, Rollout, change_id
from app.core.watching import Followed
from app.failures import Expected
from app.store.collectors import Standing
from app.store.reach import TELL_OF_CHANGES
from app.store.tables import changes, clusters, collectors, gaps, kinds, objects, recorded, rollouts, symptoms, words

SPOTS = 160
"""Places of the axis that marks are aggregated to: five pixels of a full-width page, less than a mark is wide."""

MOST_NAMED = 20
"""Clusters that are named to who asked for another."""

CLUSTER = bindparam("cluster", type_=Text)
FROM_AT = bindparam("from_at", type_=changes.c.at.type)
TO_AT = bindparam("to_at", type_=changes.c.at.type)
"""What every statement here asks for, so that it is built once: building one costs more than running it."""


class UnknownClusterError(Expected):
    """Nothing is recorded of a cluster of this name; the message names those that are known."""


@dataclass(frozen=True, slots=True)
class Freshness:
    """Up to when a cluster is recorded: the newest time that anything tells of (None before the first), and that of
    each source (store/reach.py), the newest first."""

    cluster: str
    sources: Mapping[str, datetime]

    @property
    def at(self) -> datetime | None:
        return max(self.sources.values(), default=None)


@dataclass(frozen=True, slots=True)
class Seen:
    """How far the record reaches, and where it has holes: said with every answer."""

    freshness: tuple[Freshness, ...]
    gaps: tuple[Gap, ...]
    """Those of the record, and what is not seen right now: that may yet be told, and then is none."""
    kinds: tuple[str, ...]
    unseen: tuple[Gap, ...] = ()
    """What is not seen right now, whatever window was asked for."""
    followed: tuple[Followed, ...] = ()

    @property
    def newest(self) -> datetime | None:
        """Up to when a change of any of these clusters would have been seen."""
        told = (at for one in self.freshness for source, at in one.sources.items() if source in TELL_OF_CHANGES)
        return max(told, default=None)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a window of one cluster holds besides its rows."""

    seen: Seen
    marks: tuple[Mark, ...]
    derived: int
    rollouts: tuple[Rollout, ...]
    problems: tuple[Problem, ...]


def _several(**queries: Select[Any]) -> Select[Any]:
    """Whole results as JSON, one a column: several queries in one round trip."""
    columns = []
    for label, query in queries.items():
        rows = query.subquery(f"of_{label}")
        found = select(func.json_agg(func.row_to_json(literal_column(f"of_{label}")))).select_from(rows)
        columns.append(found.scalar_subquery().label(label))
    return select(*columns)


def _mine(*, named: bool) -> CTE:
    query = select(clusters.c.id, clusters.c.name)
    return (query.where(clusters.c.name == CLUSTER) if named else query).cte("mine")


def _fresh(mine: CTE) -> Select[Any]:
    r = recorded.c
    told = select(func.json_object_agg(r.source, r.to_at)).where(r.cluster_id == mine.c.id).scalar_subquery()
    return select(mine.c.name, told.label("sources")).order_by(mine.c.name)


def _followed(mine: CTE) -> Select[Any]:
    c = collectors.c
    return (
        select(mine.c.name.label("cluster"), c.holder, c.renewed_at, c.watching, func.clock_timestamp().label("now"))
        .join(mine, mine.c.id == c.cluster_id)
        .where(c.standing != Standing.ENDED.value)
        .order_by(mine.c.name)
    )


def _blind(mine: CTE, *, since: bool, until: bool) -> Select[Any]:
    query = (
        select(mine.c.name.label("cluster"), gaps.c.kind, gaps.c.from_at, gaps.c.to_at, gaps.c.why)
        .join(mine, mine.c.id == gaps.c.cluster_id)
        .order_by(gaps.c.from_at.desc())
        .limit(100)
    )
    if since:
        query = query.where(gaps.c.to_at > FROM_AT)
    return query.where(gaps.c.from_at < TO_AT) if until else query


def _hurting(mine: CTE) -> Select[Any]:
    what = func.coalesce(symptoms.c.workload, symptoms.c.resource)
    return (
        select(
            symptoms.c.reason,
            what.label("what"),
            func.min(symptoms.c.at).label("first_at"),
            func.max(symptoms.c.at).label("last_at"),
            func.sum(symptoms.c.count).label("number"),
        )
        .join(mine, mine.c.id == symptoms.c.cluster_id)
        .where(symptoms.c.source != "alert", symptoms.c.at >= FROM_AT, symptoms.c.at < TO_AT)
        .group_by(symptoms.c.reason, what)
        .order_by(func.sum(symptoms.c.count).desc())
        .limit(40)
    )


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
        .where(rollouts.c.started_at >= FROM_AT, rollouts.c.started_at < TO_AT)
        .order_by(rollouts.c.started_at.desc(), rollouts.c.object_id)
    )


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
def _how_far(*, named: bool, since: bool, until: bool) -> Select[Any]:
    mine = _mine(named=named)
    known = select(kinds.c.kind).distinct().order_by(kinds.c.kind)
    blind = _blind(mine, since=since, until=until)
    return _several(fresh=_fresh(mine), blind=blind, followed=_followed(mine), known=known)


async def read_seen(
    conn: AsyncConnection, cluster: str | None, *, from_at: datetime | None, to_at: datetime | None
) -> Seen:
    """Freshness, gaps that touch [from_at, to_at) (None leaves a side open), known kinds. One query.

    Raises UnknownClusterError.
    """
    values = {"cluster": cluster, "from_at": from_at, "to_at": to_at}
    query = _how_far(named=cluster is not None, since=from_at is not None, until=to_at is not None)
    row = (await conn.execute(query, {name: one for name, one in values.items() if one is not None})).one()
    seen = _seen(row, from_at, to_at)
    if cluster is not None and not seen.freshness:
        known = (await conn.scalars(select(clusters.c.name).order_by(clusters.c.name).limit(MOST_NAMED))).all()
        names = f"known are {', '.join(known)}" if known else "nothing is recorded yet"
        raise UnknownClusterError(f"there is no cluster {cluster!r}: {names}")
    return seen


@cache
def _around() -> Select[Any]:
    mine = _mine(named=True)
    return _several(
        fresh=_fresh(mine),
        blind=_blind(mine, since=True, until=True),
        followed=_followed(mine),
        known=select(kinds.c.kind).limit(0),
        marks=_marks(),
        derived=select(func.count().label("number")).where(*_within(), changes.c.noise == true()),
        rolling=_rolling(mine).limit(1000),
        hurting=_hurting(mine),
    )


async def read_surroundings(conn: AsyncConnection, cluster: str, *, from_at: datetime, to_at: datetime) -> Surroundings:
    """Everything that is drawn of [from_at, to_at) except what the ranking holds. One query."""
    spot = max((to_at - from_at).total_seconds() / SPOTS, 0.001)
    values = {"cluster": cluster, "from_at": from_at, "to_at": to_at, "spot": spot}
    row = (await conn.execute(_around(), values)).one()
    return Surroundings(
        seen=_seen(row, from_at, to_at),
        marks=tuple(_mark(found) for found in row.marks or ()),
        derived=row.derived[0]["number"],
        rollouts=tuple(_rollout(found) for found in row.rolling or ()),
        problems=tuple(_problem(found) for found in row.hurting or ()),
    )


async def list_rollouts(
    conn: AsyncConnection, cluster: str | None, *, from_at: datetime, to_at: datetime, limit: int = 1000
) -> list[Rollout]:
    """Rollouts that began in [from_at, to_at), newest first."""
    values = {"from_at": from_at, "to_at": to_at} | ({} if cluster is None else {"cluster": cluster})
    answer = await conn.execute(_rolled(named=cluster is not None, limit=limit), values)
    return [_rollout(found) for found in answer.scalar_one() or ()]


@lru_cache(maxsize=64)
def _rolled(*, named: bool, limit: int) -> Select[Any]:
    return _several(rolling=_rolling(_mine(named=named)).limit(limit))


def _time(text: str) -> datetime:
    """A time as JSON has it: in UTC, as every session is (database.py)."""
    return datetime.fromisoformat(text)


def _maybe(text: str | None) -> datetime | None:
    return None if text is None else _time(text)


def _sources(found: dict[str, str] | None) -> dict[str, datetime]:
    """The newest first."""
    return dict(sorted(((name, _time(at)) for name, at in (found or {}).items()), key=lambda one: one[1], reverse=True))


def _seen(row: Row[Any], from_at: datetime | None, to_at: datetime | None) -> Seen:
    recorded = [
        Gap(found["cluster"], found["kind"], _time(found["from_at"]), _time(found["to_at"]), found["why"])
        for found in reversed(row.blind or ())
    ]
    told = row.followed or ()
    followed = tuple(msgspec.convert(found, Followed) for found in told)
    unseen = tuple(gap for one, found in zip(followed, told, strict=True) for gap in one.gaps(_time(found["now"])))
    within = [gap for gap in unseen if (not from_at or gap.to_at > from_at) and (not to_at or gap.from_at < to_at)]
    return Seen(
        freshness=tuple(Freshness(found["name"], _sources(found["sources"])) for found in row.fresh or ()),
        gaps=tuple(sorted([*recorded, *within], key=lambda gap: (gap.from_at, gap.cluster, gap.kind))),
        kinds=tuple(found["kind"] for found in row.known or ()),
        unseen=unseen,
        followed=followed,
    )


def _mark(found: dict[str, Any]) -> Mark:
    at = _time(found["at"])
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
        started_at=_time(found["started_at"]),
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
        first_at=_time(found["first_at"]),
        last_at=_time(found["last_at"]),
        count=found["number"],
    )
