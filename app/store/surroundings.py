"""What surrounds the changes of a window: rollouts, problems, blind spots, how far the record reaches."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Row, Select, func, literal, literal_column, select
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.ext.asyncio import AsyncConnection

from app.core.model import Gap, Outcome, Progress, Resource, Rollout
from app.core.timeline import Problem
from app.store.tables import changes, clusters, gaps, kinds, objects, rollouts, symptoms, words


@dataclass(frozen=True, slots=True)
class Freshness:
    """Up to when a cluster is recorded: the time of its newest change; None before the first."""

    cluster: str
    at: datetime | None


async def list_rollouts(
    conn: AsyncConnection, cluster: str | None, *, from_at: datetime, to_at: datetime, limit: int = 1000
) -> list[Rollout]:
    """Rollouts that began in [from_at, to_at), newest first."""
    namespace = words.alias("namespace")
    query = (
        select(
            rollouts,
            clusters.c.name.label("cluster"),
            kinds.c.api_group,
            kinds.c.kind,
            namespace.c.word.label("namespace"),
            objects.c.name,
            objects.c.uid,
        )
        .join(clusters, clusters.c.id == rollouts.c.cluster_id)
        .join(objects, objects.c.id == rollouts.c.object_id)
        .join(kinds, kinds.c.id == objects.c.kind_id)
        .outerjoin(namespace, namespace.c.id == objects.c.namespace_id)
        .where(rollouts.c.started_at >= from_at, rollouts.c.started_at < to_at)
        .order_by(rollouts.c.started_at.desc(), rollouts.c.object_id)
        .limit(limit)
    )
    if cluster is not None:
        query = query.where(clusters.c.name == cluster)
    return [_rollout(row) for row in await conn.execute(query)]


def _rollout(row: Row[Any]) -> Rollout:
    return Rollout(
        resource=Resource(row.cluster, row.api_group, row.kind, row.namespace, row.name),
        uid=row.uid,
        generation=row.generation,
        started_at=row.started_at,
        outcome=Outcome(row.outcome),
        ended_at=row.ended_at,
        change_id=row.change_id,
        images=tuple(row.images),
        images_before=tuple(row.images_before),
        progress=tuple(Progress(datetime.fromtimestamp(at, UTC), *counts) for at, *counts in row.progress),
        reason=row.reason,
    )


@dataclass(frozen=True, slots=True)
class Surroundings:
    """One round trip's worth of context: gaps and problems of a window, freshness of the clusters asked about."""

    gaps: tuple[Gap, ...]
    problems: tuple[Problem, ...]
    freshness: tuple[Freshness, ...]


def _rows(query: Select[Any]) -> Any:
    """A whole result as one JSON value, so that several come in one round trip."""
    inner = query.subquery()
    row = func.to_jsonb(literal_column(inner.name if isinstance(inner.name, str) else "anon"))
    return select(func.coalesce(func.jsonb_agg(row), literal("[]", JSONB))).select_from(inner).scalar_subquery()


async def read_surroundings(
    conn: AsyncConnection, cluster: str | None, *, from_at: datetime | None, to_at: datetime | None, problems: int = 0
) -> Surroundings:
    """Gaps that touch [from_at, to_at), up to ``problems`` of its problems (most first), and the freshness.

    None for a time leaves that side open. One query.
    """
    of_clusters = select(clusters.c.id, clusters.c.name)
    if cluster is not None:
        of_clusters = of_clusters.where(clusters.c.name == cluster)
    mine = of_clusters.cte("mine")
    newest = select(func.max(changes.c.at)).where(changes.c.cluster_id == mine.c.id).scalar_subquery()
    blind = (
        select(mine.c.name.label("cluster"), gaps.c.kind, gaps.c.from_at, gaps.c.to_at, gaps.c.why)
        .join(mine, mine.c.id == gaps.c.cluster_id)
        .order_by(gaps.c.from_at.desc())
        .limit(100)
    )
    what = func.coalesce(symptoms.c.workload, symptoms.c.resource)
    hurting = (
        select(
            symptoms.c.reason,
            what.label("what"),
            func.min(symptoms.c.at).label("first_at"),
            func.max(symptoms.c.at).label("last_at"),
            func.sum(symptoms.c.count).label("count"),
        )
        .join(mine, mine.c.id == symptoms.c.cluster_id)
        .where(symptoms.c.source != "alert")
        .group_by(symptoms.c.reason, what)
        .order_by(func.sum(symptoms.c.count).desc())
        .limit(problems)
    )
    if from_at is not None:
        blind = blind.where(gaps.c.to_at > from_at)
        hurting = hurting.where(symptoms.c.at >= from_at)
    if to_at is not None:
        blind = blind.where(gaps.c.from_at < to_at)
        hurting = hurting.where(symptoms.c.at < to_at)
    row = (
        await conn.execute(
            select(
                _rows(blind).label("gaps"),
                _rows(hurting).label("problems"),
                _rows(select(mine.c.name, newest.label("at")).order_by(mine.c.name)).label("freshness"),
            )
        )
    ).one()
    return Surroundings(
        gaps=tuple(
            Gap(gap["cluster"], gap["kind"], _time(gap["from_at"]), _time(gap["to_at"]), gap["why"])
            for gap in reversed(row.gaps)
        ),
        problems=tuple(_problem(found) for found in row.problems),
        freshness=tuple(
            Freshness(one["name"], None if one["at"] is None else _time(one["at"])) for one in row.freshness
        ),
    )


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)


def _problem(found: dict[str, Any]) -> Problem:
    _group, kind, namespace, name = found["what"] or ["", "", None, ""]
    return Problem(
        found["reason"],
        kind,
        namespace,
        name,
        first_at=_time(found["first_at"]),
        last_at=_time(found["last_at"]),
        count=found["count"],
    )


async def list_gaps(
    conn: AsyncConnection, cluster: str | None, *, from_at: datetime | None, to_at: datetime | None
) -> list[Gap]:
    """What was not seen in a window, oldest first."""
    return list((await read_surroundings(conn, cluster, from_at=from_at, to_at=to_at)).gaps)
