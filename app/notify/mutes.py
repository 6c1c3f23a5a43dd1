"""What people in a channel do not want to be told there for a while: by /foreshock mute, or a reaction to a message."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import structlog
from sqlalchemy.ext.asyncio import AsyncEngine

from app.core.model import Resource
from app.core.routes import Routes
from app.notify.asking import Asked, NotUnderstoodError
from app.notify.blocks import Json, escape, moment, section
from app.notify.message import reply
from app.notify.slack import BusyError, RefusedError, Slack, UnansweredError
from app.store import notices
from app.store.external import list_clusters
from app.store.namespaces import unknown_namespace
from app.store.notices import Mute

AN_HOUR, A_DAY = timedelta(hours=1), timedelta(days=1)
LONGEST = timedelta(days=30)
REACTION = "no_bell"
"""The emoji 🔕, as Slack calls it: below a message it mutes what the message is of, for A_DAY."""
LONGEST_NAME = 100
SEVERAL = (
    "This message tells of several objects: nothing is muted. `/foreshock mute [1h] [namespace]` mutes more than one."
)
SHARED = "In a channel that is shared with another workspace a reaction mutes nothing: `/foreshock mute [1h]` does."
"""Of a reaction Slack says who it is from, but not of which workspace they are
(https://docs.slack.dev/reference/events/reaction_added)."""

OF_INCIDENT = (
    "This message tells of an incident, and incidents are told at any time: nothing is muted. 🔕 below the message of a"
    " change mutes what changed, and `/foreshock mute [1h] [namespace]` more than one."
)

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Mutes:
    """Keeps what is muted. Muting by a command is said where everybody in the channel sees it; why a reaction mutes
    nothing, to who reacted alone."""

    engine: AsyncEngine
    slack: Slack
    routes: Callable[[], Routes]
    clock: Callable[[], datetime]

    async def answer(self, one: Asked, channel: str, *, by: str) -> Json:
        """Mutes, or ends that, and says so. Raises NotUnderstoodError, also for what nothing is recorded of: it would
        mute nothing, and say that it does. Which names there are is not for every channel to know."""
        namespace, cluster = one.word or "", one.cluster or ""
        said_by = f"{by[:LONGEST_NAME]} in Slack"
        if one.command == "unmute":
            return await self._unmute(Mute(channel, cluster, namespace, "", self.clock(), said_by))
        lasts = one.minus or AN_HOUR
        if lasts > LONGEST:
            raise NotUnderstoodError("Changes can be muted for 30 days at the most.")
        until = self.clock() + lasts
        async with self.engine.begin() as conn:
            if cluster and cluster not in await list_clusters(conn):
                raise NotUnderstoodError(f"Nothing is recorded of a cluster {cluster!r}: nothing is muted.")
            if await unknown_namespace(conn, cluster or None, namespace):
                raise NotUnderstoodError(f"Nothing is recorded of a namespace {namespace!r}: nothing is muted.")
            muted = Mute(channel, cluster, namespace, "", until, said_by)
            await notices.mute(conn, muted, now=self.clock())
        return _said(f"🔕 Until {moment(until)} {_which(muted)} are not told here. They are on the timeline, as ever.")

    async def _unmute(self, mine: Mute) -> Json:
        """What covers more is muted still: that is said, and how it ends."""
        async with self.engine.begin() as conn:
            ended = await notices.unmute(conn, mine, now=self.clock())
            muted = await notices.read_mutes(conn, now=self.clock())
        asked = Resource(mine.cluster, "", "", mine.namespace or None, "")
        still = [mute for mute in muted if mute.channel == mine.channel and mute.covers(asked)]
        if still:
            last = still[-1]
            ends = f"/foreshock unmute {last.namespace}".rstrip() + (f" cluster={last.cluster}" if last.cluster else "")
            until = f"🔕 Until {moment(last.until)} {_which(mine)} are still not told here"
            return _said(f"{until}: `{escape(ends)}` ends it.")
        return _said(
            f"🔔 Here {_which(mine)} are told again." if ended else f"Nothing was muted here of {_which(mine)}."
        )

    async def take(self, payload: dict[str, Any]) -> None:
        """``payload`` is an event of Slack's; of others than reactions nothing comes.

        Raises ValueError for what Slack does not send (https://docs.slack.dev/reference/events/reaction_added).
        """
        try:
            event = payload["event"]
            kind = event["type"]
            if kind not in ("reaction_added", "reaction_removed") or event["reaction"] != REACTION:
                return
            item, user = event["item"], event["user"]
            if item["type"] != "message":
                return
            channel, ts = item["channel"], item["ts"]
            is_shared = payload.get("is_ext_shared_channel", False)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"this is no event of Slack: {type(error).__name__}") from None
        if not all(isinstance(text, str) for text in (channel, ts, user)):
            raise ValueError("this is no event of Slack: a name is no text")
        async with self.engine.begin() as conn:
            told = await notices.told_in(conn, channel, ts)
            if len(told) == 1 and not is_shared:
                now = self.clock()
                what = Mute.of(channel, told[0], until=now + A_DAY, said_by=f"{user} in Slack")
                change = notices.mute if kind == "reaction_added" else notices.take_back
                await change(conn, what, now=now, reaction=f"{user} {ts}")
                return
            of_incident = not told and await notices.is_of_incident(conn, channel, ts)
        if kind == "reaction_added" and (told or of_incident):
            await self._whisper(channel, user, OF_INCIDENT if of_incident else SHARED if is_shared else SEVERAL)

    async def _whisper(self, channel: str, user: str, said: str) -> None:
        try:
            await self.slack.whisper(channel, user, reply(said))
        except (RefusedError, BusyError, UnansweredError) as error:
            log.warning("a reaction was not answered", why=str(error))


def _which(mute: Mute) -> str:
    """The changes that a mute is of, in words."""
    which = f"changes in {escape(mute.namespace)}" if mute.namespace else "changes"
    return which + (f" of cluster {escape(mute.cluster)}" if mute.cluster else "")


def _said(text: str) -> Json:
    """A message that all in the channel see, below what somebody wrote."""
    return {"response_type": "in_channel", "text": text, "blocks": [section(text)]}
