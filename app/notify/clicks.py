"""What somebody clicked in Slack -> a verdict. Slack has signed it, or sends it by a connection of the app's own."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import structlog
from sqlalchemy.ext.asyncio import AsyncEngine

from app.core.findings import Opinion, Verdict
from app.core.phrases import no_ranking
from app.notify.message import IT, MORE, NOT_IT, more, others, part_of, reply
from app.notify.slack import BusyError, Message, RefusedError, Slack, UnansweredError
from app.store import incidents, undoing, verdicts

OPINIONS = {IT: Opinion.IT, NOT_IT: Opinion.NOT_IT}
_VALUE = re.compile(rf"({'|'.join(OPINIONS)})/([0-9a-f]{{12}})/(none|[0-9a-f]{{28}})|({MORE})/([0-9a-f]{{12}})")
LONGEST_NAME = 100
GONE = "Foreshock does not know this incident any more: nothing was kept."

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Click:
    """A button: who clicked it (``user`` Slack's ID), in which channel, and what it says of a suspect; ``opinion`` None
    asks for more of them."""

    incident_id: str
    change_id: str
    opinion: Opinion | None
    user: str
    name: str
    channel: str
    is_guest: bool
    """From another workspace, by a channel that both share."""


def clicked(payload: dict[str, Any]) -> Click | None:
    """What a ``block_actions`` payload asks for; None for nothing, as a link.

    Raises ValueError for what Slack does not send
    (https://docs.slack.dev/reference/interaction-payloads/block_actions-payload).
    """
    try:
        if payload["type"] != "block_actions":
            return None
        action = payload["actions"][0]
        chosen = action.get("selected_option") or action  # of a menu, or a button
        told = _VALUE.fullmatch(chosen.get("value", ""))
        if told is None:
            return None
        user = payload["user"]
        name = user.get("username") or user.get("name") or user["id"]
        homes = _homes(payload)
        is_guest = user.get("team_id", homes[0]) not in homes
        channel = payload["channel"]["id"]
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise ValueError(f"this is no payload of Slack: {type(error).__name__}") from None
    if not all(isinstance(text, str) for text in (user["id"], name, channel)):
        raise ValueError("this is no payload of Slack: a name is no text")
    asks = told[4] is not None
    return Click(
        told[5] if asks else told[2],
        "" if asks else told[3],
        None if asks else OPINIONS[told[1]],
        user["id"],
        name[:LONGEST_NAME],
        channel,
        is_guest=is_guest,
    )


def _homes(payload: dict[str, Any]) -> list[str]:
    """The workspace that it was clicked in, and the organisation that this is of: in one, Slack says of a user which
    organisation they are of (https://docs.slack.dev/reference/interaction-payloads/block_actions-payload), and of an
    app that is installed in all of it, no workspace. Raises KeyError where neither is said."""
    team, organisation = payload["team"] or {}, payload.get("enterprise") or {}
    homes = [one for one in (team.get("id"), team.get("enterprise_id"), organisation.get("id")) if one]
    if not homes:
        raise KeyError("team")
    return homes


@dataclass(frozen=True, slots=True)
class Clicks:
    """Keeps the verdicts that people give in Slack; the message is edited as the incident's other pages are. Shows more
    suspects to who asks. ``url`` is where people reach us.

    Whoever is in the channel may: that is what a responder's role is for elsewhere.
    """

    engine: AsyncEngine
    slack: Slack
    clock: Callable[[], datetime]
    url: str

    async def take(self, payload: dict[str, Any]) -> None:
        """Raises ValueError for what Slack does not send."""
        click = clicked(payload)
        if click is None:
            return
        if click.is_guest:
            await self._whisper(click, reply("Only members of the workspace that Foreshock is in can do that."))
            return
        if click.opinion is None:
            await self._show_more(click)
            return
        verdict = Verdict(click.change_id, click.opinion, f"{click.name} in Slack", self.clock())
        try:
            async with self.engine.begin() as conn:
                await verdicts.check_whole(conn, click.incident_id)
                await verdicts.say(conn, click.incident_id, verdict)
        except LookupError:
            await self._whisper(click, reply(GONE))
        except verdicts.MergedError as error:
            elsewhere = part_of(error.into, url=self.url)
            await self._whisper(click, reply(f"{elsewhere} Say it of that one: nothing was kept of this."))

    async def _show_more(self, click: Click) -> None:
        async with self.engine.connect() as conn:
            found = await incidents.read_incident(conn, click.incident_id)
            ranking = found[1] if found else None
            known = await undoing.read_known_of(conn, others(ranking) if ranking else ())
        if found is None:
            said = reply(GONE)
        elif found[0].merged_into:
            said = reply(part_of(found[0].merged_into, url=self.url))
        elif ranking is None:
            said = reply(f"There is nothing to show: {no_ranking(found[0].ranked_at)}.")
        else:
            said = more(click.incident_id, ranking, url=self.url, known=known)
        await self._whisper(click, said)

    async def _whisper(self, click: Click, said: Message) -> None:
        try:
            await self.slack.whisper(click.channel, click.user, said)
        except (RefusedError, BusyError, UnansweredError) as error:
            log.warning("a click was not answered", why=str(error))
