"""A server of a test's own, in its loop, and how it ends without leaving a connection behind."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web


@asynccontextmanager
async def listening(app: web.Application, tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    """``app`` on a port of its own; its URL, without a slash at the end."""
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    assert runner.server
    server = await asyncio.get_running_loop().create_server(runner.server, "127.0.0.1", 0, ssl=tls)
    try:
        yield f"{'https' if tls else 'http'}://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        await stop(server)
        await runner.cleanup()


async def stop(server: asyncio.Server) -> None:
    """Takes no more connections, lets those begin that were taken, then closes.

    A connection that was taken in the turn of the loop in which its server is closed is forgotten by asyncio of Python
    3.11, which then warns of it from wherever the garbage is collected.
    """
    loop = asyncio.get_running_loop()
    for one in server.sockets:
        loop.remove_reader(one)
    for _ in range(2):
        await asyncio.sleep(0)
    server.close()
