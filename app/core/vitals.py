"""How a process of Foreshock does, as far as it knows by itself: what its own metrics are made of."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta


@dataclass(frozen=True, slots=True)
class Work:
    """Of a worker: when it last succeeded (or began, before the first time), how long its last round took (None:
    none has ended), and how many rounds failed since the start."""

    worker: str
    succeeded_at: datetime
    took: timedelta | None
    failures: int


@dataclass(frozen=True, slots=True)
class Recording:
    """Of a cluster that this process records: bytes in its spool, how many it may hold, and those behind what is
    recorded; what was brought into the database since the start."""

    cluster: str
    spool_bytes: int
    capacity_bytes: int
    unrecorded_bytes: int
    changes: int
    calls: int
    quarantined: int


@dataclass(frozen=True, slots=True)
class Watch:
    """Of a cluster that this process follows: when any watch last gave a sign of life (None: not yet), how many kinds
    are watched, of how many nothing is seen, and how many remarks its operator should read."""

    cluster: str
    heard_at: datetime | None
    kinds: int
    unseen: int
    remarks: int


@dataclass(frozen=True, slots=True)
class Listening:
    """Of the connection by which Slack says what people do there: whether it is open, since when that is so, and why it
    is not ("": it is being opened)."""

    is_open: bool
    since: datetime
    why: str = ""


@dataclass(frozen=True, slots=True)
class Vitals:
    """All of one process."""

    work: tuple[Work, ...] = ()
    recordings: tuple[Recording, ...] = ()
    watches: tuple[Watch, ...] = ()
