"""The metrics of one live cluster: from its Prometheus, from programs named to be scraped, and from the API server.

The API server is scraped once a minute where no Prometheus is named, so that there is something to see at once.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Never

import structlog
from sqlalchemy.ext.asyncio import AsyncEngine
from yarl import URL

from app.collect.contexts import WantedCluster
from app.collect.follow import AWAY
from app.collect.mesh_calls import CALLS_EVERY, ask
from app.collect.openmetrics import MILLISECONDS
from app.collect.outbound import OutboundError
from app.collect.prometheus import Asking, Prometheus, Question
from app.collect.scrape import Kept, Scraped, Target, UnreadableError, fetch
from app.collect.watch import Pace
from app.core.edges.mesh_calls import MOST_EDGES
from app.core.metrics.lines import SINCE, STARTED
from app.core.model import Batch, MetricSeries
from app.core.objects.redact import Redactor
from app.store import measured, series
from app.store.record import record
from app.store.redaction import read_redactor

EVERY = timedelta(seconds=30)
"""Between two questions to a Prometheus, and two scrapes of a target."""
AWAIT = timedelta(seconds=5)
"""Between two tries to reach our own database."""
WAITING = timedelta(minutes=10)
"""So long scrapes wait for a database that is away. Then the oldest are a gap in their lines."""
MOST_SERVERS = 16
"""API servers behind one address, and their restarts, of which the last counts are known."""
TOLD_LATELY = timedelta(minutes=5)
"""What others told of an API server counts for so long: Prometheus' --query.lookback-delta."""
API_SERVER = "kube-apiserver"

log = structlog.get_logger()


class Measuring:
    """Collects a cluster's metrics for as long as ``run`` runs.

    ``kept`` is what is kept of what is scraped, ``questions`` what a Prometheus is asked,
    ``calls`` the counters of meshes from which it is to say who calls whom.
    """

    def __init__(
        self,
        engine: AsyncEngine,
        wanted: WantedCluster,
        *,
        pace: Pace,
        kept: Kept,
        questions: Sequence[Question],
        calls: Sequence[str] = (),
    ) -> None:
        self._engine, self._wanted, self._pace = engine, wanted, pace
        self._kept = replace(kept, begins=wanted.scrape_also)
        self._questions, self._calls = questions, calls
        self._waiting: deque[tuple[datetime, list[MetricSeries]]] = deque()
        self._one_writes = asyncio.Lock()
        self._servers: dict[float, Scraped] = {}
        self._redactor: Redactor | None = None
        self._trouble: dict[str, tuple[datetime, str]] = {}
        self._warned: dict[str, tuple[datetime, tuple[str, ...]]] = {}
        self.ready = asyncio.Event()
        """Set when something can be recorded."""

    @property
    def is_wanted(self) -> bool:
        """As api_metrics.Reader: whether what the API server tells is kept."""
        is_asked_for = self._wanted.scrape_api_server and self._wanted.prometheus is None
        return is_asked_for and self._redactor is not None

    @property
    def remarks(self) -> tuple[str, ...]:
        """What an operator should know: which source of metrics fails, since when, and why; and the warnings. What is
        alike of several is said once."""
        failed: dict[str, dict[str, datetime]] = defaultdict(dict)
        for source, (since, why) in sorted(self._trouble.items()):
            failed[why][source] = since
        failing = (
            f"no metrics from {' and '.join(sources)} since {min(sources.values()):%H:%M} UTC: {why}"
            for why, sources in failed.items()
        )
        return *failing, *self.warnings

    @property
    def warnings(self) -> tuple[str, ...]:
        """Of what a source warned when it answered last: it answered all the same."""
        alike: dict[tuple[str, ...], dict[str, datetime]] = defaultdict(dict)
        for source, (at, warnings) in sorted(self._warned.items()):
            alike[warnings][source] = at
        return tuple(
            f"{' and '.join(sources)} warned when it answered at {max(sources.values()):%H:%M} UTC: {'; '.join(said)}"
            for said, sources in alike.items()
        )

    async def run(self) -> Never:
        """Until cancelled. Raises what a bug raises."""
        self._redactor = await self._known_redactor()
        self.ready.set()
        async with asyncio.TaskGroup() as group:
            if self._wanted.prometheus:
                for question in self._questions:
                    group.create_task(self._ask(self._wanted.prometheus, question, self._redactor))
                if self._calls:
                    group.create_task(self._ask_calls(self._wanted.prometheus, self._redactor))
            for target in self._wanted.scrape:
                group.create_task(self._scrape(target, self._redactor))
            await asyncio.Event().wait()
        raise AssertionError("sources end only by an error")

    async def take(self, text: bytes, address: str, at: datetime) -> None:
        """As api_metrics.Reader; several API servers may answer at one address.

        One whose samples come from elsewhere, by remote-write, is left to that: told twice, its calls count twice.
        """
        if (redactor := self._redactor) is None:
            return
        started = _started(text)
        if await self._is_told(started, at):
            mine = self._servers.pop(started, None)
            await self._keep(mine.miss(at) if mine else [], at)
            return

        def read() -> list[MetricSeries]:
            scraped = self._servers.get(started)
            if scraped is None:
                url, since = URL(address), datetime.fromtimestamp(started, UTC)
                # Of several behind one address each counts by itself, and each life of one begins at zero.
                instance = f"{url.host}:{url.port}{SINCE}{since:%Y-%m-%d %H:%M:%S}"
                scraped = Scraped({"job": API_SERVER, "instance": instance}, redactor, self._kept)
            found = scraped.take(text, at)
            self._servers.pop(started, None)
            self._servers = dict([*self._servers.items(), (started, scraped)][-MOST_SERVERS:])
            return found

        try:
            found = await asyncio.to_thread(read)
        except UnreadableError as error:
            self._fail("the API server", at, str(error))
            if mine := self._servers.pop(started, None):
                await self._keep(mine.miss(at), at)
            else:  # it does not say which of them it is
                await self.miss(at)
            return
        self._trouble.pop("the API server", None)
        await self._keep(found, at)

    async def _is_told(self, started: float, at: datetime) -> bool:
        """Whether somebody else told lately of the process that was started then, to the hundredth of a second."""
        try:
            async with self._engine.connect() as conn:
                told = await series.read(conn, self._wanted.name, at - TOLD_LATELY, at, names=(STARTED,))
        except AWAY:
            return False
        return started > 0 and any(
            SINCE not in dict(one.labels).get("instance", "") and started in one.values for one in told
        )

    async def miss(self, at: datetime) -> None:
        """As api_metrics.Reader."""
        servers, self._servers = self._servers, {}
        await self._keep([one for scraped in servers.values() for one in scraped.miss(at)], at)

    # -- sources

    async def _ask(self, source: Prometheus, question: Question, redactor: Redactor) -> Never:
        asking, failures = Asking(source, question, redactor), 0
        name = f"{source.url} of apps" if question.of_apps else source.url
        while True:
            now = self._pace.clock()
            try:
                async with self._engine.connect() as conn:
                    since = await measured.read_until(conn, self._wanted.name, name)
                asked = await asking.read(since, now)
                async with self._engine.begin() as conn:
                    await measured.record(conn, self._wanted.name, asked.series, source=name, until=asked.until)
                asking.keep(asked)
            except OutboundError as error:
                failures += 1
                self._fail(name, now, str(error))
                await self._pace.sleep(max(EVERY, self._pace.pause(failures, None)))
            except AWAY as error:
                log.debug("metrics cannot be recorded for now", cluster=self._wanted.name, error=type(error).__name__)
                await self._pace.sleep(AWAIT)
            else:
                failures = 0
                self._trouble.pop(name, None)
                self._warn(name, now, asked.warnings)
                if asked.until >= now:
                    await self._pace.sleep(EVERY)

    async def _ask_calls(self, source: Prometheus, redactor: Redactor) -> Never:
        failures, name = 0, f"{source.url} of who calls whom"
        while True:
            now = self._pace.clock()
            try:
                found, warnings = await ask(source, self._calls, redactor, now)
                async with self._engine.begin() as conn:
                    await record(conn, Batch(self._wanted.name, edges=tuple(found[:MOST_EDGES])))
            except OutboundError as error:
                failures += 1
                self._fail(name, now, str(error))
                await self._pace.sleep(max(EVERY, self._pace.pause(failures, None)))
            except AWAY as error:
                log.debug("calls cannot be recorded for now", cluster=self._wanted.name, error=type(error).__name__)
                await self._pace.sleep(AWAIT)
            else:
                failures = 0
                self._warn(name, now, warnings)
                if len(found) > MOST_EDGES:
                    self._fail(name, now, f"{len(found):,} pairs call each other, of which {MOST_EDGES:,} are kept")
                else:
                    self._trouble.pop(name, None)
                await self._pace.sleep(CALLS_EVERY)

    async def _scrape(self, target: Target, redactor: Redactor) -> Never:
        scraped = Scraped(target.labels, redactor, self._kept)
        while True:
            at = self._pace.clock()
            try:
                found = await asyncio.to_thread(scraped.take, await fetch(target), at)
            except (OutboundError, UnreadableError) as error:
                self._fail(target.url, at, str(error))
                found = scraped.miss(at)
            else:
                self._trouble.pop(target.url, None)
            await self._keep(found, at)
            await self._pace.sleep(EVERY)

    # -- what becomes of it

    async def _keep(self, found: list[MetricSeries], at: datetime) -> None:
        """Record it, and what waited before it."""
        self._waiting.append((at, found))
        async with self._one_writes:
            while self._waiting and at - self._waiting[0][0] > WAITING:
                self._waiting.popleft()
            parts = [*self._waiting]
            try:
                async with self._engine.begin() as conn:
                    await measured.record(conn, self._wanted.name, [one for _, part in parts for one in part])
            except AWAY as error:
                log.debug("metrics cannot be recorded for now", cluster=self._wanted.name, error=type(error).__name__)
                return
            for _ in parts:
                self._waiting.popleft()

    def _fail(self, source: str, at: datetime, why: str) -> None:
        since = self._trouble[source][0] if source in self._trouble else at
        if source not in self._trouble:
            log.warning("no metrics for now, trying on", cluster=self._wanted.name, source=source, why=why)
        self._trouble[source] = since, why

    def _warn(self, source: str, at: datetime, warnings: tuple[str, ...]) -> None:
        """What it warned of when it answered last; nothing any more where it answered without a warning."""
        self._warned.pop(source, None)
        if warnings:
            self._warned[source] = at, warnings

    async def _known_redactor(self) -> Redactor:
        while True:
            try:
                async with self._engine.begin() as conn:
                    return await read_redactor(conn)
            except AWAY:
                await self._pace.sleep(AWAIT)


def _started(text: bytes) -> float:
    """When the process that tells this was started, in seconds since 1970; 0 where it does not say, or no time."""
    start = text.find(b"\n" + STARTED.encode() + b" ")
    try:
        found = float(text[start + 1 :].split(b"\n", 1)[0].split(b" ")[1]) if start >= 0 else 0.0
    except (IndexError, ValueError):
        return 0.0
    return found if 0 <= found < MILLISECONDS else 0.0
