"""Requests that could not be answered at the moment (503), by their ids, in the log: a line a second at the most.

Where PostgreSQL is away each request is one, and a line for each would be one more thing that goes wrong.
"""

from __future__ import annotations

import asyncio
from contextvars import Context

import structlog

EVERY_SECONDS = 1.0
MOST = 200
"""Ids of one line, of 16 characters each; of further ones their number is told."""
log = structlog.get_logger()


class Unanswered:
    """Gathers ids, by what their requests were refused with, until the next line is due."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ids: dict[str, list[str]] = {}
        self._held = self._more = 0

    def note(self, request_id: str, why: str) -> None:
        """Has the log tell of this one, within EVERY_SECONDS. ``why`` is in words of ours."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._loop = loop
            loop.call_later(EVERY_SECONDS, self._tell, context=Context())  # the line is of no one request
        if self._held < MOST:
            self._ids.setdefault(why, []).append(request_id)
            self._held += 1
        else:
            self._more += 1

    def _tell(self) -> None:
        log.warning("not answered", requests=self._ids, more=self._more)
        self._loop, self._ids, self._held, self._more = None, {}, 0, 0


unanswered = Unanswered()
"""Those of this process."""
