"""From when to when changes of a cluster are recorded: nobody would have told of one before or after that."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from app.core.model import Gap

NEARLY = timedelta(minutes=1)
"""What is recorded so nearly from the start, or up to the end, of the time that was asked for is recorded all of it:
collectors tell every few seconds how far they are."""
GIVEN_UP = timedelta(days=1)
"""Of a cluster of which nothing was told for so long before a time it is not said that it is not recorded, unless it is
asked for by its name: it was looked at once, or is gone."""
NEVER, NOT_YET, NO_MORE = (
    "no change of this cluster is recorded",
    "the record of changes begins later",
    "the record of changes ended before",
)


def unrecorded(
    cluster: str, since: datetime | None, until: datetime | None, *, from_at: datetime | None, to_at: datetime
) -> Iterator[Gap]:
    """What of [from_at, to_at) lies before changes were recorded, or after; None leaves a side open, of which nothing
    can be said. ``since`` and ``until`` are None where none ever were."""
    if since is None or until is None:
        if from_at is not None and from_at < to_at:
            yield Gap(cluster, "", from_at, to_at, NEVER)
        return
    if from_at is not None and from_at < min(since - NEARLY, to_at):
        yield Gap(cluster, "", from_at, min(since, to_at), NOT_YET)
    ended = max(until, from_at or until)
    if ended < to_at - NEARLY:
        yield Gap(cluster, "", ended, to_at, NO_MORE)
