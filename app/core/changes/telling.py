"""A write found out -> the change that is handed on: told once, and told better when somebody tells more of it."""

from __future__ import annotations

from msgspec.structs import replace

from app.core.changes import made
from app.core.changes.derived import Derivation
from app.core.changes.recent import Recent
from app.core.changes.sight import unseen
from app.core.changes.sightings import Learned, Sighting
from app.core.model import ActorSource, Change, DiffSource, Object, Verb
from app.core.objects.actors import actor_from_managed_fields
from app.core.objects.body import Body
from app.core.objects.memory import Memory

_BETTER = {ActorSource.UNKNOWN: 0, ActorSource.MANAGED_FIELDS: 1, ActorSource.AUDIT: 2}
_RICHER = {DiffSource.NONE: 0, DiffSource.PATCH: 1, DiffSource.STATES: 2}


class Telling:
    """Hands on the changes of one cluster, with their actors and what began them."""

    def __init__(self, memory: Memory, recent: Recent, derived: Derivation) -> None:
        self._memory = memory
        self._recent = recent
        self._derived = derived

    def new(self, sighting: Sighting, change: Change, body: Body | None, state: Object | None) -> tuple[Change, ...]:
        """The change to hand on, with its actor and what began it; nothing where it is only state."""
        resource = change.resource
        if made.is_state(sighting):
            return ()
        if known := self._recent.by_key(change.key):
            return self.again(known, sighting, richer=change).changes
        if sighting.source != "audit":
            if change.actor.source is ActorSource.UNKNOWN and change.verb is not Verb.DELETE and body is not None:
                entry = self._memory.peek(resource)
                before = entry.wrote if entry else ""
                who = actor_from_managed_fields(body.managed_fields(), change.diffs, before=before)
                change = replace(change, actor=who)
            known = self._recent.near(sighting, body, told=change)
            if known is None and change.verb is Verb.CREATE:
                known = self._recent.asked_unnamed(sighting)
            if known is not None:
                return self.again(known, sighting, richer=change).changes
        if self._derived.is_state(change, state):
            return ()
        begun_by = self._derived.begun_by(change)
        if begun_by is not None:
            change = replace(change, begun_by=begun_by)
        if sighting.since is not None:
            change = unseen(change, sighting.since)
        self._recent.add(change)
        return (change,)

    def again(self, known: Change, sighting: Sighting, *, richer: Change | None = None) -> Learned:
        """The same write told again: the better of both, under the key and time it was first told with."""
        actor = sighting.actor if _BETTER[sighting.actor.source] > _BETTER[known.actor.source] else known.actor
        better = replace(
            known, actor=actor, audit_id=known.audit_id or sighting.audit_id, sources=known.sources | {sighting.source}
        )
        if richer is not None and _is_better(richer, known):
            better = replace(
                better, resource=richer.resource, uid=richer.uid, summary=richer.summary,
                diffs=richer.diffs, diff_source=richer.diff_source,
                generation=richer.generation, resource_version=richer.resource_version,
            )  # fmt: skip
        is_news = actor is not known.actor or better.resource != known.resource
        if better.begun_by is None and is_news:  # a program's edit may follow from another
            better = replace(better, begun_by=self._derived.begun_by(better))
        if richer is not None:
            self._recent.alias(richer.key, better)
        if better == known:
            return Learned(no_op=sighting.source == "audit" and "audit" in known.sources)
        self._recent.update(better)
        return Learned((better,))


def _is_better(told: Change, known: Change) -> bool:
    """Whether a write is told with more than it was; a deletion with a later state, as the audit log may be ahead of
    the last write."""
    is_later = told.verb is Verb.DELETE and made.version_of(told) > made.version_of(known)
    return is_later or _RICHER[told.diff_source] > _RICHER[known.diff_source]
