"""What is to be said of a cluster where people look, as its senders never read what they are answered."""

from __future__ import annotations

from datetime import datetime, timedelta

from sqlalchemy import case
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from app.core.clusters import About
from app.store import codes
from app.store.tables import remarks

REMARKED = timedelta(days=1)
"""So long after the last time it is said: Alertmanager tells again every four hours of what fires."""


async def note(conn: AsyncConnection, cluster: str, about: About, why: str, *, now: datetime) -> None:
    """Of a cluster that is made by it, if it is new. ``why`` of the last time counts."""
    told = insert(remarks).values(
        cluster_id=await codes.cluster(conn, cluster), about=about.value, since=now, at=now, why=why
    )
    new, old = told.excluded, remarks.c
    since = case((old.at > now - REMARKED, old.since), else_=new.since)
    await conn.execute(
        told.on_conflict_do_update(
            index_elements=["cluster_id", "about"], set_={"since": since, "at": new.at, "why": new.why}
        )
    )
