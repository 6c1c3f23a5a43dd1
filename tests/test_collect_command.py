"""`foreshock collect audit-file`, the real program: nothing is lost or told twice, whatever befalls the file or it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from app.store import embedded
from tests.test_audit_webhook import events, postgres

__all__ = ["postgres"]
WITHIN = 60
COUNTS = """
    SELECT coalesce(sum(total), 0), (SELECT count(*) FROM requests r WHERE r.cluster_id = c.id),
           (SELECT count(*) FROM changes h WHERE h.cluster_id = c.id),
           (SELECT count(*) FROM gaps g WHERE g.cluster_id = c.id)
    FROM clusters c LEFT JOIN call_minutes m ON m.cluster_id = c.id WHERE c.name = %s GROUP BY c.id
"""


def written(first: int, count: int) -> str:
    return "".join(json.dumps(event) + "\n" for event in events(first, count))


def append(path: Path, text: str) -> None:
    with path.open("a") as opened:
        opened.write(text)


def counts(dsn: str, cluster: str) -> tuple[int, ...]:
    with psycopg.connect(dsn) as conn:
        row = conn.execute(COUNTS, (cluster,)).fetchone()
    return tuple(map(int, row)) if row else (0, 0, 0, 0)


def wait_for(dsn: str, cluster: str, count: int, *, gaps: int = 0) -> None:
    """Until so many calls, requests and changes are recorded, each once."""
    ends = time.monotonic() + WITHIN
    while (found := counts(dsn, cluster)) != (count, count, count, gaps):
        assert time.monotonic() < ends, found
        time.sleep(0.1)


@contextmanager
def following(dsn: str, path: Path, cluster: str) -> Iterator[subprocess.Popen[str]]:
    """The program, for the length of the block; it is then stopped as an operator does, unless it has ended."""
    process = subprocess.Popen(
        [sys.executable, "-m", "app", "collect", "audit-file", str(path), "--cluster", cluster],
        env={**os.environ, "DATABASE_URL": dsn},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
        process.communicate(timeout=30)


def moved(path: Path) -> None:
    """As kube-apiserver rotates."""
    path.rename(path.with_name("audit-2026-11-22T06-38-00.000.log"))


def copied(path: Path) -> None:
    """As logrotate does with copytruncate."""
    shutil.copy(path, f"{path}.1")
    os.truncate(path, 0)


@pytest.mark.parametrize("rotate", [moved, copied])
def test_a_file_is_followed_over_rotations_and_kills(dsn: str, tmp_path: Path, rotate: Callable[[Path], None]) -> None:
    path, cluster = tmp_path / "audit.log", rotate.__name__
    with following(dsn, path, cluster) as process:
        append(path, written(0, 10))
        wait_for(dsn, cluster, 10)
        line = written(10, 1)
        append(path, line[:50])
        append(path, line[50:] + written(11, 9))
        rotate(path)
        append(path, written(20, 10))
        wait_for(dsn, cluster, 30)
        append(path, written(30, 5))
        process.kill()
        process.wait()
    append(path, written(35, 5))
    if rotate is copied:
        (tmp_path / "audit.log.1").rename(tmp_path / "audit.log.2")
        rotate(path)
    append(path, written(40, 10))
    with following(dsn, path, cluster):
        wait_for(dsn, cluster, 50)


def test_a_clean_end_says_what_was_recorded_and_a_bad_line_stops_nothing(dsn: str, tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    append(path, written(0, 3) + "this is no event\n" + written(3, 2))
    with following(dsn, path, "clean") as process:
        wait_for(dsn, "clean", 5)
        process.send_signal(signal.SIGTERM)
        said, _ = process.communicate(timeout=30)
    assert process.returncode == 0
    assert said == "6 lines: 5 calls, 5 changes, 1 could not be used\n"


def test_what_was_rotated_away_while_nobody_read_is_a_gap(dsn: str, tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    append(path, written(0, 5))
    with following(dsn, path, "gone"):
        wait_for(dsn, "gone", 5)
    path.write_text(written(10, 5))
    with following(dsn, path, "gone"):
        wait_for(dsn, "gone", 10, gaps=1)


def test_while_the_database_is_away_the_file_waits(postgres: embedded.Server, tmp_path: Path) -> None:
    path, folder = tmp_path / "audit.log", postgres.folder
    append(path, written(0, 5))
    with following(postgres.dsn, path, "away") as process:
        wait_for(postgres.dsn, "away", 5)
        postgres.stop()
        append(path, written(5, 5))
        moved(path)
        append(path, written(10, 5))
        again = embedded.start(folder)
        wait_for(again.dsn, "away", 15)
        assert process.poll() is None
        process.terminate()
        process.wait(30)
        again.stop()


def test_a_folder_is_refused_in_words(dsn: str, tmp_path: Path) -> None:
    for path, said in ((tmp_path, "is a folder"), (tmp_path / "none" / "audit.log", "no such folder")):
        command = [sys.executable, "-m", "app", "collect", "audit-file", str(path)]
        environment = {**os.environ, "DATABASE_URL": dsn}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 2
        assert said in done.stderr
