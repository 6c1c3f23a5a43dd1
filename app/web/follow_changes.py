"""GET /api/v1/changes?follow=1: what is there, and then each change as it is recorded."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from fastapi import Request
from sqlalchemy.ext.asyncio import AsyncConnection
from starlette.responses import Response

from app.core.model import Change
from app.store import arrivals, search
from app.store.arrivals import Arrival, Place
from app.store.timeline import ChangeFilter, Cursor, after
from app.web import answers, shapes
from app.web.cursors import Listing
from app.web.deps import deps_of
from app.web.follow import check_age, follow, line, not_ours
from app.web.problems import Problem
from app.web.reading import check_whole

LISTED = Listing("changes")
AT_ONCE = 200
"""Changes that are read, and held, at a time."""
MOST_LATER = 100_000
"""Changes that may have been recorded since a list was told in part, of which the rest is wanted."""


@dataclass(frozen=True, slots=True)
class Mark:
    """Where somebody is: ``places`` in what arrived; and, while ``listed`` is not None, behind this row of the list of
    what was there before."""

    places: arrivals.Places
    listed: Cursor | None = None

    def at(self, now: datetime) -> str:
        """The mark as it travels."""
        parts = [f"{int(now.timestamp()):x}"]
        parts += [f"{cluster:x}.{number:x}.{told:x}" for cluster, (number, told) in sorted(self.places.items())]
        return "_".join(parts) + (f"~{LISTED.next(self.listed)}" if self.listed else "")

    def behind(self, arrival: Arrival) -> Mark:
        """The mark once an arrival was told."""
        return Mark({**self.places, arrival.cluster_id: arrival.place})


def parse(text: str, now: datetime) -> tuple[Mark, datetime]:
    """The inverse of Mark.at: the mark, and when it was made. Raises Problem 400 for one that is too old."""
    marks, _, listed = text.partition("~")
    made, *places = marks.split("_")
    made_at = check_age(made, now)
    found = {}
    for one in places:
        cluster, number, told = (int(part, 16) for part in one.split("."))
        found[cluster] = Place(number, told)
    return Mark(found, LISTED.cursor(listed or None)), made_at


@dataclass(slots=True)
class _Changes:
    """Changes that are ``wanted``, of which ``listed`` were there when somebody began, and where they are."""

    wanted: ChangeFilter
    clock: Callable[[], datetime]
    mark: Mark
    listed: Sequence[Change]
    gaps_from: datetime

    @property
    def cluster(self) -> str | None:
        return self.wanted.cluster

    def after(self) -> str:
        return self.mark.at(self.clock())

    def first(self) -> Iterator[bytes]:
        for change in self.listed:
            self.mark = Mark(self.mark.places, after(change))
            yield self._line(change)
        self.mark = Mark(self.mark.places)

    async def news(self, conn: AsyncConnection) -> tuple[list[bytes], bool]:
        arrived = await arrivals.read_after(conn, self.mark.places, self.cluster, most=AT_ONCE)
        lines = []
        for arrival, change in await arrivals.read_changes(conn, arrived, self.wanted):
            self.mark = self.mark.behind(arrival)
            lines.append(self._line(change))
        for arrival in arrived:  # what does not fit was looked at, too
            self.mark = self.mark.behind(arrival)
        return lines, len(arrived) >= arrivals.BATCHES

    def _line(self, change: Change) -> bytes:
        return line(answers.FollowedChange(change=shapes.Change.of(change), after=self.after()))


async def follow_changes(request: Request, wanted: ChangeFilter, *, since: str | None, limit: int) -> Response:
    """The answer to who follows what is ``wanted``. Raises Problem, UnknownClusterError and the driver's errors, before
    anything is answered."""
    check_whole(request, wanted.cluster)
    clock = deps_of(request).clock
    now = clock()
    given, made = (None, now) if since is None else parse(since, now)

    async def begin(conn: AsyncConnection) -> _Changes:
        """What is not in the list arrived behind the places."""
        if given is None:
            mark = Mark(await arrivals.read_places(conn, wanted.cluster))
            found = await search.find_changes(conn, wanted, limit=limit, within=search.FURTHER)
            listed = found.changes[::-1]
        else:
            mark, last = given, await arrivals.read_last_number(conn)
            if any(place.number > last for place in mark.places.values()):
                raise not_ours()
            listed = await _rest(conn, wanted, mark)
        gaps_from = wanted.from_at or min((change.at for change in listed), default=made)
        return _Changes(wanted, clock, mark, listed, gaps_from)

    return await follow(request, begin)


async def _rest(conn: AsyncConnection, wanted: ChangeFilter, mark: Mark) -> list[Change]:
    """Of the list that was being told, what is behind the mark: without what arrived since, which is told after it.
    Raises Problem where that is too much to be told apart."""
    if mark.listed is None:
        return []
    listed, places = mark.listed, mark.places
    later: set[tuple[str, datetime, int]] = set()
    while arrived := await arrivals.read_after(conn, places, wanted.cluster, most=10 * AT_ONCE):
        later |= {(one.cluster, one.at, one.key) for one in arrived if one.at >= listed.at}
        places = {**places, **{one.cluster_id: one.place for one in arrived}}
        if len(later) > MOST_LATER:
            raise Problem(400, "too much was recorded since: begin again without since", "since")
    since = replace(wanted, from_at=max(listed.at, wanted.from_at or listed.at))
    left: list[Change] = []
    before: Cursor | None = None
    while True:
        found = await search.find_changes(conn, since, before=before, limit=1000, within=search.FURTHER)
        left += [
            one
            for one in found.changes
            if (one.at, one.key) > (listed.at, listed.key) and (one.resource.cluster, one.at, one.key) not in later
        ]
        if (before := found.next) is None:
            return left[::-1]
