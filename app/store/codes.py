"""The ids of strings that repeat: words, kinds, clusters, call keys, remembered in the process.

An id made in a transaction is remembered by that transaction alone until it commits: one that rolls back takes
its ids along, and a cache that kept them would point at rows that never were.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Any
from weakref import WeakKeyDictionary

from sqlalchemy import Connection, Engine, event, text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.store import codec

LIMIT = 300_000  # entries; about 60 MB. Beyond it the cache starts again: ids are one query away
_PENDING = "foreshock_codes"

Key = tuple[Hashable, ...]


class Codes:
    """What one engine's database calls things. ``get`` sees committed ids and those of this transaction."""

    __slots__ = ("__weakref__", "_known")

    def __init__(self) -> None:
        self._known: dict[Key, int] = {}

    def get(self, conn: AsyncConnection, key: Key) -> int | None:
        found = self._known.get(key)
        return found if found is not None else _pending(conn).get(key)

    def learn(self, conn: AsyncConnection, key: Key, value: int) -> None:
        """Remembers an id for this transaction, and for good once it commits."""
        _pending(conn)[key] = value

    def forget(self, matches: Callable[[Key], bool]) -> None:
        """Drops what retention has removed."""
        self._known = {key: value for key, value in self._known.items() if not matches(key)}

    def _keep(self, learned: dict[Key, int]) -> None:
        if len(self._known) + len(learned) > LIMIT:
            self._known.clear()
        self._known.update(learned)


_codes: WeakKeyDictionary[Engine, Codes] = WeakKeyDictionary()


def codes_of(conn: AsyncConnection) -> Codes:
    """The cache of the engine behind ``conn``."""
    return _codes.setdefault(conn.engine.sync_engine, Codes())


def _pending(conn: AsyncConnection) -> dict[Key, int]:
    learned: dict[Key, int] = conn.info.setdefault(_PENDING, {})
    return learned


@event.listens_for(Engine, "commit")
def _committed(conn: Connection) -> None:
    learned = conn.info.pop(_PENDING, None)
    if learned:
        _codes.setdefault(conn.engine, Codes())._keep(learned)  # noqa: SLF001 - the other half of this class


@event.listens_for(Engine, "rollback")
def _rolled_back(conn: Connection) -> None:
    conn.info.pop(_PENDING, None)


@event.listens_for(Engine, "rollback_savepoint")
def _savepoint_rolled_back(conn: Connection, _name: str, _context: object) -> None:
    conn.info.pop(_PENDING, None)


async def intern(conn: AsyncConnection, space: str, keys: Iterable[Key], insert: str, select: str) -> dict[Key, int]:
    """The ids of ``keys``, made where new. ``insert`` and ``select`` take the columns as arrays ``:c0, :c1 ...``.

    ``select`` yields the id first and then the key's columns. Ids live for ever, so a row that another
    transaction inserts meanwhile is found by the second look.
    """
    codes = codes_of(conn)
    ids: dict[Key, int] = {}
    unknown: list[Key] = []
    for key in dict.fromkeys(keys):
        known = codes.get(conn, (space, *key))
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
            codes.learn(conn, (space, *parts), found)
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
    found = await conn.execute(text("SELECT id FROM clusters WHERE name = :name"), {"name": name})
    number: int | None = found.scalar()
    return number
