"""A thousand messages of changes while Slack fails in every way, also where it is asked whether a message is there, and
the sender is killed: each is there once."""

from __future__ import annotations

import random
import statistics
from dataclasses import dataclass
from datetime import datetime, timedelta

import pytest
from sqlalchemy import text

from app.core.routes import Route, Routes
from app.notify import slack as slack_module
from app.notify.sender import Sender
from app.notify.slack import Message
from app.store import deliveries
from app.store.deliveries import Failed
from app.store.outbox import Due
from tests.notify.double import FAULTS, TOKEN
from tests.notify.room import THIRD, URL, Room, room
from tests.notify.test_sender import Killed, until_killed

__all__ = ["room"]
CHANNELS = 50
APART = 21
"""Seconds between two changes of a channel: each stands by itself, for no four of them come within a minute."""
SHARE = 0.2
"""Of all calls, how many fail in each way that is tried."""
KILL = "killed"
SETTLED = 900
IMPATIENT, PATIENT = 0.05, 5.0
"""Seconds for which Slack is waited for: while calls fail, and once none does, which a busy machine must not seem."""


@dataclass
class Storm:
    """What fails, how often, and by which dice. ``over``: nothing fails any more."""

    kinds: tuple[str, ...]
    killed: float
    dice: random.Random
    over: bool = False

    def befalls(self) -> str:
        """What befalls a call: each kind a fifth of them; where there are more than three, three fifths together."""
        faults = [kind for kind in self.kinds if kind != KILL]
        share = min(SHARE * len(faults), 3 * SHARE)
        return self.dice.choice(faults) if faults and not self.over and self.dice.random() < share else ""

    def kill(self) -> None:
        """Half of the kills come before a message is posted, half of them after."""
        if KILL in self.kinds and not self.over and self.dice.random() < self.killed / 2:
            raise Killed


async def raging(room: Room, storm: Storm, waves: int, *, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """``waves`` changes in each channel, while calls fail: each is there once. How many seconds each took."""
    ids = [f"C{n:09}" for n in range(CHANNELS)]
    room.slack.channels |= set(ids)
    room.slack.reads_blocks = False
    room.routes = Routes(tuple(Route(channel, namespaces=(f"team-{n}",)) for n, channel in enumerate(ids)))
    told, real = slack_module.slack(TOKEN, f"{room.slack.url}api/"), slack_module.Slack.post
    told.web.timeout = IMPATIENT  # type: ignore[assignment]
    sender = Sender(room.database.write, told, THIRD, URL, room.clock, routes=lambda: room.routes)

    async def post(self: slack_module.Slack, due: Due, message: Message) -> str:
        storm.kill()
        ts = await real(self, due, message)
        storm.kill()
        return ts

    async def second() -> None:
        room.clock.forward(1)
        room.slack.faults.clear()
        room.slack.faults.extend(storm.befalls() for _ in range(3 * CHANNELS))
        room.slack.faults_of_looks.clear()
        room.slack.faults_of_looks.extend(storm.befalls() for _ in range(3 * CHANNELS))
        await until_killed(sender)

    monkeypatch.setattr(slack_module.Slack, "post", post)
    made: dict[str, datetime] = {}
    for number in range(waves):
        changes = [room.change(f"w{number}", namespace=f"team-{n}") for n in range(CHANNELS)]
        made |= {f"{ids[n]} {one.id}": one.at for n, one in enumerate(changes)}
        await room.happens(*changes)
        for _ in range(APART):
            await second()
    storm.over = True
    told.web.timeout = PATIENT  # type: ignore[assignment]
    for _ in range(SETTLED):
        if len(room.messages) >= len(made) and not await is_owed(room):
            break
        await second()
    there = [f"{one['channel']} {_change_of(one)}" for one in room.messages]
    assert len(there) == len(set(there)), "nothing is there twice"
    assert set(there) == set(made), "nothing is missing"
    assert await failed(room) == ()
    ends = {f"{one['channel']} {_change_of(one)}": float(one["ts"].partition(".")[0]) for one in room.messages}
    return [ends[which] - at.timestamp() for which, at in made.items()]


async def is_owed(room: Room) -> bool:
    """Whether something is to be posted or edited, or looked at within a minute."""
    owed = "SELECT EXISTS (SELECT FROM slack_messages WHERE ts IS NULL) OR EXISTS ("
    owed += "SELECT FROM slack_notices WHERE wanted <> '' OR look_at < :soon)"
    async with room.database.read.connect() as conn:
        return bool((await conn.execute(text(owed), {"soon": room.clock() + timedelta(minutes=1)})).scalar_one())


async def failed(room: Room) -> tuple[Failed, ...]:
    async with room.database.read.connect() as conn:
        return (await deliveries.read_delivery(conn, suspected=False, now=room.clock())).failed


def _change_of(message: dict[str, object]) -> str:
    return str(message["blocks"]).partition("/changes/")[2].partition("|")[0]


@pytest.mark.parametrize("kind", [*FAULTS, KILL])
async def test_with_a_fifth_of_a_kind_each_change_is_there_once(
    room: Room, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await raging(room, Storm((kind,), SHARE, random.Random(7)), 1, monkeypatch=monkeypatch)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", [*FAULTS, KILL])
async def test_a_thousand_messages_with_a_fifth_of_a_kind_are_there_once(
    room: Room, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    took = await raging(room, Storm((kind,), SHARE, random.Random(7)), 20, monkeypatch=monkeypatch)
    assert len(took) == 1000


@pytest.mark.timeout(900)
async def test_a_thousand_messages_with_every_kind_at_once_are_there_once(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    took = await raging(room, Storm((*FAULTS, KILL), 0.02, random.Random(1)), 20, monkeypatch=monkeypatch)
    assert len(took) == 1000


async def test_without_faults_a_change_is_there_within_ten_seconds(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    took = await raging(room, Storm((), 0.0, random.Random(1)), 4, monkeypatch=monkeypatch)
    assert statistics.quantiles(took, n=100)[-1] < 10
