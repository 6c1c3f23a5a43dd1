"""GET /api/v1/changes?follow=1: what is there, and then each change as it is recorded, a JSON object a line.

There is no push from the database: who follows asks it every other second, for a moment, and holds no connection while
waiting. Where somebody is stands in each line (``after``), and nowhere else.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from time import monotonic

import orjson
from fastapi import Request
from pydantic import BaseModel
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from app.core.access import Identity
from app.core.model import Change, Gap
from app.store import arrivals, search, tokens
from app.store.arrivals import Arrival, Place
from app.store.seen import Seen, read_seen
from app.store.timeline import ChangeFilter, Cursor, after
from app.web import answers, guard, params, shapes
from app.web.accept import NDJSON
from app.web.deps import Deps, deps_of
from app.web.head import HEADED
from app.web.numbered import id_of
from app.web.problems import Problem, members, note, of_database
from app.web.reading import Limits, check_whole, reading_within, scope_of

AT_ONCE = 200
"""Changes that are read, and held, at a time."""
MOST_LATER = 100_000
"""Changes that may have been recorded since a list was told in part, of which the rest is wanted."""


@dataclass(slots=True)
class Followers:
    """Who follows changes in this process: at most ``most`` at once. ``every`` is how long one waits before it asks for
    more, ``told_every`` how often it is told how fresh all is and its credential is looked at again, ``reads_within``
    how long a line may wait to be read, ``proxied_for`` how long somebody follows before the proxy that says who they
    are is to say it again. ``stopping`` says that the process is about to end."""

    most: int = 32
    every: timedelta = timedelta(seconds=2)
    told_every: timedelta = timedelta(seconds=10)
    reads_within: timedelta = timedelta(seconds=60)
    proxied_for: timedelta = timedelta(seconds=45)
    stopping: Callable[[], bool] = lambda: False
    count: int = 0

    def take(self) -> None:
        """Makes one more. Raises Problem 503 where there are as many as there may be."""
        if self.count >= self.most:
            raise Problem(
                503, f"{self.most} follow changes here already, which is as many as may: ask for pages", retry_after=30
            )
        self.count += 1


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
        return "_".join(parts) + (f"~{params.encode_cursor(self.listed)}" if self.listed else "")

    def behind(self, arrival: Arrival) -> Mark:
        """The mark once an arrival was told."""
        return Mark({**self.places, arrival.cluster_id: arrival.place})


def parse(text: str, now: datetime) -> tuple[Mark, datetime]:
    """The inverse of Mark.at: the mark, and when it was made. Raises Problem 400 for one that is too old."""
    marks, _, listed = text.partition("~")
    made, *places = marks.split("_")
    age = now.timestamp() - int(made, 16)
    if age > arrivals.KEPT.total_seconds():
        raise Problem(400, "this is more than a day old: begin again without since", "since")
    if age < -arrivals.KEPT.total_seconds():
        raise _not_ours()
    found = {}
    for one in places:
        cluster, number, told = (int(part, 16) for part in one.split("."))
        found[cluster] = Place(number, told)
    return Mark(found, params.change_cursor(listed) if listed else None), datetime.fromtimestamp(int(made, 16), UTC)


def _not_ours() -> Problem:
    return Problem(400, "this is not an after of ours: begin again without since", "since")


@dataclass(slots=True)
class _Following:
    """One who follows: what is ``wanted`` within their ``scope``, where they are, and which gaps they were told of,
    from ``gaps_from`` on, when (``told_at``, by the process's own clock)."""

    deps: Deps
    followers: Followers
    wanted: ChangeFilter
    asks: guard.Asks
    scope: Limits
    mark: Mark
    request_id: str
    gaps_from: datetime
    told_gaps: frozenset[tuple[object, ...]] = frozenset()
    told_at: float = 0.0
    begun: float = field(default_factory=monotonic)

    async def lines(self, first: Sequence[Change], seen: Seen, gone: asyncio.Task[None]) -> AsyncGenerator[bytes, None]:
        """All lines until the client is ``gone``; the last one may be a problem that says why there are no more."""
        for change in first:
            yield self._change(change, Mark(self.mark.places, after(change)))
        self.mark = Mark(self.mark.places)
        for line in self._told(seen):
            yield line
        try:
            while not gone.done():
                lines, more = await self._news()
                for line in lines:
                    yield line
                if not more:
                    await asyncio.wait([gone], timeout=self.followers.every.total_seconds())
        except Problem as problem:
            yield _problem(problem, self.request_id)
        except SQLAlchemyError as error:
            yield _problem(of_database(error), self.request_id)

    async def _news(self) -> tuple[list[bytes], bool]:
        """What arrived and fits, and now and again how fresh all is; and whether there is more. Raises Problem."""
        if self.followers.stopping():
            raise Problem(503, "this process stops: go on from the last after")
        due = monotonic() - self.told_at >= self.followers.told_every.total_seconds()
        if due:
            await self._check()
        async with reading_within(self.deps, self.scope) as conn:
            seen = await self._seen(conn) if due else None  # before the changes: these are not older than it says
            arrived = await arrivals.read_after(conn, self.mark.places, self.wanted.cluster, most=AT_ONCE)
            fitting = await arrivals.read_changes(conn, arrived, self.wanted)
        lines = []
        for arrival, change in fitting:
            self.mark = self.mark.behind(arrival)
            lines.append(self._change(change, self.mark))
        for arrival in arrived:  # what does not fit was looked at, too
            self.mark = self.mark.behind(arrival)
        more = len(arrived) >= arrivals.BATCHES
        if seen is not None and not more:
            lines += self._told(seen)
        return lines, more

    async def _seen(self, conn: AsyncConnection) -> Seen:
        return await read_seen(conn, self.wanted.cluster, from_at=self.gaps_from, to_at=None)

    async def _check(self) -> None:
        if isinstance(self.asks, Identity):
            if monotonic() - self.begun >= self.followers.proxied_for.total_seconds():
                raise Problem(
                    503, "a proxy said who you are, which it is to say anew: go on from the last after", None, 1
                )
            return
        token, purpose = self.asks or ("", tokens.Purpose.API)
        if await guard.bearer(self.deps, token, purpose) is None:
            raise Problem(401, "this credential is expired or revoked")

    def _told(self, seen: Seen) -> list[bytes]:
        """The gaps that were not told yet, and how fresh all is."""
        known = {_identity(gap): gap for gap in seen.gaps}
        new = [gap for identity, gap in known.items() if identity not in self.told_gaps]
        self.told_gaps, self.told_at = frozenset(known), monotonic()
        fresh = [shapes.Freshness.model_validate(one) for one in seen.freshness]
        lines = [_line(answers.FollowedGap(gap=shapes.Gap.model_validate(gap))) for gap in new]
        return [*lines, _line(answers.FollowedFreshness(freshness=fresh, after=self._text(self.mark)))]

    def _change(self, change: Change, mark: Mark) -> bytes:
        return _line(answers.FollowedChange(change=shapes.Change.of(change), after=self._text(mark)))

    def _text(self, mark: Mark) -> str:
        return mark.at(self.deps.clock())


def _identity(gap: Gap) -> tuple[object, ...]:
    """What tells a gap from another: its end moves on while it lasts."""
    return gap.cluster, gap.kind, gap.from_at, gap.why


def _line(said: BaseModel) -> bytes:
    return said.model_dump_json().encode() + b"\n"


def _problem(problem: Problem, request_id: str) -> bytes:
    note(problem, request_id)
    return orjson.dumps({"problem": members(problem, request_id)}) + b"\n"


async def follow(request: Request, wanted: ChangeFilter, *, since: str | None, limit: int) -> Response:
    """The answer to who follows what is ``wanted``. Raises Problem, UnknownClusterError and the driver's errors, before
    anything is answered."""
    check_whole(request, wanted.cluster)
    deps, scope = deps_of(request), scope_of(request)
    followers: Followers = request.app.state.followers
    now = deps.clock()
    mark, made = (None, now) if since is None else parse(since, now)
    # What is not in the list arrived behind the places.
    async with reading_within(deps, scope, snapshot=True) as conn:
        if mark is None:
            mark = Mark(await arrivals.read_places(conn, wanted.cluster))
            found = await search.find_changes(conn, wanted, limit=limit, within=search.FURTHER)
            first = found.changes[::-1]
        else:
            last = await arrivals.read_last_number(conn)
            if any(place.number > last for place in mark.places.values()):
                raise _not_ours()
            first = await _rest(conn, wanted, mark)
        gaps_from = wanted.from_at or min((change.at for change in first), default=made)
        seen = await read_seen(conn, wanted.cluster, from_at=gaps_from, to_at=None)
    if request.scope.get(HEADED):
        headed = Response(media_type=NDJSON, headers=_HEADERS)
        del headed.headers["content-length"]
        return headed
    asks, number = guard.asks(request.scope, deps), id_of(request.scope)
    following = _Following(deps, followers, wanted, asks, scope, mark, number, gaps_from=gaps_from)
    followers.take()
    return _Stream(followers, lambda gone: following.lines(first, seen, gone))


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


_HEADERS = {"x-accel-buffering": "no"}
"""A proxy is not to gather lines (nginx, proxy_buffering)."""


class _Stream(Response):
    """Lines as they come. Each waits until the client has read what was before it; who reads nothing is let go."""

    media_type = NDJSON

    def __init__(
        self, followers: Followers, lines: Callable[[asyncio.Task[None]], AsyncGenerator[bytes, None]]
    ) -> None:
        super().__init__(headers=_HEADERS)
        del self.headers["content-length"]
        self._followers, self._lines = followers, lines

    async def __call__(self, _scope: Scope, receive: Receive, send: Send) -> None:
        gone = asyncio.create_task(_until_gone(receive))
        within = self._followers.reads_within.total_seconds()
        try:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            async with aclosing(self._lines(gone)) as lines:
                async for line in lines:
                    async with asyncio.timeout(within):
                        await send({"type": "http.response.body", "body": line, "more_body": True})
            async with asyncio.timeout(within):
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        except TimeoutError:
            return
        finally:
            self._followers.count -= 1
            gone.cancel()


async def _until_gone(receive: Receive) -> None:
    """Until the client has closed the connection."""
    while (await receive())["type"] != "http.disconnect":
        pass
