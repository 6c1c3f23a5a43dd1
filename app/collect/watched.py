"""What the watches of one cluster told -> sightings and gaps, in the order in which it came.

What was there and is not in a set of all that there is has gone unseen. So it is said when the set ends, unless
something of it could not be read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta

import msgspec
from msgspec.structs import replace

from app.collect.entries import UNUSABLE
from app.collect.files import Line
from app.collect.intake import Intake, RawObject, RawWatchEvent
from app.collect.refusals import explain
from app.collect.words import Begun, Blind, Lost, Reached, Resumed, Saw, Served, Synced, Unreadable, Word, reached
from app.core.lateness import RawTimed, When, written
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
        self._sets: dict[Name, set[tuple[str, str, str]]] = {}
        self._unsynced = set[Name]()
        self._partial = set[Name]()  # of whose set something could not be read: it may be any of the objects
        self._late: dict[Name, datetime] = {}  # what was missed is being told: the last time up to which all was known
        self.changed: dict[Name, WatchPosition] = {}
        self.latest: datetime | None = None

    def tell(self, served: Served, word: Word) -> None:
        """Take one word of the watch of a kind."""
        self._intake.move_to(word.at)
        match word:
            case Begun():
                self._begin_set(served)
            case Saw():
                self._see(served, word)
            case Synced():
                self._end_set(served, word)
            case Lost():
                self._lose(served, word)
            case Resumed():
                self._resume(served)
            case Unreadable():
                self._partial.add(served.name)
                self._intake.reject(SOURCE, Line(0, word.line, 0), f"{served.path}: {word.why}")
            case Blind() | Reached():
                pass
        if version := reached(word):
            self._reach(served, word, version)

    def _begin_set(self, served: Served) -> None:
        self._sets[served.name] = set()
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
            self._move(served, WatchPosition(version, word.at))
            self.latest = max(self.latest, word.at) if self.latest else word.at

    def take(self) -> dict[Name, WatchPosition]:
        """The positions that changed since the last take."""
        changed, self.changed = self.changed, {}
        return changed

    def _move(self, served: Served, position: WatchPosition) -> None:
        self._positions[served.name] = self.changed[served.name] = position

    def _see(self, served: Served, word: Saw) -> None:
        found = self._sets.get(served.name)
        try:
            if found is not None and word.first:
                meta = _object.decode(word.object).metadata
                found.add((meta.namespace, meta.name, meta.uid))
            event = RawWatchEvent(word.type, msgspec.Raw(word.object))
            self._intake.watched(event, self._when(served, word), first=word.first)
            self._intake.tally.used += 1
        except UNUSABLE as error:
            self._partial.add(served.name)
            reason, column = explain(error, word.object, expected="object")
            self._intake.reject(SOURCE, Line(0, word.object, 0), f"{served.path}: {reason}", column=column)

    def _when(self, served: Served, word: Saw) -> When:
        """When it was written; each event of a kind after the one before it, as they are told in order."""
        known = self._late.get(served.name)
        if known is None or word.first:
            return When(word.at)
        when = written(word.type, _times.decode(word.object).metadata, told=word.at, known=known)
        if not when.rounded:
            if when.since is None:  # written just now: nothing that was missed is left
                del self._late[served.name]
            return when
        at = min(max(when.at, known + timedelta(microseconds=1)), word.at)
        self._late[served.name] = at
        return replace(when, at=at)

    def _end_set(self, served: Served, word: Synced) -> None:
        found = self._sets.pop(served.name, None)
        if found is None:
            self._unsynced.add(served.name)
            self._again(served)
            return
        for resource, uid in () if served.name in self._partial else self._live(served):
            if (resource.namespace or "", resource.name, uid) not in found:
                self._intake.vanished(resource, uid, word.at)
        since = self._positions.get(served.name)
        if since and since.lost and not (served.kind == "Event" and word.at - since.at < EVENTS_KEPT):
            self._intake.blind(since.at, word.at, since.lost, kind=served.kind)
