"""A Foreshock within this process: the same REST, asked without a network, by who is on the machine of its database."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, MutableMapping
from typing import Any
from urllib.parse import unquote

from app.client.transport import IN_ALL, WITHIN, Answer

Message = MutableMapping[str, Any]
Application = Callable[
    [Message, Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]], Awaitable[None]
]
"""As https://asgi.readthedocs.io has it."""


class InProcess:
    """REST of an application that runs on the loop of ``runner`` while it is asked."""

    name = "the database"

    def __init__(self, app: Application, runner: asyncio.Runner, token: str) -> None:
        self._app, self._runner, self._token = app, runner, token

    def ask(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str],
        body: bytes = b"",
        *,
        silent: float = WITHIN,  # noqa: ARG002 - the database has limits of its own
        in_all: float | None = IN_ALL,  # noqa: ARG002 - the same
    ) -> Answer:
        """As Transport, but for the limits. Raises what the application raises: that is a bug."""
        plain, _, query = path.partition("?")
        sent = {**headers, "Authorization": f"Bearer {self._token}", "Host": "localhost"}
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": unquote(plain),
            "raw_path": plain.encode("ascii"),
            "query_string": query.encode("ascii"),
            "root_path": "",
            "headers": [(name.lower().encode("ascii"), value.encode("latin-1")) for name, value in sent.items()],
            "client": None,
            "server": ("localhost", 80),
            "state": {},
        }
        exchange = _Exchange(self._app, scope, body)
        start = self._runner.run(exchange.begin())
        named = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in start["headers"]}
        kind = named.get("content-type", "").partition(";")[0]
        return Answer(start["status"], kind, named, self._parts(exchange))

    def _parts(self, exchange: _Exchange) -> Iterator[bytes]:
        more = True
        try:
            while more:
                message = self._runner.run(exchange.next())
                yield message.get("body", b"")
                more = message.get("more_body", False)
        finally:
            self._runner.run(exchange.end())


class _Exchange:
    """One request and what the application sends to it."""

    def __init__(self, app: Application, scope: Message, body: bytes) -> None:
        self._app, self._scope = app, scope
        self._incoming: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]
        self._sent: asyncio.Queue[Message] = asyncio.Queue(maxsize=1)
        self._gone = asyncio.Event()

    async def begin(self) -> Message:
        """Until the answer begins."""
        self._task = asyncio.ensure_future(self._app(self._scope, self._receive, self._sent.put))
        return await self.next()

    async def next(self) -> Message:
        """What is sent next. Raises what the application raises: that is a bug."""
        coming = asyncio.create_task(self._sent.get())
        await asyncio.wait({coming, self._task}, return_when=asyncio.FIRST_COMPLETED)
        if not coming.done() and self._sent.empty():
            coming.cancel()
            self._task.result()
            raise RuntimeError("the application ended without an answer")
        return await coming

    async def end(self) -> None:
        """Hang up."""
        self._gone.set()
        while not self._task.done():
            waiting = asyncio.create_task(self._sent.get())
            await asyncio.wait({waiting, self._task}, return_when=asyncio.FIRST_COMPLETED)
            waiting.cancel()
        self._task.result()

    async def _receive(self) -> Message:
        if self._incoming:
            return self._incoming.pop()
        await self._gone.wait()
        return {"type": "http.disconnect"}
