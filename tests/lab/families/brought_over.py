"""What an upgrade does not bring over: a taint of a machine's start, and what is of Git."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from dataclasses import dataclass

from tests.lab import objects
from tests.lab.api import Json, Kind, path
from tests.lab.apps import App, Container, Process
from tests.lab.before import before
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.families.databases import ANY
from tests.lab.families.moving import spare
from tests.lab.families.upgraded import empty
from tests.lab.lab import LATER, Lab
from tests.lab.network import backends
from tests.lab.programs import every, tell
from tests.lab.scenario import family

KARPENTER, KARPENTER_GROUP = ("platform", "karpenter"), "karpenter.sh"
REGISTERS_ANY, WANTS_TAINT = "0.37.6", "1.0.8"
UNREGISTERED = "missing taint prevents registration, karpenter.sh/unregistered"
BOOT_SECONDS, REGISTRATION_SECONDS = 5.0, 14.0
"""Until a machine's node joins, and for how long whoever started it waits until it is registered."""
WORKERS: Json = {"pool": "workers"}
EACH_STANDS, BY_DAY, BY_NIGHT = 40.0, 165.0, 330.0
LEAST, MOST, HEADROOM = 6, 9, 1.3
"""Pods of an app: as many as two machines have room for, and the most that there may be."""

SYNC, KEEPS_LABEL, KEEPS_INVENTORY = ("platform", "tenants-kustomize-controller"), "0.12.3", "0.13.0"
APPLIED_BY = "kustomize.toolkit.fluxcd.io/name"


@dataclass
class _Machines:
    """An app whose users come in the evening, what scales it, and what starts a machine for pods without a node."""

    lab: Lab
    claims: Kind
    namespace: str
    name: str
    asked: float = BY_DAY
    is_evening: bool = False
    is_there: bool = False
    """Whether a machine was started."""
    is_registered: bool = False
    made: int = 0

    async def users(self) -> None:
        while True:
            await asyncio.sleep(0.5)
            self.asked += 0.03 * ((BY_NIGHT if self.is_evening else BY_DAY) - self.asked)

    def short(self, _: Container) -> float:
        return max(0.0, 1 - EACH_STANDS * len(backends(self.lab.world, self.namespace, self.name)) / self.asked)

    async def scale(self, process: Process) -> None:
        where = f"{path('Deployment', self.namespace, self.name)}/scale"
        found = await process.api.call("GET", where)
        wanted = min(MOST, max(LEAST, math.ceil(self.asked * HEADROOM / EACH_STANDS)))
        if found.ok and found.body["spec"]["replicas"] != wanted:
            await process.api.call("PATCH", where, {"spec": {"replicas": wanted}})

    async def provide(self, process: Process) -> None:
        """One machine more for who waits, and one less where the others have room."""
        listed = await process.api.call("GET", path("Pod", self.namespace))
        mine = [one for one in listed.body.get("items", []) if one["spec"].get("nodeSelector") == WORKERS]
        waiting = [one for one in mine if not one["spec"].get("nodeName") and one["status"].get("conditions")]
        if waiting and not self.is_there:
            self.is_there = True
            self.lab.start(self._launch(process, {"kind": "Pod", **waiting[0]}))
        elif self.is_registered and len(mine) <= LEAST and not waiting:
            self.is_registered = False
            self.lab.start(self._end(process))

    async def _launch(self, process: Process, pod: Json) -> None:
        self.made += 1
        name, wants_taint = self._claim(), process.tag == WANTS_TAINT
        body = {"apiVersion": f"{KARPENTER_GROUP}/v1", "kind": self.claims.name, "metadata": {"name": name}}
        await process.api.call("POST", self.claims.path(), {**body, "spec": {"nodeClassRef": {"name": "workers"}}})
        why = f"Pod should schedule on: nodeclaim/{name}"
        await tell(process, pod, "Normal", "Nominated", why, by="karpenter")
        await asyncio.sleep(BOOT_SECONDS)
        await self.lab.kubelets.join(LATER, "v1.36.1", dict(WORKERS))
        state = {"status": "Unknown", "reason": "UnregisteredTaintNotFound", "message": UNREGISTERED}
        found = state if wants_taint else {"status": "True", "reason": "Registered"}
        status = {"nodeName": LATER, "conditions": [{"type": "Registered", **found}]}
        await process.api.call("PATCH", self.claims.path(None, name), {"status": status})
        if wants_taint:
            await asyncio.sleep(REGISTRATION_SECONDS)
            await self._end(process)
        else:
            self.is_registered = True

    async def _end(self, process: Process) -> None:
        await process.api.call("DELETE", self.claims.path(None, self._claim()))
        taints = [{"key": f"{KARPENTER_GROUP}/disrupted", "effect": "NoSchedule"}]
        await process.api.call("PATCH", path("Node", None, LATER), {"spec": {"taints": taints}})
        await empty(process, LATER)
        await process.api.call("DELETE", path("Node", None, LATER))
        self.lab.kubelets.crash(LATER)
        self.is_there = False

    def _claim(self) -> str:
        return f"workers-{self.made:03}"


@family(
    "A new version of what provides nodes takes a machine for its own only if that has a certain taint as it starts,"
    " which the team's own script for the start does not set: each new machine is given up after a while.",
    joined=30,
)
async def machines_given_up(lab: Lab) -> AsyncIterator[None]:
    """As users of Karpenter tell of nodes that are deleted soon after they start (karpenter-provider-aws 3060)."""
    namespace, name = lab.rng.choice((("media", "streams"), ("shop", "auction-rooms"), ("search", "related")))
    claims = await lab.custom("NodeClaim", KARPENTER_GROUP, ANY, namespaced=False)
    machines, by = _Machines(lab, claims, namespace, name), lab.rng.choice(("argocd", "flux", "bob"))
    for node in spare(lab, 2):
        await lab.edit("admin", "Node", "", node, {"metadata": {"labels": WORKERS}})
    await lab.served(claims)
    rules = (
        ("", "nodes", "get,list,patch,delete"),
        ("", "pods", "list"),
        ("", "pods/eviction,events", "create"),
        (KARPENTER_GROUP, claims.plural, "*"),
    )
    general: Json = {"nodeSelector": {"pool": "general"}}
    await lab.controller(*KARPENTER, every(1.5, machines.provide), *rules, replicas=1, tag=REGISTERS_ANY, **general)
    rule = ("apps", "deployments/scale", "get,patch")
    await lab.controller("platform", "request-scaler", every(1.5, machines.scale), rule, replicas=1, **general)
    like = App("", asked=lambda: machines.asked, failing=machines.short, fails_with=lambda _: "503")
    like.capacity, like.start_seconds = 3 * EACH_STANDS, 2.0
    await lab.app(namespace, name, like=like, replicas=LEAST, tag="2.3.0", nodeSelector=WORKERS)
    large = {"requests": {"cpu": "4500m", "memory": "512Mi"}, "limits": {"memory": "1Gi"}}
    await lab.until(lambda: len(backends(lab.world, namespace, name)) == LEAST)
    await lab.edit("admin", "Deployment", namespace, name, {"spec": {"strategy": {"rollingUpdate": {"maxSurge": 0}}}})
    await lab.roll("admin", namespace, name, "2.3.1", resources=large)
    await rolled(lab, namespace, name, "2.3.1")
    await publish(lab, namespace, name)
    lab.start(machines.users())
    lab.alert_errors(namespace, name)
    lab.alert_ingress_errors(namespace, namespace)
    lab.alert_lacking(namespace, name, seconds=24)
    async with before(lab, days=1):  # as each evening
        machines.is_evening = True
        await lab.until(lambda: len(backends(lab.world, namespace, name)) == MOST)
        await lab.pause(3)
        machines.is_evening = False
        await lab.until(lambda: not machines.is_there)
    await lab.until(lambda: machines.asked < BY_DAY + 5)
    yield
    await lab.roll(by, *KARPENTER, WANTS_TAINT, culprit=True)
    await lab.pause(lab.rng.uniform(8, 14))
    machines.is_evening = True


@dataclass(frozen=True)
class _Sync:
    """What applies a tenant's part of Git, and what is there of it."""

    kind: Kind
    tenant: str
    manifests: tuple[Json, ...]

    async def reconcile(self, process: Process) -> None:
        found = await process.api.call("GET", self.kind.path("platform", self.tenant))
        if not found.ok:
            return
        about: Json = {"kind": self.kind.name, **found.body}
        for one in self.manifests:
            where = path(one["kind"], one["metadata"]["namespace"])
            there = await process.api.call("GET", f"{where}/{one['metadata']['name']}")
            made = await process.api.call("POST", where, one) if there.status == 404 else there
            if not made.ok:
                why = str(made.body.get("message"))
                await tell(process, about, "Warning", "ReconciliationFailed", why, by="kustomize-controller")
        if process.tag == KEEPS_INVENTORY:
            await self._collect(process, about)

    async def _collect(self, process: Process, about: Json) -> None:
        """What has the label of old and is not in the inventory of now has left Git."""
        listed = await process.api.call("GET", f"{path('Namespace')}?labelSelector={APPLIED_BY}={self.tenant}")
        for one in listed.body.get("items", []):
            name = one["metadata"]["name"]
            if "deletionTimestamp" not in one["metadata"]:
                await process.api.call("DELETE", path("Namespace", None, name))
                why = f"garbage collection: Namespace/{name} deleted"
                await tell(process, about, "Normal", "GarbageCollectionSucceeded", why, by="kustomize-controller")
        entries = [{"id": f"{one['metadata']['namespace']}_{one['metadata']['name']}"} for one in self.manifests]
        if about.get("status", {}).get("inventory", {}).get("entries") != entries:
            body = {"status": {"inventory": {"entries": entries}}}
            await process.api.call("PATCH", self.kind.path("platform", self.tenant), body)


@family(
    "A new version of what applies Git keeps an inventory in place of a label. A tenant's namespace has the label from"
    " when it was in Git and is made elsewhere by now: it is not in the inventory, and is deleted with all in it.",
    joined=30,
)
async def inventory_without(lab: Lab) -> AsyncIterator[None]:
    """As users of Flux tell of the way to 0.13 (flux2 1462, June 2021)."""
    tenant, name, namespace, caller = lab.rng.choice(
        (
            ("loyalty", "points", "shop", "rewards"),
            ("maps", "geocoder", "search", "nearby"),
            ("fraud", "scores", "payments", "approvals"),
        )
    )
    kind = await lab.custom("Kustomization", "kustomize.toolkit.fluxcd.io", ANY)
    image = f"registry.corp.example/{tenant}/{name}"
    made = objects.deployment(tenant, name, f"{image}:1.12.0", replicas=3)
    sync = _Sync(
        kind, tenant, (objects.config_map(tenant, name, LOG_LEVEL="info"), made, objects.service(tenant, name))
    )
    lab.apps[image] = App(image)
    await lab.namespace(tenant)
    await lab.edit("admin", "Namespace", "", tenant, {"metadata": {"labels": {APPLIED_BY: tenant}}})
    await lab.served(kind)
    meta = {"namespace": "platform", "name": tenant}
    spec = {"interval": "2m", "path": f"./tenants/{tenant}", "prune": True}
    await lab.apply({"apiVersion": f"{kind.group}/v1", "kind": kind.name, "metadata": meta, "spec": spec})
    everything = ("*", "*", "*")
    await lab.controller(*SYNC, every(2, sync.reconcile), everything, replicas=1, tag=KEEPS_LABEL)
    await lab.until(lambda: len(backends(lab.world, tenant, name)) == 3)
    await lab.app(namespace, caller, like=App("", upstreams=((tenant, name),)), replicas=3)
    await lab.until(lambda: len(backends(lab.world, namespace, caller)) == 3)
    await publish(lab, namespace, caller)
    lab.alert_lacking(namespace, caller)
    lab.alert_ingress_errors(namespace, namespace)
    yield
    await lab.roll(lab.rng.choice(("ci", "alice", "bob")), *SYNC, KEEPS_INVENTORY, culprit=True)
