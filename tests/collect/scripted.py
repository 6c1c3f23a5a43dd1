"""An API server that answers by a script."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import web
from kubernetes.aio.client import ApiClient, Configuration

from app.collect.apiserver import ApiServer
from tests.listening import listening

SILENCE = b"silence"


@dataclass
class Answer:
    """One answer: SILENCE keeps the connection open, saying nothing, until the client leaves."""

    parts: Sequence[bytes] = ()
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)


@dataclass
class Server:
    """Answers by its script, in order; the queries that it got."""

    api: ApiServer
    asked: list[dict[str, str]]


@asynccontextmanager
async def serving(*script: Answer, paths: Mapping[str, Sequence[Answer]] | None = None) -> AsyncIterator[Server]:
    """``paths`` have scripts of their own. At the end of its script it answers 500, that nothing hangs."""
    asked = list[dict[str, str]]()
    scripts = {path: list(answers) for path, answers in (paths or {}).items()} | {"": list(script)}
    gone = asyncio.Event()

    async def answer(request: web.Request) -> web.StreamResponse:
        asked.append({"path": request.path, **request.query})
        left = scripts.get(request.path, scripts[""])
        one = left.pop(0) if left else Answer(status=500)
        response = web.StreamResponse(status=one.status, headers=one.headers)
        await response.prepare(request)
        for part in one.parts:
            if part is SILENCE:
                await gone.wait()
            else:
                await response.write(part)
        return response

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    async with listening(app) as url:
        api = ApiServer(ApiClient(Configuration(host=url)))
        try:
            yield Server(api, asked)
        finally:
            gone.set()
            await api.close()
