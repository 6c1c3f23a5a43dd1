"""What pages and REST read of the log: changes, one by one and as marks on an axis.

Every window query names the cluster and a time range, so it reads the newest partitions only. Rows come newest
first; a keyset ``Cursor`` is the last row already seen.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache, lru_cache
from typing import Any

from sqlalchemy import (
    BigInteger,
    BindParameter,
    ColumnElement,
    FromClause,
    Select,
    Subquery,
    Text,
    bindparam,
    collate,
    false,
    func,
    or_,
    select,
    true,
    tuple_,
)
from sqlalchemy.ext.asyncio import AsyncConnection

from app.core.model import (
    Change,
    Verb,
    parse_change_id,
)
from app.store.change_rows import VERBS, change_of, newest_first
from app.store.tables import changes, clusters, kinds, words

LONG_AGO = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class ChangeFilter:
    """Which changes are wanted; None means any. ``from_at`` is included, ``to_at`` is not.

    ``kind`` is known whatever its case. ``text`` is looked for in the summary, which names the object, whatever the
    case of its ASCII letters. ``derived`` "hidden" leaves out what controllers wrote because of another change,
    "shown" keeps it.
    """

    cluster: str | None = None
    namespace: str | None = None
    kind: str | None = None
    actor: str | None = None
    verb: Verb | None = None
    text: str | None = None
    from_at: datetime | None = None
    to_at: datetime | None = None
    derived: str = "hidden"


ANY = ChangeFilter()


@dataclass(frozen=True, slots=True)
class Cursor:
    """The place after a row: its time and version key."""

    at: datetime
    key: int


def after(change: Change) -> Cursor:
    """The cursor that continues behind ``change``."""
    return Cursor(change.at, change.key)


def word_id(text: str | BindParameter[str]) -> Any:
    """The code of a word, as a subquery; NULL for one that was never seen."""
    return select(words.c.id).where(words.c.word == text).scalar_subquery()


def shape(wanted: ChangeFilter) -> ChangeFilter:
    """The same whatever the values: filters of one shape share a statement. Building one costs more than running it."""
    return ChangeFilter(
        cluster=wanted.cluster and "*",
        namespace=wanted.namespace and "*",
        kind=wanted.kind and "*",
        actor=wanted.actor and "*",
        verb=wanted.verb and VERBS[0],
        text=wanted.text and "*",
        from_at=wanted.from_at and LONG_AGO,
        to_at=wanted.to_at and LONG_AGO,
        derived=wanted.derived,
    )


def asked(wanted: ChangeFilter) -> dict[str, Any]:
    """The values of a filter's parameters."""
    names = ("cluster", "namespace", "kind", "actor", "text", "from_at", "to_at")
    values = {name: value for name in names if (value := getattr(wanted, name)) is not None}
    return values if wanted.verb is None else values | {"verb": VERBS.index(wanted.verb)}


def conditions(wanted: ChangeFilter) -> list[ColumnElement[bool]]:
    """The WHERE of a filter's shape, but for cluster and kind. A name that was never seen matches nothing."""
    found: list[ColumnElement[bool]] = []
    if wanted.namespace is not None:
        found.append(changes.c.namespace_id == (word_id(bindparam("namespace")) if wanted.namespace else 0))
    if wanted.actor is not None:
        acted = changes.c.actor_id == (word_id(bindparam("actor")) if wanted.actor else 0)
        found.append(or_(acted, changes.c.impersonator == bindparam("actor", type_=Text)) if wanted.actor else acted)
    if wanted.verb is not None:
        found.append(changes.c.verb == bindparam("verb"))
    if wanted.text:
        # by bytes, not by the rules of a language: half the time, and what Kubernetes names is ASCII
        words_wanted = bindparam("text", type_=Text)
        summary, text = (func.lower(collate(side, "C")) for side in (changes.c.summary, words_wanted))
        found.append(func.strpos(summary, text) > 0)
    if wanted.from_at is not None:
        found.append(changes.c.at >= bindparam("from_at"))
    if wanted.to_at is not None:
        found.append(changes.c.at < bindparam("to_at"))
    if wanted.derived == "hidden":
        found.append(changes.c.noise == false())
    return found


def newest_of(where: Iterable[ColumnElement[bool]], *, limit: int) -> Select[Any]:
    """The newest rows of ``changes`` that fit."""
    return select(changes).where(*where).order_by(changes.c.at.desc(), changes.c.version_key.desc()).limit(limit)


def _page(where: Iterable[ColumnElement[bool]], *, limit: int, wanted: ChangeFilter = ANY) -> FromClause:
    """The newest rows of a filter's cluster (None: of all) and kind (None: any).

    Each cluster and kind is asked by itself for its newest: that walks an index from its end and stops, where one
    question over all of them would sort everything ever recorded.
    """
    of, own = owners(wanted)
    newest = newest_of([*own, *where], limit=limit).lateral("newest")
    return (
        select(newest)
        .select_from(of.join(newest, true()))
        .order_by(newest.c.at.desc(), newest.c.version_key.desc())
        .limit(limit)
        .subquery("page")
    )


def owners(wanted: ChangeFilter) -> tuple[Subquery, list[ColumnElement[bool]]]:
    """The clusters, with each kind of that name where one is wanted, and what makes a change theirs."""
    each = select(clusters.c.id.label("cluster_id"))
    if wanted.kind is not None:
        both = clusters.join(kinds, func.lower(kinds.c.kind) == func.lower(bindparam("kind", type_=Text)))
        each = select(clusters.c.id.label("cluster_id"), kinds.c.id.label("kind_id")).select_from(both)
    if wanted.cluster is not None:
        each = each.where(clusters.c.name == bindparam("cluster"))
    of = each.subquery("of")
    of_kind = [] if wanted.kind is None else [changes.c.kind_id == of.c.kind_id]
    return of, [changes.c.cluster_id == of.c.cluster_id, *of_kind]


@lru_cache(maxsize=256)
def _listed(wanted: ChangeFilter, *, limit: int, paged: bool) -> Select[Any]:
    return listed(wanted, limit=limit, paged=paged)


def listed(wanted: ChangeFilter, *, limit: int, paged: bool, also: Iterable[ColumnElement[bool]] = ()) -> Select[Any]:
    """The changes of a shape; behind the row of ``before_at`` and ``before_key`` where it is a later page."""
    where = [*conditions(wanted), *also]
    if paged:
        before = tuple_(bindparam("before_at", type_=changes.c.at.type), bindparam("before_key", type_=BigInteger))
        where.append(tuple_(changes.c.at, changes.c.version_key) < before)
    return newest_first(_page(where, limit=limit, wanted=wanted))


async def list_changes(
    conn: AsyncConnection, wanted: ChangeFilter, *, before: Cursor | None = None, limit: int = 100
) -> list[Change]:
    """Changes newest first, at most ``limit``. One query."""
    values = asked(wanted)
    if before is not None:
        values |= {"before_at": before.at, "before_key": before.key}
    query = _listed(shape(wanted), limit=limit, paged=before is not None)
    return [change_of(row) for row in await conn.execute(query, values)]


@cache
def _one() -> Select[Any]:
    """The change at ``start``, to the millisecond, with ``key``."""
    start = bindparam("start", type_=changes.c.at.type)
    within = (changes.c.at >= start, changes.c.at < start + timedelta(milliseconds=1))
    return newest_first(_page([*within, changes.c.version_key == bindparam("key")], limit=1))


async def read_change(conn: AsyncConnection, public_id: str) -> Change | None:
    """One change by its public id; None when there is none. Raises ValueError for what is not an id."""
    start, key = parse_change_id(public_id)
    row = (await conn.execute(_one(), {"start": start, "key": key})).first()
    return None if row is None else change_of(row)


@cache
def _begun() -> Select[Any]:
    """Changes of ``cluster`` in the ten minutes from ``start`` that ``root``, a change id, began."""
    start = bindparam("start", type_=changes.c.at.type)
    within = (changes.c.at >= start, changes.c.at < start + timedelta(minutes=10))
    return newest_first(_page([*within, changes.c.begun_by == bindparam("root")], limit=50, wanted=ChangeFilter("*")))


async def list_begun_by(conn: AsyncConnection, change: Change) -> list[Change]:
    """What controllers wrote because of ``change`` within the ten minutes after it: the newest 50."""
    asked = {"start": change.at, "root": change.id, "cluster": change.resource.cluster}
    return [change_of(row) for row in await conn.execute(_begun(), asked)]
