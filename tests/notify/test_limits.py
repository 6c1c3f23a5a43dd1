"""Slack limits edits and looks of all channels together: what is new and incidents do not wait for them."""

from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec.structs import replace

from app.core.model import Outcome, Progress, Rollout
from app.core.routes import Route, Routes
from app.notify import slack as slack_module
from app.store import incidents
from app.store.partitions import ensure
from tests.notify.double import A_MINUTE, CHANNEL
from tests.notify.room import THIRD, Room, rolling, room
from tests.web import world

__all__ = ["room"]
MANY = 25
IDS = tuple(f"C{n:09}" for n in range(1000, 1000 + MANY))


def everywhere(room: Room) -> None:
    """Each of many channels is told of a namespace of its own."""
    room.slack.channels |= set(IDS)
    room.slack.reads_blocks = False
    own = tuple(Route(channel, namespaces=(f"team-{n}",)) for n, channel in enumerate(IDS))
    room.routes = Routes((*own, Route(CHANNEL, namespaces=("payments",))))


async def test_many_rollouts_that_move_at_once_are_edited_in_turn_and_nothing_waits_for_them(room: Room) -> None:
    everywhere(room)
    changes = [room.change(f"web-{n}", namespace=f"team-{n}") for n in range(MANY)]

    def at(percent: int, outcome: Outcome = Outcome.RUNNING) -> tuple[Rollout, ...]:
        progress = (Progress(room.clock(), 100, percent, percent),)
        return tuple(rolling(one, updated=0, progress=progress, outcome=outcome) for one in changes)

    await room.happens(*changes, rollouts=at(0))
    for second in range(90):
        await room.happens(rollouts=at(second + 1))
        if second == 40:
            await room.happens(room.change("new"))
        if second == 60:
            async with room.database.write.begin() as conn:
                incident = replace(world.incident(), started_at=room.clock(), alerts=())
                await ensure(conn, "rankings", [room.clock()])
                await incidents.save_incident(conn, incident)
                await incidents.save_ranking(conn, replace(world.ranking(), ranked_at=room.clock()))
        if second == 70:
            async with room.database.write.begin() as conn:
                await incidents.save_incident(conn, replace(incident, status="resolved", resolved_at=room.clock()))
        await room.passes(1)
        if second == 44:
            assert any("image of new" in one["text"] for one in room.messages)
        if second == 73:
            (told,) = [one for one in room.messages if one["channel"] == THIRD]
            assert told["text"].startswith("🟢"), "an incident's edit comes before those of rollouts"
    own = [one for one in room.messages if one["channel"] in IDS]
    assert len(own) == MANY
    assert min(one["edits"] for one in own) >= 2, "each has its turn"
    ended = at(100, Outcome.COMPLETE)
    await room.happens(rollouts=tuple(replace(one, ended_at=room.clock()) for one in ended))
    await room.passes(75)
    assert all(one["text"].startswith("🟢") for one in own)
    assert room.slack.limited == [], "Slack never has to say that it is too much"


@pytest.mark.parametrize("method", ["chat.update", "conversations.history"])
async def test_where_slack_limits_a_method_of_the_workspace_the_channel_goes_on(room: Room, method: str) -> None:
    change = room.change("web")
    if method == "chat.update":
        await room.happens(change, rollouts=(rolling(change, updated=0),))
        await room.passes()
        room.slack.faults.append("busy")
        await room.happens(rollouts=(rolling(change, updated=2),))
    else:
        room.slack.faults.append("lost")
        room.slack.faults_of_looks.append("busy")
        await room.happens(change)
    await room.passes(15)
    asked = room.slack.asked.count(method)
    assert asked == 1
    await room.happens(room.change("other"))
    await room.passes(5)
    assert [one["text"] for one in room.messages][-1].startswith("🔹 image of other"), "what is new does not wait"
    assert room.slack.asked.count(method) == asked, "for as long as Retry-After said"
    await room.passes(30)
    assert room.slack.asked.count(method) > asked
    assert len(room.messages) == 2


async def test_what_is_looked_for_in_many_channels_at_once_is_found_though_looks_are_limited(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    everywhere(room)
    monkeypatch.setitem(A_MINUTE, "conversations.history", 5)
    room.slack.faults.extend(["lost"] * MANY)
    await room.happens(*(room.change("web", namespace=f"team-{n}") for n in range(MANY)))
    for _ in range(60):
        room.clock.forward(9)
        await room.passes(1)
    assert sorted(one["channel"] for one in room.messages) == sorted(IDS)
    assert "conversations.history" in room.slack.limited


async def test_the_double_limits_each_method_by_its_tier(room: Room) -> None:
    told = slack_module.slack("xoxb-of-the-double", f"{room.slack.url}api/")
    for _ in range(A_MINUTE["chat.unfurl"]):
        await told.unfurl({"channel": CHANNEL, "ts": "1.0"}, {"https://x": {"blocks": []}})
    with pytest.raises(slack_module.BusyError) as busy:
        await told.unfurl({"channel": CHANNEL, "ts": "1.0"}, {"https://x": {"blocks": []}})
    assert (busy.value.method, busy.value.wait) == ("chat.unfurl", timedelta(minutes=1))
    room.clock.forward(60)
    await told.unfurl({"channel": CHANNEL, "ts": "1.0"}, {"https://x": {"blocks": []}})
