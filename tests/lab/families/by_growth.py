"""Incidents without a culprit among the changes: what grows takes its room from whoever keeps the rest well."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from dataclasses import dataclass

from tests.lab import objects
from tests.lab.alerts import pending, pods
from tests.lab.api import Json, Kind, path
from tests.lab.apps import App, Container, Process
from tests.lab.before import before
from tests.lab.families.between import publish
from tests.lab.families.databases import ANY
from tests.lab.families.joining import AUTOSCALER, LARGE, LOOK_SECONDS, autoscaled, say
from tests.lab.families.moving import spare
from tests.lab.families.still_more_stories import drain
from tests.lab.lab import LATER, Lab
from tests.lab.network import DNS, backends
from tests.lab.programs import every
from tests.lab.scenario import family

SYSTEM_CORES, CORES_A_SERVER = 4, 24
"""Of the node for what all rest on, and for how many of the whole cluster there is one more server of names."""
BOOT_SECONDS, PENDING_SECONDS = 5.0, 14.0
"""Until a new machine is a node, and for how long a pod waits before anybody is told."""
FIRST, MOST, WORKER_SECONDS = 2, 14, 3.0
"""Workers at first and at last, and until somebody wants one more."""
POOL = {"pool": "workers"}
EACH_STANDS, LEAST_PODS, PATIENT_LOOKS = 40.0, 3, 2
"""Requests a second; what is left by the processor's time alone; for how many looks a scaler waits for a metric."""
STORE, STORE_LIMIT_MIB = ("monitoring", "app-metrics"), 2048


@dataclass
class _Crowd:
    """Users who want workers, machines that come for those, and servers of names by the size of the cluster."""

    lab: Lab
    namespace: str
    name: str
    spare: list[str]
    """Machines that are not there yet."""
    wanted: int = FIRST

    async def enlarge(self, process: Process) -> None:
        """One machine at a time, as long as there are any."""
        listed = await process.api.call("GET", f"{path('Pod', self.namespace)}?fieldSelector=spec.nodeName=")
        waiting = [one for one in listed.body.get("items", []) if one["spec"].get("nodeSelector") == POOL]
        if waiting and self.spare:
            grown = f"pod triggered scale-up: [{{workers {4 - len(self.spare)}->{5 - len(self.spare)} (max: 20)}}]"
            await say(process, {"kind": "Pod", **waiting[0]}, "Normal", "TriggeredScaleUp", grown)
            await asyncio.sleep(BOOT_SECONDS)
            await self.lab.kubelets.join(self.spare.pop(), "v1.36.1", POOL)

    async def serve_names(self, process: Process) -> None:
        """As the autoscaler that is proportional to the cluster."""
        listed = await process.api.call("GET", path("Node"))
        if listed.ok:
            cores = sum(int(one["status"]["capacity"]["cpu"]) for one in listed.body["items"])
            body = {"spec": {"replicas": max(2, math.ceil(cores / CORES_A_SERVER))}}
            await process.api.call("PATCH", f"{path('Deployment', *DNS)}/scale", body)

    async def start_workers(self, process: Process) -> None:
        where = f"{path('Deployment', self.namespace, self.name)}/scale"
        found = await process.api.call("GET", where)
        if found.ok and found.body["spec"]["replicas"] != self.wanted:
            await process.api.call("PATCH", where, {"spec": {"replicas": self.wanted}})


@family(
    "Users want more and more workers, and with each machine that comes for them the cluster has more of its servers of"
    " names, which go before all others: they take the room of the only pod of what lets machines come.",
    culprit=False,
    joined=23,
)
async def autoscaler_preempted(lab: Lab) -> AsyncIterator[None]:
    """As 2i2c tells of the hub of CarbonPlan (15 July 2021, infrastructure 524)."""
    namespace, name = lab.rng.choice((("research", "dask-worker"), ("courses", "grader"), ("media", "render-worker")))
    first, *others = spare(lab, 4)
    settings, crowd = f"{name}-settings", _Crowd(lab, namespace, name, others)

    async def ask() -> None:
        await asyncio.sleep(lab.rng.uniform(2, 4))
        await lab.edit("flux", "ConfigMap", namespace, settings, {"data": {"IDLE_MINUTES": "45"}})
        while crowd.wanted < MOST:
            crowd.wanted += 1
            await asyncio.sleep(WORKER_SECONDS)

    await _found_small(lab, first, others)
    await autoscaled(lab, every(LOOK_SECONDS, crowd.enlarge))
    await _on_system_node(lab, *AUTOSCALER, "500m", {})
    await _on_system_node(lab, *DNS, "900m", {"priorityClassName": "system-cluster-critical"})
    may = ("", "nodes", "list"), ("apps", "deployments/scale", "get,patch")
    await lab.controller("kube-system", "kube-dns-autoscaler", every(2, crowd.serve_names), *may, replicas=1)
    if namespace != "media":
        await lab.namespace(namespace)
    await lab.apply(objects.config_map(namespace, settings, IDLE_MINUTES="30"))
    image = f"registry.corp.example/{namespace}/{name}"
    lab.apps[image] = App(image, serves=False)
    made = objects.deployment(namespace, name, f"{image}:1.0.0", replicas=FIRST, config=settings, nodeSelector=POOL)
    made["spec"]["template"]["spec"]["containers"][0]["resources"] = LARGE
    await lab.apply(made)
    await lab.controller(namespace, "gateway", every(1.5, crowd.start_workers), may[1], replicas=1)
    summary = f"a pod of {namespace} has had no node for a while"
    lab.alert("KubePodPending", lambda: pending(lab.world, namespace), summary, PENDING_SECONDS, namespace=namespace)
    await lab.until(lambda: len(backends(lab.world, *DNS)) == len(pods(lab.world, *DNS)) == 3)
    await lab.until(lambda: len(pods(lab.world, namespace, name)) == FIRST and not pending(lab.world))
    async with before(lab, days=18) as then:
        longer = {"data": {"IDLE_MINUTES": "60"}}
        then.judge(await lab.edit("flux", "ConfigMap", namespace, settings, longer), "not it")
        await lab.pause(2)
        other = {"spec": {"template": {"spec": {"nodeSelector": {"pool": "workers-large"}}}}}
        then.judge(await lab.edit("flux", "Deployment", namespace, name, other), "it")
        await then.fires()
        back = {"spec": {"template": {"spec": {"nodeSelector": POOL}}}}
        await lab.edit("flux", "Deployment", namespace, name, back)
        await then.is_well()
    yield
    lab.start(ask())


async def _found_small(lab: Lab, first: str, others: list[str]) -> None:
    """A cluster of fewer machines, one of which is for workers and one for what all rest on."""
    for node in others:
        await lab.edit("admin", "Node", "", node, {"spec": {"unschedulable": True}})
        await drain(lab, "admin", node)
        lab.kubelets.crash(node)
        await lab.who["admin"].must("DELETE", path("Node", None, node))
        for (namespace, name), pod in list(lab.world["Pod"].items()):
            if pod["spec"].get("nodeName") == node:  # of a DaemonSet
                await lab.who["admin"].call("DELETE", path("Pod", namespace, name), {"gracePeriodSeconds": 0})
    await lab.edit("admin", "Node", "", first, {"metadata": {"labels": POOL}})
    await lab.kubelets.register(LATER, cpu=str(SYSTEM_CORES))
    lab.outside.dead_nodes.discard(LATER)
    taint = {"key": "dedicated", "value": "system", "effect": "NoSchedule"}
    body = {"metadata": {"labels": {"pool": "system"}}, "spec": {"taints": [taint]}}
    await lab.edit("admin", "Node", "", LATER, body)


async def _on_system_node(lab: Lab, namespace: str, name: str, cpu: str, more: Json) -> None:
    """An app that is there already goes to the node for what all rest on."""
    [container] = lab.world["Deployment"][namespace, name]["spec"]["template"]["spec"]["containers"]
    resources = {"requests": {"cpu": cpu, "memory": "128Mi"}, "limits": {"memory": "512Mi"}}
    spec = {
        "containers": [{**container, "resources": resources}],
        "nodeSelector": {"pool": "system"},
        "tolerations": [{"key": "dedicated", "operator": "Exists"}],
        **more,
    }
    await lab.edit("admin", "Deployment", namespace, name, {"spec": {"template": {"spec": spec}}})
    await lab.until(lambda: {pod["spec"].get("nodeName") for pod in pods(lab.world, namespace, name)} == {LATER})


@dataclass
class _Scaler:
    """By requests and by the processor, whichever wants more; what is not known for a while is left out."""

    lab: Lab
    kind: Kind
    namespace: str
    name: str
    by_requests: int
    missed: int = 0
    """Looks in a row for which nobody has answered how many requests there are."""

    async def scale(self, process: Process) -> None:
        place = self.namespace, self.name
        declared = await process.api.call("GET", self.kind.path(*place))
        where = f"{path('Deployment', *place)}/scale"
        found = await process.api.call("GET", where)
        if not (declared.ok and found.ok):
            return
        self.missed = 0 if backends(self.lab.world, *STORE) else self.missed + 1
        why = f"Get http://{STORE[1]}.{STORE[0]}.svc:9090/api/v1/query: connection refused" if self.missed else ""
        conditions = [{"type": "Ready", "status": "False" if why else "True", "message": why}]
        if declared.body.get("status", {}).get("conditions") != conditions:
            await process.api.call("PATCH", self.kind.path(*place), {"status": {"conditions": conditions}})
        replicas = self.by_requests if not self.missed else LEAST_PODS
        is_patient = 0 < self.missed <= PATIENT_LOOKS
        if not is_patient and found.body["spec"]["replicas"] != replicas:
            await process.api.call("PATCH", where, {"spec": {"replicas": replicas}})


@family(
    "What keeps the metrics that autoscalers go by has more series from customer to customer, until it is killed for"
    " memory at each start: the autoscaler goes by the processor's time alone, and an app that mostly waits gets the"
    " least there may be.",
    culprit=False,
    joined=23,
)
async def metrics_lost(lab: Lab) -> AsyncIterator[None]:
    """As a user of the adapter for Prometheus tells of what autoscalers do without one (kubernetes 105187, 2021)."""
    namespace, name = lab.rng.choice((("shop", "quotes"), ("payments", "transfers"), ("media", "feeds")))
    group, team = "keda.sh", lab.rng.choice(("argocd", "ci", "bob"))
    asked, kind = lab.rng.uniform(300, 380), await lab.custom("ScaledObject", "keda.sh", ANY)
    first, series = math.ceil(asked / EACH_STANDS * 1.2), [1.5e6]
    scaler = _Scaler(lab, kind, namespace, name, first)

    def short(_: Container) -> float:
        """All of it comes to those that are there."""
        return max(0.0, 1 - EACH_STANDS * len(backends(lab.world, namespace, name)) / asked)

    async def grow() -> None:
        while kept.memory_mi <= STORE_LIMIT_MIB:
            series[0] *= lab.rng.uniform(1.02, 1.05)
            kept.memory_mi = int(series[0] / 1000)
            await asyncio.sleep(1)

    async def change() -> None:
        await asyncio.sleep(lab.rng.uniform(2, 5))
        await lab.edit("flux", kind.name, namespace, name, {"spec": {"maxReplicaCount": 24}})
        await asyncio.sleep(lab.rng.uniform(2, 5))
        await lab.roll(team, namespace, name, "3.2.1")

    kept = await lab.app(*STORE, like=App("", memory_mi=1500), memory=f"{STORE_LIMIT_MIB}Mi", replicas=1)
    await lab.served(kind)
    like = App("", asked=lambda: asked, failing=short, fails_with=lambda _: "503", capacity=2 * EACH_STANDS)
    await lab.app(namespace, name, like=like, replicas=first, tag="3.2.0")
    await lab.until(lambda: len(backends(lab.world, namespace, name)) == first and backends(lab.world, *STORE))
    spec = {"scaleTargetRef": {"name": name}, "minReplicaCount": LEAST_PODS, "maxReplicaCount": 20}
    meta = {"namespace": namespace, "name": name}
    await lab.apply({"apiVersion": f"{group}/v1", "kind": kind.name, "metadata": meta, "spec": spec})
    rules = (group, "scaledobjects", "get,list,watch,patch"), ("apps", "deployments/scale", "get,patch")
    await lab.controller("platform", "keda-operator", every(3, scaler.scale), *rules, replicas=1)
    lab.measure("prometheus_tsdb_head_series", lambda: series[0], namespace=STORE[0], service=STORE[1])
    await publish(lab, namespace, name)
    lab.alert_errors(namespace, name)
    lab.alert_ingress_errors(namespace, namespace)
    yield
    lab.start(grow())
    lab.start(change())
