"""Plain changes of what an app is given: whom a path leads to, how long an entry is kept, how much it may work."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from functools import partial

from tests.lab import objects
from tests.lab.api import Json, now
from tests.lab.apps import App, Container, millicores
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.lab import Lab
from tests.lab.network import INGRESS_CLASS, backends, led_to
from tests.lab.scenario import family

PEOPLE = ("alice", "bob", "carol")


def _ingress(host: str, *paths: tuple[str, str, int]) -> Json:
    """What an Ingress says that leads each path to a Service at a port."""
    listed = [
        {"path": path, "pathType": "Prefix", "backend": {"service": {"name": name, "port": {"number": port}}}}
        for path, name, port in paths
    ]
    return {"ingressClassName": INGRESS_CLASS, "rules": [{"host": host, "http": {"paths": listed}}]}


@family(
    "The Ingress of a site gets a path for a new part of it. Whoever writes that puts the backend of an older path anew"
    " as well, by a name or a port that its Service does not have: that part of the site answers 503.",
    joined=76,
)
async def misnamed_backend(lab: Lab) -> AsyncIterator[None]:
    """As everybody has done who wrote more than a few of them."""
    namespace, page, moved, wrong, other, new = lab.rng.choice(
        (
            ("shop", "storefront", "product-api", "products-api", "review-api", "wishlist-api"),
            ("media", "portal", "album-api", "albums", "comment-api", "playlist-api"),
            ("search", "results", "suggest-api", "suggestions", "filter-api", "saved-searches"),
        )
    )
    by, site, host = lab.rng.choice((*PEOPLE, "argocd", "flux")), f"{page}-site", f"www.{namespace}.corp.example"
    wrong_name, wrong_port = lab.rng.choice(((wrong, 80), (moved, 8080)))
    users = lab.rng.uniform(9, 15)

    def led(name: str) -> float:
        """What comes by the Ingress: to whom it does not lead nobody comes."""
        spec = lab.world["Ingress"].get((namespace, site))
        return users if spec and name in led_to(lab.world, namespace, spec) else 0.0

    for name in (page, moved, other, new):
        await lab.apply(objects.config_map(namespace, name, LOG_LEVEL="info", PAGE_SIZE="40"))
        like = App("", asked=partial(led, name))
        await lab.app(namespace, name, like=like, replicas=2, tag="3.4.0", config=name)
    meta = {"namespace": namespace, "name": site}
    there = (("/", page, 80), (f"/api/{moved}", moved, 80), (f"/api/{other}", other, 80))
    await lab.apply({"kind": "Ingress", "metadata": meta, "spec": _ingress(host, *there)})
    for name in (page, moved, other, new):
        await rolled(lab, namespace, name, "3.4.0")
    await lab.until(lambda: all(backends(lab.world, namespace, name) for name in (page, moved, other, new)))
    lab.alert_ingress_errors(namespace, site)
    await lab.until(lab.is_well)
    yield

    async def afterwards() -> None:
        """The new part is looked at by its team."""
        await lab.pause(lab.rng.uniform(2, 5))
        await lab.edit("ci", "ConfigMap", namespace, new, {"data": {"PAGE_SIZE": lab.rng.choice(("20", "60"))}})

    await lab.roll("ci", namespace, lab.rng.choice((moved, other)), "3.4.1")
    await lab.pause(lab.rng.uniform(4, 9))
    await lab.edit("ci", "Deployment", namespace, new, {"spec": {"replicas": 3}})
    await lab.pause(lab.rng.uniform(2, 5))
    paths = (there[0], (f"/api/{moved}", wrong_name, wrong_port), there[2], (f"/api/{new}", new, 80))
    await lab.culprit(by, "update", "Ingress", namespace, site, {"spec": _ingress(host, *paths)})
    lab.start(afterwards())


TTL, KEYS, EACH_LOOKS_UP, STANDS = "CACHE_TTL_SECONDS", 6000, 8, 150.0
"""The entry of the ConfigMap, how many entries are asked for, by each request, and what a database reads a second."""


@dataclass
class _Cache:
    """Entries that the processes of an app keep together: what is older than it may be is read anew."""

    lag: float
    asked: float
    kept: float = 900.0
    told: float = 900.0
    since: float = 0.0

    def missed(self, containers: list[Container]) -> float:
        """Reads a second: an entry is read once, and then not for as long as it is kept."""
        told = float(next((one.config[TTL] for one in containers if TTL in one.config), "900"))
        if told != self.told:
            self.told, self.since = told, now().timestamp()
        if now().timestamp() - self.since >= self.lag:
            self.kept = self.told
        looked_up = self.asked * EACH_LOOKS_UP
        return looked_up / (1 + looked_up / KEYS * self.kept)


@family(
    "What an app shows is said to be too old too often, so its entries in the cache are kept for seconds in place of a"
    " quarter of an hour. The database gets many times the reads, answers late, and so do all who read there.",
    joined=76,
)
async def short_lived_entries(lab: Lab) -> AsyncIterator[None]:
    """As all tell who have found out from the database how much a cache had kept away."""
    namespace, name, store, page, other = lab.rng.choice(
        (
            ("shop", "price-api", "prices-db", "product-page", "price-admin"),
            ("media", "feed-api", "feed-db", "start-page", "channel-admin"),
            ("payments", "rates-api", "rates-db", "transfer-page", "rates-import"),
        )
    )
    by, cache = lab.rng.choice((*PEOPLE, "argocd")), _Cache(lab.lag, lab.rng.uniform(55, 70))

    def reads() -> float:
        return 20 + cache.missed([one.container for one in lab.kubelets.running() if one.app is like])

    def waits(_: Container) -> float:
        """For a read: the more come the longer; what is beyond all that it stands waits until it is given up."""
        used = reads() / STANDS
        return 0.006 / (1 - used) if used < 0.98 else min(3.0, 0.8 * used)

    like = App("", upstreams=((namespace, store),), asked=lambda: cache.asked)
    database = App("", serves=False, asked=reads, capacity=1000.0, latency=waits)
    await lab.app(namespace, store, like=database, kind="StatefulSet", replicas=1, tag="16.4")
    await lab.until(lambda: backends(lab.world, namespace, store))
    await lab.apply(objects.config_map(namespace, name, LOG_LEVEL="info", **{TTL: "900"}))
    await lab.app(namespace, name, like=like, replicas=3, tag="5.6.1", config=name)
    await lab.app(namespace, other, like=App("", upstreams=((namespace, store),)), replicas=2, tag="2.0.4")
    await rolled(lab, namespace, name, "5.6.1")
    await lab.until(lambda: backends(lab.world, namespace, name))
    await lab.app(namespace, page, like=App("", upstreams=((namespace, name),)), replicas=2, tag="8.1.0")
    await lab.until(lambda: backends(lab.world, namespace, page) and backends(lab.world, namespace, other))
    await publish(lab, namespace, page)
    told = {"namespace": namespace, "service": store}
    lab.measure("pg_statements_total", lab.adding_up(reads), "counter", **told)
    lab.measure("cache_misses_total", lab.adding_up(lambda: reads() - 20), "counter", namespace=namespace, service=name)
    for place in (name, page, other):
        lab.alert_slow(namespace, place)
    await lab.until(lab.is_well)
    yield

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(1, 4))
        await lab.roll("ci", namespace, page, "8.1.1")

    await lab.roll(lab.rng.choice(("ci", "flux")), namespace, other, "2.1.0")
    await lab.pause(lab.rng.uniform(5, 11))
    kept = lab.rng.choice(("5", "10", "15"))
    await lab.culprit(by, "update", "ConfigMap", namespace, name, {"data": {TTL: kept}})
    lab.start(afterwards())


BURST, LIMIT = 800.0, "300m"
"""Thousandths of a processor that the one app needs while it answers, and what each container may have."""


def _slowed(container: Container) -> float:
    """How often longer it takes than it would, less once: what is over its limit waits for the next period."""
    limit = container.spec["resources"].get("limits", {}).get("cpu")
    return max(0.0, BURST / millicores(limit) - 1) if limit else 0.0


@family(
    "All apps of a team get a low limit of processor time, the same for each, so that what they cost can be"
    " foreseen. For most that is more than they ever use; the one that works hard for each answer stands still most of"
    " the time, and is slow.",
    joined=76,
)
async def limits_for_all(lab: Lab) -> AsyncIterator[None]:
    """As everybody tells whose averages were far below the limit."""
    namespace, name, front, *others = lab.rng.choice(
        (
            ("shop", "offer-ranking", "offers-page", "voucher-api", "stock-api"),
            ("media", "cover-renderer", "cover-page", "album-api", "likes-api"),
            ("payments", "pdf-statements", "statements-page", "limits-api", "contacts-api"),
        )
    )
    by, cut, work = lab.rng.choice((*PEOPLE, "argocd", "flux")), lab.rng.random() < 0.5, lab.rng.uniform(0.5, 0.8)

    def slow(container: Container) -> float:
        return work * _slowed(container) if container.seconds >= lab.lag else 0.0

    def resources(cpu: str) -> Json:
        limits = {"memory": "256Mi", **({"cpu": cpu} if cpu else {})}
        return {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": limits}

    like = App("", asked=lambda: 24.0, latency=slow)
    await lab.app(namespace, name, like=like, replicas=3, tag="4.9.2")
    for one in others:
        await lab.app(namespace, one, replicas=2, tag="4.9.2")
    for one in (name, *others) if cut else ():
        await lab.roll("admin", namespace, one, "4.9.2", resources=resources("1"))
    for one in (name, *others):
        await rolled(lab, namespace, one, "4.9.2")
    await lab.until(lambda: backends(lab.world, namespace, name))
    await lab.app(namespace, front, like=App("", upstreams=((namespace, name),)), replicas=2, tag="6.0.0")
    await lab.until(lambda: backends(lab.world, namespace, front))
    await publish(lab, namespace, front)

    def periods(*, throttled: bool) -> float:
        """Ten a second of each container; it is throttled in those in which it has more to do than it may."""
        there = [one.container for one in lab.kubelets.running() if one.app is like]
        return 10 * sum(min(0.9, 0.5 * _slowed(one)) if throttled else 1.0 for one in there)

    told = {"namespace": namespace, "service": name, "container": name}
    lab.measure("container_cpu_cfs_periods_total", lab.adding_up(lambda: periods(throttled=False)), "counter", **told)
    shown = lab.adding_up(lambda: periods(throttled=True))
    lab.measure("container_cpu_cfs_throttled_periods_total", shown, "counter", **told)
    lab.alert_slow(namespace, name)
    lab.alert_slow(namespace, front)
    await lab.until(lab.is_well)
    yield
    await lab.roll("ci", namespace, front, "6.0.1")
    await lab.pause(lab.rng.uniform(4, 8))
    first, last = lab.rng.sample(others, 2)
    await lab.roll(by, namespace, first, "4.9.2", resources=resources(LIMIT))
    await lab.pause(lab.rng.uniform(1, 3))
    await lab.roll(by, namespace, name, "4.9.2", resources=resources(LIMIT), culprit=True)
    await lab.pause(lab.rng.uniform(1, 2))
    await lab.roll(by, namespace, last, "4.9.2", resources=resources(LIMIT))


@dataclass
class _Table:
    """A table that grows: its query is answered from memory while what it sorts fits in there."""

    rows: float
    a_second: float
    fits: float = field(default=float("inf"))

    async def grow(self) -> None:
        while True:
            await asyncio.sleep(1)
            self.rows += self.a_second

    def sorted_on_disk(self) -> bool:
        return self.rows > self.fits


@family(
    "No culprit. A table of a database has grown by what customers do for years. One day what a query of an app sorts"
    " is more than fits in the memory that it may use, is written to the disk, and takes seconds from now on.",
    culprit=False,
    joined=76,
)
async def table_outgrown(lab: Lab) -> AsyncIterator[None]:
    """As it happens to a query that nobody has looked at since it was written."""
    namespace, name, store, front, other, relation = lab.rng.choice(
        (
            ("shop", "order-history", "orders-db", "account-page", "order-export", "order_lines"),
            ("payments", "statements", "bookings-db", "statement-page", "booking-export", "bookings"),
            ("media", "watch-history", "plays-db", "home-page", "royalties", "plays"),
        )
    )
    table, share = _Table(float(lab.rng.randrange(41, 58) * 10**6), 420.0), lab.rng.uniform(0.4, 0.6)

    def waits(_: Container) -> float:
        """In the mean: only some of its requests need the query."""
        return share * table.rows * 4e-8 if table.sorted_on_disk() else 0.0

    def written() -> float:
        return 18 * share * 2**25 if table.sorted_on_disk() else 0.0

    lab.start(table.grow())
    await lab.app(namespace, store, like=App("", serves=False), kind="StatefulSet", replicas=1, tag="15.8")
    await lab.until(lambda: backends(lab.world, namespace, store))
    await lab.apply(objects.config_map(namespace, name, LOG_LEVEL="info", PAGE_SIZE="50"))
    like = App("", upstreams=((namespace, store),), asked=lambda: 18.0, latency=waits)
    await lab.app(namespace, name, like=like, replicas=3, tag="2.15.0", config=name)
    await lab.app(namespace, other, like=App("", upstreams=((namespace, store),)), replicas=2, tag="1.4.4")
    await rolled(lab, namespace, name, "2.15.0")
    await lab.until(lambda: backends(lab.world, namespace, name) and backends(lab.world, namespace, other))
    await lab.app(namespace, front, like=App("", upstreams=((namespace, name),)), replicas=2, tag="7.7.0")
    await lab.until(lambda: backends(lab.world, namespace, front))
    await publish(lab, namespace, front)
    told = {"namespace": namespace, "service": store}
    lab.measure("pg_stat_user_tables_n_live_tup", lambda: table.rows, **told, relname=relation)
    lab.measure("pg_temp_bytes_total", lab.adding_up(written), "counter", **told)
    lab.alert_slow(namespace, name)
    lab.alert_slow(namespace, front)
    await lab.until(lab.is_well)
    yield
    table.fits = table.rows + table.a_second * lab.rng.uniform(14, 26)
    await lab.roll(lab.rng.choice(("ci", "flux")), namespace, other, "1.4.5")
    await lab.pause(lab.rng.uniform(3, 6))
    await lab.edit("alice", "ConfigMap", namespace, name, {"data": {"LOG_LEVEL": "warn"}})
    await lab.pause(lab.rng.uniform(2, 4))
    await lab.roll("ci", namespace, front, "7.7.1")
