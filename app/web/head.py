"""HEAD, everywhere: what GET answers, without its body (RFC 9110, section 9.3.2)."""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send

HEADED = "foreshock.head"
"""In the scope of what was a HEAD: for an answer that would never end."""


class Head:
    """Sends HEAD through everything behind it as a GET, and keeps the body back."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self._app(scope, receive, send)
            return

        async def send_no_body(message: Message) -> None:
            await send({**message, "body": b""} if message["type"] == "http.response.body" else message)

        await self._app({**scope, "method": "GET", HEADED: True}, receive, send_no_body)
