"""Who follows each cluster: one process at a time, under an epoch that is checked when what watches told is written.

The lease only says who should. A process that was stalled may believe that it still has it: the epoch, read under a
lock in the transaction that writes, decides.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum

import msgspec
from sqlalchemy import exists, func, or_, select, text, update
from sqlalchemy.ext.asyncio import AsyncConnection

from app.core.watching import Watching
from app.store import codes
from app.store.reach import TELL_OF_HARM
from app.store.record import WRITER_LOCK
from app.store.tables import clusters, collectors, recorded

LEASE = timedelta(seconds=12)
"""So long a process has a cluster after it last renewed; then another may take it. By the database's clock alone."""

_TAKE = text("""
INSERT INTO collectors AS c (cluster_id, epoch, holder, standing, renewed_at, watching)
VALUES (:cluster, 1, :holder, 'follows', clock_timestamp(), '{}')
ON CONFLICT (cluster_id) DO UPDATE SET
    epoch = c.epoch + (c.holder <> excluded.holder)::int,
    holder = excluded.holder, standing = excluded.standing, renewed_at = excluded.renewed_at
WHERE c.holder = excluded.holder OR c.standing <> 'follows'
   OR c.renewed_at < clock_timestamp() - CAST(:lease AS interval)
RETURNING epoch
""")
_END_STALLED = text("""
SELECT pg_terminate_backend(l.pid)
FROM pg_locks l JOIN pg_stat_activity a USING (pid)
WHERE l.locktype = 'advisory' AND l.granted AND l.classid = :lock AND l.objid = :cluster AND l.objsubid = 2
  AND a.datname = current_database() AND l.database = a.datid
  AND a.xact_start < clock_timestamp() - CAST(:lease AS interval)
""")
"""A process that was stopped amid a write holds the writer's lock, and the row that a successor has to change."""


class Standing(StrEnum):
    """Whether a cluster is followed: a collector follows it, has LEFT it to the next, or nobody is asked to (ENDED)."""

    FOLLOWS = "follows"
    LEFT = "left"
    ENDED = "ended"


class FencedError(Exception):
    """Another process follows the cluster by now: what this one was told by watches is told to that one, too."""


async def take(conn: AsyncConnection, cluster: str, holder: str) -> int | None:
    """The epoch under which ``holder`` follows the cluster from now on; None while another does.

    Who has it already keeps its epoch. Commit at once.
    """
    number = await codes.cluster(conn, cluster)
    late = (collectors.c.renewed_at < func.clock_timestamp() - LEASE).label("late")
    free = or_(collectors.c.holder == holder, collectors.c.standing != Standing.FOLLOWS.value).label("free")
    found = await conn.execute(select(late, free).where(collectors.c.cluster_id == number))
    if row := found.one_or_none():
        if not (row.free or row.late):
            return None  # before the row is asked for: a write that holds it would be waited for
        if not row.free:
            await conn.execute(_END_STALLED, {"lock": WRITER_LOCK, "cluster": number, "lease": LEASE})
    values = {"cluster": number, "holder": holder, "lease": LEASE}
    epoch: int | None = (await conn.execute(_TAKE, values)).scalar_one_or_none()
    return epoch


async def renew(conn: AsyncConnection, cluster: str, epoch: int, watching: Watching) -> bool:
    """Keep the cluster, and say how well it is followed; whether it is still this process's."""
    changed = {"renewed_at": func.clock_timestamp(), "watching": msgspec.to_builtins(watching)}
    return await _change(conn, cluster, epoch, changed)


async def leave(conn: AsyncConnection, cluster: str, epoch: int, *, standing: Standing) -> None:
    """Give the cluster up, so that another may take it at once."""
    await _change(conn, cluster, epoch, {"standing": standing.value})


async def _change(conn: AsyncConnection, cluster: str, epoch: int, changed: dict[str, object]) -> bool:
    number = await codes.find_cluster(conn, cluster)
    mine = (collectors.c.cluster_id == number, collectors.c.epoch == epoch)
    return (await conn.execute(update(collectors).where(*mine).values(changed))).rowcount == 1


async def is_followed(conn: AsyncConnection, cluster: str) -> bool:
    """Whether a process has the cluster now."""
    c = collectors.c
    number = await codes.find_cluster(conn, cluster)
    follows = (c.standing == Standing.FOLLOWS.value, c.renewed_at >= func.clock_timestamp() - LEASE)
    return bool(await conn.scalar(select(exists().where(c.cluster_id == number, *follows))))


async def is_past_known(conn: AsyncConnection, cluster: str) -> bool:
    """Whether what the cluster remembered when it was first followed is recorded."""
    number = await codes.find_cluster(conn, cluster)
    return bool(await conn.scalar(select(collectors.c.past_known).where(collectors.c.cluster_id == number)))


async def note_past(conn: AsyncConnection, cluster: str, epoch: int) -> None:
    """What the cluster remembers of its past is recorded."""
    await _change(conn, cluster, epoch, {"past_known": True})


async def epoch_of(conn: AsyncConnection, cluster: str, holder: str) -> int | None:
    """The epoch under which ``holder`` follows, or was the last to follow, the cluster; None where that was another."""
    number = await codes.find_cluster(conn, cluster)
    mine = (collectors.c.cluster_id == number, collectors.c.holder == holder)
    found: int | None = (await conn.execute(select(collectors.c.epoch).where(*mine))).scalar_one_or_none()
    return found


async def check(conn: AsyncConnection, cluster: str, epoch: int) -> None:
    """Hold the epoch until the transaction ends. Raises FencedError where it is over."""
    number = await codes.find_cluster(conn, cluster)
    mine = (collectors.c.cluster_id == number, collectors.c.epoch == epoch)
    held = select(collectors.c.epoch).where(*mine).with_for_update(read=True)
    if (await conn.execute(held)).scalar_one_or_none() is None:
        raise FencedError(f"another process follows {cluster} since")


async def list_lively(conn: AsyncConnection, *, since: datetime) -> list[str]:
    """The names of the clusters that are followed, or of which something came since then that tells of harm."""
    r = recorded.c
    told = exists().where(r.cluster_id == clusters.c.id, r.source.in_(TELL_OF_HARM), r.to_at > since)
    ours = exists().where(collectors.c.cluster_id == clusters.c.id, collectors.c.standing != Standing.ENDED)
    return list(await conn.scalars(select(clusters.c.name).where(or_(told, ours)).order_by(clusters.c.name)))
