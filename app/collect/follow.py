"""A cluster's spool -> the store, for as long as there is a cluster: all that was told of it, counted once.

What is learned commits together with how far the spool is recorded. After any failure the follower forgets what it had
in memory and goes on from there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from contextlib import closing, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from hashlib import blake2b
from operator import itemgetter

import psycopg
import structlog
from msgspec.structs import replace
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from app.collect import event_list, told
from app.collect.event_list import SOURCE, Told
from app.collect.files import Line
from app.collect.intake import Intake, Tally
from app.collect.learning import BATCH, BATCH_BYTES, Learning
from app.collect.logs import BYTES, LINES
from app.collect.segments import Frame
from app.collect.spool import Spool
from app.collect.threads import in_thread
from app.collect.watched import Watches
from app.collect.words import Served, Synced
from app.core.model import Batch
from app.core.objects.kinds import Kinds
from app.core.vitals import Recording
from app.store import collectors, rollouts, spools, watches
from app.store.collectors import FencedError
from app.store.database import UNAVAILABLE
from app.store.reach import AUDIT_LOG, WATCH
from app.store.redaction import read_redactor

HELD = timedelta(seconds=0.5)
"""What was told waits so long for more before it is recorded: a quarter of the two seconds within which it is shown."""
IDLE = timedelta(seconds=15)
"""So long a round waits for something to be told."""
REMEMBERED = 512
"""Bodies that are known again: at the ten requests a second that an API server sends at most, those of a minute. It
sends one again after ten seconds and more (the backoff of kube-apiserver's audit webhook)."""
DIGEST = 16
"""Bytes that a body is known by."""
LAST_WAIT = timedelta(seconds=30)
"""How far back a lost request told: kube-apiserver's --audit-webhook-batch-max-wait, as it is by default."""
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
"""The clock before the first record, which says when it came."""
AWAY = (
    *UNAVAILABLE,
    psycopg.OperationalError,  # COPY and some reads go to the driver itself
    psycopg.InterfaceError,
    OSError,
)
"""The database or the disk is away: that is no fault of what is being recorded."""
TOO_MUCH = "54"
"""The class of SQLSTATE that says that something is larger than PostgreSQL takes, though psycopg counts it among
operational errors: https://www.postgresql.org/docs/current/errcodes-appendix.html"""
MIGRATED = ("42P01", "42703")
"""That a table or a column is not there, though psycopg counts it among faults of who asks: a newer process migrates,
or has migrated, the database, and this one is about to end."""

log = structlog.get_logger()
_Telling = tuple[datetime, Callable[[], None]]


@dataclass(slots=True)
class _Following:
    """What is in memory of a spool that is being followed. ``position`` is behind what was learned.

    ``has_words``: something since the last commit was told by watches, under ``epoch``. Those that are ``over`` were
    followed by another process's turn: what was heard under them is told to that process, too.
    """

    learning: Learning
    watches: Watches
    kinds: Kinds
    position: int
    recent: dict[bytes, None]
    latest: datetime | None = None
    heard: datetime | None = None
    body_bytes: int = 0
    epoch: int | None = None
    over: set[int] = field(default_factory=set)
    has_words: bool = False


class _OurTurnError(Exception):
    """The cluster is this process's since the follower began: what others recorded until then is to be known first."""


class Follower:
    """Follows one spool: a ``round`` records one batch of it. Made on the event loop that runs the rounds.

    ``add`` and ``exclude`` are the kinds that the cluster's operator wants otherwise, as in core.kinds.Kinds.
    """

    def __init__(
        self,
        engine: AsyncEngine,
        cluster: str,
        spool: Spool,
        *,
        held: timedelta = HELD,
        idle: timedelta = IDLE,
        add: Collection[str] = (),
        exclude: Collection[str] = (),
    ) -> None:
        self.engine, self.cluster, self.spool = engine, cluster, spool
        self._held, self._idle = held.total_seconds(), idle.total_seconds()
        self._add, self._exclude = add, exclude
        self._following: _Following | None = None
        self.recorded = 0
        """The position in the spool up to which everything is recorded."""
        self._tally = Tally()
        self._wants_others = False
        self.on_unsynced: Callable[[Served], None] = lambda _served: None
        """Called, in a thread, for a kind of which all objects are to be told again."""
        self.on_unknown: Callable[[Collection[str] | None], None] = lambda _uids: None
        """Called, in a thread or on the loop, with the uids of objects that are to be told as a whole when something
        happens to them; with None for all of them."""
        self._told = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._closed = self._loop.time()
        self._one_by_one_until = 0
        self._hopeless: set[int] = set()
        spool.on_growth = self._wake

    def _wake(self) -> None:
        with suppress(RuntimeError):  # the loop is closed: who appends now is read when the program starts again
            self._loop.call_soon_threadsafe(self._told.set)

    def want(self, *, add: Collection[str], exclude: Collection[str]) -> None:
        """These kinds otherwise than usual, from the next round on."""
        self._wants_others = self._wants_others or (add, exclude) != (self._add, self._exclude)
        self._add, self._exclude = add, exclude

    def vitals(self) -> Recording:
        """How far it is. What had to be read again after a failure is counted again, but for changes."""
        spool, tally = self.spool, self._tally
        return Recording(
            cluster=self.cluster,
            spool_bytes=spool.size,
            capacity_bytes=spool.most_bytes,
            unrecorded_bytes=max(0, spool.end - max(self.recorded, spool.begin)),
            changes=tally.changes,
            calls=tally.calls,
            quarantined=tally.rejects,
        )

    async def round(self) -> None:
        """Record what the spool holds, a batch of it; or wait for something, ``idle`` at the longest.

        Raises the store's errors and OSError. What fails for another reason is told one by one from then on, until it
        is one record that fails: that goes into quarantine, and the rest goes on.
        """
        one = None if self._wants_others else self._following
        self._wants_others = False
        try:
            one = one or await self._begin()
            self._following = one
            await self._batch(one)
        except _OurTurnError:
            self._following = None
        except FencedError as fenced:
            self._following = None
            log.warning("what watches told is left to another process", cluster=self.cluster, why=str(fenced))
        except Exception as error:
            self._following = None
            if one and not _is_away(error):
                self._suspect(one)
            raise
        except BaseException:
            self._following = None
            raise

    def _suspect(self, one: _Following) -> None:
        if one.position <= self._one_by_one_until:
            self._hopeless.add(one.position)
        self._one_by_one_until = max(self._one_by_one_until, one.position)

    async def _begin(self) -> _Following:
        async with self.engine.connect() as conn:
            redactor = await read_redactor(conn)
            await conn.commit()
            # First: what is read after it holds everything that others recorded before our turn.
            epoch = await collectors.epoch_of(conn, self.cluster, self.spool.identity)
            await conn.commit()
            last = await rollouts.read_last(conn, self.cluster)
            known = await spools.read(conn, self.cluster, self.spool.identity)
            watched = await watches.read(conn, self.cluster)
        position, recent = (known.position, known.recent) if known else (0, b"")
        if position > self.spool.end:
            log.error("the spool is older than what is recorded of it: all of it is told again", cluster=self.cluster)
            position = 0
        self.recorded = position
        kinds = Kinds(add=self._add, exclude=self._exclude)
        learning = Learning(
            self.engine,
            Intake(self.cluster, redactor, now=EPOCH),
            tally=self._tally,
            rollouts=last,
            goes_on=True,
            also=self._note_position,
            kinds=kinds,
        )
        told_of = Watches(
            learning.intake,
            watched,
            live=lambda served: learning.live(served.api_group, served.kind),
            again=self.on_unsynced,
            watched_since=learning.learner.tracker.watched_since,
        )
        self.on_unknown(None)
        digests = [recent[at : at + DIGEST] for at in range(0, len(recent), DIGEST)]
        return _Following(learning, told_of, kinds, position, dict.fromkeys(digests), epoch=epoch)

    async def _batch(self, one: _Following) -> None:
        since = self._closed  # what is there already may have waited from then on, while the batch before was recorded
        if not await self._learned(one):
            await self._growth(self._idle)
            since = self._loop.time()
            if not await self._learned(one):
                return
        ends = since + self._held
        while self._has_room(one) and (left := ends - self._loop.time()) > 0:
            if not await self._learned(one):
                await self._growth(left)
        self._closed = self._loop.time()
        await in_thread(lambda: self._record(one))

    def _has_room(self, one: _Following) -> bool:
        alone = one.position <= self._one_by_one_until
        return not alone and one.learning.learner.pending < BATCH and one.body_bytes < BATCH_BYTES

    async def _growth(self, seconds: float) -> None:
        """Wait until something is appended after the last look, so long at the most."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._told.wait()

    async def _learned(self, one: _Following) -> bool:
        self._told.clear()
        return await in_thread(lambda: self._learn(one))

    def _learn(self, one: _Following) -> bool:
        """Learn from what lies behind the position, LINES or BYTES of it; whether there was anything."""
        before, found, size = one.position, list[_Telling](), 0
        with closing(self.spool.read(before)) as frames:
            for frame in frames:
                telling = self._read(one, frame, after=bool(found))
                if telling is None:
                    break
                one.position = frame.after
                found += telling
                size += len(frame.payload or b"")
                if len(found) >= LINES or size >= BYTES or frame.after <= self._one_by_one_until:
                    break
        one.body_bytes += size
        found.sort(key=itemgetter(0))  # an API server sends several requests at once, and there may be several of them
        for _, tell in found:
            tell()
        one.watches.settle()
        one.learning.learner.count(one.learning.learn_read())
        if one.watches.latest:
            one.learning.learner.pass_time(one.watches.latest)
        if wanted := one.learning.wanted():
            self.on_unknown(wanted)
        return one.position > before

    def _read(self, one: _Following, frame: Frame, *, after: bool) -> list[_Telling] | None:
        """What a record tells, each with its time. None where what was read before is to be learned first: ``after``
        says that there is something."""
        intake = one.learning.intake
        if frame.payload is None or frame.after in self._hopeless:
            why = (
                "the spool was damaged here" if frame.payload is None else "it could not be recorded; the log says why"
            )
            intake.reject(SOURCE, Line(0, b"", 0), f"{why}: its events are missing")
            self.on_unknown(None)
            return []
        record = told.decode(frame.payload)
        if isinstance(record, told.Watched):
            if not self._is_current(one, record.epoch):
                return []
            one.has_words = True
            if isinstance(record.word, Synced) and after:
                return None
            served = record.served
            one.kinds.serves(served.api_group, served.kind, served.plural)
            # Words keep their order, though a clock may go back.
            one.heard = max(one.heard or record.word.at, record.word.at)
            return [(one.heard, partial(one.watches.tell, served, record.word))]
        intake.move_to(record.received_at)
        if isinstance(record, told.AuditLost):
            intake.blind(record.since or record.received_at - LAST_WAIT, record.received_at, record.why)
            return []
        digest = blake2b(record.body, digest_size=DIGEST).digest()
        if digest in one.recent:
            return []
        one.recent[digest] = None
        events = event_list.events(intake, record.body, record.received_at)
        if events:
            newest = max(map(_when, events))
            one.latest = max(one.latest or newest, newest)
        return [(_when(event), partial(event_list.tell, intake, event)) for event in events]

    def _is_current(self, one: _Following, epoch: int) -> bool:
        """Whether this process still is, or was the last to be, the one that follows the cluster under an epoch."""
        if epoch != one.epoch and epoch not in one.over:
            if asyncio.run_coroutine_threadsafe(self._epoch(), self._loop).result() == epoch:
                raise _OurTurnError
            one.over.add(epoch)
        return epoch == one.epoch

    async def _epoch(self) -> int | None:
        async with self.engine.connect() as conn:
            return await collectors.epoch_of(conn, self.cluster, self.spool.identity)

    def _record(self, one: _Following) -> None:
        batch = one.learning.taken(())
        reached = ((AUDIT_LOG, one.latest), (WATCH, one.watches.latest))
        read_to = tuple((source, at) for source, at in reached if at)
        one.learning.record(replace(batch, read_to=read_to))
        one.learning.recorded()
        self.recorded = one.position
        one.body_bytes = 0
        self.spool.trim(one.position)

    async def _note_position(self, conn: AsyncConnection, _batch: Batch) -> None:
        one = self._following
        if one is None:
            raise RuntimeError("nothing is followed")
        for digest in list(one.recent)[:-REMEMBERED]:
            del one.recent[digest]
        noted = spools.SpoolPosition(one.position, b"".join(one.recent))
        if one.epoch is not None and one.has_words:
            await collectors.check(conn, self.cluster, one.epoch)
            one.has_words = False
        await spools.write(conn, self.cluster, self.spool.identity, told=noted)
        await watches.write(conn, self.cluster, one.watches.take())


def _is_away(error: Exception) -> bool:
    """Whether an error is none of what is being recorded."""
    state = getattr(getattr(error, "orig", error), "sqlstate", None) or ""
    return state.startswith(MIGRATED) or (isinstance(error, AWAY) and not state.startswith(TOO_MUCH))


def _when(one: Told) -> datetime:
    return one.event.stageTimestamp
