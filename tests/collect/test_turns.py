"""Two imports of one cluster at once: the second waits for the first, and goes on from where that one ended."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from app.commands.importing import import_paths
from app.store import calls
from app.store.turns import turn
from tests.collect.test_grown import END, imported
from tests.collect.test_importer import NOW, T0, Lab, lab, read

__all__ = ["lab"]
LINES = [read(n / 10) + "\n" for n in range(60)]
HOLDS = """
import asyncio, sys
from app.store.database import open_database
from app.store.turns import turn

async def hold():
    async with turn(open_database(sys.argv[1]).write, sys.argv[2], waits=print):
        print("held", flush=True)
        await asyncio.sleep(600)

asyncio.run(hold())
"""


async def counted(lab: Lab) -> int:
    async with lab.database.read.connect() as conn:
        return sum(count.count for count in await calls.read(conn, lab.cluster, T0, END))


async def started(lab: Lab, log: Path, capsys: pytest.CaptureFixture[str]) -> asyncio.Task[object]:
    """An import that has to wait."""
    told = f"another import into {lab.cluster!r} is running: waiting for its end\n"
    task = asyncio.create_task(import_paths(lab.database.write, [str(log)], lab.cluster, now=NOW))
    async with asyncio.timeout(20):
        while told not in capsys.readouterr().err:
            assert not task.done()
            await asyncio.sleep(0.05)
    return task


async def test_a_log_that_grows_is_counted_once_by_imports_that_overlap(
    lab: Lab, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "audit.jsonl"
    log.write_text("".join(LINES[:10]))
    await imported(lab, log)
    async with turn(lab.database.write, lab.cluster, waits=pytest.fail):
        log.write_text("".join(LINES[:40]))
        second = await started(lab, log, capsys)
        await imported(lab, log)
        log.write_text("".join(LINES))
    await second
    assert await counted(lab) == len(LINES)


async def test_another_cluster_and_standard_input_wait_for_nobody(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "audit.jsonl"
    log.write_text("".join(LINES))
    async with turn(lab.database.write, "another", waits=pytest.fail):
        await import_paths(lab.database.write, [str(log)], lab.cluster, now=NOW)
    with log.open("rb") as opened:
        monkeypatch.setattr("app.collect.files.STDIN_FILENO", opened.fileno())
        async with turn(lab.database.write, lab.cluster, waits=pytest.fail), asyncio.timeout(60):
            await import_paths(lab.database.write, ["-"], lab.cluster, now=NOW)
    assert await counted(lab) == 2 * len(LINES)


async def test_a_turn_ends_with_its_process(
    lab: Lab, tmp_path: Path, dsn: str, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "audit.jsonl"
    log.write_text("".join(LINES))
    with subprocess.Popen([sys.executable, "-c", HOLDS, dsn, lab.cluster], stdout=subprocess.PIPE) as holder:  # noqa: ASYNC220
        assert holder.stdout is not None
        assert await asyncio.to_thread(holder.stdout.readline) == b"held\n"
        waiting = await started(lab, log, capsys)
        holder.kill()
    async with asyncio.timeout(60):
        await waiting
    assert await counted(lab) == len(LINES)
