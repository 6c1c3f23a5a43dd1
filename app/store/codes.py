"""The ids of strings that repeat: words, kinds, clusters, call keys, remembered in the process.

An id made in a transaction is remembered by that transaction alone until it commits: one that rolls back takes
its ids along, and a cache that kept them would point at rows that never were. It also forgets everything else,
since what made it fail may be an id that another process has retired.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from sqlalchemy import Connection, Engine, Pool, event, text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.store import codec

LIMIT = 300_000  # entries; about 60 MB. Beyond it the cache starts again: ids are one query away
_CODES = "foreshock_codes"
_CLUSTER = text("SELECT id FROM clusters WHERE name = :name")

Key = tuple[Hashable, ...]

_known: WeakKeyDictionary[Pool, dict[Key, int]] = WeakKeyDictionary()
"""By pool, which engines that differ only in their options share."""


@dataclass(frozen=True, slots=True)
class Codes:
    """What one database calls things: committed ids, and those of this transaction."""

    known: dict[Key, int]
    learned: dict[Key, int]
    noted: dict[Key, int]

    def get(self, key: Key) -> int | None:
        found = self.known.get(key)
        if found is None:
            found = self.learned.get(key)
        return found if found is not None else self.noted.get(key)

    def learn(self, key: Key, value: int) -> None:
        """Remembers an id for this transaction, and for good once it commits."""
        self.learned[key] = value

    def note(self, key: Key, value: int) -> None:
        """Remembers an id for this transaction alone."""
        self.noted[key] = value

    def forget(self, matches: Callable[[Key], bool]) -> None:
        """Drops what retention has removed."""
        for key in [key for key in self.known if matches(key)]:
            del self.known[key]


def codes_of(conn: AsyncConnection) -> Codes:
    """The ids that ``conn``'s transaction may rely on."""
    known = _known.setdefault(conn.engine.sync_engine.pool, {})
    codes: Codes = conn.info.setdefault(_CODES, Codes(known, {}, {}))
    return codes


@event.listens_for(Engine, "commit")
def _committed(conn: Connection) -> None:
    codes: Codes | None = conn.info.pop(_CODES, None)
    if codes and codes.learned:
        if len(codes.known) + len(codes.learned) > LIMIT:
            codes.known.clear()
        codes.known.update(codes.learned)


def _undone(conn: Connection, *_: object) -> None:
    # A connection that broke took what it had learned along, and asking it for that is an error of its own.
    if conn.invalidated or conn.info.pop(_CODES, None) is not None:
        _known.setdefault(conn.engine.pool, {}).clear()


event.listen(Engine, "rollback", _undone)
event.listen(Engine, "rollback_savepoint", _undone)


async def intern(conn: AsyncConnection, space: str, keys: Iterable[Key], insert: str, select: str) -> dict[Key, int]:
    """The ids of ``keys``, made where new. ``insert`` and ``select`` take the columns as arrays ``:c0, :c1 ...``.

    ``select`` yields the id first and then the key's columns. Ids live for ever, so a row that another
    transaction inserts meanwhile is found by the second look.
    """
    codes = codes_of(conn)
    ids: dict[Key, int] = {}
    unknown: list[Key] = []
    for key in dict.fromkeys(keys):
        known = codes.get((space, *key))
        if known is None:
            unknown.append(key)
        else:
            ids[key] = known
    for step in (select, insert, select):
        if not unknown:
            break
        columns: dict[str, Any] = {f"c{n}": list(column) for n, column in enumerate(zip(*unknown, strict=True))}
        for found, *parts in (await conn.execute(text(step), columns)).all():
            ids[tuple(parts)] = found
            codes.learn((space, *parts), found)
        unknown = [key for key in unknown if key not in ids]
    if unknown:
        raise LookupError(f"{space}: no id for {unknown[0]!r}")
    return ids


async def words(conn: AsyncConnection, wanted: Iterable[str]) -> dict[str, int]:
    """Ids of strings; "" is always 0."""
    cleaned = {word: codec.clean(word) for word in wanted}
    found = await intern(
        conn,
        "word",
        ((word,) for word in sorted(set(cleaned.values())) if word),
        "INSERT INTO words (word) SELECT unnest(CAST(:c0 AS text[])) ON CONFLICT DO NOTHING RETURNING id, word",
        "SELECT id, word FROM words WHERE word = ANY(CAST(:c0 AS text[]))",
    )
    found[("",)] = 0
    return {word: found[(clean,)] for word, clean in cleaned.items()}


async def kinds(conn: AsyncConnection, wanted: Iterable[tuple[str, str]]) -> dict[tuple[str, str], int]:
    """Ids of (api_group, kind)."""
    found = await intern(
        conn,
        "kind",
        sorted(set(wanted)),
        "INSERT INTO kinds (api_group, kind) SELECT * FROM unnest(CAST(:c0 AS text[]), CAST(:c1 AS text[]))"
        " ON CONFLICT DO NOTHING RETURNING id, api_group, kind",
        "SELECT id, api_group, kind FROM kinds JOIN unnest(CAST(:c0 AS text[]), CAST(:c1 AS text[]))"
        " AS wanted (api_group, kind) USING (api_group, kind)",
    )
    return {(str(group), str(kind)): number for (group, kind), number in found.items()}


async def cluster(conn: AsyncConnection, name: str) -> int:
    """A cluster's id, made when it is new."""
    found = await intern(
        conn,
        "cluster",
        [(name,)],
        "INSERT INTO clusters (name) SELECT unnest(CAST(:c0 AS text[])) ON CONFLICT DO NOTHING RETURNING id, name",
        "SELECT id, name FROM clusters WHERE name = ANY(CAST(:c0 AS text[]))",
    )
    return found[(name,)]


async def find_cluster(conn: AsyncConnection, name: str) -> int | None:
    """A cluster's id, or None when nothing was ever recorded of it."""
    found = await conn.execute(_CLUSTER, {"name": name})
    number: int | None = found.scalar()
    return number
