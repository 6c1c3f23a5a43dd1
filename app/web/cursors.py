"""Where a list goes on: keyset cursors as they travel. Each says of which list it is, and by what that was filtered:
taken by another one, it would leave out what nobody missed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from hashlib import blake2b

from app.core.model import Change, Resource
from app.store.timeline import Cursor, after
from app.web.problems import Problem

OLDEST = datetime(2000, 1, 1, tzinfo=UTC)
"""No time is before it: cursors count from there."""
PATTERN = r"^[0-9a-f]{1,13}\.([0-9a-f]{1,15}|[1-7][0-9a-f]{15})(\.[0-9a-f]{2}([0-9a-f]{8})?)?$"
"""A time in microseconds and the key that breaks ties; and of which list. Cursors of earlier versions have no list, and
are good for any."""


class Listing:
    """A list, called ``name``; ``filters`` are what else tells it from others, None where the cursors that are given
    are good for all of that name. Times and limits are no filters: they may move from page to page."""

    def __init__(self, name: str, filters: Sequence[str | None] | None = None) -> None:
        self._tag = _digest(name, 1) + ("" if filters is None else _digest(repr(filters), 4))

    def encode(self, at: datetime, key: str) -> str:
        """The cursor behind a row."""
        return f"{round((at - OLDEST) / timedelta(microseconds=1)):x}.{key}.{self._tag}"

    def decode(self, text: str) -> tuple[datetime, str]:
        """The inverse of encode. Raises Problem 400 for what was never handed out, or was for another list."""
        if not re.fullmatch(PATTERN, text):
            raise Problem(400, "this cursor is not one of ours: start again without it", "after")
        time, key, *tag = text.split(".")
        if tag and not self._tag.startswith(tag[0]):
            raise Problem(
                400,
                "this cursor is of another list, or of other filters: go on with those that it came with, or start"
                " again without it",
                "after",
            )
        return OLDEST + timedelta(microseconds=int(time, 16)), key

    def cursor(self, text: str | None) -> Cursor | None:
        """A cursor of changes. Raises Problem 400 as ``decode``."""
        if text is None:
            return None
        at, key = self.decode(text)
        return Cursor(at, int(key, 16))

    def next(self, cursor: Cursor | None) -> str | None:
        """The inverse of ``cursor``."""
        return self.encode(cursor.at, f"{cursor.key:x}") if cursor else None

    def next_of(self, found: Sequence[Change], limit: int) -> str | None:
        """The cursor behind a full page of changes, None at the end."""
        return self.next(after(found[-1])) if len(found) == limit else None


def history_of(resource: Resource) -> Listing:
    """The changes of one object."""
    of = (resource.cluster, resource.api_group, resource.kind, resource.namespace, resource.name)
    return Listing("history", of)


def _digest(text: str, size: int) -> str:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=size).hexdigest()
