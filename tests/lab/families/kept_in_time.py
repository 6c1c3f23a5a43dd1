"""What is done in time, or by the time: a lease that is to be renewed, rates by the clocks of machines."""

from __future__ import annotations

import asyncio
import itertools
import math
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from tests.lab import objects
from tests.lab.alerts import pods
from tests.lab.api import Answer, Json, Kind, now, path, stamp
from tests.lab.apps import App, Container, CrashError, Process
from tests.lab.families.between import publish
from tests.lab.families.databases import ANY
from tests.lab.lab import NODES, Lab
from tests.lab.manifests import is_ready
from tests.lab.network import backends
from tests.lab.programs import both, every
from tests.lab.scenario import family

GROUP, OBJECTS = "storage.corp.example", 24
USUAL = {"lease-duration": 15.0, "renew-deadline": 10.0, "retry-period": 2.0}
SOONER = {"lease-duration": 6.0, "renew-deadline": 3.0, "retry-period": 1.0}
"""Seconds of a leader's lease."""
QPS, RESYNC_SECONDS, STALE = 5.0, 20.0, timedelta(seconds=60)
"""How often its client lets an operator ask in a second, how often it looks at all objects, and by when it has to."""
EACH_STANDS, TARGET, MOST_PODS = 60, 0.6, 14
"""Requests a second of one pod, and the share of them that an autoscaler aims at."""
TO_AND_FRO = 11.0
"""Seconds in which a clock is ahead, and then behind."""


def _flags(times: dict[str, float]) -> list[str]:
    return ["--leader-elect=true", *(f"--leader-elect-{key}={value:g}s" for key, value in times.items())]


def _times(process: Process) -> dict[str, float]:
    """As its arguments say; what they do not say is as usual."""
    told = dict(one[15:].split("=") for one in process.see().spec.get("args", ()) if one.startswith("--leader-elect-"))
    return {key: float(told.get(key, f"{value:g}s")[:-1]) for key, value in USUAL.items()}


@dataclass
class _Client:
    """It lets its program ask only so often, whatever for: all wait in one line."""

    process: Process
    free: datetime = field(default_factory=now)

    async def call(self, method: str, where: str, body: Json | None = None) -> Answer:
        turn = max(now(), self.free)
        self.free = turn + timedelta(seconds=1 / QPS)
        await asyncio.sleep((turn - now()).total_seconds())
        return await self.process.api.call(method, where, body)


@dataclass
class _Operator:
    """It looks at all objects now and then, while it leads."""

    kind: Kind
    namespace: str
    name: str

    async def run(self, process: Process) -> None:
        times, client = _times(process), _Client(process)
        for pause in itertools.repeat(times["retry-period"]):
            if await self._acquire(process, client, times):
                break
            await asyncio.sleep(pause)

        async def work(_: Process) -> None:
            await asyncio.gather(*(self._reconcile(client, f"bucket-{number}") for number in range(OBJECTS)))

        async def renew(_: Process) -> None:
            """Whoever does not come through in time leads no more, and ends."""
            renewed = now()
            while True:
                left = times["renew-deadline"] - (now() - renewed).total_seconds()
                try:
                    done = await asyncio.wait_for(client.call("PATCH", self._lease, self._held(process, times)), left)
                except TimeoutError:
                    raise CrashError("failed to renew lease: context deadline exceeded: leader election lost") from None
                renewed = now() if done.ok else renewed
                await asyncio.sleep(times["retry-period"])

        await both(renew, every(RESYNC_SECONDS, work))(process)

    @property
    def _lease(self) -> str:
        return path("Lease", self.namespace, self.name)

    def _held(self, process: Process, times: dict[str, float]) -> Json:
        spec = {"holderIdentity": process.see().pod["metadata"]["name"], "renewTime": f"{stamp(now())[:-1]}000Z"}
        return {"spec": {**spec, "leaseDurationSeconds": int(times["lease-duration"])}}

    async def _acquire(self, process: Process, client: _Client, times: dict[str, float]) -> bool:
        mine, found = self._held(process, times), await client.call("GET", self._lease)
        if found.status == 404:
            made = {"metadata": {"name": self.name}, **mine}
            return (await client.call("POST", path("Lease", self.namespace), made)).ok
        if not found.ok:
            return False
        held = found.body["spec"]
        until = datetime.fromisoformat(held["renewTime"]) + timedelta(seconds=held["leaseDurationSeconds"])
        if held["holderIdentity"] != mine["spec"]["holderIdentity"] and now() < until:
            return False
        version = {"metadata": {"resourceVersion": found.body["metadata"]["resourceVersion"]}}
        return (await client.call("PATCH", self._lease, {**version, **mine})).ok

    async def _reconcile(self, client: _Client, name: str) -> None:
        where = self.kind.path(self.namespace, name)
        if (await client.call("GET", where)).ok:
            await client.call("PATCH", where, {"status": {"phase": "Bound", "lastSynced": stamp(now())}})


@family(
    "Another replica of an operator is to take over sooner, so its leader's lease is made short. Its client lets it ask"
    " only so often, and while it looks at all objects a renewal waits in the same line for longer than it may now:"
    " whoever leads ends, one after the other.",
    joined=34,
)
async def election_timing(lab: Lab) -> AsyncIterator[None]:
    """As told of leaders that are lost to a timing that was set wrongly (netdata.cloud, leader election failures)."""
    namespace, name = "platform", lab.rng.choice(("bucket-operator", "storage-operator", "object-store-operator"))
    by, kind = lab.rng.choice(("alice", "argocd", "ci")), await lab.custom("Bucket", GROUP, ANY)
    operator = _Operator(kind, namespace, name)
    await lab.served(kind)
    for number in range(OBJECTS):
        meta = {"namespace": namespace, "name": f"bucket-{number}"}
        await lab.apply(
            {"apiVersion": f"{GROUP}/v1", "kind": kind.name, "metadata": meta, "spec": {"class": "standard"}}
        )
    rights = ("coordination.k8s.io", "leases", "get,create,patch"), (GROUP, kind.plural, "get,list,watch,patch")
    await lab.controller(namespace, name, operator.run, *rights, replicas=2, tag="2.4.1")
    await lab.until(lambda: (namespace, name) in lab.world["Deployment"])
    await lab.roll("admin", namespace, name, "2.4.1", args=_flags(USUAL))

    def oldest() -> float:
        """Seconds since the object that has waited longest was looked at."""
        told = [one.get("status", {}).get("lastSynced") for one in lab.world[kind.name].values()]
        return max(((now() - datetime.fromisoformat(one)).total_seconds() for one in told if one), default=0.0)

    stale = lambda: oldest() > STALE.total_seconds()  # noqa: E731
    lab.alert("BucketsNotReconciled", stale, "buckets have not been looked at for long", 3, namespace=namespace)
    lab.alert_lacking(namespace, name, seconds=4)
    synced = lambda: all("status" in one for one in lab.world[kind.name].values())  # noqa: E731
    await lab.until(synced)
    await lab.until(lab.is_well)
    yield
    await lab.roll(by, namespace, name, "2.4.1", culprit=True, args=_flags(SOONER))


@dataclass
class _Scaler:
    """By what each pod uses, as its node tells it with a time of its own clock: a rate by a wrong clock is wrong."""

    lab: Lab
    kind: Kind
    namespace: str
    name: str
    asked: float
    began: datetime | None = None
    """Since when the clocks of some nodes are set to and fro."""
    nodes: tuple[str, ...] = ()
    looks: list[int] = field(default_factory=list)

    def factor(self, node: str) -> float:
        """How many times what is used a pod of a node seems to use."""
        if self.began is None or node not in self.nodes:
            return 1.0
        is_ahead = (now() - self.began).total_seconds() // TO_AND_FRO % 2 < 1
        return 0.05 if is_ahead else 3.0

    def offset(self, node: str) -> float:
        return {1.0: 0.0004, 0.05: 41.7, 3.0: -18.3}[self.factor(node)]

    async def scale(self, process: Process) -> None:
        declared = await process.api.call("GET", self.kind.path(self.namespace, self.name))
        where = f"{path('Deployment', self.namespace, self.name)}/scale"
        found = await process.api.call("GET", where)
        there = [pod for pod in pods(self.lab.world, self.namespace, self.name) if is_ready(pod)]
        if not (declared.ok and found.ok and there):
            return
        used = self.asked / len(there) / EACH_STANDS
        seems = sum(used * self.factor(pod["spec"]["nodeName"]) for pod in there) / len(there)
        wanted = math.ceil(len(there) * seems / TARGET - 0.1)
        spec = declared.body["spec"]
        self.looks.append(max(spec["minReplicaCount"], min(spec["maxReplicaCount"], wanted)))
        replicas = max(self.looks[-2:])
        if found.body["spec"]["replicas"] != replicas:
            await process.api.call("PATCH", where, {"spec": {"replicas": replicas}})

    def short(self, _: Container) -> float:
        there = sum(map(is_ready, pods(self.lab.world, self.namespace, self.name)))
        return max(0.0, 1 - EACH_STANDS * there / self.asked)


@family(
    "The machines of a rack do not reach their servers of time, and their clocks are set to and fro. What their"
    " kubelets tell of the use of pods has those times, so it seems to be next to nothing and then far too much: an"
    " autoscaler takes half of an app's pods away and brings twice as many, by turns.",
    culprit=False,
    joined=34,
)
async def metrics_skewed(lab: Lab) -> AsyncIterator[None]:
    """As told of an autoscaler that flaps, and of a clock behind it (grokdevops, a case study)."""
    namespace, name = lab.rng.choice((("shop", "storefront"), ("search", "suggestions"), ("media", "home-feed")))
    scaler = _Scaler(lab, await lab.custom("ScaledObject", "keda.sh", ANY), namespace, name, lab.rng.uniform(275, 288))
    kind, team = scaler.kind, lab.rng.choice(("alice", "ci", "carol"))
    usual = math.ceil(scaler.asked / EACH_STANDS / TARGET - 0.1)
    spread = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": {"app.kubernetes.io/name": name}},
    }
    await lab.apply(objects.config_map(namespace, name, LOG_LEVEL="info", PAGE_SIZE="24"))
    like = App("", asked=lambda: scaler.asked, failing=scaler.short, fails_with=lambda _: "503", start_seconds=4.0)
    like.capacity = 3.0 * EACH_STANDS
    await lab.app(
        namespace, name, like=like, replicas=usual, tag="9.3.0", config=name, topologySpreadConstraints=[spread]
    )
    await lab.served(kind)
    spec = {"scaleTargetRef": {"name": name}, "minReplicaCount": 3, "maxReplicaCount": MOST_PODS}
    meta = {"namespace": namespace, "name": name}
    await lab.until(lambda: len(backends(lab.world, namespace, name)) == usual)
    await lab.apply({"apiVersion": "keda.sh/v1", "kind": kind.name, "metadata": meta, "spec": spec})
    rules = ("keda.sh", kind.plural, "get,list,watch"), ("apps", "deployments/scale", "get,patch")
    await lab.controller("platform", "keda-operator", every(3, scaler.scale), *rules, replicas=1)
    await publish(lab, namespace, name)
    for node in NODES:
        offset = lambda node=node: scaler.offset(node)  # noqa: E731
        lab.measure("node_timex_offset_seconds", offset, namespace="monitoring", service="node-exporter", instance=node)
    lab.alert_errors(namespace, name)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)
    yield
    await lab.edit(team, "ConfigMap", namespace, name, {"data": {"PAGE_SIZE": "36"}})
    await lab.pause(lab.rng.uniform(4, 8))
    scaler.nodes = NODES[:3] if lab.rng.random() < 0.5 else NODES[3:]
    scaler.began = now()
