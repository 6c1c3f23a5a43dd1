"""What apps get of machines: newer ones under them, agents beside them, less of their memory."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Literal

from tests.lab.alerts import pending, restarts
from tests.lab.api import Json, Kind, now, path
from tests.lab.apps import App, Container, Problem, Process, mebibytes
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.families.databases import ANY
from tests.lab.families.moving import spare
from tests.lab.families.upgraded import LOOKS_EVERY, empty, replaced
from tests.lab.lab import Lab
from tests.lab.network import backends
from tests.lab.programs import every
from tests.lab.scenario import family

POOL = {"pool": "workers"}
GROUP, IMAGE = "infra.corp.example", "infra.corp.example/image"
Sort = Literal["cgroups", "kernel", "processors"]
IMAGES: dict[Sort, tuple[str, str]] = {
    "cgroups": ("al2-1.36-v20251112", "al2023-1.36-v20260503"),
    "kernel": ("ubuntu-22.04-1.36-20251201", "ubuntu-26.04-1.36-20260512"),
    "processors": ("al2023-x86_64-v20260503", "al2023-arm64-v20260503"),
}
"""Of machines, the one that they have and the next."""
KERNELS: dict[Sort, tuple[str, str]] = {
    "cgroups": ("5.10.238", "6.12.40"),
    "kernel": ("5.15.0-161-generic", "7.0.0-14-generic"),
    "processors": ("6.12.40", "6.12.40"),
}


@dataclass
class _Pool:
    """A pool of machines, which have the image that is declared; one after the other is replaced."""

    lab: Lab
    kind: Kind
    sort: Sort
    newer: set[str] = field(default_factory=set)
    """Nodes whose machine has the next image."""

    async def renew(self, process: Process) -> None:
        declared = await process.api.call("GET", self.kind.path("platform", "workers"))
        nodes = (await process.api.call("GET", f"{path('Node')}?labelSelector=pool=workers")).body.get("items", [])
        image = declared.body.get("spec", {}).get("image", "")
        for one in nodes if declared.ok else ():
            node = one["metadata"]["name"]
            if one["metadata"]["labels"].get(IMAGE) == image:
                continue
            await process.api.call("PATCH", path("Node", None, node), {"spec": {"unschedulable": True}})
            await empty(process, node)
            self.newer.add(node)
            await replaced(self.lab, process, node, "v1.36.1", {**POOL, IMAGE: image})
            await self.lab.kubelets.run_kernel(node, KERNELS[self.sort][1])
            if self.sort == "processors":
                await self.lab.kubelets.run_on(node, "arm64")
            return

    def check(self, container: Container) -> Problem | None:
        """How one app is that nobody has tried on such a machine; all others are well there."""
        if container.pod["spec"].get("nodeName") not in self.newer:
            return None
        if self.sort == "cgroups":  # it does not find its limit where that is now, and plans with all of the machine
            limit = container.spec["resources"]["limits"]["memory"]
            return Problem("oom", f"needs more than {limit}") if container.seconds > 4 else None
        told = {
            "kernel": "iptables v1.8.7 (legacy): can't initialize iptables table `nat': Table does not exist",
            "processors": "exec /usr/local/bin/server: exec format error",
        }
        return Problem("crash", told[self.sort], at_once=True)


@family(
    "The machines of a pool are replaced one after the other by such with the next image. One app does not run there:"
    " it does not find its limit where the newer kernel has it, or a module that is not there any more, or it is not"
    " built for their processors.",
    joined=83,
)
async def newer_machines(lab: Lab) -> AsyncIterator[None]:
    """As after each change of the images of nodes somebody has it whose base image is older than they are."""
    namespace, name, front, other = lab.rng.choice(
        (
            ("shop", "tax-rules", "checkout-page", "coupons"),
            ("search", "stemmer", "search-page", "popular"),
            ("payments", "risk-model", "risk-page", "iban-check"),
        )
    )
    sorts: tuple[Sort, ...] = ("cgroups", "kernel", "processors")
    sort, by, machines = lab.rng.choice(sorts), lab.rng.choice(("carol", "flux", "argocd")), spare(lab, 3)
    pool = _Pool(lab, await lab.custom("MachinePool", GROUP, ANY), sort)
    for node in machines:
        await lab.edit("admin", "Node", "", node, {"metadata": {"labels": {**POOL, IMAGE: IMAGES[sort][0]}}})
        await lab.kubelets.run_kernel(node, KERNELS[sort][0])
    await lab.served(pool.kind)
    spec = {"image": IMAGES[sort][0], "maxUnavailable": 1}
    meta = {"namespace": "platform", "name": "workers"}
    await lab.apply({"apiVersion": f"{GROUP}/v1", "kind": pool.kind.name, "metadata": meta, "spec": spec})
    rules = (
        (GROUP, pool.kind.plural, "get,list,watch"),
        ("", "nodes", "get,list,patch,delete"),
        ("", "pods", "list"),
        ("", "pods/eviction", "create"),
    )
    general: Json = {"nodeSelector": {"pool": "general"}}
    manager = ("platform", "machine-pools")
    await lab.controller(*manager, every(LOOKS_EVERY, pool.renew), *rules, replicas=1, tag="1.9.0", **general)
    await lab.app(namespace, name, like=App("", check=pool.check), replicas=4, tag="3.0.7", nodeSelector=POOL)
    await lab.app(namespace, other, replicas=3, tag="1.2.0", nodeSelector=POOL)
    await rolled(lab, *manager, "1.9.0")
    await rolled(lab, namespace, name, "3.0.7")
    await lab.app(namespace, front, like=App("", upstreams=((namespace, name),)), replicas=2, tag="8.1.0", **general)
    await lab.until(lambda: backends(lab.world, namespace, front))
    await publish(lab, namespace, front)
    lab.reserve(namespace, name)
    crashes = lambda: restarts(lab.world, namespace, name) > 3  # noqa: E731
    summary = f"containers of {namespace}/{name} are restarted again and again"
    lab.alert("KubePodCrashLooping", crashes, summary, 3, namespace=namespace, deployment=name)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)
    yield
    await lab.roll("ci", namespace, name, "3.0.8")
    await lab.pause(lab.rng.uniform(5, 9))
    await lab.edit("bob", "ConfigMap", "media", "uploads", {"data": {"TIMEOUT_MS": str(lab.rng.randrange(500, 900))}})
    await lab.pause(lab.rng.uniform(1, 4))
    await lab.culprit(by, "update", pool.kind.name, "platform", "workers", {"spec": {"image": IMAGES[sort][1]}})


def _asking(memory: str, cpu: str) -> Json:
    return {"requests": {"cpu": cpu, "memory": memory}, "limits": {"memory": memory}}


@family(
    "An agent on all nodes gets a new version that asks for a lot more memory. Most nodes are full of an app that has"
    " four large pods on each: there the agent does not find room, or takes it from the app, whose pods find none.",
    joined=83,
)
async def room_for_agents(lab: Lab) -> AsyncIterator[None]:
    """As those tell whose DaemonSet has Insufficient memory on the nodes that were filled best."""
    namespace, name = lab.rng.choice((("search", "vector-store"), ("media", "frame-cache"), ("shop", "basket-store")))
    agent = ("monitoring", lab.rng.choice(("log-forwarder", "runtime-guard", "flow-exporter")))
    by, goes_first = lab.rng.choice(("carol", "flux", "argocd")), lab.rng.random() < 0.5
    priority = {"priorityClassName": "system-node-critical"} if goes_first else {}
    replicas, asks = lab.rng.choice((21, 22)), lab.rng.choice(("4Gi", "5Gi"))
    image = f"registry.corp.example/{'/'.join(agent)}"
    await lab.app(*agent, like=App("", serves=False), kind="DaemonSet", tag="2.14.1", **priority)
    await lab.app(namespace, name, replicas=1, tag="1.6.0")
    await rolled(lab, *agent, "2.14.1")
    await lab.roll("admin", namespace, name, "1.6.1", resources=_asking("15Gi", "1"))
    await rolled(lab, namespace, name, "1.6.1")
    await lab.edit("admin", "Deployment", namespace, name, {"spec": {"replicas": replicas}})
    await lab.until(lambda: len(backends(lab.world, namespace, name)) == replicas)
    lab.reserve(namespace, name)

    def is_held_up() -> bool:
        """A node's agent is not there."""
        status = lab.world["DaemonSet"][agent].get("status", {})
        return bool(status.get("numberUnavailable"))

    told = {"namespace": agent[0], "daemonset": agent[1]}
    lab.alert("KubeDaemonSetRolloutStuck", is_held_up, f"the rollout of {agent[1]} is not progressing", 12, **told)
    lab.alert_lacking(namespace, name, seconds=10)
    lab.alert("KubePodNotScheduled", lambda: pending(lab.world), "a pod has no node", 10)
    await lab.until(lab.is_well)
    yield
    await lab.edit("bob", "Deployment", namespace, name, {"metadata": {"labels": {"owner": f"team-{namespace}"}}})
    await lab.pause(lab.rng.uniform(3, 7))
    await lab.roll("ci", "payments", "checkout", "1.30.0")
    await lab.pause(lab.rng.uniform(2, 6))
    there = lab.world["DaemonSet"][agent]["spec"]["template"]["spec"]["containers"][0]
    container = {**there, "image": f"{image}:3.0.0", "resources": _asking(asks, "200m")}
    body = {"spec": {"template": {"spec": {"containers": [container]}}}}
    await lab.culprit(by, "update", "DaemonSet", *agent, body)


IDLE_MI, EACH_MI = 150.0, 8.0
"""What a container has in memory, and how much more for each request a second."""
MORNING, PEAK, RISES_SECONDS = 40.0, 150.0, 14.0
"""Requests a second, and how long it takes from the one to the other."""


@family(
    "Apps are given less memory to save money, by what a dashboard recommends from a quiet week. One of them needs"
    " three times as much when most is asked of it: at the next peak of the day its containers are killed.",
    joined=83,
)
async def as_the_dashboard_says(lab: Lab) -> AsyncIterator[None]:
    """As many tell who took the figures of a recommender for what their apps need."""
    namespace, name, other = lab.rng.choice(
        (
            ("shop", "basket-api", "size-guide"),
            ("payments", "quote-api", "bank-holidays"),
            ("media", "stream-api", "age-ratings"),
        )
    )
    by, limit = lab.rng.choice(("alice", "carol", "flux")), lab.rng.choice((288, 304, 320))
    peak: list[float] = []

    def asked() -> float:
        passed = now().timestamp() - peak[0] if peak else 0.0
        return MORNING + (PEAK - MORNING) * min(1.0, max(0.0, passed / RISES_SECONDS))

    def needs() -> float:
        """MiB of each container."""
        return IDLE_MI + EACH_MI * asked() / 4

    def check(container: Container) -> Problem | None:
        """It fills once it has been asked for a while, one a little sooner than the other."""
        turn = int(container.pod["metadata"]["uid"][:2], 16) / 255
        may = container.spec["resources"]["limits"]["memory"]
        if container.seconds < 3 + 3 * turn or needs() * (0.95 + 0.1 * turn) <= mebibytes(may):
            return None
        return Problem("oom", f"needs {needs():.0f}Mi, may have {may}")

    for one, like in ((name, App("", asked=asked, check=check)), (other, App(""))):
        await lab.app(namespace, one, like=like, replicas=4, tag="7.2.0", memory="1Gi")
        await rolled(lab, namespace, one, "7.2.0")
    await publish(lab, namespace, name)
    lab.reserve(namespace, name)
    lab.measure("process_resident_memory_bytes", lambda: needs() * 2**20, namespace=namespace, service=name)
    killed = lab.rate(lambda: restarts(lab.world, namespace, name), 0.1, seconds=15)
    summary = f"containers of {namespace}/{name} are restarted again and again"
    lab.alert("KubePodCrashLooping", killed, summary, 3, namespace=namespace, deployment=name)
    lab.alert_ingress_errors(namespace, namespace, 0.1)
    await lab.until(lab.is_well)

    def with_less(one: str, memory: str, may: str) -> Json:
        there = lab.world["Deployment"][namespace, one]["spec"]["template"]["spec"]["containers"][0]
        resources = {"requests": {"cpu": "50m", "memory": memory}, "limits": {"memory": may}}
        return {"spec": {"template": {"spec": {"containers": [{**there, "resources": resources}]}}}}

    async def day() -> None:
        await lab.pause(lab.rng.uniform(12, 20))
        await lab.roll("ci", namespace, other, "7.2.1")
        await lab.pause(lab.rng.uniform(1, 3))
        peak.append(now().timestamp())

    yield
    await lab.edit(by, "Deployment", namespace, other, with_less(other, "96Mi", "160Mi"))
    await lab.pause(lab.rng.uniform(2, 5))
    await lab.culprit(by, "update", "Deployment", namespace, name, with_less(name, "192Mi", f"{limit}Mi"))
    lab.start(day())
