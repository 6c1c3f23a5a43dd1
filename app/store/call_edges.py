"""Who calls whom, as service meshes count it: an edge that is told again is one, seen for longer."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.core.edges.mesh_calls import MOST_EDGES
from app.core.model import CallEdge
from app.store import codec

KEPT = timedelta(days=7)
"""So long an edge holds that is not seen any more: what calls once a week is still known."""
_UPSERT = text(
    "INSERT INTO call_edges (cluster_id, caller_namespace, caller, kind, callee_namespace, callee, first_seen,"
    " last_seen) SELECT :cluster, * FROM unnest(CAST(:c0 AS text[]), CAST(:c1 AS text[]), CAST(:c2 AS text[]),"
    " CAST(:c3 AS text[]), CAST(:c4 AS text[]), CAST(:c5 AS timestamptz[]), CAST(:c6 AS timestamptz[]))"
    " ON CONFLICT (cluster_id, caller_namespace, caller, kind, callee_namespace, callee) DO UPDATE"
    " SET first_seen = least(call_edges.first_seen, excluded.first_seen),"
    " last_seen = greatest(call_edges.last_seen, excluded.last_seen)"
    " WHERE call_edges.first_seen > excluded.first_seen OR call_edges.last_seen < excluded.last_seen"
)
_BOUND = text(
    "DELETE FROM call_edges WHERE cluster_id = :cluster AND ctid = ANY(ARRAY(SELECT ctid FROM call_edges"
    " WHERE cluster_id = :cluster ORDER BY last_seen DESC, first_seen OFFSET :most))"
)
_SEEN = text(
    "SELECT caller_namespace, caller, kind, callee_namespace, callee, first_seen, last_seen FROM call_edges"
    " JOIN clusters ON clusters.id = cluster_id WHERE clusters.name = :cluster"
    " AND first_seen <= :at AND last_seen >= :since ORDER BY last_seen DESC LIMIT :most"
)
_FORGET = text(
    "DELETE FROM call_edges USING (SELECT cluster_id, max(to_at) AS to_at FROM recorded GROUP BY cluster_id) AS told"
    " WHERE told.cluster_id = call_edges.cluster_id AND last_seen < least(told.to_at, :now) - :kept"
)


async def write(conn: AsyncConnection, cluster_id: int, told: Iterable[CallEdge], *, most: int = MOST_EDGES) -> None:
    """Stores edges, or brings up to date when they were seen; of a cluster the ``most`` that were seen last."""
    rows: dict[tuple[str, ...], tuple[datetime, datetime]] = {}
    for one in told:
        key = tuple(map(codec.clean, (*one.caller, one.kind, *one.callee)))
        first, last = rows.get(key, (one.first_seen, one.last_seen))
        rows[key] = min(first, one.first_seen), max(last, one.last_seen)
    if not rows:
        return
    columns = zip(*((*key, *seen) for key, seen in sorted(rows.items())), strict=True)
    await conn.execute(_UPSERT, {"cluster": cluster_id, **{f"c{n}": list(one) for n, one in enumerate(columns)}})
    await conn.execute(_BOUND, {"cluster": cluster_id, "most": most})


async def read(conn: AsyncConnection, cluster: str, at: datetime, *, limit: int = MOST_EDGES) -> list[CallEdge]:
    """The edges of a cluster that had been seen by then, and not too long before."""
    asked = {"cluster": cluster, "at": at, "since": at - KEPT, "most": limit}
    return [
        CallEdge((caller_namespace, caller), kind, (callee_namespace, callee), *seen)
        for caller_namespace, caller, kind, callee_namespace, callee, *seen in (await conn.execute(_SEEN, asked)).all()
    ]


async def forget(conn: AsyncConnection, now: datetime) -> None:
    """Deletes what was not seen for so long, up to when its cluster is recorded: an import is of its own time."""
    await conn.execute(_FORGET, {"now": now, "kept": KEPT})
