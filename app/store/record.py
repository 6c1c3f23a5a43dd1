"""The single door in: what a collector learned, recorded once however often it is told."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.core.clusters import About
from app.core.model import Batch
from app.store import (
    call_edges,
    calls,
    changes,
    codec,
    codes,
    gaps,
    incidents,
    objects,
    positions,
    quarantine,
    reach,
    remarks,
    requests,
    rollouts,
    series,
    symptoms,
)

WRITER_LOCK = 0x466F7265
"""With the cluster's id, the advisory lock of one writer a cluster. It never meets store.migrate's, of one number."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """What a batch added. ``improved`` counts changes that were known and are now known better.

    ``repeated`` is true when the batch's positions were recorded before: what only adds up (calls, requests,
    rejects) was then left out.
    """

    changes: int = 0
    improved: int = 0
    objects: int = 0
    rollouts: int = 0
    calls: int = 0
    requests: int = 0
    symptoms: int = 0
    samples: int = 0
    gaps: int = 0
    rejects: int = 0
    repeated: bool = False


async def lock(conn: AsyncConnection, cluster: str) -> int:
    """The cluster's id, once no other transaction writes of the cluster; none will until this one ends."""
    cluster_id = await codes.cluster(conn, cluster)
    await conn.execute(
        text("SELECT pg_advisory_xact_lock(:lock, :cluster)"), {"lock": WRITER_LOCK, "cluster": cluster_id}
    )
    return cluster_id


async def record(conn: AsyncConnection, batch: Batch) -> Recorded:
    """Records a batch within the caller's transaction; the caller commits, and tries again after an error.

    Changes, objects, rollouts, symptoms, samples, edges and gaps carry keys of their own: they may be told again, in
    any order and division. Calls, requests and rejects only add up: they are counted once for the positions that come
    with them, and a batch without positions is counted each time. Every time must be storable
    (partitions.storable). A second writer of the cluster waits for this transaction's end.
    """
    cluster_id = await lock(conn, batch.cluster)
    await quarantine.drop_again(conn, cluster_id, batch.grown)
    repeated = await positions.covered(conn, cluster_id, batch.positions)
    stored = await objects.upsert(conn, cluster_id, batch.objects)
    new, improved = await changes.write(conn, cluster_id, batch.changes, improvements=batch.improvements)
    recorded = Recorded(
        changes=new,
        improved=improved,
        objects=stored,
        rollouts=await rollouts.write(conn, cluster_id, batch.rollouts),
        symptoms=await symptoms.write(conn, cluster_id, batch.symptoms),
        samples=await series.write(conn, cluster_id, batch.series),
        gaps=await gaps.write(conn, cluster_id, batch.gaps),
        calls=0 if repeated else await calls.write(conn, cluster_id, batch.calls),
        requests=0 if repeated else await requests.write(conn, cluster_id, batch.requests),
        rejects=0 if repeated else await quarantine.write(conn, cluster_id, batch.rejects),
        repeated=repeated,
    )
    await _remark(conn, batch, recorded.rejects)
    await call_edges.write(conn, cluster_id, batch.edges)
    await positions.write(conn, cluster_id, batch.positions)
    await reach.write(conn, cluster_id, batch)
    times = list(_times(batch))
    if times:
        await incidents.note_news(conn, cluster_id, from_at=min(times), to_at=max(times))
    return recorded


async def _remark(conn: AsyncConnection, batch: Batch, rejects: int) -> None:
    """Say of the cluster that some of what was told of it cannot be read. Not what a file ended within, which goes on
    with it."""
    last = next((one for one in reversed(batch.rejects) if not one.again), None) if rejects else None
    if last is not None:
        why = codec.clean(f"{last.source}, line {last.line}: {last.reason}")
        await remarks.note(conn, batch.cluster, About.UNREADABLE, why, now=datetime.now(UTC))


def _times(batch: Batch) -> Iterator[datetime]:
    """When what a batch tells of was."""
    yield from (one.at for told in (batch.changes, batch.improvements, batch.requests, batch.symptoms) for one in told)
    yield from (state.seen_at for state in batch.objects)
    yield from (rollout.started_at for rollout in batch.rollouts)
    yield from (datetime.fromtimestamp(slot, UTC) for slot in {call.slot for call in batch.calls})
    yield from (datetime.fromtimestamp(one.times[end], UTC) for one in batch.series if one.times for end in (0, -1))
    yield from (at for gap in batch.gaps for at in (gap.from_at, gap.to_at))
