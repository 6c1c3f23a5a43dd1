"""A clock that was ahead for a while, and was set back: what was to wait by it does not wait for as long."""

from __future__ import annotations

import dataclasses

import pytest
from msgspec.structs import replace

from app.notify.sender import Steps
from tests.notify.test_sender import Desk, desk
from tests.web import world

__all__ = ["desk"]


@pytest.mark.parametrize("restarted", [False, True])
async def test_a_clock_that_was_ahead_keeps_nothing_from_being_told(desk: Desk, *, restarted: bool) -> None:
    """What the channel, and a message that nobody answered for, were to rest by that clock is over within a minute."""
    await desk.send()
    desk.clock.forward(3600)
    await desk.save(world.incident(), world.ranking())
    await desk.send()
    desk.slack.faults.append("refused")
    await desk.save(replace(world.incident(), id="1" * 12), world.ranking())
    await desk.send()
    desk.clock.forward(-3600)
    desk.slack._last.clear()  # the clock of Slack was not ahead
    await desk.save(replace(world.incident(), id="2" * 12), world.ranking())
    if restarted:
        desk.sender = dataclasses.replace(desk.sender, steps=Steps())
    await desk.send(60)
    assert len(desk.slack.messages) == 3
