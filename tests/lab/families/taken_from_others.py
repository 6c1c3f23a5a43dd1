"""Taken from others: connections that are opened and never closed, and a backfill that takes what all share."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

from tests.lab import objects
from tests.lab.api import Json
from tests.lab.apps import App, Container
from tests.lab.families.by_annotation import rolled
from tests.lab.families.not_in_mind import TEAMS, change_page, set_before
from tests.lab.lab import Lab
from tests.lab.manifests import uid_of
from tests.lab.network import backends
from tests.lab.scenario import family

# -- connections


@dataclass(frozen=True)
class _Engine:
    """A kind of database, and what its exporter calls what it has."""

    suffix: str
    tag: str
    connected: str
    limit: str
    alertname: str
    most: int


ENGINES = (
    _Engine("db", "16.4", "pg_stat_activity_count", "pg_settings_max_connections", "PostgresqlTooManyConnections", 200),
    _Engine(
        "mysql",
        "8.4.3",
        "mysql_global_status_threads_connected",
        "mysql_global_variables_max_connections",
        "MysqlTooManyConnections",
        240,
    ),
    _Engine("redis", "7.4.2", "redis_connected_clients", "redis_config_maxclients", "RedisTooManyConnections", 250),
)
RESERVED = 3
"""Of all connections, those that are kept for who looks after the server."""
LIVES_SECONDS, NEEDED = 25.0, 0.8
"""For how long a pool keeps a connection, and the share of a pool that its requests need."""


@dataclass
class _Slots:
    """A server's connections: those of pools, which are made anew now and then, and those that nobody closes."""

    lab: Lab
    most: int
    pools: dict[str, int]
    """How many connections a process keeps, by app."""
    leaky: tuple[str, str]
    """The app whose processes of one version open one for each request of some, and that version."""
    opens: float
    """A second, by all processes of that version where there is no other."""
    held: dict[str, int] = field(default_factory=dict)
    kept: dict[str, float] = field(default_factory=dict)
    """What pools have, and what was never closed, by process."""

    def free(self) -> float:
        return max(0.0, self.most - RESERVED - self.used())

    def used(self) -> float:
        return sum(self.held.values()) + sum(self.kept.values())

    def opens_more(self, container: Container) -> bool:
        name = str(container.spec["name"])
        return (name, container.tag) == self.leaky and container.seconds >= self.lab.lag

    async def run(self) -> None:
        rng = self.lab.kubelets.rng
        while True:
            await asyncio.sleep(0.5)
            there = {
                f"{uid_of(one.container.pod)} {one.started}": one.container
                for one in self.lab.kubelets.running()
                if one.app.image.rsplit("/", 1)[1] in self.pools
            }
            self.held = {process: self.held.get(process, 0) for process in there}
            self.kept = {process: self.kept.get(process, 0.0) for process in there}
            of_app = sum(str(one.spec["name"]) == self.leaky[0] for one in there.values())
            for process in rng.sample(sorted(there), len(there)):  # whoever asks first is given one
                container = there[process]
                self.held[process] -= sum(rng.random() < 0.5 / LIVES_SECONDS for _ in range(self.held[process]))
                wanted = self.pools[str(container.spec["name"])] - self.held[process]
                self.held[process] += int(min(wanted, self.free()))
                if self.opens_more(container):
                    self.kept[process] += min(0.5 * self.opens / of_app * rng.uniform(0.6, 1.4), self.free())

    def lacks(self, container: Container) -> float:
        """Which share of what a process asks for with connections of its pool waits for one in vain."""
        uid, size = uid_of(container.pod), self.pools[str(container.spec["name"])]
        had = [many for process, many in self.held.items() if process.startswith(uid)]
        return max(0.0, 1 - had[-1] / (NEEDED * size)) if had else 0.0


@family(
    "A new version of an app opens a connection of its own for each request of one kind, and forgets to close it. They"
    " add up until the database has none left, for this app and for all others that use it.",
    joined=93,
)
async def opened_and_kept(lab: Lab) -> AsyncIterator[None]:
    """As those tell whose release had been well for as long as it took to fill the list of connections."""
    namespace, name, front, other = lab.rng.choice(
        (
            ("shop", "order-search", "search-orders", "order-reports"),
            ("payments", "payout-status", "status-page", "payout-reports"),
            ("media", "view-counts", "counts-page", "view-reports"),
            ("search", "click-rates", "rates-view", "click-reports"),
        )
    )
    engine, minor, part = lab.rng.choice(ENGINES), lab.rng.randrange(2, 30), lab.rng.uniform(0.2, 0.35)
    by, place, asked = lab.rng.choice(("ci", "argocd", "flux")), f"{namespace}-{engine.suffix}", 22.0
    old, new, pools = f"7.{minor}.3", f"7.{minor + 1}.0", {name: 10, other: 8}
    slots = _Slots(lab, engine.most, pools, (name, new), asked * part)

    def fails(container: Container) -> float:
        """Requests of that kind get no connection once there is none, all others while their pool has too few."""
        apart = part if slots.opens_more(container) else 0.0
        return apart * (slots.free() < 1) + (1 - apart) * slots.lacks(container)

    await lab.app(namespace, place, like=App("", serves=False), kind="StatefulSet", replicas=1, tag=engine.tag)
    await rolled(lab, namespace, place, engine.tag)
    await lab.until(lambda: backends(lab.world, namespace, place))
    to = ((namespace, place),)
    for one, tag, replicas, like in (
        (name, old, 3, App("", upstreams=to, asked=lambda: asked, failing=fails)),
        (other, "3.0.4", 2, App("", upstreams=to, asked=lambda: 9.0, failing=slots.lacks)),
    ):
        await lab.apply(objects.config_map(namespace, one, LOG_LEVEL="info", POOL_SIZE=str(pools[one])))
        await lab.app(namespace, one, like=like, replicas=replicas, tag=tag, config=one)
        await rolled(lab, namespace, one, tag)
    lab.start(slots.run())
    await set_before(lab, namespace, front, name)
    lab.reserve(namespace, place)
    told = {"namespace": namespace, "service": place}
    lab.measure(engine.connected, slots.used, **told)
    lab.measure(engine.limit, lambda: float(engine.most), **told)
    many = lambda: slots.used() > 0.8 * engine.most  # noqa: E731
    lab.alert(engine.alertname, many, f"more than 80% of the connections of {namespace}/{place} are used", 3, **told)
    for one in (name, other):
        lab.alert_errors(namespace, one)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(4, 9))
        await change_page(lab, namespace, front)
        await lab.pause(lab.rng.uniform(3, 8))
        await lab.edit(lab.rng.choice((*TEAMS, "flux")), "ConfigMap", namespace, other, {"data": {"LOG_LEVEL": "warn"}})

    yield
    await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, other, "3.0.5")
    await lab.pause(lab.rng.uniform(6, 12))
    await lab.roll(by, namespace, name, new, culprit=True)
    lab.start(afterwards())


# -- a backfill

WORKERS, EACH_READS = 4, 14.0
"""Pods of the Job at once, and what each of them asks or sends a second."""
STANDS = 50.0
"""Queries a second that the database answers in its usual time."""
EACH_HANDLES, USUAL = 7.0, 19.0
"""Messages a second that a worker of the queue handles, and that come as a rule."""
LATE_SECONDS = 8.0


@dataclass
class _Shared:
    """What more comes to than it stands: the rest waits."""

    lab: Lab
    comes: Callable[[], float]
    stands: Callable[[], float]
    behind: float = 0.0

    async def run(self) -> None:
        while True:
            await asyncio.sleep(0.5)
            self.behind = min(4000.0, max(0.0, self.behind + (self.comes() - self.stands()) / 2))

    def waits(self) -> float:
        """Seconds until what comes now has its turn."""
        return self.behind / max(1.0, self.stands())


def _backfill(namespace: str, name: str, image: str, to: str) -> Json:
    """The Job, as somebody writes it for this one time."""
    made = objects.deployment(namespace, image.rsplit("/", 1)[1].partition(":")[0], image, restartPolicy="Never")
    [container] = made["spec"]["template"]["spec"]["containers"]
    del container["readinessProbe"]
    container["args"] = ["backfill", "--since=2024-01-01", "--batch-size=2000"]
    container["env"] = [{"name": "TARGET", "value": to}]
    spec = {"template": made["spec"]["template"], "parallelism": WORKERS, "completions": 48, "backoffLimit": 6}
    return {"kind": "Job", "metadata": {"namespace": namespace, "name": name}, "spec": spec}


def _look_at_queue(lab: Lab, shared: _Shared, namespace: str, name: str) -> None:
    """What is measured of the queue that an app empties, and the alert on it."""
    told = {"namespace": "platform", "service": "rabbitmq", "queue": f"{name}.in"}
    lab.measure("rabbitmq_queue_messages_ready", lambda: shared.behind, **told)
    is_late = lambda: shared.waits() > LATE_SECONDS  # noqa: E731
    summary = f"what waits in the queue {name}.in has waited for too long"
    lab.alert("RabbitmqMessagesLate", is_late, summary, 4, namespace=namespace, service=name, queue=f"{name}.in")


def _look_at_database(lab: Lab, shared: _Shared, namespace: str, *names: str) -> None:
    """The same of a database, and of those who ask it, of whom the first owns it."""
    active = lambda: min(120.0, 4 + shared.behind / 4)  # noqa: E731
    lab.measure("pg_stat_activity_count", active, namespace=namespace, service=f"{names[0]}-db", state="active")
    for one in names:
        lab.alert_slow(namespace, one)
        lab.alert_errors(namespace, one)


@family(
    "A new column is to be filled for all entries of old. Somebody starts a Job for it in the middle of the day, with"
    " several pods at once: the database, or the queue, by which they do it is that of all others too, who wait.",
    joined=93,
)
async def filled_in_afterwards(lab: Lab) -> AsyncIterator[None]:
    """As those tell who had tried it on a copy, to which nobody else came."""
    namespace, name, front, other, word = lab.rng.choice(
        (
            ("shop", "order-events", "events-page", "order-stats", "margin"),
            ("payments", "ledger-lines", "lines-page", "ledger-export", "country"),
            ("media", "clip-metadata", "metadata-page", "clip-stats", "loudness"),
            ("search", "document-store", "document-page", "document-feed", "language"),
        )
    )
    by_queue, by, minor = lab.rng.random() < 0.4, lab.rng.choice((*TEAMS, "ci")), lab.rng.randrange(2, 30)
    image = f"registry.corp.example/{namespace}/{name}-tools"
    place = ("platform", "rabbitmq") if by_queue else (namespace, f"{name}-db")

    def reads() -> float:
        """A second, by the pods of the Job."""
        there = [one.container for one in lab.kubelets.running() if one.app is lab.apps[image]]
        return EACH_READS * sum(one.seconds >= lab.lag for one in there)

    def late(_: Container) -> float:
        return 0.0 if by_queue else min(3.0, shared.waits())

    def fails(container: Container) -> float:
        """What is given up."""
        return max(0.0, late(container) - 1.2) / 2

    usual = USUAL if by_queue else 32.0
    handled = lambda: EACH_HANDLES * len(backends(lab.world, namespace, name)) if by_queue else STANDS  # noqa: E731
    shared = _Shared(lab, lambda: usual + reads(), handled)
    lab.apps[image] = App(image, upstreams=(place,), serves=False)
    tag = "4.1.2" if by_queue else "16.4"
    await lab.app(*place, like=App("", serves=False), kind="StatefulSet", replicas=1, tag=tag)
    await rolled(lab, *place, tag)
    await lab.until(lambda: backends(lab.world, *place))
    for one, version, replicas, asked in ((name, f"8.{minor}.0", 4, 22.0), (other, "1.13.2", 2, 10.0)):
        like = App("", upstreams=(place,), asked=lambda asked=asked: asked, latency=late, failing=fails)  # type: ignore[misc]
        like.serves = not (by_queue and one == name)
        await lab.apply(objects.config_map(namespace, one, LOG_LEVEL="info", BATCH="20"))
        await lab.app(namespace, one, like=like, replicas=replicas, tag=version, config=one)
        await rolled(lab, namespace, one, version)
    lab.start(shared.run())
    await set_before(lab, namespace, front, other if by_queue else name)
    lab.reserve(*place)
    if by_queue:
        _look_at_queue(lab, shared, namespace, name)
    else:
        _look_at_database(lab, shared, namespace, name, other)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(4, 9))
        await change_page(lab, namespace, front)

    yield
    await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, name, f"8.{minor}.1")
    await lab.pause(lab.rng.uniform(9, 15))
    await lab.edit(lab.rng.choice((*TEAMS, "flux")), "ConfigMap", namespace, other, {"data": {"BATCH": "30"}})
    await lab.pause(lab.rng.uniform(3, 8))
    job = _backfill(namespace, f"backfill-{word}", f"{image}:8.{minor}.1", ".".join(place[::-1]))
    await lab.culprit(by, "create", "Job", namespace, job["metadata"]["name"], job)
    lab.start(afterwards())
