"""The last known state of every object, kept under an id that changes and rollouts point to."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from msgspec.structs import replace
from sqlalchemy import ARRAY, Row, Select, Text, any_, bindparam, func, or_, select, text, tuple_
from sqlalchemy.ext.asyncio import AsyncConnection

from app.core.model import ObjectState, Resource
from app.store import codec, codes
from app.store.copy import copy
from app.store.tables import clusters, kinds, objects, words

Place = tuple[int, int, str, str]
"""How the database finds an object within its cluster: (kind id, namespace id, name, uid)."""

_STAGED = {
    "ord": "int4",
    "cluster_id": "int4",
    "kind_id": "int4",
    "namespace_id": "int4",
    "name": "text",
    "uid": "text",
    "resource_version": "text",
    "generation": "int8",
    "owner_kind": "text",
    "owner_name": "text",
    "seen_at": "timestamptz",
    "deleted_at": "timestamptz",
    "state": "bytea",
}
_STAGE = (
    "CREATE TEMP TABLE IF NOT EXISTS staged_objects"
    f" ({', '.join(f'{name} {kind}' for name, kind in _STAGED.items())}) ON COMMIT DELETE ROWS"
)
_NEWER = (
    '(length(excluded.resource_version), excluded.resource_version COLLATE "C", excluded.seen_at)'
    ' > (length(o.resource_version), o.resource_version COLLATE "C", o.seen_at)'
)
_UPSERT = f"""
INSERT INTO objects AS o (cluster_id, kind_id, namespace_id, name, uid, resource_version, generation,
                          owner_kind, owner_name, seen_at, deleted_at, state)
SELECT cluster_id, kind_id, namespace_id, name, uid, resource_version, generation,
       owner_kind, owner_name, seen_at, deleted_at, state
FROM staged_objects ORDER BY kind_id, namespace_id, name, uid
ON CONFLICT (cluster_id, kind_id, namespace_id, name, uid) DO UPDATE SET
    state = CASE WHEN {_NEWER} THEN COALESCE(excluded.state, o.state) ELSE COALESCE(o.state, excluded.state) END,
    owner_kind = CASE WHEN {_NEWER} AND excluded.owner_kind <> '' OR o.owner_kind = ''
                 THEN excluded.owner_kind ELSE o.owner_kind END,
    owner_name = CASE WHEN {_NEWER} AND excluded.owner_kind <> '' OR o.owner_kind = ''
                 THEN excluded.owner_name ELSE o.owner_name END,
    generation = GREATEST(o.generation, excluded.generation),
    resource_version = CASE WHEN {_NEWER} THEN excluded.resource_version ELSE o.resource_version END,
    seen_at = GREATEST(o.seen_at, excluded.seen_at),
    deleted_at = CASE WHEN o.uid = '' AND excluded.seen_at > o.seen_at THEN excluded.deleted_at
                 ELSE COALESCE(o.deleted_at, excluded.deleted_at) END
WHERE {_NEWER} OR o.state IS NULL AND excluded.state IS NOT NULL
   OR o.deleted_at IS NULL AND excluded.deleted_at IS NOT NULL
"""  # noqa: S608 - our own text only
"""A uid is deleted once: a late sighting does not bring it back. Where only the name is known, the latest counts."""
_IDS = """
SELECT s.ord, o.id FROM staged_objects s
JOIN objects o USING (cluster_id, kind_id, namespace_id, name, uid)
"""
_STANDING = "SELECT id FROM objects WHERE id = ANY(CAST(:ids AS bigint[]))"
_KNOWN = """o.name, o.uid, o.resource_version, o.seen_at, o.state,
       o.generation, o.owner_kind, o.owner_name, o.deleted_at"""
_NAMED = f"""
SELECT c.name AS cluster, k.api_group, k.kind, w.namespace, {_KNOWN}
FROM unnest(CAST(:groups AS text[]), CAST(:kinds AS text[]), CAST(:namespaces AS text[]), CAST(:names AS text[]))
     AS w (api_group, kind, namespace, name)
JOIN clusters c ON c.name = :cluster
JOIN kinds k USING (api_group, kind)
LEFT JOIN words n ON n.word = w.namespace AND w.namespace <> ''
JOIN objects o ON o.cluster_id = c.id AND o.kind_id = k.id AND o.name = w.name
              AND o.namespace_id = CASE WHEN w.namespace = '' THEN 0 ELSE n.id END
"""  # noqa: S608 - our own text only
_BESIDE = f"""
{_NAMED} UNION ALL (
  SELECT c.name, k.api_group, k.kind, n.word, {_KNOWN}
  FROM unnest(CAST(:beside_groups AS text[]), CAST(:beside_kinds AS text[])) AS w (api_group, kind)
  JOIN clusters c ON c.name = :cluster
  JOIN kinds k USING (api_group, kind)
  JOIN words n ON n.word = :namespace AND n.word <> ''
  JOIN objects o ON o.cluster_id = c.id AND o.kind_id = k.id AND o.namespace_id = n.id
  WHERE o.deleted_at IS NULL AND (k.api_group, k.kind, o.name) <> (:group, :kind, :name) LIMIT :most
)
"""  # noqa: S608 - our own text only


def _age(state: ObjectState) -> tuple[object, ...]:
    version = state.resource_version
    return len(version), version, state.seen_at


def _newest(known: ObjectState, told: ObjectState) -> ObjectState:
    """Two sightings of one object within a batch as one."""
    newest, other = (told, known) if _age(told) >= _age(known) else (known, told)
    deleted = newest.deleted_at if not newest.uid else newest.deleted_at or other.deleted_at
    return replace(newest, state=newest.state if newest.state is not None else other.state, deleted_at=deleted)


async def places(conn: AsyncConnection, resources: Iterable[tuple[Resource, str]]) -> dict[tuple[Resource, str], Place]:
    """Where (resource, uid) stands, with ids made for kinds and namespaces that are new."""
    wanted = list(resources)
    kind_ids = await codes.kinds(conn, {(r.api_group, r.kind) for r, _ in wanted})
    word_ids = await codes.words(conn, {r.namespace or "" for r, _ in wanted})
    return {
        (r, uid): (kind_ids[(r.api_group, r.kind)], word_ids[r.namespace or ""], codec.clean(r.name), uid)
        for r, uid in wanted
    }


async def upsert(conn: AsyncConnection, cluster_id: int, states: Iterable[ObjectState]) -> int:
    """Keeps the newest of what is stored and ``states`` (resourceVersions compare as numbers); returns how many."""
    newest: dict[tuple[Resource, str], ObjectState] = {}
    for state in states:
        key = (state.resource, state.uid)
        newest[key] = _newest(newest[key], state) if key in newest else state
    if newest:
        cache = codes.codes_of(conn)
        for key, object_id in (await _store(conn, cluster_id, newest)).items():
            # Who tells of a change of the object tells its state again, mostly; and objects are many.
            cache.note(("object", cluster_id, *key), object_id)
    return len(newest)


async def identify(
    conn: AsyncConnection, cluster_id: int, mentioned: Sequence[tuple[Resource, str, datetime]]
) -> list[int]:
    """The ids of objects mentioned as (resource, uid, when), in that order. One never seen before is made."""
    cache = codes.codes_of(conn)
    ids = [cache.get(("object", cluster_id, resource, uid)) for resource, uid, _ in mentioned]
    ids = await _without_retired(conn, [uid for _, uid, _ in mentioned], ids)
    missing = {
        (resource, uid): ObjectState(resource, uid, "", at, None)
        for (resource, uid, at), known in zip(mentioned, ids, strict=True)
        if known is None
    }
    made = await _store(conn, cluster_id, missing) if missing else {}
    for key, object_id in made.items():
        cache.learn(("object", cluster_id, *key), object_id)
    return [
        made[(resource, uid)] if known is None else known
        for (resource, uid, _), known in zip(mentioned, ids, strict=True)
    ]


async def _without_retired(conn: AsyncConnection, uids: Sequence[str], ids: Sequence[int | None]) -> list[int | None]:
    """``ids``, with None for those that retention has deleted since they were remembered: a name may come again long
    after its object went, where a uid never does."""
    named = {number for uid, number in zip(uids, ids, strict=True) if number is not None and not uid}
    if not named:
        return list(ids)
    retired = named.difference(await conn.scalars(text(_STANDING), {"ids": list(named)}))
    return [None if number in retired else number for number in ids]


async def _store(
    conn: AsyncConnection, cluster_id: int, states: dict[tuple[Resource, str], ObjectState]
) -> dict[tuple[Resource, str], int]:
    found = await places(conn, states)
    keys = list(states)
    await conn.execute(text(_STAGE))
    await conn.execute(text("TRUNCATE staged_objects"))
    await copy(
        conn,
        "staged_objects",
        _STAGED,
        (
            (
                number,
                cluster_id,
                *found[key],
                state.resource_version,
                state.generation,
                state.owner_kind,
                codec.clean(state.owner_name),
                state.seen_at,
                state.deleted_at,
                codec.pack_state(state.state),
            )
            for number, (key, state) in enumerate(states.items())
        ),
    )
    await conn.execute(text(_UPSERT))
    return {keys[number]: object_id for number, object_id in (await conn.execute(text(_IDS))).all()}


def _select() -> Select[Any]:
    return (
        select(
            clusters.c.name.label("cluster"),
            kinds.c.api_group,
            kinds.c.kind,
            func.coalesce(words.c.word, "").label("namespace"),
            *(objects.c.name, objects.c.uid, objects.c.resource_version, objects.c.seen_at, objects.c.state),
            *(objects.c.generation, objects.c.owner_kind, objects.c.owner_name, objects.c.deleted_at),
        )
        .join(clusters, clusters.c.id == objects.c.cluster_id)
        .join(kinds, kinds.c.id == objects.c.kind_id)
        .outerjoin(words, words.c.id == objects.c.namespace_id)
    )


_OF_CLUSTER = _select().where(clusters.c.name == bindparam("cluster"))
_LIVE = _OF_CLUSTER.where(objects.c.deleted_at.is_(None))
_RANKED = _LIVE.where(
    func.coalesce(func.octet_length(objects.c.state), 0) <= bindparam("most"),
    or_(
        kinds.c.kind != "ReplicaSet",
        objects.c.owner_name == any_(bindparam("changed", type_=ARRAY(Text))),
        objects.c.name == any_(bindparam("changed", type_=ARRAY(Text))),
    ),
)
_GONE_PODS = _OF_CLUSTER.where(
    objects.c.deleted_at >= bindparam("since"), kinds.c.api_group == "", kinds.c.kind == "Pod"
)
"""Made once: that takes as long as to ask."""


def _state(row: Row[Any]) -> ObjectState:
    """By place, as looked up by name columns take longer than all the rest."""
    values: Sequence[Any] = row
    cluster, api_group, kind, namespace, name, uid, resource_version, seen_at, state, *further = values
    generation, owner_kind, owner_name, deleted_at = further
    return ObjectState(
        Resource(cluster, api_group, kind, namespace or None, name),
        uid,
        resource_version,
        seen_at,
        codec.unpack_state(state),
        generation=generation,
        owner_kind=owner_kind,
        owner_name=owner_name,
        deleted_at=deleted_at,
    )


async def load_states(conn: AsyncConnection, cluster: str, wanted: Iterable[Resource]) -> dict[Resource, ObjectState]:
    """The newest known state of each resource that was ever seen, deleted ones too (a name may be used again)."""
    names = sorted({(r.api_group, r.kind, r.namespace or "", codec.clean(r.name)) for r in wanted})
    columns = dict(zip(("groups", "kinds", "namespaces", "names"), map(list, zip(*names, strict=True)), strict=True))
    if not names:
        return {}
    return _newest_of(map(_state, await conn.execute(text(_NAMED), {"cluster": cluster, **columns})))


@dataclass(frozen=True, slots=True)
class Beside:
    """An object with others of its namespace; ``is_cut``: there are more than were asked for."""

    states: dict[Resource, ObjectState]
    is_cut: bool


async def load_beside(
    conn: AsyncConnection, resource: Resource, kinds_beside: Collection[tuple[str, str]], *, most: int
) -> Beside:
    """As load_states, of one resource; and with it what stands in its namespace of these (api_group, kind), but not of
    more than ``most`` other objects."""
    here = resource.namespace or ""
    asked = {
        "cluster": resource.cluster,
        "groups": [resource.api_group],
        "kinds": [resource.kind],
        "namespaces": [here],
        "names": [codec.clean(resource.name)],
        "beside_groups": [group for group, _ in kinds_beside],
        "beside_kinds": [kind for _, kind in kinds_beside],
        "namespace": here,
        "group": resource.api_group,
        "kind": resource.kind,
        "name": codec.clean(resource.name),
        "most": most + 1,
    }
    found = [_state(row) for row in await conn.execute(text(_BESIDE), asked)]
    itself = [state for state in found if state.resource == resource]
    others = [state for state in found if state.resource != resource]
    return Beside(_newest_of([*itself, *others[:most]]), is_cut=len(others) > most)


def _newest_of(states: Iterable[ObjectState]) -> dict[Resource, ObjectState]:
    found: dict[Resource, ObjectState] = {}
    for state in states:
        known = found.get(state.resource)
        if known is None or (state.deleted_at is None, *_age(state)) > (known.deleted_at is None, *_age(known)):
            found[state.resource] = state
    return found


async def load_cluster(
    conn: AsyncConnection,
    cluster: str,
    kinds_wanted: Collection[tuple[str, str]] | None = None,
) -> list[ObjectState]:
    """Every object of a cluster that is not known to be gone; of the given (api_group, kind) only, where given."""
    statement = _LIVE
    if kinds_wanted is not None:
        statement = statement.where(tuple_(kinds.c.api_group, kinds.c.kind).in_(list(kinds_wanted)))
    return [_state(row) for row in (await conn.execute(statement, {"cluster": cluster})).all()]


async def load_ranked(
    conn: AsyncConnection, cluster: str, *, changed: Collection[str], most_bytes: int
) -> list[ObjectState]:
    """What a ranking goes by: every object of a cluster that is not known to be gone, but for those whose stored state
    is larger than ``most_bytes``, and for ReplicaSets where neither they nor their owners are among the names of what
    was ``changed``. Of a large cluster a third of all objects are revisions, which matter to a change of theirs alone.
    """
    asked = {"cluster": cluster, "most": most_bytes, "changed": list(changed)}
    return [_state(row) for row in (await conn.execute(_RANKED, asked)).all()]


async def load_live(conn: AsyncConnection, cluster: str, api_group: str, kind: str) -> list[tuple[Resource, str]]:
    """The objects of one kind that are not known to be gone, each with its uid; without their states."""
    statement = (
        select(words.c.word, objects.c.name, objects.c.uid)
        .join(clusters, clusters.c.id == objects.c.cluster_id)
        .join(kinds, kinds.c.id == objects.c.kind_id)
        .outerjoin(words, words.c.id == objects.c.namespace_id)
        .where(clusters.c.name == cluster, kinds.c.api_group == api_group, kinds.c.kind == kind)
        .where(objects.c.deleted_at.is_(None))
    )
    return [(Resource(cluster, api_group, kind, row.word, row.name), row.uid) for row in await conn.execute(statement)]


_namespaces = words.alias("namespaces")
_OWNED = _LIVE.where(
    kinds.c.api_group == bindparam("group"),
    kinds.c.kind == bindparam("kind"),
    objects.c.namespace_id
    == select(_namespaces.c.id).where(_namespaces.c.word == bindparam("namespace")).scalar_subquery(),
    objects.c.owner_kind == bindparam("owner_kind"),
    objects.c.owner_name == bindparam("owner_name"),
)
_SUFFIXED = _OF_CLUSTER.where(
    kinds.c.api_group == bindparam("group"),
    kinds.c.kind == bindparam("kind"),
    func.right(objects.c.name, func.length(bindparam("suffix", type_=Text))) == bindparam("suffix", type_=Text),
)


async def load_owned(conn: AsyncConnection, owner: Resource, sort: tuple[str, str]) -> list[ObjectState]:
    """The objects of an (api_group, kind) that ``owner`` controls in its namespace and that are there still."""
    asked = {
        "cluster": owner.cluster,
        "group": sort[0],
        "kind": sort[1],
        "namespace": owner.namespace or "",
        "owner_kind": owner.kind,
        "owner_name": codec.clean(owner.name),
    }
    return [_state(row) for row in await conn.execute(_OWNED, asked)]


async def load_suffixed(conn: AsyncConnection, cluster: str, sort: tuple[str, str], suffix: str) -> list[ObjectState]:
    """The objects of an (api_group, kind), cluster-scoped, whose name ends so, deleted ones too."""
    asked = {"cluster": cluster, "group": sort[0], "kind": sort[1], "suffix": codec.clean(suffix)}
    return list(_newest_of(map(_state, await conn.execute(_SUFFIXED, asked))).values())


async def load_gone_pods(conn: AsyncConnection, cluster: str, *, since: datetime) -> list[ObjectState]:
    """The last states of the pods that went since then."""
    return [_state(row) for row in (await conn.execute(_GONE_PODS, {"cluster": cluster, "since": since})).all()]
