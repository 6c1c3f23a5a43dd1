"""What a process knows of tokens by itself: which are good, and which were used since that was noted last.

The credentials of clusters' API servers and of who measures these are checked here alone, while PostgreSQL is away,
too. Of those of people and programs it is known that they are somebody's: what they may is asked of the database.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from sqlalchemy.ext.asyncio import AsyncEngine

from app.store import tokens
from app.store.tokens import Purpose
from app.web.deps import NoRoomError

MOST = 10_000
"""Credentials of people and programs that are known to be somebody's; those that were used last."""


class KnownTokens:
    """Knows what was good when it was last read, by ``refresh``; ``note`` writes down what was used since. They are
    apart: a server that takes no writes says all the same what is good."""

    def __init__(self, write: AsyncEngine, clock: Callable[[], datetime]) -> None:
        self._write, self._clock = write, clock
        self._of_clusters: dict[bytes, tokens.ClusterToken] | None = None
        self._good = frozenset[bytes]()
        self._expired = frozenset[bytes]()
        self._used: dict[int, datetime] = {}

    async def refresh(self) -> None:
        """Read which tokens are good. Raises the store's errors, and goes on knowing what it knew."""
        now = self._clock()
        async with self._write.connect() as conn:
            self._of_clusters = await tokens.read_of_clusters(conn, now=now)
            self._good = await tokens.read_digests(conn, most=MOST, now=now)
            self._expired = await tokens.read_expired(conn, most=MOST, now=now)

    async def note(self) -> None:
        """Write down what was used since that was done last. Raises the store's errors, and keeps it for the next."""
        used = dict(self._used)
        if not used:
            return
        async with self._write.begin() as conn:
            await tokens.note_used(conn, used)
        self._used = {one: at for one, at in self._used.items() if used.get(one) != at}

    def note_use(self, token_id: int) -> None:
        """A token was used now."""
        self._used[token_id] = self._clock()

    def used(self, token_id: int) -> datetime | None:
        """When a token was used last, where that is not written down yet."""
        return self._used.get(token_id)

    def is_good(self, digest: bytes) -> bool:
        """Whether this is, or was when it was last read, what is stored of somebody's credential."""
        return digest in self._good

    def is_expired(self, digest: bytes) -> bool:
        """Whether this is what is stored of a credential that has run out lately: no stranger's."""
        return digest in self._expired

    def cluster_of(self, token: str, purpose: Purpose = Purpose.AUDIT) -> str | None:
        """The cluster whose API server (or Prometheus, by ``purpose``) has this token, "" with SCRAPE; None where it is
        unknown, expired, revoked or for something else.

        Raises NoRoomError until they were read once: nobody is told that a good token is none.
        """
        if self._of_clusters is None:
            raise NoRoomError("it is not known yet which tokens are good: the database was not there since the start")
        found = self._of_clusters.get(tokens.digest(token))
        if found is None or found.purpose is not purpose or found.expires_at <= self._clock():
            return None
        self.note_use(found.id)
        return found.cluster
