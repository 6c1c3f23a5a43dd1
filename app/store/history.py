"""The history of one object: its last known state and the changes that led there, page by page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Select, select, tuple_
from sqlalchemy.ext.asyncio import AsyncConnection

from app.core.model import Change, ObjectState, Resource
from app.core.objects.versions import Write
from app.store import codec
from app.store.change_rows import DIFF_SOURCES, VERBS, change_of, newest_first
from app.store.objects import load_states
from app.store.tables import changes, clusters, kinds, objects
from app.store.timeline import Cursor, newest_of, word_id


@dataclass(frozen=True, slots=True)
class History:
    """One object: its newest known state and a page of its changes, newest first."""

    state: ObjectState
    changes: tuple[Change, ...]


def lives(resource: Resource) -> Select[Any]:
    """The ids of all objects that bore the name."""
    return (
        select(objects.c.id)
        .join(clusters, clusters.c.id == objects.c.cluster_id)
        .join(kinds, kinds.c.id == objects.c.kind_id)
        .where(
            clusters.c.name == resource.cluster,
            kinds.c.api_group == resource.api_group,
            kinds.c.kind == resource.kind,
            objects.c.namespace_id == (word_id(resource.namespace) if resource.namespace else 0),
            objects.c.name == resource.name,
        )
    )


async def read_history(
    conn: AsyncConnection, resource: Resource, *, before: Cursor | None = None, limit: int = 100
) -> History | None:
    """An object's history over all lives of its name; None when it was never seen. Two queries."""
    state = (await load_states(conn, resource.cluster, [resource])).get(resource)
    if state is None:
        return None
    where: list[ColumnElement[bool]] = [changes.c.object_id.in_(lives(resource))]
    if before is not None:
        where.append(tuple_(changes.c.at, changes.c.version_key) < tuple_(before.at, before.key))
    found = await conn.execute(newest_first(newest_of(where, limit=limit).subquery("page")))
    return History(state, tuple(change_of(row) for row in found))


async def read_newer(conn: AsyncConnection, resource: Resource, since: Cursor, *, most: int) -> list[Write] | None:
    """What was written to an object from ``since`` on, newest first; None when that is more than ``most``. One query.

    This is what leads back from the last known state to a page that begins at ``since``.
    """
    place = tuple_(changes.c.at, changes.c.version_key)
    where = [changes.c.object_id.in_(lives(resource)), place >= tuple_(since.at, since.key)]
    columns = (changes.c.verb, changes.c.diff_source, changes.c.diff)
    found = (await conn.execute(newest_of(where, limit=most + 1).with_only_columns(*columns))).all()
    if len(found) > most:
        return None
    return [Write(VERBS[row.verb], codec.diffs_of(row.diff), DIFF_SOURCES[row.diff_source]) for row in found]
