"""What was told of memory of old: of connections to who has gone, and of what takes all that a node has."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable
from datetime import datetime
from typing import Any
from zlib import crc32

from tests.lab import objects
from tests.lab.alerts import is_lost, pods, was_out_of_memory
from tests.lab.api import Json, now, path
from tests.lab.apps import App, Container, Problem
from tests.lab.lab import NODES, ROBOTS, Lab
from tests.lab.network import DNS, backends
from tests.lab.programs import every, getting
from tests.lab.scenario import family

CORES, CORES_PER_SERVER = 16, 40
"""Of a node, and for how many of them there is to be a server of the DNS."""
READ_MIB = 7000.0
"""That a reindexing takes into memory in each second."""
KEPT_MIB = 5000.0
"""That the busiest of the log shippers keeps more in each second."""


@family(
    "At night a node is empty and removed, and the autoscaler of the DNS ends one of three servers, as fewer nodes need"
    " fewer. The agents that keep Services' addresses fail to delete connections to it: who has one asks it for ever.",
    joined=11,
)
async def stale_connection(lab: Lab) -> AsyncIterator[None]:
    """As in "DNS issues in Kubernetes. Public postmortem #1" (Preply, 2020)."""
    asked: dict[str, str] = {}  # by process: the server to which its connection leads
    address = lab.world["Service"][DNS]["spec"]["clusterIP"]

    def check(container: Container) -> Problem | None:
        """Its resolver keeps one socket: all that it sends goes where its first packet went."""
        meta, told = container.pod["metadata"], container.pod.get("status", {})
        process = f"{meta['uid']} {sum(one['restartCount'] for one in told.get('containerStatuses', ()))}"
        servers = sorted(str(one["metadata"]["name"]) for one in backends(lab.world, *DNS))
        if process not in asked and servers:
            asked[process] = servers[crc32(process.encode()) % len(servers)]
        if process not in asked or (DNS[0], asked[process]) in lab.world["Pod"]:
            return None
        socket = f"{told.get('podIP', '')}:{32768 + crc32(process.encode()) % 28000}"
        lookup = f"lookup ledger.payments on {address}:53: read udp {socket}->{address}:53: i/o timeout"
        return Problem("unready", f"probe failed: HTTP probe failed with statuscode: 503 ({lookup})")

    await lab.edit("admin", "Deployment", *DNS, {"spec": {"replicas": _servers(len(NODES))}})
    await lab.until(lambda: len(backends(lab.world, *DNS)) == _servers(len(NODES)))
    for name in ("accounts", "invoices", "refunds"):
        await lab.app("payments", name, like=App("", upstreams=(("payments", "ledger"),), check=check), replicas=4)
        lab.alert_lacking("payments", name)
    rules = ("", "nodes", "get,list,patch,delete"), ("", "pods/eviction", "create")
    await lab.apply(objects.cluster_role("cluster-autoscaler-nodes", *rules))
    names = ("cluster-autoscaler-nodes", "cluster-autoscaler-nodes", "kube-system", "cluster-autoscaler")
    await lab.apply(objects.binding(*names))
    await lab.robot("autoscaler", "kube-system", "cluster-autoscaler", "cluster-autoscaler/1.0.0")
    program = every(3, getting(f"{path('Node')}?limit=100"))
    rights = ("", "nodes", "list"), ("apps", "deployments,deployments/scale", "get,patch")
    await lab.controller("kube-system", "dns-autoscaler", program, *rights, replicas=1)
    await lab.robot("dns-autoscaler", "kube-system", "dns-autoscaler", "cluster-proportional-autoscaler/1.0.0")
    yield
    robots = [place[:2] for place in ROBOTS.values()]
    kept = (DNS, ("kube-system", "cluster-autoscaler"), ("kube-system", "dns-autoscaler"), *robots)
    homes = {pod["spec"].get("nodeName") for place in kept for pod in pods(lab.world, *place)}
    await _remove(lab, lab.rng.choice([node for node in NODES if node not in homes]))
    await lab.pause(lab.rng.uniform(2, 4))
    fewer = {"spec": {"replicas": _servers(len(NODES) - 1)}}
    await lab.culprit("dns-autoscaler", "update", "Deployment", *DNS, fewer)


def _servers(nodes: int) -> int:
    return math.ceil(nodes * CORES / CORES_PER_SERVER)


async def _remove(lab: Lab, node: str) -> None:
    """As the autoscaler of a cluster: nothing new comes there, what has an owner is evicted, the machine is gone."""
    why = "as there are fewer nodes, there is to be one server of the DNS less"
    taint = {"key": "ToBeDeletedByClusterAutoscaler", "value": f"{now():%s}", "effect": "NoSchedule"}
    await lab.also(why, "autoscaler", "update", "Node", "", node, {"spec": {"taints": [taint]}})
    for (namespace, name), pod in list(lab.world["Pod"].items()):
        owners = {owner["kind"] for owner in pod["metadata"].get("ownerReferences", ())}
        if pod["spec"].get("nodeName") == node and "ReplicaSet" in owners:
            body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"namespace": namespace, "name": name}}
            await lab.who["autoscaler"].call("POST", f"{path('Pod', namespace, name)}/eviction", body)
    await lab.pause(5)
    lab.outside.dead_nodes.add(node)
    await lab.also(why, "autoscaler", "delete", "Node", "", node)


@family(
    "What ships logs has no limit on its memory, and keeps there what the nodes' slow disks do not give back in time:"
    " as there is more and more to ship, one node after another has no memory left for some seconds.",
    culprit=False,
    joined=11,
)
async def log_shipper(lab: Lab) -> AsyncIterator[None]:
    """As in "Post Mortem: Kubernetes Node OOM" (Blue Matador, 2019)."""
    since: list[datetime] = []
    share = {node: lab.rng.uniform(0.1, 0.5) for node in NODES} | {lab.rng.choice(NODES): 1.0}

    def check(container: Container) -> Problem | None:
        """It keeps more and more since its node's logs are more than it can ship, or since it was started."""
        if since:
            seconds = min(container.seconds, (now() - since[0]).total_seconds())
            kept = KEPT_MIB * share[container.pod["spec"]["nodeName"]] * seconds
            lab.outside.taken[container.pod["metadata"]["uid"]] = kept
        return None

    lab.outside.thrashing_seconds = 4.0
    await lab.apply(_unlimited("monitoring", "log-shipper", check, lab, kind="DaemonSet"))
    for node in NODES:
        _alert_on_memory(lab, node)
    yield
    since.append(now())


@family(
    "After a release that indexes fewer fields, somebody starts a Job that indexes all anew: it has no limit and takes"
    " all memory of its node, which is called lost. The Job is not done, so it goes on at the next node.",
    joined=11,
)
async def greedy_job(lab: Lab) -> AsyncIterator[None]:
    """As in "Search and Reporting Outage" (Universe, 2017)."""

    def check(container: Container) -> Problem | None:
        lab.outside.taken[container.pod["metadata"]["uid"]] = READ_MIB * container.seconds
        return None

    for name in ("discover", "reports"):
        await lab.app("search", name, replicas=3)
        lab.alert_lacking("search", name)
    for node in NODES:
        _alert_on_memory(lab, node)
        lost = lambda node=node: is_lost(lab.world, node)  # noqa: E731
        lab.alert("KubeNodeNotReady", lost, f"node {node} has been unready", 4, node=node)
    template = _unlimited("search", "reindex", check, lab, restartPolicy="Never")["spec"]["template"]
    del template["spec"]["containers"][0]["readinessProbe"]
    yield
    tag = f"1.{lab.rng.randrange(4, 30)}.0"
    await lab.roll(lab.rng.choice(("ci", "argocd")), "search", "discover", tag)
    await lab.pause(lab.rng.uniform(6, 10))
    name = f"reindex-{lab.rng.randrange(10**5):05}"
    job: Json = {"kind": "Job", "metadata": {"namespace": "search", "name": name}, "spec": {"template": template}}
    await lab.culprit(lab.rng.choice(("alice", "bob", "ci")), "create", "Job", "search", name, job)


def _unlimited(
    namespace: str, name: str, check: Callable[[Container], Problem | None], lab: Lab, **manifest: Any
) -> Json:
    """The manifest of an app that asks for no room and may take all that there is."""
    image = f"registry.corp.example/{namespace}/{name}"
    lab.apps[image] = App(image, check=check)
    made = objects.deployment(namespace, name, f"{image}:1.0.0", **manifest)
    made["spec"]["template"]["spec"]["containers"][0]["resources"] = {}
    return made


def _alert_on_memory(lab: Lab, node: str) -> None:
    holds = lambda: was_out_of_memory(lab.world, node)  # noqa: E731
    lab.alert("HostOomKillDetected", holds, f"node {node} was out of memory", 2, instance=node)
