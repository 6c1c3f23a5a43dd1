"""What of connections is bounded whoever asks: how long a head may take to come, and how long it is, how long what is
answered may wait to be read, and how many there are at once."""

from __future__ import annotations

import asyncio
import resource
from functools import cache
from typing import ClassVar

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEAD_SECONDS = 10.0
"""From the connection, or from the first byte of a further request, to the end of the head. As long as for a body."""
HEAD_BYTES = 64 * 1024
"""As h11 has it: the parser that is used has no bound of its own. What comes with its first bytes is not counted."""
REST_SECONDS = 75
"""A connection may rest so long between two requests. uvicorn's 5 are just as long as Prometheus waits between two
batches (batch_send_deadline), which then met a connection that was being closed; load balancers mostly keep theirs for
60."""


READ_SECONDS = 60.0
"""So long nothing at all of an answer may be read."""
MOST = 2_000
"""Connections at once: a browser has up to six, whoever sends metrics or audit events some."""


@cache
def most() -> int:
    """How many connections there may be at once: they leave half of what this process may open to spools, clusters
    and PostgreSQL, which strangers are not to keep it from."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST if files == resource.RLIM_INFINITY else min(MOST, files // 2)


class BoundedHeads(HttpToolsProtocol):
    """Ends a connection whose request's head does not end, whose answer nobody reads, and where there are too many the
    one that rests longest. What is worked on takes as long as it takes."""

    _resting: ClassVar[dict[BoundedHeads, None]] = {}
    """Those of which nothing is asked, who rests longest first: a connection that is new, or between two requests."""
    _waits: asyncio.TimerHandle | None = None
    _unread: asyncio.TimerHandle | None = None
    _in_head = False
    _read = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """The first head is waited for."""
        super().connection_made(transport)
        self._wait()
        self._resting[self] = None
        if len(self.connections) > most():  # this one, where all others are worked on
            longest = next(iter(self._resting))
            del self._resting[longest]
            longest.transport.abort()  # to close it would wait for what is not read yet

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing is waited for."""
        self._have()
        self._go_on()
        self._resting.pop(self, None)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """More of a head, of a body, or of what follows it."""
        if self._waits is None and (self.cycle is None or self.cycle.response_complete):
            self._wait()
        goes_on = self._in_head
        super().data_received(data)
        if goes_on and self._in_head:
            self._read += len(data)
            if self._read > HEAD_BYTES and not self.transport.is_closing():
                self.send_400_response(f"The head of a request may have {HEAD_BYTES} bytes.")

    def on_message_begin(self) -> None:
        """Its head begins."""
        self._in_head, self._read = True, 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """It is there."""
        self._in_head = False
        self._have()
        self._resting.pop(self, None)
        super().on_headers_complete()

    def on_response_complete(self) -> None:
        """Another request may follow."""
        super().on_response_complete()
        if not self.transport.is_closing() and self.cycle.response_complete:
            self._resting[self] = None

    def pause_writing(self) -> None:
        """Who asked does not read."""
        super().pause_writing()
        self._look(-1)

    def resume_writing(self) -> None:
        """They read on."""
        super().resume_writing()
        self._go_on()

    def _look(self, before: int) -> None:
        """Whether less is left to be read than ``before``, now and again."""
        left = self.transport.get_write_buffer_size()
        if left == before:
            self.transport.abort()
        else:
            self._unread = self.loop.call_later(READ_SECONDS, self._look, left)

    def _go_on(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def _wait(self) -> None:
        self._waits = self.loop.call_later(HEAD_SECONDS, self.transport.close)

    def _have(self) -> None:
        if self._waits is not None:
            self._waits.cancel()
            self._waits = None
