"""What was told of room that is counted in one way and used in another."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence

from tests.lab import objects
from tests.lab.alerts import is_lost, pods, was_out_of_memory
from tests.lab.api import Json, now, path
from tests.lab.apps import App, Process, Program, millicores
from tests.lab.company import READ
from tests.lab.families.joining import AUTOSCALER, say
from tests.lab.lab import NODES, ROBOTS, Lab
from tests.lab.programs import both, every
from tests.lab.scenario import family

ROOM_M = 16000.0
"""Of a node's processor."""
THRESHOLD = "--scale-down-utilization-threshold"
KEPT = "cluster-autoscaler.kubernetes.io/safe-to-evict"
FILLED = 0.8
"""The share of the room on other nodes that can be used, as no pod is on two of them."""
LOOK_SECONDS, UNNEEDED_LOOKS, DRAIN_SECONDS = 3, 2, 5
LARGE = {"requests": {"cpu": "2700m", "memory": "1Gi"}, "limits": {"memory": "16Gi"}}
LARGE_MIB, LARGE_PODS = 14000, 3 * len(NODES)
"""What each of them has in memory: four fit on a node, five do not."""


@family(
    "The autoscaler is told to empty nodes of which less than eight tenths are asked for, no longer only half: it packs"
    " what asks for little memory and uses much on fewer nodes, until one of them has none left.",
    joined=12,
)
async def scale_down(lab: Lab) -> AsyncIterator[None]:
    """As Nordstrom tells of in key words: out of memory, nodes that are not ready, a cluster's autoscaler."""
    namespace, name = lab.rng.choice((("search", "models"), ("media", "renderer"), ("shop", "recommender")))
    image = f"registry.corp.example/{namespace}/{name}"
    lab.apps[image] = App(image, memory_mi=LARGE_MIB)
    even = {"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule"}
    even |= {"nodeTaintsPolicy": "Honor", "labelSelector": {"matchLabels": {"app.kubernetes.io/name": name}}}
    body = objects.deployment(namespace, name, f"{image}:1.0.0", replicas=LARGE_PODS, topologySpreadConstraints=[even])
    body["spec"]["template"]["spec"]["containers"][0]["resources"] = LARGE
    await lab.apply(body)
    await lab.apply(objects.service(namespace, name))
    lab.reserve(namespace, name)
    for where, account, _ in ROBOTS.values():
        for pod in pods(lab.world, where, account):  # a robot keeps the token of its pod
            kept = {"metadata": {"annotations": {KEPT: "false"}}}
            await lab.edit("admin", "Pod", where, pod["metadata"]["name"], kept)
    app = lab.apps[f"registry.corp.example/{'/'.join(AUTOSCALER)}"]
    assert app.program
    app.program = both(app.program, shrinking(lab))
    rules = READ, ("", "configmaps", "*"), ("", "nodes", "patch,delete"), ("", "pods/eviction,events", "create")
    await lab.edit("admin", "ClusterRole", "", AUTOSCALER[1], objects.cluster_role(AUTOSCALER[1], *rules))
    await lab.edit("admin", "Deployment", *AUTOSCALER, _told(lab, "0.5"))
    for node in NODES:
        memory = lambda node=node: was_out_of_memory(lab.world, node)  # noqa: E731
        lost = lambda node=node: is_lost(lab.world, node)  # noqa: E731
        lab.alert("HostOomKillDetected", memory, f"node {node} was out of memory", 2, instance=node)
        lab.alert("KubeNodeNotReady", lost, f"node {node} has been unready", 4, node=node)
    yield
    by = lab.rng.choice(("alice", "carol", "argocd"))
    await lab.culprit(by, "update", "Deployment", *AUTOSCALER, _told(lab, "0.8"))


def _told(lab: Lab, threshold: str) -> Json:
    """A change of what the autoscaler is started with."""
    container = lab.world["Deployment"][AUTOSCALER]["spec"]["template"]["spec"]["containers"][0]
    args = ["--skip-nodes-with-system-pods=false", f"{THRESHOLD}={threshold}"]
    return {"spec": {"template": {"spec": {"containers": [{**container, "args": args}]}}}}


def shrinking(lab: Lab) -> Program:
    """As the autoscaler: a node that hardly anything is asked of for a while, and can be emptied, is removed."""
    looks: dict[str, int] = defaultdict(int)

    async def look(process: Process) -> None:
        listed = await process.api.call("GET", path("Node"))
        running = (await process.api.call("GET", path("Pod"))).body.get("items", [])
        if any("nodeName" not in pod["spec"] for pod in running):
            return
        own, threshold = process.see().pod["spec"]["nodeName"], _threshold(process)
        nodes = [one["metadata"]["name"] for one in listed.body.get("items", [])]
        asked = {node: _asked(running, node) for node in nodes}
        kept = {pod["spec"]["nodeName"] for pod in running if pod["metadata"].get("annotations", {}).get(KEPT)}
        for node in nodes:
            room = sum(ROOM_M - asked[other] for other in nodes if other != node)
            fits = node not in kept | {own} and asked[node] < FILLED * room
            looks[node] = looks[node] + 1 if fits and asked[node] / ROOM_M < threshold else 0
        unneeded = [node for node in nodes if looks[node] > UNNEEDED_LOOKS]
        if unneeded:
            await remove(process, min(unneeded, key=lambda node: asked[node]), running)

    async def remove(process: Process, node: str, running: Sequence[Json]) -> None:
        """Nothing new comes there, what is there is evicted, and the machine is given back."""
        taint = {"key": "ToBeDeletedByClusterAutoscaler", "value": f"{now():%s}", "effect": "NoSchedule"}
        await process.api.call("PATCH", path("Node", None, node), {"spec": {"taints": [taint]}})
        leaving = [pod for pod in running if pod["spec"]["nodeName"] == node and not _is_of_each_node(pod)]
        status = await process.api.call("GET", path("ConfigMap", AUTOSCALER[0], f"{AUTOSCALER[1]}-status"))
        names = ",".join(pod["metadata"]["name"] for pod in leaving)
        removing = f"Scale-down: removing node {node}, pods to reschedule: {names}"
        await say(process, {"kind": "ConfigMap", **status.body}, "Normal", "ScaleDown", removing)
        for pod in leaving:
            meta = pod["metadata"]
            await say(process, {"kind": "Pod", **pod}, "Normal", "ScaleDown", "deleting pod for node scale down")
            body = {key: meta[key] for key in ("namespace", "name")}
            eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": body}
            where = f"{path('Pod', meta['namespace'], meta['name'])}/eviction"
            await process.api.call("POST", where, eviction)
        await asyncio.sleep(DRAIN_SECONDS)
        lab.outside.dead_nodes.add(node)
        await process.api.call("DELETE", path("Node", None, node))
        looks.clear()

    return every(LOOK_SECONDS, look)


def _threshold(process: Process) -> float:
    return next(float(arg.split("=")[1]) for arg in process.see().spec["args"] if arg.startswith(THRESHOLD))


def _asked(running: Sequence[Json], node: str) -> float:
    """Of a node's processor, by all that runs there."""
    there = (pod for pod in running if pod["spec"]["nodeName"] == node)
    asking = (one.get("resources", {}).get("requests", {}) for pod in there for one in pod["spec"]["containers"])
    return sum(millicores(one.get("cpu", "0")) for one in asking)


def _is_of_each_node(pod: Json) -> bool:
    return any(owner["kind"] == "DaemonSet" for owner in pod["metadata"].get("ownerReferences", ()))
