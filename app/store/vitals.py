"""What the database knows of how Foreshock does: for its own metrics, in one small query."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from app.store.collectors import Standing
from app.store.seen import several, time_of
from app.store.slack_tables import messages as slack_messages
from app.store.tables import clusters, collectors, incidents, recorded


@dataclass(frozen=True, slots=True)
class Stored:
    """``renewed``: when who follows a cluster last said so. ``reached``: up to when a source tells of a cluster, by
    cluster and source. ``unranked``: open incidents that were never ranked. ``refused``: messages that Slack did not
    take."""

    renewed: Mapping[str, datetime]
    reached: Mapping[tuple[str, str], datetime]
    unranked: int
    refused: int


_QUERY = several(
    renewed=select(clusters.c.name, collectors.c.renewed_at)
    .join(collectors, collectors.c.cluster_id == clusters.c.id)
    .where(collectors.c.standing != Standing.ENDED.value)
    .order_by(clusters.c.name),
    reached=select(clusters.c.name, recorded.c.source, recorded.c.to_at)
    .join(recorded, recorded.c.cluster_id == clusters.c.id)
    .order_by(clusters.c.name, recorded.c.source),
    unranked=select(func.count().label("many")).where(incidents.c.status == "open", incidents.c.ranked_at.is_(None)),
    refused=select(func.count().label("many")).where(slack_messages.c.error != ""),
)


async def read_stored(conn: AsyncConnection) -> Stored:
    """Of all clusters."""
    row = (await conn.execute(_QUERY)).one()
    return Stored(
        renewed={one["name"]: time_of(one["renewed_at"]) for one in row.renewed or ()},
        reached={(one["name"], one["source"]): time_of(one["to_at"]) for one in row.reached or ()},
        unranked=row.unranked[0]["many"],
        refused=row.refused[0]["many"],
    )
