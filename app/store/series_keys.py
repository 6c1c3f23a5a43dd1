"""The ids of series: what one is called, and its labels."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import datetime, timedelta
from hashlib import blake2b
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from sqlalchemy import Pool, text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.core.metrics.series_bins import is_counter
from app.core.model import MetricSeries
from app.store import codec, codes

Labels = tuple[tuple[str, str], ...]

_NEW = """
INSERT INTO series_keys (cluster_id, digest, name, labels, kind, seen_at)
SELECT :cluster, digest, name, CAST(labels AS jsonb), kind, COALESCE(CAST(:at AS timestamptz), now())
FROM unnest(CAST(:digest AS bytea[]), CAST(:name AS text[]), CAST(:labels AS text[]), CAST(:kind AS text[]))
     AS new (digest, name, labels, kind)
ON CONFLICT DO NOTHING
"""
_KNOWN = text("SELECT id, digest FROM series_keys WHERE digest = ANY(CAST(:digest AS bytea[]))")
_OF_IDS = text("SELECT id, name, labels, kind FROM series_keys WHERE id = ANY(CAST(:ids AS int[]))")
_KINDS = text("SELECT id, name, kind FROM series_keys WHERE id = ANY(CAST(:ids AS int[]))")
MOST_KNOWN = 200_000
"""Series whose names and labels are remembered, some 100 MB; beyond that it begins again."""
_known_keys: WeakKeyDictionary[Pool, dict[int, Key]] = WeakKeyDictionary()
"""By id, which never gets another: to read them again takes longer than their samples."""
_ACTIVE = text("SELECT count(*) FROM series_keys WHERE cluster_id = :cluster AND seen_at >= :since")
_SEEN = text("UPDATE series_keys SET seen_at = :at WHERE id = ANY(CAST(:ids AS int[])) AND seen_at < :before")
DAY = timedelta(days=1)


class Key(NamedTuple):
    """What a series is called. ``labels`` sorted, without __name__; ``kind`` is counter, gauge or unknown."""

    name: str
    labels: Labels
    kind: str

    @property
    def counts(self) -> bool:
        """Whether it is a counter."""
        return is_counter(self.name, self.kind)


def _digest(cluster_id: int, key: Key) -> bytes:
    return blake2b(codec.dumps([cluster_id, key.name, key.labels]), digest_size=16).digest()


def key_of(series: MetricSeries) -> Key:
    """What a series is called, without its samples."""
    return Key(series.name, series.labels, series.kind)


async def ids(
    conn: AsyncConnection, cluster_id: int, wanted: Collection[Key], *, at: datetime | None = None
) -> list[int]:
    """The id of each key, made where it is new; ``kind`` stays as it was first told. ``at``: when what is new was first
    told of, else now, by the database's clock."""
    cache = codes.codes_of(conn)
    digests = [_digest(cluster_id, key) for key in wanted]
    found = {digest: cache.get(("series", digest)) for digest in digests}
    unknown = {digest: key for digest, key in zip(digests, wanted, strict=True) if found[digest] is None}
    if unknown:
        # Neighbours by name have neighbouring ids, and so lie in one block; all who insert do so in this order.
        new = sorted(unknown.items(), key=lambda one: (one[1].name, one[1].labels))
        columns: dict[str, list[Any]] = {
            "digest": [digest for digest, _ in new],
            "name": [codec.clean(key.name) for _, key in new],
            "labels": [codec.jsonb_text(key.labels) for _, key in new],
            "kind": [key.kind for _, key in new],
        }
        known = {"digest": columns["digest"]}
        stored = {bytes(digest) for _, digest in (await conn.execute(_KNOWN, known)).all()}
        fresh = [place for place, (digest, _) in enumerate(new) if digest not in stored]
        if fresh:  # an id is used up by each row that is refused, too
            part = {name: [column[place] for place in fresh] for name, column in columns.items()}
            await conn.execute(text(_NEW), {"cluster": cluster_id, "at": at, **part})
        for number, digest in (await conn.execute(_KNOWN, known)).all():
            found[bytes(digest)] = number
            cache.learn(("series", bytes(digest)), number)
    return [_told(found[digest]) for digest in digests]


def _told(found: int | None) -> int:
    if found is None:
        raise LookupError("a series without an id")
    return found


async def known(conn: AsyncConnection, cluster_id: int, wanted: Iterable[Key]) -> set[Key]:
    """Those of these keys that have an id."""
    by_digest = {_digest(cluster_id, key): key for key in wanted}
    found = await conn.execute(_KNOWN, {"digest": list(by_digest)})
    return {by_digest[bytes(digest)] for _, digest in found}


async def count(conn: AsyncConnection, cluster_id: int, *, since: datetime) -> int:
    """How many series of a cluster were told of since then, to the day."""
    return int((await conn.execute(_ACTIVE, {"cluster": cluster_id, "since": since})).scalar_one())


async def note_seen(conn: AsyncConnection, wanted: Iterable[int], at: datetime) -> None:
    """Notes that these were told of, to the day: one write a series and day."""
    await conn.execute(_SEEN, {"ids": list(wanted), "at": at, "before": at - DAY})


async def counters(conn: AsyncConnection, wanted: Iterable[int]) -> list[int]:
    """Those of these ids that are counters."""
    found = await conn.execute(_KINDS, {"ids": list(wanted)})
    return [number for number, name, kind in found if is_counter(name, kind)]


async def load(conn: AsyncConnection, wanted: Iterable[int]) -> dict[int, Key]:
    """The keys behind ids, and others. One query where some of them were never read before."""
    pool = conn.engine.sync_engine.pool
    remembered, ids = _known_keys.setdefault(pool, {}), list(wanted)
    unknown = [number for number in ids if number not in remembered]
    if len(remembered) + len(unknown) > MOST_KNOWN:
        remembered, unknown = _known_keys.setdefault(pool, {}), ids
        remembered.clear()
    if unknown:
        for number, name, labels, kind in await conn.execute(_OF_IDS, {"ids": unknown}):
            remembered[number] = Key(name, tuple(map(tuple, labels)), kind)
    return remembered
