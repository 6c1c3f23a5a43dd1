"""Incidents without a culprit among the changes: a database finds another way to its rows, an evening's users stay."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from tests.lab import objects
from tests.lab.api import now
from tests.lab.apps import LATE, App, Container, Problem
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.lab import Lab
from tests.lab.manifests import uid_of
from tests.lab.network import backends
from tests.lab.scenario import family

ROWS, CORES = 2_400_000.0, 8.0
"""Of a table as it was counted last, and processors of its database."""
BY_INDEX_M, BY_SCAN_M = 12.0, 900.0
"""What one look-up takes of a processor, in thousandths of a second: by the index, and through all rows."""
OTHERS_M = 1_500.0
"""What all else in the database uses of its processors, likewise, a second."""
STATEMENT_SECONDS, PILES_UP_SECONDS, SLOWEST = 2.0, 6.0, 14.0
POOL, REPLICAS_OF_APP = 12, 3
"""Connections of each process that looks something up."""


@dataclass
class _Planner:
    """A database that counts a table's rows now and then, and goes by that ``since`` when looking something up."""

    looked_up: float
    """A second."""
    lag: float
    since: float = 0.0

    def scans(self) -> bool:
        return bool(self.since) and now().timestamp() > self.since + self.lag

    def slower(self) -> float:
        """How much longer all takes, as more is asked for than there are processors, and waits."""
        used = (self.looked_up * (BY_SCAN_M if self.scans() else BY_INDEX_M) + OTHERS_M) / 1000
        waited = (now().timestamp() - self.since - self.lag) / PILES_UP_SECONDS if self.scans() else 0.0
        return min(SLOWEST, max(1.0, used / CORES * (1 + waited)))

    def read(self) -> float:
        """Rows that are read one after another, a second."""
        return min(self.looked_up, CORES * 1000 / BY_SCAN_M) * ROWS if self.scans() else 900.0

    def active(self) -> float:
        """Queries that are being answered."""
        waiting = self.looked_up * self.seconds(scanned=self.scans())
        return round(min(POOL * REPLICAS_OF_APP, waiting)) + 2.0

    def seconds(self, *, scanned: bool) -> float:
        return (BY_SCAN_M if scanned else BY_INDEX_M) / 1000 * self.slower()


@family(
    "A database counts the rows of a table now and then by itself, from a sample, to choose how it looks something up."
    " After a busy week the sample has hardly one of the value that all ask for, and it reads all of the table"
    " each time from then on: its processors are busy, and all apps that share it are late.",
    culprit=False,
    joined=60,
)
async def another_plan(lab: Lab) -> AsyncIterator[None]:
    """As many tell of PostgreSQL, whose plan for a query of old was another one after an analysis by itself."""
    namespace, name, other = lab.rng.choice(
        (("shop", "open-orders", "invoices"), ("payments", "transfers", "mandates"), ("media", "watchlist", "ratings"))
    )
    store, planner = f"{name}-db", _Planner(lab.rng.uniform(16, 22), lab.lag)
    await lab.app(namespace, store, like=App("", serves=False), kind="StatefulSet", replicas=1, tag="17.4")

    def gives_up(usual: float) -> float:
        """The share of an app's requests whose query takes longer than a statement may."""
        return max(0.0, min(0.6, 1 - STATEMENT_SECONDS / usual))

    like = App("", upstreams=((namespace, store),), asked=lambda: 1.1 * planner.looked_up)
    like.latency = lambda _: min(STATEMENT_SECONDS, planner.seconds(scanned=planner.scans()))
    like.failing = lambda _: gives_up(planner.seconds(scanned=planner.scans()))
    await lab.apply(objects.config_map(namespace, name, STATEMENT_TIMEOUT_MS="2000", POOL_SIZE=str(POOL)))
    await lab.app(namespace, name, like=like, replicas=REPLICAS_OF_APP, tag="8.1.0", config=name)
    like = App("", upstreams=((namespace, store),), asked=lambda: 12.0)
    like.latency = lambda _: min(STATEMENT_SECONDS, 0.08 * planner.slower())
    like.failing = lambda _: gives_up(0.2 * planner.slower())
    await lab.app(namespace, other, like=like, replicas=2, tag="3.3.0")
    await rolled(lab, namespace, name, "8.1.0")
    await lab.until(lambda: len(backends(lab.world, namespace, other)) == 2)
    await publish(lab, namespace, name)
    lab.reserve(namespace, other, store)
    table = name.replace("-", "_")
    told = {"namespace": "monitoring", "service": "postgres-exporter", "server": store}
    lab.measure("pg_stat_user_tables_seq_tup_read", lab.adding_up(planner.read), "gauge", **told, relname=table)
    counted = lambda: 41.0 + bool(planner.since)  # noqa: E731
    lab.measure("pg_stat_user_tables_autoanalyze_count", counted, "gauge", **told, relname=table)
    lab.measure("pg_stat_activity_count", planner.active, "gauge", **told, state="active")
    lab.alert_slow(namespace, name)
    lab.alert_errors(namespace, name)
    lab.alert_slow(namespace, other)
    await lab.until(lab.is_well)
    yield
    await lab.pause(lab.rng.uniform(6, 14))
    planner.since = now().timestamp()


MOST, OTHER_FILES = 1024, 38
"""Files that a process may have open, as its image comes, and how many it has beside the connections of its users."""
USERS, REPLICAS = 2500.0, 4


@dataclass
class _Sockets:
    """Whoever watches keeps a connection open; the processes that are ready share those that come."""

    lab: Lab
    namespace: str
    name: str
    users: float = USERS
    opened: dict[str, float] = field(default_factory=dict)
    """Connections of each process, with those that wait for it to take them, by uid of its pod."""

    def check(self, container: Container) -> Problem | None:
        """A process that has no file left takes no connection, of a probe neither."""
        full = self.opened.get(uid_of(container.pod), 0.0) + OTHER_FILES >= MOST
        return Problem("unready", LATE) if full else None

    def files(self) -> float:
        """The most that any process has open."""
        return float(round(min(MOST, max(self.opened.values(), default=0.0) + OTHER_FILES)))

    def connected(self) -> float:
        return float(round(sum(min(one, MOST - OTHER_FILES) for one in self.opened.values())))

    async def run(self) -> None:
        while True:
            there = {uid_of(pod) for pod in self.lab.world["Pod"].values()}
            ready = [uid_of(pod) for pod in backends(self.lab.world, self.namespace, self.name)]
            self.opened = {uid: one for uid, one in self.opened.items() if uid in there}
            missing = self.users - sum(self.opened.values())
            for uid in ready if missing > 0 else ():
                self.opened[uid] = self.opened.get(uid, 0.0) + missing / len(ready)
            await asyncio.sleep(0.5)

    async def grow(self, most: float) -> None:
        while self.users < most:
            self.users += 90
            await asyncio.sleep(1)


@family(
    "Each user of a page keeps a connection open, to be told what happens. On the evening of a final more come"
    " than ever: processors and memory are idle, and one process after another has as many files open as it may. It"
    " takes no connection any more, of its probe neither, and those who come go to the next.",
    culprit=False,
    joined=60,
)
async def one_too_many(lab: Lab) -> AsyncIterator[None]:
    """As many tell of "too many open files", where a limit of old was far above what there was."""
    namespace, name, store = lab.rng.choice(
        (
            ("media", "live-scores", "score-bus"),
            ("shop", "auction-feed", "bid-bus"),
            ("search", "alerts-feed", "alert-bus"),
        )
    )
    team, sockets = lab.rng.choice(("alice", "carol", "argocd")), _Sockets(lab, namespace, name)
    await lab.app(namespace, store, like=App("", serves=False), kind="StatefulSet", replicas=1, tag="2.10.7")
    await lab.apply(objects.config_map(namespace, name, HEARTBEAT_SECONDS="25", LOG_LEVEL="info"))
    like = App("", upstreams=((namespace, store),), check=sockets.check, asked=lambda: sockets.users / 200)
    await lab.app(namespace, name, like=like, replicas=REPLICAS, tag="6.0.3", config=name)
    await rolled(lab, namespace, name, "6.0.3")
    await lab.until(lambda: len(backends(lab.world, namespace, name)) == REPLICAS)
    await publish(lab, namespace, name)
    lab.reserve(namespace, store)
    told = {"namespace": namespace, "service": name}
    lab.measure("live_connections", sockets.connected, "gauge", **told)
    lab.measure("process_open_fds_max", sockets.files, "gauge", **told)
    lab.measure("process_max_fds", lambda: float(MOST), "gauge", **told)
    lab.alert_lacking(namespace, name)
    lab.alert_ingress_errors(namespace, namespace)
    lab.start(sockets.run())
    await lab.until(lambda: sockets.connected() >= USERS - 10)
    await lab.until(lab.is_well)
    yield
    await lab.pause(lab.rng.uniform(1, 4))
    lab.start(sockets.grow(lab.rng.uniform(4700, 5600)))
    await lab.pause(lab.rng.uniform(3, 7))
    seconds = lab.rng.choice(("30", "40"))
    await lab.edit(team, "ConfigMap", namespace, name, {"data": {"HEARTBEAT_SECONDS": seconds}})
