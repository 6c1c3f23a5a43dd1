"""What is due -> Slack: one message a second in a channel, each once, whatever answers.

Claimed in one transaction, sent without any, noted in another. A kill between leaves a message that may be there: it is
looked for, and only posted where it is not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from time import monotonic

import structlog
from msgspec.structs import replace
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from app.core.model import Gap
from app.core.routes import NO_ROUTES, Routes, What, tells_incident
from app.notify import message, notice
from app.notify.message import Told
from app.notify.slack import GONE, BusyError, Message, RefusedError, Slack, UnansweredError
from app.notify.teller import Teller
from app.store import incidents, notices, outbox
from app.store.outbox import Due, New, Shown
from app.store.seen import read_seen

FIRST_WAIT, LONGEST_WAIT = timedelta(seconds=10), timedelta(minutes=5)
"""How long until a message is tried again that nobody answered: doubled each time."""
ROUND = 5.0
"""Seconds after which no further message is begun before it is looked anew for what is due: Slack may answer slowly."""

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Rendered:
    """A message as it is to be now, what is kept of it, and what its thread is told beside what it showed before."""

    message: Message
    shown: Shown
    news: Callable[[Shown], str]


@dataclass(frozen=True, slots=True)
class Sender:
    """Sends what changes and incidents owe to channels: as routes say, and incidents that no route is for to
    ``channel`` (its ID); also those that are only ``suspected`` where that is wanted. ``url`` is where people reach us,
    ``clock`` gives aware UTC."""

    engine: AsyncEngine
    slack: Slack
    channel: str
    url: str
    clock: Callable[[], datetime]
    suspected: bool = False
    routes: Callable[[], Routes] = lambda: NO_ROUTES

    async def send(self) -> None:
        """Sends what is due next in each channel."""
        await self.teller.route()
        await self.teller.look()
        async with self.engine.begin() as conn:
            await outbox.name_channel(conn, self.channel, now=self.clock())
            await outbox.assign(conn, self._channel_of, suspected=self.suspected, now=self.clock())
        until = monotonic() + ROUND
        while monotonic() < until and await self._send_next():
            pass

    @property
    def teller(self) -> Teller:
        """Who finds what changes owe."""
        return Teller(self.engine, self.routes, self.url, self.clock)

    def _channel_of(self, new: New) -> str:
        """The first route that tells of an incident tells it, for one incident has one message and one thread."""
        fits = (
            route.channel
            for route in self.routes().of(What.INCIDENTS)
            if tells_incident(route, new.cluster, new.namespaces, severity=new.severity)
        )
        return next(fits, self.channel)

    async def _send_next(self) -> bool:
        """Sends one message; False where none was due."""
        async with self.engine.begin() as conn:
            due = await outbox.claim(conn, suspected=self.suspected, now=self.clock())
            what = await self._rendered(conn, due) if due else None
        if due is None or what is None:
            return due is not None
        try:
            ts = await self._deliver(due, what.message)
        except BusyError as busy:
            async with self.engine.begin() as conn:
                await outbox.rest(conn, due.channel, self.clock() + busy.wait)
                await outbox.put_off(conn, due, self.clock() + busy.wait, maybe_there=False)
            log.warning("Slack is busy", channel=due.channel, again_in=busy.wait.total_seconds())
        except UnansweredError as error:
            wait = min(FIRST_WAIT * 2 ** min(due.attempts, 10), LONGEST_WAIT)
            async with self.engine.begin() as conn:
                await outbox.put_off(conn, due, self.clock() + wait, maybe_there=error.maybe_there)
            log.warning("Slack is not told", message=due.key, why=str(error), again_in=wait.total_seconds())
        except RefusedError as error:
            async with self.engine.begin() as conn:
                await outbox.give_up(conn, due, str(error), gone=error.code == GONE)
            log.error("Slack is not told", message=due.key, why=str(error))  # noqa: TRY400 - it says all
        else:
            await self._note(due, ts, what)
        return True

    async def _deliver(self, due: Due, what: Message) -> str:
        if due.ts is not None:
            await self.slack.edit(due, what)
            return due.ts
        if due.trying_since is not None and (there := await self.slack.find(due, since=due.trying_since)):
            return there
        return await self.slack.post(due, what)

    async def _note(self, due: Due, ts: str, what: Rendered) -> None:
        shows, said = what.shown, ""
        if due.ts is not None and due.shown is not None:
            said = what.news(due.shown)
        elif due.trying_since is not None:  # what was found may show what was so before: it is edited once more
            shows = replace(shows, version="")
        async with self.engine.begin() as conn:
            await outbox.sent(conn, due, ts, shown=shows, reply=said, now=self.clock())

    async def _rendered(self, conn: AsyncConnection, due: Due) -> Rendered | None:
        """None where what it is of is gone."""
        if due.part:
            return Rendered(message.reply(due.body), Shown("", ""), lambda _: "")
        if due.notice_id is not None:
            found = await notices.read_notice(conn, due.notice_id)
            read = await self.teller.read(conn, [found]) if found else []
            if not read or not read[0].items:
                return None
            told_of = read[0]
            made = notice.message(told_of)
            return Rendered(made, notice.shown(told_of, made), partial(notice.news, told=told_of))
        told = await self._told(conn, due.incident_id or "")
        if told is None:
            return None
        return Rendered(message.message(told), message.shown(told, due.version), partial(message.news, told=told))

    async def _told(self, conn: AsyncConnection, incident_id: str) -> Told | None:
        found = await incidents.read_incident_since_first(conn, incident_id)
        if found is None:
            return None
        incident, ranking, first = found
        unseen: tuple[Gap, ...] = ()
        if ranking is not None:
            start, end = ranking.window
            unseen = (await read_seen(conn, incident.cluster, from_at=start, to_at=end)).gaps
        longest = sorted(unseen, key=lambda gap: (gap.from_at - gap.to_at, gap.from_at))
        return Told(incident, ranking, first, tuple(longest), self.url)
