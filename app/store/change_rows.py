"""Rows of ``changes`` as changes: their codes turned into names, their columns into nouns."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from sqlalchemy import FromClause, Row, Select, select

from app.core.model import Actor, ActorSource, Change, DiffSource, Resource, Verb
from app.store import codec
from app.store.tables import clusters, kinds, objects, words

VERBS, ACTOR_SOURCES, DIFF_SOURCES = tuple(Verb), tuple(ActorSource), tuple(DiffSource)
"""By the number that stands for each."""
SOURCE_BITS = {"audit": 1, "watch": 2, "state": 4, "history": 8, "external": 16}
SOURCES = tuple(frozenset(source for source, bit in SOURCE_BITS.items() if bits & bit) for bits in range(32))


def named(page: FromClause) -> Select[Any]:
    """The rows of ``page`` (columns of ``changes``) with their codes turned into names."""
    namespace, actor, agent, pod = (words.alias(name) for name in ("namespace", "actor", "agent", "pod"))
    return (
        select(
            page,
            clusters.c.name.label("cluster"),
            kinds.c.api_group,
            kinds.c.kind,
            objects.c.name,
            objects.c.uid,
            namespace.c.word.label("namespace"),
            actor.c.word.label("actor"),
            agent.c.word.label("agent"),
            pod.c.word.label("pod"),
        )
        .join(objects, objects.c.id == page.c.object_id)
        .join(kinds, kinds.c.id == page.c.kind_id)
        .join(clusters, clusters.c.id == page.c.cluster_id)
        .outerjoin(namespace, namespace.c.id == page.c.namespace_id)
        .outerjoin(actor, actor.c.id == page.c.actor_id)
        .outerjoin(agent, agent.c.id == page.c.agent_id)
        .outerjoin(pod, pod.c.id == page.c.pod_id)
    )


def newest_first(page: FromClause) -> Select[Any]:
    """``named``, in the order of pages."""
    return named(page).order_by(page.c.at.desc(), page.c.version_key.desc())


def change_of(row: Row[Any]) -> Change:
    """A row of ``named`` as a change."""
    return Change(
        resource=Resource(row.cluster, row.api_group, row.kind, row.namespace, row.name),
        at=row.at,
        verb=VERBS[row.verb],
        key=row.version_key,
        actor=Actor(
            row.actor or "", ACTOR_SOURCES[row.actor_source], row.agent or "", row.pod or None, row.impersonator or None
        ),
        uid=row.uid,
        resource_version=row.resource_version,
        generation=row.generation,
        diffs=codec.diffs_of(row.diff),
        diff_source=DIFF_SOURCES[row.diff_source],
        summary=row.summary,
        sources=SOURCES[row.sources],
        begun_by=row.begun_by or None,
        audit_id=codec.unpacked_id(row.audit_id),
        since=row.at - timedelta(seconds=row.within_seconds) if row.within_seconds else None,
        found_in=row.found_in,
        url=row.url,
        workload=row.workload,
    )
