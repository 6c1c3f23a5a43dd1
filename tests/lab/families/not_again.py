"""What was told of what does not start again: machines with a new kernel, and processes that first ask somebody."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from tests.lab.alerts import is_lost, pods
from tests.lab.api import now, path, stamp
from tests.lab.apps import App, Container, Process
from tests.lab.families.between import publish
from tests.lab.families.moving import spare
from tests.lab.families.still_more_stories import drain
from tests.lab.lab import NODES, Lab
from tests.lab.manifests import is_ready
from tests.lab.programs import every, informer
from tests.lab.scenario import family

LOCK = "weave.works/kured-node-lock"
BOOT_SECONDS = 5.0
OLD_KERNEL, NEW_KERNEL = "6.8.0-94-generic", "6.8.0-101-generic"
REPLICAS, RECYCLED_SECONDS = 6, 6.0
"""How many pods an app has, and how often the oldest of them makes room for a new one."""


@dataclass
class Reboots:
    """As kured: where packages ask for a boot, one node after another is emptied and booted."""

    lab: Lab
    asked: set[str] = field(default_factory=set)
    """Nodes that have a file which asks for it."""
    booting: set[str] = field(default_factory=set)

    async def look(self, process: Process) -> None:
        """Each for its own node; who holds the lock, an annotation of the DaemonSet says."""
        node, where = process.see().pod["spec"]["nodeName"], path("DaemonSet", "kube-system", "kured")
        found = await process.api.call("GET", where)
        if not found.ok or node in self.booting:
            return
        told = found.body["metadata"].get("annotations", {}).get(LOCK)
        holder = json.loads(told)["nodeID"] if told else ""
        if holder == node:
            await process.api.call("PATCH", path("Node", None, node), {"spec": {"unschedulable": None}})
            await process.api.call("PATCH", where, {"metadata": {"annotations": {LOCK: None}}})
        elif node in self.asked and not holder:
            lock = {"nodeID": node, "metadata": {"unschedulable": False}, "created": stamp(now()), "TTL": 0}
            meta = {
                "annotations": {LOCK: json.dumps(lock)},
                "resourceVersion": found.body["metadata"]["resourceVersion"],
            }
            if (await process.api.call("PATCH", where, {"metadata": meta})).ok:
                self.booting.add(node)
                await process.api.call("PATCH", path("Node", None, node), {"spec": {"unschedulable": True}})
                self.lab.who["kured"] = process.api
                self.lab.start(self.boot(node))

    async def boot(self, node: str) -> None:
        """What containers had is of the old kernel's file system, and the new one does not read all of it."""
        await drain(self.lab, "kured", node)
        self.lab.kubelets.crash(node)
        self.lab.outside.unpacking_none.add(node)
        self.asked.discard(node)
        await self.lab.pause(BOOT_SECONDS)
        await self.lab.kubelets.run_kernel(node, NEW_KERNEL)
        await self.lab.kubelets.come_back(node, rebooted=True)
        self.booting.discard(node)


@family(
    "Machines install a new kernel by themselves and are booted in turn: with it their runtimes do not unpack images"
    " any more, the network's agent does not come up, and what is emptied next is to start there.",
    culprit=False,
    joined=18,
)
async def kernel_images(lab: Lab) -> AsyncIterator[None]:
    """As Viktor Barzin tells of March 2026."""
    reboots = Reboots(lab)

    async def route(process: Process) -> None:
        """While it runs, its node has routes to others."""
        node = process.see().pod["spec"]["nodeName"]
        lab.outside.cut_off.discard(node)
        try:
            await informer(path("Node"))(process)
        finally:
            lab.outside.cut_off.add(node)

    watching = ("", "nodes", "get,list,watch")
    await lab.controller("kube-system", "calico-node", route, watching, kind="DaemonSet")
    await lab.until(lambda: len(pods(lab.world, "kube-system", "calico-node")) == len(NODES))
    there = lab.world["DaemonSet"]["kube-system", "calico-node"]["spec"]["template"]["spec"]["containers"][0]
    anew = {"containers": [{**there, "imagePullPolicy": "Always"}]}
    await lab.edit("admin", "DaemonSet", "kube-system", "calico-node", {"spec": {"template": {"spec": anew}}})
    rules = ("", "nodes,pods", "get,list,patch"), ("", "pods/eviction", "create"), ("apps", "daemonsets", "get,patch")
    await lab.controller("kube-system", "kured", every(1, reboots.look), *rules, kind="DaemonSet")
    for node in NODES:
        await lab.kubelets.run_kernel(node, OLD_KERNEL)
        lost = lambda node=node: is_lost(lab.world, node)  # noqa: E731
        lab.alert("KubeNodeNotReady", lost, f"node {node} has been unready", 20, node=node)
    for place in (("shop", "frontend"), ("payments", "checkout"), ("search", "query"), ("media", "uploads")):
        lab.alert_lacking(*place, seconds=15)
    nodes = spare(lab, 3)
    yield

    async def install() -> None:
        """Each at an hour of its own."""
        for node in nodes:
            reboots.asked.add(node)
            await lab.pause(lab.rng.uniform(2, 8))

    lab.start(install())


@family(
    "A token for what an app reads its help pages from runs out: what runs has them, but each new process asks for them"
    " at its start and fails all it is asked, and processes come and go as ever.",
    culprit=False,
    joined=18,
)
async def start_asks(lab: Lab) -> AsyncIterator[None]:
    """As Buttondown tells of 29 November 2020."""
    namespace, name, host = lab.rng.choice(
        (
            ("shop", "newsletters", "docs.partner.example"),
            ("media", "channels", "pages.partner.example"),
            ("search", "answers", "articles.partner.example"),
        )
    )
    expired = [0.0]

    def failing(container: Container) -> float:
        """What it did not get at its start it does not ask for again."""
        return 1.0 if expired[0] and now().timestamp() - container.seconds > expired[0] else 0.0

    async def recycle(process: Process) -> None:
        """One of a kind whose processes are started anew each day, whatever they are."""
        where = path("Pod", namespace)
        listed = await process.api.call("GET", f"{where}?labelSelector=app.kubernetes.io/name={name}")
        found = [one for one in listed.body.get("items", []) if "deletionTimestamp" not in one["metadata"]]
        if len(found) >= REPLICAS and all(map(is_ready, found)):
            oldest = min(found, key=lambda one: str(one["metadata"]["creationTimestamp"]))
            await process.api.call("DELETE", path("Pod", namespace, oldest["metadata"]["name"]))

    like = App("", abroad=(host,), failing=failing, asked=lambda: 40.0)
    await lab.app(namespace, name, like=like, replicas=REPLICAS)
    await lab.controller(
        "platform", "recycler", every(RECYCLED_SECONDS, recycle), ("", "pods", "list,delete"), replicas=1
    )
    await lab.until(lambda: sum(map(is_ready, pods(lab.world, namespace, name))) == REPLICAS)
    await publish(lab, namespace, name)
    lab.alert_ingress_errors(namespace, namespace, 0.2)
    yield
    expired[0] = now().timestamp()
