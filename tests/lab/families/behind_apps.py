"""What is behind apps: a queue whose consumers are away, a cache that is empty, calls that are repeated, a database."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from math import exp

from tests.lab.api import now
from tests.lab.apps import App, Container
from tests.lab.families.between import publish
from tests.lab.families.busy_hours import PERSONS, amid, stir, team_app
from tests.lab.families.by_annotation import rolled
from tests.lab.lab import Lab
from tests.lab.manifests import environment
from tests.lab.network import backends
from tests.lab.scenario import family

STEP = 0.5


def at_work(lab: Lab, app: App) -> Iterator[Container]:
    """The containers of an app that run and are well."""
    return (one.container for one in lab.kubelets.running() if one.app is app and one.problem is None)


@dataclass
class _Queue:
    """What comes is put there, and taken by whoever consumes, in the order in which it came."""

    lab: Lab
    consumer: App
    comes: float
    each_takes: float
    waiting: float = 0.0

    @property
    def consumers(self) -> int:
        return sum(1 for _ in at_work(self.lab, self.consumer))

    async def run(self) -> None:
        while True:
            await asyncio.sleep(STEP)
            more = self.comes * self.lab.rng.uniform(0.9, 1.1) - self.each_takes * self.consumers
            self.waiting = max(0.0, self.waiting + STEP * more)

    def taken(self) -> float:
        """A second."""
        able = self.each_takes * self.consumers
        return able if self.waiting else min(able, self.comes)


@family(
    "Before the maintenance of what they write to, somebody scales the consumers of a queue down. The maintenance is"
    " over soon, nobody scales them up again, and what is to be done grows and grows.",
    joined=67,
)
async def consumers_left_down(lab: Lab) -> AsyncIterator[None]:
    """As is found when a customer asks where their order is."""
    namespace, intake, name, store, bus = lab.rng.choice(
        (
            ("shop", "order-intake", "order-dispatch", "warehouse", "orders-bus"),
            ("payments", "payout-api", "payout-sender", "settlements", "payouts-bus"),
            ("media", "upload-api", "transcoder", "film-archive", "uploads-bus"),
        )
    )
    by, replicas, left = lab.rng.choice(PERSONS), lab.rng.choice((4, 5)), lab.rng.choice((0, 0, 1))
    place = (namespace, bus)
    consumer = App("", upstreams=(place, (namespace, store)), serves=False)
    await lab.app(*place, like=App("", serves=False), kind="StatefulSet", replicas=3, tag="4.0.5")
    await rolled(lab, *place, "4.0.5")
    await team_app(lab, namespace, store, App(""), replicas=2, tag="12.3.0")
    await team_app(lab, namespace, name, consumer, replicas=replicas, tag="1.18.2")
    sender = App("", upstreams=(place,), asked=lambda: 24.0)
    await team_app(lab, namespace, intake, sender, replicas=3, tag="6.5.0")
    queue = _Queue(lab, consumer, 24.0, 36.0 / replicas)
    lab.start(queue.run())
    told = {"namespace": namespace, "service": bus, "queue": f"{name}.work"}
    lab.measure("rabbitmq_queue_messages_ready", lambda: round(queue.waiting), **told)
    lab.measure("rabbitmq_queue_consumers", lambda: queue.consumers, **told)
    delivered = lab.adding_up(queue.taken)
    lab.measure("rabbitmq_queue_messages_delivered_total", delivered, "counter", **told)
    summary = f"more than 400 messages wait in the queue {name}.work of {namespace}/{bus}"
    lab.alert("QueueBacklogTooLong", lambda: queue.waiting > 400, summary, 5, **told)
    await lab.until(lab.is_well)
    yield
    body = {"spec": {"replicas": left}}

    async def strike() -> None:
        """And what it was done for."""
        await lab.culprit(by, "update", "Deployment", namespace, name, body)
        await lab.pause(lab.rng.uniform(3, 5))
        await lab.roll(by, namespace, store, "12.3.1")

    await amid(lab, strike, namespace, intake)


@dataclass
class _Cached:
    """A cache before a database: what a new process of it does not hold yet, the database is asked."""

    lab: Lab
    cache: App
    reads: float
    others: float = 7.0
    stands: float = 30.0
    """Queries a second of other kinds, and how many in all are answered in their time."""
    filled: set[str] = field(default_factory=set)
    """Pods of the cache that have run for days."""

    def _held(self, container: Container) -> float:
        is_old = container.pod["metadata"]["uid"] in self.filled
        return 0.95 if is_old else 0.95 * (1 - exp(-container.seconds / 45))

    def hits(self) -> float:
        """The share of what is read that is found there."""
        held = [self._held(one) for one in at_work(self.lab, self.cache)]
        return sum(held) / len(held) if held else 0.0

    def queries(self) -> float:
        return self.others + self.reads * (1 - self.hits())

    def waits(self, _: Container) -> float:
        """Seconds for the database, beside the usual."""
        return min(2.5, max(0.0, 3 * (self.queries() / self.stands - 0.85)))

    def fails(self, _: Container) -> float:
        """Queries that are given up."""
        return max(0.0, 0.8 * (1 - self.stands / self.queries()))


@family(
    "A cache that keeps nothing on a disk is rolled out anew in the middle of the day. Its new process begins with"
    " nothing, and for as long as it fills the database is asked for all that is read, more than it stands.",
    joined=67,
)
async def cache_starts_cold(lab: Lab) -> AsyncIterator[None]:
    """As is told of each cache that has grown from a help to a need."""
    namespace, name, front, other = lab.rng.choice(
        (
            ("shop", "catalogue-api", "shop-page", "stock-keeper"),
            ("media", "profile-api", "home-page", "playlists"),
            ("search", "document-api", "reader-page", "annotations"),
        )
    )
    cache, store, word = f"{name}-cache", f"{name}-db", lab.rng.choice(("image", "memory", "settings"))
    by = lab.rng.choice(("flux", "argocd", "ci", *PERSONS))
    kept = App("", serves=False)
    cached = _Cached(lab, kept, lab.rng.uniform(52, 64))
    await lab.app(namespace, store, like=App("", serves=False), kind="StatefulSet", replicas=1, tag="16.4.0")
    settings = [{"name": "MAXMEMORY_POLICY", "value": "allkeys-lru"}]
    await lab.app(namespace, cache, like=kept, replicas=1, tag="7.2.4", env=settings)
    await rolled(lab, namespace, store, "16.4.0")
    await rolled(lab, namespace, cache, "7.2.4")
    cached.filled = {str(one.pod["metadata"]["uid"]) for one in at_work(lab, kept)}
    place = (namespace, store)
    reader = App("", upstreams=(place,), asked=lambda: cached.reads, failing=cached.fails, latency=cached.waits)
    await lab.app(
        *(namespace, name),
        like=reader,
        replicas=3,
        tag="4.7.1",
        env=[{"name": "CACHE_URL", "value": f"redis://{cache}:6379/0"}],
    )
    await rolled(lab, namespace, name, "4.7.1")
    user = App("", upstreams=(place,), failing=cached.fails, latency=cached.waits)
    await team_app(lab, namespace, other, user, replicas=2, tag="2.2.0")
    await team_app(lab, namespace, front, App("", upstreams=((namespace, name),)), replicas=2, tag="11.0.3")
    await publish(lab, namespace, front)
    lab.reserve(namespace, name, cache, store)
    told = {"namespace": namespace, "service": cache}
    found = lab.adding_up(lambda: cached.reads * cached.hits())
    missed = lab.adding_up(lambda: cached.reads * (1 - cached.hits()))
    lab.measure("redis_keyspace_hits_total", found, "counter", **told)
    lab.measure("redis_keyspace_misses_total", missed, "counter", **told)
    done = lab.adding_up(lambda: min(cached.stands, cached.queries()))
    lab.measure("pg_stat_database_xact_commit_total", done, "counter", namespace=namespace, service=store, datname=name)
    lab.alert_slow(namespace, name)
    lab.alert_errors(namespace, name)
    lab.alert_errors(namespace, other)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)
    yield

    async def strike() -> None:
        limits = {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "512Mi"}}
        if word == "image":
            await lab.roll(by, namespace, cache, "7.2.5", culprit=True)
        elif word == "memory":
            await lab.roll(by, namespace, cache, "7.2.4", culprit=True, resources=limits)
        else:
            env = [{"name": "MAXMEMORY_POLICY", "value": "allkeys-lfu"}]
            await lab.roll(by, namespace, cache, "7.2.4", culprit=True, env=env)

    await amid(lab, strike, namespace, front, other)


RETRIES = "HTTP_CLIENT_MAX_RETRIES"


@dataclass
class _Called:
    """An app that has so much to do as its callers ask, and again for each answer that failed."""

    lab: Lab
    called: App
    caller: App
    wanted: float
    each_stands: float
    trouble: float = 0.0
    failed: float = 0.0
    offered: float = 0.0

    def _tries(self) -> float:
        """For one answer, in the mean over who calls."""
        there = [one for one in at_work(self.lab, self.caller) if one.seconds >= self.lab.lag]
        retries = [int(environment(one.spec).get(RETRIES, "1")) for one in there]
        each = [sum(self.failed**turn for turn in range(1 + number)) for number in retries]
        return sum(each) / len(each) if each else 1.0

    async def run(self) -> None:
        """What is more than it stands is given up by who waits for it, and was work all the same."""
        while True:
            await asyncio.sleep(STEP)
            self.offered = self.wanted * self._tries()
            stands = self.each_stands * max(1, sum(1 for _ in at_work(self.lab, self.called)))
            crowded = 1 - (stands / self.offered) ** 2 if self.offered > stands else 0.0
            self.failed = min(0.97, max(crowded, self.trouble))

    async def blips(self) -> None:
        """A small trouble of its own, as ever: it reads its lists anew."""
        while True:
            await asyncio.sleep(self.lab.rng.uniform(15, 22))
            self.trouble = self.lab.rng.uniform(0.28, 0.34)
            await asyncio.sleep(2.5)
            self.trouble = 0.0


@family(
    "So that users notice less of small troubles in an app that is called, its caller is told to try six times or more"
    " where it tried twice. At the next small trouble what is repeated is itself too much: it stays, and grows.",
    joined=67,
)
async def more_retries(lab: Lab) -> AsyncIterator[None]:
    """As all accounts of a storm of retries have it."""
    namespace, caller, called, front = lab.rng.choice(
        (
            ("shop", "checkout-flow", "tax-rates", "shop-page"),
            ("payments", "transfer-api", "sanctions-list", "bank-page"),
            ("search", "query-planner", "synonyms", "search-page"),
        )
    )
    by, retries = lab.rng.choice(("argocd", "flux", "ci", *PERSONS)), lab.rng.choice((6, 7, 8))
    minor = lab.rng.randrange(4, 30)
    asks = App("", upstreams=((namespace, called),), asked=lambda: 26.0)
    answers = App("", capacity=60.0, fails_with=lambda _: "503")
    both = _Called(lab, answers, asks, 30.0, 11.4)
    answers.asked = lambda: both.offered or both.wanted
    answers.failing = lambda _: both.failed
    answers.latency = lambda _: 1.5 * max(0.0, both.failed - both.trouble)
    await team_app(lab, namespace, called, answers, replicas=3, tag="3.3.0")
    env = [{"name": RETRIES, "value": "1"}]
    await lab.app(namespace, caller, like=asks, replicas=3, tag=f"8.{minor}.0", env=env)
    await rolled(lab, namespace, caller, f"8.{minor}.0")
    await team_app(lab, namespace, front, App("", upstreams=((namespace, caller),)), replicas=2, tag="5.0.1")
    await publish(lab, namespace, front)
    lab.reserve(namespace, caller)
    lab.start(both.run())
    for name in (called, caller):
        lab.alert_errors(namespace, name, 0.25)
    lab.alert_ingress_errors(namespace, namespace, 0.25)
    await lab.until(lab.is_well)
    lab.start(both.blips())
    yield
    tag = f"8.{minor}.{lab.rng.choice((0, 0, 1))}"
    env = [{"name": RETRIES, "value": str(retries)}]
    await amid(
        lab,
        lambda: lab.roll(by, namespace, caller, tag, culprit=True, env=env),
        *(namespace, called, front),
    )


@dataclass
class _Failover:
    """A database outside that is served by another machine from a moment on: who was connected before is not told."""

    lab: Lab
    at: float = 0.0
    lasts: float = 8.0

    def fails(self, container: Container) -> float:
        """What is asked while nobody serves, and afterwards by connections of before, which die one by one."""
        since = now().timestamp() - self.at if self.at else -1.0
        if since < 0:
            return 0.0
        if since < self.lasts:
            return 0.9
        return 0.7 * exp(-(since - self.lasts) / 50) if container.seconds > since - self.lasts else 0.0

    def waits(self, container: Container) -> float:
        return 1.6 * self.fails(container)

    def connections(self, app: App) -> float:
        """That the database has of an app."""
        return sum(10 * (1 - self.fails(one)) for one in at_work(self.lab, app))


@family(
    "No culprit. The provider of the managed database patches it in the window agreed on, and another machine takes"
    " over. Apps go on to use the connections that they have, at whose other end nobody is any more.",
    culprit=False,
    joined=67,
)
async def failover_by_provider(lab: Lab) -> AsyncIterator[None]:
    """As users of managed databases tell whose pools do not ask whether a connection is alive."""
    namespace, first, second, front, database = lab.rng.choice(
        (
            ("shop", "orders-api", "returns-api", "orders-page", "orders"),
            ("payments", "accounts-api", "statements-api", "bank-page", "accounts"),
            ("media", "library-api", "ratings-api", "library-page", "library"),
        )
    )
    host, failover = f"{database}-db.c7k2.eu-1.rds.cloud.example", _Failover(lab, lasts=lab.rng.uniform(5, 9))
    shown = App("", upstreams=((namespace, first), (namespace, second)))
    users = [App("", abroad=(host,), failing=failover.fails, latency=failover.waits) for _ in range(2)]
    await team_app(lab, namespace, first, users[0], replicas=3, tag="7.12.0")
    await team_app(lab, namespace, second, users[1], replicas=2, tag="3.1.2")
    await team_app(lab, namespace, front, shown, replicas=2, tag="10.4.0")
    await lab.until(lambda: backends(lab.world, namespace, front))
    await publish(lab, namespace, front)
    told = {"namespace": "monitoring", "service": "cloudwatch-exporter", "dbinstance_identifier": f"{database}-db"}
    opened = lambda: round(sum(map(failover.connections, users)))  # noqa: E731
    lab.measure("aws_rds_database_connections_average", opened, **told)
    lab.alert_errors(namespace, first)
    lab.alert_errors(namespace, second)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)
    yield
    for _ in range(lab.rng.choice((0, 1, 1))):
        await stir(lab, namespace, front, second)
    await lab.pause(lab.rng.uniform(5, 12))
    failover.at = now().timestamp()
