"""Of which clusters is answered in a channel of Slack: those whose incidents or changes are told there."""

from __future__ import annotations

from sqlalchemy.ext.asyncio import AsyncConnection

from app.core.routes import Routes
from app.store.seen import read_seen


async def clusters_of(conn: AsyncConnection, channel: str, *, home: str, routes: Routes) -> list[str] | None:
    """The clusters of which may be asked in ``channel``; None for all. ``home`` is the channel of the incidents that no
    route tells ("" for none): there it may be asked of all."""
    if home and channel == home:
        return None
    known = [one.cluster for one in (await read_seen(conn, None, from_at=None, to_at=None)).freshness]
    may = [one for one in known if routes.may_ask(channel, one)]
    return None if may and may == known else may
