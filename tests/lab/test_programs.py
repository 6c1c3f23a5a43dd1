"""What the laboratory's clients make of what they are answered."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable
from dataclasses import replace

import httpx2

from tests.lab.api import Caller, Json, now
from tests.lab.apps import Container, Process
from tests.lab.programs import changes


def _named(name: str, size: object) -> Json:
    return {"metadata": {"name": name, "resourceVersion": "8"}, "spec": {"size": size}}


async def _asked(answer: Callable[[httpx2.Request], httpx2.Response], seconds: float) -> tuple[list[str], int]:
    """Whom a client that knows numbers only was told of meanwhile, and how often it listed."""
    told: list[str] = []
    transport = httpx2.MockTransport(answer)
    async with httpx2.AsyncClient(base_url="https://cluster.example", transport=transport) as client:
        caller = Caller(client, "reader", "token", "reader/1.0.0")
        process = Process(caller, lambda: Container({}, "1.0.0", {}, {}), random.Random(1), now(), 0.0)
        reads = lambda one: isinstance(one["spec"]["size"], int)  # noqa: E731
        tell = lambda one: told.append(one["metadata"]["name"])  # noqa: E731
        task = asyncio.create_task(changes(process, "/things", tell, of_all=True, reads=reads))
        await asyncio.sleep(seconds)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return told, caller.counts[200]


def test_one_object_that_is_not_read_fails_the_list_of_all() -> None:
    listed = {"metadata": {"resourceVersion": "7"}, "items": [_named("well", 3), _named("odd", "large")]}

    def answer(request: httpx2.Request) -> httpx2.Response:
        assert "watch" not in request.url.params
        return httpx2.Response(200, json=listed)

    assert asyncio.run(_asked(answer, 0.2)) == ([], 1)


def test_one_object_that_is_not_read_ends_a_watch() -> None:
    events = [{"type": "ADDED", "object": _named(name, size)} for name, size in (("a", 1), ("b", "large"), ("c", 2))]

    def answer(request: httpx2.Request) -> httpx2.Response:
        if "watch" in request.url.params:
            return httpx2.Response(200, content="".join(f"{json.dumps(one)}\n" for one in events))
        return httpx2.Response(200, json={"metadata": {"resourceVersion": "7"}, "items": []})

    assert asyncio.run(_asked(answer, 0.2)) == (["a"], 1)


async def test_who_acts_for_somebody_asks_as_that_one() -> None:
    seen: list[httpx2.Headers] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        seen.append(request.headers)
        return httpx2.Response(200, json={})

    transport = httpx2.MockTransport(answer)
    async with httpx2.AsyncClient(base_url="https://cluster.example", transport=transport) as client:
        own = Caller(client, "console", "token", "console/1.0.0")
        await own.call("GET", "/things")
        await replace(own, acts_for=("erin", "shop")).call("GET", "/things")
        assert own.counts[200] == 2
    assert "Impersonate-User" not in seen[0]
    assert (seen[1]["Impersonate-User"], seen[1]["Impersonate-Group"]) == ("erin", "shop")
