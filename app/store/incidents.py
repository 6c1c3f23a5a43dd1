"""Incidents and their rankings: saved by correlation, read by pages and REST."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, Float, Row, ScalarSelect, Select, func, select, true, tuple_, union_all, update
from sqlalchemy.dialects.postgresql import aggregate_order_by, insert
from sqlalchemy.ext.asyncio import AsyncConnection

from app.core.findings import Incident, Onset, Origin, Ranking, Said, Scope, Unlisted, Verdict
from app.core.incidents.bundles import LOOKS_AHEAD, LOOKS_BACK
from app.core.model import Symptom
from app.store import partitions
from app.store.tables import changes, clusters, incidents, rankings, requests, symptoms, verdicts
from app.store.verdicts import with_parts


def _cluster_id(cluster: str) -> ScalarSelect[int]:
    return select(clusters.c.id).where(clusters.c.name == cluster).scalar_subquery()


async def save_incident(conn: AsyncConnection, incident: Incident) -> None:
    """Inserts the incident, or replaces what its alerts and people say of it; what its ranking found stays.

    Its cluster must exist (IntegrityError otherwise).
    """
    told = {
        "cluster_id": _cluster_id(incident.cluster),
        "title": incident.title,
        "status": incident.status,
        "severity": incident.severity,
        "started_at": incident.started_at,
        "resolved_at": incident.resolved_at,
        "scope": msgspec.to_builtins(incident.scope),
        "alerts": msgspec.to_builtins(incident.alerts),
        "first_alert_at": min((alert.at for alert in incident.alerts), default=incident.started_at),
        "last_alert_at": max((alert.at for alert in incident.alerts), default=incident.started_at),
        "origin": incident.origin.value,
        "opened_by": incident.opened_by,
        "said": {name: value for name, value in msgspec.to_builtins(incident.said).items() if value is not None},
        "merged_into": incident.merged_into,
        "news_at": func.clock_timestamp(),
    }
    found = {"onset": msgspec.to_builtins(incident.onset), "ranked_at": incident.ranked_at}
    statement = insert(incidents).values(id=incident.id, **told, **found)
    await conn.execute(
        statement.on_conflict_do_update(index_elements=["id"], set_={name: statement.excluded[name] for name in told})
    )


async def note_news(conn: AsyncConnection, cluster_id: int, *, from_at: datetime, to_at: datetime) -> None:
    """Marks the incidents that what is recorded of [from_at, to_at] may matter to: they are to be ranked again."""
    await conn.execute(
        update(incidents)
        .where(
            incidents.c.cluster_id == cluster_id,
            incidents.c.started_at >= from_at - LOOKS_AHEAD,
            incidents.c.started_at <= to_at + LOOKS_BACK,
        )
        .values(news_at=func.clock_timestamp())
    )


async def read_news(conn: AsyncConnection, incident_id: str) -> datetime | None:
    """When what may matter to an incident was last recorded, as far as this transaction sees."""
    return (await conn.execute(select(incidents.c.news_at).where(incidents.c.id == incident_id))).scalar_one_or_none()


async def save_ranking(conn: AsyncConnection, ranking: Ranking, *, news_at: datetime | None = None) -> None:
    """Keeps the ranking (every one is kept) and moves its incident to the onset that it found, unless a newer one did.

    ``news_at`` is what read_news said before what the ranking rests on was read; without it the ranking counts as made
    of what is recorded by now. Saving the same (incident, ``ranked_at``) again replaces it. Raises LookupError for an
    unknown incident.
    """
    its = incidents.c.id == ranking.incident_id
    await conn.execute(
        update(incidents)
        .where(its, func.coalesce(incidents.c.ranked_at <= ranking.ranked_at, true()))
        .values(
            onset=msgspec.to_builtins(ranking.onset),
            ranked_at=ranking.ranked_at,
            ranked_news_at=news_at or func.clock_timestamp(),
        )
    )
    cluster_id = (await conn.execute(select(incidents.c.cluster_id).where(its))).scalar_one_or_none()
    if cluster_id is None:
        raise LookupError(f"no incident {ranking.incident_id}")
    await partitions.ensure(conn, "rankings", [ranking.ranked_at])
    statement = insert(rankings).values(
        cluster_id=cluster_id,
        at=ranking.ranked_at,
        incident_id=ranking.incident_id,
        payload=msgspec.to_builtins(ranking),
    )
    await conn.execute(
        statement.on_conflict_do_update(
            index_elements=["cluster_id", "at", "incident_id"], set_={"payload": statement.excluded.payload}
        )
    )


_UNMERGED = incidents.c.merged_into.is_(None)
_CALLED_FOR = incidents.c.status.not_in(["suspected", "merged"])


def _incidents() -> Select[Any]:
    v = verdicts.c
    each = func.jsonb_build_object("change_id", v.change_id, "opinion", v.opinion, "by", v.said_by, "at", v.said_at)
    said = select(func.jsonb_agg(aggregate_order_by(each, v.said_at))).where(
        v.incident_id.in_(with_parts(incidents.c.id))
    )
    columns = (clusters.c.name.label("cluster"), said.scalar_subquery().label("verdicts"))
    return select(incidents, *columns).join(clusters, clusters.c.id == incidents.c.cluster_id)


def _incident(row: Row[Any]) -> Incident:
    return Incident(
        id=row.id,
        cluster=row.cluster,
        title=row.title,
        status=row.status,
        severity=row.severity,
        started_at=row.started_at,
        resolved_at=row.resolved_at,
        scope=msgspec.convert(row.scope, Scope),
        onset=msgspec.convert(row.onset, Onset | None),
        alerts=tuple(msgspec.convert(alert, Unlisted if "end" in alert else Symptom) for alert in row.alerts),
        ranked_at=row.ranked_at,
        origin=Origin(row.origin),
        opened_by=row.opened_by,
        said=msgspec.convert(row.said, Said),
        merged_into=row.merged_into,
        verdicts=_last_of_each(msgspec.convert(row.verdicts or [], list[Verdict])),
    )


def _last_of_each(said: list[Verdict]) -> tuple[Verdict, ...]:
    """Of each change the last that was said, of the incident or of a part of it, in the order in which it was."""
    last = {verdict.change_id: verdict for verdict in said}
    return tuple(verdict for verdict in said if last[verdict.change_id] is verdict)


def _newest_payload() -> Select[Any]:
    return (
        select(rankings.c.payload)
        .where(rankings.c.incident_id == incidents.c.id, rankings.c.at == incidents.c.ranked_at)
        .limit(1)
    )


async def read_incident(conn: AsyncConnection, incident_id: str) -> tuple[Incident, Ranking | None] | None:
    """The incident and its newest ranking (None: not ranked yet); None for an unknown id. One query."""
    newest = _newest_payload().scalar_subquery().label("payload")
    row = (await conn.execute(_incidents().add_columns(newest).where(incidents.c.id == incident_id))).one_or_none()
    if row is None:
        return None
    return _incident(row), None if row.payload is None else msgspec.convert(row.payload, Ranking)


async def read_incident_since_first(
    conn: AsyncConnection, incident_id: str
) -> tuple[Incident, Ranking | None, Ranking | None] | None:
    """As read_incident, and the incident's first ranking, which says what moved since; None where the newest is the
    first. One query."""
    r = rankings.c
    earlier = select(r.payload).where(r.incident_id == incidents.c.id, r.at < incidents.c.ranked_at)
    first = earlier.order_by(r.at).limit(1).scalar_subquery().label("first")
    newest = _newest_payload().scalar_subquery().label("payload")
    query = _incidents().add_columns(newest, first).where(incidents.c.id == incident_id)
    row = (await conn.execute(query)).one_or_none()
    if row is None:
        return None
    return _incident(row), msgspec.convert(row.payload, Ranking | None), msgspec.convert(row.first, Ranking | None)


async def read_incidents(conn: AsyncConnection, ids: Sequence[str]) -> list[Incident]:
    """The incidents of these ids, the oldest first. One query."""
    query = _incidents().where(incidents.c.id.in_(ids)).order_by(incidents.c.started_at, incidents.c.id)
    return [_incident(row) for row in await conn.execute(query)]


async def move_parts(conn: AsyncConnection, incident_id: str, *, into: str) -> None:
    """What was merged into an incident is a part of ``into`` from now on."""
    await conn.execute(update(incidents).where(incidents.c.merged_into == incident_id).values(merged_into=into))


async def list_incidents(
    conn: AsyncConnection,
    *,
    cluster: str | None = None,
    status: str | None = None,
    namespace: str | None = None,
    before: tuple[datetime, str] | None = None,
    limit: int = 100,
) -> list[Incident]:
    """Incidents, newest first; those about a ``namespace``, where one is named. ``before`` is the (started_at, id) of
    the last one already seen.

    Without ``status`` those that were merged into others, and those that are only suspected, are left out.
    """
    query = _newest(cluster, status, before, limit=limit)
    if namespace is not None:
        query = query.where(incidents.c.scope["namespaces"].has_key(namespace))
    return [_incident(row) for row in await conn.execute(query)]


def _newest(cluster: str | None, status: str | None, before: tuple[datetime, str] | None, *, limit: int) -> Select[Any]:
    query = _incidents().where(_CALLED_FOR if status is None else incidents.c.status == status)
    if cluster is not None:
        query = query.where(clusters.c.name == cluster)
    if before is not None:
        query = query.where(tuple_(incidents.c.started_at, incidents.c.id) < tuple_(*before))
    return query.order_by(incidents.c.started_at.desc(), incidents.c.id.desc()).limit(limit)


async def list_with_suspected(
    conn: AsyncConnection, *, cluster: str | None, before: tuple[datetime, str] | None, limit: int, suspected: int
) -> tuple[list[Incident], list[Incident], dict[str, FirstSuspect | None]]:
    """As list_incidents, beside it the newest that are only suspected, and the first_suspects of both. One query."""
    parts = (_newest(cluster, None, before, limit=limit), _newest(cluster, "suspected", None, limit=suspected))
    both = union_all(*(select(part.subquery()) for part in parts)).subquery()
    newest = (rankings.c.incident_id == both.c.id) & (rankings.c.at == both.c.ranked_at)
    query = select(both, rankings.c.at.label("newest"), *_FIRST).outerjoin(rankings, newest)
    rows = (await conn.execute(query.order_by(both.c.started_at.desc(), both.c.id.desc()))).all()
    found = [_incident(row) for row in rows]
    quiet = [one for one in found if one.status == "suspected"]
    called = [one for one in found if one.status != "suspected"]
    return called, quiet, {row.id: _first(row) for row in rows if row.newest is not None}


async def list_near(conn: AsyncConnection, *, start: datetime, end: datetime) -> list[Incident]:
    """The incidents with an alert's start between two times, or about there: whose alerts span a part of it."""
    query = _incidents().where(incidents.c.started_at <= end, incidents.c.last_alert_at >= start)
    return [_incident(row) for row in await conn.execute(query.order_by(incidents.c.started_at, incidents.c.id))]


async def list_during(conn: AsyncConnection, cluster: str | None, *, start: datetime, end: datetime) -> list[Incident]:
    """The incidents of a cluster, or of all, that had begun by ``end`` and were not resolved before ``start``, nor
    merged; the oldest first."""
    query = _incidents().where(
        true() if cluster is None else clusters.c.name == cluster,
        _UNMERGED,
        func.least(incidents.c.started_at, incidents.c.first_alert_at) <= end,
        incidents.c.resolved_at.is_(None) | (incidents.c.resolved_at >= start),
    )
    return [_incident(row) for row in await conn.execute(query.order_by(incidents.c.started_at, incidents.c.id))]


async def list_unranked(
    conn: AsyncConnection, *, cluster: str | None = None, quiet: timedelta = timedelta(0)
) -> list[Incident]:
    """The incidents of which something was recorded after their newest ranking, and nothing for ``quiet`` since."""
    query = _incidents().where(
        incidents.c.ranked_news_at.is_(None) | (incidents.c.news_at > incidents.c.ranked_news_at),
        incidents.c.news_at <= func.clock_timestamp() - quiet,
        _UNMERGED,
    )
    if cluster is not None:
        query = query.where(clusters.c.name == cluster)
    return [_incident(row) for row in await conn.execute(query.order_by(incidents.c.started_at, incidents.c.id))]


async def first_ranked(conn: AsyncConnection, ids: Sequence[str], *, since: datetime) -> dict[str, datetime]:
    """By incident, as of when it was first ranked, of the rankings since then."""
    r = rankings.c
    query = select(r.incident_id, func.min(r.at)).where(r.incident_id.in_(ids), r.at >= since).group_by(r.incident_id)
    return {row[0]: row[1] for row in await conn.execute(query)}


async def recorded_to(conn: AsyncConnection, cluster: str, *, until: datetime) -> datetime | None:
    """The newest change, write request or symptom of a cluster up to ``until``; None where there is none."""
    newest = [
        select(func.max(log.c.at)).where(log.c.cluster_id == _cluster_id(cluster), log.c.at <= until).scalar_subquery()
        for log in (changes, requests, symptoms)
    ]
    return (await conn.execute(select(func.greatest(*newest)))).scalar_one()  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True)
class Standing:
    """How an incident stands, without its alerts and its ranking: enough to tell whether a page of it is current."""

    id: str
    status: str
    started_at: datetime
    resolved_at: datetime | None
    ranked_at: datetime | None


_STANDING = select(*(incidents.c[field.name] for field in fields(Standing)))


async def read_standing(conn: AsyncConnection, incident_id: str) -> Standing | None:
    """How the incident stands now; None for an unknown id. One query, by the primary key, of one row's columns."""
    row = (await conn.execute(_STANDING.where(incidents.c.id == incident_id))).one_or_none()
    return None if row is None else Standing(*row)


async def list_standings(
    conn: AsyncConnection, *, cluster: str | None = None, limit: int = 100, suspected: int = 0
) -> list[Standing]:
    """How the newest incidents stand, in the order of list_incidents, and behind them the newest that are only
    suspected. One query."""
    parts = (_standings(_CALLED_FOR, cluster, limit), _standings(incidents.c.status == "suspected", cluster, suspected))
    both = union_all(*(select(part.subquery()) for part in parts)).subquery()
    query = select(both).order_by(both.c.status == "suspected", both.c.started_at.desc(), both.c.id.desc())
    return [Standing(*row) for row in await conn.execute(query)]


async def list_followed(conn: AsyncConnection, *, cluster: str | None, limit: int) -> list[Standing]:
    """As list_standings, with those that were merged into others: who follows is told of that. One query."""
    return [Standing(*row) for row in await conn.execute(_standings(incidents.c.status != "suspected", cluster, limit))]


def _standings(which: ColumnElement[bool], cluster: str | None, limit: int) -> Select[Any]:
    query = _STANDING.where(which)
    if cluster is not None:
        query = query.where(incidents.c.cluster_id == _cluster_id(cluster))
    return query.order_by(incidents.c.started_at.desc(), incidents.c.id.desc()).limit(limit)


@dataclass(frozen=True, slots=True)
class FirstSuspect:
    """What the newest ranking of an incident puts first among changes, and the share of "none of these"."""

    kind: str
    name: str
    probability: float
    none_of_these: float

    @property
    def none_leads(self) -> bool:
        """Whether "none of these" is likelier than every change."""
        return self.none_of_these > self.probability

    @classmethod
    def of(cls, ranking: Ranking | None) -> FirstSuspect | None:
        """That of a ranking that has been read; None where nothing is ranked."""
        if ranking is None or not ranking.suspects:
            return None
        first = ranking.suspects[0]
        resource = first.change.resource
        return cls(resource.kind, resource.name, first.probability, ranking.none_of_these)


_suspect = rankings.c.payload["suspects"][0]
_FIRST: tuple[ColumnElement[Any], ...] = (
    _suspect["change"]["resource"]["kind"].astext.label("first_kind"),
    _suspect["change"]["resource"]["name"].astext.label("first_name"),
    _suspect["probability"].astext.cast(Float).label("first_probability"),
    rankings.c.payload["none_of_these"].astext.cast(Float).label("none_of_these"),
)
"""A FirstSuspect, of a ranking of which the rest is not read."""


def _first(row: Row[Any]) -> FirstSuspect | None:
    if row.first_name is None:
        return None
    return FirstSuspect(row.first_kind, row.first_name, row.first_probability, row.none_of_these)


async def first_suspects(conn: AsyncConnection, incident_ids: Sequence[str]) -> dict[str, FirstSuspect | None]:
    """The first suspect of each incident whose ranking there is, None where that has none."""
    query = (
        select(incidents.c.id, *_FIRST)
        .join(rankings, (rankings.c.incident_id == incidents.c.id) & (rankings.c.at == incidents.c.ranked_at))
        .where(incidents.c.id.in_(incident_ids))
    )
    return {row.id: _first(row) for row in await conn.execute(query)}
