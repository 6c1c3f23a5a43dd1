"""Changes: written once, improved by who tells more, read by window."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from functools import cache
from math import ceil
from typing import Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Select,
    and_,
    any_,
    bindparam,
    case,
    cast,
    func,
    literal,
    literal_column,
    select,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB
from sqlalchemy.ext.asyncio import AsyncConnection

from app.core.changes.history import is_remembered, same_write
from app.core.changes.past import SAME
from app.core.model import Change, Resource, Verb
from app.store import arrivals, codec, codes, objects, partitions, tables
from app.store.change_rows import ACTOR_SOURCES, DIFF_SOURCES, SOURCES, VERBS, change_of, named
from app.store.copy import copy, driver_of
from app.store.merge import merge_changes

SAME_WRITE = timedelta(days=7)
"""How far apart two tellings of one write may lie: a collector that was down finds it later in a LIST."""

_VERB = {verb: n for n, verb in enumerate(VERBS)}
_ACTOR = {source: n for n, source in enumerate(ACTOR_SOURCES)}
_DIFF = {source: n for n, source in enumerate(DIFF_SOURCES)}
_REMEMBERED = "sources & 8 <> 0"
"""As the partial index has it."""
_BITS = {sources: bits for bits, sources in enumerate(SOURCES)}

COLUMNS = {
    "at": "timestamptz",
    "version_key": "int8",
    "cluster_id": "int4",
    "object_id": "int8",
    "kind_id": "int4",
    "namespace_id": "int4",
    "actor_id": "int4",
    "agent_id": "int4",
    "pod_id": "int4",
    "verb": "int2",
    "actor_source": "int2",
    "diff_source": "int2",
    "sources": "int2",
    "noise": "bool",
    "generation": "int4",
    "resource_version": "text",
    "begun_by": "text",
    "impersonator": "text",
    "audit_id": "bytea",
    "within_seconds": "int4",
    "found_in": "text",
    "summary": "text",
    "diff": "bytea",  # jsonb as it is sent: codec.jsonb
    "url": "text",
    "workload": "text",
}
_IMPROVED = {name: f"%({name})s" for name in list(COLUMNS)[3:]} | {
    "noise": "noise OR %(noise)s",
    "diff": "convert_from(substr(%(diff)s, 2), 'UTF8')::jsonb",
}
_IMPROVE = (
    f"UPDATE changes SET {', '.join(f'{name} = {value}' for name, value in _IMPROVED.items())}"  # noqa: S608
    " WHERE cluster_id = %(cluster_id)s AND at = %(at)s AND version_key = %(version_key)s"
)


async def write(
    conn: AsyncConnection, cluster_id: int, told: Iterable[Change], *, improvements: Iterable[Change] = ()
) -> tuple[int, int]:
    """Stores changes that are new and improves those already known; returns (new, improved).

    ``improvements`` only improve: one of a write that is not stored is passed over.
    """
    batch: dict[int, Change] = {}
    for change in told:
        known = batch.get(change.key)
        batch[change.key] = change if known is None else merge_changes(known, change)
    wanted = set(batch)
    for change in improvements:
        known = batch.get(change.key)
        batch[change.key] = change if known is None else merge_changes(known, change)
    if not batch:
        return 0, 0
    stored = await _stored(conn, cluster_id, batch)
    better = {}
    for key, known in stored.items():
        merged = merge_changes(known, batch[key])
        if merged != known:
            better[key] = merged
    fresh = [change for key, change in batch.items() if key not in stored and key in wanted]
    met = await _met(conn, cluster_id, fresh)
    for change, known in met:
        merged = merge_changes(better.get(known.key, known), change)
        if merged != known:
            better[known.key] = merged
    again = {change.key for change, _ in met}
    fresh = [change for change in fresh if change.key not in again]
    if fresh:
        await partitions.ensure(conn, "changes", (change.at for change in fresh))
        await copy(conn, "changes", COLUMNS, await rows(conn, cluster_id, fresh))
        await arrivals.write(conn, cluster_id, fresh)
    if better:
        improved = [dict(zip(COLUMNS, row, strict=True)) for row in await rows(conn, cluster_id, list(better.values()))]
        async with driver_of(conn) as driver, driver.cursor() as cursor:
            await cursor.executemany(_IMPROVE, improved)
    return len(fresh), len(better)


async def _met(conn: AsyncConnection, cluster_id: int, fresh: list[Change]) -> list[tuple[Change, Change]]:
    """Those of which another telling is stored under another key, with that: what is remembered has no version."""
    updates = [change for change in fresh if change.verb is Verb.UPDATE]
    told = [change for change in updates if not is_remembered(change)]
    remembered = [change for change in updates if is_remembered(change)]
    c = tables.changes.c
    pairs: list[tuple[Change, Change]] = []
    if told:
        begin, end = _around(told)
        earliest = c.at - func.make_interval(0, 0, 0, 0, 0, 0, c.within_seconds)
        which = select(tables.changes).where(c.cluster_id == cluster_id, c.at >= begin, earliest <= end)
        stored = await conn.execute(_select(which.where(text(_REMEMBERED))))
        left = {row.version_key: change_of(row) for row in stored}
        for change in told if left else ():
            fits = [one for one in left.values() if _tells(one, change)]
            if fits:
                best = min(fits, key=lambda one: (one.diffs != change.diffs, abs(one.at - change.at)))
                pairs.append((change, left.pop(best.key)))
    if remembered:
        begin, end = _around(remembered)
        ids = await objects.identify(conn, cluster_id, [(one.resource, one.uid, one.at) for one in remembered])
        which = select(tables.changes).where(c.object_id == any_(literal(ids, ARRAY(BigInteger))), c.at >= begin)
        stored = await conn.execute(_select(which))
        others = defaultdict[Resource, list[Change]](list)
        for row in stored:
            others[(known := change_of(row)).resource].append(known)
        for change in remembered:
            known_as = (one for one in others[change.resource] if not is_remembered(one) and same_write(change, one))
            if (first := next(known_as, None)) is not None:
                pairs.append((change, first))
    return pairs


def _tells(remembered: Change, told: Change) -> bool:
    if not is_remembered(remembered):  # another telling has met it already
        return (remembered.uid, remembered.resource_version) == (told.uid, told.resource_version)
    return same_write(remembered, told)


def _around(found: list[Change]) -> tuple[datetime, datetime]:
    """Between which times another telling of one of these may lie."""
    return min(one.since or one.at for one in found) - SAME, max(one.at for one in found) + SAME


async def rows(conn: AsyncConnection, cluster_id: int, changes: list[Change]) -> Iterator[tuple[object, ...]]:
    """The changes as rows of COLUMNS: ids are found or made at once, rows are made as they are read."""
    texts: set[str] = set()
    for change in changes:
        actor = change.actor
        texts.update((change.resource.namespace or "", actor.name, actor.user_agent, actor.pod or ""))
    word = await codes.words(conn, texts)
    kind = await codes.kinds(conn, {(c.resource.api_group, c.resource.kind) for c in changes})
    ids = await objects.identify(conn, cluster_id, [(c.resource, c.uid, c.at) for c in changes])
    return (
        (
            c.at,
            c.key,
            cluster_id,
            object_id,
            kind[(c.resource.api_group, c.resource.kind)],
            word[c.resource.namespace or ""],
            word[c.actor.name],
            word[c.actor.user_agent],
            word[c.actor.pod or ""],
            _VERB[c.verb],
            _ACTOR[c.actor.source],
            _DIFF[c.diff_source],
            _BITS[c.sources],
            c.begun_by is not None,
            c.generation,
            c.resource_version,
            c.begun_by or "",
            codec.clean(c.actor.impersonator or ""),
            codec.packed_id(c.audit_id),
            ceil((c.at - c.since).total_seconds()) if c.since else 0,
            codec.clean(c.found_in),
            codec.clean(c.summary),
            codec.jsonb(codec.diff_rows(c.diffs)),
            codec.clean(c.url),
            codec.clean(c.workload),
        )
        for c, object_id in zip(changes, ids, strict=True)
    )


async def _stored(conn: AsyncConnection, cluster_id: int, batch: dict[int, Change]) -> dict[int, Change]:
    """Those of the batch that are stored already, by version key."""
    times = [change.at for change in batch.values()]
    async with driver_of(conn) as driver:
        found = await driver.execute(
            "SELECT at, version_key FROM changes"
            " WHERE cluster_id = %s AND version_key = ANY(%s::bigint[]) AND at BETWEEN %s AND %s",
            (cluster_id, codec.int_array(batch), min(times) - SAME_WRITE, max(times) + SAME_WRITE),
            binary=True,
        )
        known = await found.fetchall()
    if not known:
        return {}
    c = tables.changes.c
    keys = [key for _, key in known]
    seen = [at for at, _ in known]
    statement = _select(
        select(tables.changes).where(
            c.cluster_id == cluster_id,
            c.version_key == any_(literal(keys, ARRAY(BigInteger))),
            c.at.between(min(seen), max(seen)),
        )
    )
    return {row.version_key: change_of(row) for row in await conn.execute(statement)}


def _select(which: Select[Any]) -> Select[Any]:
    """Oldest first; ``which`` is cut to size before the joins."""
    w = which.subquery("w")
    return named(w).order_by(w.c.at, w.c.version_key)


_WITHOUT_VALUES = """
(SELECT COALESCE(jsonb_agg(jsonb_build_array(field->0, field->1, NULL, NULL)), '[]')
 FROM jsonb_array_elements(changes.diff) AS field)
"""
"""A diff, as codec.diff_rows writes it, of which only the fields are told."""


def without_large(most_bytes: int) -> list[ColumnElement[Any]]:
    """The columns of a change, whole, but where the stored diff is larger: of such only the fields are told."""
    return [one for one in tables.changes.c if one.name != "diff"] + [told_diff(most_bytes)]


def told_diff(most_bytes: int) -> ColumnElement[Any]:
    """The diff of a change, as a column of that name; where it is larger, as stored, its fields alone."""
    diff = tables.changes.c.diff
    told = case((func.pg_column_size(diff) > most_bytes, literal_column(_WITHOUT_VALUES, JSONB)), else_=diff)
    return told.label("diff")


async def read_window(
    conn: AsyncConnection, cluster: str, start: datetime, end: datetime, *, limit: int, most_bytes: int | None = None
) -> list[Change]:
    """The newest ``limit`` changes in [start, end], oldest first; whole, but where the stored diff is larger than
    ``most_bytes``: of such only the fields are told, and no values."""
    c = tables.changes.c
    number = await codes.find_cluster(conn, cluster)
    columns = without_large(most_bytes) if most_bytes is not None else list(c)
    which = select(*columns).where(and_(c.cluster_id == number, c.at.between(start, end)))
    rows = await conn.execute(_select(which.order_by(c.at.desc(), c.version_key.desc()).limit(limit)))
    return [change_of(row) for row in rows]


async def read_chosen(
    conn: AsyncConnection,
    cluster: str,
    keys: Sequence[int],
    *,
    start: datetime,
    end: datetime,
    most_bytes: int | None = None,
) -> list[Change]:
    """As read_window, of the changes with these version keys."""
    number = await codes.find_cluster(conn, cluster)
    asked = {"cluster": number, "keys": codec.int_array(keys), "start": start, "end": end}
    return [change_of(row) for row in (await conn.execute(_chosen(most_bytes), asked)).all()]


@cache
def _chosen(most_bytes: int | None) -> Select[Any]:
    """Changes of a cluster by their version keys, between two times. Building it takes as long as running it."""
    c = tables.changes.c
    columns = without_large(most_bytes) if most_bytes is not None else list(c)
    keys = cast(bindparam("keys"), ARRAY(BigInteger))
    window = and_(c.cluster_id == bindparam("cluster"), c.at.between(bindparam("start"), bindparam("end")))
    return _select(select(*columns).where(window, c.version_key == any_(keys)))


async def read_rewritten(
    conn: AsyncConnection,
    cluster: str,
    start: datetime,
    end: datetime,
    *,
    least: int,
    limit: int,
    with_noise: bool = True,
) -> list[Change]:
    """As read_window, of those objects only that were written ``least`` times in it: what is large and written once is
    not read. Those marked as part of something that is shown as one thing may be left out, though they count."""
    c = tables.changes.c
    window = and_(c.cluster_id == await codes.find_cluster(conn, cluster), c.at.between(start, end))
    often = select(c.object_id).where(window).group_by(c.object_id).having(func.count() >= least)
    which = select(tables.changes).where(window, c.object_id.in_(often))
    which = which if with_noise else which.where(~c.noise)
    rows = await conn.execute(_select(which.order_by(c.at.desc(), c.version_key.desc()).limit(limit)))
    return [change_of(row) for row in rows]
