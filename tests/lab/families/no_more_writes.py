"""What takes no write any more by a rule of its own: too few are left to agree, or too little room."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from functools import partial

from tests.lab.alerts import pods
from tests.lab.api import Json, now
from tests.lab.apps import App, Container
from tests.lab.families.between import publish
from tests.lab.families.moving import spare
from tests.lab.lab import Lab
from tests.lab.manifests import is_ready
from tests.lab.network import DNS, INGRESS_CONTROLLER, backends
from tests.lab.scenario import family

MEMBERS, MAJORITY, DOWN_AFTER = 3, 2, 3.0
"""Of a cache, each with a sentinel beside it, and for how long these wait before they promote one."""
ASKED, HITS, DATABASE_STANDS = 64.0, 0.86, 26.0
"""Requests a second of an app, the share that its cache answers, and what its database stands."""
FLOOD_STAGE, ROOM_GI = 0.95, 200.0
QUIET_GROWTH, BUSY_GROWTH = 0.006, 0.16
"""GiB a second by which an index grows on each of its disks."""


@dataclass
class _Cache:
    """Redis with a sentinel in each of its pods: who is the primary, and since when nobody hears of it."""

    lab: Lab
    namespace: str
    name: str
    primary: str
    lost: float = 0.0
    promoted: int = 0

    def heard(self) -> list[Json]:
        """Its pods that answer."""
        away = self.lab.outside.dead_nodes
        found = pods(self.lab.world, self.namespace, self.name)
        return [pod for pod in found if is_ready(pod) and pod["spec"].get("nodeName", "") not in away]

    def has_primary(self) -> bool:
        return any(pod["metadata"]["name"] == self.primary for pod in self.heard())

    async def run(self) -> None:
        """A replica becomes the primary where most of the sentinels agree that it is gone."""
        while True:
            there = sorted(pod["metadata"]["name"] for pod in self.heard())
            if self.primary in there:
                self.lost = 0.0
            else:
                self.lost = self.lost or now().timestamp()
                if len(there) >= MAJORITY and now().timestamp() - self.lost > DOWN_AFTER:
                    self.primary, self.promoted = there[0], self.promoted + 1
            await asyncio.sleep(0.5)

    def queries(self) -> float:
        """A second, of the database: what the cache does not answer."""
        return ASKED * (1 - HITS if self.has_primary() else 1.0)

    def starved(self, _: Container) -> float:
        """The share of requests for which the database has no time."""
        return max(0.0, 1 - DATABASE_STANDS / self.queries())

    def waits(self, _: Container) -> float:
        return 0.0 if self.has_primary() else 1.4


@family(
    "The cloud takes two machines back at once, as it may with cheap ones. A cache has two of its three pods there, its"
    " primary among them, and with them two of the sentinels that would have to agree on another one: nobody is"
    " promoted, all that it would answer is asked of the database, and that does not stand it.",
    culprit=False,
    joined=44,
)
async def sentinels_gone(lab: Lab) -> AsyncIterator[None]:
    """As told of sentinels in the pods of a cache on machines that are taken back (bitnami/charts 10081)."""
    namespace, name, front = lab.rng.choice(
        (
            ("shop", "assortment", "category-page"),
            ("media", "profiles", "profile-page"),
            ("search", "facets", "facet-page"),
        )
    )
    cache, database = f"{name}-redis", f"{name}-db"
    cheap = spare(lab, MEMBERS)
    for node in cheap:
        labels = {"pool": "cache", "cloud.example/capacity": "spot"}
        await lab.edit("admin", "Node", "", node, {"metadata": {"labels": labels}})
    apart = {"labelSelector": {"matchLabels": {"app.kubernetes.io/name": cache}}}
    rule = {"requiredDuringSchedulingIgnoredDuringExecution": [{**apart, "topologyKey": "kubernetes.io/hostname"}]}
    manifest = {"affinity": {"podAntiAffinity": rule}, "nodeSelector": {"pool": "cache"}}
    like = App("", serves=False)
    await lab.app(namespace, cache, like=like, kind="StatefulSet", replicas=MEMBERS, tag="7.4.2", **manifest)
    await lab.until(lambda: len(backends(lab.world, namespace, cache)) == MEMBERS)
    keeper = _Cache(lab, namespace, cache, f"{cache}-{lab.rng.randrange(MEMBERS)}")
    lab.start(keeper.run())
    elsewhere = {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": _NOT_CHEAP}}}
    like = App("", serves=False)
    await lab.app(namespace, database, like=like, kind="StatefulSet", replicas=1, tag="17.6", **elsewhere)
    for place in (DNS, INGRESS_CONTROLLER):  # what all rest on is on no cheap machine
        await lab.edit("admin", "Deployment", *place, {"spec": {"template": {"spec": elsewhere}}})
    reaches = ((namespace, database), (namespace, cache))
    like = App("", upstreams=reaches, asked=lambda: ASKED, failing=keeper.starved, latency=keeper.waits)
    await lab.app(namespace, name, like=like, replicas=4, tag="12.0.3", **elsewhere)
    like = App("", upstreams=((namespace, name),))
    await lab.app(namespace, front, like=like, replicas=3, tag="4.4.0", **elsewhere)
    await lab.until(lambda: all(backends(lab.world, namespace, one) for one in (database, name, front)))
    await publish(lab, namespace, front)
    lab.reserve(namespace, name)
    labels = {"namespace": namespace, "service": database, "datname": name}
    queries = lab.adding_up(keeper.queries)
    lab.measure("pg_stat_database_xact_commit_total", queries, "counter", **labels)
    working = lambda: min(100.0, 4 * keeper.queries() * (1 if keeper.has_primary() else 3))  # noqa: E731
    lab.measure("pg_stat_activity_count", working, "gauge", **labels)
    for one in (name, front):
        lab.alert_errors(namespace, one)
    lab.alert_slow(namespace, front)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lambda: lab.is_well() and keeper.has_primary())
    yield
    await lab.pause(lab.rng.uniform(2, 8))
    homes = {pod["metadata"]["name"]: pod["spec"]["nodeName"] for pod in pods(lab.world, namespace, cache)}
    other = lab.rng.choice(sorted(set(homes) - {keeper.primary}))
    for one in (keeper.primary, other):
        lab.kubelets.crash(homes[one])


_NOT_CHEAP: Json = {
    "nodeSelectorTerms": [{"matchExpressions": [{"key": "pool", "operator": "NotIn", "values": ["cache"]}]}]
}


@dataclass
class _Index:
    """A search engine, whose indices are for reading only once a disk is nearly full: a rule of its own."""

    lab: Lab
    growth: float = QUIET_GROWTH
    used: float = 0.938 * ROOM_GI
    skew: list[float] = field(default_factory=lambda: [0.0, -3.1, -1.7])
    """How much less the other members have on their disks."""

    @property
    def is_blocked(self) -> bool:
        return self.used >= FLOOD_STAGE * ROOM_GI

    async def run(self) -> None:
        while True:
            await asyncio.sleep(0.5)
            if not self.is_blocked:
                self.used += self.growth / 2 * self.lab.kubelets.rng.uniform(0.8, 1.2)

    def free(self, number: int) -> float:
        """Bytes of a member's disk."""
        return (ROOM_GI - self.used - self.skew[number]) * 2**30


@family(
    "The indices of a search engine have grown for years, and on a day with many new entries one of its disks is as"
    " full as it lets it be: by a rule of its own it only reads them from then on, as every search still shows, and"
    " whoever writes is refused.",
    culprit=False,
    joined=44,
)
async def flood_stage(lab: Lab) -> AsyncIterator[None]:
    """As a monologue on storage goes through it: a disk that is nearly full, not broken (grokdatum.github.io)."""
    namespace, name, feed, front, writes = lab.rng.choice(
        (
            ("shop", "offers-search", "offers-feed", "offer-desk", 0.5),
            ("media", "library-search", "library-feed", "curator-page", 0.6),
            ("payments", "entries-search", "entries-feed", "booking-desk", 0.7),
        )
    )
    engine = f"{namespace}-elasticsearch"
    index = _Index(lab)
    like = App("", serves=False)
    await lab.app(namespace, engine, like=like, kind="StatefulSet", replicas=MEMBERS, tag="8.17.1", memory="4Gi")
    reaches = ((namespace, engine),)
    await lab.app(namespace, name, like=App("", upstreams=reaches, asked=lambda: 22.0), replicas=3, tag="6.1.0")
    refused = lambda container: writes if index.is_blocked else 0.0  # noqa: E731
    like = App("", upstreams=reaches, failing=refused, fails_with=lambda _: "503", asked=lambda: 18.0)
    await lab.app(namespace, feed, like=like, replicas=2, tag="6.1.0")
    await lab.app(namespace, front, like=App("", upstreams=((namespace, feed),)), replicas=2, tag="1.18.4")
    there = (engine, name, feed, front)
    await lab.until(lambda: all(backends(lab.world, namespace, one) for one in there))
    await publish(lab, namespace, front)
    lab.reserve(namespace, name, feed)
    for number in range(MEMBERS):
        labels = {"namespace": namespace, "service": engine, "host": f"{engine}-{number}"}
        lab.measure("elasticsearch_filesystem_data_available_bytes", partial(index.free, number), "gauge", **labels)
        lab.measure("elasticsearch_filesystem_data_size_bytes", lambda: ROOM_GI * 2**30, "gauge", **labels)
    for one in (name, feed, front):
        lab.alert_errors(namespace, one)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)
    lab.start(index.run())
    yield
    index.growth = BUSY_GROWTH * lab.rng.uniform(0.8, 1.4)
