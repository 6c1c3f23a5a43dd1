"""Socket Mode: Slack sends what people do by a connection that we open, so that it needs no way in to us."""

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


Payload = dict[str, Any]


async def listen(
    app_token: str,
    url: str,
    *,
    take: Callable[[Payload], Awaitable[None]],
    show: Callable[[Payload], Awaitable[None]],
    answer: Callable[[Payload], Awaitable[Payload]],
) -> Never:
    """Gives ``take`` the clicks that Slack sends, ``show`` its events, and Slack what ``answer`` says of its commands,
    for ever; a lost connection is opened again.

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

    client = SocketModeClient(app_token=app_token, web_client=AsyncWebClient(base_url=url))
    client.socket_mode_request_listeners.append(heard)
    try:
        await client.connect()  # type: ignore[no-untyped-call]
        while True:
            await asyncio.Event().wait()
    finally:
        await client.close()  # type: ignore[no-untyped-call]
