"""Whether a namespace was ever seen, asked where a list of it is empty: what was mistyped must not read as calm."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from difflib import get_close_matches

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.failures import Expected

_NEAREST = 3
_A_LENGTH = re.compile(r"(?:[0-9]+[smhdw])+", re.IGNORECASE)

_UNSEEN = text(
    """
SELECT w.namespace FROM unnest(CAST(:namespaces AS text[])) WITH ORDINALITY AS w (namespace, place)
WHERE NOT EXISTS (
  SELECT FROM clusters c JOIN kinds k ON true, LATERAL (
    SELECT FROM objects o WHERE o.cluster_id = c.id AND o.kind_id = k.id
      AND o.namespace_id = (SELECT id FROM words WHERE word = w.namespace)
    UNION ALL
    SELECT FROM objects o WHERE o.cluster_id = c.id AND o.kind_id = k.id AND k.api_group = '' AND k.kind = 'Namespace'
      AND o.namespace_id = 0 AND o.name = w.namespace
    LIMIT 1) o
  WHERE c.name = coalesce(CAST(:cluster AS text), c.name))
ORDER BY w.place
"""
)
"""Those without an object in it, of whatever kind, or it itself: a look into an index of ``objects`` for each kind.
What a change was of is an object."""
_NAMES = text(
    """
SELECT DISTINCT names.name FROM clusters c, LATERAL (
  (SELECT o.name FROM objects o JOIN kinds k ON k.id = o.kind_id AND k.api_group = '' AND k.kind = 'Namespace'
   WHERE o.cluster_id = c.id AND o.namespace_id = 0 LIMIT 1000)
  UNION ALL
  SELECT w.word FROM words w
  WHERE w.id IN (SELECT namespace_id FROM changes t WHERE t.cluster_id = c.id ORDER BY at DESC LIMIT 1000)) names
WHERE c.name = coalesce(CAST(:cluster AS text), c.name)
LIMIT 2000
"""
)
"""Those that are objects, and those in which something changed lately, which is all that an audit log tells."""


class UnknownNamespaceError(Expected):
    """Nothing is recorded of a namespace of this name; the message names those that are called much the same."""


async def check_namespace(conn: AsyncConnection, cluster: str | None, namespace: str | None) -> None:
    """Raises UnknownNamespaceError for one of which nothing is recorded in the cluster (None: in any) that this
    connection may see: what it may not see is not there. Of no namespace (None, "") there is nothing to say."""
    if said := await unknown_namespace(conn, cluster, namespace):
        raise UnknownNamespaceError(said)


async def unknown_namespace(conn: AsyncConnection, cluster: str | None, namespace: str | None) -> str:
    """The same as a sentence; "" for one that is known."""
    said = await unknown_namespaces(conn, cluster, [namespace] if namespace else ())
    return said[0] if said else ""


async def unknown_namespaces(conn: AsyncConnection, cluster: str | None, named: Iterable[str]) -> list[str]:
    """The same, a sentence for each that is not known. Two statements, or none."""
    wanted = list(dict.fromkeys(named))
    asked = {"cluster": cluster, "namespaces": wanted}
    unknown = (await conn.scalars(_UNSEEN, asked)).all() if wanted else ()
    is_name = any(not _A_LENGTH.fullmatch(one) for one in unknown)
    names = (await conn.scalars(_NAMES, {"cluster": cluster})).all() if is_name else ()
    return [_said(one, cluster, names) for one in unknown]


def _said(namespace: str, cluster: str | None, names: Sequence[str]) -> str:
    said = f"no namespace {namespace!r} is recorded{f' in {cluster}' if cluster else ''}"
    if _A_LENGTH.fullmatch(namespace):
        return f"{said}; a length of time is written {namespace.lower()}"
    near = get_close_matches(namespace.lower(), names, n=_NEAREST)
    return f"{said}; the nearest: {', '.join(near)}" if near else said
