"""One live cluster: whose turn it is to follow it, its watches, and their words on the disk for the follower to record.

Nothing here waits for the database while it watches. Where the spool is full, or its disk, watching stops, and goes on
from the last word that was kept.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager, closing
from datetime import datetime, timedelta
from typing import Never

import msgspec
import structlog
from sqlalchemy.ext.asyncio import AsyncEngine

from app.collect import history, told
from app.collect.api_metrics import ApiMetrics
from app.collect.apiserver import ApiServer, CredentialsError, RefusedError, UnreachableError
from app.collect.cluster import Following
from app.collect.contexts import WantedCluster
from app.collect.desired import Desired
from app.collect.discovery import DiscoveryError
from app.collect.drops import Drops
from app.collect.follow import AWAY, Follower
from app.collect.history import HistoryError, NotAllowedError
from app.collect.measuring import Measuring
from app.collect.prometheus import Question
from app.collect.scrape import Kept
from app.collect.segments import SpoolFullError
from app.collect.spool import Spool
from app.collect.threads import in_thread
from app.collect.watch import Pace
from app.collect.words import Begun, Blind, Lost, Resumed, Served, Word, reached
from app.core.edges.mesh_calls import COUNTERS
from app.core.signals.collected import ASKED, ASKED_OF_APPS, NAMES, SUMMED, SUMMED_OF_APPS
from app.core.vitals import Watch
from app.core.watching import Unseen, Watching
from app.store import collectors, spools, watches
from app.store.collectors import Standing
from app.store.spools import SpoolPosition
from app.store.watches import Name, WatchPosition
from app.tasks import end

RENEW = timedelta(seconds=3)
"""Between two renewals of the lease, and two looks whether the cluster is to be had."""
PART = 0.9
"""Watching begins again when no more than so much of a full spool is left."""
PAST = timedelta(days=1)
"""How far back a cluster is asked what it remembers, when it is first followed."""
FIRST_SETS = timedelta(minutes=2)
"""So long that waits until every kind is watched, so that nothing which is written meanwhile goes unseen, and until all
that there was is recorded."""
QUESTIONS = (
    Question(tuple(ASKED), SUMMED),
    Question(tuple(ASKED_OF_APPS), SUMMED_OF_APPS, of_apps=True),
)
"""What a cluster's Prometheus is asked. One does not wait for the other: of apps there may be more than is answered."""
KEPT = Kept(NAMES, SUMMED)
"""What is kept of what is scraped."""
ALL: Name = ("", "")
"""Stands for every kind."""

log = structlog.get_logger()


class Live:
    """Follows one cluster for as long as ``run`` runs, whenever it is this process's turn."""

    def __init__(
        self,
        engine: AsyncEngine,
        wanted: WantedCluster,
        follower: Follower,
        *,
        pace: Pace | None = None,
        is_told: Callable[[], bool] = lambda: False,
        remarks: Callable[[], tuple[str, ...]] = tuple,
    ) -> None:
        """``is_told`` says whether this process gets the cluster's audit webhook; ``remarks`` what else an operator
        should know."""
        self._engine, self._wanted, self._follower = engine, wanted, follower
        self._spool: Spool = follower.spool
        self._pace = pace or Pace()
        self._more_remarks = remarks
        self._reached: dict[Name, str] = {}
        self._unseen: dict[Name, Unseen] = {}
        self._heard: dict[Name, datetime] = {}
        self._begun: dict[Name, datetime] = {}
        """When each kind was first asked for: what is written since is told by its watch."""
        self._measuring = Measuring(
            engine, wanted, pace=self._pace, kept=KEPT, questions=QUESTIONS, calls=tuple(COUNTERS)
        )
        drops = Drops(self._spool, is_told=is_told)
        self._api_metrics = ApiMetrics(wanted.connect, drops, self._measuring, pace=self._pace)
        self._server = ""
        self._past_known = False
        self._following: Following | None = None
        self._desired = Desired()
        self._held: list[told.Watched] = []
        self._broken: asyncio.Future[None] | None = None
        """Fails when what was told cannot be kept."""
        self._is_ours = False
        self.standing = Standing.LEFT
        """What is said of the cluster when ``run`` is cancelled."""
        self._loop = asyncio.get_running_loop()
        follower.on_unsynced = self._ask_again
        follower.on_unknown = self._tell_whole

    async def run(self) -> Never:
        """Until cancelled. Raises what a bug raises."""
        while True:
            epoch = await self._turn()
            log.info("following a cluster", cluster=self._wanted.name, epoch=epoch)
            self._is_ours = True
            try:
                await self._while_ours(epoch)
            finally:
                self._is_ours = False
                await self._leave(epoch)
            log.warning("another process follows the cluster now", cluster=self._wanted.name)

    # -- whose turn it is

    async def _turn(self) -> int:
        """Wait for it; the epoch under which the cluster is followed."""
        while True:
            try:
                async with self._engine.begin() as conn:
                    epoch = await collectors.take(conn, self._wanted.name, self._spool.identity)
            except AWAY as error:
                log.debug("it is not known yet who follows the cluster", cluster=self._wanted.name, error=str(error))
                epoch = None
            if epoch is not None:
                return epoch
            await self._pace.sleep(RENEW)

    async def _while_ours(self, epoch: int) -> None:
        work = (self._renew(epoch), self._follow(epoch), self._api_metrics.run(), self._measuring.run())
        tasks = [asyncio.create_task(one) for one in work]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await end(tasks)
        for task in tasks:
            if not task.cancelled() and (error := task.exception()):
                raise error

    async def _renew(self, epoch: int) -> None:
        """Until another process has the cluster. While the database is away, nobody can take it."""
        while True:
            try:
                async with self._engine.begin() as conn:
                    if not await collectors.renew(conn, self._wanted.name, epoch, self.watching()):
                        return
            except AWAY as error:
                log.debug("the lease cannot be renewed for now", cluster=self._wanted.name, error=str(error))
            await self._pace.sleep(RENEW)

    async def _leave(self, epoch: int) -> None:
        try:
            async with self._engine.begin() as conn:
                await collectors.leave(conn, self._wanted.name, epoch, standing=self.standing)
        except AWAY as error:
            log.debug("the lease is left to run out", cluster=self._wanted.name, error=str(error))

    def watching(self) -> Watching:
        """How well the cluster is followed right now."""
        kinds = set(self._following.kinds) if self._following else set[Name]()
        unseen = [one for name, one in self._unseen.items() if name == ALL or name in kinds or not kinds]
        unseen.sort(key=lambda one: (one.since, one.kind))
        following = self._following.remarks if self._following else ()
        remarks = (*following, *self._api_metrics.remarks, *self._measuring.remarks, *self._more_remarks())
        return Watching(self._server, len(kinds), tuple(unseen), self._spool.size, remarks)

    def vitals(self) -> Watch | None:
        """The same in numbers; None while another process follows the cluster."""
        if not self._is_ours:
            return None
        now = self.watching()
        heard_at = max(self._heard.values(), default=None)
        return Watch(self._wanted.name, heard_at, now.kinds, len(now.unseen), len(now.remarks) - self.warnings)

    @property
    def warnings(self) -> int:
        """How many of the remarks name nothing that fails: what is not served or allowed beyond need, what a Prometheus
        warned of."""
        return len(self._following.remarks if self._following else ()) + len(self._measuring.warnings)

    # -- what is seen

    async def _follow(self, epoch: int) -> Never:
        failures = 0
        self._reached = await self._since(epoch)
        while True:
            try:
                async with self._connected() as api:
                    failures = 0
                    await self._watch(api, epoch)
            except* (CredentialsError, RefusedError, UnreachableError) as errors:
                failures += 1
                self._miss(ALL, "", self._pace.clock(), str(_first(errors)))
                await self._pace.sleep(self._pace.pause(failures, None))
            except* (SpoolFullError, OSError) as errors:
                why = f"what is told cannot be kept: {_first(errors)}"
                log.error("watching is stopped", cluster=self._wanted.name, why=why)  # noqa: TRY400 - it says all
                self._miss(ALL, "", self._pace.clock(), why)
                await self._room()

    async def _since(self, epoch: int) -> dict[Name, str]:
        """The version up to which each kind was told and kept: recorded, or still in the spool."""
        recorded, known = await self._recorded()
        self._heard |= {name: one.at for name, one in recorded.items()}
        found = {name: one.resource_version for name, one in recorded.items() if one.resource_version}
        return await in_thread(lambda: self._overlaid(found, known.position if known else 0, epoch))

    async def _recorded(self) -> tuple[dict[Name, WatchPosition], SpoolPosition | None]:
        while True:
            try:
                async with self._engine.connect() as conn:
                    self._past_known = await collectors.is_past_known(conn, self._wanted.name)
                    recorded = await watches.read(conn, self._wanted.name)
                    return recorded, await spools.read(conn, self._wanted.name, self._spool.identity)
            except AWAY as error:
                self._miss(ALL, "", self._pace.clock(), f"the database is away: {type(error).__name__}")
                await self._pace.sleep(RENEW)

    def _overlaid(self, found: dict[Name, str], position: int, epoch: int) -> dict[Name, str]:
        with closing(self._spool.read(position)) as frames:
            for frame in frames:
                record = told.decode(frame.payload) if frame.payload is not None else None
                if isinstance(record, told.Watched) and record.epoch == epoch:
                    _move(found, record.served, record.word)
        return found

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[ApiServer]:
        """The API server, which has answered once."""
        api = await self._wanted.connect()
        try:
            self._server = msgspec.json.decode(await api.get("/version", {}), type=_Version).gitVersion
            yield api
        finally:
            await api.close()

    async def _watch(self, api: ApiServer, epoch: int) -> Never:
        def tell(served: Served | None, word: Word) -> None:
            self._tell(served, word, epoch)

        self._desired = Desired()  # what was told before may not have been kept
        self._following = Following(
            api,
            tell,
            since=self._reached,
            pace=self._pace,
            add=self._wanted.add,
            exclude=self._wanted.exclude,
            desired=self._desired,
        )
        past = [] if self._past_known else [asyncio.create_task(self._remember(api, self._following, epoch))]
        self._held, self._broken = [], self._loop.create_future()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._following.run())
                group.create_task(_awaited(self._broken))
        finally:
            self._following = self._broken = None
            self._held = []  # what was not kept is told again
            await end(past)
        raise AssertionError("a watch ends only by an error")

    async def _remember(self, api: ApiServer, following: Following, epoch: int) -> None:
        """On first contact: what the cluster remembers of its past, once every kind is watched or may not be, and what
        there is was recorded: what both take of memory does not add up, and is given back by itself."""
        name, began = self._wanted.name, self._pace.clock()
        first_sets = None
        for _ in range(int(FIRST_SETS / RENEW)):
            await self._pace.sleep(RENEW)
            if following.kinds and following.kinds <= self._reached.keys() | self._unseen.keys():
                first_sets = first_sets or self._spool.end
            if first_sets is not None and self._follower.recorded >= first_sets:
                break
        try:
            found = await history.rebuild(
                self._engine,
                api,
                self._wanted,
                since=began - PAST,
                now=self._pace.clock(),
                pace=self._pace,
                watched={kind: self._begun.get(kind, began) for kind in following.kinds},
            )
            async with self._engine.begin() as conn:
                await collectors.note_past(conn, name, epoch)
        except (HistoryError, NotAllowedError, DiscoveryError, *AWAY) as error:
            log.warning("what the cluster remembers is not known yet", cluster=name, error=str(error))
        except Exception:  # it is extra: the watches go on
            log.exception("what the cluster remembers cannot be read", cluster=name)
        else:
            self._past_known = True
            log.info("what the cluster remembers is recorded", cluster=name, changes=found.new, unread=found.unread)

    def _tell(self, served: Served | None, word: Word, epoch: int) -> None:
        """Take a word, to be kept with the others that come in this turn of the event loop."""
        if served is None:
            self._miss(ALL, "", word.at, word.why if isinstance(word, Blind) else "")
            return
        if isinstance(word, Begun):
            self._begun.setdefault(served.name, word.at)
        if not isinstance(word, Blind):
            self._hold(told.Watched(served, word, epoch))
        self._unseen.pop(ALL, None)
        if isinstance(word, Blind | Lost):
            self._miss(served.name, served.kind, word.at, word.why)
        elif reached(word) or isinstance(word, Resumed):
            self._unseen.pop(served.name, None)
            self._heard[served.name] = word.at

    def _hold(self, one: told.Watched) -> None:
        self._held.append(one)
        if len(self._held) == 1:
            self._loop.call_soon(self._keep)

    def _keep(self) -> None:
        """Write what was told in this turn, all of it or none: only then does a watch go on behind it. Once that failed
        nothing more is kept, or what comes later would hide what was not."""
        held, self._held = told.joined(self._held), []
        if not held or self._broken is None or self._broken.done():
            return
        try:
            self._spool.append_all(map(told.encode, held))
        except (SpoolFullError, OSError) as error:
            self._broken.set_exception(error)
            return
        for one in held:
            _move(self._reached, one.served, one.word)

    def _miss(self, name: Name, kind: str, at: datetime, why: str) -> None:
        since = self._unseen[name].since if name in self._unseen else self._heard.get(name, at)
        self._unseen[name] = Unseen(kind, since, why)

    def _ask_again(self, served: Served) -> None:
        """As Follower.on_unsynced, in whatever thread."""

        def ask() -> None:
            if self._following is not None:
                self._following.again(served)

        self._loop.call_soon_threadsafe(ask)

    def _tell_whole(self, uids: Collection[str] | None) -> None:
        """As Follower.on_unknown, in whatever thread."""
        self._loop.call_soon_threadsafe(lambda: self._desired.forget(uids))

    async def _room(self) -> None:
        """Wait until the spool takes a word again."""
        while True:
            await self._pace.sleep(RENEW)
            try:
                self._spool.check_room(int(self._spool.most_bytes * (1 - PART)))
            except SpoolFullError:
                continue
            return


def _first(error: BaseException) -> BaseException:
    """What one of the tasks failed with."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


async def _awaited(future: asyncio.Future[None]) -> None:
    await future


class _Version(msgspec.Struct):
    gitVersion: str = ""  # noqa: N815 - the wire's name


def _move(found: dict[Name, str], served: Served, word: Word) -> None:
    """How far a kind is told with one word more."""
    if isinstance(word, Begun | Lost):
        found.pop(served.name, None)
    elif version := reached(word):
        found[served.name] = version
