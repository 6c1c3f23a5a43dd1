"""What the database knows of how Foreshock does: for its own metrics, in three small queries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from app.core.roles import Role
from app.store import deliveries, tables
from app.store.collectors import Standing
from app.store.seen import several, time_of
from app.store.tables import clusters, collectors, incidents, recorded
from app.store.tokens import IN_MEMORY, Purpose


@dataclass(frozen=True, slots=True)
class Stored:
    """``renewed``: when who follows a cluster last said so. ``reached``: up to when a source tells of a cluster, by
    cluster and source. ``unranked``: open incidents that were never ranked. ``refused``: messages that Slack did not
    take. ``in_vain_since``: since when the oldest of those that wait is tried in vain; None where none is. ``expires``:
    when the first token expires that a program sends with, by its role and cluster ("": any)."""

    renewed: Mapping[str, datetime]
    reached: Mapping[tuple[str, str], datetime]
    unranked: int
    refused: int
    in_vain_since: datetime | None
    expires: Mapping[tuple[str, str], datetime]


_QUERY = several(
    renewed=select(clusters.c.name, collectors.c.renewed_at)
    .join(collectors, collectors.c.cluster_id == clusters.c.id)
    .where(collectors.c.standing != Standing.ENDED.value)
    .order_by(clusters.c.name),
    reached=select(clusters.c.name, recorded.c.source, recorded.c.to_at)
    .join(recorded, recorded.c.cluster_id == clusters.c.id)
    .order_by(clusters.c.name, recorded.c.source),
    unranked=select(func.count().label("many")).where(incidents.c.status == "open", incidents.c.ranked_at.is_(None)),
)


IN_USE = timedelta(days=7)
LASTING = timedelta(days=30)
"""What was made to live no longer is not meant to stay."""
_t = tables.tokens.c
_EXPIRING = (
    select(_t.role, _t.cluster, func.min(_t.expires_at).label("at"))
    .where(_t.purpose.in_([*(one.value for one in IN_MEMORY), Purpose.CHANGES.value, Purpose.API.value]))
    .where((_t.purpose != Purpose.API.value) | (_t.role == Role.RESPONDER.value))
    .where(_t.revoked_at.is_(None), _t.expires_at - _t.created_at > LASTING)
    .group_by(_t.role, _t.cluster)
)
"""Of what sends to us: alerts come with a responder's token."""


async def read_stored(conn: AsyncConnection, *, suspected: bool, now: datetime) -> Stored:
    """Of all clusters; ``suspected`` as of outbox.claim."""
    row = (await conn.execute(_QUERY)).one()
    untold = await deliveries.count_untold(conn, suspected=suspected, now=now, longer_than=timedelta(0))
    expiring = await conn.execute(_EXPIRING.where(_t.last_used_at > now - IN_USE))
    return Stored(
        renewed={one["name"]: time_of(one["renewed_at"]) for one in row.renewed or ()},
        reached={(one["name"], one["source"]): time_of(one["to_at"]) for one in row.reached or ()},
        unranked=row.unranked[0]["many"],
        refused=untold.failed,
        in_vain_since=untold.since,
        expires={(row.role, row.cluster): row.at for row in expiring},
    )
