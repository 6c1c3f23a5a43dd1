"""From when to when each source tells of a cluster: a quiet one is recorded too, though it has no newest change."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from sqlalchemy import func, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from app.core.model import Batch, SymptomSource
from app.store import tables

AUDIT_LOG, WATCH, DUMP, HISTORY = "audit log", "watch", "dump", "history"
METRICS, ALERTS, EXTERNAL = "metrics", "alerts", "external"
TELL_OF_CHANGES = frozenset({AUDIT_LOG, WATCH})
"""Where one of these reaches and there is no change, there was none; the others would not have told. A dump neither: it
holds some objects as they were at one time. What a cluster remembers of its past (history) is not all of it."""
TELL_OF_HARM = TELL_OF_CHANGES | {METRICS}
"""From what of these tell it is seen by itself that something turned bad: a write fight, calls, metrics."""
_SOURCES = {"audit": AUDIT_LOG, "watch": WATCH, "state": DUMP, "history": HISTORY, "external": EXTERNAL}


def reach(batch: Batch) -> dict[str, tuple[datetime, datetime]]:
    """The oldest and the newest time that a batch tells of, by what told it, and none that was to come when it was
    read: one line of a wrong clock would else be believed until then."""
    found: dict[str, tuple[datetime, datetime]] = {}
    for source, *told in _told(batch):
        first, last = (min(at, batch.read_at) if batch.read_at else at for at in told)
        known = found.get(source, (first, last))
        found[source] = min(known[0], first), max(known[1], last)
    return found


def _told(batch: Batch) -> Iterator[tuple[str, datetime, datetime]]:
    yield from ((source, at, at) for source, at in batch.read_to)
    times: dict[frozenset[str], tuple[datetime, datetime]] = {}
    for change in (*batch.changes, *batch.improvements):
        first, last = times.get(change.sources, (change.at, change.at))
        times[change.sources] = min(first, change.at), max(last, change.at)
    yield from ((_SOURCES[source], *both) for sources, both in times.items() for source in sources)
    if batch.requests:
        asked = [request.at for request in batch.requests]
        yield AUDIT_LOG, min(asked), max(asked)
    if batch.calls:
        slots = [call.slot for call in batch.calls]
        yield AUDIT_LOG, datetime.fromtimestamp(min(slots), UTC), datetime.fromtimestamp(max(slots), UTC)
    measured = [one.times for one in batch.series if one.times]
    if measured:
        first_at, last_at = min(told[0] for told in measured), max(told[-1] for told in measured)
        yield METRICS, datetime.fromtimestamp(first_at, UTC), datetime.fromtimestamp(last_at, UTC)
    alerts = (symptom.at for symptom in batch.symptoms if symptom.source is SymptomSource.ALERT)
    yield from ((ALERTS, at, at) for at in alerts)


async def write(conn: AsyncConnection, cluster_id: int, batch: Batch) -> None:
    """Moves what is recorded from when back, and up to when forward, never the other way, in the transaction that
    records the batch."""
    rows = [
        {"cluster_id": cluster_id, "source": name, "from_at": first, "to_at": last}
        for name, (first, last) in sorted(reach(batch).items())
    ]
    if not rows:
        return
    statement = insert(tables.recorded)
    new, old = statement.excluded, tables.recorded.c
    await conn.execute(
        statement.on_conflict_do_update(
            index_elements=["cluster_id", "source"],
            set_={"from_at": func.least(old.from_at, new.from_at), "to_at": func.greatest(old.to_at, new.to_at)},
            where=(old.to_at < new.to_at) | (old.from_at > new.from_at),
        ),
        rows,
    )


async def read(conn: AsyncConnection, cluster: str) -> dict[str, datetime]:
    """Up to when each source tells of a cluster; none of one that is not known."""
    told, clusters = tables.recorded.c, tables.clusters.c
    query = select(told.source, told.to_at).where(told.cluster_id == clusters.id, clusters.name == cluster)
    return {row.source: row.to_at for row in await conn.execute(query)}
