"""Writes that are told after what came later: a second telling, a write without effect, or a straggler whose successor
is told already."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import structs

from app.core.changes import made, summaries
from app.core.changes.quiet import Quiet
from app.core.changes.recent import Recent
from app.core.changes.requests import Requests
from app.core.changes.sight import unseen
from app.core.changes.sightings import NOTHING, Learned, Sighting
from app.core.changes.telling import Telling
from app.core.model import DiffSource, Object, Resource, Verb
from app.core.objects.body import Body
from app.core.objects.diff import diff, undo, unordered
from app.core.objects.memory import Entry, Memory


def unchanged(sighting: Sighting) -> Learned:
    """A write that changed nothing, or was told before."""
    return Learned(no_op=True) if sighting.source == "audit" and sighting.subresource == "" else NOTHING


class Late:
    """Finds out what late tellings tell of one cluster's objects."""

    def __init__(
        self,
        memory: Memory,
        recent: Recent,
        telling: Telling,
        requests: Requests,
        quiet: Quiet,
        *,
        state_of: Callable[[Resource, Body], Object],
    ) -> None:
        self._memory = memory
        self._recent = recent
        self._telling = telling
        self._requests = requests
        self._quiet = quiet
        self._state_of = state_of

    def after_end(self, sighting: Sighting, body: Body, entry: Entry) -> Learned:
        """A late telling of an object that is known to be gone: of a write that was told, or of one that only an API
        server knows that had to send its audit events again, in whichever order they came."""
        if sighting.verb is None or sighting.subresource:
            return NOTHING
        if known := self._recent.of_write(sighting, body.uid, str(body.version)):
            return self._telling.again(known, sighting)
        watched = entry.uid == body.uid and entry.watched_from <= body.version <= entry.watched_to
        if watched or sighting.source != "audit" or made.is_state(sighting):
            return NOTHING
        new = self._state_of(sighting.resource, body)
        change = self._requests.as_diff(sighting, body, new=new)
        if sighting.verb is Verb.CREATE:
            change = made.whole(sighting, Verb.CREATE, new, body=body)
        elif sighting.patch is None and not body.untouched_at(sighting.at):
            change = structs.replace(made.update(sighting, body, (), old=None, new=None), diff_source=DiffSource.NONE)
        return Learned(self._telling.new(sighting, change, body, None)) if change else NOTHING

    def version(self, sighting: Sighting, body: Body, entry: Entry) -> Learned:
        """A version that is not newer than what is known: a second telling, a write without effect, or a straggler."""
        if sighting.verb is None or sighting.subresource == "status":
            return NOTHING
        known = self._recent.of_write(sighting, body.uid, str(body.version)) or self._recent.near(sighting, body)
        if known is not None:
            return self._telling.again(known, sighting)
        if sighting.verb is Verb.CREATE:
            new = self._state_of(sighting.resource, body)
            return Learned(self._telling.new(sighting, made.whole(sighting, Verb.CREATE, new, body=body), body, new))
        watched = sighting.source != "watch" and entry.watched_from <= body.version <= entry.watched_to
        if watched or (body.version >= entry.changed and body.hash == entry.raw):
            return self._told_before(sighting, body, entry)
        return self._straggler(sighting, body, entry)

    def _told_before(self, sighting: Sighting, body: Body, entry: Entry) -> Learned:
        """A write without effect; or, of an object that the store knew, a write that an earlier run was told of."""
        same = unchanged(sighting)
        self._quiet.told_again(sighting, body)
        if not entry.recalled or sighting.source != "audit":
            return same
        again = structs.replace(made.update(sighting, body, (), old=None, new=None), diff_source=DiffSource.NONE)
        return structs.replace(same, improvements=(again,))

    def _straggler(self, sighting: Sighting, body: Body, entry: Entry) -> Learned:
        """Two writes were told in the wrong order: the later one's diff holds both, and is now told apart."""
        state, current = self._state_of(sighting.resource, body), self._memory.state(entry)
        rest = diff(state, current)
        quiet = self._quiet.take(sighting.resource, after=body.version)
        if body.version >= entry.changed and (not rest or quiet is None):
            return self._told_before(sighting, body, entry)
        later = self._recent.by_key(made.key_of(sighting.resource, entry.uid, str(entry.changed)))
        if body.version >= entry.changed and quiet is not None:
            before, later = current, quiet
        elif later is not None and made.is_compared(later) and entry.before < body.version:
            undone = undo(later.diffs, current)
            before = undone if isinstance(undone, dict) else None
        else:
            if sighting.source == "watch":  # what this write changed nobody knows yet
                entry.watched_from = body.version + 1
            change = self._requests.as_diff(sighting, body, new=state)
            return Learned(self._telling.new(sighting, change, body, None)) if change else NOTHING
        found = unordered(diff(before, state))
        if not found:
            return unchanged(sighting)
        if not rest:  # what came after it changed nothing: what a LIST showed then was this write
            told = made.update(sighting, body, found, old=before, new=state)
            return self._telling.again(later, sighting, richer=told)
        words = summaries.summary(later.resource, later.verb, rest, old=state, new=current)
        corrected = structs.replace(later, diffs=rest, summary=words)
        if later.since is not None:
            corrected = unseen(corrected, max(later.since, sighting.at))
        if later is quiet:
            self._recent.add(corrected)
            entry.changed = int(later.resource_version)
        else:
            self._recent.update(corrected)
        entry.before = body.version
        change = made.update(sighting, body, found, old=before, new=state)
        return Learned((*self._telling.new(sighting, change, body, state), corrected))
