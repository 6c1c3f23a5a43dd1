"""What is stored that bears on undoing a change: what became of its object, of who owns that, and of its kind."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from sqlalchemy import tuple_
from sqlalchemy.ext.asyncio import AsyncConnection

from app.core.changes.recipe import Definition, Known
from app.core.changes.revert import bearing, is_of_revisions
from app.core.changes.revert_commands import is_helm_release
from app.core.findings import Suspect
from app.core.model import Change, Json, ObjectState
from app.core.objects import api_versions, kinds
from app.core.objects.owners import HELM_RELEASE
from app.core.objects.versions import Side, sides
from app.store.change_rows import change_of, newest_first
from app.store.history import lives, read_newer
from app.store.objects import load_cluster, load_owned, load_states, load_suffixed
from app.store.tables import changes
from app.store.timeline import Cursor, newest_of

LOOKED_AT = 100
"""Writes since a change that are looked at: whoever undoes wants to know of the newest."""
MOST_UNDONE = 2000
"""Writes that are undone to reach a state of long ago. Behind them a version shows its own change only."""
_CRD = ("apiextensions.k8s.io", "CustomResourceDefinition")


async def read_known(conn: AsyncConnection, change: Change, *, last: ObjectState | None = None) -> Known:
    """What bears on undoing a change; ``last`` is its object's last known state, where it was read already.

    One query for what was written since, and as many more as there are an owner, revisions and a definition to ask for.
    """
    cluster = change.resource.cluster
    if last is None:
        last = (await load_states(conn, cluster, [change.resource])).get(change.resource)
    since, is_cut = await _since(conn, change)
    known = Known(last, since, is_cut)
    wanted = bearing(change, known)
    others = await load_states(conn, cluster, wanted) if wanted else {}
    if above := set(bearing(change, replace(known, others=others))).difference(wanted):
        others |= await load_states(conn, cluster, above)
    if is_helm_release(change.resource):
        others |= {one.resource: one for one in await load_cluster(conn, cluster, [HELM_RELEASE])}
    revisions = await load_owned(conn, change.resource, ("apps", "ReplicaSet")) if is_of_revisions(change) else []
    return Known(last, since, is_cut, tuple(revisions), await read_definition(conn, change), others)


async def read_known_of(conn: AsyncConnection, suspects: Iterable[Suspect]) -> dict[str, Known]:
    """By the id of each suspect's change what bears on undoing it."""
    return {one.change.id: await read_known(conn, one.change) for one in suspects}


async def _since(conn: AsyncConnection, change: Change) -> tuple[tuple[Change, ...], bool]:
    """The newest of what was written to the object after the change, the oldest first; whether there is more."""
    place = tuple_(changes.c.at, changes.c.version_key)
    where = [changes.c.object_id.in_(lives(change.resource)), place > tuple_(change.at, change.key)]
    page = newest_of(where, limit=LOOKED_AT + 1).subquery("page")
    found = [change_of(row) for row in await conn.execute(newest_first(page))]
    return tuple(reversed(found[:LOOKED_AT])), len(found) > LOOKED_AT


async def read_definition(conn: AsyncConnection, change: Change) -> Definition | None:
    """The CustomResourceDefinition of a change's object, right before the change and now; None for a built-in kind, and
    where none is known."""
    group, kind = change.resource.api_group, change.resource.kind
    if (group, kind) in kinds.BUILT_IN or "." not in group or kinds.told_by(group):
        return None
    found = await load_suffixed(conn, change.resource.cluster, _CRD, f".{group}")
    crd = next((one for one in found if _defines(one.state, kind)), None)
    if crd is None:
        return None
    now = crd.state if crd.deleted_at is None else None
    writes = await read_newer(conn, crd.resource, Cursor(change.at, change.key), most=MOST_UNDONE)
    if writes is None:
        return Definition(kind, crd.resource.name, None, now)
    then = sides(crd.state, writes)[0] if writes else Side(crd.state, known=True)
    return Definition(kind, crd.resource.name, then.state if isinstance(then.state, dict) else None, now)


def _defines(state: Json, kind: str) -> bool:
    spec = state.get("spec") if isinstance(state, dict) else None
    names = spec.get("names") if isinstance(spec, dict) else None
    return isinstance(names, dict) and names.get("kind") == kind


async def read_sides(conn: AsyncConnection, change: Change) -> tuple[Side, Side] | None:
    """The object right before and right after a change, from its last state with what came later undone; None where it
    was written more often since than is undone. Two queries."""
    last = (await load_states(conn, change.resource.cluster, [change.resource])).get(change.resource)
    writes = await read_newer(conn, change.resource, Cursor(change.at, change.key), most=MOST_UNDONE)
    if not writes:
        return None
    return sides(last.state if last else None, writes)


async def read_version(conn: AsyncConnection, change: Change) -> tuple[str, bool]:
    """The apiVersion in which the change was recorded ("" where nobody knows), and whether it is served still."""
    group, kind = change.resource.api_group, change.resource.kind
    if built_in := api_versions.built_in(group, kind):
        return built_in, True
    definition = await read_definition(conn, change)
    if definition is None:
        return "", True
    now = api_versions.served(definition.now or {})
    then = api_versions.served(definition.then or definition.now or {})
    return (api_versions.whole(group, then[0]), then[0] in now) if then else ("", True)
