"""What a watch that begins anew shows: writes that nobody saw, each told with the interval in which it happened.

A LIST says how objects are, not what was done to them. What differs from what is known was written after that was last
true, and before the LIST; an object that was not there was created when its creationTimestamp says.
"""

from __future__ import annotations

from datetime import datetime

from msgspec import structs

from app.core.changes import summaries
from app.core.changes.lateness import created_after
from app.core.changes.sightings import Sighting
from app.core.model import Change, Resource, Verb
from app.core.objects.body import AsBefore, Body
from app.core.objects.memory import Entry

_Kind = tuple[str, str]


class Sight:
    """How far each kind of one cluster has been watched."""

    def __init__(self) -> None:
        self._began: dict[_Kind, datetime] = {}
        self._known: dict[_Kind, datetime] = {}
        self._versions: dict[_Kind, bytes] = {}
        self._heard: dict[tuple[_Kind, str | None], datetime] = {}

    def watched_since(self, api_group: str, kind: str, at: datetime) -> None:
        """A kind was watched before, and all of it was known ``at``; that may be said again, of a later time."""
        self._began.setdefault((api_group, kind), at)
        self._known[api_group, kind] = at

    def saw(self, sighting: Sighting) -> None:
        """Take notice of a watch event, after what it teaches was learned.

        Only updates and deletions say that a watch still tells everything: an ADDED may be the next of a LIST, and what
        has no body was found to be missing there.
        """
        if sighting.source == "watch":
            kind = sighting.resource.api_group, sighting.resource.kind
            self._began.setdefault(kind, sighting.at)
            has_object = sighting.body is not None or sighting.as_before is not None
            if has_object and sighting.verb in (Verb.UPDATE, Verb.DELETE):
                self._heard[kind, sighting.resource.namespace] = sighting.at

    def is_apart(self, sighting: Sighting, body: Body) -> bool:
        """Whether the audit log tells an object in another version of its API than watches do: what it holds is then
        called otherwise, and no diff."""
        kind, version = (sighting.resource.api_group, sighting.resource.kind), body.api_version
        if sighting.source == "watch":
            self._versions[kind] = version
        return sighting.source == "audit" and self._versions.get(kind, version) != version

    def since(self, resource: Resource, entry: Entry) -> datetime | None:
        """When the object was last known to be as it is known. None where nobody noted it."""
        kind = resource.api_group, resource.kind
        heard = self._heard.get((kind, resource.namespace))
        return max(filter(None, (entry.seen, heard, self._known.get(kind))), default=None)

    def created(self, sighting: Sighting, body: Body) -> Sighting | None:
        """The creation of an object that a LIST shows first, where its kind was watched before it was created."""
        kind = sighting.resource.api_group, sighting.resource.kind
        began, known, made = self._began.get(kind), self._known.get(kind), body.created
        if (
            sighting.source != "watch"
            or sighting.verb is not None
            or not began
            or not made
            or made < began.replace(microsecond=0)
        ):
            return None
        at = min(created_after(known, made) if known else made, sighting.at)
        return structs.replace(sighting, verb=Verb.CREATE, at=at)


def note(entry: Entry, sighting: Sighting, body: Body, *, fields: bool) -> None:
    """Keep what the next version is to be held against; with its ``fields``' managers, which are slow to read."""
    entry.seen = max(entry.seen or sighting.at, sighting.at)
    if fields and sighting.source != "audit":  # an audit event says itself who wrote
        entry.wrote = body.last_written() or entry.wrote


def moved_on(entry: Entry, now: AsBefore, at: datetime) -> bool:
    """Keep that a watch saw the object, as it is known, at this version; whether that is a newer one."""
    entry.watched_from = entry.watched_from or now.version
    entry.watched_to = max(entry.watched_to, now.version)
    if now.version <= entry.version:
        return False
    entry.version = now.version
    entry.seen = max(entry.seen or at, at)
    return True


def unseen(change: Change, since: datetime | None) -> Change:
    """A change found by comparing what was last known with what is seen now: its line says between which times."""
    if since is None or since >= change.at:
        when, since = f" (by {change.at:%H:%M:%S})", None
    elif since.date() == change.at.date():
        when = f" (between {since:%H:%M:%S} and {change.at:%H:%M:%S})"
    else:
        when = f" (between {since:%Y-%m-%d %H:%M:%S} and {change.at:%Y-%m-%d %H:%M:%S})"
    said = summaries.clip(change.summary, summaries.LIMIT - len(when)) + when
    return structs.replace(change, summary=said, since=since)
