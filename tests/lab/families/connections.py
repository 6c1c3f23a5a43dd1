"""What was told of connections to a database: all wait in one pool, one process has none left, more are kept."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable

from tests.lab import objects
from tests.lab.alerts import pods
from tests.lab.apps import App, Container, Problem
from tests.lab.lab import Lab
from tests.lab.manifests import is_ready, uid_of
from tests.lab.scenario import family

CLIENTS = 600
"""How many clients the poolers take in all."""
RETRIES, WAITING_SECONDS = 10, 20.0
"""How often a deletion is asked for again, and for how long a query waits until its client is sent away."""
POOL = 20
"""Connections to the database that a process has for all that it does."""
THREADS, QUERY_SECONDS = 40, 0.35
"""How many requests a process works on at most, and for how long each needs a connection."""


@family(
    "An account is deleted by a partner's request, with all that refers to it, and ten times again while that goes on:"
    " what waits for its locks keeps its place in the poolers that all share, until they take nobody any more.",
    culprit=False,
    joined=17,
)
async def delete_cascade(lab: Lab) -> AsyncIterator[None]:
    """As Inngest tells of 18 September 2026."""
    namespace, asked, worker = lab.rng.choice(
        (("payments", "events-api", "executor"), ("search", "ingest-api", "runner"), ("media", "jobs-api", "encoder"))
    )
    deletions, waiting = [0], [0.0]
    scheduled = lab.rng.choice((14.0, 18.0, 22.0))

    def full() -> bool:
        return waiting[0] >= CLIENTS * 0.98

    def check(container: Container) -> Problem | None:
        """It ends where it gets no connection as it starts, or as it takes its next piece of work."""
        refused = "FATAL: no more connections allowed (max_client_conn) (SQLSTATE 08P01)"
        return Problem("crash", refused) if full() else None

    async def wait() -> None:
        """Each deletion that waits holds more rows, and whoever needs one of them waits as well, for so long."""
        while True:
            await asyncio.sleep(0.5)
            coming = 6.0 * deletions[0] * lab.rng.uniform(0.8, 1.2)
            waiting[0] = min(CLIENTS, waiting[0] * (1 - 0.5 / WAITING_SECONDS) + 0.5 * coming)

    async def delete() -> None:
        """The partner's server asks again as it is not answered."""
        deletions[0] = 1
        for _ in range(RETRIES):
            await asyncio.sleep(lab.rng.uniform(0.6, 2.2))
            deletions[0] += 1

    def slow(container: Container) -> float:
        return 4.0 * waiting[0] / CLIENTS

    def refused(container: Container) -> float:
        return 0.85 if full() else 0.0

    await lab.app("platform", "pgbouncer", like=App("", serves=False), replicas=2)
    for place, name in ((namespace, asked), ("shop", "accounts"), ("platform", "marketplace")):
        await lab.app(place, name, like=App("", latency=slow, failing=refused), replicas=3)
    await lab.app(namespace, worker, like=App("", check=check, serves=False), replicas=3)
    runs = lab.adding_up(lambda: scheduled * (0.04 if full() else 1 - 0.3 * waiting[0] / CLIENTS))
    lab.measure("runs_scheduled_total", runs, "counter", namespace=namespace, service=worker)
    clients = lambda: 30 + waiting[0]  # noqa: E731
    lab.measure("pgbouncer_used_clients", clients, namespace="platform", service="pgbouncer")
    usual = lab.rate(lambda: int(runs()), scheduled / 2, seconds=8)
    summary = f"{namespace}/{worker} schedules less than half of the usual runs"
    lab.alert("RunSchedulingVolumeLow", _no_longer(usual), summary, 6, namespace=namespace, service=worker)
    lab.alert_errors(namespace, asked)
    lab.start(wait())
    yield
    lab.start(delete())


def _no_longer(holds: Callable[[], bool]) -> Callable[[], bool]:
    """Whether something has held, and does not any more."""
    held: list[bool] = []

    def ended() -> bool:
        now = holds()
        held.extend([now] if now else [])
        return bool(held) and not now

    return ended


@family(
    "Many parallel edits of one thing come at once, and their queries wait for each other for ever: one process has no"
    " connection to its database left, its probe does not look there, and what is always sent to it hangs.",
    culprit=False,
    joined=17,
)
async def deadlocked_pool(lab: Lab) -> AsyncIterator[None]:
    """As Val Town tells of 30 December 2024."""
    namespace, name = lab.rng.choice((("media", "functions"), ("search", "evaluator"), ("shop", "storefronts")))
    locked: defaultdict[str, int] = defaultdict(int)  # connections that wait for ever, by uid of their process's pod

    def taken(container: Container) -> float:
        return min(1.0, locked[uid_of(container.pod)] / POOL)

    def failing(container: Container) -> float:
        """Where no connection is left most requests are never answered; some have what they need already."""
        return 0.7 if taken(container) >= 1 else 0.0

    def latency(container: Container) -> float:
        """Whoever needs a connection waits for the others."""
        share = taken(container)
        return 8.0 if share >= 1 else 0.4 * share**3

    async def edit() -> None:
        """All edits of one thing go to the same process, as whatever is warm there is to be used again."""
        ready = [pod for pod in pods(lab.world, namespace, name) if is_ready(pod)]
        process = uid_of(lab.rng.choice(ready))
        while locked[process] < POOL:
            await asyncio.sleep(lab.rng.uniform(0.5, 1.5))
            locked[process] += lab.rng.choice((2, 2, 3))

    app = App("", failing=failing, fails_with=lambda container: "504", latency=latency)
    await lab.app(namespace, name, like=app, replicas=4)
    lab.alert_slow(namespace, name)
    lab.alert_errors(namespace, name, 0.1)
    yield
    lab.start(edit())


@family(
    "An app is opened to all of its users by a ConfigMap: it asks another one far more often, each of whose threads"
    " keeps a connection once it has needed one, and the database is told to have more of them than it should.",
    joined=17,
)
async def kept_connections(lab: Lab) -> AsyncIterator[None]:
    """As a team of the Department of Veterans Affairs tells of 16 November 2017; no user saw anything of it."""
    namespace, name, reader = lab.rng.choice(
        (("media", "documents", "reader"), ("payments", "statements", "inbox"), ("search", "archive", "browser"))
    )
    database, threshold = f"{namespace}-{name}-prod", 70
    kept: defaultdict[str, int] = defaultdict(int)  # by uid of a pod
    share = [0.1]

    def opened() -> float:
        """For how many of the users the reader is, as its ConfigMap says."""
        data = lab.world["ConfigMap"].get((namespace, f"{reader}-rollout"), {}).get("data", {})
        return float(data.get("READER_PERCENT", "10")) / 100

    def asked() -> float:
        return 12 + 260 * share[0]

    async def use() -> None:
        """Users come once they may; a thread that works needs a connection, and nobody takes it back."""
        while True:
            await asyncio.sleep(1)
            share[0] += (opened() - share[0]) * 0.12
            there = [uid_of(pod) for pod in pods(lab.world, namespace, name) if is_ready(pod)]
            for uid in there:
                busy = asked() / len(there) * QUERY_SECONDS * lab.rng.uniform(0.6, 1.5)
                kept[uid] = min(THREADS, max(kept[uid], round(busy)))

    def connections() -> int:
        return sum(kept[uid_of(pod)] for pod in pods(lab.world, namespace, name))

    await lab.apply(objects.config_map(namespace, f"{reader}-rollout", READER_PERCENT="10"))
    await lab.app(namespace, name, like=App("", asked=asked), replicas=4)
    readers = App("", upstreams=((namespace, name),), asked=lambda: 8 + 90 * share[0])
    await lab.app(namespace, reader, like=readers, config=f"{reader}-rollout", replicas=3)
    lab.measure(
        "aws_rds_database_connections_average",
        lambda: float(connections()),
        namespace="monitoring",
        service="cloudwatch-exporter",
        dimension_DBInstanceIdentifier=database,
    )
    summary = f"Average DatabaseConnections GreaterThanThreshold {threshold}.0 for DBInstanceIdentifier {database}"
    high = lambda: connections() > threshold  # noqa: E731
    lab.alert("DatabaseConnectionsHigh", high, summary, 5, dbinstance_identifier=database)
    lab.start(use())
    yield
    by = lab.rng.choice(("alice", "argocd", "carol"))
    body = {"data": {"READER_PERCENT": "100"}}
    await lab.culprit(by, "update", "ConfigMap", namespace, f"{reader}-rollout", body)
