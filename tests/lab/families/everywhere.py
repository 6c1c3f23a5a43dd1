"""What was told of what every node has: a kubelet that grows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime

from tests.lab import objects
from tests.lab.alerts import is_lost, was_out_of_memory
from tests.lab.api import now, path
from tests.lab.apps import Process
from tests.lab.lab import NODES, Lab
from tests.lab.programs import every
from tests.lab.scenario import family

OLD = "v1.36.1"
LEAK_MIB = 2600.0
"""That a kubelet of the new version keeps more in each second."""


@family(
    "The version of kubelets is raised in what an updater of nodes reads, and it sees to one node after another: the"
    " new ones never let go of memory, and nodes that have had one for a while have none left.",
    joined=11,
)
async def kubelet_leak(lab: Lab) -> AsyncIterator[None]:
    """As one incident of "Let's talk about Failures with Kubernetes" (Zalando, Hamburg 2019)."""
    name, key = "node-updater", "KUBELET_VERSION"
    since: dict[str, datetime] = {}

    async def update(process: Process) -> None:
        """One node at a time, and nothing new comes there meanwhile."""
        wanted = process.config[key]
        listed = await process.api.call("GET", path("Node"))
        for node in listed.body.get("items", []):
            if node["status"]["nodeInfo"]["kubeletVersion"] == wanted:
                continue
            which = node["metadata"]["name"]
            await process.api.call("PATCH", path("Node", None, which), {"spec": {"unschedulable": True}})
            await asyncio.sleep(3)
            await lab.kubelets.update(which, wanted)
            since[which] = now()
            await process.api.call("PATCH", path("Node", None, which), {"spec": {"unschedulable": None}})
            return

    async def leak() -> None:
        while True:
            for node, at in since.items():
                lab.outside.kept[node] = LEAK_MIB * (now() - at).total_seconds()
            await asyncio.sleep(0.5)

    for node in NODES:
        await lab.kubelets.update(node, OLD)
        memory = lambda node=node: was_out_of_memory(lab.world, node)  # noqa: E731
        lost = lambda node=node: is_lost(lab.world, node)  # noqa: E731
        lab.alert("HostOomKillDetected", memory, f"node {node} was out of memory", 2, instance=node)
        lab.alert("KubeNodeNotReady", lost, f"node {node} has been unready", 4, node=node)
    await lab.apply(objects.config_map("kube-system", name, **{key: OLD, "BATCH": "1"}))
    rights = ("", "nodes", "get,list,patch")
    await lab.controller("kube-system", name, every(2, update), rights, replicas=1, config=name)
    lab.start(leak())
    yield
    body = {"data": {key: lab.rng.choice(("v1.36.2", "v1.36.3", "v1.36.4"))}}
    await lab.culprit(lab.rng.choice(("flux", "ci", "bob")), "update", "ConfigMap", "kube-system", name, body)
