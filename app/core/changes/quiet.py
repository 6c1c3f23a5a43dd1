"""Writes that moved an object's version but changed nothing: a straggler may show that one changed something back
(A → B → A, told as A, A, B)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from msgspec.structs import replace

from app.core.bounded import put
from app.core.changes import made
from app.core.changes.sightings import Sighting
from app.core.model import Change, Resource, Verb
from app.core.objects.body import Body

_LIMIT = 2_000


class Quiet:
    """The last such write of each object of one cluster."""

    def __init__(self) -> None:
        self._last: dict[Resource, Change] = {}

    def note(self, sighting: Sighting, body: Body, since: Callable[[], datetime | None]) -> None:
        """Keep a write of which the audit log told; or what a LIST shows, made by writes that no watch saw, ``since``
        the object was last known to be so."""
        if made.is_state(sighting) or sighting.subresource:
            return
        if (sighting.source, sighting.verb) in (("audit", Verb.UPDATE), ("watch", None)):
            told = made.update(sighting, body, (), old=None, new=None)
            told = replace(told, since=since() if sighting.verb is None else None)
            put(self._last, sighting.resource, told, limit=_LIMIT)

    def told_again(self, sighting: Sighting, body: Body) -> None:
        """The audit log knows who wrote what a LIST showed, and when."""
        known = self._last.get(sighting.resource)
        if known is not None and known.resource_version == str(body.version):
            self.note(sighting, body, lambda: None)

    def take(self, resource: Resource, *, after: int) -> Change | None:
        """The write, of a version ``after`` this one. It is forgotten in any case."""
        found = self._last.pop(resource, None)
        return found if found is not None and int(found.resource_version) >= after else None
