"""A request's head comes soon and is short, or its connection ends; whoever is worked on is left alone."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from app.web import connections
from app.web.connections import HEAD_BYTES, BoundedHeads

LARGE = 24 << 20
"""Bytes of an answer, of which the system holds some for who does not read."""
WITHIN = 20
"""Seconds that a test waits for what has to come."""


async def answers(scope: Any, receive: Any, send: Any) -> None:
    """Takes the whole body, and answers /slow after longer than a head may take."""
    while (await receive()).get("more_body"):
        pass
    await asyncio.sleep(0.6 if scope["path"] == "/slow" else 0)
    body = b"ok" if scope["path"] != "/large" else b"a" * LARGE
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
    await send({"type": "http.response.body", "body": body})


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


async def test_an_answer_that_nobody_reads_is_waited_for_so_long(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "READ_SECONDS", 0.3)
    reader, writer = await connect(port, b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n")
    writer.transport.pause_reading()  # type: ignore[attr-defined]
    await asyncio.sleep(1.0)
    writer.transport.resume_reading()  # type: ignore[attr-defined]
    with suppress(ConnectionError):
        assert len(await rest(reader)) < LARGE
    writer.close()


async def test_one_that_is_read_slowly_comes_whole(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """In all it takes longer than nothing of it may be read."""
    monkeypatch.setattr(connections, "READ_SECONDS", 3.0)
    reader, writer = await connect(port, b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n")
    await reader.readuntil(b"\r\n\r\n")
    for _ in range(16):
        await reader.readexactly(LARGE // 16)
        await asyncio.sleep(0.25)
    writer.close()


async def test_of_too_many_connections_the_one_that_rests_longest_gives_way(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "HEAD_SECONDS", 60.0)
    monkeypatch.setattr(connections, "most", lambda: 3)
    busy, asks = await connect(port, b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\n")
    kept = [await connect(port) for _ in range(2)]
    used, goes_on = kept[0]
    goes_on.write(ASKED)
    async with asyncio.timeout(WITHIN):
        await used.readuntil(b"ok")
        idle = [await connect(port) for _ in range(20)]
        with suppress(ConnectionError):
            assert await rest(kept[1][0]) == b"", "it rested since before the other was used"
        last, sends = idle[-1]
        sends.write(ASKED)
        assert (await last.readuntil(b"ok")).startswith(b"HTTP/1.1 200")
        assert (await busy.readuntil(b"ok")).startswith(b"HTTP/1.1 200"), "what is worked on is left alone"
    for _, writer in (*kept, *idle, (busy, asks)):
        writer.close()


async def test_where_all_are_worked_on_a_new_one_gives_way(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "most", lambda: 2)
    working = [await connect(port, b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\n") for _ in range(2)]
    await asyncio.sleep(0.1)
    reader, writer = await connect(port)
    with suppress(ConnectionError):
        assert await rest(reader) == b""
    async with asyncio.timeout(WITHIN):
        for answered, _ in working:
            assert (await answered.readuntil(b"ok")).startswith(b"HTTP/1.1 200")
    for _, one in (*working, (reader, writer)):
        one.close()


def test_connections_leave_half_of_what_may_be_opened_to_all_else() -> None:
    counted = "from app.web.connections import most; print(most())"
    for files, expected in ((256, 128), (16_000, 2_000)):
        limited = f"ulimit -n {files} && exec {sys.executable} -c '{counted}'"
        assert subprocess.run(["sh", "-c", limited], capture_output=True, check=True).stdout == b"%d\n" % expected
