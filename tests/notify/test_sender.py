"""Incidents are told in Slack once each, in order and up to date, whatever Slack answers and whenever we are killed."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import random
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import datetime, timedelta

import pytest
from aiohttp import ClientSession
from msgspec.structs import replace
from sqlalchemy import text

from app.core.findings import NONE, Incident, Opinion, Ranking, Verdict
from app.core.model import Actor, ActorSource, Batch
from app.core.routes import Route, Routes, What
from app.notify import sender as sender_module
from app.notify import slack as slack_module
from app.notify.sender import Sender
from app.notify.slack import slack
from app.store import deliveries, incidents, outbox, verdicts
from app.store.database import Database
from app.store.partitions import ensure
from app.store.record import record
from tests.notify.double import CHANNEL, FAULTS, TOKEN, Json, Workspace, mistakes, workspace
from tests.notify.test_program import until
from tests.web import world

WAITED = 30.0
FIRST, SECOND, THIRD = (suspect.change.id for suspect in world.ranking().suspects)


class Clock:
    """A clock that stands until it is moved."""

    def __init__(self, now: datetime) -> None:
        self.now = now

    def __call__(self) -> datetime:
        return self.now

    def forward(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


@dataclass
class Desk:
    """A sender, what it sends to, and the incidents that it tells of."""

    sender: Sender
    slack: Workspace
    database: Database
    clock: Clock

    async def save(self, incident: Incident, ranking: Ranking | None = None) -> None:
        async with self.database.write.begin() as conn:
            await incidents.save_incident(conn, incident)
            if ranking is not None:
                await incidents.save_ranking(conn, replace(ranking, incident_id=incident.id))

    async def send(self, rounds: int = 1, *, apart: float = 1) -> None:
        """So many rounds, so many seconds apart."""
        for _ in range(rounds):
            self.clock.forward(apart)
            await self.sender.find()
            await self.sender.send()

    async def failed(self) -> list[str]:
        async with self.database.read.connect() as conn:
            return [
                one.error for one in (await deliveries.read_delivery(conn, suspected=False, now=self.clock())).failed
            ]

    @property
    def message(self) -> Json:
        (only,) = self.slack.thread(None)
        return only


@pytest.fixture
async def desk(database: Database) -> AsyncIterator[Desk]:
    clock = Clock(world.END + timedelta(minutes=5))
    async with database.write.begin() as conn:
        await conn.execute(text("DELETE FROM incidents"))
        await conn.execute(text("DELETE FROM slack_channels"))
        await conn.execute(text("DELETE FROM rankings"))
        await record(conn, Batch(world.CLUSTER, symptoms=(world.alert(),)))
        await ensure(conn, "rankings", [world.ranking().ranked_at])
    async with workspace(clock) as made:
        sender = Sender(database.write, slack(TOKEN, f"{made.url}api/"), CHANNEL, "https://foreshock.example", clock)
        yield Desk(sender, made, database, clock)


def ranked(*order: str, none: float = 0.04, minutes: float = 4) -> Ranking:
    """The made-up ranking with its suspects in another order, as of later."""
    by_id = {one.change.id: one for one in world.ranking().suspects}
    share = (1 - none) / (2 ** len(order) - 1)
    moved = [
        replace(by_id[change_id], rank=n + 1, probability=share * 2 ** (len(order) - n - 1))
        for n, change_id in enumerate(order)
    ]
    at = world.ALERT_AT + timedelta(minutes=minutes)
    return replace(world.ranking(), suspects=tuple(moved), none_of_these=none, ranked_at=at)


async def test_who_owns_the_object_by_now_is_said_beside_the_command(desk: Desk) -> None:
    """A person wrote it; that Flux writes it again is known by the object's labels alone."""
    flux = "kustomize.toolkit.fluxcd.io"
    first = world.ranking().suspects[0]
    by_hand = replace(first.change, actor=Actor("alice@shop.example", ActorSource.AUDIT))
    known = world.a_state(first.change)
    labels = {f"{flux}/name": "apps", f"{flux}/namespace": "flux-system"}
    owned = replace(known, state={**(known.state or {}), "metadata": {"labels": labels}})
    async with desk.database.write.begin() as conn:
        await record(conn, Batch(cluster=world.CLUSTER, objects=(owned,)))
    await desk.save(world.incident(), replace(world.ranking(), suspects=(replace(first, change=by_hand),)))
    await desk.send()
    assert "Flux owns it" in json.dumps(desk.message["blocks"])


async def test_one_message_an_incident_that_is_edited_and_a_thread_that_says_what_moved(desk: Desk) -> None:
    await desk.save(world.incident(), world.ranking())
    await desk.send(3)
    assert [one["edits"] for one in desk.slack.messages] == [0], "one message, and nothing to add to it"
    assert "checkout-api" in desk.message["text"]
    assert not mistakes(desk.message["blocks"])

    await desk.save(world.incident(), ranked(SECOND, FIRST, THIRD))
    await desk.send(3)
    assert desk.message["edits"] == 1
    (moved,) = desk.slack.thread(desk.message["ts"])
    assert moved["text"].startswith("Now likeliest: ConfigMap ")
    assert "Before it was Deployment checkout-api, now 2nd with" in moved["text"]
    assert "_1st at first_" in str(desk.message["blocks"]), "the message itself says where suspects stood at first"

    ended = replace(world.incident(), status="resolved", resolved_at=world.ALERT_AT + timedelta(minutes=20))
    await desk.save(ended)
    await desk.send(3)
    *_, last = desk.slack.thread(desk.message["ts"])
    assert last["text"] == "Resolved after 20 min."
    assert desk.message["blocks"][0]["text"]["text"].startswith("🟢")
    assert desk.slack.asked.count("chat.postMessage") == 3
    assert desk.slack.asked.count("chat.update") == 2


async def test_a_ranking_that_changes_nothing_says_nothing(desk: Desk) -> None:
    await desk.save(world.incident(), world.ranking())
    await desk.send(2)
    await desk.save(world.incident(), replace(world.ranking(), ranked_at=world.ALERT_AT + timedelta(minutes=10)))
    await desk.send(3)
    assert len(desk.slack.messages) == 1
    assert desk.slack.asked == ["chat.postMessage"], "an edit that shows the same is none"
    await desk.save(replace(world.incident(), title="Another"))
    await desk.send(3)
    assert desk.message["edits"] == 1


async def test_a_verdict_shows_in_the_message(desk: Desk) -> None:
    await desk.save(world.incident(), world.ranking())
    await desk.send()
    async with desk.database.write.begin() as conn:
        await verdicts.say(conn, world.incident().id, Verdict(FIRST, Opinion.IT, "bob", desk.clock()))
        await verdicts.say(conn, world.incident().id, Verdict(NONE, Opinion.NOT_IT, "carol", desk.clock()))
    await desk.send()
    told = str(desk.message["blocks"])
    assert "✅ This was it, says *bob*" in told
    assert "❌ Not it, says *carol*" in told


async def test_what_is_only_suspected_old_or_merged_is_not_told(desk: Desk) -> None:
    long_ago = desk.clock() - outbox.LATEST - timedelta(minutes=1)
    quiet = replace(world.incident(), id="0" * 12, status="suspected")
    old = replace(world.incident(), id="1" * 12, started_at=long_ago, alerts=())
    part = replace(world.incident(), id="2" * 12, status="merged", merged_into="0" * 12)
    for one in (quiet, old, part):
        await desk.save(one, world.ranking())
    await desk.send(4)
    assert desk.slack.messages == []
    await desk.save(replace(quiet, status="open"))
    await desk.send(2)
    assert len(desk.slack.messages) == 1, "once somebody is called for it, it is"
    await desk.save(replace(quiet, status="merged", merged_into="1" * 12))
    await desk.send(2)
    assert "It is a part of <https://foreshock.example/incidents/111111111111|another incident>" in str(
        desk.message["blocks"]
    )


async def test_what_is_only_suspected_is_told_as_that_where_it_is_wanted(desk: Desk) -> None:
    quiet = replace(world.incident(), status="suspected")
    desk.sender = dataclasses.replace(desk.sender, suspected=True)
    await desk.save(quiet, world.ranking())
    await desk.send()
    assert desk.message["blocks"][0]["text"]["text"].startswith("🟡")
    assert "*suspected* since" in str(desk.message["blocks"])
    assert not mistakes(desk.message["blocks"])
    await desk.save(replace(quiet, resolved_at=quiet.started_at + timedelta(minutes=5)))
    await desk.send(3)
    assert "*suspected*, over by now, since" in str(desk.message["blocks"])
    assert desk.slack.thread(desk.message["ts"]) == []
    await desk.save(replace(quiet, status="open"))
    await desk.send(3)
    (said,) = desk.slack.thread(desk.message["ts"])
    assert said["text"] == "Somebody is called for it now."


async def test_what_began_long_before_a_channel_was_named_is_not_told_there(desk: Desk) -> None:
    before = desk.clock() - outbox.BEFORE - timedelta(seconds=5)
    await desk.send()
    await desk.save(replace(world.incident(), started_at=before, alerts=()), world.ranking())
    await desk.send(2)
    assert desk.slack.messages == []


async def test_an_incident_that_is_not_ranked_is_told_after_a_while(desk: Desk) -> None:
    await desk.save(world.incident())
    async with desk.database.write.begin() as conn:  # news_at is by the database's clock
        await conn.execute(text("UPDATE incidents SET news_at = :now"), {"now": desk.clock()})
    await desk.send(10)
    assert desk.slack.messages == []
    await desk.send(10)
    assert desk.message["text"].endswith("not ranked yet")
    await desk.save(world.incident(), world.ranking())
    await desk.send(2)
    assert "checkout-api" in desk.message["text"]
    assert len(desk.slack.messages) == 1, "the first ranking is no move"


@pytest.mark.parametrize("fault", ["refused", "error", "page", "text", "lost"])
async def test_what_comes_after_a_message_waits_until_that_was_looked_for(desk: Desk, fault: str) -> None:
    desk.slack.faults.append(fault)
    for n, began in enumerate((9, 6, 3)):
        at = desk.clock() - timedelta(seconds=began)
        await desk.save(replace(world.incident(), id=f"{n:012}", started_at=at), world.ranking())
    await desk.send(20)
    keys = [one["metadata"]["event_payload"]["key"] for one in desk.slack.thread(None)]
    assert keys == [f"{n:012}/0" for n in range(3)]


async def test_a_channel_that_slack_does_not_answer_for_delays_no_other(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What becomes due only while it is waited for is sent, too."""
    assert desk.sender.slack
    monkeypatch.setattr(desk.sender.slack.web, "timeout", 2 * WAITED)
    channels = {"critical": "C0000000001", "warning": "C0000000002"}
    desk.slack.channels |= set(channels.values())
    desk.slack.faults.append("hangs")
    routes = tuple(Route(one, tell=(What.INCIDENTS,), severities=(severity,)) for severity, one in channels.items())
    sender = dataclasses.replace(desk.sender, routes=lambda: Routes(routes))

    async def begins(number: int, severity: str) -> None:
        began = replace(world.incident(), id=f"{number:012}", severity=severity, started_at=desk.clock())
        await desk.save(began, world.ranking())
        await sender.find()

    await begins(1, "critical")
    await begins(2, "warning")
    sending = asyncio.create_task(sender.send())
    await until(lambda: len(desk.slack.messages) == 2, WAITED)
    await begins(3, "warning")

    def a_while_later() -> bool:
        desk.clock.forward(0.1)
        return len(desk.slack.messages) == 3

    await until(a_while_later, WAITED)
    assert not sending.done(), "the first one is waited for all the while"
    assert [one["channel"] for one in desk.slack.messages] == [
        channels[one] for one in ("critical", "warning", "warning")
    ]
    sending.cancel()


async def test_one_message_a_second_and_a_channel_that_is_busy_rests(desk: Desk) -> None:
    for n in range(3):
        await desk.save(replace(world.incident(), id=f"{n:012}"), world.ranking())
    await desk.send()
    await desk.sender.send()
    assert len(desk.slack.messages) == 1, "the second within the same second waits"
    desk.slack.faults.append("busy")
    await desk.send(30)
    assert desk.slack.asked.count("chat.postMessage") == 2, "for as long as Retry-After said nothing is asked"
    await desk.send(5)
    assert len(desk.slack.messages) == 3


@pytest.mark.parametrize("told", ["", "soon", "-3"])
async def test_a_retry_after_that_says_nothing_is_half_a_minute(desk: Desk, told: str) -> None:
    desk.slack.retry_after = told
    await desk.save(world.incident(), world.ranking())
    desk.slack.faults.append("busy")
    await desk.send(29)
    assert desk.slack.messages == []
    await desk.send(3)
    assert len(desk.slack.messages) == 1


@pytest.mark.parametrize("fault", ["lost", "hangs"])
async def test_a_message_that_nobody_confirmed_is_looked_for_before_it_is_posted_again(
    desk: Desk, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.slack.faults.append(fault)
    await desk.save(world.incident(), world.ranking())
    assert desk.sender.slack
    with monkeypatch.context() as impatient:
        impatient.setattr(desk.sender.slack.web, "timeout", 0.3)
        await desk.send()
    for n in range(20):  # what others say meanwhile is on several pages
        desk.slack.messages.append({"ts": f"{desk.clock().timestamp() + 2 + n}", "channel": CHANNEL, "text": "?"})
    await desk.send(39)
    ours = [one for one in desk.slack.messages if "metadata" in one]
    assert len(ours) == 1
    assert desk.slack.asked.count("chat.postMessage") == 1
    assert desk.slack.asked.count("conversations.history") > 1
    assert ours[0]["edits"] == 1, "what was found may have shown what was so before"


async def test_a_message_is_looked_for_no_longer_than_it_is_its_sender_s(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert timedelta(seconds=sender_module.WITHIN) < outbox.CLAIM
    desk.slack.faults.append("lost")
    await desk.save(world.incident(), world.ranking())
    await desk.send()
    with monkeypatch.context() as slow:  # page after page, each in time
        slow.setattr(slack_module.Slack, "find", lambda *_, **__: asyncio.sleep(2))
        slow.setattr(sender_module, "WITHIN", 0.1)
        desk.clock.forward(WAITED)
        await desk.send()
    await desk.send(60)
    assert desk.slack.asked.count("chat.postMessage") == 1
    assert len(desk.slack.messages) == 1


async def test_where_nobody_listens_it_is_posted_later_without_a_look(desk: Desk) -> None:
    assert desk.sender.slack
    answering = desk.sender.slack.web.base_url
    desk.sender.slack.web.base_url = "http://127.0.0.1:9/api/"
    await desk.save(world.incident(), world.ranking())
    await desk.send(2)
    first = desk.clock()
    await desk.send(70)
    async with desk.database.read.connect() as conn:
        (late,) = (await deliveries.read_delivery(conn, suspected=False, now=desk.clock())).late
    assert (late.channel, late.messages) == (CHANNEL, 1)
    assert late.since <= first, "since it was tried first"
    assert late.why.endswith("HTTPS_PROXY and FORESHOCK_SLACK_API (ClientConnectorError)")
    assert TOKEN not in late.why
    desk.sender.slack.web.base_url = answering
    await desk.send(100)
    assert desk.slack.asked == ["chat.postMessage"]
    assert len(desk.slack.messages) == 1
    async with desk.database.read.connect() as conn:
        delivery = await deliveries.read_delivery(conn, suspected=False, now=desk.clock() + outbox.BEFORE)
    assert (delivery.waiting, delivery.late) == (0, ())


async def test_what_is_said_of_a_part_is_shown_of_the_whole(desk: Desk) -> None:
    """Who clicks a message that is not edited yet, or in another channel, speaks of the incident that it is a part of
    by now."""
    whole, part = world.incident(), replace(world.incident(), id="0" * 12)
    await desk.save(whole, world.ranking())
    await desk.save(replace(part, status="merged", merged_into=whole.id, alerts=()))
    await desk.send(2)
    for opinion, by, words in (
        (Opinion.IT, "alice", "This was it, says *alice*"),
        (Opinion.NOT_IT, "bob", "Not it, says *bob*"),
    ):
        async with desk.database.write.begin() as conn:
            await verdicts.say(conn, part.id, Verdict(FIRST, opinion, by, desk.clock()))
        await desk.send(2)
        assert words in str(desk.message["blocks"])


async def test_another_channel_takes_what_is_new_and_the_first_keeps_its_own(desk: Desk) -> None:
    await desk.save(world.incident(), world.ranking())
    await desk.send()
    desk.slack.channels.add("C0000000002")
    elsewhere = Sender(desk.database.write, desk.sender.slack, "C0000000002", "https://foreshock.example", desk.clock)
    await desk.save(world.incident(), ranked(SECOND, FIRST, THIRD))
    await desk.save(replace(world.incident(), id="a" * 12, started_at=desk.clock()), world.ranking())
    for _ in range(5):
        desk.clock.forward(1)
        await elsewhere.find()
        await elsewhere.send()
    first, other = desk.slack.thread(None)
    assert (first["channel"], first["edits"]) == (CHANNEL, 1)
    assert other["channel"] == "C0000000002"
    assert desk.slack.thread(first["ts"])[0]["channel"] == CHANNEL


async def test_an_incident_goes_where_the_first_route_says_that_fits_it(desk: Desk) -> None:
    desk.slack.channels |= {"C0000000002", "C0000000003"}
    severe = Route("C0000000002", tell=(What.INCIDENTS,), severities=("critical",))
    sender = dataclasses.replace(desk.sender, routes=lambda: Routes((severe, Route("C0000000003"))))
    await desk.save(
        replace(world.incident(), id="b" * 12, severity="critical", started_at=desk.clock()), world.ranking()
    )
    await desk.save(
        replace(world.incident(), id="c" * 12, severity="warning", started_at=desk.clock()), world.ranking()
    )
    for _ in range(20):
        desk.clock.forward(1)
        await sender.find()
        await sender.send()
    told = {one["metadata"]["event_payload"]["key"]: one["channel"] for one in desk.slack.messages}
    assert told == {f"{'b' * 12}/0": "C0000000002", f"{'c' * 12}/0": CHANNEL}


class Killed(BaseException):
    """As a kill -9 in the middle: nothing is noted."""


async def until_killed(sender: Sender) -> None:
    """A round, which ends where one of what it sends is killed."""
    await sender.find()
    try:
        await sender.send()
    except* Killed:
        pass


@pytest.mark.parametrize("seed", range(3))
async def test_with_a_fifth_of_each_fault_and_kills_nothing_is_missing_or_shown_twice(
    desk: Desk, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    dice = random.Random(seed)
    assert desk.sender.slack
    monkeypatch.setattr(desk.sender.slack.web, "timeout", 0.1)
    real = slack_module.Slack.post

    async def post(self: slack_module.Slack, due: outbox.Due, message: slack_module.Message) -> str:
        if dice.random() < 0.1:
            raise Killed
        ts = await real(self, due, message)
        if dice.random() < 0.1:
            raise Killed
        return ts

    monkeypatch.setattr(slack_module.Slack, "post", post)
    made = [replace(world.incident(), id=f"{n:012}", started_at=desk.clock() - timedelta(seconds=n)) for n in range(30)]
    orders = [(FIRST, SECOND, THIRD), (SECOND, FIRST, THIRD), (THIRD, FIRST, SECOND)]
    for n, minutes in enumerate((3, 6, 9)):
        for incident in made:
            await desk.save(incident, ranked(*orders[n], minutes=minutes))
        for _ in range(150):
            if dice.random() < 0.6:
                desk.slack.faults.append(dice.choice(FAULTS))
            desk.clock.forward(1)
            await until_killed(desk.sender)
    desk.slack.faults.clear()
    monkeypatch.setattr(slack_module.Slack, "post", real)
    await desk.send(300, apart=5)
    keys = [one["metadata"]["event_payload"]["key"] for one in desk.slack.messages]
    assert len(keys) == len(set(keys)), "nothing is there twice"
    assert {f"{incident.id}/0" for incident in made} <= set(keys), "nothing is missing"
    third = next(one.change.resource.name for one in world.ranking().suspects if one.change.id == THIRD)
    for message in desk.slack.thread(None):
        assert third in message["text"], "each shows what is so now"
        said = [one["metadata"]["event_payload"]["key"] for one in desk.slack.thread(message["ts"])]
        assert said == sorted(said), "a thread is in its order"
    assert await desk.failed() == []


async def test_the_double_refuses_what_slack_refuses() -> None:
    async with workspace(Clock(world.END)) as made, ClientSession() as http:

        async def asked(method: str, given: Json, token: str = TOKEN) -> str:
            headers = {"Authorization": f"Bearer {token}"} if token else {}
            async with http.post(f"{made.url}api/{method}", json=given, headers=headers) as answer:
                return str((await answer.json()).get("error"))

        whole = {"channel": CHANNEL, "text": "x"}
        assert await asked("chat.postMessage", whole, token="") == "not_authed"
        assert await asked("chat.postMessage", whole, token="xoxb-another") == "invalid_auth"
        assert await asked("chat.postMessage", {"channel": CHANNEL}) == "no_text"
        assert await asked("chat.postMessage", {"channel": "C9", "text": "x"}) == "channel_not_found"
        assert await asked("chat.postMessage", whole | {"text": "x" * 40_001}) == "msg_too_long"
        section = {"type": "section", "text": {"type": "mrkdwn", "text": "x"}}
        button = {"type": "button", "action_id": "a", "text": {"type": "plain_text", "text": "x"}}
        for blocks in (
            [section] * 51,
            [{"type": "nothing"}],
            [section | {"colour": "red"}],
            [{"type": "section"} | {"text": {"type": "mrkdwn", "text": "x" * 3001}}],
            [{"type": "actions", "elements": [button, button]}],
            [{"type": "actions", "elements": [button | {"value": "x" * 2001}]}],
        ):
            assert await asked("chat.postMessage", whole | {"blocks": blocks}) == "invalid_blocks", str(blocks)[:99]
        long = [{"type": "section", "text": {"type": "mrkdwn", "text": "x" * 2900}}] * 5
        assert await asked("chat.postMessage", whole | {"blocks": long}) == "msg_blocks_too_long"
        assert await asked("chat.postMessage", whole) == "None"
        assert await asked("chat.postMessage", whole) == "ratelimited"
        assert await asked("chat.update", whole | {"ts": "1.0"}) == "message_not_found"
