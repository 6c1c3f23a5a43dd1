"""In which order changes were recorded: what who follows them was not told yet.

A change may be told long after it was made, so its time says nothing of when it came. A batch that brings changes
leaves a row here, in its transaction. Batches of one cluster wait for each other (record.lock), so the numbers of one
cluster are in the order of their commits: who has seen number 7 has seen all that come before. Of different clusters
they are not, so a place is a number of each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, NamedTuple

from sqlalchemy import BigInteger, DateTime, Integer, Select, and_, bindparam, cast, column, func, select, text
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.ext.asyncio import AsyncConnection

from app.core.model import Change
from app.store import codec
from app.store.change_rows import change_of, named
from app.store.copy import driver_of
from app.store.tables import changes, kinds
from app.store.timeline import ChangeFilter, asked, conditions, shape

KEPT = timedelta(days=1)
"""So long a place is good to go on from."""
EPOCH, _MICROSECOND = datetime(1970, 1, 1, tzinfo=UTC), timedelta(microseconds=1)
BATCHES = 20
"""Of a cluster so many are looked at: each may hold thousands of changes. Where fewer changes come back, there are no
more."""
_COMMITTED_WITHIN = timedelta(hours=1)
"""A row is dated when it is written; its transaction may end later."""


class Place(NamedTuple):
    """How far the arrivals of one cluster were told: of the row ``number``, the first so many changes."""

    number: int = 0
    told: int = 0


Places = Mapping[int, Place]
"""By the cluster's id; one that is not there has told nothing."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """That a change was recorded. ``place`` is behind it."""

    cluster_id: int
    place: Place
    cluster: str
    at: datetime
    key: int


_NEWEST = text("""
    SELECT c.id, a.number, cardinality(a.keys)
    FROM clusters c CROSS JOIN LATERAL (
        SELECT number, keys FROM arrivals WHERE cluster_id = c.id ORDER BY number DESC LIMIT 1
    ) a
    WHERE CAST(:cluster AS text) IS NULL OR c.name = :cluster
""")
_AFTER = text("""
    SELECT c.id, a.number, k.place, c.name,
        timestamptz 'epoch' + k.time * interval '1 microsecond' AS at, k.version_key
    FROM clusters c
    LEFT JOIN unnest(CAST(:ids AS integer[]), CAST(:numbers AS bigint[]), CAST(:told AS integer[]))
        AS s (id, number, told) ON s.id = c.id
    CROSS JOIN LATERAL (
        SELECT number, times, keys FROM arrivals
        WHERE cluster_id = c.id AND number >= coalesce(s.number, 0)
            AND (number > coalesce(s.number, 0) OR cardinality(keys) > s.told)
        ORDER BY number LIMIT :batches
    ) a
    CROSS JOIN LATERAL unnest(a.times, a.keys) WITH ORDINALITY AS k (time, version_key, place)
    WHERE (CAST(:cluster AS text) IS NULL OR c.name = :cluster)
        AND (a.number > coalesce(s.number, 0) OR k.place > coalesce(s.told, 0))
    ORDER BY a.number, k.place LIMIT :most
""")


async def write(conn: AsyncConnection, cluster_id: int, new: Sequence[Change]) -> None:
    """Notes that these changes were recorded, in this order. The transaction holds record.lock.

    Times go as whole numbers: to make text of 400 times takes as long as to record a fifth of their changes.
    """
    keys = (one.key for one in new)
    async with driver_of(conn) as driver:
        await driver.execute(
            "INSERT INTO arrivals (cluster_id, times, keys) VALUES (%s, %s::bigint[], %s::bigint[])",
            (cluster_id, codec.int_array((one.at - EPOCH) // _MICROSECOND for one in new), codec.int_array(keys)),
        )


async def read_places(conn: AsyncConnection, cluster: str | None) -> dict[int, Place]:
    """Behind all that arrived by now, of one cluster or all."""
    found = await conn.execute(_NEWEST, {"cluster": cluster})
    return {cluster_id: Place(number, told) for cluster_id, number, told in found}


async def read_last_number(conn: AsyncConnection) -> int:
    """The highest number that was given to a row; one above it is of another database."""
    found = await conn.execute(text("SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM arrivals_number_seq"))
    last: int = found.scalar_one()
    return last


async def read_after(conn: AsyncConnection, places: Places, cluster: str | None, *, most: int) -> list[Arrival]:
    """What arrived behind ``places``, the first of it first: of each cluster in the order of its commits. There may be
    more where it is BATCHES changes or more."""
    values = {
        "ids": list(places),
        "numbers": [place.number for place in places.values()],
        "told": [place.told for place in places.values()],
    }
    found = await conn.execute(_AFTER, {**values, "cluster": cluster, "most": most, "batches": BATCHES})
    return [Arrival(cluster_id, Place(number, told), *rest) for cluster_id, number, told, *rest in found]


async def read_changes(
    conn: AsyncConnection, arrived: Sequence[Arrival], wanted: ChangeFilter
) -> list[tuple[Arrival, Change]]:
    """Those that fit a filter, but for its cluster, in their order."""
    if not arrived:
        return []
    times = [one.at for one in arrived]
    values = {
        "ids": [one.cluster_id for one in arrived],
        "times": times,
        "keys": [one.key for one in arrived],
        "first": min(times),
        "last": max(times),
    }
    wanted = replace(wanted, cluster=None)
    rows = await conn.execute(_those(shape(wanted)), values | asked(wanted))
    found = {(one.resource.cluster, one.at, one.key): one for one in map(change_of, rows)}
    return [(one, found[whose]) for one in arrived if (whose := (one.cluster, one.at, one.key)) in found]


@lru_cache(maxsize=64)
def _those(wanted: ChangeFilter) -> Select[Any]:
    c, time = changes.c, DateTime(timezone=True)
    told = func.unnest(
        cast(bindparam("ids"), ARRAY(Integer)),
        cast(bindparam("times"), ARRAY(time)),
        cast(bindparam("keys"), ARRAY(BigInteger)),
    ).table_valued(column("id", Integer), column("at", time), column("version_key", BigInteger), name="told")
    told = told.render_derived()
    same = and_(c.cluster_id == told.c.id, c.at == told.c.at, c.version_key == told.c.version_key)
    within = c.at.between(bindparam("first", type_=time), bindparam("last", type_=time))
    page = select(changes).join(told, same).where(within, *conditions(wanted))
    if wanted.kind is not None:
        of_kind = select(kinds.c.id).where(func.lower(kinds.c.kind) == func.lower(bindparam("kind")))
        page = page.where(c.kind_id.in_(of_kind))
    return named(page.subquery("page"))


async def forget(conn: AsyncConnection, now: datetime) -> None:
    """Deletes what nobody goes on from any more."""
    before = now - KEPT - _COMMITTED_WITHIN
    await conn.execute(text("DELETE FROM arrivals WHERE at < :before"), {"before": before})
