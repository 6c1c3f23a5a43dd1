"""What an import shows of how far it is: a bar on a terminal, lines of JSON for a log."""

from __future__ import annotations

import gzip
import json
import os
import pty
import re
import subprocess
import sys
import termios
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from app.collect.importer import Import
from app.collect.inputs import find_inputs
from app.commands.importing import progress
from app.store.database import Database

LINES = 25_000
LONG = 150_000
"""Lines that take a second or two: the bar is drawn ten times a second."""


def stored(path: Path) -> int:
    return path.stat().st_size


def a_log(path: Path, lines: int) -> Path:
    """A compressed audit log of reads, an hour old: its length once decompressed is written nowhere."""
    start = datetime.now(UTC) - timedelta(hours=1)
    event = {
        "kind": "Event",
        "apiVersion": "audit.k8s.io/v1",
        "stage": "ResponseComplete",
        "verb": "get",
        "user": {"username": "alice"},
        "objectRef": {"resource": "pods", "namespace": "shop", "name": "web"},
        "responseStatus": {"code": 200},
    }
    with gzip.open(path, "wt", compresslevel=1) as out:
        for number in range(lines):
            at = (start + timedelta(milliseconds=number)).isoformat()
            told = {"auditID": f"a-{number}", "requestReceivedTimestamp": at, "stageTimestamp": at}
            out.write(json.dumps(event | told) + "\n")
    return path


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return a_log(tmp_path / "audit.jsonl.gz", LINES)


def test_a_terminal_shows_a_bar_with_rate_and_remaining_time(dsn: str, tmp_path: Path) -> None:
    log = a_log(tmp_path / "audit.jsonl.gz", LONG)
    screen, terminal = pty.openpty()
    termios.tcsetwinsize(terminal, (40, 140))
    url = {"DATABASE_URL": dsn, "TERM": "xterm-256color"}
    ours = {name: value for name, value in os.environ.items() if not name.startswith("FORESHOCK_")}
    command = [sys.executable, "-m", "app", "import", "--cluster", "bar", str(log)]
    with subprocess.Popen(command, env=ours | url, stdout=subprocess.PIPE, stderr=terminal) as running:
        os.close(terminal)
        drawn = read_screen(screen)
        printed = running.stdout.read().decode() if running.stdout else ""
    os.close(screen)
    assert running.returncode == 0
    assert f"{LONG:,} calls" in printed
    frames = [frame for frame in re.split(r"[\r\n]+", plain(drawn)) if "audit.jsonl.gz" in frame]
    size = r"\d+(?:\.\d+)?"
    moving = [f for f in frames if re.search(rf"━.* {size}/{size} [kM]B +{size} [kM]B/s +0:\d\d:\d\d", f)]
    assert moving, frames[-3:]
    sizes = [match.group(1) == match.group(2) for f in moving if (match := re.search(rf"({size})/({size}) [kM]B", f))]
    assert sizes[-1], "at the end all of the file is read, as it is stored"
    assert not all(sizes), "and before, only a part"


def read_screen(screen: int) -> str:
    """All that is drawn until the program lets go of the terminal."""
    drawn = b""
    while True:
        try:
            part = os.read(screen, 65_536)
        except OSError:  # EIO: nobody holds the other end any more
            part = b""
        if not part:
            return drawn.decode()
        drawn += part


def plain(drawn: str) -> str:
    """Without colours and movements of the cursor."""
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", drawn)


async def test_without_a_terminal_each_interval_has_a_line_of_json(
    database: Database, log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    inputs = find_inputs([str(log)])
    with progress(inputs, every_seconds=0.0) as shown:
        await Import(database.write, "lines", now=datetime.now(UTC), progress=shown).run(inputs)
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert {line["event"] for line in lines} == {"import"}
    assert len(lines) >= LINES // 2_000
    assert [line["lines"] for line in lines] == sorted(line["lines"] for line in lines)
    assert (lines[-1]["lines"], lines[-1]["bytes"]) == (LINES, stored(log))
    assert {line["of_bytes"] for line in lines} == {stored(log)}


async def test_a_short_import_is_silent_in_a_log(
    database: Database, log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    inputs = find_inputs([str(log)])
    with progress(inputs) as shown:
        await Import(database.write, "silent", now=datetime.now(UTC), progress=shown).run(inputs)
    assert capsys.readouterr().err == "", "a line a minute"
