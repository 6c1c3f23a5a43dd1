"""Rollouts of Argo's in Slack: with the pauses that their controller makes."""

from __future__ import annotations

from datetime import timedelta

from msgspec.structs import replace

from app.core.model import Outcome
from tests.notify.room import Room, rolling, room

__all__ = ["room"]


async def test_an_argo_rollout_is_told_with_its_pauses_and_its_abort(room: Room) -> None:
    change = room.change("cart", kind="Rollout", api_group="argoproj.io")
    waits = "is paused at a weight of 20 in step 2 of 4, until somebody promotes it"
    await room.happens(change, rollouts=(rolling(change, updated=1, reason=waits),))
    await room.passes()
    (message,) = room.messages
    assert "*20 %*" in room.shows(message)
    assert waits in room.shows(message)
    aborted = rolling(change, updated=0, outcome=Outcome.FAILED, ended_at=change.at + timedelta(minutes=3))
    await room.happens(rollouts=(replace(aborted, reason="RolloutAborted"),))
    await room.passes()
    assert room.messages == [message]
    (said,) = room.slack.thread(message["ts"])
    assert said["text"] == "Failed after 3 min: RolloutAborted."
