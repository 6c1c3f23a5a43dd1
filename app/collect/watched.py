"""What the watches of one cluster told -> sightings and gaps, in the order in which it came.

What was there and is not in a set of all that there is has gone unseen. So it is said when the set ends, unless
something of it could not be read so far that it is known which object it is.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta

import msgspec
from msgspec.structs import replace

from app.collect.entries import UNUSABLE
from app.collect.files import Line
from app.collect.intake import Intake, RawObject, RawWatchEvent
from app.collect.refusals import explain
from app.collect.unreadable import Place, place_of
from app.collect.words import (
    Begun,
    Blind,
    Lost,
    Moved,
    Reached,
    Resumed,
    Saw,
    Served,
    Synced,
    Unreadable,
    Word,
    reached,
)
from app.core.changes.lateness import TICK, RawTimed, When, created_after, written
from app.core.model import Resource
from app.store.watches import Name, WatchPosition

Live = Callable[[Served], Iterable[tuple[Resource, str]]]
"""The objects of a kind that are believed to be there, each with its uid."""
SOURCE = "watch"
"""What quarantine names as the source."""

EVENTS_KEPT = timedelta(minutes=30)
"""Events live for an hour (kube-apiserver's --event-ttl, as it is by default) and count themselves: within half of it
those that are there are all that there were. They have no watch cache: a quiet watch ends in 410 every few minutes."""

_object = msgspec.json.Decoder(RawObject)
_times = msgspec.json.Decoder(RawTimed)


class Watches:
    """How far each kind is known, from ``positions`` on; ``changed`` are those that have moved since they were taken.

    ``again`` is asked for all objects of a kind once more, where the beginning of a set of them was not heard: this
    process has then forgotten half of it.
    """

    def __init__(
        self,
        intake: Intake,
        positions: Mapping[Name, WatchPosition],
        *,
        live: Live,
        again: Callable[[Served], None],
        watched_since: Callable[[str, str, datetime], None],
    ) -> None:
        """``watched_since`` is told of which kinds, by group and kind, all was known at some time before."""
        self._intake, self._live, self._again, self._watched_since = intake, live, again, watched_since
        self._positions = dict(positions)
        self._sets: dict[Name, dict[Place, datetime | None]] = {}  # and when each was created
        self._broken_off: dict[Name, dict[Place, datetime | None]] = {}  # of sets that did not end, since one that did
        self._unsynced = set[Name]()
        self._partial = set[Name]()  # of whose set something may be any of the objects
        self._late: dict[Name, datetime] = {}  # what was missed is being told: the last time up to which all was known
        self._untimed: dict[Name, list[tuple[Served, Saw]]] = {}  # late, and it is not known yet what came after it
        self._last: dict[Name, datetime] = {}  # of a kind's events: what is told later happened later
        self.changed: dict[Name, WatchPosition] = {}
        self.latest: datetime | None = None

    def tell(self, served: Served, word: Word) -> None:
        """Take one word of the watch of a kind."""
        self._intake.move_to(word.at)
        if not isinstance(word, Saw | Blind | Unreadable):
            self._settle(served.name)
        match word:  # Blind and Reached say no more than how far the kind is known
            case Begun():
                self._begin_set(served)
            case Saw():
                self._see(served, word)
            case Moved():
                self._see_moved(served, word)
            case Synced():
                self._end_set(served, word)
            case Lost():
                self._lose(served, word)
            case Resumed():
                self._resume(served)
            case Unreadable():
                self._note_unusable(served, word.line)
                self._intake.reject(SOURCE, Line(0, word.line, 0), f"{served.path}: {word.why}")
        if version := reached(word):
            self._reach(served, word, version)

    def _begin_set(self, served: Served) -> None:
        if broken_off := self._sets.get(served.name):
            self._broken_off.setdefault(served.name, {}).update(broken_off)
        self._sets[served.name] = {}
        self._unsynced.discard(served.name)
        self._partial.discard(served.name)
        self._late.pop(served.name, None)
        if since := self._positions.get(served.name):
            self._watched_since(served.api_group, served.kind, since.at)

    def _lose(self, served: Served, word: Lost) -> None:
        since = self._positions.get(served.name)
        if since and not since.lost:
            self._move(served, WatchPosition("", since.at, word.why))

    def _resume(self, served: Served) -> None:
        if since := self._positions.get(served.name):
            self._late.setdefault(served.name, since.at)

    def _reach(self, served: Served, word: Word, version: str) -> None:
        if isinstance(word, Synced | Reached):
            self._late.pop(served.name, None)
        if served.name not in self._unsynced:
            # What is told late is known up to when it was written, no later; what is not, up to the last that was told.
            at = self._late.get(served.name) or max(word.at, self._last.get(served.name, word.at))
            self._move(served, WatchPosition(version, at))
            self.latest = max(self.latest, at) if self.latest else at

    def settle(self) -> None:
        """Nothing more is known of what was told so far: it is to be learned now."""
        for name in list(self._untimed):
            self._settle(name)

    def take(self) -> dict[Name, WatchPosition]:
        """The positions that changed since the last take."""
        changed, self.changed = self.changed, {}
        return changed

    def _move(self, served: Served, position: WatchPosition) -> None:
        self._positions[served.name] = self.changed[served.name] = position

    def _see(self, served: Served, word: Saw) -> None:
        with self._usable(served, word):
            found = self._sets.get(served.name)
            if found is not None and word.first:
                meta = _object.decode(word.object).metadata
                found[meta.namespace, meta.name, meta.uid] = meta.creationTimestamp
            known = self._late.get(served.name)
            if known is None or word.first:
                when = When(self._intake.now)
                if word.first:
                    self._last[served.name] = max(when.at, self._last.get(served.name, when.at))
                else:  # what is told of at this very moment, but later, was later
                    when = self._after(served.name, when)
                self._keep(word, when)
                return
            when = written(word.type, _times.decode(word.object).metadata, told=word.at, known=known)
            if when.since is not None:
                self._untimed.setdefault(served.name, []).append((served, word))
                return
            if when.rounded:
                at = min(max(when.at, known + TICK * (1 + len(self._untimed.get(served.name, ())))), word.at)
                when = replace(when, at=at)
            self._settle(served.name, before=when.at)
            if when.rounded:
                self._late[served.name] = when.at
            else:  # written just now: nothing that was missed is left
                del self._late[served.name]
            self._keep(word, self._after(served.name, when))

    def _see_moved(self, served: Served, word: Moved) -> None:
        name, since = served.name, self._late.get(served.name)
        last = self._last.get(name)
        at = max(word.at, last + TICK) if last else word.at
        for one in word.objects:
            self._intake.moved(served.api_group, served.kind, one, at=at, since=since)
            at += TICK
        self._last[name] = at - TICK
        self._intake.tally.used += len(word.objects)

    def _settle(self, name: Name, *, before: datetime | None = None) -> None:
        """Tell of what was late, and untimed, that it was done ``before``, where that is known, or by when it came."""
        untimed = self._untimed.pop(name, [])
        for left, (served, word) in zip(range(len(untimed), 0, -1), untimed, strict=True):
            at = min(word.at, before - left * TICK) if before else word.at
            with self._usable(served, word):
                self._keep(word, self._after(name, When(at, since=self._late.get(name))))

    def _after(self, name: Name, when: When) -> When:
        """When it was, but after all that was told of the kind before: events come in order, whatever clocks say."""
        last = self._last.get(name)
        at = self._last[name] = max(when.at, last + TICK) if last else when.at
        return replace(when, at=at)

    def _keep(self, word: Saw, when: When) -> None:
        event = RawWatchEvent(word.type, msgspec.Raw(word.object))
        self._intake.watched(event, when, first=word.first)
        self._intake.tally.used += 1

    @contextmanager
    def _usable(self, served: Served, word: Saw) -> Iterator[None]:
        """An object that cannot be used is kept apart."""
        try:
            yield
        except UNUSABLE as error:
            self._note_unusable(served, word.object)
            reason, column = explain(error, word.object, expected="object")
            self._intake.reject(SOURCE, Line(0, word.object, 0), f"{served.path}: {reason}", column=column)

    def _note_unusable(self, served: Served, line: bytes) -> None:
        """An object that nothing is learned of is there all the same."""
        found = self._sets.get(served.name)
        if found is None:
            return
        if place := place_of(line):
            found.setdefault(place, None)
        else:
            self._partial.add(served.name)

    def _end_set(self, served: Served, word: Synced) -> None:
        found = self._sets.pop(served.name, None)
        if found is None:
            self._unsynced.add(served.name)
            self._again(served)
            return
        since, told = self._positions.get(served.name), self._broken_off.pop(served.name, {}) | found
        gone = [
            (resource, (resource.namespace or "", resource.name, uid))
            for resource, uid in (() if served.name in self._partial else self._live(served))
            if (resource.namespace or "", resource.name, uid) not in found
        ]
        holders = _holders({place[:2] for _, place in gone}, told)
        for resource, place in gone:
            gone_at = word.at
            if successor := _created_next(holders[place[:2]], place):  # it took the name, which was free by then
                gone_at = min(gone_at, (created_after(since.at, successor) if since else successor) - TICK)
            self._intake.vanished(resource, place[2], gone_at)
        if since and since.lost and not (served.kind == "Event" and word.at - since.at < EVENTS_KEPT):
            self._intake.blind(since.at, word.at, since.lost, kind=served.kind)


def _holders(
    names: Collection[tuple[str, str]], told: Mapping[Place, datetime | None]
) -> dict[tuple[str, str], dict[Place, datetime | None]]:
    """Who had each of these names, of those that sets told of: one after the other, and when each was created."""
    found: dict[tuple[str, str], dict[Place, datetime | None]] = {name: {} for name in names}
    for place, created in told.items():
        if place[:2] in found:
            found[place[:2]][place] = created
    return found


def _created_next(holders: Mapping[Place, datetime | None], place: Place) -> datetime | None:
    """When the next one was created that had the name of the object at a place, which may be before all of them."""
    places = list(holders)
    later = places[places.index(place) + 1 :] if place in holders else places
    return next((created for one in later if (created := holders[one])), None)
