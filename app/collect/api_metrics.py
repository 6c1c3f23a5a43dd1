"""What an API server tells of itself at /metrics, asked for once a minute where anybody wants to know."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Never, Protocol

from app.collect.apiserver import ApiServer, CredentialsError, RefusedError, UnreachableError
from app.collect.scrape import UnreadableError
from app.collect.watch import Pace

FIRST = timedelta(seconds=5)
"""After the start, when more is asked of it."""
EVERY = timedelta(minutes=1)
FORBIDDEN = frozenset({401, 403})
REMARK = (
    "may not read /metrics of the API server: audit events that it drops are not known of, and no gap, and its own"
    " metrics are not collected"
)
UNREADABLE = "audit events that the API server drops are not known of, as its /metrics cannot be read"


class Reader(Protocol):
    """Who may want to know."""

    @property
    def is_wanted(self) -> bool:
        """Whether what is told is of use now."""
        ...

    async def take(self, text: bytes, address: str, at: datetime) -> None:
        """What was told at an address. Raises UnreadableError where an operator is to know that it cannot be read."""
        ...

    async def miss(self, at: datetime) -> None:
        """Nobody answered."""
        ...


class ApiMetrics:
    """Asks for as long as ``run`` runs; nothing while no reader wants it."""

    def __init__(self, connect: Callable[[], Awaitable[ApiServer]], *readers: Reader, pace: Pace) -> None:
        self._connect, self._readers, self._pace = connect, readers, pace
        self.remarks: tuple[str, ...] = ()

    async def run(self) -> Never:
        """Until cancelled. Raises what a bug raises."""
        await self._pace.sleep(FIRST)
        while True:
            if wanted := [one for one in self._readers if one.is_wanted]:
                await self._look(wanted)
            await self._pace.sleep(EVERY)

    async def _look(self, readers: list[Reader]) -> None:
        try:
            api = await self._connect()
            try:
                text, address = await api.get("/metrics", {}, accept="text/plain"), api.url
            finally:
                await api.close()
        except (CredentialsError, RefusedError, UnreachableError) as error:
            # Of all but this the watches say what it means.
            self.remarks = (REMARK,) if isinstance(error, RefusedError) and error.status in FORBIDDEN else ()
            for one in readers:
                await one.miss(self._pace.clock())
            return
        remarks: list[str] = []
        for one in readers:
            try:
                await one.take(text, address, self._pace.clock())
            except UnreadableError as error:
                remarks.append(f"{UNREADABLE}: {error}")
        self.remarks = tuple(remarks)
