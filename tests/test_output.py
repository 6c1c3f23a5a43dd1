"""What commands print: all of it, to a slow reader too, and how they end when it cannot be written."""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import tempfile
import time
from datetime import datetime, timedelta
from pathlib import Path

import psycopg
import pytest
from sqlalchemy.engine import make_url

from app.failures import Exit
from app.store.scratch import create_database, drop_database
from tests.test_cli import FORESHOCK, PATIENCE, environment, foreshock


def test_it_says_which_version_it_is() -> None:
    done = foreshock("--version")
    assert (done.returncode, done.stdout) == (0, f"foreshock {importlib.metadata.version('foreshock')}\n")


@pytest.fixture(scope="module")
def recorded(dsn: str) -> str:
    """The DSN of a database that holds the demo's recording."""
    done = foreshock("import", "demo", "--cluster", "north", DATABASE_URL=dsn)
    assert done.returncode == 0, done.stderr
    return dsn


def demo_alert() -> datetime:
    (alert, *_) = json.loads(Path("demo/alerts.json").read_text())["alerts"]
    return datetime.fromisoformat(alert["startsAt"])


def everything() -> tuple[str, ...]:
    """The command whose output fills a pipe several times."""
    return (
        "what-changed",
        "2h",
        "--at",
        (demo_alert() + timedelta(hours=1)).isoformat(),
        "--output",
        "json",
    )


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("blocking", [True, False])
def test_a_slow_reader_gets_all_of_the_output(recorded: str, unbuffered: str, blocking: bool) -> None:
    reading, writing = os.pipe()
    os.set_blocking(writing, blocking)
    variables = environment(DATABASE_URL=recorded, PYTHONUNBUFFERED=unbuffered)
    with subprocess.Popen([*FORESHOCK, *everything()], env=variables, stdout=writing) as program:
        os.close(writing)
        parts = []
        while part := os.read(reading, 1 << 14):
            parts.append(part)
            time.sleep(0.01)
        os.close(reading)
    assert program.returncode == 0
    assert sum(map(len, parts)) > 2 << 16
    assert len(json.loads(b"".join(parts))["items"]) > 100


@pytest.mark.parametrize("arguments", [("import", "--help"), ("--version",), ("serve", "--port", "none")])
def test_a_reader_that_goes_away_ends_it_quietly(arguments: tuple[str, ...]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with tempfile.TemporaryFile() as errors:
        command, to_stderr = [*FORESHOCK, *arguments], arguments[0] == "serve"
        output = (errors, writing) if to_stderr else (writing, errors)
        code = subprocess.call(command, env=environment(), stdout=output[0], stderr=output[1], timeout=PATIENCE)
        os.close(writing)
        assert (code, errors.seek(0, os.SEEK_END)) == (Exit.NOT_READ, 0)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a disk that is always full")
@pytest.mark.parametrize("arguments", [("--help",), ("serve", "--port", "0")])
def test_a_full_disk_is_said_in_words(dsn: str, arguments: tuple[str, ...]) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*FORESHOCK, *arguments],
            env=environment(DATABASE_URL=dsn),
            stdout=full,
            stderr=subprocess.PIPE,
            timeout=PATIENCE,
            check=False,
        )
    assert done.returncode == Exit.NOT_WRITTEN
    assert done.stderr == b"foreshock: the output cannot be written: No space left on device\n"


def test_what_the_terminal_cannot_show_becomes_a_question_mark(recorded: str) -> None:
    done = subprocess.run(
        [*FORESHOCK, *everything()[:-2]],
        env=environment(DATABASE_URL=recorded, PYTHONIOENCODING="latin-1"),
        capture_output=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, b"")
    assert " ? " in done.stdout.decode("latin-1")


def test_an_evaluation_of_nothing_that_can_be_judged_ends_with_65(dsn: str, tmp_path: Path) -> None:
    """And whatever it evaluates, it leaves the database as it was that it was told."""
    (tmp_path / "label.json").write_text("{")
    create_database(dsn, "bare")
    bare = make_url(dsn).set(database="bare").render_as_string(hide_password=False)
    done = foreshock("evaluate", str(tmp_path), "--json", DATABASE_URL=bare)
    assert done.returncode == Exit.UNUSABLE, done.stderr
    assert [one["name"] for one in json.loads(done.stdout)["not_judged"]] == [tmp_path.name]
    with psycopg.connect(bare) as conn:
        assert conn.execute("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'").fetchone() == (0,)
    drop_database(dsn, "bare")


def test_a_cluster_that_is_not_known_ends_with_2_and_the_known_ones(recorded: str) -> None:
    done = foreshock("what-changed", "--cluster", "nosuch", DATABASE_URL=recorded)
    assert done.returncode == Exit.WRONG_USE
    assert done.stderr == "foreshock: there is no cluster 'nosuch': known are north\n"
