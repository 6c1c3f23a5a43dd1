"""GET /api/v1/incidents?follow=1: those that are there, and then each that is opened, ends, is merged, corrected or
ranked otherwise.

A line is an incident as it stands; what it was in between is not told. So where somebody is needs no place in a log: an
``after`` holds what each of the incidents looked like that they were told of, as a digest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from hashlib import blake2b

import orjson
from fastapi import Request
from sqlalchemy.ext.asyncio import AsyncConnection
from starlette.responses import Response

from app.store import incidents
from app.store.incidents import Standing
from app.web import answers, params, shapes
from app.web.deps import deps_of
from app.web.follow import check_age, follow, line

_SHOWN = {
    *("id", "title", "status", "severity", "started_at", "resolved_at", "namespaces", "workloads", "nodes"),
    *("control_plane", "merged_into", "first_suspect"),
}
"""What of an incident is told again when it becomes another one; shares count in whole percent, as tables show them."""

BEFORE = timedelta(hours=1)
"""So long before somebody began what was not seen is told: it may hide what began an incident that is opened now."""


def looks(incident: shapes.Incident) -> str:
    """The digest of what an incident looks like, in 8 hex digits: of a hundred that somebody was told, one in forty
    million that moved looks as if it had not."""
    shown = incident.model_dump(mode="json", include=_SHOWN)
    first, none = shown["first_suspect"], incident.none_of_these
    if first is not None:
        first["probability"] = f"{first['probability']:.0%}"
    shown["none_of_these"] = None if none is None else f"{none:.0%}"
    return blake2b(orjson.dumps(shown), digest_size=4).hexdigest()


@dataclass(slots=True)
class _Incidents:
    """The newest of a ``cluster`` or of all: ``standings`` as they were last looked at, ``told`` what each looked like
    then, by its id. ``listed`` are to be told of those that were there, the oldest first."""

    cluster: str | None
    clock: Callable[[], datetime]
    gaps_from: datetime
    standings: dict[str, Standing]
    told: dict[str, str]
    listed: Sequence[shapes.Incident] = field(default=())

    def after(self) -> str:
        return f"{int(self.clock().timestamp()):x}_{''.join(self.told.values())}"

    def first(self) -> Iterator[bytes]:
        for incident in self.listed:
            yield self._line(incident)

    async def news(self, conn: AsyncConnection) -> tuple[list[bytes], bool]:
        now = await _standings(conn, self.cluster)
        moved = [incident_id for incident_id, one in now.items() if self.standings.get(incident_id) != one]
        found = await _read(conn, moved)
        self.standings = now
        self.told = {incident_id: looked for incident_id, looked in self.told.items() if incident_id in now}
        return [self._line(one) for one in found if self.told.get(one.id) != looks(one)], False

    def _line(self, incident: shapes.Incident) -> bytes:
        self.told[incident.id] = looks(incident)
        return line(answers.FollowedIncident(incident=incident, after=self.after()))


async def _standings(conn: AsyncConnection, cluster: str | None) -> dict[str, Standing]:
    found = await incidents.list_followed(conn, cluster=cluster, limit=params.WATCHED)
    return {one.id: one for one in found}


async def _read(conn: AsyncConnection, ids: Sequence[str]) -> list[shapes.Incident]:
    """The incidents of these ids, the oldest first."""
    if not ids:
        return []
    found = await incidents.read_incidents(conn, ids)
    first = await incidents.first_suspects(conn, ids)
    return [shapes.Incident.listed(one, first.get(one.id)) for one in found]


async def follow_incidents(request: Request, cluster: str | None, *, since: str | None, limit: int) -> Response:
    """The answer to who follows the incidents of a cluster, or of all. Raises as follow does."""
    clock = deps_of(request).clock
    now = clock()
    made, _, digests = (since or f"{int(now.timestamp()):x}_").partition("_")
    made_at = check_age(made, now)
    known = {digests[place : place + 8] for place in range(0, len(digests), 8)}

    async def begin(conn: AsyncConnection) -> _Incidents:
        standings = await _standings(conn, cluster)
        found = await _read(conn, list(standings))
        if since is None:
            listed = [one for one in found if one.status != "merged"][-limit:]
        else:
            listed = [one for one in found if looks(one) not in known]
        ids = {one.id for one in listed}
        told = {one.id: looks(one) for one in found if one.id not in ids}
        return _Incidents(cluster, clock, made_at - BEFORE, standings, told, listed)

    return await follow(request, begin)
