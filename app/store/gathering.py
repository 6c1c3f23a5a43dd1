"""Everything recorded around an incident -> what its ranking is made of."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from app.core.counted import Calls
from app.core.findings import Incident
from app.core.incidents.bundles import LOOKS_BACK
from app.core.model import Change, MetricSeries
from app.core.ranking.shortlist import Unread, shortlist, unread
from app.core.ranking.suspects import Gathered
from app.core.signals.collected import RANKED
from app.store import call_edges, calls, changes, objects, rollouts, series, symptoms
from app.store.seen import read_seen
from app.store.sketches import read_sketches

CALLS_WINDOW = timedelta(hours=2)
LOOKED_OVER = 20_000
"""Changes of a day that are looked over, the newest, to choose MOST_READ of them to be weighed."""
MOST_READ = 600
MOST_FOUGHT = 5000
"""Changes that are read for a write fight: at 50 writes a second, a hundred seconds of it."""
LARGE = 64 << 10
"""Bytes, as stored, from which on neither an object's state nor the values of a change are read to rank: what leads
from one object to another is told in few, and hundreds of objects of a megabyte take more memory than is promised."""


async def gather(engine: AsyncEngine, incident: Incident, now: datetime) -> Gathered:
    """Everything recorded of the incident's cluster that may matter, up to ``now``.

    Over two connections, neither held while the other is waited for: PostgreSQL looks for the changes and what else
    happened while calls and metrics, the most by far, are decoded.
    """
    start = incident.started_at - CALLS_WINDOW
    happened, (counted, measured) = await asyncio.gather(
        _happened(engine, incident, start, now), _measured(engine, incident, start, now)
    )
    return replace(happened, calls=counted, series=tuple(measured))


async def _measured(
    engine: AsyncEngine, incident: Incident, start: datetime, now: datetime
) -> tuple[Calls, list[MetricSeries]]:
    cluster, near = incident.cluster, incident.scope.namespaces
    async with engine.connect() as conn:
        counted = await calls.read(conn, cluster, start, now)
        return counted, await series.read(conn, cluster, start, now, names=RANKED, near=near)


async def _happened(engine: AsyncEngine, incident: Incident, start: datetime, now: datetime) -> Gathered:
    """All that is neither counted nor measured."""
    cluster, long_ago = incident.cluster, incident.started_at - LOOKS_BACK
    async with engine.connect() as conn:
        made, left = await _made(conn, incident, now)
        names = {one.resource.name for one in made}
        return Gathered(
            incident=incident,
            start=start,
            now=now,
            changes=tuple(made),
            unread=left,
            unseen=(await read_seen(conn, cluster, from_at=start, to_at=now)).gaps,
            edges=tuple(await call_edges.read(conn, cluster, now)),
            symptoms=tuple(await symptoms.read_window(conn, cluster, start, now)),
            rollouts=tuple(await rollouts.read_window(conn, cluster, long_ago, now)),
            states=tuple(await objects.load_ranked(conn, cluster, changed=names, most_bytes=LARGE)),
            gone=tuple(await objects.load_gone_pods(conn, cluster, since=start)),
        )


async def _made(conn: AsyncConnection, incident: Incident, now: datetime) -> tuple[list[Change], Unread]:
    """The changes that are likely beforehand, and what is known of the others."""
    cluster, alert = incident.cluster, incident.started_at
    start = alert - LOOKS_BACK
    rows, keys = await read_sketches(conn, cluster, start, now, near=incident.scope.namespaces, limit=LOOKED_OVER)
    chosen = shortlist(rows, alert=alert.timestamp(), most=MOST_READ, blows=MOST_FOUGHT)
    read = keys[chosen]
    oldest = datetime.fromtimestamp(rows.at[chosen].min(initial=now.timestamp()) // 1, UTC)
    found = await changes.read_chosen(conn, cluster, read.tolist(), start=oldest, end=now, most_bytes=LARGE)
    return found, unread(rows, chosen, read)
