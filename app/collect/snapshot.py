"""A snapshot's rows -> the store: what a watch would have told, as far as it can be told from lists of objects.

Objects are listed again and again, minutes apart. What one list has otherwise than the one before it was written in
between; when, the object's own times say, as they do of what a watch tells late (core/changes/lateness.py).
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import groupby
from operator import attrgetter
from pathlib import Path

import msgspec
from msgspec.structs import replace
from sqlalchemy.ext.asyncio import AsyncEngine

from app.collect import itbench
from app.collect.entries import BEFORE_ALL
from app.collect.files import Line, UnreadableError
from app.collect.intake import Intake, RawWatchEvent, Tally
from app.collect.itbench import EVENTS, OBJECTS, Refuse, Row
from app.collect.learning import BATCH, Learning
from app.collect.strict import told
from app.core.changes.lateness import TICK, RawTimed, When, created_after, written
from app.core.model import Reject, Resource, Symptom
from app.core.objects.redact import Redactor
from app.core.phrases import many
from app.store.reach import WATCH
from app.store.redaction import read_redactor

Listed = tuple[str, str, str]
"""What a list holds: the objects of an API group and a kind in a namespace ("" for those in none)."""
Place = tuple[str, str]
"""An object of a list: its name and its uid."""
_times = msgspec.json.Decoder(RawTimed)


@dataclass(slots=True)
class Contents:
    """What a snapshot holds: when each list was made, the number of the last that has an object, and the time of the
    first row and of the last. ``is_whole``: none was refused."""

    begin: datetime
    end: datetime
    is_whole: bool = True
    lists: dict[Listed, list[datetime]] = field(default_factory=dict)
    last: dict[tuple[Listed, Place], int] = field(default_factory=dict)

    def add(self, row: Row) -> None:
        """Take notice of a row, in the order of time."""
        self.begin, self.end = min(self.begin, row.at), max(self.end, row.at)
        if not row.type:
            times = self.lists.setdefault(_listed(row), [])
            if not times or times[-1] < row.at:
                times.append(row.at)
            self.last[_listed(row), _place(row)] = len(times) - 1

    def listed_again(self, at: datetime) -> datetime:
        """When all that was listed up to ``at`` had been listed once more, as far as it was."""
        following = (next((time for time in times if time > at), at) for times in self.lists.values() if times[0] <= at)
        return max(following, default=at)

    def is_gone(self, listed: Listed, place: Place, *, number: int) -> bool:
        """Whether an object was gone by the list of that number: neither it nor the one after it, or any later, has it.

        Two of them, since an export that is made in parts may lose a row where these meet. Where a row was refused, it
        may be of any object.
        """
        return self.is_whole and self.last[listed, place] < number < len(self.lists[listed]) - 1


class Snapshot:
    """Tells the rows of a folder into an empty database, from one moment to the next.

    ``alerts`` are those that fired; ``problems`` says in words what was refused, once it is recorded, and ``lacks`` in
    short from the start, behind another sentence: it may be why the snapshot cannot be judged.
    """

    def __init__(self, engine: AsyncEngine, cluster: str, folder: Path, *, redactor: Redactor, now: datetime) -> None:
        """Looks at all rows and tells none. Raises UnreadableError where none of them is an object of a list."""
        self._cluster = cluster
        self._paths = [path for name in (OBJECTS, EVENTS) if (path := itbench.find(folder, name))]
        self._intake = Intake(cluster, redactor, now=now)
        self._learning = Learning(engine, self._intake, tally=Tally(), rollouts=[], goes_on=False)
        self.contents = Contents(begin=now, end=BEFORE_ALL)
        for row in self._rows(self._refuse):
            self.contents.add(row)
        self.contents.is_whole = not self._intake.tally.rejects
        self.alerts = itbench.read_alerts(folder, self._intake.redactor, end=now, refuse=self._refuse)
        refused = self._intake.take({})
        self.lacks = _lacks(refused.rejects)
        if not self.contents.lists:
            none = f"there is no object in {OBJECTS}, so there are no changes to rank"
            raise UnreadableError(f"{folder}: {none}{self.lacks}")
        self._learning.learner.add(refused)
        self.problems: list[str] = []
        self._known: dict[Listed, dict[Place, str]] = {}
        self._groups = groupby(self._rows(_pass_over), key=attrgetter("at"))
        self._next = self._group()
        self._told: datetime | None = None

    @classmethod
    async def open(cls, engine: AsyncEngine, cluster: str, folder: Path, *, now: datetime) -> Snapshot:
        """Raises UnreadableError, as above."""
        async with engine.begin() as conn:
            redactor = await read_redactor(conn)
        return cls(engine, cluster, folder, redactor=redactor, now=now)

    async def read(self, until: datetime, alerts: Iterable[Symptom]) -> None:
        """Record what was told up to a time, from where the last read ended, and these alerts. Raises the store's
        errors."""
        await asyncio.to_thread(self._read, until, tuple(alerts))

    def _rows(self, refuse: Refuse) -> Iterator[Row]:
        return heapq.merge(*(itbench.rows(path, refuse) for path in self._paths), key=attrgetter("at"))

    def _refuse(self, path: Path, line: Line, reason: str, column: int) -> None:
        self._intake.reject(str(path), line, reason, column=column)

    def _group(self) -> tuple[datetime, list[Row]] | None:
        """The next rows that have one time."""
        found = next(self._groups, None)
        return (found[0], list(found[1])) if found else None

    # -- what is told

    def _read(self, until: datetime, alerts: tuple[Symptom, ...]) -> None:
        fresh, count = set[Listed](), 0
        while self._next and self._next[0] <= until:
            self._told, rows = self._next
            lists: dict[Listed, dict[Place, Row]] = {}
            for row in rows:
                if not row.type:
                    lists.setdefault(_listed(row), {})[_place(row)] = row
            if fresh & lists.keys() or count >= BATCH:  # what a round of lists tells was done in another order
                self._learn()
                fresh, count = set(), 0
            for row in rows:
                if row.type:
                    self._intake.watch_event(RawWatchEvent(row.type, msgspec.Raw(row.object)), row.at, log=0)
            for listed, found in lists.items():
                self._tell(listed, found, self._told)
            fresh |= lists.keys()
            count += len(rows)
            self._next = self._group()
        self._learn()
        if self._told:
            self._learning.learner.pass_time(self._told)
        self._record(alerts)
        self._learning.recorded()

    def _tell(self, listed: Listed, found: dict[Place, Row], at: datetime) -> None:
        """What a list has otherwise than the one before it."""
        before = self._known.get(listed)
        self._known[listed] = {place: row.peek.metadata.resourceVersion for place, row in found.items()}
        if before is None:
            for row in found.values():
                self._see(row, When(at), event="ADDED", first=True)
            return
        times = self.contents.lists[listed]
        number = times.index(at)
        known = times[number - 1]
        self._learning.learner.tracker.watched_since(listed[0], listed[1], known)
        for place in before.keys() - found.keys():
            created = next((_created(row) for (name, _), row in found.items() if name == place[0]), None)
            if created or self.contents.is_gone(listed, place, number=number):
                gone = min(at, created_after(known, created) - TICK) if created else at
                self._intake.vanished(self._resource(listed, place[0]), place[1], gone)
            else:
                self._known[listed][place] = before[place]
        for place, row in found.items():
            times_of = _times.decode(row.object).metadata
            if place not in before:
                # One that is older was there before: its row was missing.
                is_new = (created := _created(row)) is not None and created >= known.replace(microsecond=0)
                when = written("ADDED", times_of, told=at, known=known) if is_new else When(at)
                self._see(row, when, event="ADDED", first=not is_new)
            elif row.peek.metadata.resourceVersion != before[place]:
                self._see(row, written("MODIFIED", times_of, told=at, known=known), event="MODIFIED", first=False)

    def _see(self, row: Row, when: When, *, event: str, first: bool) -> None:
        self._intake.watched(RawWatchEvent(event, msgspec.Raw(row.object)), when, first=first)

    def _resource(self, listed: Listed, name: str) -> Resource:
        return Resource(self._cluster, listed[0], listed[1], listed[2] or None, name)

    # -- what is learned

    def _learn(self) -> None:
        """Learn from what was told since, in the order in which it was done; first of what had gone, for how long
        nobody had seen that is told by what is known before."""
        piece = self._intake.take({})
        self._learning.learner.add(piece)
        sightings = sorted(piece.sightings, key=lambda one: (one.body is not None, one.at))
        self._learning.learn(sightings, self._learning.ask(sightings))
        if self._learning.learner.pending >= BATCH:
            self._record(())

    def _record(self, alerts: tuple[Symptom, ...]) -> None:
        batch = self._learning.taken((), extra=alerts)
        self.problems += map(told, batch.rejects)
        self._learning.record(replace(batch, read_to=((WATCH, self._told),) if self._told else ()))


def _pass_over(path: Path, line: Line, reason: str, column: int) -> None:
    """What was refused once is not refused again."""


def _listed(row: Row) -> Listed:
    group, _, version = row.peek.apiVersion.rpartition("/")
    return group if version else "", row.peek.kind, row.peek.metadata.namespace


def _place(row: Row) -> Place:
    return row.peek.metadata.name, row.peek.metadata.uid


def _created(row: Row) -> datetime | None:
    return row.peek.metadata.creationTimestamp


def _lacks(rejects: Sequence[Reject]) -> str:
    """How many rows and alerts were refused, and the first with its reason; "" for none."""
    return f"; {many(len(rejects), 'row')} of it could not be used, first {told(rejects[0])}" if rejects else ""
