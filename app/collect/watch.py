"""Everything that happens to the objects of one kind, for ever: what there is, then what changes.

Generators, one around the other: one call (``_stream``, ``_pages``), one watch (``_watch``), what there is and the
watch after it (``_once``), and on and on (``follow``). The first set comes out of the API server's watch cache as a
stream where it can (WatchList, KEP-3157), else in pages of a LIST. A watch then goes on from the last resourceVersion,
across calls and restarts, until the API server says that its history does not reach back so far (410).
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import msgspec

from app.collect.apiserver import ApiServer, RefusedError, SilentError, UnreachableError
from app.collect.desired import Desired, KindDesired, News
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
from app.core.objects.body import read_whole

PAGE = "500"
GONE = 410
NOT_ALLOWED = frozenset({401, 403, 404, 405})
"""What will not be better in a second: asked again once a minute."""
TOO_LARGE = "ResourceVersionTooLarge"
UNSUPPORTED = frozenset({400, 422})
"""The answers of an API server that does not know sendInitialEvents."""


async def _asleep(wait: timedelta) -> None:
    await asyncio.sleep(wait.total_seconds())


@dataclass(frozen=True, slots=True)
class Pace:
    """How patient a watch is. Backoff as client-go's reflector: 800 ms, doubled up to 30 s, and up to as much again.

    It begins anew after a call that lasted ``steady``. ``quiet`` is more than the minute between two bookmarks: a watch
    that says nothing for so long is dead. What is ``refused`` for good is asked for again that rarely.
    ``spread`` is within which sets of all objects are asked for again, that an API server which came back does not get
    all of these calls at once; ``apart`` lies between two of them of one kind.
    """

    quiet: timedelta = timedelta(seconds=70)
    shortest: timedelta = timedelta(milliseconds=800)
    longest: timedelta = timedelta(seconds=30)
    steady: timedelta = timedelta(minutes=2)
    refused: timedelta = timedelta(seconds=60)
    spread: timedelta = timedelta(seconds=30)
    apart: timedelta = timedelta(seconds=60)
    clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    sleep: Callable[[timedelta], Awaitable[None]] = _asleep
    chance: Callable[[], float] = random.random

    def pause(self, failures: int, error: Exception | None) -> timedelta:
        """How long to wait after so many calls in a row that ended early, the last of them with ``error``."""
        wait = min(self.shortest * float(1 << min(failures - 1, 16)), self.longest)
        if isinstance(error, RefusedError):
            wait = max(wait, timedelta(seconds=error.retry_after))
            wait = max(wait, self.refused) if error.status in NOT_ALLOWED else wait
        return wait * (1 + self.chance())

    def patience(self) -> str:
        """Seconds after which the API server ends a watch, not all of them at once (client-go: 5 to 10 minutes)."""
        return str(int(240 * (1 + self.chance())))


class _GoneError(Exception):
    """The API server's history does not reach back to the version that was asked for."""


class _Metadata(msgspec.Struct, gc=False):
    uid: str = ""
    resourceVersion: str = ""  # noqa: N815 - the wire's name
    annotations: dict[str, str] | None = None


class _Object(msgspec.Struct, gc=False):
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)
    message: str = ""
    code: int = 0


class _Event(msgspec.Struct, gc=False):
    type: str
    object: msgspec.Raw


class _ListMetadata(msgspec.Struct, gc=False):
    resourceVersion: str = ""  # noqa: N815
    more: str = msgspec.field(default="", name="continue")


class _List(msgspec.Struct, gc=False):
    metadata: _ListMetadata
    items: list[msgspec.Raw]


_event = msgspec.json.Decoder(_Event)
_object = msgspec.json.Decoder(_Object)
_list = msgspec.json.Decoder(_List)
_HEADS = tuple((kind, b'{"type":"%s","object":' % kind.encode()) for kind in ("MODIFIED", "ADDED", "DELETED"))
"""How API servers begin an event: what follows need not be looked through twice to find where the object ends."""
ALL_FIRST = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
ALL_TOLD = "k8s.io/initial-events-end"
"""https://kubernetes.io/docs/reference/using-api/api-concepts/#streaming-lists"""
NO_TIME = timedelta()
CHECK_EVERY = timedelta(minutes=10)
"""Between two questions whether the API server still has reached what it told, of a kind that says nothing."""


@dataclass(slots=True)
class Horizon:
    """The version that was last told of any kind of the cluster, since the API server was last lost; they share one
    count as long as they share an etcd."""

    version: str = ""


@dataclass(slots=True)
class _At:
    """How far a kind is known: ``version`` "" where it is not, ``asked_all`` when it was last asked for from there.

    ``pages`` where the API server knows no WatchList. ``checked`` is when the API server last said that it has reached
    the version.
    """

    version: str
    horizon: Horizon
    desired: KindDesired
    pages: bool = False
    asked_all: datetime | None = None
    checked: datetime | None = None


async def follow(
    api: ApiServer,
    served: Served,
    *,
    since: str,
    lists: asyncio.Semaphore,
    pace: Pace | None = None,
    horizon: Horizon | None = None,
    desired: Desired | None = None,
) -> AsyncGenerator[Word]:
    """What happens to a kind's objects from the resourceVersion ``since`` on; where that is "", all of them first.

    ``lists`` lets only so many kinds ask for all of their objects at a time. ``desired`` remembers what was told, so it
    must all have been kept. Ends only when closed.
    """
    pace = pace or Pace()
    place, failures = _At(since, horizon or Horizon(), (desired or Desired()).of(served)), 0
    while True:
        began, error = pace.clock(), None
        try:
            async with aclosing(_once(api, served, place, lists=lists, pace=pace)) as found:
                async for told in found:
                    yield told
        except _GoneError as gone:
            place.version = ""
            now = pace.clock()
            yield Lost(now, str(gone))
            # A clock that was set back since then adds nothing.
            apart = pace.apart - max(now - place.asked_all, NO_TIME) if place.asked_all else NO_TIME
            await pace.sleep(max(pace.spread * pace.chance(), apart))
            continue
        except SilentError:
            # Dead, or of a kind that has no bookmarks, as Events and some aggregated APIs: a new watch tells which.
            failures = 0
            continue
        except (RefusedError, UnreachableError) as why:
            error = why
            place.horizon.version = ""
            yield Blind(pace.clock(), str(why))
        failures = 0 if pace.clock() - began >= pace.steady else failures + 1
        if failures or error:
            await pace.sleep(pace.pause(max(1, failures), error))


async def _once(
    api: ApiServer, served: Served, place: _At, *, lists: asyncio.Semaphore, pace: Pace
) -> AsyncGenerator[Word]:
    """What there is, where that is not known, and one watch after it."""
    async with AsyncExitStack() as turn:
        if not place.version:
            await turn.enter_async_context(lists)
            place.asked_all = pace.clock()
            place.desired.begin()
            yield Begun(place.asked_all)
            if place.pages:
                async with aclosing(_pages(api, served, place, pace=pace)) as listed:
                    async for told in listed:
                        yield told
                await turn.aclose()
        async with aclosing(_watch(api, served, place, pace=pace)) as watch:
            async for told in watch:
                if isinstance(told, Synced):
                    await turn.aclose()  # what there is has been told: the next kind's turn
                yield told


async def _watch(api: ApiServer, served: Served, place: _At, *, pace: Pace) -> AsyncGenerator[Word]:
    """One watch; ``place`` moves along. One that said nothing is a failure, if not worse."""
    taken_up = said = False
    try:
        async with aclosing(_stream(api, served, place.version, pace=pace, desired=place.desired)) as stream:
            async for told in stream:
                taken_up = taken_up or isinstance(told, Resumed)
                said = said or not isinstance(told, Unreadable | Resumed)
                if version := reached(told):
                    place.version = place.horizon.version = version
                yield told
    except RefusedError as refused:
        if place.version or refused.status not in UNSUPPORTED:
            raise
        place.pages = True
    except UnreachableError:
        if taken_up and not said:  # who is not reached is not asked more
            await _check_reached(api, served, place, pace.clock())
        raise
    else:
        if not said:
            await _check_reached(api, served, place, pace.clock())
            raise UnreachableError("the watch ended before it said anything")


async def _check_reached(api: ApiServer, served: Served, place: _At, now: datetime) -> None:
    """Raises _GoneError where the API server has not reached a version that it told once: its etcd was restored.

    A watch from there says nothing, not even what happens now, and ends as if nothing were wrong (Kubernetes 1.36).
    It is not asked where another kind was told more lately, unless that was never the same count.
    """
    version, horizon = place.version, place.horizon.version
    if not version:
        return
    if version.isdigit() and horizon.isdigit() and int(version) <= int(horizon):
        place.checked = place.checked or now
        if now - place.checked < CHECK_EVERY:
            return
    try:
        await api.get(served.path, {"limit": "1", "resourceVersion": version, "resourceVersionMatch": "NotOlderThan"})
    except RefusedError as refused:
        if TOO_LARGE in refused.causes:
            raise _GoneError(f"the API server went back in time: {refused.message}") from None
        raise
    place.checked = now


async def _pages(api: ApiServer, served: Served, place: _At, *, pace: Pace) -> AsyncGenerator[Word]:
    """Every object, in pages of one consistent LIST, then Synced; ``place`` is then there."""
    query, more = {"limit": PAGE}, True
    head = b'{"kind":"%s","apiVersion":"%s",' % (served.kind.encode(), served.api_version.encode())
    while more:
        try:
            page = _list.decode(await api.get(served.path, query))
        except RefusedError as refused:
            if refused.status == GONE:
                raise _GoneError(f"the pages of a LIST expired: {refused.message}") from None
            raise
        except msgspec.MsgspecError as error:
            raise UnreachableError(f"a LIST that cannot be read: {error}") from None
        at = pace.clock()
        for item in page.items:
            yield _saw(item, at, head=head)
        more, query = bool(page.metadata.more), {"limit": PAGE, "continue": page.metadata.more}
    place.version = page.metadata.resourceVersion
    yield Synced(at, place.version)


async def _stream(
    api: ApiServer, served: Served, since: str, *, pace: Pace, desired: KindDesired
) -> AsyncGenerator[Word]:
    """One watch, until the API server or the network ends it; where ``since`` is "", of all there is first."""
    asked = {"watch": "true", "allowWatchBookmarks": "true", "timeoutSeconds": pace.patience()}
    asked |= {"resourceVersion": since} if since else ALL_FIRST
    first = not since
    try:
        async with aclosing(api.lines(served.path, asked, quiet=pace.quiet)) as answer:
            async for lines in answer:
                at = pace.clock()
                if since and not lines:
                    desired.resumed()
                    yield Resumed(at)
                for told in read_events(lines, at, first=first, desired=desired):
                    first = first and not isinstance(told, Synced)
                    yield told
    except RefusedError as refused:
        if refused.status == GONE:
            raise _GoneError(f"the watch cannot go on: {refused.message}") from None
        raise


def _saw(item: msgspec.Raw, at: datetime, *, head: bytes) -> Saw | Unreadable:
    """An item of a LIST; those of the built-in kinds do not say theirs, the ``head`` does."""
    try:
        version = _object.decode(item).metadata.resourceVersion
        return Saw(at, "ADDED", head + bytes(item)[1:], version, first=True)
    except (msgspec.MsgspecError, RecursionError) as error:
        return Unreadable(at, bytes(item), str(error))


def _head(line: bytes) -> tuple[str, int]:
    """The type of an event that begins as most do, and where its object begins."""
    for kind, head in _HEADS:
        if line.startswith(head):
            return kind, len(head)
    return "", 0


def read_events(
    lines: Iterable[bytes], at: datetime, *, first: bool, desired: KindDesired
) -> Iterator[Saw | Moved | Synced | Reached | Unreadable]:
    """What lines say that came together; of what is only reached the last, where nothing else comes between. As
    read_event."""
    only_reached: Reached | None = None
    for line in lines:
        told = read_event(line, at, first=first, desired=desired)
        if isinstance(told, Reached):
            only_reached = told
            continue
        if only_reached:
            yield only_reached
            only_reached = None
        first = first and not isinstance(told, Synced)
        yield told
    if only_reached:
        yield only_reached


def read_event(
    line: bytes, at: datetime, *, first: bool, desired: KindDesired
) -> Saw | Moved | Synced | Reached | Unreadable:
    """What one line says; ``desired`` remembers it. Raises _GoneError and RefusedError for an ERROR that says so."""
    kind, begin = _head(line)
    try:
        if kind and line.endswith(b"}"):
            told = line[begin:-1]
            if desired.is_kept and (whole := read_whole(told)) is not None:
                meta = whole.metadata
                if kind == "DELETED":
                    desired.forget((meta.uid,))
                elif (news := desired.news(whole)) is not News.ALL and kind == "MODIFIED" and not first:
                    return Moved(at, (whole.as_before(),)) if news is News.STATUS else Reached(at, meta.resourceVersion)
                return Saw(at, kind, told, meta.resourceVersion, first=first)
        else:
            event = _event.decode(line)
            kind, told = event.type, bytes(event.object)
        peek = _object.decode(told)
    except (msgspec.MsgspecError, RecursionError) as error:
        return Unreadable(at, line, str(error))
    if kind == "ERROR":
        if peek.code == GONE:
            raise _GoneError(f"the watch cannot go on: {peek.message}")
        raise RefusedError(peek.code, peek.message)
    version = peek.metadata.resourceVersion
    if kind == "BOOKMARK":
        desired.reached()
        done = (peek.metadata.annotations or {}).get(ALL_TOLD) == "true"
        return Synced(at, version) if done and first else Reached(at, version)
    desired.forget((peek.metadata.uid,))
    return Saw(at, kind, told, version, first=first)
