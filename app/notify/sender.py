"""What is due -> Slack and other targets: one message a second in each, each once, whatever answers.

Claimed in one transaction, sent without any, noted in another. A kill between leaves a message that may be there: it is
looked for, and only posted where it is not. A target cannot be asked: it is sent the same letter
again, by the same id.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from math import inf
from time import monotonic

import msgspec
import structlog
from msgspec.structs import replace
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from app.core.model import Gap
from app.core.routes import NO_ROUTES, Routes
from app.core.targets import is_target
from app.notify import events, message, notice
from app.notify.message import Told
from app.notify.slack import BusyError, Message, RefusedError, Slack, UnansweredError
from app.notify.slack_words import DELETED, OF_THE_PLACE
from app.notify.targets import OVER, Targets
from app.notify.teller import Teller
from app.store import incidents, notices, outbox, undoing
from app.store.outbox import Due, Letter, Shown
from app.store.places import places_of
from app.store.seen import read_seen

FIRST_WAIT, LONGEST_WAIT = timedelta(seconds=10), timedelta(minutes=5)
"""How long until a message is tried again that nobody answered: doubled each time."""
IN_ORDER_IN_SLACK = 1
"""So often what Slack does not answer is tried before what comes after it in the same channel is sent, too: ten
seconds, for an incident may come after it. To a target it is outbox.IN_ORDER."""
AT_ONCE = 4
"""In so many channels, or targets, something is sent at once: one that answers late is not to delay the others."""
GIVEN_UP = timedelta(days=1)
"""So long a letter to a target is tried."""
WITHIN = 25.0
"""Seconds for all that is asked of Slack for one message, as of page after page of a channel in which it may be: less
than it is its sender's alone (outbox.CLAIM), or it would be posted twice."""
ROUND = 5.0
"""Seconds after which a round ends: it only goes on beside what was begun within it and is not answered yet."""
LOOK_AGAIN = 0.25
"""Seconds until it is looked again for what is due, beside what is not answered yet."""

SET_BACK = 2.0
"""A clock that loses so many seconds at once was set back."""

log = structlog.get_logger()


class Steps:
    """Sees whether a clock was set back, beside one that nobody sets; nobody knows it at the first look."""

    def __init__(self) -> None:
        self._ahead = inf

    def is_back(self, now: datetime) -> bool:
        """Whether it may have been since the last look."""
        before, self._ahead = self._ahead, now.timestamp() - monotonic()
        return self._ahead < before - SET_BACK


@dataclass(frozen=True, slots=True)
class Rendered:
    """A message as it is to be now, what is kept of it, and what its thread is told beside what it showed before."""

    message: Message
    shown: Shown
    news: Callable[[Shown], str]


@dataclass(frozen=True, slots=True)
class Sender:
    """Sends what changes and incidents owe to channels and targets: as routes say, and incidents that no route to a
    channel is for to ``channel`` (its ID; "": to none). Without ``slack`` targets alone are told. Also those that are
    only ``suspected`` are told where that is wanted. ``url`` is where people reach us, ``clock`` gives aware UTC."""

    engine: AsyncEngine
    slack: Slack | None
    channel: str
    url: str
    clock: Callable[[], datetime]
    suspected: bool = False
    routes: Callable[[], Routes] = lambda: NO_ROUTES
    targets: Targets | None = None
    steps: Steps = field(default_factory=Steps)

    async def find(self) -> None:
        """Finds what is owed."""
        if self.steps.is_back(self.clock()):
            async with self.engine.begin() as conn:
                await outbox.bound(conn, LONGEST_WAIT, now=self.clock())
        await self.teller.route()
        await self.teller.look()
        async with self.engine.begin() as conn:
            if self.channel:
                await outbox.name_channel(conn, self.channel, now=self.clock())
            places = places_of(self.routes(), otherwise=self.channel)
            await outbox.assign(conn, places, suspected=self.suspected, now=self.clock())
            await outbox.settle(conn, suspected=self.suspected, now=self.clock())

    async def send(self) -> None:
        """Sends what is due next in each of Slack's channels."""
        await self._send_all(to_targets=False)

    async def send_to_targets(self) -> None:
        """Sends what is due next to each target."""
        await self._send_all(to_targets=True)

    async def _send_all(self, *, to_targets: bool) -> None:
        """Raises what fails first; what else is being sent ends with it, as by a kill."""
        until, sending = monotonic() + ROUND, dict[asyncio.Task[None], float]()
        try:
            async with asyncio.TaskGroup() as group:
                while True:
                    goes_on = monotonic() < until or any(since < until for since in sending.values())
                    claimed = await self._claim(to_targets=to_targets) if goes_on and len(sending) < AT_ONCE else None
                    if claimed:
                        sending[group.create_task(self._send(*claimed))] = monotonic()
                    elif sending:
                        done, _ = await asyncio.wait(sending, timeout=LOOK_AGAIN, return_when=asyncio.FIRST_COMPLETED)
                        sending = {task: since for task, since in sending.items() if task not in done}
                    else:
                        break
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from errors

    @property
    def teller(self) -> Teller:
        """Who finds what changes owe."""
        return Teller(self.engine, self.routes, self.url, self.clock)

    async def _claim(self, *, to_targets: bool) -> tuple[Due, Rendered | Letter | None] | None:
        """What is to be sent next; None where nothing is due."""
        async with self.engine.begin() as conn:
            due = await outbox.claim(conn, to_targets=to_targets, suspected=self.suspected, now=self.clock())
            what = await self._made(conn, due) if due else None
            if due and what is None:
                await outbox.rest(conn, due.channel, self.clock())
            return (due, what) if due else None

    async def _send(self, due: Due, what: Rendered | Letter | None) -> None:
        """Sends it and notes what came of it; then something else may be sent in its place, not before."""
        if what is None:
            return
        try:
            ts, owed = await self._deliver(due, what)
        except BusyError as busy:
            async with self.engine.begin() as conn:
                if busy.method in outbox.OF_WORKSPACE:
                    await outbox.rest_all(conn, busy.method, self.clock() + busy.wait, now=self.clock())
                    await outbox.rest(conn, due.channel, self.clock() + outbox.EACH)
                else:
                    await outbox.rest(conn, due.channel, self.clock() + busy.wait)
                now = self.clock()
                await outbox.put_off(conn, due, now + busy.wait, str(busy), maybe_there=False, now=now)
            log.warning("a place is busy", channel=due.channel, method=busy.method, again_in=busy.wait.total_seconds())
        except UnansweredError as error:
            wait = min(FIRST_WAIT * 2 ** min(due.attempts, 10), LONGEST_WAIT)
            async with self.engine.begin() as conn:
                if isinstance(what, Letter) and self.clock() - what.made_at > GIVEN_UP:
                    await outbox.give_up(conn, due, f"it was tried for a day: {error}", gone=False)
                else:
                    now, there = self.clock(), error.maybe_there
                    await outbox.put_off(conn, due, now + wait, str(error), maybe_there=there, now=now)
                in_order = outbox.IN_ORDER if isinstance(what, Letter) else IN_ORDER_IN_SLACK
                pause = wait if due.attempts < in_order else outbox.EACH
                await outbox.rest(conn, due.channel, self.clock() + pause)
            log.warning("a message is not told", message=due.key, why=str(error), again_in=wait.total_seconds())
        except RefusedError as error:
            async with self.engine.begin() as conn:
                await outbox.give_up(conn, due, str(error), gone=error.code in DELETED)
                await outbox.rest(conn, due.channel, self.clock() + outbox.EACH)
                if error.code == OVER:
                    await outbox.turn_off(conn, due.channel, str(error))
            log.error("a message is not told", message=due.key, why=str(error))  # noqa: TRY400 - it says all
        else:
            await self._note(due, ts, what, owed)

    async def _deliver(self, due: Due, what: Rendered | Letter) -> tuple[str, Letter | None]:
        """Where it is now, and what of it is still owed."""
        if isinstance(what, Letter):
            if self.targets is None:
                raise RefusedError("no_target", "this process tells no targets: it has no file of routes")
            return what.id, await self.targets.send(due.channel, what)
        if self.slack is None:
            raise RefusedError("no_token", "Slack is not set up: set FORESHOCK_SLACK_TOKEN and FORESHOCK_SLACK_CHANNEL")
        try:
            async with asyncio.timeout(WITHIN):
                return await self._post(self.slack, due, what.message), None
        except TimeoutError:
            raise UnansweredError(f"Slack took longer than {WITHIN:.0f} s", maybe_there=True) from None

    @staticmethod
    async def _post(slack: Slack, due: Due, what: Message) -> str:
        if due.ts is not None:
            await slack.edit(due, what)
            return due.ts
        if due.trying_since is not None and (there := await slack.find(due, since=due.trying_since)):
            return there
        return await slack.post(due, what)

    async def _note(self, due: Due, ts: str, what: Rendered | Letter, owed: Letter | None) -> None:
        shows, said = what.shown or Shown("", ""), msgspec.json.encode(owed).decode() if owed else ""
        if isinstance(what, Rendered) and due.ts is not None and due.shown is not None:
            said = what.news(due.shown)
        elif isinstance(what, Rendered) and due.trying_since is not None:
            # What was found may show what was so before: it is edited once more.
            shows = replace(shows, version="", made="")
        async with self.engine.begin() as conn:
            await outbox.sent(conn, due, ts, shown=shows, reply=said, now=self.clock())
            if not is_target(due.channel):
                await outbox.take_up(conn, due.channel, OF_THE_PLACE, now=self.clock())
            await outbox.rest(conn, due.channel, self.clock() + outbox.EACH)

    async def _made(self, conn: AsyncConnection, due: Due) -> Rendered | Letter | None:
        """What is to be sent; None where what it is of is gone, the message shows it already, or a target has nothing
        to be told of it."""
        if is_target(due.channel):
            return await self._letter(conn, due)
        if due.part:
            return Rendered(message.reply(due.body), Shown("", ""), lambda _: "")
        told = await self._told_of(conn, due)
        if isinstance(told, notice.Told):
            made = notice.message(told)
            return Rendered(made, notice.shown(told, made), partial(notice.news, told=told))
        if told is None:
            return None
        made = message.message(told)
        shows = message.shown(told, due.version, made.digest)
        if due.ts is not None and due.shown is not None and due.shown.made == shows.made:
            await outbox.sent(conn, due, due.ts, shown=shows, reply="", now=self.clock())
            return None
        return Rendered(made, shows, partial(message.news, told=told))

    async def _letter(self, conn: AsyncConnection, due: Due) -> Letter | None:
        """What was sealed, or is now. Of what a target knows already, what is new becomes a letter of its own, which
        comes after it; then nothing is to be sent yet."""
        if due.body and due.ts is None:
            return msgspec.json.decode(due.body, type=Letter)
        told = await self._told_of(conn, due)
        if told is None or self.targets is None:
            return None
        kind, now, shows = events.type_of(told, due.shown), self.clock(), events.shown(told, due.version)
        if due.ts is None:
            made = self.targets.letter(due.channel, told, kind, shows=shows, now=now)
            await outbox.seal(conn, due, made)
            return made
        follows = self.targets.letter(due.channel, told, kind, shows=None, now=now) if kind else None
        body = msgspec.json.encode(follows).decode() if follows else ""
        await outbox.sent(conn, due, due.ts, shown=shows, reply=body, now=now)
        return None

    async def _told_of(self, conn: AsyncConnection, due: Due) -> notice.Told | Told | None:
        if due.notice_id is None:
            return await self._told(conn, due.incident_id or "")
        found = await notices.read_notice(conn, due.notice_id)
        read = await self.teller.read(conn, [found]) if found else []
        return read[0] if read and read[0].items else None

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
        known = await undoing.read_known_of(conn, ranking.suspects[: message.SHOWN] if ranking else ())
        return Told(incident, ranking, first, tuple(longest), self.url, known)
