"""Channels of Slack that are told of changes, and a cluster in which some happen."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import count

import pytest
from msgspec.structs import replace
from sqlalchemy import text

from app.core.model import Batch, Change, Outcome, Progress, Rollout
from app.core.routes import Route, Routes
from app.notify.mutes import Mutes
from app.notify.sender import Sender
from app.notify.slack import slack
from app.store.database import Database
from app.store.record import record
from tests.notify.double import CHANNEL, TOKEN, Json, Workspace, mistakes, workspace
from tests.notify.test_sender import Clock
from tests.web import world

URL = "https://foreshock.example"
OTHER, THIRD = "C0000000002", "C0000000003"
NOW = world.END + timedelta(minutes=5)
_TESTS = count()
"""Each test has hours of its own, for what was recorded stays."""


@dataclass
class Room:
    """A sender that tells channels of changes, and what happens in the cluster."""

    slack: Workspace
    database: Database
    clock: Clock
    routes: Routes = field(default_factory=lambda: Routes((Route(CHANNEL),)))

    @property
    def sender(self) -> Sender:
        told = slack(TOKEN, f"{self.slack.url}api/")
        return Sender(self.database.write, told, THIRD, URL, self.clock, routes=lambda: self.routes)

    @property
    def mutes(self) -> Mutes:
        told = slack(TOKEN, f"{self.slack.url}api/")
        return Mutes(self.database.write, told, lambda: self.routes, self.clock)

    async def happens(self, *changes: Change, rollouts: tuple[Rollout, ...] = (), **more: object) -> None:
        async with self.database.write.begin() as conn:
            await record(conn, Batch(world.CLUSTER, changes=changes, rollouts=rollouts, **more))  # type: ignore[arg-type]

    async def passes(self, seconds: int = 8) -> None:
        """So many rounds of the sender, a second apart."""
        for _ in range(seconds):
            self.clock.forward(1)
            await self.sender.find()
            await self.sender.send()

    def change(self, name: str, **more: object) -> Change:
        """A change of just now."""
        return world.a_change(name, at=self.clock(), version=f"{self.clock().timestamp():.0f}", **more)  # type: ignore[arg-type]

    @property
    def messages(self) -> list[Json]:
        return self.slack.thread(None)

    def shows(self, message: Json) -> str:
        assert not mistakes(message["blocks"]), mistakes(message["blocks"])
        return str(message["blocks"])


@pytest.fixture
async def room(database: Database) -> AsyncIterator[Room]:
    clock = Clock(NOW + next(_TESTS) * timedelta(hours=3))
    async with database.write.begin() as conn:
        for table in ("slack_noticed", "slack_notices", "slack_routed", "slack_mutes", "slack_messages"):
            await conn.execute(text(f"DELETE FROM {table}"))
        for table in ("slack_channels", "incidents", "arrivals"):
            await conn.execute(text(f"DELETE FROM {table}"))
    async with workspace(clock) as made:
        made.channels |= {OTHER, THIRD}
        room = Room(made, database, clock)
        await room.passes(2)
        yield room


def rolling(change: Change, *, updated: int, outcome: Outcome = Outcome.RUNNING, **more: object) -> Rollout:
    progress = (Progress(change.at, 5, updated, updated),)
    base = Rollout(
        change.resource,
        change.uid,
        int(change.at.timestamp()),
        change.at,
        outcome,
        change_id=change.id,
        progress=progress,
    )
    return replace(base, **more)
