"""What is due -> Slack: one message a second in a channel, each once, whatever answers.

Claimed in one transaction, sent without any, noted in another. A kill between leaves a message that may be there: it is
looked for, and only posted where it is not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

import structlog
from msgspec.structs import replace
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from app.core.model import Gap
from app.notify import message
from app.notify.message import Told
from app.notify.slack import GONE, BusyError, Message, RefusedError, Slack, UnansweredError
from app.store import incidents, outbox
from app.store.outbox import Due
from app.store.seen import read_seen

FIRST_WAIT, LONGEST_WAIT = timedelta(seconds=10), timedelta(minutes=5)
"""How long until a message is tried again that nobody answered: doubled each time."""

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Sender:
    """Sends what incidents owe to ``channel`` (its ID), also of those that are only ``suspected`` where that is wanted.
    ``url`` is where people reach us, ``clock`` gives aware UTC."""

    engine: AsyncEngine
    slack: Slack
    channel: str
    url: str
    clock: Callable[[], datetime]
    suspected: bool = False

    async def send(self) -> None:
        """Sends the next message that is due, if there is one."""
        async with self.engine.begin() as conn:
            await outbox.name_channel(conn, self.channel, now=self.clock())
            due = await outbox.claim(conn, self.channel, suspected=self.suspected, now=self.clock())
            told = await self._told(conn, due.incident_id) if due else None
        if due is None or told is None:
            return
        try:
            ts = await self._deliver(due, message.reply(due.body) if due.part else message.message(told))
        except BusyError as busy:
            async with self.engine.begin() as conn:
                await outbox.rest(conn, due.channel, self.clock() + busy.wait)
                await outbox.put_off(conn, due, self.clock() + busy.wait, maybe_there=False)
            log.warning("Slack is busy", channel=due.channel, again_in=busy.wait.total_seconds())
        except UnansweredError as error:
            wait = min(FIRST_WAIT * 2 ** min(due.attempts, 10), LONGEST_WAIT)
            async with self.engine.begin() as conn:
                await outbox.put_off(conn, due, self.clock() + wait, maybe_there=error.maybe_there)
            log.warning("Slack is not told", incident=due.incident_id, why=str(error), again_in=wait.total_seconds())
        except RefusedError as error:
            async with self.engine.begin() as conn:
                await outbox.give_up(conn, due, str(error), gone=error.code == GONE)
            log.error("Slack is not told", incident=due.incident_id, why=str(error))  # noqa: TRY400 - it says all
        else:
            await self._note(due, ts, told)

    async def _deliver(self, due: Due, what: Message) -> str:
        if due.ts is not None:
            await self.slack.edit(due, what)
            return due.ts
        if due.trying_since is not None and (there := await self.slack.find(due, since=due.trying_since)):
            return there
        return await self.slack.post(due, what)

    async def _note(self, due: Due, ts: str, told: Told) -> None:
        shows, said = message.shown(told, due.version), ""
        if due.ts is not None and due.shown is not None:
            said = message.news(due.shown, told)
        elif due.trying_since is not None:  # what was found may show what was so before: it is edited once more
            shows = replace(shows, version="")
        async with self.engine.begin() as conn:
            await outbox.sent(conn, due, ts, shown=shows, reply=said, now=self.clock())

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
