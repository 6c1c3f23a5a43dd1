"""What of a connection is bounded before a request is known: how long its head may take to come, and how long it is."""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEAD_SECONDS = 10.0
"""From the connection, or from the first byte of a further request, to the end of the head. As long as for a body."""
HEAD_BYTES = 64 * 1024
"""As h11 has it: the parser that is used has no bound of its own. What comes with its first bytes is not counted."""
REST_SECONDS = 75
"""A connection may rest so long between two requests. uvicorn's 5 are just as long as Prometheus waits between two
batches (batch_send_deadline), which then met a connection that was being closed; load balancers mostly keep theirs for
60."""


class BoundedHeads(HttpToolsProtocol):
    """Ends a connection whose request's head does not end. What is worked on takes as long as it takes."""

    _waits: asyncio.TimerHandle | None = None
    _in_head = False
    _read = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """The first head is waited for."""
        super().connection_made(transport)
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing is waited for."""
        self._have()
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
        super().on_headers_complete()

    def _wait(self) -> None:
        self._waits = self.loop.call_later(HEAD_SECONDS, self.transport.close)

    def _have(self) -> None:
        if self._waits is not None:
            self._waits.cancel()
            self._waits = None
