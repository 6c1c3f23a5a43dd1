"""Writes without a whole object: only the request was recorded, or only that there was one."""

from __future__ import annotations

from msgspec import structs

from app.core.changes import guesses, made, summaries
from app.core.changes.late import unchanged
from app.core.changes.patches import applied, patch_diffs, scaled
from app.core.changes.recent import Recent
from app.core.changes.requests import Requests
from app.core.changes.sightings import NOTHING, Learned, Sighting
from app.core.changes.telling import Telling
from app.core.model import Change, DiffSource, FieldDiff, ObjectState, Verb
from app.core.objects import kinds
from app.core.objects.kinds import Policy
from app.core.objects.memory import UNMEASURED, Entry, Memory
from app.core.objects.normalise import normalise


class Requested:
    """Finds out what requests tell of one cluster's objects."""

    def __init__(self, memory: Memory, recent: Recent, telling: Telling, requests: Requests) -> None:
        self._memory = memory
        self._recent = recent
        self._telling = telling
        self._requests = requests

    def told(self, sighting: Sighting, entry: Entry | None) -> Learned:
        """What such a write teaches of an object; ``entry``: what is known of it."""
        resource, uid = sighting.resource, sighting.uid
        entry, states = self._again(sighting, entry)
        known = self._recent.of_write(sighting, uid, sighting.resource_version) or self._recent.near(sighting, None)
        uid = uid or self._recent.uid_of(sighting, entry.uid if entry else "")
        known = known or self._recent.of_write(sighting, uid, sighting.resource_version)
        if known is not None:
            return self._telling.again(known, sighting)
        if sighting.verb is None:
            return NOTHING
        if kinds.policy(resource.api_group, resource.kind) is Policy.STATE:
            return NOTHING
        version = int(sighting.resource_version) if sighting.resource_version.isdigit() else 0
        if version and entry and entry.watched_from <= version <= entry.watched_to:
            return unchanged(sighting)
        patch = self._requests.read(sighting)
        is_past = entry is None or entry.deleted or (entry.listed is not None and sighting.at < entry.listed)
        is_past = is_past or (not version and self._recent.is_overtaken(sighting))
        old = self._memory.state(entry) if entry and not is_past else None
        key = made.key_of(
            sighting.resource, uid, sighting.resource_version or f"audit:{sighting.audit_id}:{sighting.at.isoformat()}"
        )
        if sighting.verb is Verb.CREATE and uid:
            key = made.creation_key(resource, uid)
        base = Change(
            resource, sighting.at, sighting.verb, key, sighting.actor, uid, sighting.resource_version,
            sources=frozenset({sighting.source}), audit_id=sighting.audit_id,
        )  # fmt: skip
        if patch is None:
            why = summaries.TRUNCATED if sighting.truncated else summaries.NOT_RECORDED
            words = summaries.summary(resource, base.verb, (), old=None, new=None, unknown=why)
            change = structs.replace(base, diff_source=DiffSource.NONE, summary=words)
            return Learned(self._telling.new(sighting, change, None, old), states)
        if sighting.verb is Verb.CREATE:
            new = normalise(patch, resource.api_group, kind=resource.kind) if isinstance(patch, dict) else None
            found: tuple[FieldDiff, ...] = (FieldDiff((), "add", None, new),)
        else:
            found = patch_diffs(scaled(patch, sighting.subresource), old)
            new = applied(found, old)
        if not found:
            return unchanged(sighting)
        source = DiffSource.STATES if old is not None and sighting.subresource == "scale" else DiffSource.PATCH
        change = structs.replace(base, diffs=found, diff_source=source)
        change = structs.replace(change, summary=summaries.summary(resource, change.verb, found, old=old, new=new))
        is_next = entry is not None and (version >= entry.version if version else not is_past) and not entry.deleted
        if entry is not None and new is not None and is_next and sighting.body is None:
            entry.version, entry.raw = version or entry.version, 0
            guesses.guessed(entry, change)
            self._memory.store(entry, new, size=UNMEASURED)
            self._memory.put(resource, entry)
            states = (made.state(sighting, entry, new),)
        return Learned(self._telling.new(sighting, change, None, new), states)

    def _again(self, sighting: Sighting, entry: Entry | None) -> tuple[Entry | None, tuple[ObjectState, ...]]:
        """What is known of an object by its name, and that it is there again where another of that name was made."""
        if entry is None or not entry.deleted or entry.watched_to or sighting.verb is not Verb.CREATE:
            return entry, ()
        if entry.seen is not None and sighting.at < entry.seen:  # a late telling of the one that is gone
            return entry, ()
        made_anew = Entry(uid=sighting.uid)
        self._memory.put(sighting.resource, made_anew)
        return made_anew, (made.state(sighting, made_anew, None),)
