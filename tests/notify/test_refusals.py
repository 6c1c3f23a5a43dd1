"""What Slack refuses is told to who can mend it, is not repeated, and is told once it was mended."""

from __future__ import annotations

import dataclasses

import pytest
from msgspec.structs import replace

from app.store import outbox
from tests.notify.double import CHANNEL
from tests.notify.test_sender import FIRST, SECOND, THIRD, Desk, desk, ranked
from tests.web import world

__all__ = ["desk"]


async def test_what_cannot_be_looked_for_is_not_posted_blindly(desk: Desk) -> None:
    desk.slack.scopes.discard("channels:history")
    desk.slack.faults.append("lost")
    await desk.save(world.incident(), world.ranking())
    await desk.send(60)
    assert len(desk.slack.messages) == 1
    assert desk.slack.asked.count("chat.postMessage") == 1
    (why,) = await desk.failed()
    assert why == "the app lacks a scope: install it again with deploy/slack-app.yaml (missing_scope)"


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("channel_not_found", "FORESHOCK_SLACK_CHANNEL, or a route, names it by the ID"),
        ("is_archived", "FORESHOCK_SLACK_CHANNEL, or in the file of routes"),
        ("not_in_channel", "/invite it there"),
        ("restricted_action_read_only_channel", "does not let the app post there"),
        ("token_revoked", "copy the bot token"),
        ("something_new", "Slack refused it (something_new)"),
    ],
)
async def test_a_refusal_is_not_repeated_and_says_what_to_do(desk: Desk, code: str, words: str) -> None:
    desk.slack.faults.append(code)
    await desk.save(world.incident(), world.ranking())
    await desk.send(30)
    assert desk.slack.asked == ["chat.postMessage"]
    (why,) = await desk.failed()
    assert words in why
    desk.slack.scopes.discard("channels:history")
    async with desk.database.write.begin() as conn:
        assert await outbox.try_again(conn, now=desk.clock()) == 1
    await desk.send(2)
    assert len(desk.slack.messages) == 1
    assert await desk.failed() == []
    assert desk.slack.asked == ["chat.postMessage"] * 2, "what was refused is not there: nothing is looked for"


@pytest.mark.parametrize(("code", "again"), [("not_in_channel", True), ("invalid_blocks", False)])
async def test_what_was_refused_for_its_place_is_told_once_anything_is_taken_there(
    desk: Desk, code: str, *, again: bool
) -> None:
    """As where the app was invited again: nobody has to press a button for what was missed."""
    desk.slack.faults.append(code)
    await desk.save(world.incident(), world.ranking())
    await desk.send(90)
    assert len(await desk.failed()) == 1
    await desk.save(replace(world.incident(), id="a" * 12, started_at=desk.clock()), world.ranking())
    await desk.send(10)
    assert len(desk.slack.messages) == 1 + again
    assert len(await desk.failed()) == 1 - again


async def test_what_was_refused_a_day_ago_waits_for_somebody_who_wants_it(desk: Desk) -> None:
    desk.slack.faults.append("not_in_channel")
    await desk.save(world.incident(), world.ranking())
    await desk.send(5)
    desk.clock.forward(1.1 * outbox.TAKEN_UP.total_seconds())
    await desk.save(replace(world.incident(), id="a" * 12, started_at=desk.clock()), world.ranking())
    await desk.send(10)
    assert len(desk.slack.messages) == 1
    assert len(await desk.failed()) == 1


async def test_an_edit_in_an_archived_channel_is_made_once_that_is_none_any_more(desk: Desk) -> None:
    """Slack says of an edit that the channel ``is_inactive``, of a message that it ``is_archived``."""
    await desk.save(world.incident(), world.ranking())
    await desk.send()
    desk.slack.faults.append("is_inactive")
    await desk.save(world.incident(), ranked(SECOND, FIRST, THIRD))
    await desk.send(30)
    assert "unarchive it" in (await desk.failed())[0]
    await desk.save(replace(world.incident(), status="resolved", resolved_at=world.END))
    async with desk.database.write.begin() as conn:
        await outbox.try_again(conn, now=desk.clock())
    await desk.send(4)
    (said,) = desk.slack.thread(desk.message["ts"])
    assert said["text"].startswith("Resolved after")
    assert "Now likeliest" in said["text"]


@pytest.mark.parametrize("code", ["team_added_to_org", "org_login_required", "external_channel_migrating"])
async def test_what_passes_by_itself_is_tried_again(desk: Desk, code: str) -> None:
    """As while a workspace is moved into an organisation."""
    desk.slack.faults.extend([code] * 3)
    await desk.save(world.incident(), world.ranking())
    await desk.send(120)
    assert len(desk.slack.messages) == 1
    assert await desk.failed() == []
    assert "conversations.history" not in desk.slack.asked


async def test_a_message_that_somebody_deleted_is_left_alone_until_asked_for(desk: Desk) -> None:
    await desk.save(world.incident(), world.ranking())
    await desk.send()
    desk.slack.messages.clear()
    await desk.save(world.incident(), ranked(SECOND, FIRST, THIRD))
    await desk.send(5)
    assert desk.slack.messages == []
    assert "somebody deleted the message in Slack" in (await desk.failed())[0]
    async with desk.database.write.begin() as conn:
        await outbox.try_again(conn, f"{world.incident().id}/0", now=desk.clock())
    await desk.send(2)
    assert len(desk.slack.messages) == 1


async def test_an_incident_of_a_channel_that_is_gone_is_told_in_another_once(desk: Desk) -> None:
    await desk.save(world.incident(), world.ranking())
    await desk.send()
    desk.slack.channels = {"C0000000002"}
    await desk.save(world.incident(), ranked(SECOND, FIRST, THIRD))
    await desk.send(3)
    assert "channel_not_found" in (await desk.failed())[0]
    elsewhere = dataclasses.replace(desk.sender, channel="C0000000002")
    async with desk.database.write.begin() as conn:
        named = {"C0000000002"}
        await outbox.move(conn, lambda _: ["mail-to-us", "C0000000002"], named=named, now=desk.clock())
        await outbox.try_again(conn, now=desk.clock())
    for _ in range(5):
        desk.clock.forward(1)
        await elsewhere.find()
        await elsewhere.send()
    assert [one["channel"] for one in desk.slack.messages] == [CHANNEL, "C0000000002"]
    assert "2nd at first" in str(desk.slack.messages[1]["blocks"])
    assert desk.slack.messages[1]["edits"] == 0
    assert await desk.failed() == []


async def test_of_a_channel_that_is_gone_what_is_told_elsewhere_already_is_told_there_once(desk: Desk) -> None:
    """And in all of the channels that it is for by now."""
    also, new, moved_on = "C0000000002", "C0000000003", ["C0000000002", "C0000000003"]
    desk.slack.channels = {CHANNEL, also}
    incidents = [world.incident(), replace(world.incident(), id="0" * 12, title="Of the other alone")]
    for incident, channels in zip(incidents, ((CHANNEL, also), (CHANNEL,)), strict=True):
        await desk.save(incident, replace(world.ranking(), incident_id=incident.id))
        async with desk.database.write.begin() as conn:
            for channel in channels:
                await outbox.name_channel(conn, channel, now=desk.clock())
                await outbox.owe(conn, channel, incident_id=incident.id, now=desk.clock())
    await desk.send(6)
    assert sorted(one["channel"] for one in desk.slack.thread(None)) == [also, CHANNEL, CHANNEL]
    desk.slack.channels = set(moved_on)
    for incident in incidents:
        await desk.save(incident, replace(ranked(SECOND, FIRST, THIRD), incident_id=incident.id))
    await desk.send(6)
    assert len(await desk.failed()) == 2
    async with desk.database.write.begin() as conn:
        await outbox.move(conn, lambda _: moved_on, named=moved_on, now=desk.clock())
        await outbox.try_again(conn, now=desk.clock())
    await desk.send(8)
    assert sorted(one["channel"] for one in desk.slack.thread(None)) == [also, also, new, new, CHANNEL, CHANNEL]
    assert await desk.failed() == []
