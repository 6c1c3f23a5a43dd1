"""What somebody asks in Slack with /foreshock -> an answer that only who asked sees, or everybody where they say so.

Slack waits three seconds for it (https://docs.slack.dev/interactivity/implementing-slash-commands). Who is in a
channel where incidents of a cluster are told may ask of it there, and nobody elsewhere.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import quote, urlencode

import structlog
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from app.core.changes.report import COUNTED, LINES, what_changed
from app.core.phrases import duration, many
from app.notify.allowed import clusters_of
from app.notify.asking import Asked, NotUnderstoodError, asked
from app.notify.blocks import NAME, Json, code, context, escape, link, section
from app.notify.looked_up import LONGEST_CALLS, callers, open_incidents
from app.notify.mutes import Mutes
from app.store import search, timeline
from app.store.called import UnknownResourceError
from app.store.namespaces import UnknownNamespaceError, check_namespace
from app.store.seen import UnknownClusterError, read_seen

HALF_AN_HOUR, FIVE_MINUTES = timedelta(minutes=30), timedelta(minutes=5)
AT_ONCE = 10
"""Incidents that are listed."""
WITHIN = 2.5
"""Seconds that the database is waited for: so the answer is there within Slack's three."""
_HELP = """\
`/foreshock what-changed [30m] [namespace]`  what changed
`/foreshock incident`  what is open, and what is suspected of it
`/foreshock who-calls [5m] [resource]`  who talks to the API server, now and before
`/foreshock mute [1h] [namespace]`  changes are not told in this channel for so long; `unmute` ends it
With several clusters, `cluster=NAME` says which one is meant. Only you see the answer; with `here` as the last word \
everybody in the channel does."""

_AWAY = "Foreshock's database does not answer in time: ask again in a moment."

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Commands:
    """Answers /foreshock in ``channel`` (its ID, "" for none), and of a cluster where routes tell of all of it;
    ``mutes`` does so wherever changes are told. ``url`` is where people reach us, ``clock`` gives aware UTC."""

    engine: AsyncEngine
    channel: str
    url: str
    clock: Callable[[], datetime]
    mutes: Mutes

    async def answer(self, payload: dict[str, Any]) -> Json:
        """The message for who asked, or for the channel; ``payload`` is what Slack sends of a slash command.

        Raises ValueError for what Slack does not send.
        """
        text, channel = payload.get("text", ""), payload.get("channel_id")
        if not isinstance(text, str) or not isinstance(channel, str) or not payload.get("command"):
            raise ValueError("this is no slash command of Slack")
        try:
            async with asyncio.timeout(WITHIN):
                return await self._answer_in(channel, text, by=str(payload.get("user_name") or payload.get("user_id")))
        except (NotUnderstoodError, UnknownClusterError, UnknownNamespaceError, UnknownResourceError) as error:
            return _whispered(str(error), [section(f"{escape(str(error), 4 * NAME)}\n\n{_HELP}")])
        except (TimeoutError, SQLAlchemyError) as error:
            log.warning("a command is not answered", command=text[:NAME], why=type(error).__name__)
            return _whispered(_AWAY, [section(f"{_AWAY} {link(self.url, 'Foreshock')}")])

    async def _answer_in(self, channel: str, text: str, *, by: str) -> Json:
        routes = self.mutes.routes()
        one = asked(text)
        if one.command in ("mute", "unmute") and channel in {self.channel, *routes.channels}:
            return await self.mutes.answer(one, channel, by=by)
        async with self.engine.connect() as conn:
            may = await clusters_of(conn, channel, home=self.channel, routes=routes)
            if may == []:
                return self._not_here()
            if may is not None:
                one = replace(one, cluster=_one_of(may, one.cluster))
            answer = await self._answer(conn, one)
        return answer | ({"response_type": "in_channel"} if one.here else {})

    def _not_here(self) -> Json:
        home = f"in <#{self.channel}>, and " if self.channel else ""
        where = f"Foreshock answers {home}where all incidents or all changes of a cluster are told."
        return _whispered("Not here", [section(where)])

    async def _answer(self, conn: AsyncConnection, one: Asked) -> Json:
        match one.command:
            case "what-changed":
                return await self._what_changed(conn, one)
            case "incident" | "incidents":
                return await self._incidents(conn, one)
            case "who-calls":
                return await self._who_calls(conn, one)
            case "help":
                return _whispered("What can be asked", [section(_HELP)])
        raise NotUnderstoodError(f"There is no command {one.command!r}.")

    async def _what_changed(self, conn: AsyncConnection, one: Asked) -> Json:
        to_at = self.clock()
        from_at = to_at - (one.minus or HALF_AN_HOUR)
        wanted = timeline.ChangeFilter(cluster=one.cluster, namespace=one.word, from_at=from_at, to_at=to_at)
        seen = await read_seen(conn, one.cluster, from_at=from_at, to_at=to_at)
        found = await timeline.list_changes(conn, wanted, limit=LINES)
        if not found and seen.recorded:
            await check_namespace(conn, one.cluster, one.word)
        total = await search.count_changes(conn, wanted, most=COUNTED)
        table = what_changed(found, from_at=from_at, to_at=to_at, gaps=seen.gaps, total=total, recorded=seen.recorded)
        page = {"cluster": one.cluster, "namespace": one.word, "from": from_at.isoformat(), "to": to_at.isoformat()}
        return _table("What changed", table, f"{self.url}/changes?{urlencode({k: v for k, v in page.items() if v})}")

    async def _who_calls(self, conn: AsyncConnection, one: Asked) -> Json:
        to_at, minus = self.clock(), one.minus or FIVE_MINUTES
        if minus > LONGEST_CALLS:
            raise NotUnderstoodError(f"Calls of at most {duration(LONGEST_CALLS.total_seconds())} are added up here.")
        seen = await read_seen(conn, one.cluster, from_at=to_at - 2 * minus, to_at=to_at)
        known = [fresh.cluster for fresh in seen.freshness]
        if len(known) != 1:
            raise NotUnderstoodError(f"Say which cluster: cluster={known[0]}." if known else "No cluster is known yet.")
        table = await callers(conn, known[0], seen, to_at=to_at, minus=minus, what=one.word)
        return _table("Who calls", table, f"{self.url}/clusters/{quote(known[0], safe='')}/control-plane")

    async def _incidents(self, conn: AsyncConnection, one: Asked) -> Json:
        if one.words or one.minus:
            raise NotUnderstoodError("Of incidents, only cluster=NAME can be said.")
        await read_seen(conn, one.cluster, from_at=None, to_at=None)
        lines, is_all = await open_incidents(conn, one.cluster, url=self.url, now=self.clock(), most=AT_ONCE)
        if not lines:
            return _whispered("No incident is open", [section("No incident is open.")])
        parts = [section(line) for line in lines]
        if not is_all:
            parts.append(context(f"Those that began last. {link(f'{self.url}/incidents', 'All of them')}"))
        count = many(len(lines), "incident")
        return _whispered(f"{count} open" if is_all else f"More than {count} open", parts)


def _one_of(may: list[str], cluster: str | None) -> str:
    """The cluster that is meant, where not all may be asked of. Raises NotUnderstoodError."""
    if cluster in may:
        return cluster
    if cluster is None and len(may) == 1:
        return may[0]
    raise NotUnderstoodError(f"Say which cluster: here it may be asked of {', '.join(may)}.")


def _table(title: str, table: str, page: str) -> Json:
    return _whispered(title, [code(table.rstrip("\n")), context(f"<{page}|On the page>")])


def _whispered(text: str, parts: Iterable[Json]) -> Json:
    """A message that only who asked sees."""
    return {"response_type": "ephemeral", "text": escape(text, 4 * NAME), "blocks": list(parts)}
