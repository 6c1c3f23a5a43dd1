"""A link to Foreshock in the channel -> what it leads to, below it, for those who are told of incidents there."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol
from urllib.parse import unquote

import structlog
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from app.core.model import Resource
from app.core.routes import NO_ROUTES, Routes
from app.core.screen.asked import AddressError
from app.core.screen.axis import Axis
from app.notify.allowed import clusters_of
from app.notify.blocks import Json, code, context, section
from app.notify.lines import change_lines, incident_line, listed_lines, object_lines
from app.notify.looked_up import LONGEST_CALLS, callers, open_incidents
from app.notify.slack import BusyError, RefusedError, Slack, UnansweredError
from app.store import codec, incidents, timeline
from app.store.history import read_history
from app.store.incidents import FirstSuspect
from app.store.search import AT_FIRST, find_changes
from app.store.seen import UnknownClusterError, read_seen
from app.store.timeline import ChangeFilter

MOST = 5
"""Links of one message that are shown what they lead to."""
LISTED = 5
"""Changes that are shown of a list."""
_OBJECT = r"objects/(?P<cluster>[^/?#]+)/(?P<group>[^/?#]+)/(?P<kind>[^/?#]+)/(?P<namespace>[^/?#]+)/(?P<name>[^/?#]+)"
_PATH = re.compile(
    rf"/(?:incidents/(?P<incident>[0-9a-f]{{12}})|changes/(?P<change>[0-9a-f]{{28}})|{_OBJECT}|(?P<list>changes)"
    r"|clusters/(?P<plane>[^/?#]+)/control-plane|(?P<graph>explore)|(?:incidents)?)(?:[?#]|\Z)"
)

log = structlog.get_logger()


def _resource(to: re.Match[str]) -> Resource:
    """As web.filters.object_path writes it."""
    parts = (codec.clean(unquote(to[part])) for part in ("cluster", "group", "kind", "namespace", "name"))
    cluster, group, kind, namespace, name = parts
    return Resource(cluster, "" if group == "core" else group, kind, None if namespace == "-" else namespace, name)


class Asks(Protocol):
    """What addresses of pages ask for, as the pages read them. Raises AddressError for one that is no good, and
    UnknownClusterError."""

    def changes(self, address: str) -> ChangeFilter:
        """Of a list of changes."""

    def cluster(self, address: str) -> str | None:
        """Of the list of incidents; None for all."""

    async def graph(self, conn: AsyncConnection, address: str) -> str:
        """What a question to what was measured is answered, as a table."""

    def window(self, address: str) -> Axis:
        """Of a page about a time."""


@dataclass(frozen=True, slots=True)
class Links:
    """Shows in ``channel`` (its ID, "" for none), and of a cluster where routes tell of all of it, what links to
    ``url``, where people reach us, lead to. ``asks`` reads their addresses."""

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
            if event["type"] != "link_shared":
                return
            channel = str(event["channel"])
            urls = [one["url"] for one in event["links"][:MOST]]
            ours = [url for url in urls if f"{url}/".startswith(f"{self.url}/")]
            found = [(url, _PATH.match(url.removeprefix(self.url) or "/")) for url in ours]
            if "unfurl_id" in event:
                place = {"unfurl_id": event["unfurl_id"], "source": event["source"]}
            else:
                place = {"channel": event["channel"], "ts": event["message_ts"]}
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"this is no event of Slack: {type(error).__name__}") from None
        async with self.engine.connect() as conn:
            may = await clusters_of(conn, channel, home=self.channel, routes=self.routes())
            shown = {url: blocks for url, to in found if to and (blocks := await self._known(conn, url, to, may))}
        if shown:
            await self._show(place, shown)

    async def _known(
        self, conn: AsyncConnection, url: str, to: re.Match[str], of: Collection[str] | None
    ) -> Json | None:
        """None for what is not known any more, and where the address is no good, or names no cluster that is known, or
        none ``of`` those that may be shown (None: all may)."""
        try:
            if of is not None and await self._cluster(conn, url, to) not in of:
                return None
            blocks = await self._shown(conn, url, to)
        except (UnknownClusterError, AddressError):
            return None
        return {"blocks": blocks} if blocks else None

    async def _cluster(self, conn: AsyncConnection, url: str, to: re.Match[str]) -> str | None:
        """The only cluster that a link leads to; None where it may be several, as with a graph. Raises AddressError."""
        if to["incident"]:
            found = await incidents.read_incident(conn, to["incident"])
            return found[0].cluster if found else None
        if to["change"]:
            change = await timeline.read_change(conn, to["change"])
            return change.resource.cluster if change else None
        if to["plane"]:
            return codec.clean(unquote(to["plane"]))
        if to["name"]:
            return _resource(to).cluster
        if to["graph"]:
            return None
        return self.asks.changes(url).cluster if to["list"] else self.asks.cluster(url)

    async def _shown(self, conn: AsyncConnection, url: str, to: re.Match[str]) -> list[Json] | None:
        """None for what is not known any more. Raises UnknownClusterError, and AddressError for a bad address."""
        if to["incident"]:
            found = await incidents.read_incident(conn, to["incident"])
            if found is None:
                return None
            return [section(incident_line(found[0], FirstSuspect.of(found[1]), url=self.url, now=self.clock()))]
        if to["change"]:
            change = await timeline.read_change(conn, to["change"])
            return [section(change_lines(change, url=self.url))] if change else None
        if to["list"]:
            page = await find_changes(conn, self.asks.changes(url), limit=LISTED + 1, within=AT_FIRST)
            return [section(listed_lines(page.changes, url=self.url, most=LISTED, is_all=page.next is None))]
        if to["plane"]:
            return await self._plane(conn, codec.clean(unquote(to["plane"])), self.asks.window(url))
        if to["graph"]:
            return [code((await self.asks.graph(conn, url)).rstrip("\n"))]
        if to["name"]:
            history = await read_history(conn, _resource(to), limit=1)
            return [section(object_lines(history, url=self.url))] if history else None
        return await self._front(conn, self.asks.cluster(url))

    async def _front(self, conn: AsyncConnection, cluster: str | None) -> list[Json]:
        """What is open."""
        await read_seen(conn, cluster, from_at=None, to_at=None)
        lines, is_all = await open_incidents(conn, cluster, url=self.url, now=self.clock(), most=LISTED)
        more = [] if is_all else [context("Those that began last.")]
        return [*map(section, lines or ["No incident is open."]), *more]

    async def _plane(self, conn: AsyncConnection, cluster: str, axis: Axis) -> list[Json]:
        """Who called then, or at the end of a long time, beside as long before."""
        minus = min(axis.to_at - axis.from_at, LONGEST_CALLS)
        seen = await read_seen(conn, cluster, from_at=axis.to_at - 2 * minus, to_at=axis.to_at)
        table = await callers(conn, cluster, seen, to_at=axis.to_at, minus=minus)
        return [code(table.rstrip("\n"))]

    async def _show(self, place: dict[str, str], shown: dict[str, Json]) -> None:
        try:
            await self.slack.unfurl(place, shown)
        except (RefusedError, BusyError, UnansweredError) as error:
            log.warning("what a link leads to is not shown", why=str(error))
