"""A link to Foreshock in the channel -> what it leads to, below it, for those who are told of incidents there."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import unquote

import structlog
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from app.core.model import Resource
from app.core.routes import NO_ROUTES, Routes
from app.notify.blocks import Json, section
from app.notify.lines import change_lines, incident_line, listed_lines, object_lines
from app.notify.slack import BusyError, RefusedError, Slack, UnansweredError
from app.store import codec, incidents, timeline
from app.store.history import read_history
from app.store.incidents import FirstSuspect
from app.store.search import AT_FIRST, find_changes
from app.store.timeline import ChangeFilter

MOST = 5
"""Links of one message that are shown what they lead to."""
LISTED = 5
"""Changes that are shown of a list."""
_OBJECT = r"objects/(?P<cluster>[^/?#]+)/(?P<group>[^/?#]+)/(?P<kind>[^/?#]+)/(?P<namespace>[^/?#]+)/(?P<name>[^/?#]+)"
_PATH = re.compile(
    rf"/(?:incidents/(?P<incident>[0-9a-f]{{12}})|changes/(?P<change>[0-9a-f]{{28}})|{_OBJECT}|(?P<list>changes))(?:[?#]|\Z)"
)
Asks = Callable[[str], ChangeFilter | None]
"""What a link to a list of changes asks for; None where its address is no good."""

log = structlog.get_logger()


def _resource(to: re.Match[str]) -> Resource:
    """As web.filters.object_path writes it."""
    parts = (codec.clean(unquote(to[part])) for part in ("cluster", "group", "kind", "namespace", "name"))
    cluster, group, kind, namespace, name = parts
    return Resource(cluster, "" if group == "core" else group, kind, None if namespace == "-" else namespace, name)


@dataclass(frozen=True, slots=True)
class Links:
    """Shows in ``channel`` (its ID), and where routes tell of everything, what links to ``url``, where people reach us,
    lead to. ``asks`` reads the address of a list."""

    engine: AsyncEngine
    slack: Slack
    channel: str
    url: str
    clock: Callable[[], datetime]
    asks: Asks
    routes: Callable[[], Routes] = lambda: NO_ROUTES

    async def take(self, payload: dict[str, Any]) -> None:
        """``payload`` is an event of Slack's; of others than ``link_shared`` nothing comes.

        Raises ValueError for what Slack does not send (https://docs.slack.dev/reference/events/link_shared).
        """
        try:
            event = payload["event"]
            known = {self.channel, *self.routes().told_of_all}
            if event["type"] != "link_shared" or event["channel"] not in known:
                return
            urls = [one["url"] for one in event["links"][:MOST]]
            found = [(url, _PATH.match(url.removeprefix(self.url))) for url in urls if url.startswith(f"{self.url}/")]
            if "unfurl_id" in event:
                place = {"unfurl_id": event["unfurl_id"], "source": event["source"]}
            else:
                place = {"channel": event["channel"], "ts": event["message_ts"]}
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"this is no event of Slack: {type(error).__name__}") from None
        async with self.engine.connect() as conn:
            shown = {url: shows for url, to in found if to and (shows := await self._shown(conn, url, to))}
        if shown:
            await self._show(place, shown)

    async def _shown(self, conn: AsyncConnection, url: str, to: re.Match[str]) -> Json | None:
        """None for what is not known any more, and for a list whose address is no good."""
        if to["incident"]:
            found = await incidents.read_incident(conn, to["incident"])
            if found is None:
                return None
            text = incident_line(found[0], FirstSuspect.of(found[1]), url=self.url, now=self.clock())
        elif to["change"]:
            change = await timeline.read_change(conn, to["change"])
            if change is None:
                return None
            text = change_lines(change, url=self.url)
        elif to["list"]:
            wanted = self.asks(url)
            if wanted is None:
                return None
            page = await find_changes(conn, wanted, limit=LISTED + 1, within=AT_FIRST)
            text = listed_lines(page.changes, url=self.url, most=LISTED, is_all=page.next is None)
        else:
            history = await read_history(conn, _resource(to), limit=1)
            if history is None:
                return None
            text = object_lines(history, url=self.url)
        return {"blocks": [section(text)]}

    async def _show(self, place: dict[str, str], shown: dict[str, Json]) -> None:
        try:
            await self.slack.unfurl(place, shown)
        except (RefusedError, BusyError, UnansweredError) as error:
            log.warning("what a link leads to is not shown", why=str(error))
