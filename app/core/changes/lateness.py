"""When a write was made that a watch tells of late: after a break an API server tells what was missed, but not when.

The object's metadata may, in whole seconds:
https://kubernetes.io/docs/reference/using-api/server-side-apply/#field-management
"""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec

ON_TIME = timedelta(seconds=2)
"""Told so soon after it was written, an event was not held up: both clocks may differ by as much, and metadata's times
are cut to seconds."""


TICK = timedelta(microseconds=1)
"""What the store can tell apart."""


def created_after(known: datetime, told: datetime) -> datetime:
    """When an object was created that was not there ``known``, and ``told`` as its creationTimestamp: in whole seconds,
    which may have been cut to before that."""
    return known + TICK if told == known.replace(microsecond=0) else told


class RawManager(msgspec.Struct, gc=False):
    time: datetime | None = None
    subresource: str = ""


class RawTimes(msgspec.Struct, gc=False):
    creationTimestamp: datetime | None = None  # noqa: N815 - the wire's names
    deletionTimestamp: datetime | None = None  # noqa: N815
    managedFields: list[RawManager] = []  # noqa: N815


class RawTimed(msgspec.Struct, gc=False):
    metadata: RawTimes = msgspec.field(default_factory=RawTimes)


class When(msgspec.Struct, frozen=True):
    """``at`` as in core.sightings.Sighting; ``since`` where nobody knows when it was between the two."""

    at: datetime
    since: datetime | None = None
    rounded: bool = False


def written(event: str, times: RawTimes, *, told: datetime, known: datetime) -> When:
    """When the write was made of which a watch ``told`` (its type is ``event``), and of which nothing was ``known``."""
    at = _written(event, times)
    if at is None or at < known.replace(microsecond=0):
        return When(told, since=known)
    return When(told) if told - at <= ON_TIME else When(at, rounded=True)


def _written(event: str, times: RawTimes) -> datetime | None:
    if event == "ADDED":
        return times.creationTimestamp
    found = [one.time for one in times.managedFields if one.time and one.subresource != "status"]
    if times.deletionTimestamp:  # of a pod it is when it has to have ended
        found.append(times.deletionTimestamp)
    elif event == "DELETED":
        return None
    return max(found, default=None)
