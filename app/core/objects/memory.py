"""The last known state of many objects in few bytes: compressed but for the latest, least recently used first out."""

from __future__ import annotations

from collections import deque
from datetime import datetime

import msgspec

from app.core.bounded import first_of
from app.core.model import FieldDiff, Object, Resource
from app.core.objects.packed import Packing

_ENTRY_BYTES = 700
"""What an entry costs beside its compressed state: the object, its strings, its place in the index (measured)."""
_PACKED = 4
"""How many bytes of JSON make one byte packed, at the least (measured; most objects pack better)."""
_FRESH = 256
"""States of late that are kept as they are: an object that is written often is not packed and unpacked each time."""
_FRESH_BYTES = 16 << 10
"""The largest object that is kept so, in bytes of its JSON; 256 of them are 30 MB of Python's objects at worst."""
UNMEASURED = 1 << 20
"""The size of a state whose JSON was not seen: large, so that it is packed and weighed."""


class Entry(msgspec.Struct, eq=False, gc=False):
    """One object as last known. ``version`` is its resourceVersion as a number (0: unknown).

    ``raw`` is a hash of the raw desired state (0: none): equal bytes need no comparison. The state is ``fresh``, or
    packed in ``blob``; neither while only the existence is known. ``recalled``: it came from the store, so writes of
    it may be told that are stored already. ``changed`` is the version that last changed the desired state,
    ``before`` the one before it; a watch saw every version from ``watched_from`` to ``watched_to``; ``listed`` is
    when a LIST last showed one that no watch had told; ``doubted`` is when a status write first showed another state;
    where the state is ``guessed``, ``guesses`` are what requests made it so, by the keys of their changes. ``weight``
    is about the bytes of a fresh state, ``size`` of it all while it is counted.
    """

    uid: str
    version: int = 0
    generation: int | None = None
    raw: int = 0
    fresh: Object | None = None
    blob: bytes | None = None
    changed: int = 0
    before: int = 0
    watched_from: int = 0
    watched_to: int = 0
    deleted: bool = False
    deleting: bool = False
    recalled: bool = False
    owner: Resource | None = None
    doubted: float = 0.0
    seen: datetime | None = None
    listed: datetime | None = None
    guessed: bool = False
    guesses: tuple[tuple[int, tuple[FieldDiff, ...]], ...] = ()
    wrote: str = ""
    weight: int = 0
    size: int = 0

    @property
    def is_known(self) -> bool:
        """Whether there is a state."""
        return self.fresh is not None or self.blob is not None


class Memory:
    """Entries by resource, bounded in bytes. What was forgotten is asked for again by the tracker's lookup."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._entries: dict[Resource, Entry] = {}  # least recently used first
        self._bytes = 0
        self._fresh: deque[Entry] = deque()
        self.packing = Packing()

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def size(self) -> int:
        """About how much is held."""
        return self._bytes

    def get(self, resource: Resource) -> Entry | None:
        entry = self._entries.pop(resource, None)
        if entry is not None:
            self._entries[resource] = entry
        return entry

    def peek(self, resource: Resource) -> Entry | None:
        """As get, without counting as a use."""
        return self._entries.get(resource)

    def put(self, resource: Resource, entry: Entry) -> None:
        before = self._entries.pop(resource, None)
        if before is not None:
            self._bytes -= before.size
            before.size = 0
        entry.size = _ENTRY_BYTES + (entry.weight if entry.blob is None else len(entry.blob))
        self._entries[resource] = entry
        self._bytes += entry.size
        while self._bytes > self._limit and len(self._entries) > 1:
            self._forget_oldest()

    def store(self, entry: Entry, state: Object | None, *, size: int) -> None:
        """Put a state into an entry; ``size`` is about that of its JSON. Call put afterwards, so that it is counted."""
        was_fresh = entry.fresh is not None
        self.forget(entry)
        if state is None:
            return
        if size > _FRESH_BYTES:
            entry.blob = self.packing.pack(state)
            return
        entry.fresh, entry.weight = state, size // _PACKED
        if not was_fresh:
            self._fresh.append(entry)
            if len(self._fresh) > _FRESH:
                self._pack(self._fresh.popleft())

    def _forget_oldest(self) -> None:
        for resource, gone in first_of(self._entries, len(self._entries)):
            del self._entries[resource]
            self._bytes -= gone.size
            gone.size = 0

    def _pack(self, entry: Entry) -> None:
        if entry.fresh is None:
            return
        entry.blob = self.packing.pack(entry.fresh)
        if entry.size:
            entry.size += len(entry.blob) - entry.weight
            self._bytes += len(entry.blob) - entry.weight
        entry.fresh, entry.weight = None, 0

    def forget(self, entry: Entry) -> None:
        """The object is gone: only that it was is kept."""
        entry.fresh, entry.blob, entry.weight = None, None, 0

    def state(self, entry: Entry) -> Object | None:
        """The state, not to be altered. None where only the existence is known."""
        if entry.blob is None:
            return entry.fresh
        return self.packing.unpack(entry.blob)
