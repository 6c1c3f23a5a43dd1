"""Rows of ``changes`` as changes: their codes turned into names, their columns into nouns."""

from __future__ import annotations

from collections.abc import Sequence
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


_OWN = (
    *("at", "version_key", "verb", "actor_source", "diff_source", "sources", "generation", "resource_version"),
    *("begun_by", "impersonator", "audit_id", "within_seconds", "found_in", "summary", "diff", "url", "workload"),
)
"""What is read of a row itself, in the order in which change_of takes it."""


def named(page: FromClause) -> Select[Any]:
    """The rows of ``page`` (columns of ``changes``) with their codes turned into names, as change_of takes them."""
    namespace, actor, agent, pod = (words.alias(name) for name in ("namespace", "actor", "agent", "pod"))
    return (
        select(
            *(page.c[name] for name in _OWN),
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
    """A row of ``named``, or one that begins like it, as a change. By place: looked up by name, columns take four times
    as long as all the rest."""
    values: Sequence[Any] = row
    at, key, verb, actor_source, diff_source, sources, generation, resource_version, *further = values
    begun_by, impersonator, audit_id, within_seconds, found_in, summary, diff, url, workload, *names = further
    cluster, api_group, kind, name, uid, namespace, actor, agent, pod, *_ = names
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
