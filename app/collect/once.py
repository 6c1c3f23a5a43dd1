"""Each request is made once: aiohttp would repeat one that was refused or cut off, at once, to who suffers already."""

from __future__ import annotations

from aiohttp import (
    ClientConnectionError,
    ClientHandlerType,
    ClientOSError,
    ClientRequest,
    ClientResponse,
    ClientSSLError,
    ServerDisconnectedError,
)


class LostError(ClientConnectionError):
    """A connection that could not be made, or was cut: aiohttp would try this request again."""


async def once(request: ClientRequest, handler: ClientHandlerType) -> ClientResponse:
    """A middleware of aiohttp."""
    try:
        return await handler(request)
    except ClientSSLError:
        raise
    except (ClientOSError, ServerDisconnectedError) as error:
        raise LostError(f"{type(error).__name__}: {error}") from error
