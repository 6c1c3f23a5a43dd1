"""A network between a program and an API server to break: a TCP proxy on 127.0.0.1, in a thread of its own."""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import Coroutine
from contextlib import suppress
from enum import Enum, auto
from pathlib import Path
from typing import Any

CHUNK = 1 << 16
REFUSAL = (
    b"HTTP/1.1 500 Internal Server Error\r\nContent-Type: application/json\r\nContent-Length: 2\r\n"
    b"Connection: close\r\n\r\n{}"
)


class Mode(Enum):
    """What becomes of connections: carried; kept without a word, as by a firewall that drops; reset; answered 500."""

    CARRIES = auto()
    DROPS = auto()
    RESETS = auto()
    ANSWERS_500 = auto()


class Proxy:
    """Carries connections to a port of 127.0.0.1. ``asked`` counts connections since the mode was last changed, and
    ``paths`` are those that were answered 500."""

    def __init__(self, target: int, *, certificate: Path, key: Path) -> None:
        """With the server's own ``certificate`` and ``key`` it can answer in its place."""
        self._target, self._certificate, self._key = target, certificate, key
        self.mode = Mode.CARRIES
        self.asked = 0
        self.paths: list[str] = []
        self.port = 0
        self._open = set[asyncio.StreamWriter]()
        self._loop = asyncio.new_event_loop()
        self._carries = asyncio.Event()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._thread.start()
        self._do(self._listen())

    def turn(self, mode: Mode) -> None:
        """Everything is treated so from now on."""
        self._do(self._turn(mode))

    def close(self) -> None:
        self._do(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _do(self, what: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(what, self._loop).result(10)

    async def _listen(self) -> None:
        self._carries.set()
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(self._certificate, self._key)
        self._refuser = await asyncio.start_server(self._refuse, "127.0.0.1", 0, ssl=tls)
        self._refusing: int = self._refuser.sockets[0].getsockname()[1]

    async def _turn(self, mode: Mode) -> None:
        self.mode, self.asked, self.paths = mode, 0, []
        if mode is Mode.DROPS:
            self._carries.clear()
            return
        self._carries.set()
        if mode is not Mode.CARRIES:
            self._reset()

    def _reset(self) -> None:
        for writer in list(self._open):
            writer.transport.abort()

    async def _end(self) -> None:
        self._server.close()
        self._refuser.close()
        self._reset()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.asked += 1
        if self.mode is Mode.RESETS:
            writer.transport.abort()
            return
        self._open.add(writer)
        try:
            await self._carries.wait()
            port = self._refusing if self.mode is Mode.ANSWERS_500 else self._target
            there, on = await asyncio.open_connection("127.0.0.1", port)
            self._open.add(on)
            try:
                await asyncio.gather(self._carry(reader, on), self._carry(there, writer))
            finally:
                self._open.discard(on)
                on.transport.abort()
        except OSError:
            pass  # the API server is down: the connection ends, as it would without us
        finally:
            self._open.discard(writer)
            writer.transport.abort()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One direction, to its end, which is carried too."""
        while data := await reader.read(CHUNK):
            await self._carries.wait()
            writer.write(data)
            await writer.drain()
        await self._carries.wait()
        with suppress(OSError, RuntimeError):
            writer.write_eof()

    async def _refuse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            self.paths.append(head.split()[1].decode())
            writer.write(REFUSAL)
            await writer.drain()
        writer.close()
