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
    """What becomes of connections: carried; kept without a word, as by a firewall that drops; reset; answered 500; or
    carried but for the pages of a LIST after its first, which wait until they are let go."""

    CARRIES = auto()
    DROPS = auto()
    RESETS = auto()
    ANSWERS_500 = auto()
    HOLDS_PAGES = auto()


class Proxy:
    """Carries connections to a port of 127.0.0.1. ``asked`` counts connections since the mode was last changed, and
    ``paths`` are those that were answered 500. ``pages`` is how many were made to wait."""

    def __init__(self, target: int, *, certificate: Path, key: Path) -> None:
        """With the server's own ``certificate`` and ``key`` it can answer in its place."""
        self._target, self._certificate, self._key = target, certificate, key
        self.mode = Mode.CARRIES
        self.asked = 0
        self.paths: list[str] = []
        self.pages = 0
        self.port = 0
        self._open = set[asyncio.StreamWriter]()
        self._loop = asyncio.new_event_loop()
        self._carries, self._let_go = asyncio.Event(), asyncio.Event()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._thread.start()
        self._do(self._listen())

    def turn(self, mode: Mode) -> None:
        """Everything is treated so from now on."""
        self._do(self._turn(mode))

    def aim(self, target: int) -> None:
        """Carry connections to another port from now on, as a load balancer does; those that are open are reset."""
        self._do(self._aim(target))

    def let_pages_go(self) -> None:
        """Those that wait now; the next ones wait again."""
        self._do(self._release())

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
        self._holder = await asyncio.start_server(self._hold, "127.0.0.1", 0, ssl=tls)
        ports = [server.sockets[0].getsockname()[1] for server in (self._refuser, self._holder)]
        self._instead: dict[Mode, int] = dict(zip((Mode.ANSWERS_500, Mode.HOLDS_PAGES), ports, strict=True))

    async def _release(self) -> None:
        self._let_go.set()
        self._let_go.clear()  # who waits was woken all the same

    async def _turn(self, mode: Mode) -> None:
        self.mode, self.asked, self.paths, self.pages = mode, 0, [], 0
        await self._release()
        if mode is Mode.DROPS:
            self._carries.clear()
            return
        self._carries.set()
        if mode is not Mode.CARRIES:
            self._reset()

    async def _aim(self, target: int) -> None:
        self._target = target
        self._reset()

    def _reset(self) -> None:
        for writer in list(self._open):
            writer.transport.abort()

    async def _end(self) -> None:
        self._server.close()
        self._refuser.close()
        self._holder.close()
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
            there, on = await asyncio.open_connection("127.0.0.1", self._instead.get(self.mode, self._target))
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

    async def _hold(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """In between where TLS ends, so that it is seen what is asked for."""
        tls = ssl.create_default_context(cafile=self._certificate)
        with suppress(OSError):
            there, on = await asyncio.open_connection("127.0.0.1", self._target, ssl=tls)
            ways = [asyncio.create_task(self._carry(there, writer)), asyncio.create_task(self._carry_pages(reader, on))]
            try:
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for way in ways:
                    way.cancel()
                await asyncio.gather(*ways, return_exceptions=True)
                on.transport.abort()
        writer.close()

    async def _carry_pages(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """What is asked, one request after the other, each of which comes in one piece."""
        while data := await reader.read(CHUNK):
            if self.mode is Mode.HOLDS_PAGES and b"&continue=" in data.partition(b"\r\n")[0]:
                self.pages += 1
                await self._let_go.wait()
            writer.write(data)
            await writer.drain()
