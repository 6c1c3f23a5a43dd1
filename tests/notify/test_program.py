"""The real program tells Slack within seconds, takes what is clicked, and shows nothing twice when it is killed."""

from __future__ import annotations

import asyncio
import json
import random
import signal
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic

import pytest
from msgspec.structs import replace

from app.core.model import Batch
from app.store import deliveries, incidents
from app.store.database import Database
from app.store.partitions import ensure
from app.store.record import record
from tests.notify.double import APP_TOKEN, CHANNEL, TOKEN, Workspace, workspace
from tests.serving import program
from tests.web import world

FIRST = world.ranking().suspects[0].change.id


@pytest.fixture
async def told() -> AsyncIterator[Workspace]:
    async with workspace(lambda: datetime.now(UTC)) as made:
        yield made


def settings(made: Workspace) -> dict[str, str]:
    return {
        "FORESHOCK_SLACK_TOKEN": TOKEN,
        "FORESHOCK_SLACK_CHANNEL": CHANNEL,
        "FORESHOCK_SLACK_APP_TOKEN": APP_TOKEN,
        "FORESHOCK_SLACK_API": f"{made.url}api/",
    }


async def happen(database: Database, incident_id: str) -> None:
    """An incident of just now, ranked."""
    began = datetime.now(UTC) - timedelta(seconds=1)
    async with database.write.begin() as conn:
        await record(conn, Batch(world.CLUSTER, symptoms=(replace(world.alert(), at=began),)))
        await ensure(conn, "rankings", [began])
        await incidents.save_incident(conn, replace(world.incident(), id=incident_id, started_at=began, alerts=()))
        await incidents.save_ranking(conn, replace(world.ranking(), incident_id=incident_id, ranked_at=began))


async def until(so: Callable[[], bool], seconds: float) -> float:
    """Waits until it is so; how long that took."""
    began = monotonic()
    while not so():
        assert monotonic() - began < seconds, "it did not come about"
        await asyncio.sleep(0.05)
    return monotonic() - began


async def test_an_incident_is_told_and_judged_in_slack(database: Database, dsn: str, told: Workspace) -> None:
    with TemporaryDirectory(prefix="fs") as folder, program(dsn, Path(folder), "--port", "0", **settings(told)):
        await told.connected()
        await happen(database, "1" * 12)
        await until(lambda: len(told.messages) == 1, 10)
        assert "checkout-api" in told.messages[0]["text"]
        await told.click(told.messages[0], f"it/{'1' * 12}/{FIRST}")
        await until(lambda: "says *alice in Slack*" in str(told.messages[0]["blocks"]), 10)
    assert len(told.messages) == 1


async def test_a_change_is_told_within_ten_seconds(database: Database, dsn: str, told: Workspace) -> None:
    with TemporaryDirectory(prefix="fs") as folder:
        routes = Path(folder) / "told.yaml"
        routes.write_text(f"routes: [{{channel: {CHANNEL}, namespaces: [checkout]}}]")
        also = {"FORESHOCK_ROUTES_FILE": str(routes)}
        with program(dsn, Path(folder), "--port", "0", **settings(told) | also):
            await told.connected()
            await asyncio.sleep(3)  # so that routing has begun
            change = world.a_change("web", at=datetime.now(UTC), namespace="checkout", version=f"{monotonic()}")
            async with database.write.begin() as conn:
                await record(conn, Batch(world.CLUSTER, changes=(change,)))
            assert await until(lambda: any("image of web" in one["text"] for one in told.messages), 10) < 10


async def test_killed_while_slack_does_not_answer_it_is_there_once(
    database: Database, dsn: str, told: Workspace
) -> None:
    told.faults.append("hangs")
    with TemporaryDirectory(prefix="fs") as folder:
        with program(dsn, Path(folder), "--port", "0", **settings(told)) as (process, _):
            await happen(database, "2" * 12)
            await until(lambda: len(told.messages) == 1, 20)
            process.send_signal(signal.SIGKILL)
        with program(dsn, Path(folder), "--port", "0", **settings(told)):
            await until(lambda: told.messages[0]["edits"] > 0, 60)
    ours = [one for one in told.messages if one["metadata"]["event_payload"]["key"].startswith("2" * 12)]
    assert len(ours) == 1
    assert "conversations.history" in told.asked


KILLED_CHANNELS, WAVES, APART = 250, 4, 21
"""A thousand changes; seconds between two of a channel, so that each stands by itself (test_storm.APART)."""
FAILS = ("refused", "busy", "error", "lost", "hangs")
"""Of a call in five one of these: as what it may be with the message there, and without it."""


@pytest.mark.long
@pytest.mark.timeout(1800)
async def test_a_thousand_changes_are_there_once_though_the_program_is_killed_again_and_again(
    database: Database, dsn: str, told: Workspace
) -> None:
    """By SIGKILL, at any moment, while a fifth of all calls fail."""
    dice, ids = random.Random(11), [f"C{n:09}" for n in range(KILLED_CHANNELS)]
    told.channels |= set(ids)
    told.reads_blocks = False
    made: set[str] = set()

    async def happening() -> None:
        for wave in range(WAVES):
            changes = [
                world.a_change(f"w{wave}", at=datetime.now(UTC), namespace=f"team-{n}", version=f"{wave}-{monotonic()}")
                for n in range(KILLED_CHANNELS)
            ]
            made.update(f"{ids[n]} {one.id}" for n, one in enumerate(changes))
            async with database.write.begin() as conn:
                await record(conn, Batch(world.CLUSTER, changes=tuple(changes)))
            await asyncio.sleep(APART)

    async def failing() -> None:
        while True:
            told.faults.clear()
            told.faults.extend(dice.choice(FAILS) if dice.random() < 0.2 else "" for _ in range(500))
            await asyncio.sleep(1)

    with TemporaryDirectory(prefix="fs") as folder:
        file = Path(folder) / "told.json"
        listed = [{"channel": one, "namespaces": [f"team-{n}"]} for n, one in enumerate(ids)]
        file.write_text(json.dumps({"routes": listed}))
        also = settings(told) | {"FORESHOCK_ROUTES_FILE": str(file), "FORESHOCK_SLACK_APP_TOKEN": ""}
        kills, happened = 0, None
        fails = asyncio.create_task(failing())
        try:
            while happened is None or not happened.done() or kills < 8:
                with program(dsn, Path(folder), "--port", "0", **also) as (process, _):
                    await asyncio.sleep(3)  # so that routing has begun
                    happened = happened or asyncio.create_task(happening())
                    await asyncio.sleep(dice.uniform(1, 8))
                    process.send_signal(signal.SIGKILL)
                    kills += 1
        finally:
            fails.cancel()
        await happened
        told.faults.clear()
        with program(dsn, Path(folder), "--port", "0", **also):
            await until(lambda: len(found(told)) >= len(made), 300)
            await asyncio.sleep(90)  # what is looked up after a while would come now
    there = found(told)
    assert len(there) == len(set(there)), "nothing is there twice"
    assert set(there) == made, "nothing is missing"
    async with database.read.connect() as conn:
        assert (await deliveries.read_delivery(conn, suspected=False, now=datetime.now(UTC))).failed == ()
    print(f"\n{len(there)} changes, killed {kills} times")


def found(told: Workspace) -> list[str]:
    """The changes that are told: the channel and the id of each."""
    return [
        f"{one['channel']} {str(one['blocks']).partition('/changes/')[2].partition('|')[0]}"
        for one in told.thread(None)
        if "/changes/" in str(one["blocks"])
    ]
