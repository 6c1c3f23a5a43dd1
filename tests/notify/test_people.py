"""What people are told in Microsoft Teams and by Slack's incoming webhooks, and where that fails."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from msgspec.structs import replace as remade

from app.core.model import Batch, Outcome
from app.core.routes import Route, Routes, What
from app.core.targets import SlackWebhook, Target, Teams, Webhook
from app.notify.sender import Sender
from app.notify.targets import Targets
from app.notifying import REPRESENT, mail, post
from app.store import deliveries, incidents
from app.store.database import Database
from app.store.partitions import ensure
from app.store.record import record
from tests.listening import listening
from tests.notify.double import mistakes
from tests.notify.room import Room, rolling, room
from tests.web import world

__all__ = ["room"]
Json = dict[str, Any]
ODD = "web <!here> <b>x</b> [click](https://evil.example) *bold* \r\nBcc: eve@evil.example"
LARGEST_CARD = 28_000


@dataclass
class People:
    """A room of which one target is told that people read."""

    room: Room
    sender: Sender

    async def passes(self, rounds: int = 8, *, apart: float = 1) -> None:
        """So many rounds, so many seconds apart."""
        for _ in range(rounds):
            self.room.clock.forward(apart)
            await self.sender.find()
            await self.sender.send()
            await self.sender.send_to_targets()

    async def failed(self) -> list[str]:
        async with self.room.database.read.connect() as conn:
            return [
                one.error
                for one in (await deliveries.read_delivery(conn, suspected=False, now=self.room.clock())).failed
            ]


def routes_of(target: Target) -> Routes:
    return Routes((Route(target="ops", tell=(What.CHANGES, What.INCIDENTS)),), {"ops": target})


async def telling(room: Room, target: Target) -> People:
    routes = routes_of(target)
    targets = Targets(post, mail, REPRESENT, lambda: routes, room.clock)
    told = People(room, replace(room.sender, slack=None, channel="", routes=lambda: routes, targets=targets))
    await told.passes(2)
    return told


async def rolls_out_and_fails(told: People) -> str:
    """The id of the change."""
    change = told.room.change("web", diffs=world.CULPRIT.diffs, summary=ODD)
    await told.room.happens(change, rollouts=(rolling(change, updated=0),))
    await told.passes()
    ended = rolling(change, updated=3, outcome=Outcome.FAILED, ended_at=change.at + timedelta(minutes=10))
    await told.room.happens(rollouts=(ended,))
    await told.passes()
    return change.id


async def has_an_incident(told: People, database: Database) -> None:
    began = told.room.clock()
    opened = remade(world.incident(), id="e" * 12, started_at=began)
    ranking = remade(world.ranking(), incident_id=opened.id, ranked_at=began)
    async with database.write.begin() as conn:
        await record(conn, Batch(world.CLUSTER, symptoms=(world.alert(),)))
        await incidents.save_incident(conn, opened)
        await ensure(conn, "rankings", [began])
        await incidents.save_ranking(conn, ranking)
    await told.passes(3)


# -- by HTTP


@dataclass
class Door:
    """Takes posts, and says what is wrong with them."""

    wrong: Callable[[Json], str]
    answers: deque[web.Response] = field(default_factory=deque)
    taken: list[Json] = field(default_factory=list)

    async def answer(self, request: web.Request) -> web.Response:
        body = await request.json()
        if self.answers:
            return self.answers.popleft()
        if said := self.wrong(body):
            return web.Response(status=400, text=said)
        self.taken.append(body)
        return web.Response(status=202, text="ok")


@asynccontextmanager
async def opened(door: Door, file: Path) -> AsyncIterator[None]:
    app = web.Application()
    app.router.add_post("/secret/path", door.answer)
    async with listening(app) as url:
        await asyncio.to_thread(file.write_text, f"{url}/secret/path\n")
        yield


def wrong_card(body: Json) -> str:
    """As Teams' workflows: one card of what Teams knows, small enough."""
    (attachment,) = body["attachments"]
    card = attachment["content"]
    texts = [run for block in card["body"] for run in block["inlines"]]
    good = (
        body["type"] == "message"
        and attachment["contentType"] == "application/vnd.microsoft.card.adaptive"
        and (card["type"], card["version"]) == ("AdaptiveCard", "1.4")
        and {block["type"] for block in card["body"]} == {"RichTextBlock"}
        and all(run["type"] == "TextRun" and run["text"] and "\n" not in run["text"] for run in texts)
        and [action["type"] for action in card["actions"]] == ["Action.OpenUrl"]
    )
    return "" if good and len(json.dumps(body)) <= LARGEST_CARD else "BadPayload"


def wrong_slack(body: Json) -> str:
    """As Slack's incoming webhooks, of which none takes a click."""
    clickable = any(one["type"] == "actions" or "accessory" in one for one in body["blocks"])
    return "invalid_payload" if clickable or mistakes(body["blocks"]) or not body["text"] else ""


async def test_teams_is_told_by_cards_in_which_nothing_is_markup(
    room: Room, database: Database, tmp_path: Path
) -> None:
    door = Door(wrong_card)
    async with opened(door, tmp_path / "url"):
        told = await telling(room, Teams(str(tmp_path / "url")))
        change = await rolls_out_and_fails(told)
        await has_an_incident(told, database)
    assert await told.failed() == []
    first, last, incident = (one["attachments"][0]["content"] for one in door.taken)
    texts = [run["text"] for block in last["body"] for run in block["inlines"]]
    assert any("Failed after 10 min" in one for one in texts)
    assert any("<!here> <b>x</b> [click](https://evil.example)" in one for one in texts)
    assert any(run.get("fontType") == "Monospace" for block in first["body"] for run in block["inlines"])
    assert last["actions"][0]["url"].endswith(f"/changes/{change}")
    assert "None of these" in json.dumps(incident)


async def test_slack_is_told_by_an_incoming_webhook_what_it_can_show(
    room: Room, database: Database, tmp_path: Path
) -> None:
    door = Door(wrong_slack)
    async with opened(door, tmp_path / "url"):
        told = await telling(room, SlackWebhook(str(tmp_path / "url")))
        await rolls_out_and_fails(told)
        await has_an_incident(told, database)
    assert await told.failed() == []
    assert len(door.taken) == 3
    assert "&lt;!here&gt;" in str(door.taken[0])
    assert "<!here>" not in str([one for one in door.taken if "rich_text" not in str(one)])


@pytest.mark.parametrize(("kind", "wrong"), [(SlackWebhook, wrong_slack), (Teams, wrong_card)])
async def test_however_long_a_digest_is_it_is_taken(
    room: Room, tmp_path: Path, kind: type[SlackWebhook | Teams], wrong: Callable[[Json], str]
) -> None:
    door = Door(wrong)
    async with opened(door, tmp_path / "url"):
        told = await telling(room, kind(str(tmp_path / "url")))
        await room.happens(*(room.change(f"app-{n}", summary=f"{n} {'<🔥&' * 200}") for n in range(40)))
        await told.passes(70)
    assert await told.failed() == []
    assert len(door.taken) == 1
    assert "and 25 more" in str(door.taken)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ((403, "invalid_token"), "make another where it was made, and write it into url_file (403)"),
        ((404, "no_service"), "its URL is good no more"),
        ((410, "channel_is_archived"), "its URL is good no more"),
        ((400, "invalid_payload"), "invalid_payload"),
    ],
)
async def test_what_is_refused_is_given_up_without_the_url(
    room: Room, tmp_path: Path, answer: tuple[int, str], said: str
) -> None:
    door = Door(wrong_slack, deque([web.Response(status=answer[0], text=answer[1])]))
    async with opened(door, tmp_path / "url"):
        told = await telling(room, SlackWebhook(str(tmp_path / "url")))
        await room.happens(room.change("web"))
        await told.passes(20)
    (why,) = await told.failed()
    assert said in why
    assert "secret/path" not in why


async def test_what_nobody_confirmed_is_sent_again(room: Room, tmp_path: Path) -> None:
    late = [web.Response(status=429, headers={"Retry-After": "3"}), web.Response(status=500), web.Response(status=503)]
    door = Door(wrong_card, deque(late))
    async with opened(door, tmp_path / "url"):
        told = await telling(room, Teams(str(tmp_path / "url")))
        await room.happens(room.change("web"))
        await told.passes(200)
    assert len(door.taken) == 1
    assert await told.failed() == []


async def test_a_target_that_became_another_is_not_sent_what_was_written_for_the_first(
    room: Room, tmp_path: Path
) -> None:
    door = Door(wrong_card, deque([web.Response(status=500)]))
    async with opened(door, tmp_path / "url"):
        told = await telling(room, Teams(str(tmp_path / "url")))
        await room.happens(room.change("web"))
        await told.passes(4)
        routes = Routes((Route(target="ops"),), {"ops": Webhook(secret_file="/nowhere", url="http://127.0.0.1:9/")})
        assert told.sender.targets
        told.sender = replace(told.sender, targets=replace(told.sender.targets, routes=lambda: routes))
        await told.passes(30)
    (why,) = await told.failed()
    assert "a target of another kind" in why
