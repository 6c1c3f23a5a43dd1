"""A request's head comes soon and is short, or its connection ends; whoever is worked on is left alone."""

from __future__ import annotations

import asyncio
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from app.web import connections
from app.web.connections import HEAD_BYTES, BoundedHeads

WITHIN = 20
"""Seconds that a test waits for what has to come."""


async def answers(scope: Any, receive: Any, send: Any) -> None:
    """Takes the whole body, and answers /slow after longer than a head may take."""
    while (await receive()).get("more_body"):
        pass
    await asyncio.sleep(0.6 if scope["path"] == "/slow" else 0)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


@pytest.fixture
async def port(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[int]:
    monkeypatch.setattr(connections, "HEAD_SECONDS", 0.3)
    config = uvicorn.Config(answers, http=BoundedHeads, lifespan="off", log_config=None, access_log=False)
    config.load()
    state, loop = ServerState(), asyncio.get_running_loop()
    server = await loop.create_server(lambda: BoundedHeads(config, state, {}, loop), "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def connect(port: int, sends: bytes = b"") -> tuple[StreamReader, StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(sends)
    return reader, writer


async def rest(reader: StreamReader) -> bytes:
    """All that comes until the other side ends the connection."""
    async with asyncio.timeout(WITHIN):
        return await reader.read()


ASKED = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


@pytest.mark.parametrize("begins", [b"", b"GET", b"GET / HTTP/1.1\r\nHost: x\r\nA: ", b"\r\n"])
async def test_a_head_that_does_not_end_is_waited_for_so_long(port: int, begins: bytes) -> None:
    reader, writer = await connect(port, begins)
    assert await rest(reader) == b""
    writer.close()


@pytest.mark.parametrize(("begins", "drips"), [(b"GET /", b"a"), (b"", b"\r\n")])
async def test_so_is_one_of_which_a_byte_comes_now_and_then(port: int, begins: bytes, drips: bytes) -> None:
    reader, writer = await connect(port, ASKED)
    async with asyncio.timeout(WITHIN):
        assert (await reader.readuntil(b"ok")).startswith(b"HTTP/1.1 200")
        writer.write(begins)
        while not reader.at_eof():
            writer.write(drips)
            await asyncio.sleep(0.05)
    writer.close()


async def test_a_body_and_an_answer_take_as_long_as_they_take(port: int) -> None:
    reader, writer = await connect(port, b"POST /slow HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n")
    for byte in (b"a", b"b"):
        await asyncio.sleep(0.4)
        writer.write(byte)
    async with asyncio.timeout(WITHIN):
        assert (await reader.readuntil(b"ok")).startswith(b"HTTP/1.1 200")
    writer.write(ASKED)
    async with asyncio.timeout(WITHIN):
        assert (await reader.readuntil(b"ok")).startswith(b"HTTP/1.1 200"), "the same connection takes another"
    writer.close()


@pytest.mark.parametrize("before", [b"", b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\n"])
async def test_a_head_that_is_too_long_is_refused_also_behind_a_request(port: int, before: bytes) -> None:
    reader, writer = await connect(port, before + b"GET / HTTP/1.1\r\n")
    sent = 0
    try:
        while not reader.at_eof() and sent < 100 * HEAD_BYTES:
            writer.write(b"A: %s\r\n" % (b"a" * 8000))
            sent += 8000
            await writer.drain()
            await asyncio.sleep(0.001)
    except ConnectionError:
        pass
    assert sent < 20 * HEAD_BYTES
    writer.close()


async def test_one_that_is_long_and_ends_is_answered(port: int) -> None:
    head = ASKED[:-2] + b"A: %s\r\n\r\n" % (b"a" * (HEAD_BYTES // 2))
    reader, writer = await connect(port, head)
    async with asyncio.timeout(WITHIN):
        assert (await reader.readuntil(b"ok")).startswith(b"HTTP/1.1 200")
    writer.close()
