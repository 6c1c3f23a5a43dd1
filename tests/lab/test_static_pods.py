"""A program that may have so much memory, and what a list tells of what no watch told."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from pathlib import Path

import httpx2
import pytest

from tests.cluster.programs import Program, wait_until
from tests.lab import static_pods
from tests.lab.api import KINDS, Caller, Json, World
from tests.lab.static_pods import Limited

MIB = 2**20


@pytest.mark.skipif(sys.platform != "linux", reason="the memory of a program is told by Linux")
def test_who_needs_more_memory_than_allowed_is_killed_and_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(static_pods, "BACKOFF_SECONDS", 0.01)
    monkeypatch.setattr(static_pods, "LOOK_SECONDS", 0.01)
    script = "import time; kept = bytearray(60 * 2**20); time.sleep(60)"
    program = Program((sys.executable, "-c", script), tmp_path / "log", health="")
    program.launch()
    try:
        wait_until(lambda: program.resident_bytes > 60 * MIB, "it has its memory")
        patient, strict = Limited(program, 500 * MIB), Limited(program, 50 * MIB)

        async def play(limited: Limited) -> None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(limited.run(), 1)

        asyncio.run(play(patient))
        assert patient.killed == 0
        first = program.pid
        asyncio.run(play(strict))
        assert strict.killed >= 1
        assert program.pid != first
    finally:
        program.stop(kill=True)
    assert program.resident_bytes == 0


def test_a_list_tells_what_no_watch_told() -> None:
    def named(name: str, version: str) -> Json:
        return {"metadata": {"namespace": "shop", "name": name, "resourceVersion": version}}

    lists = iter(
        ([named("a", "1"), named("b", "2"), named("c", "3")], [named("b", "2"), named("c", "5"), named("d", "6")])
    )

    def answer(request: httpx2.Request) -> httpx2.Response:
        body = {"apiVersion": "v1", "metadata": {"resourceVersion": "9"}, "items": next(lists)}
        return httpx2.Response(200, json=body)

    async def play() -> list[tuple[str, str, str]]:
        told = []
        async with httpx2.AsyncClient(transport=httpx2.MockTransport(answer), base_url="https://cluster") as client:
            world = World(Caller(client, "admin", "t", "test"))
            world.told = lambda at, what, thing: told.append((what, thing["metadata"]["name"], thing["kind"]))
            await world._list(KINDS["Pod"])
            assert not told
            await world._list(KINDS["Pod"])
        return told

    assert asyncio.run(play()) == [("DELETED", "a", "Pod"), ("MODIFIED", "c", "Pod"), ("ADDED", "d", "Pod")]
