"""The examples of docs/api.md: what is pasted from there works, with the real curl against the real program."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from app.core.model import SLOT_SECONDS, Batch, CallCount, CallKey, Gap
from app.store import incidents
from app.store.database import sqlalchemy_url
from app.store.partitions import ensure
from app.store.record import record
from tests.programs import found
from tests.test_cli import Serving, environment, serving
from tests.web import world

DOC = (Path(__file__).parents[1] / "docs" / "api.md").read_text()
BLOCKS = re.findall(r"^```console\n(.*?)^```", DOC, re.MULTILINE | re.DOTALL)


async def fill(dsn: str) -> timedelta:
    """The world of the examples, as if it were of the last minutes: by how much it is shifted."""
    shift = datetime.now(UTC) - world.END - timedelta(seconds=5)
    engine = create_async_engine(sqlalchemy_url(dsn), poolclass=NullPool)
    whole = world.batch()
    changes = tuple(replace(one, at=one.at + shift) for one in whole.changes)
    rollouts = tuple(replace(one, started_at=one.started_at + shift) for one in whole.rollouts)
    gap = world.gap()
    gaps = (Gap(gap.cluster, gap.kind, gap.from_at + shift, gap.to_at + shift, gap.why),)
    async with engine.begin() as conn:
        await record(conn, replace(whole, changes=changes, rollouts=rollouts, gaps=gaps))
        await incidents.save_incident(conn, world.incident())
        await ensure(conn, "rankings", [world.ranking().ranked_at])
        await incidents.save_ranking(conn, world.ranking())
    await engine.dispose()
    return shift


async def call(dsn: str, shift: timedelta) -> None:
    """Checkout sends 40 calls a second in the last minute of the world."""
    engine = create_async_engine(sqlalchemy_url(dsn), poolclass=NullPool)
    until = int((world.END + shift).timestamp()) // SLOT_SECONDS * SLOT_SECONDS
    key = CallKey(
        "system:serviceaccount:payments:checkout", "", "checkout", "patch", "", "serviceaccounts", "payments", 200
    )
    async with engine.begin() as conn:
        slots = range(until - 60, until, SLOT_SECONDS)
        await record(conn, Batch(world.CLUSTER, calls=tuple(CallCount(key, at, 200, 400_000) for at in slots)))
    await engine.dispose()


@pytest.fixture(scope="module")
def site(dsn: str) -> Iterator[Serving]:
    asyncio.run(call(dsn, asyncio.run(fill(dsn))))
    with serving(DATABASE_URL=dsn) as started:
        yield started


def steps(block: str) -> list[tuple[str, list[str]]]:
    """Each command of a block with the lines that it is said to print."""
    return [
        (command, shown.splitlines())
        for command, shown in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block, re.MULTILINE)
    ]


def run(site: Serving, dsn: str, commands: list[str]) -> list[list[str]]:
    """What each command prints. ``curl`` is cut off after three seconds, and fails on errors of HTTP."""
    for program in ("curl", "awk", "sed"):
        found(program, package=program)
    mark = "-- next --"
    script = "\n".join(
        [
            "set -eu",
            f'foreshock() {{ "{sys.executable}" -m app "$@"; }}',
            'curl() { command curl --fail --max-time 3 "$@" || [ $? = 28 ]; }',
            *(
                line
                for command in commands
                for line in (command.replace("http://127.0.0.1:8000", site.url), f"echo '{mark}'")
            ),
        ]
    )
    done = subprocess.run(
        ["sh", "-c", script],
        env=environment(DATABASE_URL=dsn),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return [part.strip("\n").splitlines() for part in done.stdout.split(f"{mark}\n")[:-1]]


def kind(line: str) -> str:
    """What a line is: a title, or the keys that an object begins with; values and rows differ from day to day."""
    if line.startswith("{"):
        return line[: line.index(":", 2)] if line.count(":") else line
    return re.sub(r"[0-9]+", "0", line)[:9]


def test_every_command_works_and_prints_what_the_page_says(site: Serving, dsn: str) -> None:
    told = [step for block in BLOCKS for step in steps(block)]
    assert len(told) >= 8
    printed = run(site, dsn, [command for command, _ in told])
    for (command, shown), lines in zip(told, printed, strict=True):
        assert bool(shown) == bool(lines), command
        titles = [line for line in shown if line.startswith(("TIME", " # ODDS", "LINE")) or line == "304"]
        assert [line for line in titles if line not in lines] == [], command
        wanted = [kind(line) for line in shown if line.startswith("{")]
        assert [kind(line) for line in lines if line.startswith("{")][: len(wanted)] == wanted, command


def test_every_address_with_a_list_is_a_table_and_lines(site: Serving, dsn: str) -> None:
    """What the page says of text/plain holds for all that it names, over a real connection."""
    token = run(site, dsn, ["foreshock token create --role viewer"])[0][-1].split()[-1]
    paths = ["changes", "rollouts", "calls?cluster=shop", "calls/rates?cluster=shop", "series?cluster=shop&metric=up"]
    paths += ["annotations", "incidents", "gaps", "clusters", "what-changed"]
    commands = [
        f"curl -s -H 'Authorization: Bearer {token}' -H 'Accept: text/plain' '{site.url}/api/v1/{path}'"
        for path in paths
    ]
    for path, lines in zip(paths, run(site, dsn, commands), strict=True):
        assert lines, path
        assert max(map(len, lines)) <= 80, path


def test_the_program_ends_though_somebody_follows(dsn: str) -> None:
    found("curl", package="curl")
    with serving(DATABASE_URL=dsn) as started:
        token = run(started, dsn, ["foreshock token create --role viewer"])[0][-1].split()[-1]
        address = f"{started.url}/api/v1/changes?follow=1&limit=1"
        follower = subprocess.Popen(
            ["curl", "-sN", "-H", f"Authorization: Bearer {token}", address], stdout=subprocess.PIPE, text=True
        )
        assert follower.stdout is not None
        assert follower.stdout.readline().startswith('{"change"')
        assert started.stop() == 0
        lines = follower.stdout.read().splitlines()
        assert '"status":503' in lines[-1], "it was waited for, and then cut off"
        assert follower.wait(10) == 0
        follower.stdout.close()
