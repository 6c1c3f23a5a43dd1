"""An import that is killed again and again, by the real program with its own PostgreSQL, tells everything once."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import psycopg
import pytest

from app.store import embedded
from bench.imports import write_log

LINES = 150_000
MOST_KILLS = 4


@pytest.fixture
def folder() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="fk"))
    made.chmod(0o711)  # the database's account must pass
    yield made
    shutil.rmtree(made)


def started(folder: Path, log: Path) -> subprocess.Popen[bytes]:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("FORESHOCK_")}
    environment |= {"FORESHOCK_DATA_DIR": str(folder / "data")}
    environment.pop("DATABASE_URL", None)
    command = [sys.executable, "-m", "app", "import", "--cluster", "killed", str(log)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def test_killed_at_any_moment_nothing_is_lost_or_told_twice(folder: Path) -> None:
    log = folder / "audit.jsonl"
    write_log(log, LINES, now=datetime.now(UTC))
    draw = random.Random(3)
    kills = 0
    while True:
        running = started(folder, log)
        deadline = time.monotonic() + draw.uniform(2.0, 4.0)
        while running.poll() is None and (kills >= MOST_KILLS or time.monotonic() < deadline):
            time.sleep(0.02)
        if running.poll() is not None:
            assert running.returncode == 0
            break
        running.send_signal(signal.SIGKILL)
        running.wait()
        kills += 1
    assert kills >= 1
    server = embedded.start(folder / "data")
    try:
        with psycopg.connect(server.dsn) as conn:
            calls = conn.execute("SELECT sum(total) FROM call_minutes").fetchone()
            requests = conn.execute("SELECT count(*), count(DISTINCT event_key) FROM requests").fetchone()
    finally:
        server.stop()
    with log.open("rb") as lines:
        written = sum(b'"verb":"patch"' in line for line in lines)
    assert calls == (LINES,)
    assert requests == (written, written)
