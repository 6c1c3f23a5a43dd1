"""What Slack refuses is told to who can mend it, is not repeated, and is told once it was mended."""

from __future__ import annotations

import dataclasses
from datetime import timedelta

import pytest
from msgspec.structs import replace
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.core.findings import Opinion, Verdict
from app.notify.slack_words import BUSY, GONE, OF_THE_PLACE, PASSING, UNSURE, WORDS
from app.store import deliveries, outbox, verdicts
from tests.notify.double import CHANNEL, NOWHERE
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
        ("something_new", "its documentation of chat.postMessage has errors by this name (something_new)"),
        ("accesslimited", "Slack is not to be asked from this network"),
        ("two_factor_setup_required", "who installed the app sets it up"),
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


async def test_what_was_dismissed_is_not_told_once_anything_is_taken_there(desk: Desk) -> None:
    desk.slack.faults.append("not_in_channel")
    await desk.save(world.incident(), world.ranking())
    await desk.send(90)
    async with desk.database.write.begin() as conn:
        assert await outbox.forget(conn, f"{world.incident().id}/1") == 0
        assert await outbox.forget(conn, f"{world.incident().id}/0") == 1
        assert await outbox.forget(conn, f"{world.incident().id}/0") == 0
    assert await desk.failed() == []
    await desk.save(replace(world.incident(), id="a" * 12, started_at=desk.clock()), world.ranking())
    await desk.send(10)
    assert len(desk.slack.messages) == 1


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


@pytest.mark.parametrize("code", sorted(PASSING))
async def test_what_passes_by_itself_is_tried_again(desk: Desk, code: str) -> None:
    """As while a workspace is moved into an organisation."""
    desk.slack.faults.extend([code] * 4)
    await desk.save(world.incident(), world.ranking())
    await desk.send(100)
    async with desk.database.read.connect() as conn:
        (late,) = (await deliveries.read_delivery(conn, suspected=False, now=desk.clock())).late
    assert late.why == f"{PASSING[code]} ({code})"
    await desk.send(80)
    assert len(desk.slack.messages) == 1
    assert await desk.failed() == []
    assert "conversations.history" not in desk.slack.asked


DOCUMENTED = """
    access_denied accesslimited account_inactive as_user_not_supported attachment_payload_limit_exceeded block_mismatch
    cannot_reply_to_message cant_broadcast_message cant_update_message channel_not_found deprecated_endpoint
    duplicate_channel_not_found duplicate_message_not_found edit_window_closed ekm_access_denied
    enterprise_is_restricted external_channel_migrating fatal_error internal_error invalid_arg_name invalid_arguments
    invalid_array_arg invalid_attachments invalid_auth invalid_blocks invalid_blocks_format invalid_charset
    invalid_cursor invalid_form_data invalid_metadata_filter_keys invalid_metadata_format invalid_metadata_schema
    invalid_post_type invalid_ts_latest invalid_ts_oldest is_archived is_inactive markdown_text_conflict
    message_limit_exceeded message_not_found messages_tab_disabled metadata_must_be_sent_from_app metadata_too_large
    method_deprecated method_not_supported_for_channel_type missing_post_type missing_scope msg_blocks_too_long
    msg_too_long no_dual_broadcast_content_update no_permission no_text not_allowed_token_type not_authed not_in_channel
    org_login_required rate_limited ratelimited request_timeout restricted_action
    restricted_action_non_threadable_channel restricted_action_read_only_channel
    restricted_action_thread_locked restricted_action_thread_only_channel service_unavailable
    slack_connect_blocked_file_type slack_connect_canvas_sharing_blocked slack_connect_clip_sharing_blocked
    slack_connect_file_link_sharing_blocked slack_connect_file_upload_sharing_blocked
    slack_connect_lists_sharing_blocked streaming_state_conflict team_access_not_granted team_added_to_org
    team_not_found thread_not_found token_expired token_revoked too_many_attachments too_many_contact_cards
    two_factor_setup_required update_failed
"""
"""Errors of chat.postMessage, chat.update, conversations.history and conversations.replies, by their own pages."""


def test_what_slack_may_refuse_says_what_to_do_or_is_tried_again() -> None:
    """Each once: what is tried again needs no words of what to do."""
    again = BUSY | UNSURE | set(PASSING)
    assert {code for code in DOCUMENTED.split() if (code in WORDS) + (code in again) != 1} == set()


def test_what_is_wrong_with_a_message_itself_is_not_tried_again_with_others() -> None:
    assert set(OF_THE_PLACE) < set(WORDS)
    assert {"accesslimited", "not_in_channel", "is_archived", "invalid_auth"} < set(OF_THE_PLACE)
    assert not {GONE, "invalid_blocks", "edit_window_closed", "slack_connect_blocked_file_type"} & set(OF_THE_PLACE)


async def test_what_was_to_be_said_of_a_message_that_is_deleted_is_left_alone(desk: Desk) -> None:
    await desk.save(world.incident(), world.ranking())
    await desk.send()
    await desk.save(world.incident(), ranked(SECOND, FIRST, THIRD))
    await desk.send(2)
    async with desk.database.write.begin() as conn:
        await outbox.say(conn, CHANNEL, "Resolved.", incident_id=world.incident().id, now=desk.clock())
    desk.slack.faults.append("thread_not_found")
    await desk.send(5)
    async with desk.database.read.connect() as conn:
        untold = await deliveries.count_untold(conn, suspected=False, now=desk.clock())
    assert untold.failed == 0
    assert "Resolved." not in [one["text"] for one in desk.slack.messages]


async def test_a_message_that_somebody_deleted_is_left_alone_until_asked_for(desk: Desk) -> None:
    await desk.save(world.incident(), world.ranking())
    await desk.send()
    desk.slack.messages.clear()
    await desk.save(world.incident(), ranked(SECOND, FIRST, THIRD))
    await desk.send(5)
    assert desk.slack.messages == []
    async with desk.database.read.connect() as conn:
        untold = await deliveries.count_untold(conn, suspected=False, now=desk.clock())
    assert (await desk.failed(), untold.failed) == ([], 0), "it is no failure: somebody wanted it so"
    async with desk.database.write.begin() as conn:
        assert await outbox.try_again(conn, now=desk.clock()) == 0
    await desk.send(5)
    assert desk.slack.messages == []
    async with desk.database.write.begin() as conn:
        await outbox.try_again(conn, f"{world.incident().id}/0", now=desk.clock())
    await desk.send(2)
    assert len(desk.slack.messages) == 1


def told_in(*places: str) -> outbox.Places:
    """Routes by which every incident is told there."""

    async def of(_conn: AsyncConnection, _new: outbox.New) -> tuple[str, ...]:
        return places

    return of


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
        await outbox.move(conn, told_in("mail-to-us", "C0000000002"), named=named, now=desk.clock())
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
        await outbox.move(conn, told_in(*moved_on), named=moved_on, now=desk.clock())
        await outbox.try_again(conn, now=desk.clock())
    await desk.send(8)
    assert sorted(one["channel"] for one in desk.slack.thread(None)) == [also, also, new, new, CHANNEL, CHANNEL]
    assert await desk.failed() == []


async def test_however_much_was_given_up_is_sent_again(desk: Desk) -> None:
    """More than a statement may have parameters."""
    await desk.save(world.incident(), world.ranking())
    await desk.send()
    many = 70_000
    replies = text("""
        INSERT INTO slack_messages (incident_id, channel, part, body, attempts, not_before, error)
        SELECT incident_id, channel, n, 'Resolved.', 1, not_before, 'Slack refused it (fatal_error)'
        FROM slack_messages, generate_series(1, :many) n
    """)
    async with desk.database.write.begin() as conn:
        await conn.execute(replies, {"many": many})
        assert await outbox.try_again(conn, now=desk.clock()) == many


async def test_an_edit_that_is_owed_no_more_is_not_tried_in_vain_when_the_next_is(desk: Desk) -> None:
    verdict = Verdict(FIRST, Opinion.IT, "alice", desk.clock())
    await desk.save(world.incident(), world.ranking())
    await desk.send(2)
    assert desk.sender.slack
    desk.sender.slack.web.base_url = NOWHERE
    async with desk.database.write.begin() as conn:
        await verdicts.say(conn, world.incident().id, verdict)
    await desk.send(2)
    assert (await _in_vain(desk)).late == 1
    async with desk.database.write.begin() as conn:
        await verdicts.take_back(conn, world.incident().id, FIRST, now=desk.clock())
    await desk.send()
    desk.clock.forward(timedelta(days=3).total_seconds())
    async with desk.database.write.begin() as conn:
        await verdicts.say(conn, world.incident().id, verdict)
    said_at = desk.clock()
    assert (await _in_vain(desk)).late == 0, "it is owed, and was not tried yet"
    await desk.send(2)
    untold = await _in_vain(desk)
    assert (untold.late, untold.since is not None and untold.since > said_at) == (1, True)


async def _in_vain(desk: Desk) -> deliveries.Untold:
    async with desk.database.read.connect() as conn:
        return await deliveries.count_untold(conn, suspected=False, now=desk.clock(), longer_than=timedelta(0))
