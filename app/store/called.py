"""Which calls somebody means who names a resource as they would to kubectl: deploy, ServiceAccount, pods/status.

Calls are of resources, in the plural. What is neither known nor was ever called is refused: that nobody called for a
word that was mistyped must not read as calm.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from typing import NamedTuple

import msgspec
from msgspec import Struct, field
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.core.counted import Calls
from app.core.model import CallKey
from app.core.objects.kind_names import SUBRESOURCES, built_in
from app.core.objects.kinds import BUILT_IN, kind_of, named, plural_of, told_by
from app.failures import Expected
from app.store import codec
from app.store.reach import AUDIT_LOG
from app.store.scope import SETTING
from app.store.seen import Seen

_NEAREST = 3
_RECORDED = text("""
SELECT k.api_group, k.kind FROM clusters c JOIN kinds k ON true
WHERE c.name = :cluster AND EXISTS (SELECT FROM objects o WHERE o.cluster_id = c.id AND o.kind_id = k.id)
""")
_DEFINED = text("""
SELECT o.name, CASE WHEN :whole THEN o.state END AS state
FROM clusters c JOIN objects o ON o.cluster_id = c.id JOIN kinds k ON k.id = o.kind_id
WHERE c.name = :cluster AND k.api_group = 'apiextensions.k8s.io' AND k.kind = 'CustomResourceDefinition'
    AND right(o.name, length(:suffix)) = :suffix
""")
"""Custom resources by the names of their definitions (plural.group), deleted ones too."""
_EVER = text(f"""
SELECT FROM call_keys
WHERE :word IN (resource, resource || '.' || api_group) AND coalesce(current_setting('{SETTING}', true), '') = ''
LIMIT 1
""")
"""In whatever cluster, so it is not for who may read a part: a name that is not refused would tell of the others."""


class _Known(NamedTuple):
    """A resource by its names in small letters."""

    api_group: str
    singular: str
    plural: str


class _Names(Struct):
    kind: str
    plural: str
    short: list[str] | None = field(default=None, name="shortNames")


class _Spec(Struct):
    group: str
    names: _Names


class _Definition(Struct):
    """What is read of a CustomResourceDefinition: its schemas are large, and skipped."""

    spec: _Spec


class UnknownResourceError(Expected):
    """No resource of this name is known, nor was one called; the message names those that are called much the same."""


async def calls_of(conn: AsyncConnection, cluster: str, counts: Calls, word: str | None, *, seen: Seen) -> Calls:
    """Those of ``counts`` that are of the resource that ``word`` names; all where it is None. Raises
    UnknownResourceError; not where no audit log is known: that says more."""
    if word is None:
        return counts
    heard = any(AUDIT_LOG in one.sources for one in seen.freshness if one.cluster == cluster)
    names = _spelled(counts.keys, word) or (await _named(conn, cluster, counts.keys, word) if heard else set())
    return counts.where(lambda key: not names.isdisjoint(_names(key)))


def _names(key: CallKey) -> tuple[str, str]:
    return key.resource, named(key.api_group, key.resource)


def _spelled(keys: Iterable[CallKey], word: str) -> set[str]:
    """What was called by just this name, in any case."""
    return {name for key in keys for name in _names(key) if name.lower() == word.lower()}


async def _named(conn: AsyncConnection, cluster: str, keys: Iterable[CallKey], word: str) -> set[str]:
    """The names, as those of calls are written, of the resources that a word may mean."""
    if word.startswith("/"):
        return {word}  # any path may be asked for, and there is no list of them
    base, group, part = _parts(word.lower())
    known = await _known(conn, cluster, keys)
    meant = {one.plural for one in known if group in ("", one.api_group) and base in (one.plural, one.singular)}
    meant |= {one.plural for one in built_in(base, group or None)}
    plurals = {one.plural for one in known} | {one.plural for one in BUILT_IN.values()}
    if not meant:
        asked = {"cluster": cluster, "suffix": codec.clean(f".{group}" if group else "")}
        defined = {row.name.partition(".")[0] for row in await conn.execute(_DEFINED, asked | {"whole": False})}
        plurals |= defined
        meant = {base} & defined
        if defined and not meant:
            rows = await conn.execute(_DEFINED, asked | {"whole": True})
            meant = {plural for row in rows for plural in _called(row.state, base, group)}
    parts = {key.resource.partition("/")[2] for key in keys} | SUBRESOURCES | {""}
    if meant and part in parts:
        return {named(group, f"{one}/{part}" if part else one) for one in meant}
    if (await conn.execute(_EVER, {"word": codec.clean(word.lower())})).first() is not None:
        return {word}
    if meant:
        near = [f"{min(meant)}/{one}" for one in get_close_matches(part, parts, n=_NEAREST)]
    else:
        near = get_close_matches(base, plurals, n=_NEAREST)
    said = f"no resource {word!r} is known, and none was ever called"
    raise UnknownResourceError(f"{said}; the nearest: {', '.join(near)}" if near else said)


def _called(state: bytes | None, base: str, group: str) -> Iterator[str]:
    """The plural of what a definition defines, where it is called so, by its kind or for short."""
    if state is None:
        return
    try:
        spec = msgspec.json.decode(codec.unpack(state), type=_Definition).spec
    except msgspec.ValidationError:
        return
    if base in (spec.names.kind.lower(), *(spec.names.short or ())) and group in ("", spec.group):
        yield spec.names.plural


def _parts(word: str) -> tuple[str, str, str]:
    """deployments.apps/scale, or deployments/scale.apps -> deployments, apps, scale."""
    base, _, part = word.partition("/")
    base, _, group = base.partition(".")
    if not group:
        part, _, group = part.partition(".")
    return base, group, part


async def _known(conn: AsyncConnection, cluster: str, keys: Iterable[CallKey]) -> set[_Known]:
    """Those of which an object, or a call, is known."""
    rows = (await conn.execute(_RECORDED, {"cluster": cluster})).all()
    found = {_Known(group, kind.lower(), plural_of(group, kind)) for group, kind in rows if not told_by(group)}
    called = {(key.api_group, key.resource.partition("/")[0]) for key in keys if not key.resource.startswith("/")}
    return found | {_Known(group, kind_of(group, plural).lower(), plural) for group, plural in called}
