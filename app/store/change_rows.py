"""Rows of ``changes`` as changes: their codes turned into names, their columns into nouns."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from sqlalchemy import ColumnElement, FromClause, Label, Row, Select, select

from app.core.model import Actor, ActorSource, Change, DiffSource, Resource, Verb
from app.store import codec
from app.store.tables import clusters, kinds, objects, words

VERBS, ACTOR_SOURCES, DIFF_SOURCES = tuple(Verb), tuple(ActorSource), tuple(DiffSource)
"""By the number that stands for each."""
SOURCE_BITS = {"audit": 1, "watch": 2, "state": 4, "history": 8, "external": 16}
SOURCES = tuple(frozenset(source for source, bit in SOURCE_BITS.items() if bits & bit) for bits in range(32))


_OWN = (
    *("at", "version_key", "verb", "actor_source", "diff_source", "sources", "generation", "resource_version"),
    *("begun_by", "impersonator", "audit_id", "within_seconds", "found_in", "summary", "diff", "url", "workload"),
)
"""What is read of a row itself, in the order in which change_of takes it."""


def _word(number: ColumnElement[int], name: str) -> Label[str | None]:
    """Looked up for each row: to plan four joins more takes longer than to look, of hundreds of rows."""
    return select(words.c.word).where(words.c.id == number).scalar_subquery().label(name)


def named(page: FromClause) -> Select[Any]:
    """The rows of ``page`` (columns of ``changes``) with their codes turned into names, as change_of takes them."""
    c = page.c
    return (
        select(
            *(c[name] for name in _OWN),
            clusters.c.name.label("cluster"),
            kinds.c.api_group,
            kinds.c.kind,
            objects.c.name,
            objects.c.uid,
            *(_word(c[f"{name}_id"], name) for name in ("namespace", "actor", "agent", "pod")),
        )
        .join(objects, objects.c.id == c.object_id)
        .join(kinds, kinds.c.id == c.kind_id)
        .join(clusters, clusters.c.id == c.cluster_id)
    )


def newest_first(page: FromClause) -> Select[Any]:
    """``named``, in the order of pages."""
    return named(page).order_by(page.c.at.desc(), page.c.version_key.desc())


def change_of(row: Row[Any]) -> Change:
    """A row of ``named``, or one that begins like it, as a change. By place: looked up by name, columns take four times
    as long as all the rest."""
    values: Sequence[Any] = row
    at, key, verb, actor_source, diff_source, sources, generation, resource_version = values[:8]
    begun_by, impersonator, audit_id, within_seconds, found_in, summary, diff, url, workload = values[8:17]
    cluster, api_group, kind, name, uid, namespace, actor, agent, pod = values[17:26]
    return Change(
        resource=Resource(cluster, api_group, kind, namespace, name),
        at=at,
        verb=VERBS[verb],
        key=key,
        actor=Actor(actor or "", ACTOR_SOURCES[actor_source], agent or "", pod or None, impersonator or None),
        uid=uid,
        resource_version=resource_version,
        generation=generation,
        diffs=codec.diffs_of(diff),
        diff_source=DIFF_SOURCES[diff_source],
        summary=summary,
        sources=SOURCES[sources],
        begun_by=begun_by or None,
        audit_id=codec.unpacked_id(audit_id),
        since=at - timedelta(seconds=within_seconds) if within_seconds else None,
        found_in=found_in,
        url=url,
        workload=workload,
    )
