"""Requests that an import is told of more than once: logs that overlap, or were shipped twice."""

from __future__ import annotations

from datetime import datetime

from app.core.changes.audit import RawAuditEvent

REMEMBERED = 4_000
"""Requests at the least, twice as many at most. Files are merged by time: repeats come close together."""


class Repeats:
    """The requests of late, by auditID and arrival: a client may choose its auditID, but not the microsecond."""

    __slots__ = ("_earlier", "_late")

    def __init__(self) -> None:
        self._late: dict[str, datetime] = {}
        self._earlier: dict[str, datetime] = {}

    def told(self, event: RawAuditEvent) -> bool:
        """Whether this request was told before; from now on it was. One without an auditID never was."""
        name, at, late = event.auditID, event.requestReceivedTimestamp, self._late
        known = late.setdefault(name, at)
        if known is not at:
            return known == at and name != ""
        again = self._earlier.get(name) == at and name != ""
        if len(late) > REMEMBERED:
            self._earlier, self._late = late, {}
        return again
