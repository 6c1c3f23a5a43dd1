"""What a release makes heavier where nobody looks: the start of a process, and the work that is done within it."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from tests.lab.alerts import restarts
from tests.lab.api import Kind, path
from tests.lab.apps import App, Container, Problem, Process
from tests.lab.counts import chance
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.families.databases import ANY
from tests.lab.lab import Lab
from tests.lab.network import backends
from tests.lab.programs import every
from tests.lab.scenario import family

KEDA = "keda.sh"
EACH_STANDS, SPARE, LEAST, MOST = 40.0, 1.6, 3, 14
"""Requests a second of a pod, how much more is made ready than is asked for, and between how many pods."""
USUAL, AT_SALE, SALE_SECONDS = 62.0, 270.0, 28.0
"""Requests a second before and during a sale, and for how long they rise."""
OLD_START, NEW_START = 0.4, 15.0
"""Seconds until a process of either release answers."""
OWN_MIB, DOCUMENT_MIB, LIMIT_MIB = 92, 80, 256
"""Of a process, of each document while it is made, and what a container may have since it was set up."""
DOCUMENTS, MAKING_SECONDS = 0.06, 1.0
"""The share of requests that make one, and how long that takes."""
FORENOON, PEAK = 8.0, 66.0


@dataclass
class _Scaler:
    """By requests, at each look, with some to spare."""

    lab: Lab
    kind: Kind
    namespace: str
    name: str
    asked: float = USUAL
    looks: list[int] = field(default_factory=list)

    @property
    def short(self) -> float:
        """The share that is too much for those that are ready."""
        return max(0.0, 1 - EACH_STANDS * len(backends(self.lab.world, self.namespace, self.name)) / self.asked)

    async def scale(self, process: Process) -> None:
        declared = await process.api.call("GET", self.kind.path(self.namespace, self.name))
        where = f"{path('Deployment', self.namespace, self.name)}/scale"
        found = await process.api.call("GET", where)
        if not (declared.ok and found.ok):
            return
        spec = declared.body["spec"]
        wanted = math.ceil(self.asked * SPARE / EACH_STANDS)
        self.looks.append(max(spec["minReplicaCount"], min(spec["maxReplicaCount"], wanted)))
        replicas = max(self.looks[-8:])  # down only after a while
        if found.body["spec"]["replicas"] != replicas:
            await process.api.call("PATCH", where, {"spec": {"replicas": replicas}})

    async def rise(self) -> None:
        """A sale begins."""
        before = self.asked
        for second in range(int(SALE_SECONDS)):
            await asyncio.sleep(1)
            self.asked = before + (AT_SALE - before) * (second + 1) / SALE_SECONDS


@family(
    "A release reads all prices at its start and no longer one by one, so each process takes long until it answers."
    " Its rollout is as smooth as ever; in the evening a sale begins, and the pods by which the autoscaler follows it"
    " come too late.",
    joined=32,
)
async def start_reads_all(lab: Lab) -> AsyncIterator[None]:
    """As told of a spike that exceeded the time a pod takes to start (k8s-issues, scenario 418)."""
    namespace, name, front = lab.rng.choice(
        (("shop", "price-list", "deals-page"), ("media", "ticketing", "events"), ("payments", "fares", "bookings"))
    )
    old, new = "12.1.0", "12.2.0"
    kind = await lab.custom("ScaledObject", KEDA, ANY)
    scaler = _Scaler(lab, kind, namespace, name)

    def starting(container: Container) -> Problem | None:
        is_slow = container.tag == new and container.seconds < NEW_START
        return Problem("unready", "probe failed: dial tcp :8080: connect: connection refused") if is_slow else None

    like = App("", asked=lambda: scaler.asked, failing=lambda _: scaler.short, fails_with=lambda _: "503")
    like.check, like.start_seconds, like.capacity = starting, OLD_START, 4 * EACH_STANDS
    await lab.app(namespace, name, like=like, replicas=LEAST, tag=old)
    at_once = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "100%", "maxUnavailable": 0}}
    await lab.edit("admin", "Deployment", namespace, name, {"spec": {"strategy": at_once}})
    await lab.app(namespace, front, like=App("", upstreams=((namespace, name),)), replicas=2, tag="3.0.4")
    await lab.served(kind)
    spec = {"scaleTargetRef": {"name": name}, "minReplicaCount": LEAST, "maxReplicaCount": MOST}
    meta = {"namespace": namespace, "name": name}
    await lab.apply({"apiVersion": f"{KEDA}/v1", "kind": kind.name, "metadata": meta, "spec": spec})
    rules = (KEDA, kind.plural, "get,list,watch"), ("apps", "deployments/scale", "get,patch")
    await lab.controller("platform", "keda-operator", every(1.5, scaler.scale), *rules, replicas=1)
    await lab.until(lambda: len(backends(lab.world, namespace, name)) >= LEAST)
    await lab.until(lambda: len(backends(lab.world, namespace, front)) == 2)
    await publish(lab, namespace, front)
    lab.reserve(namespace, name)
    for one in (name, front):
        lab.alert_errors(namespace, one)
    lab.alert_ingress_errors(namespace, namespace)
    by, team = lab.rng.choice(("ci", "argocd")), lab.rng.choice(("alice", "flux"))
    await lab.until(lab.is_well)
    yield
    await lab.roll(by, namespace, name, new, culprit=True)
    await rolled(lab, namespace, name, new)
    await lab.pause(lab.rng.uniform(2, 5))
    await lab.roll(team, namespace, front, "3.0.5")
    await lab.pause(lab.rng.uniform(5, 8))
    lab.start(scaler.rise())


@family(
    "A release makes its documents within its own process, each of which takes as much memory as all else there. In the"
    " forenoon there is hardly ever more than one at a time; in the afternoon there are several, and one process after"
    " another is killed for its memory, whose limit nobody has looked at for long.",
    joined=32,
)
async def documents_within(lab: Lab) -> AsyncIterator[None]:
    """As told of a limit that was copied and pasted (lukretium.com)."""
    namespace, name, front = lab.rng.choice(
        (("shop", "order-api", "my-account"), ("payments", "invoice-api", "billing"), ("media", "ticket-api", "box"))
    )
    old, new, asked = "2.17.3", "2.18.0", [FORENOON]
    database, by = f"{name}-db", lab.rng.choice(("ci", "argocd", "flux"))

    def needs(container: Container) -> Problem | None:
        if container.tag != new:
            return None
        each = asked[0] / max(1, len(backends(lab.world, namespace, name)))
        needed = OWN_MIB + DOCUMENT_MIB * chance(lab.kubelets.rng, each * DOCUMENTS * MAKING_SECONDS)
        return Problem("oom", f"needs {needed}Mi, may have {LIMIT_MIB}Mi") if needed > LIMIT_MIB else None

    async def come() -> None:
        while asked[0] < PEAK:
            await asyncio.sleep(1)
            asked[0] *= lab.rng.uniform(1.1, 1.3)

    await lab.app(namespace, database, like=App("", serves=False), kind="StatefulSet", replicas=1)
    like = App("", upstreams=((namespace, database),), asked=lambda: asked[0], check=needs)
    await lab.app(namespace, name, like=like, replicas=4, tag=old, memory=f"{LIMIT_MIB}Mi")
    await lab.app(namespace, front, like=App("", upstreams=((namespace, name),)), replicas=2)
    await lab.until(lambda: len(backends(lab.world, namespace, name)) == 4)
    await lab.until(lambda: len(backends(lab.world, namespace, front)) == 2)
    await publish(lab, namespace, name)
    lab.reserve(namespace, front)
    restarted = lab.rate(lambda: restarts(lab.world, namespace, name), 0.1, seconds=20)
    summary = f"pods of {namespace}/{name} are restarting"
    lab.alert("KubePodRestarting", restarted, summary, 3, namespace=namespace, deployment=name)
    lab.alert_lacking(namespace, name)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)
    yield
    await lab.roll(by, namespace, name, new, culprit=True)
    await rolled(lab, namespace, name, new)
    await lab.pause(lab.rng.uniform(7, 12))
    lab.start(come())
