"""How well a live cluster is followed right now: said on every page, and with every answer of the REST interface."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

import msgspec

from app.core.model import Gap

LATE = timedelta(minutes=2)
"""So long a kind may say nothing before that is called a gap: a watch is known to be dead after 70 s of silence, and
then begins anew."""


class Unseen(msgspec.Struct, frozen=True):
    """A kind of which nothing is seen for now; "" stands for all of them."""

    kind: str
    since: datetime
    why: str


class Watching(msgspec.Struct, frozen=True):
    """What a collector says of one cluster. ``server`` is its API server's version; ``kinds`` how many are watched."""

    server: str = ""
    kinds: int = 0
    unseen: tuple[Unseen, ...] = ()
    waiting_bytes: int = 0
    remarks: tuple[str, ...] = ()


class Followed(msgspec.Struct, frozen=True):
    """A cluster that is followed, by whom, and up to when that collector was heard."""

    cluster: str
    holder: str
    renewed_at: datetime
    watching: Watching

    def gaps(self, now: datetime) -> Iterator[Gap]:
        """What is not seen as of ``now``. It may all be told later: what remains untold is then a gap of the record."""
        if now - self.renewed_at > LATE:
            why = "no collector follows this cluster; it will go on where the last one ended"
            yield Gap(self.cluster, "", self.renewed_at, now, why)
            return
        for one in self.watching.unseen:
            if now - one.since > LATE:
                yield Gap(self.cluster, one.kind, one.since, now, f"not seen for now: {one.why}")
