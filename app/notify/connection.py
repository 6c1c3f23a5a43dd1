"""Socket Mode: Slack sends what people do by a connection that we open, so that it needs no way in to us."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import datetime
from time import monotonic
from typing import Any, Never

import structlog
from slack_sdk.errors import SlackApiError
from slack_sdk.socket_mode.aiohttp import SocketModeClient
from slack_sdk.socket_mode.async_client import AsyncBaseSocketModeClient
from slack_sdk.socket_mode.request import SocketModeRequest
from slack_sdk.socket_mode.response import SocketModeResponse
from slack_sdk.web.async_client import AsyncWebClient

from app.core.vitals import Listening
from app.notify.slack import NOT_REACHED

LOOK = 1.0
"""Seconds between two looks at whether the connection is open."""
OPENS_WITHIN = 10.0
"""Seconds. Slack closes a connection every few hours, and another is open a moment later: of that there is nothing to
be said."""
NOT_OPENED = "Slack names an address for it, and that is not reached: a proxy has to let WebSockets (wss://) out"
_TOKEN = (
    "FORESHOCK_SLACK_APP_TOKEN is not good any more: make another app-level token (Basic Information) with the scope"  # noqa: S105
    " connections:write, and restart"
)
WORDS = {
    **dict.fromkeys(("invalid_auth", "not_authed", "account_inactive", "token_revoked", "token_expired"), _TOKEN),
    "not_allowed_token_type": "FORESHOCK_SLACK_APP_TOKEN has to be an app-level token (xapp-…)",
    "missing_scope": "FORESHOCK_SLACK_APP_TOKEN lacks the scope connections:write: make another (Basic Information)",
}
"""What to do where Slack gives no connection, by its own word."""

log = structlog.get_logger()


Payload = dict[str, Any]


class Connection:
    """Whether the connection is open, as it is now."""

    def __init__(self, clock: Callable[[], datetime]) -> None:
        self._clock = clock
        self.state = Listening(is_open=False, since=clock())

    def note(self, *, is_open: bool, why: str) -> None:
        """That it is so now; ``why`` counts where it is not open."""
        before, why = self.state, "" if is_open else why
        if is_open != before.is_open or why != before.why:
            since = before.since if is_open == before.is_open else self._clock()
            self.state = Listening(is_open, since, why)
            if why:
                log.warning("clicks and questions do not come from Slack", why=why)


class _Client(SocketModeClient):
    """As Slack's library has it, which says in the log alone why there is no connection. ``why`` is why Slack named no
    address when it was asked last, ``is_named`` that it did, ``failed`` what the last attempt ended with."""

    why, is_named, failed = "", False, ""

    def why_shut(self, seconds: float) -> str:
        """Why it is not open that has not been for so long; "" as long as it may be about to open."""
        failed = f" ({self.failed})" if self.failed else ""
        return self.why or (f"{NOT_OPENED}{failed}" if self.is_named and seconds >= OPENS_WITHIN else "")

    def is_news(self, entry: logging.LogRecord) -> bool:
        """Not of an attempt that failed: the library logs a traceback of each, every few seconds for as long as there
        is no connection, and ``Connection`` says once why."""
        if not entry.getMessage().startswith("Failed to connect"):
            return True
        self.failed = entry.exc_info[0].__name__ if entry.exc_info and entry.exc_info[0] else ""
        return False

    async def issue_new_wss_url(self) -> str:
        self.is_named = False
        try:
            url = await super().issue_new_wss_url()
        except SlackApiError as error:
            answer = error.response
            code = str(answer.get("error", "")) if hasattr(answer, "get") else ""
            self.why = f"{WORDS.get(code, 'Slack gives no connection')} ({code or 'what answered was not Slack'})"
            raise
        except Exception as error:
            self.why = f"{NOT_REACHED} ({type(error).__name__})"
            raise
        self.why, self.is_named = "", True
        return url


async def listen(
    app_token: str,
    url: str,
    *,
    take: Callable[[Payload], Awaitable[None]],
    show: Callable[[Payload], Awaitable[None]],
    answer: Callable[[Payload], Awaitable[Payload]],
    connection: Connection,
) -> Never:
    """Gives ``take`` the clicks that Slack sends, ``show`` its events, and Slack what ``answer`` says of its commands,
    for ever; a lost connection is opened again. ``connection`` is told whether it is open.

    ``app_token`` is the app-level token (xapp-…), ``url`` the Web API's. What cannot be kept, as while the database is
    away, is not acknowledged: Slack shows a warning sign beside the button.
    """

    async def heard(client: AsyncBaseSocketModeClient, request: SocketModeRequest) -> None:
        said = None
        try:
            if request.type == "interactive":
                await take(request.payload)
            elif request.type == "slash_commands":
                said = await answer(request.payload)
            elif request.type == "events_api":
                await show(request.payload)
        except ValueError as error:
            log.warning("Slack sent what is no click, command or event", why=str(error))
        await client.send_socket_mode_response(SocketModeResponse(envelope_id=request.envelope_id, payload=said))

    client = _Client(app_token=app_token, web_client=AsyncWebClient(base_url=url))
    client.socket_mode_request_listeners.append(heard)
    client.logger.addFilter(client.is_news)
    opening = asyncio.ensure_future(client.connect())  # type: ignore[no-untyped-call] # it tries until it is open
    open_at = monotonic()
    try:
        while True:
            if is_open := await client.is_connected():
                open_at = monotonic()
            connection.note(is_open=is_open, why=client.why_shut(monotonic() - open_at))
            await asyncio.sleep(LOOK)
    finally:
        opening.cancel()
        client.logger.removeFilter(client.is_news)
        await client.close()  # type: ignore[no-untyped-call]
