"""How soon a change is told: the real program, told of changes as collectors record them, and a workspace that behaves
as Slack does (tests/notify/double.py)."""

from __future__ import annotations

import asyncio
import json
import os
import re
import statistics
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

from app.core.model import Batch
from app.store.database import Database
from app.store.record import record
from bench.gates import Gate, yardstick
from tests.notify.double import TOKEN, Workspace, workspace
from tests.serving import program
from tests.web import world

CHANGES, SECONDS = 300, 60
CHANNELS = 150
"""Each is told of two changes within the minute, which stand by themselves: more than three would be a digest."""
BEGINS = 5
"""Seconds until the program has begun to route."""
LATEST = 120
"""Seconds after the last change in which all are there, or the rest counts as missing."""
P99 = 10.0
_CHANGE = re.compile(r"/changes/([0-9a-f]{28})\|")


def arrived(told: Workspace) -> Mapping[str, float]:
    """When each change was there (epoch seconds)."""
    found = ((_CHANGE.search(str(one["blocks"])), told.arrived[one["ts"]]) for one in told.thread(None))
    return {match[1]: at for match, at in found if match}


async def change_by_change(database: Database) -> dict[str, float]:
    """Records the changes, each by itself and as soon as it is made, evenly over the time; when each was made."""
    made, began = {}, time.monotonic()
    for number in range(CHANGES):
        await asyncio.sleep(max(0.0, began + number * SECONDS / CHANGES - time.monotonic()))
        change = world.a_change(
            "web", at=datetime.now(UTC), namespace=f"team-{number % CHANNELS}", version=f"slack-{number}"
        )
        made[change.id] = change.at.timestamp()
        async with database.write.begin() as conn:
            await record(conn, Batch(world.CLUSTER, changes=(change,)))
    return made


async def slack(database: Database, dsn: str) -> list[Gate]:
    """From a change to its message's arrival."""
    ids = [f"C{n:09}" for n in range(CHANNELS)]
    print(
        f"Slack: a million additions of Python's take {yardstick():.0f} ms, load {os.getloadavg()[0]:.1f} at the start"
    )
    async with workspace(lambda: datetime.now(UTC)) as told:
        told.channels |= set(ids)
        told.reads_blocks = False
        with TemporaryDirectory(prefix="fs") as folder:
            routes = Path(folder) / "told.json"
            listed = [{"channel": one, "namespaces": [f"team-{n}"]} for n, one in enumerate(ids)]
            routes.write_text(json.dumps({"routes": listed}))
            settings = {
                "FORESHOCK_SLACK_TOKEN": TOKEN,
                "FORESHOCK_SLACK_CHANNEL": ids[0],
                "FORESHOCK_SLACK_API": f"{told.url}api/",
                "FORESHOCK_ROUTES_FILE": str(routes),
            }
            with program(dsn, Path(folder), "--port", "0", **settings):
                await asyncio.sleep(BEGINS)
                made = await change_by_change(database)
                until = time.monotonic() + LATEST
                while len(arrived(told)) < len(made) and time.monotonic() < until:  # noqa: ASYNC110 - of another's list
                    await asyncio.sleep(0.2)
        there = arrived(told)
        took = sorted(there[which] - at for which, at in made.items() if which in there)
        messages = len(told.thread(None))
    p50, p99 = statistics.median(took), statistics.quantiles(took, n=100)[-1]
    print(
        f"Slack: load {os.getloadavg()[0]:.1f} at the end; p50 {p50:.1f} s, p99 {p99:.1f} s, the last {took[-1]:.1f} s"
    )
    title = f"Slack: {CHANGES} changes in {CHANNELS} channels over {SECONDS} s"
    return [
        Gate(f"{title}, from change to message, p99 (p50 {p50:.1f}, the last {took[-1]:.1f})", p99, "s", at_most=P99),
        Gate(f"{title}, not there, or more than once", abs(messages - CHANGES) + CHANGES - len(took), "", at_most=0),
    ]
