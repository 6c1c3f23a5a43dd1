"""A scripted API server with a watch cache: what it was told once it tells everybody, from any version on."""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from typing import NamedTuple

import orjson
from aiohttp import web

from bench import objects

KINDS = {
    "/apis/apps/v1/deployments": ("Deployment", objects.deployment),
    "/api/v1/pods": ("Pod", objects.pod),
    "/api/v1/configmaps": ("ConfigMap", objects.config_map),
}
TOGETHER = 64
"""Events that are written at once, where so many wait."""
REMIND = 30.0
"""Seconds after which a watch that has nothing to tell sends a bookmark, as an API server does once a minute: one that
says nothing is taken for dead."""
ALL_TOLD = {"annotations": {"k8s.io/initial-events-end": "true"}}


class _Event(NamedTuple):
    version: int
    type: str
    object: bytes

    @property
    def line(self) -> bytes:
        return _line(self.type, self.object)


class _Kind:
    """The objects of a kind as they are, and all that happened to them."""

    def __init__(self) -> None:
        self.objects: dict[str, _Event] = {}
        self.events: list[_Event] = []
        self.told = asyncio.Event()


class ApiServer:
    """Answers discovery, LISTs in pages, and watches: from a version on, or of all that there is first."""

    def __init__(self) -> None:
        self._kinds = {path: _Kind() for path in KINDS}
        self._version = 0

    @property
    def count(self) -> int:
        """How many objects there are."""
        return sum(len(one.objects) for one in self._kinds.values())

    def say(self, path: str, event: str, number: int, *, release: int = 1, namespace: str = "") -> str:
        """Something happens to an object; its name. In a ``namespace`` that is given it was created just now."""
        self._version += 1
        one = KINDS[path][1](number, self._version, release=release)
        if namespace:
            one["metadata"] |= {"namespace": namespace, "creationTimestamp": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"}
        name = str(one["metadata"]["name"])
        kind = self._kinds[path]
        kind.objects[name] = _Event(self._version, event, orjson.dumps(one))
        kind.events.append(kind.objects[name])
        kind.told.set()
        return name

    def _bookmark(self, path: str, metadata: Mapping[str, object]) -> bytes:
        one = {"kind": KINDS[path][0], "metadata": {"resourceVersion": str(self._version), **metadata}}
        return _line("BOOKMARK", orjson.dumps(one))

    async def answer(self, request: web.Request) -> web.StreamResponse:
        path = request.path
        if path == "/version":
            return web.json_response({"gitVersion": "v1.36.3"})
        if path in ("/api", "/apis"):
            return web.json_response(_discovery(path))
        if path not in self._kinds:
            return web.json_response({"message": "not here"}, status=404)
        if "watch" not in request.query:
            return self._list(path, int(request.query["limit"]), int(request.query.get("continue", "0")))
        response = web.StreamResponse()
        await response.prepare(request)
        with suppress(TimeoutError, ConnectionError):  # it ends by itself, or who asked has left
            async with asyncio.timeout(int(request.query["timeoutSeconds"])):
                await self._watch(path, request.query.get("resourceVersion", ""), response)
        return response

    def _list(self, path: str, limit: int, begin: int) -> web.Response:
        """A page. None of the objects ever goes, so that they keep their places."""
        found = list(self._kinds[path].objects.values())
        more = str(begin + limit) if begin + limit < len(found) else ""
        head = orjson.dumps({"resourceVersion": str(self._version), "continue": more})
        items = b",".join(one.object for one in found[begin : begin + limit])
        body = b'{"kind":"List","metadata":%s,"items":[%s]}' % (head, items)
        return web.Response(body=body, content_type="application/json")

    async def _watch(self, path: str, since: str, response: web.StreamResponse) -> None:
        """Everything after a version; where none is given, all that there is before it. For ever."""
        kind = self._kinds[path]
        at = bisect_right(kind.events, int(since), key=lambda one: one.version) if since else len(kind.events)
        if not since:
            there = list(kind.objects.values())
            end = self._bookmark(path, ALL_TOLD)
            for begin in range(0, len(there), TOGETHER):
                lines = (_line("ADDED", one.object) for one in there[begin : begin + TOGETHER])
                await response.write(b"".join(lines))
            await response.write(end)
        while True:
            kind.told.clear()
            if found := kind.events[at : at + TOGETHER]:
                await response.write(b"".join(one.line for one in found))
                at += len(found)
                continue
            try:
                async with asyncio.timeout(REMIND):
                    await kind.told.wait()
            except TimeoutError:
                if at == len(kind.events):
                    await response.write(self._bookmark(path, {}))

    @asynccontextmanager
    async def running(self) -> AsyncIterator[str]:
        """Its address, for the length of the block."""
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self.answer)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        try:
            yield f"http://127.0.0.1:{runner.addresses[0][1]}"
        finally:
            await runner.cleanup()


def _line(event: str, one: bytes) -> bytes:
    return b'{"type":"%s","object":%s}\n' % (event.encode(), one)


def _discovery(path: str) -> dict[str, object]:
    groups: dict[str, list[dict[str, object]]] = {}
    for served, (kind, _) in KINDS.items():
        if served.startswith(path + "/"):
            *_, group, _version, plural = ["", *served.removeprefix(path).strip("/").split("/")][-3:]
            one: dict[str, object] = {"resource": plural, "verbs": ["list", "watch"], "responseKind": {"kind": kind}}
            groups.setdefault(group, []).append(one)
    items = [
        {"metadata": {"name": group}, "versions": [{"version": "v1", "resources": resources}]}
        for group, resources in groups.items()
    ]
    return {"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "items": items}
