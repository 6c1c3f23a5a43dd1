"""What was told of what every node has: a kubelet that grows, an agent that asks for its image, sidecars that spin."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime

from tests.lab import objects
from tests.lab.alerts import is_lost, pods, was_out_of_memory
from tests.lab.api import Json, now, path
from tests.lab.apps import App, Container, Problem, Process
from tests.lab.lab import NODES, ROBOTS, Lab
from tests.lab.programs import every
from tests.lab.scenario import family

OLD = "v1.36.1"
LEAK_MIB = 2600.0
"""That a kubelet of the new version keeps more in each second."""
PULLS = 24
"""For all nodes together, in the while that the registry looks at."""
USUAL_MILLICORES, SPINNING_MILLICORES = 100, 1000
"""What an app needs of a processor, and a sidecar that tries without a pause."""
SIDECAR = "registry.corp.example/platform/log-sidecar"


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


@family(
    "A new agent for every node is brought by the newest tag of its image, so that the registry is asked at each start,"
    " and crashes everywhere: the registry has enough of the address that all nodes share, and gives nobody an image.",
    joined=11,
)
async def newest_tag(lab: Lab) -> AsyncIterator[None]:
    """As in "10 Ways to Shoot Yourself in the Foot with Kubernetes" (Datadog, KubeCon Europe 2019)."""
    agent = lab.rng.choice(("trace-agent", "flow-agent", "audit-agent"))

    def check(container: Container) -> Problem | None:
        return Problem("crash", 'panic: unknown field "endpoints" in /etc/agent/agent.yaml')

    image = f"registry.corp.example/monitoring/{agent}"
    lab.apps[image] = App(image, check=check)
    deployed = (("payments", "statements"), ("search", "synonyms"))
    for place in deployed:
        await lab.app(*place)
        lab.alert_stuck(*place)
    lab.outside.pulls = PULLS
    yield

    async def deliver() -> None:
        """As on any day."""
        for place in lab.rng.sample(deployed, len(deployed)):
            await lab.pause(lab.rng.uniform(14, 18))
            await lab.roll("argocd", *place, "1.0.1")

    manifest = objects.deployment("monitoring", agent, f"{image}:latest", kind="DaemonSet")
    by = lab.rng.choice(("carol", "ci", "flux"))
    await lab.culprit(by, "create", "DaemonSet", "monitoring", agent, manifest)
    lab.start(deliver())


@family(
    "A broker outside of the cluster cannot be reached for minutes as the network beneath it is upgraded: the sidecars"
    " of all apps, which send it their logs, spin. On the fullest nodes the runtime does not answer, what was there is"
    " made anew on others, and those are too full then.",
    culprit=False,
    flags=("--default-not-ready-toleration-seconds=8",),
    joined=11,
)
async def log_sidecars(lab: Lab) -> AsyncIterator[None]:
    """As in "On Infrastructure at Scale: A Cascading Failure of Distributed Systems" (Target, 2019)."""
    homes = {pod["spec"]["nodeName"] for place in ROBOTS.values() for pod in pods(lab.world, *place[:2])}
    nodes = lab.rng.sample([node for node in NODES if node not in homes], 4)
    lab.apps[SIDECAR] = App(SIDECAR)
    broker = "kafka.corp.example"

    def used() -> dict[str, int]:
        """How much of the processors of each node is used while sidecars spin, in millicores."""
        busy = dict.fromkeys(nodes, 0)
        for pod in lab.world["Pod"].values():
            if pod["spec"].get("nodeName") in busy and pod.get("status", {}).get("phase") == "Running":
                busy[pod["spec"]["nodeName"]] += USUAL_MILLICORES
                busy[pod["spec"]["nodeName"]] += SPINNING_MILLICORES * (len(pod["spec"]["containers"]) - 1)
        return busy

    async def spin(room: int) -> None:
        """They try again and again, without a pause, while nobody answers."""
        while broker in lab.outside.broken:
            lab.outside.stalled.update(node for node, much in used().items() if much >= room)
            await asyncio.sleep(0.5)
        lab.outside.stalled.clear()

    async def come_and_go(room: int) -> None:
        while True:
            lab.outside.broken[broker] = "no route to host"
            await lab.pause(lab.rng.uniform(2, 4))  # what they keep meanwhile is full then
            lab.start(spin(room))
            await lab.pause(lab.rng.uniform(30, 40))
            del lab.outside.broken[broker]
            await lab.pause(lab.rng.uniform(3, 5))

    for node in nodes:
        await lab.edit("admin", "Node", "", node, {"metadata": {"labels": {"pool": "apps"}}})
        lost = lambda node=node: is_lost(lab.world, node)  # noqa: E731
        lab.alert("KubeNodeNotReady", lost, f"node {node} has been unready", 8, node=node)
    for namespace, name in (("shop", "orders"), ("shop", "prices"), ("search", "facets"), ("media", "gallery")):
        await lab.apply(_with_sidecar(lab, namespace, name))
        lab.alert_lacking(namespace, name, seconds=12)
    yield
    lab.start(come_and_go(max(used().values())))  # the fullest of them does not stand it


def _with_sidecar(lab: Lab, namespace: str, name: str) -> Json:
    image = f"registry.corp.example/{namespace}/{name}"
    lab.apps[image] = App(image)
    made = objects.deployment(namespace, name, f"{image}:1.0.0", replicas=4, nodeSelector={"pool": "apps"})
    resources = {"requests": {"cpu": "50m", "memory": "64Mi"}}
    sidecar = {"name": "log-sidecar", "image": f"{SIDECAR}:1.4.0", "resources": resources}
    made["spec"]["template"]["spec"]["containers"].append(sidecar)
    return made
