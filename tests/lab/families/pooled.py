"""Connections of a database that are kept in pools: too few in each, and too many pools."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from tests.lab import objects
from tests.lab.alerts import pods
from tests.lab.api import Kind, path
from tests.lab.apps import App, Container, Problem, Process
from tests.lab.before import before
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.families.databases import ANY
from tests.lab.lab import Lab
from tests.lab.manifests import is_ready, uid_of
from tests.lab.network import backends
from tests.lab.programs import every
from tests.lab.scenario import family

QUERY_SECONDS, GIVEN_UP_SECONDS = 0.15, 3.0
"""For how long a request has a connection, and waits for one at most."""
MOST, FEW = "DB_POOL_MAX", "6"
RISES_SECONDS = 22
USABLE = 197
"""Connections that a database has for its users."""
POOL, FAULTY_POOL = "25", "60"
EACH_STANDS, SPARE = 60, 1.6
"""Requests a second of one pod, and how many times what there is an autoscaler has room for."""


async def _rise(asked: list[float], to: float) -> None:
    """Users come, as each day."""
    first = asked[0]
    for second in range(RISES_SECONDS):
        await asyncio.sleep(1)
        asked[0] = first + (to - first) * (second + 1) / RISES_SECONDS


@family(
    "Somebody cuts an app's pool of connections in its ConfigMap, as the database shows that few of them are in use. In"
    " the night that is so; once the day's usual traffic is there, requests wait for a connection until they give up.",
    joined=34,
)
async def pool_trimmed(lab: Lab) -> AsyncIterator[None]:
    """As told of small changes of a configuration, of which one is a smaller pool (kubeha.com)."""
    namespace, name, front = lab.rng.choice(
        (("shop", "orders", "order-history"), ("payments", "wallets", "balance"), ("media", "ratings", "episodes"))
    )
    database, asked, by_day = f"{name}-db", [lab.rng.uniform(55, 70)], lab.rng.uniform(185, 215)
    by, team = lab.rng.choice(("carol", "argocd", "bob")), lab.rng.choice(("ci", "alice"))

    def needed() -> float:
        """Connections that all requests of one pod need at once."""
        there = len(backends(lab.world, namespace, name))
        return asked[0] / max(1, there) * QUERY_SECONDS

    def lacking(container: Container) -> float:
        return max(0.0, 1 - int(container.config[MOST]) / needed())

    def waiting(container: Container) -> float:
        busy = needed() / int(container.config[MOST])
        return min(GIVEN_UP_SECONDS, QUERY_SECONDS + QUERY_SECONDS * busy**6 / max(0.02, 1 - busy))

    def pending() -> float:
        data = lab.world["ConfigMap"][namespace, name]["data"]
        return max(0.0, needed() - int(data[MOST])) * GIVEN_UP_SECONDS / QUERY_SECONDS

    await lab.app(namespace, database, like=App("", serves=False), kind="StatefulSet", replicas=1)
    await lab.apply(objects.config_map(namespace, name, **{"LOG_LEVEL": "info", MOST: "30", "DB_TIMEOUT_MS": "3000"}))
    like = App(
        "",
        upstreams=((namespace, database),),
        asked=lambda: asked[0],
        failing=lacking,
        latency=waiting,
        capacity=160,
    )
    await lab.app(namespace, name, like=like, replicas=3, tag="5.2.0", config=name)
    await lab.app(namespace, front, like=App("", upstreams=((namespace, name),)), replicas=2, tag="2.11.4")
    await lab.until(lambda: len(backends(lab.world, namespace, name)) == 3 and backends(lab.world, namespace, front))
    await publish(lab, namespace, front)
    lab.reserve(namespace, name)
    lab.measure("hikaricp_connections_pending", pending, namespace=namespace, service=name)
    for one in (name, front):
        lab.alert_errors(namespace, one)
    lab.alert_slow(namespace, name, 1.0)
    lab.alert_ingress_errors(namespace, namespace)
    yield
    await lab.culprit(by, "update", "ConfigMap", namespace, name, {"data": {MOST: FEW}})
    await lab.pause(lab.rng.uniform(5, 9))
    lab.start(_rise(asked, by_day))
    await lab.pause(lab.rng.uniform(3, 6))
    await lab.roll(team, namespace, front, "2.11.5")


@dataclass
class _Pools:
    """Who has how many connections of a database: each process of an app fills its pool at its start."""

    lab: Lab
    namespace: str
    name: str
    held: dict[str, int] = field(default_factory=dict)
    """By uid of the pod."""

    @property
    def left(self) -> int:
        there = {uid_of(pod) for pod in pods(self.lab.world, self.namespace, self.name)}
        self.held = {uid: number for uid, number in self.held.items() if uid in there}
        return USABLE - sum(self.held.values())

    def fill(self, container: Container) -> Problem | None:
        """It takes what is left, and ends where there is none."""
        uid, left = uid_of(container.pod), self.left
        if uid not in self.held and left < 1:
            return Problem("crash", "FATAL: sorry, too many clients already (SQLSTATE 53300)")
        if uid not in self.held:
            size = next(int(one["value"]) for one in container.spec["env"] if one["name"] == "DB_POOL_SIZE")
            self.held[uid] = min(size, left)
        return None


@dataclass
class _Scaler:
    """By requests at each look, down only after a while."""

    lab: Lab
    kind: Kind
    namespace: str
    name: str
    asked: list[float]
    looks: list[int] = field(default_factory=list)

    async def scale(self, process: Process) -> None:
        declared = await process.api.call("GET", self.kind.path(self.namespace, self.name))
        where = f"{path('Deployment', self.namespace, self.name)}/scale"
        found = await process.api.call("GET", where)
        if not (declared.ok and found.ok):
            return
        spec = declared.body["spec"]
        wanted = math.ceil(self.asked[0] * SPARE / EACH_STANDS)
        self.looks.append(max(spec["minReplicaCount"], min(spec["maxReplicaCount"], wanted)))
        replicas = max(self.looks[-8:])
        if found.body["spec"]["replicas"] != replicas:
            await process.api.call("PATCH", where, {"spec": {"replicas": replicas}})

    def short(self, _: Container) -> float:
        """All that comes is shared by those that are ready."""
        there = sum(map(is_ready, pods(self.lab.world, self.namespace, self.name)))
        return max(0.0, 1 - EACH_STANDS * there / self.asked[0])


@family(
    "The maximum of an app's autoscaler is raised for a sale. Each pod keeps a pool of connections, and the database"
    " has a fixed number of them: as the sale begins the pods that come get none, and neither does another app.",
    joined=34,
)
async def pool_per_pod(lab: Lab) -> AsyncIterator[None]:
    """As told of an autoscaler that went from 3 pods to 15 (DEV, a guide to debugging an incident)."""
    namespace, name, sharing = lab.rng.choice(
        (
            ("shop", "storefront-api", "vouchers"),
            ("payments", "pay-api", "receipts"),
            ("media", "player-api", "bookmarks"),
        )
    )
    database, pools, kind = (
        f"{namespace}-db",
        _Pools(lab, namespace, name),
        await lab.custom("ScaledObject", "keda.sh", ANY),
    )
    asked, at_sale, needs = [lab.rng.uniform(130, 145)], lab.rng.uniform(325, 345), lab.rng.randrange(14, 19)
    by = lab.rng.choice(("flux", "alice", "carol"))
    scaler = _Scaler(lab, kind, namespace, name, asked)
    await lab.app(namespace, database, like=App("", serves=False), kind="StatefulSet", replicas=1)
    upstreams = ((namespace, database),)
    like = App(
        "",
        upstreams=upstreams,
        asked=lambda: asked[0],
        check=pools.fill,
        failing=scaler.short,
        capacity=2 * EACH_STANDS,
    )
    await lab.app(namespace, name, like=like, replicas=4, tag="3.8.0", env=[{"name": "DB_POOL_SIZE", "value": POOL}])
    refused = App("", upstreams=upstreams, failing=lambda _: max(0.0, 1 - max(0, pools.left) / needs))
    await lab.app(namespace, sharing, like=refused, replicas=3)
    await lab.served(kind)
    spec = {"scaleTargetRef": {"name": name}, "minReplicaCount": 4, "maxReplicaCount": 6}
    meta = {"namespace": namespace, "name": name}
    await lab.apply({"apiVersion": "keda.sh/v1", "kind": kind.name, "metadata": meta, "spec": spec})
    rules = ("keda.sh", kind.plural, "get,list,watch"), ("apps", "deployments/scale", "get,patch")
    await lab.controller("platform", "keda-operator", every(3, scaler.scale), *rules, replicas=1)
    await lab.until(lambda: len(backends(lab.world, namespace, name)) == 4 and backends(lab.world, namespace, sharing))
    await publish(lab, namespace, name)
    lab.reserve(namespace, sharing)
    connections = "pg_stat_activity_count"
    lab.measure(connections, lambda: float(USABLE - pools.left), namespace=namespace, service=database, state="idle")
    lab.alert_errors(namespace, sharing)
    lab.alert_lacking(namespace, name, seconds=10)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)
    async with before(lab, days=lab.rng.randrange(16, 25)) as then:
        more = [{"name": "DB_POOL_SIZE", "value": FAULTY_POOL}]
        answer = await lab.roll("ci", namespace, name, "3.7.5", env=more)
        await then.fires()
        await lab.roll("ci", namespace, name, "3.8.0", env=[{"name": "DB_POOL_SIZE", "value": POOL}])
        await then.is_well()
        then.judge(answer, "it")
    await rolled(lab, namespace, name, "3.8.0")
    yield
    body = {"spec": {"maxReplicaCount": 20}}
    await lab.culprit(by, "update", kind.name, namespace, name, body)
    await lab.pause(lab.rng.uniform(9, 14))
    lab.start(_rise(asked, at_sale))
