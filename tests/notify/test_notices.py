"""Changes and rollouts in Slack: one message each that updates itself, a digest of a burst, and what is not told."""

from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec.structs import replace
from sqlalchemy import text

from app.core.model import NOBODY, ObjectState, Outcome, Progress, Resource, Verb
from app.core.routes import Quiet, Route, Routes
from app.notify.asking import asked
from app.notify.slack import Message, Slack
from app.store import deliveries, notices, outbox
from tests.notify.double import CHANNEL, Json
from tests.notify.room import OTHER, URL, Room, rolling, room
from tests.web import world

__all__ = ["room"]


async def test_a_rollout_is_one_message_that_updates_itself(room: Room) -> None:
    change = room.change("checkout-api", diffs=world.CULPRIT.diffs)
    await room.happens(change, rollouts=(rolling(change, updated=0),))
    await room.passes()
    (message,) = room.messages
    assert message["text"].startswith("🔵 image of checkout-api: v1 → v2: 0 %")
    shows = room.shows(message)
    assert f"<{URL}/changes/{change.id}|image of checkout-api: v1 → v2>" in shows
    assert "+ registry.example/checkout-api:v1.42.0" in shows
    assert "by argocd" in shows
    for updated in (2, 4):
        await room.happens(rollouts=(rolling(change, updated=updated),))
        await room.passes()
        assert f"*{updated * 20} %*" in room.shows(message)
    edits = message["edits"]
    await room.passes(20)
    assert message["edits"] == edits, "what shows the same is not edited"
    done = rolling(change, updated=5, outcome=Outcome.COMPLETE, ended_at=change.at + timedelta(seconds=42))
    await room.happens(rollouts=(done,))
    await room.passes()
    assert "🟢" in message["text"]
    assert "Rolled out in 42 s" in room.shows(message)
    assert room.messages == [message]
    assert room.slack.thread(message["ts"]) == [], "that it went well nobody is called for"


async def test_while_a_rollout_moves_it_is_edited_every_five_seconds_at_most(room: Room) -> None:
    change = room.change("web")
    await room.happens(change, rollouts=(rolling(change, updated=0),))
    for second in range(60):
        progress = (Progress(change.at, 100, second, second),)
        await room.happens(rollouts=(rolling(change, updated=0, progress=progress),))
        await room.passes(1)
    assert 8 <= room.messages[0]["edits"] <= 12


async def test_a_failure_is_said_in_the_thread_with_how_to_undo_it(room: Room) -> None:
    change = room.change("web")
    await room.happens(change, rollouts=(rolling(change, updated=1),))
    await room.passes()
    failed = rolling(change, updated=1, outcome=Outcome.FAILED, ended_at=change.at + timedelta(minutes=10))
    await room.happens(rollouts=(replace(failed, reason="ProgressDeadlineExceeded"),))
    await room.passes()
    (message,) = room.messages
    assert message["text"].startswith("🔴")
    assert "kubectl rollout undo" in room.shows(message)
    (said,) = room.slack.thread(message["ts"])
    assert said["text"] == "Failed after 10 min: ProgressDeadlineExceeded."


@pytest.mark.parametrize(
    ("ended", "then", "shows", "said"),
    [
        (Outcome.FAILED, Outcome.ROLLED_BACK, "🟠", ["Failed after 10 min.", "Rolled back."]),
        (Outcome.COMPLETE, Outcome.ROLLED_BACK, "🟠", ["Rolled back."]),
        (Outcome.FAILED, Outcome.COMPLETE, "🟢", ["Failed after 10 min."]),
        (Outcome.FAILED, Outcome.RUNNING, "🔵", ["Failed after 10 min."]),
    ],
)
async def test_what_becomes_of_a_rollout_that_was_over_is_told(
    room: Room, ended: Outcome, then: Outcome, shows: str, said: list[str]
) -> None:
    room.clock.forward(0.000123)  # an id holds milliseconds
    change = room.change("web")
    await room.happens(change, rollouts=(rolling(change, updated=1),))
    await room.passes()
    over = rolling(change, updated=1, outcome=ended, ended_at=change.at + timedelta(minutes=10))
    await room.happens(rollouts=(over,))
    for _ in range(20):
        room.clock.forward(60)
        await room.passes(2)
    step = Progress(room.clock(), 5, 3, 3)
    ended_at = {Outcome.RUNNING: None, Outcome.COMPLETE: room.clock()}.get(then, over.ended_at)
    more = {"progress": (*over.progress, step)} if then in (Outcome.RUNNING, Outcome.COMPLETE) else {}
    turned = replace(over, outcome=then, ended_at=ended_at, **more)
    fix = room.change("web", namespace="elsewhere")
    begun = (rolling(fix, updated=0),) if then is Outcome.ROLLED_BACK else ()
    await room.happens(*([fix] if begun else []), rollouts=(turned, *begun))
    await room.passes()
    message = next(one for one in room.messages if change.id in str(one["blocks"]))
    assert message["text"].startswith(shows)
    assert [one["text"] for one in room.slack.thread(message["ts"])] == said


async def test_how_a_rollout_ends_while_its_message_is_being_edited_is_told(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is found by its last look: what is sent then is of before."""
    change = room.change("checkout-api", diffs=world.CULPRIT.diffs)
    await room.happens(change, rollouts=(rolling(change, updated=0),))
    await room.passes()
    for _ in range(16):
        room.clock.forward(60)
        await room.passes(1)
    edit, looked = Slack.edit, False

    async def slow(self: Slack, due: outbox.Due, what: Message) -> None:
        nonlocal looked
        await edit(self, due, what)
        if not looked:
            looked = True
            failed = rolling(change, updated=2, outcome=Outcome.FAILED, ended_at=change.at + timedelta(minutes=17))
            await room.happens(rollouts=(replace(failed, reason="it is stuck"),))
            room.clock.forward(60)
            await room.sender.find()

    monkeypatch.setattr(Slack, "edit", slow)
    await room.happens(rollouts=(rolling(change, updated=2),))
    room.clock.forward(60)
    await room.passes(10)
    assert looked
    (message,) = room.messages
    assert message["text"].startswith("🔴")
    assert [said["text"] for said in room.slack.thread(message["ts"])] == ["Failed after 17 min: it is stuck."]


async def test_who_did_it_is_added_once_it_is_known(room: Room) -> None:
    change = room.change("web")
    unknown = replace(change, actor=NOBODY, sources=frozenset({"watch"}))
    await room.happens(unknown)
    await room.passes()
    (message,) = room.messages
    assert "someone unknown" in room.shows(message)
    await room.happens(replace(change, sources=frozenset({"audit"})))
    await room.passes(40)
    assert "by argocd" in room.shows(message)
    assert (message["edits"], len(room.messages)) == (1, 1)


async def test_a_burst_is_a_digest_that_is_edited(room: Room) -> None:
    await room.happens(*(room.change(f"app-{n}") for n in range(2)))
    await room.passes(10)
    assert len(room.messages) == 2
    for wave in range(4):
        await room.happens(*(room.change(f"wave-{wave}-{n}") for n in range(20)))
        await room.passes(10)
    assert len(room.messages) == 3
    digest = room.messages[-1]
    assert "*80 changes* in shop" in room.shows(digest)
    assert "and 65 more" in room.shows(digest)
    assert 3 <= digest["edits"] <= 8
    await room.passes(90)
    await room.happens(room.change("later"))
    await room.passes()
    assert len(room.messages) == 4, "when the burst is over, a change stands by itself again"


async def test_of_a_digest_of_thousands_the_first_are_read_and_all_counted(room: Room) -> None:
    await room.happens(*(room.change(f"app-{n}") for n in range(1500)))
    await room.passes()
    (digest,) = room.messages
    assert "*1,500 changes* in shop" in room.shows(digest)
    assert "and 1,485 more" in room.shows(digest)


async def test_each_channel_is_told_what_its_routes_say_and_nothing_twice(room: Room) -> None:
    room.routes = Routes((Route(CHANNEL, namespaces=("pay*",)), Route(CHANNEL), Route(OTHER, labels={"team": "blue"})))
    await room.passes(1)
    space = Resource(world.CLUSTER, "", "Namespace", None, "cart")
    labelled = ObjectState(space, "u", "1", room.clock(), {"metadata": {"labels": {"team": "blue"}}})
    await room.happens(room.change("web"), room.change("cart", namespace="cart"), objects=(labelled,))
    await room.passes()
    told = [(one["channel"], one["text"]) for one in room.messages]
    assert sorted(told) == sorted(
        [
            (CHANNEL, "🔹 image of web: v1 → v2"),
            (CHANNEL, "🔹 image of cart: v1 → v2"),
            (OTHER, "🔹 image of cart: v1 → v2"),
        ]
    )
    await room.passes(20)
    assert len(room.messages) == 3


async def test_what_begun_or_repeats_is_not_told(room: Room) -> None:
    change = room.change("web")
    await room.happens(change)
    await room.passes()
    derived = room.change("web-2", begun_by=change.id)
    old = replace(room.change("old"), at=room.clock() - timedelta(hours=2))
    config = room.change("settings", kind="ConfigMap", api_group="")
    await room.happens(change, derived, old, config)
    await room.passes()
    assert len(room.messages) == 1


async def test_of_what_arrived_before_there_were_routes_nothing_is_told(room: Room) -> None:
    routes, room.routes = room.routes, Routes()
    await room.passes(2)
    await room.happens(room.change("before"))
    await room.passes(2)
    room.routes = routes
    await room.passes(5)
    assert room.messages == []
    await room.happens(room.change("after"))
    await room.passes()
    assert [one["text"] for one in room.messages] == ["🔹 image of after: v1 → v2"]


async def test_what_was_made_while_nobody_told_is_told_late_as_such(room: Room) -> None:
    await room.passes(2)
    alone = room.change("alone")
    await room.happens(alone)
    room.clock.forward(3 * 3600)
    await room.passes(5)
    (message,) = room.messages
    assert "told 3 h later" in room.shows(message)
    many = [room.change(f"app-{n}") for n in range(5)]
    await room.happens(*many)
    room.clock.forward(5400)
    await room.passes(5)
    shown = room.shows(room.messages[-1])
    assert "*5 changes* in shop, the first of " in shown
    assert "told 1 h 30 min later" in shown
    await room.passes(70)
    await room.happens(room.change("soon"))
    await room.passes(5)
    assert "later" not in room.shows(room.messages[-1])


async def test_what_was_made_before_a_channel_was_told_of_anything_or_days_ago_is_on_the_timeline(room: Room) -> None:
    before, long_ago = room.change("before"), room.change("long-ago")
    room.clock.forward(2 * 3600)
    await room.passes(2)
    await room.happens(before)
    room.clock.forward(25 * 3600)
    await room.happens(long_ago)
    await room.passes(5)
    assert room.messages == []


async def test_in_quiet_hours_changes_wait_and_come_in_one_message(room: Room) -> None:
    begins = (room.clock() - timedelta(minutes=1)).strftime("%H:%M")
    ends = room.clock().replace(second=0, microsecond=0) + timedelta(minutes=2)
    room.routes = Routes((Route(CHANNEL, quiet=Quiet(begins, ends.strftime("%H:%M"))),))
    for n in range(6):
        await room.happens(room.change(f"app-{n}"))
        await room.passes(10)
    assert room.messages == []
    await room.passes(int((ends - room.clock()).total_seconds()) + 5)
    (message,) = room.messages
    assert "*6 changes* in shop" in room.shows(message)


def quiet(room: Room, minutes: int) -> Quiet:
    """Quiet hours that end in so many minutes."""
    begins, ends = room.clock() - timedelta(minutes=1), room.clock() + timedelta(minutes=minutes)
    return Quiet(f"{begins:%H:%M}", f"{ends:%H:%M}")


async def test_what_another_route_tells_at_once_takes_nothing_along_that_waits(room: Room) -> None:
    shop, pay = Route(CHANNEL, namespaces=("shop",), quiet=quiet(room, 60)), Route(CHANNEL, namespaces=("pay",))
    room.routes = Routes((shop, pay))
    await room.happens(room.change("waits", namespace="shop"))
    await room.passes(10)
    for n in range(5):
        await room.happens(room.change(f"app-{n}", namespace="pay"))
        await room.passes(5)
    assert room.messages
    assert "waits" not in str(room.messages)


async def test_what_waits_for_longer_is_not_told_with_what_waits_for_less(room: Room) -> None:
    shop = Route(CHANNEL, namespaces=("shop",), quiet=quiet(room, 2))
    room.routes = Routes((shop, Route(CHANNEL, namespaces=("pay",), quiet=quiet(room, 60))))
    await room.happens(room.change("longer", namespace="pay"))
    await room.happens(room.change("less", namespace="shop"))
    await room.passes(130)
    (message,) = room.messages
    assert "less" in message["text"]
    assert "longer" not in str(message)


async def test_what_is_muted_while_it_waits_is_not_told(room: Room) -> None:
    room.routes = Routes((Route(CHANNEL, quiet=quiet(room, 2)),))
    kept = room.change("kept", namespace="pay")
    await room.happens(room.change("web", namespace="shop"), room.change("api", namespace="shop"), kept)
    await room.passes(3)
    await room.mutes.answer(asked("mute 1h shop"), CHANNEL, by="alice")
    await room.passes(130)
    assert [one["text"] for one in room.messages] == ["🔹 image of kept: v1 → v2"]
    room.routes = Routes((Route(CHANNEL, quiet=quiet(room, 2)),))
    await room.happens(room.change("late", namespace="shop"))
    await room.passes(130)
    async with room.database.read.connect() as conn:
        assert (await deliveries.read_delivery(conn, suspected=False, now=room.clock())).waiting == 0


async def test_what_is_muted_is_not_told_and_is_told_again_later(room: Room) -> None:
    change = room.change("web")
    await room.happens(change)
    await room.passes()
    (message,) = room.messages
    event = {"reaction": "no_bell", "user": "U1", "item": {"type": "message", "channel": CHANNEL, "ts": message["ts"]}}
    await room.mutes.take({"event": event | {"type": "reaction_added"}})
    await room.happens(room.change("web", namespace="payments"), room.change("other"))
    await room.passes()
    assert [one["text"] for one in room.messages[1:]] == ["🔹 image of other: v1 → v2"]
    (kept,) = await read_muted(room)
    assert kept.covers(change.resource)
    for others in ({"kind": "StatefulSet"}, {"api_group": "apps.example.com"}, {"name": "api"}, {"namespace": "else"}):
        assert not kept.covers(replace(change.resource, **others)), others
    await room.mutes.take({"event": event | {"type": "reaction_removed"}})
    await room.happens(room.change("web"))
    await room.passes()
    assert len(room.messages) == 3


async def test_what_several_have_muted_is_told_again_once_the_last_has_taken_it_back(room: Room) -> None:
    change = room.change("web")
    await room.happens(change)
    await room.passes()
    (message,) = room.messages
    for user, kind, left in (
        ("U1", "reaction_added", 1),
        ("U2", "reaction_added", 1),
        ("U2", "reaction_added", 1),  # Slack tells it again where it got no answer
        ("U1", "reaction_removed", 1),
        ("U1", "reaction_removed", 1),
        ("U2", "reaction_removed", 0),
        ("U1", "reaction_added", 1),
        ("U1", "reaction_removed", 0),
    ):
        await room.mutes.take({"event": reaction(message) | {"type": kind, "user": user}})
        assert await muted(room) == left, (user, kind)


def reaction(message: Json) -> Json:
    item = {"type": "message", "channel": CHANNEL, "ts": message["ts"]}
    return {"type": "reaction_added", "reaction": "no_bell", "user": "U1", "item": item}


async def muted(room: Room) -> int:
    return len(await read_muted(room))


async def read_muted(room: Room) -> list[notices.Mute]:
    async with room.database.read.connect() as conn:
        return await notices.read_mutes(conn, now=room.clock())


async def test_a_reaction_below_a_digest_mutes_nothing_and_who_reacted_is_told_why(room: Room) -> None:
    before = await muted(room)
    await room.happens(*(room.change(f"app-{n}") for n in range(5)))
    await room.passes()
    await room.mutes.take({"event": reaction(room.messages[-1])})
    assert await muted(room) == before
    (said,) = room.slack.whispers
    assert said["user"] == "U1"
    assert "tells of several objects: nothing is muted" in said["text"]


async def test_in_a_channel_of_two_workspaces_a_reaction_mutes_nothing(room: Room) -> None:
    before = await muted(room)
    await room.happens(room.change("web"))
    await room.passes()
    added = reaction(room.messages[-1])
    for event in (added, added | {"type": "reaction_removed"}):
        await room.mutes.take({"team_id": "T0000000009", "is_ext_shared_channel": True, "event": event})
    assert await muted(room) == before
    (said,) = room.slack.whispers
    assert "shared with another workspace" in said["text"]


async def test_a_change_that_cannot_be_posted_stands_on_the_page_and_is_sent_again(room: Room) -> None:
    room.slack.channels.remove(CHANNEL)
    await room.happens(room.change("web"))
    await room.passes()
    async with room.database.write.begin() as conn:
        (failed,) = (await deliveries.read_delivery(conn, suspected=False, now=room.clock())).failed
        assert failed.title == "image of web: v1 → v2"
        assert "channel_not_found" in failed.error
        room.slack.channels.add(CHANNEL)
        assert await outbox.try_again(conn, failed.key, now=room.clock()) == 1
    await room.passes()
    assert len(room.messages) == 1


async def test_what_is_a_week_old_is_forgotten(room: Room) -> None:
    await room.happens(room.change("web"))
    await room.passes()
    async with room.database.write.begin() as conn:
        await conn.execute(text("UPDATE slack_notices SET opened_at = opened_at - interval '8 days'"))
        await notices.forget(conn, room.clock())
        assert (await conn.execute(text("SELECT count(*) FROM slack_messages"))).scalar_one() == 0


async def test_a_deletion_tells_what_is_gone(room: Room) -> None:
    await room.happens(room.change("web", verb=Verb.DELETE, diffs=(), summary="Deployment web deleted"))
    await room.passes()
    assert room.messages[0]["text"] == "🔹 Deployment web deleted"
