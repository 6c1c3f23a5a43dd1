"""An id for each request: its answer, what it was refused with and the log's lines of it have the same."""

from __future__ import annotations

from secrets import token_hex

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from structlog.contextvars import bind_contextvars, reset_contextvars

HEADER = "x-request-id"


def id_of(scope: Scope) -> str:
    """The id of this request."""
    found: str = scope["state"]["request_id"]
    return found


class Numbered:
    """Gives each request an id of ours, which nobody can choose: what a request says of itself is passed over."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        ours = token_hex(8)
        scope.setdefault("state", {})["request_id"] = ours

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)[HEADER] = ours
            await send(message)

        marks = bind_contextvars(request_id=ours)
        await self._app(scope, receive, send_with_id)
        reset_contextvars(**marks)  # not after a bug: what the server logs of that has it, too
