"""A process of its own reads what this one would have read, and neither outlives what the other is for."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from app.collect.apart import ReadingError, pieces_apart
from app.collect.files import UnreadableError
from app.collect.inputs import Input, InputKind, find_inputs
from app.collect.logs import Job, Log, pieces
from app.commands.demo import FOLDER
from tests.processes import runs

PATIENCE = 30.0
linux = pytest.mark.skipif(sys.platform != "linux", reason="asks /proc which processes we have started")


def job(*paths: Path) -> Job:
    inputs = find_inputs([str(path) for path in paths])
    return Job("c", b"k" * 32, datetime.now(UTC), [Log(one, 0, 0) for one in inputs])


@pytest.fixture
def demo() -> Job:
    return job(FOLDER / "audit.jsonl.gz", FOLDER / "watch.jsonl.gz")


def readers() -> list[int]:
    """The processes that read for us."""
    children = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()
    return [int(pid) for pid in children if b"app.collect.apart" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def wait_until_gone(pid: int) -> None:
    deadline = time.monotonic() + PATIENCE
    while runs(pid):
        assert time.monotonic() < deadline, "it goes on"
        time.sleep(0.05)


def test_it_reads_the_same(demo: Job, tmp_path: Path) -> None:
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"stage": "ResponseComplete", "apiVersion": "audit.k8s.io/v1"}\nno json\n')
    demo.logs += job(bad).logs
    here = list(pieces(demo))
    assert sum(piece.tally.lines for piece in here) > 10_000
    assert sum(len(piece.rejects) for piece in here) == 2
    assert list(pieces_apart(demo)) == here


def test_a_file_that_went_away_is_told_in_words(tmp_path: Path) -> None:
    gone = Log(Input(str(tmp_path / "gone.jsonl"), InputKind.AUDIT, "hash"), 0, 0)
    with pytest.raises(UnreadableError, match=r"gone\.jsonl: no such file"):
        list(pieces_apart(Job("c", b"k" * 32, datetime.now(UTC), [gone])))


def test_what_lies_in_the_working_folder_is_not_run(demo: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "__init__.py").write_text("raise SystemExit('a stranger ran')")
    monkeypatch.chdir(tmp_path)
    assert next(pieces_apart(demo)).tally.lines == 2_000


@linux
def test_a_reader_that_dies_ends_the_import_in_words(demo: Job) -> None:
    found = pieces_apart(demo)
    next(found)
    [reader] = readers()
    os.kill(reader, signal.SIGKILL)
    with pytest.raises(ReadingError, match="ended with -9: import again"):
        list(found)


@linux
def test_a_reader_ends_when_nobody_wants_more(demo: Job) -> None:
    found = pieces_apart(demo)
    next(found)
    [reader] = readers()
    found.close()
    wait_until_gone(reader)


@linux
def test_a_reader_ends_with_who_started_it(demo: Job) -> None:
    paths = [log.input.path for log in demo.logs]
    code = (
        "import time\n"
        "from pathlib import Path\n"
        "from app.collect.apart import pieces_apart\n"
        "from tests.collect.test_apart import job, readers\n"
        f"found = pieces_apart(job(*map(Path, {paths!r})))\n"
        "next(found)\n"
        "print(*readers(), flush=True)\n"
        "time.sleep(600)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        [reader] = map(int, parent.stdout.readline().split())
        parent.kill()
    wait_until_gone(reader)
