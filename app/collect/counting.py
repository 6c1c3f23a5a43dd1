"""Calls of an audit log, counted by who makes them and how.

What calls are counted by is numbered: between the process that reads and the one that learns each key is told once.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import islice

import msgspec

from app.core.changes import audit
from app.core.changes.annotations import waited_for
from app.core.model import SLOT_SECONDS, CallKey
from app.core.objects.redact import Redactor

SLOT = timedelta(seconds=SLOT_SECONDS)
NEVER = datetime.max.replace(tzinfo=UTC)
HELD = 50_000
"""Keys that are held at most; then numbers begin anew."""


class KeyedCount(msgspec.Struct, array_like=True, gc=False):
    """A model.CallCount with the number of its key."""

    key: int
    slot: int
    count: int
    latency_us: int


class Counting:
    """Counts calls until ``take``."""

    __slots__ = ("_cells", "_in_slot", "_keys", "_numbers", "_redactor", "_slot_from", "_slot_to", "_told")

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._cells: dict[int, dict[int, list[int]]] = {}  # by slot, then by the key's number
        self._in_slot: dict[int, list[int]] = {}
        self._keys: dict[CallKey, int] = {}
        self._numbers: dict[tuple[object, ...], int] = {}
        self._told = 0
        self._slot_from = self._slot_to = NEVER

    def add(self, event: audit.RawAuditEvent) -> tuple[int, int]:
        """Count a call; the number of its key, and its latency in microseconds: 0 of a watch, which lasts."""
        key, received = self._number(event), event.requestReceivedTimestamp
        latency = audit.latency_us(event) if event.verb != "watch" else 0
        if not self._slot_from <= received < self._slot_to:  # a log is nearly in order: mostly it is
            slot = audit.slot_of(received)
            self._slot_from = datetime.fromtimestamp(slot, UTC)
            self._slot_to = self._slot_from + SLOT
            self._in_slot = self._cells.setdefault(slot, {})
        cell = self._in_slot.get(key)
        if cell is None:
            self._in_slot[key] = [1, latency]
        else:
            cell[0] += 1
            cell[1] += latency
        return key, latency

    def _number(self, event: audit.RawAuditEvent) -> int:
        """The number of the key that a call is counted by, found by all that the key is made of."""
        ref, status, user, said = event.objectRef, event.responseStatus, event.user, event.annotations
        raw = (
            user.username,
            event.userAgent,
            event.verb,
            ref.apiGroup if ref else None,
            ref.resource if ref else event.requestURI[:100],
            ref.subresource if ref else None,
            ref.namespace if ref else None,
            status.code if status else 0,
            status.message if status and status.code >= 400 else "",
            audit.list_class(event.verb, event.requestURI),
            audit.pod_of(user),
            event.stage == "Panic",
            waited_for(said) if said and said.total else "",
        )
        number = self._numbers.get(raw)
        if number is None:
            if len(self._numbers) >= HELD:
                self._numbers.clear()
            number = self._keys.setdefault(audit.call_key(event, self._redactor), len(self._keys))
            self._numbers[raw] = number
        return number

    def take(self) -> tuple[int, list[CallKey], list[KeyedCount]]:
        """What was counted since the last take, and the keys that are new since, with the number of the first.

        What had their numbers before is forgotten.
        """
        first, keys = self._told, list(islice(self._keys, self._told, None))
        counts = [
            KeyedCount(key, slot, count, us)
            for slot, cells in self._cells.items()
            for key, (count, us) in cells.items()
        ]
        self._cells.clear()
        self._slot_from = self._slot_to = NEVER
        if len(self._keys) >= HELD:
            self._keys.clear()
            self._numbers.clear()
        self._told = len(self._keys)
        return first, keys, counts
