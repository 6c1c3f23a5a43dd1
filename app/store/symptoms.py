"""Symptoms: a repeat raises the count and moves the end, and never makes a second row."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

from msgspec.structs import replace
from sqlalchemy import Row, bindparam, func, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from app.core.changes.symptoms import SPELL
from app.core.model import Resource, Symptom, SymptomSource
from app.store import codec, codes, partitions, tables

_table = tables.symptoms
_LASTING = timedelta(days=1)
"""What hurts for longer is told once more by who goes on after it."""
_SELECTED = select(_table, _table.c["count"].label("times")).order_by(_table.c.at, _table.c.fingerprint)
_WINDOW = _SELECTED.where(
    _table.c.cluster_id == bindparam("cluster"), _table.c.at.between(bindparam("start"), bindparam("end"))
)


def _place(resource: Resource | None) -> list[str | None] | None:
    if resource is None:
        return None
    return [resource.api_group, resource.kind, resource.namespace, resource.name]


def _merge(known: Symptom, told: Symptom) -> Symptom:
    ends = [end for end in (known.ended_at, told.ended_at) if end is not None]
    times = [at for at in (known.told_at, told.told_at) if at is not None]
    return replace(
        known,
        count=max(known.count, told.count),
        ended_at=max(ends, default=None),
        message=max(known.message, told.message),
        severity=min(known.severity, told.severity),  # "info" comes before "warning": what was no harm stays so
        resource=known.resource or told.resource,
        workload=known.workload or told.workload,
        told_at=min(times, default=None),
    )


async def write(conn: AsyncConnection, cluster_id: int, told: Iterable[Symptom]) -> int:
    """Stores or brings up to date; returns how many different symptoms were told."""
    batch: dict[tuple[datetime, str], Symptom] = {}
    for symptom in told:
        key = (symptom.at, symptom.fingerprint)
        batch[key] = _merge(batch[key], symptom) if key in batch else symptom
    if not batch:
        return 0
    await partitions.ensure(conn, "symptoms", (symptom.at for symptom in batch.values()))
    word = await codes.words(conn, {_namespace(symptom) for symptom in batch.values()})
    rows = [
        {
            "cluster_id": cluster_id,
            "at": symptom.at,
            "fingerprint": codec.clean(symptom.fingerprint),
            "source": symptom.source.value,
            "reason": codec.clean(symptom.reason),
            "resource": _place(symptom.resource),
            "workload": _place(symptom.workload),
            "namespace_id": word[_namespace(symptom)],
            "message": codec.clean(symptom.message),
            "severity": codec.clean(symptom.severity),
            "count": symptom.count,
            "ended_at": symptom.ended_at,
            "labels": [list(label) for label in symptom.labels],
            "told_at": symptom.told_at,
        }
        for symptom in batch.values()
    ]
    statement = insert(_table)
    new, old = statement.excluded, _table.c
    await conn.execute(
        statement.on_conflict_do_update(
            index_elements=["cluster_id", "at", "fingerprint"],
            set_={
                "count": func.greatest(old.count, new.count),
                "ended_at": func.greatest(old.ended_at, new.ended_at),
                "message": func.greatest(old.message, new.message),
                "severity": func.least(old.severity, new.severity),  # as _merge has it
                "resource": func.coalesce(old.resource, new.resource),
                "workload": func.coalesce(old.workload, new.workload),
                "told_at": func.least(old.told_at, new.told_at),
            },
        ),
        rows,
    )
    return len(rows)


def _namespace(symptom: Symptom) -> str:
    place = symptom.workload or symptom.resource
    return (place.namespace if place else None) or ""


def _symptom(row: Row[Any], cluster: str) -> Symptom:
    def resource(place: list[Any] | None) -> Resource | None:
        return Resource(cluster, *place) if place else None

    return Symptom(
        SymptomSource(row.source),
        row.reason,
        row.at,
        row.fingerprint,
        resource=resource(row.resource),
        workload=resource(row.workload),
        message=row.message,
        severity=row.severity,
        count=row.times,  # row.count is the method of every tuple
        ended_at=row.ended_at,
        labels=tuple((name, value) for name, value in row.labels),
        told_at=row.told_at,
    )


async def read_window(conn: AsyncConnection, cluster: str, start: datetime, end: datetime) -> list[Symptom]:
    """The symptoms that began in [start, end], oldest first."""
    asked = {"cluster": await codes.find_cluster(conn, cluster), "start": start, "end": end}
    return [_symptom(row, cluster) for row in await conn.execute(_WINDOW, asked)]


async def read_open(conn: AsyncConnection, cluster: str, at: datetime) -> list[Symptom]:
    """What hurt at ``at`` and had not ended as far as is recorded, and warnings that may go on; no alerts."""
    number = await codes.find_cluster(conn, cluster)
    c = _table.c
    lasting = c.source.in_([SymptomSource.POD, SymptomSource.NODE, SymptomSource.CONDITION]) & c.ended_at.is_(None)
    warned = (c.source == SymptomSource.EVENT) & (c.at > at - SPELL)
    statement = _SELECTED.where(c.cluster_id == number, c.at.between(at - _LASTING, at), lasting | warned)
    return [_symptom(row, cluster) for row in await conn.execute(statement)]
