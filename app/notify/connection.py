"""Socket Mode: Slack sends clicks by a connection that we open, so that it needs no way in to us."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Never

import structlog
from slack_sdk.socket_mode.aiohttp import SocketModeClient
from slack_sdk.socket_mode.async_client import AsyncBaseSocketModeClient
from slack_sdk.socket_mode.request import SocketModeRequest
from slack_sdk.socket_mode.response import SocketModeResponse
from slack_sdk.web.async_client import AsyncWebClient

log = structlog.get_logger()


async def listen(app_token: str, url: str, take: Callable[[dict[str, Any]], Awaitable[None]]) -> Never:
    """Gives ``take`` what Slack sends, for ever; a lost connection is opened again.

    ``app_token`` is the app-level token (xapp-…), ``url`` the Web API's. A click that cannot be kept, as while the
    database is away, is not acknowledged: Slack shows a warning sign beside the button.
    """

    async def answer(client: AsyncBaseSocketModeClient, request: SocketModeRequest) -> None:
        try:
            if request.type == "interactive":
                await take(request.payload)
        except ValueError as error:
            log.warning("Slack sent what is no click", why=str(error))
        await client.send_socket_mode_response(SocketModeResponse(envelope_id=request.envelope_id))

    client = SocketModeClient(app_token=app_token, web_client=AsyncWebClient(base_url=url))
    client.socket_mode_request_listeners.append(answer)
    try:
        await client.connect()  # type: ignore[no-untyped-call]
        while True:
            await asyncio.Event().wait()
    finally:
        await client.close()  # type: ignore[no-untyped-call]
