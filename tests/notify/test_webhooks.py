"""Signed webhooks: what a receiver verifies, in which order, once by its id, whatever fails; and what is given up."""

from __future__ import annotations

import asyncio
import base64
import json
import random
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from msgspec.structs import replace as remade
from sqlalchemy import text
from standardwebhooks import webhooks

from app.collect.outbound import Answer
from app.core.findings import Ranking
from app.core.model import Batch, Outcome
from app.core.routes import Route, Routes, What
from app.core.targets import Email, Webhook
from app.notify.slack import BusyError, UnansweredError
from app.notify.targets import Targets, keys_of
from app.notifying import REPRESENT, mail, post
from app.store import deliveries, incidents, outbox
from app.store.database import Database
from app.store.partitions import ensure
from app.store.record import record
from tests.listening import listening
from tests.notify.room import Room, rolling, room
from tests.notify.test_people import People
from tests.web import world

__all__ = ["room"]
SECRET, OTHER = (f"whsec_{base64.b64encode(one * 32).decode()}" for one in (b"a", b"b"))
FAULTS = ("500", "429", "503", "reset before", "reset after")
Json = dict[str, Any]


@dataclass
class Receiver:
    """Takes what is signed with its secret, by another implementation than ours, and nothing that is stale. ``taken``
    is what it was sent; of an id that it knows it keeps nothing more."""

    room: Room
    secret: str = SECRET
    taken: list[Json] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)
    faults: deque[str] = field(default_factory=deque)
    waits_for: asyncio.Event | None = None
    took: asyncio.Event = field(default_factory=asyncio.Event)
    url: str = ""

    async def answer(self, request: web.Request) -> web.Response:
        body = await request.read()
        if self.waits_for:
            await self.waits_for.wait()
        fault = self.faults.popleft() if self.faults else ""
        if fault == "reset before":
            assert request.transport
            request.transport.abort()
        if fault[:3].isdecimal():  # and what is said
            waits = {"Retry-After": "7"} if fault[0] in "45" else {}
            return web.Response(status=int(fault[:3]), headers=waits, text=fault[4:] or "no")
        if not self._is_good(body.decode(), request.headers):
            return web.Response(status=401, text="signature")
        if request.headers["webhook-id"] not in self.ids:
            self.taken.append(json.loads(body))
        self.ids.append(request.headers["webhook-id"])
        self.took.set()
        if fault == "reset after":
            assert request.transport
            request.transport.abort()
        return web.Response(status=204)

    def _is_good(self, body: str, headers: Mapping[str, str]) -> bool:
        sent_at = datetime.fromtimestamp(int(headers["webhook-timestamp"]), UTC)
        wanted = webhooks.Webhook(self.secret).sign(headers["webhook-id"], sent_at, body)
        fresh = abs(self.room.clock() - sent_at) < timedelta(minutes=5)
        return fresh and wanted in headers["webhook-signature"].split()

    @property
    def types(self) -> list[str]:
        return [one["type"] for one in self.taken]


@dataclass
class Told(People):
    """A room of which one target is told, too."""

    receiver: Receiver
    file: Path

    async def again(self, key: str = "") -> None:
        async with self.room.database.write.begin() as conn:
            await outbox.try_again(conn, key, now=self.room.clock())


@asynccontextmanager
async def receiving(receiver: Receiver) -> AsyncIterator[None]:
    app = web.Application()
    app.router.add_post("/hook", receiver.answer)
    async with listening(app) as url:
        receiver.url = f"{url}/hook"
        yield


@pytest.fixture
async def told(room: Room, tmp_path: Path) -> AsyncIterator[Told]:
    receiver, file = Receiver(room), tmp_path / "secret"
    file.write_text(f"\ufeff{SECRET}\n", encoding="utf-8")  # as Windows writes it
    async with receiving(receiver):
        routes = Routes(
            (Route(target="ops", tell=(What.CHANGES, What.INCIDENTS)),),
            {"ops": Webhook(secret_file=str(file), url=receiver.url)},
        )
        targets = Targets(post, mail, REPRESENT, lambda: routes, room.clock)
        sender = replace(room.sender, slack=None, channel="", routes=lambda: routes, targets=targets)
        made = Told(room, sender, receiver, file)
        await made.passes(2)
        yield made


async def test_a_rollout_is_told_when_it_begins_and_ends_and_not_in_between(told: Told) -> None:
    change = told.room.change("web", diffs=world.CULPRIT.diffs)
    await told.room.happens(change, rollouts=(rolling(change, updated=0),))
    for updated in (1, 2, 3):
        await told.passes()
        await told.room.happens(rollouts=(rolling(change, updated=updated),))
    ended = rolling(change, updated=3, outcome=Outcome.FAILED, ended_at=change.at + timedelta(minutes=10))
    await told.room.happens(rollouts=(ended,))
    await told.passes()
    assert told.receiver.types == ["rollout.started", "rollout.failed"]
    assert len(set(told.receiver.ids)) == 2
    first, last = told.receiver.taken
    assert first["data"]["change"]["id"] == change.id
    assert first["data"]["link"].endswith(f"/changes/{change.id}")
    assert last["data"]["rollout"]["outcome"] == "failed"
    assert await told.failed() == []


@pytest.mark.parametrize(("then", "what"), [(Outcome.COMPLETE, "completed"), (Outcome.ROLLED_BACK, "rolled_back")])
async def test_what_becomes_of_a_rollout_that_failed_is_told(told: Told, then: Outcome, what: str) -> None:
    change = told.room.change("web", diffs=world.CULPRIT.diffs)
    failed = rolling(change, updated=3, outcome=Outcome.FAILED, ended_at=change.at + timedelta(minutes=10))
    await told.room.happens(change, rollouts=(failed,))
    await told.passes()
    for _ in range(12):
        told.room.clock.forward(60)
        await told.passes(2)
    ended_at = told.room.clock() if then is Outcome.COMPLETE else failed.ended_at
    await told.room.happens(rollouts=(remade(failed, outcome=then, ended_at=ended_at),))
    await told.passes()
    assert told.receiver.types == ["rollout.failed", f"rollout.{what}"]


async def test_an_incident_is_told_when_it_opens_and_closes(told: Told, database: Database) -> None:
    began = told.room.clock()
    opened = remade(world.incident(), id="d" * 12, started_at=began)

    async def save(ranking: Ranking | None = None, **fields: object) -> None:
        async with database.write.begin() as conn:
            await record(conn, Batch(world.CLUSTER, symptoms=(world.alert(),)))
            await incidents.save_incident(conn, remade(opened, **fields))
            if ranking:
                await ensure(conn, "rankings", [ranking.ranked_at])
                await incidents.save_ranking(conn, remade(ranking, incident_id=opened.id))

    await save(remade(world.ranking(), ranked_at=began))
    await told.passes(3)
    await save(remade(world.ranking(), ranked_at=began + timedelta(seconds=3), none_of_these=0.5))
    await told.passes(3)
    await save(status="resolved", resolved_at=began + timedelta(minutes=20))
    await told.passes(3)
    assert told.receiver.types == ["incident.opened", "incident.resolved"]
    data = told.receiver.taken[0]["data"]
    assert data["incident"]["id"] == opened.id
    assert len(data["suspects"]) == 3
    assert "checkout-api" in data["text"]


async def test_a_burst_is_one_event_with_all_that_came(told: Told) -> None:
    changes = [told.room.change(f"app-{n}") for n in range(30)]
    for n in range(0, 30, 10):
        await told.room.happens(*changes[n : n + 10])
        await told.passes(5)
    await told.passes(70)
    assert told.receiver.types == ["changes.digest"]
    data = told.receiver.taken[0]["data"]
    assert (data["count"], len(data["changes"])) == (30, 20)


async def test_what_fails_of_a_burst_is_told_after_it(told: Told) -> None:
    changes = [told.room.change(f"app-{n}") for n in range(5)]
    began = tuple(rolling(one, updated=0) for one in changes)
    await told.room.happens(*changes, rollouts=began)
    await told.passes(70)
    for number in (1, 3):
        bad = changes[number]
        ended = rolling(bad, updated=1, outcome=Outcome.FAILED, ended_at=bad.at + timedelta(minutes=2))
        await told.room.happens(rollouts=(ended,))
        await told.passes(30)
    assert told.receiver.types == ["changes.digest", "changes.failed", "changes.failed"]
    assert [one["data"]["count"] for one in told.receiver.taken] == [5, 1, 2]
    assert told.receiver.taken[1]["data"]["changes"][0]["id"] == changes[1].id


async def test_while_a_secret_is_replaced_old_and_new_receivers_take_it(told: Told) -> None:
    told.file.write_text(f"{OTHER}\n{SECRET}\n")
    for secret in (SECRET, OTHER):
        told.receiver.secret = secret
        await told.room.happens(told.room.change(f"x{secret[6].lower()}"))
        await told.passes()
    assert len(told.receiver.taken) == 2


@pytest.mark.parametrize("fault", FAULTS)
async def test_it_is_sent_again_by_the_same_id_and_as_it_was(told: Told, fault: str) -> None:
    told.receiver.faults.extend([fault] * 2)
    change = told.room.change("web")
    await told.room.happens(change, rollouts=(rolling(change, updated=0),))
    await told.passes(5)
    ended = rolling(change, updated=5, outcome=Outcome.COMPLETE, ended_at=change.at + timedelta(seconds=5))
    await told.room.happens(rollouts=(ended,))
    await told.passes(60)
    assert told.receiver.types == ["rollout.started", "rollout.completed"], "what ended meanwhile comes after it"
    assert len(set(told.receiver.ids)) == 2
    assert await told.failed() == []


async def test_what_comes_later_waits_for_what_was_not_taken(told: Told) -> None:
    told.receiver.faults.extend(["500"] * 3)
    for name in ("first", "second", "third"):
        await told.room.happens(told.room.change(name))
        await told.passes(3)
    await told.passes(120)
    names = [one["data"]["change"]["resource"]["name"] for one in told.receiver.taken]
    assert names == ["first", "second", "third"]


async def test_who_answers_late_delays_nobody_else(told: Told) -> None:
    other = Receiver(told.room)
    told.receiver.waits_for = other.took
    async with receiving(other):
        hooks = {
            name: Webhook(secret_file=str(told.file), url=one.url)
            for name, one in (("first", told.receiver), ("second", other))
        }
        routes = Routes(tuple(Route(target=name) for name in hooks), hooks)
        assert told.sender.targets
        targets = replace(told.sender.targets, routes=lambda: routes)
        told.sender = replace(told.sender, routes=lambda: routes, targets=targets)
        await told.room.happens(told.room.change("web"))
        async with asyncio.timeout(5):  # asked one after the other, the first would be waited for in vain
            await told.passes(4)
    assert told.receiver.types == other.types == ["change.recorded"]


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("404", "look at the url of the target (404)"),
        ("422", "the receiver does not take this event: it says “no” (422)"),
        ("400 type: unknown", "does not take this event: it says “type: unknown” (400)"),
        ("400  ", "the receiver does not take this event, and does not say why: its log may (400)"),
        ("409 a later one is here", "does not take this event: it says “a later one is here” (409)"),
        ("418 POST /hook is brewed", "it says “POST <redacted:url> is brewed” (418)"),
        ("", ""),
    ],
)
async def test_a_refusal_is_given_up_with_what_to_do(told: Told, fault: str, words: str) -> None:
    told.receiver.faults.extend([fault] if fault else [])
    told.receiver.secret = SECRET if fault else OTHER
    await told.room.happens(told.room.change("web"))
    await told.passes(30)
    (why,) = await told.failed()
    assert (words or "give it the secret that stands in secret_file (401)") in why
    assert SECRET not in why
    told.receiver.secret = SECRET
    await told.again()
    await told.passes(3)
    assert told.receiver.types == ["change.recorded"]


async def test_what_a_target_that_is_turned_off_is_owed_is_not_said_to_be_tried(told: Told) -> None:
    told.receiver.faults.append("410")
    await told.room.happens(told.room.change("one"))
    await told.passes()
    await told.room.happens(told.room.change("two"))
    await told.passes()
    now, database, late = told.room.clock(), told.room.database, []
    async with database.write.begin() as conn:
        await conn.exec_driver_sql(
            "UPDATE slack_messages SET put_off = 'why', put_off_since = '2026-01-01' WHERE error = ''"
        )
        for off in ("the receiver wants no more events", ""):
            await outbox.turn_off(conn, "ops", off)
            untold = await deliveries.count_untold(conn, suspected=False, now=now)
            delivery = await deliveries.read_delivery(conn, suspected=False, now=now)
            late.append((untold.failed, untold.late, len(delivery.late)))
    assert late == [(1, 0, 0), (1, 1, 1)]


async def test_who_is_gone_is_asked_once_and_told_all_when_it_is_sent_again(told: Told) -> None:
    told.receiver.faults.append("410")
    await told.room.happens(told.room.change("one"))
    await told.passes()
    await told.room.happens(told.room.change("two"))
    await told.passes()
    assert told.receiver.taken == []
    async with told.room.database.read.connect() as conn:
        assert list(await outbox.read_off(conn)) == ["ops"]
        (failed,) = (await deliveries.read_delivery(conn, suspected=False, now=told.room.clock())).failed
    await told.again(failed.key)
    await told.passes()
    assert len(told.receiver.taken) == 2


async def test_it_is_tried_for_a_day(told: Told) -> None:
    told.receiver.faults.extend(["500"] * 1000)
    await told.room.happens(told.room.change("web"))
    await told.passes(4)
    for _ in range(3):
        told.room.clock.forward(9 * 3600)
        await told.passes(1)
    (why,) = await told.failed()
    assert why == "it was tried for a day: the receiver answered 500"


async def test_a_target_that_is_not_written_any_more_is_said(told: Told) -> None:
    await told.room.happens(told.room.change("web"))
    await told.sender.teller.route()
    assert told.sender.targets
    told.sender = replace(told.sender, targets=replace(told.sender.targets, routes=Routes))
    await told.passes()
    assert "has no target ops any more" in (await told.failed())[0]


@pytest.mark.timeout(900)
async def test_of_hundreds_under_faults_none_is_missing_and_none_is_there_twice(told: Told) -> None:
    dice, made = random.Random(3), []
    for wave in range(100):
        batch = [told.room.change(f"w{wave}-{n}") for n in range(3)]
        made += [one.id for one in batch]
        await told.room.happens(*batch)
        for _ in range(16):
            told.receiver.faults.clear()
            told.receiver.faults.append(dice.choice(FAULTS) if dice.random() < 0.5 else "")
            await told.passes(1, apart=4)
    told.receiver.faults.clear()
    for _ in range(400):
        async with told.room.database.read.connect() as conn:
            owed = await conn.execute(text("SELECT count(*) FROM slack_messages WHERE ts IS NULL"))
            if not owed.scalar_one():
                break
        await told.passes(5)
    there = []
    for one in told.receiver.taken:
        data = one["data"]
        there += [change["id"] for change in data.get("changes", [data.get("change")])]
    assert sorted(there) == sorted(made)
    assert len(told.receiver.ids) > len(set(told.receiver.ids)), "some were sent twice, and dropped by their id"
    assert await told.failed() == []


@pytest.mark.parametrize(
    ("said", "wait"),
    [
        ("7", 7.0),
        ("9" * 5000, 3600.0),
        ("Sat, 01 Jan 2028 00:00:00 GMT", 3600.0),
        ("Sat, 01 Jan 2028 00:00:00 +" + "9" * 30, 30.0),
        ("Sat, 01 Jan " + "9" * 30 + " 00:00:00 GMT", 30.0),
        ("\xb2", 30.0),
        ("soon", 30.0),
    ],
)
async def test_whatever_retry_after_says_it_is_a_wait_within_an_hour(tmp_path: Path, said: str, wait: float) -> None:
    (tmp_path / "secret").write_text(SECRET)

    async def busy(_url: str, _body: bytes, _headers: Mapping[str, str]) -> Answer:
        return Answer(429, said, "")

    now = datetime(2026, 11, 29, tzinfo=UTC)
    routes = Routes(targets={"ops": Webhook(str(tmp_path / "secret"), "https://hooks.example")})
    targets = Targets(busy, mail, REPRESENT, lambda: routes, lambda: now)
    with pytest.raises(BusyError) as error:
        await targets.send("ops", outbox.Letter("msg_1", now, "{}", None))
    assert error.value.wait.total_seconds() == wait


@pytest.mark.parametrize("host", ["a..b", "x" * 70 + ".example"])
async def test_what_is_no_host_is_said_and_ends_nothing_else(host: str) -> None:
    with pytest.raises(UnansweredError, match="no host's name"):
        await post(f"https://{host}/hook", b"{}", {})
    written = EmailMessage()
    with pytest.raises(UnansweredError, match="no host's name"):
        await mail(written, Email(("a@b.example",), "c@d.example", host), "", ())


async def test_a_long_event_is_sent_without_its_fields(told: Told) -> None:
    long = remade(world.CULPRIT.diffs[0], new="x" * 100_000)
    await told.room.happens(told.room.change("web", diffs=(long,)))
    await told.passes()
    (event,) = told.receiver.taken
    assert event["diffs_left_out"] is True
    assert event["data"]["change"]["diffs"] == []
    assert len(json.dumps(event)) < 5000


@pytest.mark.parametrize(
    "text", ["", "whsec_?", "whsec_c2hvcnQ=", "geheim", f"{SECRET} {OTHER} {SECRET}", SECRET + "ß"]
)
def test_a_secret_that_is_none_is_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(ValueError) as error:  # noqa: PT011 - its words are looked at below
        keys_of(text)
    assert not text or text not in str(error.value)
