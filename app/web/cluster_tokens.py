"""The credentials of clusters' API servers and of who measures these, in memory: they are checked while PostgreSQL is
away, too."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from sqlalchemy.ext.asyncio import AsyncEngine

from app.store import tokens
from app.store.tokens import Purpose
from app.web.deps import NoRoomError


class ClusterTokens:
    """Knows what was good when it was last read; ``refresh`` reads it anew, and notes what was used since."""

    def __init__(self, write: AsyncEngine, clock: Callable[[], datetime]) -> None:
        self._write, self._clock = write, clock
        self._known: dict[bytes, tokens.ClusterToken] | None = None
        self._used: set[int] = set()

    async def refresh(self) -> None:
        """Read which tokens are good. Raises the store's errors, and goes on knowing what it knew."""
        now, used = self._clock(), frozenset(self._used)
        async with self._write.begin() as conn:
            await tokens.note_used(conn, used, now=now)
            self._known = await tokens.read_of_clusters(conn, now=now)
        self._used -= used

    def cluster_of(self, token: str, purpose: Purpose = Purpose.AUDIT) -> str | None:
        """The cluster whose API server (or Prometheus, by ``purpose``) has this token, "" with SCRAPE; None where it is
        unknown, expired, revoked or for something else.

        Raises NoRoomError until they were read once: nobody is told that a good token is none.
        """
        if self._known is None:
            raise NoRoomError("it is not known yet which tokens are good: the database was not there since the start")
        found = self._known.get(tokens.digest(token))
        if found is None or found.purpose is not purpose or found.expires_at <= self._clock():
            return None
        self._used.add(found.id)
        return found.cluster
