"""What a change reaches, in its message, and what followed, in its thread: from what was recorded, at its moments."""

from __future__ import annotations

from datetime import datetime, timedelta

from msgspec.structs import replace
from sqlalchemy import text

from app.core.model import SLOT_SECONDS, CallCount, CallKey, Change, ObjectState, Resource
from app.notify.notice import FOLLOWS
from tests.notify.double import Json
from tests.notify.room import Room, rolling, room
from tests.web import world

__all__ = ["room"]
PATCHES = CallKey(world.ARGOCD, "argocd-0", "argocd", "patch", "apps", "deployments", "payments", 200)
LISTS = CallKey(world.ARGOCD, "argocd-0", "argocd", "list", "", "secrets", "payments", 200)
OTHERS = CallKey("alice@shop.example", "", "kubectl", "get", "", "pods", "", 200)
FIRST, LAST = FOLLOWS


def rises(key: CallKey, change: Change, *, after: timedelta) -> tuple[CallCount, ...]:
    """Calls from four minutes before a change to twelve after it: from so long after it on, 40 a second."""
    begins, turns, ends = (
        int((change.at + away).timestamp()) // SLOT_SECONDS * SLOT_SECONDS
        for away in (timedelta(minutes=-4), after, timedelta(minutes=12))
    )
    return tuple(
        CallCount(key, slot, 1 if slot < turns else 40 * SLOT_SECONDS, 1000)
        for slot in range(begins, ends, SLOT_SECONDS)
    )


async def a_rollout(room: Room) -> Change:
    """A rollout of just now, made at no whole second, after which its actor calls more."""
    change = replace(room.change("web"), at=room.clock() - timedelta(microseconds=123457))
    calls = (
        *rises(PATCHES, change, after=timedelta(seconds=30)),
        *rises(LISTS, change, after=timedelta(minutes=5)),
        *rises(OTHERS, change, after=timedelta(seconds=30)),
    )
    await room.happens(change, rollouts=(rolling(change, updated=1),), calls=calls)
    await room.passes()
    return change


async def until(room: Room, at: datetime) -> None:
    """The sender stands still up to then, but for a look every twenty seconds."""
    while room.clock() + timedelta(seconds=20) < at:
        room.clock.forward(19)
        await room.passes(1)
    room.clock.forward((at - room.clock()).total_seconds() - 1)
    await room.passes(1)


def thread(room: Room) -> list[str]:
    (message,) = room.messages
    return [one["text"] for one in room.slack.thread(message["ts"])]


async def test_what_followed_a_rollout_is_said_in_its_thread_at_its_moments_and_once(room: Room) -> None:
    change = await a_rollout(room)
    await until(room, change.at + FIRST - timedelta(seconds=2))
    assert thread(room) == [], "calls rose long ago, but it is not yet the time"
    await room.passes(8)
    (said,) = thread(room)
    head, line = said.split("\n")
    assert head == "Since this rollout:"
    assert line.startswith("• PATCH deployments by argocd-application-controller: 0.2/s → 40/s, ")
    await until(room, change.at + LAST - timedelta(seconds=2))
    assert thread(room) == [said], "what moves between the two moments waits for the second"
    await room.passes(8)
    first, second = thread(room)
    assert first == said
    assert second.startswith("Since this rollout:\n• LIST secrets by argocd-application-controller: 0.2/s → 40/s, ")
    assert len(second.split("\n")) == 2, "what was said is not said again"
    await until(room, change.at + LAST + timedelta(minutes=5))
    assert thread(room) == [first, second]


async def test_a_moment_that_passed_while_nobody_told_is_made_up_for(room: Room) -> None:
    change = await a_rollout(room)
    room.clock.forward((FIRST + timedelta(seconds=50)).total_seconds())
    assert room.clock() > change.at + FIRST
    await room.passes(3)
    assert len(thread(room)) == 1


async def test_where_nothing_moved_the_thread_is_silent(room: Room) -> None:
    change = room.change("web")
    await room.happens(change, rollouts=(rolling(change, updated=1),), calls=rises(OTHERS, change, after=FIRST / 3))
    await room.passes()
    await until(room, change.at + LAST + timedelta(seconds=30))
    assert thread(room) == []


def workload(room: Room, name: str) -> ObjectState:
    pod = {"metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": "app", "image": "app:v1"}]}}
    resource = Resource(world.CLUSTER, "apps", "Deployment", "limited", name)
    state: Json = {"spec": {"selector": {"matchLabels": {"app": name}}, "template": pod}}
    return ObjectState(resource, f"uid-{name}", "1", room.clock(), state)


async def test_what_a_change_reaches_is_in_its_message_and_looked_up_once(room: Room) -> None:
    limits = room.change("most", kind="LimitRange", api_group="", namespace="limited", summary="default of most: 1 → 2")
    await room.happens(limits, objects=(workload(room, "cart"), workload(room, "web")))
    await room.passes()
    (message,) = room.messages
    shown = room.shows(message)
    assert "Reaches limited/cart, limited/web" in shown
    async with room.database.read.connect() as conn:
        kept = (await conn.execute(text("SELECT reach FROM slack_notices"))).scalar_one()
    assert kept == ["limited/cart", "limited/web"]
    await room.happens(objects=(workload(room, "later"),))
    await room.passes(60)
    assert room.shows(message) == shown, "it is of when the change was first told"


async def test_of_a_digest_nothing_is_looked_up(room: Room) -> None:
    changes = [room.change(f"web-{n}") for n in range(6)]
    await room.happens(*changes, calls=rises(PATCHES, changes[0], after=timedelta(seconds=30)))
    await room.passes()
    await until(room, changes[0].at + LAST + timedelta(seconds=30))
    (digest,) = room.messages
    assert "Reaches" not in room.shows(digest)
    assert room.slack.thread(digest["ts"]) == []
