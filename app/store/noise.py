"""Which changes are drawn as state and not as rows: found out after they were stored."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.core.model import Change

_MARK = text(
    "UPDATE changes SET noise = true WHERE cluster_id = (SELECT id FROM clusters WHERE name = :cluster)"
    " AND at BETWEEN :first AND :last AND version_key = ANY(:keys) AND NOT noise"
)


async def mark_noise(conn: AsyncConnection, cluster: str, members: Iterable[Change]) -> int:
    """Mark changes as part of something that is shown as one thing. How many were newly marked."""
    found = list(members)
    if not found:
        return 0
    times = [change.at for change in found]
    values = {"cluster": cluster, "first": min(times), "last": max(times), "keys": [change.key for change in found]}
    result = await conn.execute(_MARK, values)
    return result.rowcount
