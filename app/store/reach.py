"""Up to when each source tells of a cluster: a quiet one is recorded too, though it has no newest change."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from sqlalchemy import select
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


def reach(batch: Batch) -> dict[str, datetime]:
    """The newest time that a batch tells of, by what told it, and none that was to come when it was read: one line of a
    wrong clock would else be believed until then."""
    found: dict[str, datetime] = {}
    for source, told in _told(batch):
        at = min(told, batch.read_at) if batch.read_at else told
        if source not in found or found[source] < at:
            found[source] = at
    return found


def _told(batch: Batch) -> Iterator[tuple[str, datetime]]:
    yield from batch.read_to
    newest: dict[frozenset[str], datetime] = {}
    for change in (*batch.changes, *batch.improvements):
        if change.sources not in newest or newest[change.sources] < change.at:
            newest[change.sources] = change.at
    yield from ((_SOURCES[source], at) for sources, at in newest.items() for source in sources)
    if batch.requests:
        yield AUDIT_LOG, max(request.at for request in batch.requests)
    if batch.calls:
        yield AUDIT_LOG, datetime.fromtimestamp(max(call.slot for call in batch.calls), UTC)
    times = [one.times[-1] for one in batch.series if one.times]
    if times:
        yield METRICS, datetime.fromtimestamp(max(times), UTC)
    yield from ((ALERTS, symptom.at) for symptom in batch.symptoms if symptom.source is SymptomSource.ALERT)


async def write(conn: AsyncConnection, cluster_id: int, batch: Batch) -> None:
    """Moves what is recorded up to when forward, never back, in the transaction that records the batch."""
    rows = [{"cluster_id": cluster_id, "source": name, "to_at": at} for name, at in sorted(reach(batch).items())]
    if not rows:
        return
    statement = insert(tables.recorded)
    new, old = statement.excluded, tables.recorded.c
    await conn.execute(
        statement.on_conflict_do_update(
            index_elements=["cluster_id", "source"], set_={"to_at": new.to_at}, where=old.to_at < new.to_at
        ),
        rows,
    )


async def read(conn: AsyncConnection, cluster: str) -> dict[str, datetime]:
    """Up to when each source tells of a cluster; none of one that is not known."""
    told, clusters = tables.recorded.c, tables.clusters.c
    query = select(told.source, told.to_at).where(told.cluster_id == clusters.id, clusters.name == cluster)
    return {row.source: row.to_at for row in await conn.execute(query)}
