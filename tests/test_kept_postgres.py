"""Our own PostgreSQL is started again, whatever is in the way of it at first, and nothing stands still meanwhile."""

from __future__ import annotations

import asyncio
import errno
import time
from contextlib import nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from fastapi import FastAPI
from structlog.testing import capture_logs

from app import installation, main, supervise
from app.installation import Postgres
from app.store.database import Database
from app.supervise import Pulses

RECOVERS = 1.0
"""Seconds."""


@dataclass
class Killed:
    """A server that was killed. Its system has no memory for another process at first; then it takes its time."""

    folder: Path = Path("/nowhere")
    alive: bool = False
    tries: list[str] = field(default_factory=list)

    def again(self) -> Killed:
        self.tries.append("tried")
        if len(self.tries) == 1:
            raise OSError(errno.ENOMEM, "Cannot allocate memory")
        time.sleep(RECOVERS)
        return Killed(alive=True)

    def stop(self) -> None:
        """There is nothing to stop."""


async def test_a_server_that_cannot_be_started_for_now_is_started_later(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(installation, "WATCH_SECONDS", 0.01)
    monkeypatch.setattr(supervise, "FIRST_PAUSE", timedelta(seconds=0.01))
    killed = Killed()
    server = Postgres("postgresql://", cast("Any", killed))
    clusters = cast("Any", SimpleNamespace(running=nullcontext))
    pulses = Pulses(lambda: datetime.now(UTC))
    lifespan = main._lifespan(server, database, pulses=pulses, clusters=clusters, beside=(), listening=None)
    with capture_logs():  # a traceback in colours takes its time, too
        async with lifespan(FastAPI()):
            longest, deadline = 0.0, time.monotonic() + 10
            while not server.own or not server.own.alive:
                before = time.monotonic()
                assert before < deadline, f"it was tried {len(killed.tries)} times"
                await asyncio.sleep(0.01)
                longest = max(longest, time.monotonic() - before)
    assert longest < RECOVERS / 2
