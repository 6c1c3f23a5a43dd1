"""What is followed: what is there, and then what is new, a JSON object a line, with how fresh all is in between.

There is no push from the database: who follows asks it every other second, for a moment, and holds no connection while
waiting. Where somebody is stands in each line (``after``), and nowhere else.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from time import monotonic
from typing import Protocol

import orjson
from fastapi import Request
from pydantic import BaseModel
from sqlalchemy.ext.asyncio import AsyncConnection
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from app.core.access import Identity
from app.core.model import Gap
from app.store import arrivals, tokens
from app.store.database import UNAVAILABLE
from app.store.seen import Seen, read_seen
from app.web import answers, guard, shapes
from app.web.accept import NDJSON
from app.web.deps import Deps, deps_of
from app.web.head import HEADED
from app.web.numbered import id_of
from app.web.problems import Problem, members, note, of_database
from app.web.reading import Limits, reading_within, scope_of


@dataclass(slots=True)
class Followers:
    """Who follows in this process: at most ``most`` at once. ``every`` is how long one waits before it asks for
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
                503, f"{self.most} follow here already, which is as many as may: ask for pages", retry_after=30
            )
        self.count += 1


KEPT = arrivals.KEPT
"""So long an ``after`` is good to go on from."""
_LONG_AGO = timedelta(days=3650)
"""What says that it is older was made by nobody: it is a number of another sort."""


def check_age(made: str, now: datetime) -> datetime:
    """When an ``after`` was made, in seconds since 1970 in hexadecimal. Raises Problem 400 for one that is too old."""
    age = now.timestamp() - int(made, 16)
    if age > _LONG_AGO.total_seconds():
        raise not_ours()
    if age > KEPT.total_seconds():
        raise Problem(400, "this is more than a day old: begin again without since", "since")
    if age < -KEPT.total_seconds():
        raise not_ours()
    return datetime.fromtimestamp(int(made, 16), UTC)


def not_ours() -> Problem:
    return Problem(400, "this is not an after of ours: begin again without since", "since")


class Followed(Protocol):
    """What somebody follows, of one ``cluster`` or all, and where they are. Gaps are told from ``gaps_from`` on."""

    gaps_from: datetime

    @property
    def cluster(self) -> str | None: ...

    def after(self) -> str:
        """Where they are, to go on from: behind the last line that was made."""

    def first(self) -> Iterator[bytes]:
        """The lines of what was there when they began; each is made when the one before it was sent."""

    async def news(self, conn: AsyncConnection) -> tuple[list[bytes], bool]:
        """The lines of what is new, and whether there is more."""


@dataclass(slots=True)
class _Following:
    """One who follows something within their ``scope``, and which gaps they were told of, when (``told_at``, by the
    process's own clock)."""

    deps: Deps
    followers: Followers
    followed: Followed
    asks: guard.Asks
    scope: Limits
    request_id: str
    told_gaps: frozenset[tuple[object, ...]] = frozenset()
    told_at: float = 0.0
    begun: float = field(default_factory=monotonic)

    async def lines(self, seen: Seen, gone: asyncio.Task[None]) -> AsyncGenerator[bytes, None]:
        """All lines until the client is ``gone``; the last one may be a problem that says why there are no more."""
        for one in self.followed.first():
            yield one
        for one in self._told(seen):
            yield one
        try:
            while not gone.done():
                lines, more = await self._news()
                for one in lines:
                    yield one
                if not more:
                    await asyncio.wait([gone], timeout=self.followers.every.total_seconds())
        except Problem as problem:
            yield _problem(problem, self.request_id)
        except UNAVAILABLE as error:
            yield _problem(of_database(error), self.request_id)

    async def _news(self) -> tuple[list[bytes], bool]:
        """What is new, and now and again how fresh all is; and whether there is more. Raises Problem."""
        if self.followers.stopping():
            raise Problem(503, "this process stops: go on from the last after")
        due = monotonic() - self.told_at >= self.followers.told_every.total_seconds()
        if due:
            await self._check()
        async with reading_within(self.deps, self.scope) as conn:
            seen = await _seen(conn, self.followed) if due else None  # before what is new: that is not older
            lines, more = await self.followed.news(conn)
        if seen is not None and not more:
            lines += self._told(seen)
        return lines, more

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
        lines = [line(answers.FollowedGap(gap=shapes.Gap.model_validate(gap))) for gap in new]
        return [*lines, line(answers.FollowedFreshness(freshness=fresh, after=self.followed.after()))]


async def _seen(conn: AsyncConnection, followed: Followed) -> Seen:
    return await read_seen(conn, followed.cluster, from_at=followed.gaps_from, to_at=None)


def _identity(gap: Gap) -> tuple[object, ...]:
    """What tells a gap from another: its end moves on while it lasts."""
    return gap.cluster, gap.kind, gap.from_at, gap.why


def line(said: BaseModel) -> bytes:
    """One line of what is followed."""
    return said.model_dump_json().encode() + b"\n"


def _problem(problem: Problem, request_id: str) -> bytes:
    note(problem, request_id)
    return orjson.dumps({"problem": members(problem, request_id)}) + b"\n"


async def follow(request: Request, begin: Callable[[AsyncConnection], Awaitable[Followed]]) -> Response:
    """The answer to who follows what ``begin`` reads, all as of one moment. Raises what that does, Problem,
    UnknownClusterError and the driver's errors, before anything is answered."""
    deps, scope = deps_of(request), scope_of(request)
    followers: Followers = request.app.state.followers
    async with reading_within(deps, scope, snapshot=True) as conn:
        followed = await begin(conn)
        seen = await _seen(conn, followed)
    if request.scope.get(HEADED):
        headed = Response(media_type=NDJSON, headers=_HEADERS)
        del headed.headers["content-length"]
        return headed
    asks, number = guard.asks(request.scope, deps), id_of(request.scope)
    following = _Following(deps, followers, followed, asks, scope, number)
    followers.take()
    return _Stream(followers, lambda gone: following.lines(seen, gone))


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
