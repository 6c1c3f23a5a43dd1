"""The live clusters of this process: what their API servers send, what is watched of them, and who records it.

Both go to one spool a cluster, and one follower brings that into the database.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Never

import structlog
from sqlalchemy.exc import SQLAlchemyError

from app.collect.alerts import Alertmanager, list_firing
from app.collect.contexts import ContextsError, WantedCluster
from app.collect.follow import Follower
from app.collect.outbound import OutboundError, TooMuchError
from app.collect.prometheus import REFUSED, Prometheus, evaluate
from app.collect.segments import SpoolFullError, SpoolTakenError
from app.collect.taking import BodyTooLargeError, KeyUnknownError, Spools
from app.core.model import Evaluated
from app.core.objects.redact import Redactor
from app.core.vitals import Recording, Watch
from app.correlate import read_firing, reconcile
from app.store import collectors
from app.store.collectors import Standing
from app.store.database import Database
from app.store.redaction import read_redactor, spool_key
from app.supervise import Pulses, Worker, keep, keep_running, pause
from app.tasks import end
from app.web.deps import NoRoomError, QueryError, TooLargeError
from app.web.known_tokens import KnownTokens

if TYPE_CHECKING:
    from app.collect.live import Live

LOOK_EVERY = timedelta(seconds=10)
"""How long a revoked token of an API server may go on working, and a cluster that is to be followed may wait."""
RECONCILE_EVERY = timedelta(minutes=5)
"""Between two looks at what an Alertmanager lists: it tells by itself what changes, and that may have gone unheard."""
NOTE_EVERY = timedelta(minutes=1)
"""Between two times that it is written down which tokens were used."""
FIRST_LOOK = timedelta(seconds=5)
"""So long the start waits for tokens, that who sends at once need not be told to wait."""

log = structlog.get_logger()
WantedClusters = Callable[[], tuple[WantedCluster, ...]]
"""Reads which clusters are to be followed. Raises ContextsError."""


class Clusters:
    """Takes what is sent, follows what is wanted, and records both, for as long as ``running`` runs."""

    def __init__(
        self,
        database: Database,
        pulses: Pulses,
        *,
        wanted: WantedClusters,
        folder: Path,
        spool_bytes: int,
        clock: Callable[[], datetime],
    ) -> None:
        """``folder`` is where the spools lie, each of ``spool_bytes`` at the most."""
        self._database, self._pulses, self._wanted, self._clock = database, pulses, wanted, clock
        self._spools = Spools(folder, most_bytes=spool_bytes)
        self._recorded: dict[str, tuple[Follower, asyncio.Task[None]]] = {}
        self._watched: dict[str, tuple[WantedCluster, Live, asyncio.Task[None]]] = {}
        self._alerting: dict[str, tuple[Alertmanager, asyncio.Task[None]]] = {}
        self._deaf: dict[str, tuple[datetime, str]] = {}
        """Clusters whose Alertmanager does not answer: since when, and why."""
        self._kinds: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {}
        """What is to be added to the kinds that are followed in each cluster, and excluded."""
        self._sent_by = set[str]()
        """Clusters whose API servers send to this process."""
        self._left = set[str]()
        """Clusters of which it was said that their spool cannot be read."""
        self._ended = set[str]()
        """Clusters that are not followed, and of which that is noted."""
        self._complaint = ""
        self._prometheus: dict[str, Prometheus] = {}
        self.tokens = KnownTokens(database.write, clock)

    def recordings(self) -> tuple[Recording, ...]:
        """Of every cluster that this process records."""
        return tuple(follower.vitals() for follower, _ in self._recorded.values())

    def watches(self) -> tuple[Watch, ...]:
        """Of every cluster that this process follows."""
        found = (live.vitals() for _, live, _ in self._watched.values())
        return tuple(one for one in found if one is not None)

    def warnings(self) -> dict[str, int]:
        """How many remarks on each of these name nothing that fails; those of ``watches`` do."""
        return {name: live.warnings for name, (_, live, _) in self._watched.items() if live.vitals() is not None}

    async def take(self, cluster: str, chunks: AsyncIterator[bytes], declared: int) -> None:
        """As deps.TakeAudit."""
        self._sent_by.add(cluster)
        try:
            await self._record(cluster)
            await self._spools.take_audit(cluster, chunks, received_at=self._clock(), declared=declared)
        except BodyTooLargeError as error:
            raise TooLargeError(str(error)) from None
        except (SpoolFullError, SpoolTakenError, KeyUnknownError) as error:
            log.warning("audit events are refused", cluster=cluster, error=str(error))
            raise NoRoomError(str(error)) from None
        except OSError as error:
            log.error("audit events cannot be spooled", cluster=cluster, error=str(error))  # noqa: TRY400 - it says all
            raise NoRoomError("what is sent cannot be written to the disk; the log says more") from None

    async def evaluate(self, cluster: str, query: str, start: datetime, end: datetime, step: timedelta) -> Evaluated:
        """As deps.Evaluate."""
        source = self._prometheus.get(cluster)
        if source is None:
            raise QueryError(f"no prometheus is named for {cluster} in clusters.yaml (docs/metrics.md)", refused=True)
        try:
            return await evaluate(source, query, await self._redactor(), start=start, end=end, step=step)
        except TooMuchError as error:  # asked again it is as much
            raise QueryError(f"{error}: aggregate it, or ask of a shorter time", refused=True) from None
        except OutboundError as error:
            raise QueryError(str(error), refused=error.status in REFUSED) from None

    async def _redactor(self) -> Redactor:
        async with self._database.write.begin() as conn:
            return await read_redactor(conn)

    async def _record(self, cluster: str) -> Follower:
        """Who records the cluster's spool, from now on where nobody did."""
        if cluster not in self._recorded:
            spool = await self._spools.in_thread(lambda: self._spools.open(cluster))
            if cluster not in self._recorded:  # as another request may have seen to meanwhile
                add, exclude = self._kinds.get(cluster, ((), ()))
                follower = Follower(self._database.write, cluster, spool, add=add, exclude=exclude)
                worker = Worker(f"recording {cluster}", follower.round, timedelta(0))
                self._recorded[cluster] = follower, asyncio.create_task(keep(worker, None, pulses=self._pulses))
        return self._recorded[cluster][0]

    # -- what is to be done

    async def _look(self) -> None:
        """Which clusters are to be followed. What the database knows: the tokens, and the key of the spools. Those that
        nobody records yet are recorded: one that another process had, too, once that has ended."""
        wanted = await self._read_wanted()
        self._want_kinds(wanted or ())
        await self.tokens.refresh()
        if not self._spools.key:
            async with self._database.write.begin() as conn:
                self._spools.key = await spool_key(conn)
        for cluster in self._spools.known():
            await self._record_if_free(cluster)
        if wanted is not None:
            self._prometheus = {one.name: one.prometheus for one in wanted if one.prometheus}
            await self._follow({one.name: one for one in wanted})

    async def _record_if_free(self, cluster: str) -> Follower | None:
        try:
            return await self._record(cluster)
        except (SpoolTakenError, OSError) as error:
            level = log.debug if cluster in self._left else log.warning
            level("this spool cannot be read yet, trying on", cluster=cluster, error=str(error))
            self._left.add(cluster)
            return None

    def _want_kinds(self, wanted: Iterable[WantedCluster]) -> None:
        """Before anything is recorded under them: what the audit webhook tells of added kinds counts, too."""
        for one in wanted:
            self._kinds[one.name] = one.add, one.exclude
            if one.name in self._recorded:
                self._recorded[one.name][0].want(add=one.add, exclude=one.exclude)

    async def _read_wanted(self) -> tuple[WantedCluster, ...] | None:
        """None where that cannot be told for now: then everything stays as it is."""
        try:
            wanted, complaint = await asyncio.to_thread(self._wanted), ""
        except ContextsError as error:
            wanted, complaint = None, str(error)
        if complaint and complaint != self._complaint:
            log.error("the clusters to follow cannot be read, so nothing changes", error=complaint)
        self._complaint = complaint
        return wanted

    async def _follow(self, wanted: Mapping[str, WantedCluster]) -> None:
        """Begin to follow what is wanted and is not followed yet, or otherwise; end what is wanted no more."""
        for name, (one, live, task) in list(self._watched.items()):
            if wanted.get(name) != one:
                live.standing = Standing.LEFT if name in wanted else Standing.ENDED
                await end([task])
                del self._watched[name]
        for name, one in wanted.items():
            self._ended.discard(name)
            if name not in self._watched and (follower := await self._record_if_free(name)):
                # An import of seconds, and of fifty megabytes, that who follows nothing is spared.
                module = await asyncio.to_thread(import_module, "app.collect.live")
                live = module.Live(
                    self._database.write,
                    one,
                    follower,
                    is_told=partial(self._sent_by.__contains__, name),
                    remarks=partial(self._remarks, name),
                )
                self._watched[name] = one, live, asyncio.create_task(keep_running(f"following {name}", live.run))
        for name in self._recorded.keys() - wanted.keys() - self._ended:
            await self._end(name)
        await self._listen({name: one.alertmanager for name, one in wanted.items() if one.alertmanager})

    async def _listen(self, wanted: Mapping[str, Alertmanager]) -> None:
        """Ask the Alertmanagers that are named what fires, at once and then now and again. One that does not answer
        keeps nobody from their pages: it is a remark on the cluster, and none of the readiness of this process."""
        for name, (source, task) in list(self._alerting.items()):
            if wanted.get(name) != source:
                await end([task])
                del self._alerting[name]
                self._deaf.pop(name, None)
        for name, source in wanted.items():
            if name not in self._alerting:
                hear = partial(self._hear, name, source)
                self._alerting[name] = source, asyncio.create_task(keep_running(f"what fires at {name}", hear))

    async def _hear(self, cluster: str, source: Alertmanager) -> Never:
        """Until cancelled. Raises the store's. That it does not answer is said once, whatever it says of it later."""
        failures = 0
        while True:
            try:
                await self._reconcile(cluster, source)
            except OutboundError as error:
                failures, why = failures + 1, str(error)
                if cluster not in self._deaf:
                    log.warning("alerts are not listed for now, trying on", cluster=cluster, source=source.url, why=why)
                since, _ = self._deaf.get(cluster, (self._clock(), ""))
                self._deaf[cluster] = since, why
                wait = pause(failures, random.random())  # noqa: S311 - spreads retries, guards nothing
            else:
                failures = 0
                wait = RECONCILE_EVERY
            await asyncio.sleep(wait.total_seconds())

    async def _reconcile(self, cluster: str, source: Alertmanager) -> None:
        """Raises OutboundError, and the store's."""
        asked, redactor = self._clock(), await self._redactor()
        held = await read_firing(self._database.write, cluster, asked=asked)
        firing = await list_firing(source, redactor, now=asked, held=held)
        self._deaf.pop(cluster, None)
        await reconcile(self._database.write, cluster, firing.alerts, fingerprints=firing.fingerprints, asked=asked)

    def _remarks(self, cluster: str) -> tuple[str, ...]:
        """What an operator should know of a cluster, besides what who follows it says."""
        if cluster not in self._deaf:
            return ()
        since, why = self._deaf[cluster]
        url = self._alerting[cluster][0].url
        return (f"{url} does not say which alerts fire since {since:%H:%M} UTC: {why}",)

    async def _end(self, cluster: str) -> None:
        """Nobody follows a cluster any more that this installation followed when it last ran."""
        holder = self._recorded[cluster][0].spool.identity
        async with self._database.write.begin() as conn:
            epoch = await collectors.epoch_of(conn, cluster, holder)
            if epoch is not None:
                await collectors.leave(conn, cluster, epoch, standing=Standing.ENDED)
        self._ended.add(cluster)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Looks after every spool and cluster that there is, and those that come, for the length of the block."""
        try:
            async with asyncio.timeout(FIRST_LOOK.total_seconds()):
                await self._look()
        except (SQLAlchemyError, TimeoutError) as error:
            log.warning("tokens of API servers cannot be read yet, trying on", error=type(error).__name__)
        workers = (
            Worker("clusters to follow", self._look, LOOK_EVERY),
            Worker("use of tokens", self.tokens.note, NOTE_EVERY),
        )
        jobs = [asyncio.create_task(keep(worker, None, pulses=self._pulses)) for worker in workers]
        try:
            yield
        finally:
            await end(jobs)
            await end(task for _, task in self._alerting.values())
            await end(task for _, _, task in self._watched.values())
            await end(task for _, task in self._recorded.values())
            self._spools.close()
