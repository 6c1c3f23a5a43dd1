"""The past that a cluster itself remembers -> the store: each kind is listed once, in pages, one after the other.

Nothing is written to the cluster, and no Secret is read unless its operator adds them. What may not be read is said,
and the rest is read all the same. It may be done again at any time, also beside watches: what is known is not told
again, and how objects are is left to the watches, which may be behind, and then tell by themselves what changed.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from types import MappingProxyType
from typing import TypeVar

import msgspec
from sqlalchemy.ext.asyncio import AsyncEngine

from app.collect.apiserver import ApiServer, RefusedError, UnreachableError
from app.collect.contexts import WantedCluster
from app.collect.discovery import Discovered, discover
from app.collect.entries import UNUSABLE
from app.collect.files import Line
from app.collect.intake import Intake, Tally
from app.collect.learning import BATCH, BATCH_BYTES, Learning
from app.collect.refusals import explain
from app.collect.threads import in_thread
from app.collect.watch import GONE, PAGE, Pace
from app.collect.words import Served
from app.core.changes.history import Past, made_in
from app.core.changes.templates import KEPT_IN
from app.core.model import Batch, Change, Resource
from app.core.objects.body import read_body
from app.core.objects.kinds import Kinds
from app.failures import Exit, Expected
from app.store import collectors, rollouts
from app.store.record import record
from app.store.redaction import read_redactor

REVISIONS = Served("apps", "v1", "ControllerRevision", "controllerrevisions")
"""Nobody follows them, but earlier templates of StatefulSets and DaemonSets are in them."""
TRIES = 5
"""How often a page is asked for; in between as long as Pace and the API server say."""
LATER = frozenset({429, 500, 502, 503, 504})
"""Answers of an API server that may have another one soon."""
MEMORY_BYTES = 8 << 20
"""Of what is kept of objects: each is read once. Ten thousand of them, to find the owners of those that come after."""
T = TypeVar("T")
SOURCE = "history"
"""What quarantine names as the source."""


class HistoryError(Expected):
    """Nothing of a cluster can be read now; the message says why."""

    code = Exit.NOT_NOW


class NotAllowedError(Expected):
    """We may not even ask what a cluster serves; the message says why."""


@dataclass(frozen=True, slots=True)
class Report:
    """What a cluster remembered: its ``found`` changes, oldest first, of which so many were ``new`` to the store.

    ``unread`` has a line for each kind that could not be read, or not to its end.
    """

    cluster: str
    found: tuple[Change, ...]
    new: int
    objects: int
    unread: tuple[str, ...]


async def rebuild(
    engine: AsyncEngine,
    api: ApiServer,
    wanted: WantedCluster,
    *,
    since: datetime,
    now: datetime,
    pace: Pace | None = None,
    watched: Mapping[tuple[str, str], datetime] = MappingProxyType({}),
) -> Report:
    """Record what a cluster remembers of the time from ``since`` to ``now``, and how its objects are if nobody follows
    it.

    ``watched`` says from when on watches tell of a kind (Served.name): what was written since is theirs to tell.
    Best done when its kinds are watched already: what is written in between is then seen by the watches. Raises
    HistoryError, NotAllowedError, discovery.DiscoveryError, the store's errors.
    """
    pace, cluster = pace or Pace(), wanted.name
    add, exclude = wanted.add, wanted.exclude
    try:
        served = await _patiently(lambda: discover(api, add=add, exclude=exclude), pace)
    except (RefusedError, UnreachableError) as error:
        is_allowed = not isinstance(error, RefusedError) or error.status in LATER
        said = f"{cluster}: the API server does not say what it serves: {error}"
        raise (HistoryError if is_allowed else NotAllowedError)(said) from None
    async with engine.connect() as conn:
        redactor = await read_redactor(conn)
        await conn.commit()
        last = await rollouts.read_last(conn, cluster)
        is_followed = await collectors.is_followed(conn, cluster)
    kinds = Kinds(add=add, exclude=exclude)
    for kind in served.kinds:
        kinds.serves(kind.api_group, kind.kind, kind.plural)
    intake = Intake(cluster, redactor, now=now)
    learning = Learning(
        engine, intake, tally=Tally(), rollouts=last, goes_on=True, kinds=kinds, memory_bytes=MEMORY_BYTES
    )
    reading = _Reading(learning, Past(redactor, kinds), since, now, learns=not is_followed)
    for kind in _in_order(served):
        reading.until = min(now, watched.get(kind.name, now))
        await _read(api, kind, reading, pace=pace)
    await in_thread(reading.record)
    found = made_in(reading.changes.values(), since, now)
    new = 0
    for begin in range(0, len(found), BATCH):
        async with engine.begin() as conn:
            batch = Batch(cluster, changes=tuple(found[begin : begin + BATCH]), read_at=now)
            new += (await record(conn, batch)).changes
    unread = [*(f"{group}: its server does not answer" for group in served.stale), *reading.unread]
    return Report(cluster, tuple(found), new, reading.objects, tuple(unread))


@dataclass(slots=True)
class _Reading:
    """What was read so far: of a large cluster little is held at a time. Its methods run in a thread."""

    learning: Learning
    past: Past
    since: datetime
    until: datetime
    learns: bool
    """Also how the objects are."""
    changes: dict[int, Change] = field(default_factory=dict)
    unread: list[str] = field(default_factory=list)
    objects: int = 0
    held_bytes: int = 0

    def take(self, served: Served, items: list[msgspec.Raw], at: datetime) -> None:
        """Learn from the objects of one page, read ``at``."""
        intake = self.learning.intake
        intake.move_to(at)
        head = b'{"kind":"%s","apiVersion":"%s",' % (served.kind.encode(), served.api_version.encode())
        for item in items:
            raw = head + bytes(item)[1:]  # the items of built-in kinds leave out what the list says
            try:
                self._remember(served, raw)
                if self.learns:
                    intake.dump_item(msgspec.Raw(raw), at)
                    self.held_bytes += len(raw)
                self.objects += 1
            except UNUSABLE as error:
                reason, column = explain(error, raw, expected="object")
                intake.reject(SOURCE, Line(0, raw, 0), f"{served.path}: {reason}", column=column)
        self.learning.learn_read()
        if self.learning.learner.pending >= BATCH or self.held_bytes >= BATCH_BYTES:
            self.record()

    def record(self) -> None:
        """Wait until what was learned of the objects is recorded."""
        self.learning.record(self.learning.taken(()))
        self.learning.recorded()
        self.held_bytes = 0

    def _remember(self, served: Served, raw: bytes) -> None:
        body = read_body(raw)
        if body is None:
            return
        name = body.name()
        cluster = self.learning.cluster
        resource = Resource(cluster, served.api_group, served.kind, name.get("namespace"), name["name"])
        if (served.api_group, served.kind) in KEPT_IN:
            self.past.keep(raw, body)
        # A creation holds all of an object, and most objects are older than what is asked for.
        for change in made_in(self.past.of(resource, raw, body), self.since, self.until):
            self.changes[change.key] = change


def _in_order(found: Discovered) -> list[Served]:
    """Those first that keep earlier templates: what they say is asked for when their workloads are read."""
    wanted = {*found.kinds, REVISIONS}
    return sorted(wanted, key=lambda kind: ((kind.api_group, kind.kind) not in KEPT_IN, kind.api_group, kind.plural))


async def _read(api: ApiServer, served: Served, reading: _Reading, *, pace: Pace) -> None:
    """Read one kind; what is refused is noted. Where its pages expire it is read once more, from the first."""
    for last in (False, True):
        try:
            async with aclosing(_pages(api, served, pace)) as pages:
                async for items in pages:
                    await in_thread(partial(reading.take, served, items, pace.clock()))
        except RefusedError as refused:
            if refused.status == GONE and not last:
                continue
            reading.unread.append(f"{served.path}: {refused}")
        except UnreachableError as error:
            reading.unread.append(f"{served.path}: {error}")
        return


async def _patiently(ask: Callable[[], Awaitable[T]], pace: Pace) -> T:
    """An answer, asked for again while the API server is busy or away, TRIES times at most."""
    for failures in range(1, TRIES):
        try:
            return await ask()
        except RefusedError as error:
            if error.status not in LATER:
                raise
            wait = pace.pause(failures, error)
        except UnreachableError as error:
            wait = pace.pause(failures, error)
        await pace.sleep(wait)
    return await ask()


class _ListMetadata(msgspec.Struct, gc=False):
    more: str = msgspec.field(default="", name="continue")


class _List(msgspec.Struct, gc=False):
    metadata: _ListMetadata
    items: list[msgspec.Raw] | None = None


_list = msgspec.json.Decoder(_List)


async def _pages(api: ApiServer, served: Served, pace: Pace) -> AsyncGenerator[list[msgspec.Raw]]:
    """The objects of a kind, page by page. Raises RefusedError, UnreachableError."""
    query: Mapping[str, str] = {"limit": PAGE}
    while query:
        body = await _patiently(partial(api.get, served.path, query), pace)
        try:
            page = _list.decode(body)
        except msgspec.MsgspecError as error:
            raise UnreachableError(f"a LIST that cannot be read: {error}") from None
        yield page.items or []
        query = {"limit": PAGE, "continue": page.metadata.more} if page.metadata.more else {}
