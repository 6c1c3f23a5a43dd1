"""What several tellings of one alert come to, in whatever order they came."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from msgspec.structs import replace

from app.core.findings import Unlisted
from app.core.model import Symptom

ARRIVES_WITHIN = timedelta(minutes=1)
"""How long after an end Alertmanager may still be told what was so before it. The end is by Prometheus's clock, when it
was told by its own; between two of a pair of Prometheus lies a scrape, and what is sent waits its turn. What it is told
later than that is newer than the end, however seldom rules are evaluated."""


def merged(known: Symptom, told: Symptom) -> Symptom:
    """As it is told now, and in the group where it is only listed now.

    Of ends the first that was told counts, unless Alertmanager was told later that the alert fires (``active_at``): a
    replica that Prometheus no longer reaches tells one by itself. That somebody's webhook tells it to fire takes back
    only an end that was inferred: it does not say as of when. It may be late, or of a replica that has not heard of the
    end, and what really ended would open again.
    """
    at = min(known.at, told.at)
    if isinstance(told, Unlisted):
        return replace(known if known.ended_at else told, at=at)
    active_at = max((one for one in (known.active_at, told.active_at) if one is not None), default=None)
    ends = sorted(_standing({*_told_ends(known), *_told_ends(told)}, active_at))
    if isinstance(known, Unlisted) and told.ended_at is not None and not ends:
        return replace(known, at=at)
    return replace(
        told,
        at=at,
        ended_at=ends[0] if ends else None,
        later_ends=tuple(ends[1:]),
        active_at=active_at,
        group=told.group or known.group,
    )


def _told_ends(alert: Symptom) -> tuple[datetime, ...]:
    if alert.ended_at is None or isinstance(alert, Unlisted):
        return ()
    return (alert.ended_at, *alert.later_ends)


def _standing(ends: Iterable[datetime], active_at: datetime | None) -> list[datetime]:
    return [end for end in ends if active_at is None or active_at <= end + ARRIVES_WITHIN]
