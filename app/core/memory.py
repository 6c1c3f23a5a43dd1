"""The last known state of many objects in few bytes: compressed, least recently used first out."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

import orjson
import zstandard

from app.core.model import Object, Resource

_ENTRY_BYTES = 700
"""What an entry costs beside its compressed state: the object, its strings, its place in the index (measured)."""


@dataclass(slots=True)
class Entry:
    """One object as last known. ``version`` is its resourceVersion as a number (0: unknown).

    ``raw`` is a hash of the raw desired state (0: none): equal bytes need no comparison. ``blob`` is None while only
    the existence is known. ``recalled``: it came from the store, so writes of it may be told that are stored already.
    ``changed`` is the version that last changed the desired state, ``before`` the one before
    it; a watch saw every version from ``watched_from`` to ``watched_to``; ``doubted``
    is when a status write first showed another state.
    """

    uid: str
    version: int = 0
    generation: int | None = None
    raw: int = 0
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
    size: int = 0


class Memory:
    """Entries by resource, bounded in bytes. What was forgotten is asked for again by the tracker's lookup."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._entries: OrderedDict[Resource, Entry] = OrderedDict()
        self._bytes = 0
        self._pack = zstandard.ZstdCompressor(level=3, write_checksum=False, write_content_size=True)
        self._unpack = zstandard.ZstdDecompressor()

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def size(self) -> int:
        """About how much is held."""
        return self._bytes

    def get(self, resource: Resource) -> Entry | None:
        entry = self._entries.get(resource)
        if entry is not None:
            self._entries.move_to_end(resource)
        return entry

    def peek(self, resource: Resource) -> Entry | None:
        """As get, without counting as a use."""
        return self._entries.get(resource)

    def put(self, resource: Resource, entry: Entry) -> None:
        before = self._entries.get(resource)
        if before is not None:
            self._bytes -= before.size
        entry.size = _ENTRY_BYTES + (len(entry.blob) if entry.blob else 0)
        self._entries[resource] = entry
        self._entries.move_to_end(resource)
        self._bytes += entry.size
        while self._bytes > self._limit and len(self._entries) > 1:
            _, gone = self._entries.popitem(last=False)
            self._bytes -= gone.size

    def store(self, entry: Entry, state: Object | None) -> None:
        """Put a state into an entry. Call put afterwards, so that its size is counted."""
        entry.blob = None if state is None else self.pack(state)

    def pack(self, state: Object) -> bytes:
        # Copied: the compressor's own buffer is allocated for the worst case and fragments the heap.
        return bytes(memoryview(self._pack.compress(orjson.dumps(state))))

    def state(self, entry: Entry) -> Object | None:
        if entry.blob is None:
            return None
        state: Object = orjson.loads(self._unpack.decompress(entry.blob))
        return state
