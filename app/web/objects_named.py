"""Which object somebody means who writes KIND/NAME as they would to kubectl."""

from __future__ import annotations

from collections.abc import Collection
from difflib import get_close_matches

from sqlalchemy.ext.asyncio import AsyncConnection

from app.core.model import ObjectState, Resource
from app.core.objects.kind_names import built_in, custom
from app.core.objects.kinds import KindInfo, Policy, info, kind_of
from app.store.objects import load_states, load_suffixed
from app.web.problems import Problem

_CRD = ("apiextensions.k8s.io", "CustomResourceDefinition")
_NEAREST = 3


async def read_named(conn: AsyncConnection, cluster: str, text: str, namespace: str | None) -> ObjectState:
    """The last known state of ``text``: KIND/NAME, or KIND.GROUP/NAME, in ``namespace`` if it is of such a kind.

    Raises Problem 422 where that names no object or several, and 404 where none is known.
    """
    word, _, name = text.partition("/")
    kind, _, group = word.partition(".")
    if not kind or not name:
        raise Problem(
            422, f"object is written KIND/NAME, as deployment/web or rollouts.argoproj.io/web; not {text!r}", "object"
        )
    meant = await _kinds(conn, cluster, kind, group or None)
    if not meant:
        raise Problem(404, f"no kind {word!r} is known: write its API group, too, as rollouts.argoproj.io/x", "object")
    if not [one for one in meant if one.policy not in (Policy.STATE, Policy.NEVER)]:
        raise Problem(422, f"of a {meant[0].kind} no history is kept, only its last state at most", "object")
    if namespace is None and all(one.namespaced for one in meant):
        raise Problem(422, f"a {meant[0].kind} stands in a namespace: say which", "namespace")
    wanted = [
        Resource(cluster, one.api_group, one.kind, space, name)
        for one in meant
        for space in ([None] if not one.namespaced else []) + ([namespace] if namespace else [])
    ]
    found = list((await load_states(conn, cluster, wanted)).values())
    if not found:
        raise Problem(404, f"there is no {' and no '.join(map(str, wanted))} in {cluster}", "object")
    spelled = [one for one in found if one.resource.kind == kind]  # a kind may be known from a plural alone, too
    found = spelled if len(spelled) == 1 else found
    if len(found) > 1:
        those = ", ".join(f"{one.resource.kind}.{one.resource.api_group}/{name}" for one in found)
        raise Problem(422, f"several are called so: {those}", "object")
    return found[0]


def unknown_kind(word: str | None, recorded: Collection[str], *, nearest: bool = True) -> str:
    """That nothing of this kind is recorded, and the ``nearest`` that are; "" of one that is, or is Kubernetes'
    own: a list of that may be empty, and what was mistyped must not read as calm."""
    names = {kind.lower(): kind for kind in recorded}
    if not word or word.lower() in names or built_in(word, None):
        return ""
    near = [names[one] for one in get_close_matches(word.lower(), names, n=_NEAREST)] if nearest else []
    said = f"no kind {word!r} is recorded"
    return f"{said}; the nearest: {', '.join(near)}" if near else said


async def _kinds(conn: AsyncConnection, cluster: str, word: str, group: str | None) -> list[KindInfo]:
    if known := built_in(word, group):
        return known
    crds = await load_suffixed(conn, cluster, _CRD, f".{group}" if group else "")
    if defined := list(custom(word, (one.state for one in crds if isinstance(one.state, dict)))):
        return [one for one in defined if group in (None, one.api_group)]
    # Its definition may not be recorded: the word may be its kind, or its plural.
    guesses = {word, kind_of(group, word)} if group else set()
    return [info(group or "", kind) for kind in sorted(guesses)]
