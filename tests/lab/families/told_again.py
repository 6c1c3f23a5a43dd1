"""What was told of nodes: a kubelet that falls behind with what it tells, and one whose machine's memory is full."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import datetime

from tests.lab import objects
from tests.lab.alerts import pods
from tests.lab.api import now, path
from tests.lab.apps import App, Container, Problem, Process
from tests.lab.lab import NODES, ROBOTS, Lab
from tests.lab.manifests import is_ready
from tests.lab.programs import every
from tests.lab.scenario import family

BUILD_SECONDS, BUILD_EVERY, CREDENTIALS_SECONDS = 6.0, 0.6, 4.0
"""How long a build takes, how often one begins, and how long it waits for credentials."""
KUBELET_QPS = 2.4
"""Enough for a third of the builds, too little for all of them: each is told of three times."""
BUILD = {"app.kubernetes.io/component": "build"}
READ_MIB = 7000.0
"""That come in each second while a whole index is read."""


@family(
    "The autoscaler takes two of three nodes for builds away as they look idle: all builds are on the last one, whose"
    " kubelet may ask the API server only so often. It tells the addresses of pods too late, and who gives credentials"
    " out knows no pod by that address.",
    joined=10,
)
async def builder_nodes(lab: Lab) -> AsyncIterator[None]:
    """As in "Build Errors of Continuous Delivery Platform" (Zalando, 2019)."""
    robots = [place[:2] for place in ROBOTS.values()] + [("kube-system", "cluster-autoscaler")]
    homes = {pod["spec"]["nodeName"] for place in robots for pod in pods(lab.world, *place)}
    builders = lab.rng.sample([node for node in NODES if node not in homes], 3)
    failed, is_open = [0], asyncio.Event()

    def check(container: Container) -> Problem | None:
        """Who gives credentials out finds a pod by the address that its status has."""
        if "podIP" in container.pod.get("status", {}) or container.seconds < CREDENTIALS_SECONDS:
            return None
        return Problem("crash", "botocore.exceptions.NoCredentialsError: Unable to locate credentials")

    image = "registry.corp.example/platform/builder"
    lab.apps[image] = App(image, check=check, ends_after=BUILD_SECONDS)
    build = objects.deployment("platform", "build", f"{image}:1.0.0", restartPolicy="Never")["spec"]["template"]["spec"]
    build["nodeSelector"] = {"pool": "builders"}
    del build["containers"][0]["readinessProbe"]

    async def run(process: Process) -> None:
        """One more build; those that are through are counted and cleaned up."""
        if not is_open.is_set():
            return
        meta = {"name": f"build-{process.rng.randrange(10**9)}", "labels": BUILD}
        await process.api.call("POST", path("Pod", "platform"), {"metadata": meta, "spec": build})
        listed = await process.api.call(
            "GET", f"{path('Pod', 'platform')}?labelSelector=app.kubernetes.io/component=build"
        )
        for one in listed.body.get("items", []):
            if (phase := one["status"]["phase"]) in ("Succeeded", "Failed"):
                failed[0] += phase == "Failed"
                await process.api.call("DELETE", path("Pod", "platform", one["metadata"]["name"]))

    async def open_soon() -> None:
        await lab.pause(3)
        is_open.set()

    lab.outside.kubelet_qps = KUBELET_QPS
    for node in builders:
        await lab.edit("admin", "Node", "", node, {"metadata": {"labels": {"pool": "builders"}}})
    rights = (("", "nodes", "get,patch,delete"), ("", "pods/eviction", "create"))
    await lab.apply(objects.cluster_role("cluster-autoscaler-nodes", *rights))
    names = ("cluster-autoscaler-nodes", "cluster-autoscaler-nodes", "kube-system", "cluster-autoscaler")
    await lab.apply(objects.binding(*names))
    await lab.robot("autoscaler", "kube-system", "cluster-autoscaler", "cluster-autoscaler/1.0.0")
    runner = every(BUILD_EVERY, run)
    general = {"pool": "general"}
    rule = ("", "pods", "*")
    await lab.controller("platform", "build-runner", runner, rule, replicas=1, nodeSelector=general)
    failures = lambda: failed[0]  # noqa: E731
    lab.measure("builds_failed_total", failures, "counter", namespace="platform", service="build-runner")
    failing = lab.rate(failures, 0.3, seconds=8)
    lab.alert("BuildErrorsHigh", failing, "builds fail", 4, namespace="platform", service="build-runner")
    await lab.until(lambda: all(is_ready(pod) for pod in pods(lab.world, "platform", "build-runner")))
    lab.start(open_soon())
    yield
    idle = builders[:2]
    for node in idle:
        taint = {"key": "ToBeDeletedByClusterAutoscaler", "value": f"{now():%s}", "effect": "NoSchedule"}
        await lab.culprit("autoscaler", "update", "Node", "", node, {"spec": {"taints": [taint]}})
    await asyncio.gather(*(_take_away(lab, node) for node in idle))


async def _take_away(lab: Lab, node: str) -> None:
    """What has an owner is evicted, builds come to their end, and the machine is gone."""
    for (namespace, name), pod in list(lab.world["Pod"].items()):
        owners = {owner["kind"] for owner in pod["metadata"].get("ownerReferences", ())}
        if pod["spec"].get("nodeName") == node and "ReplicaSet" in owners:
            body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"namespace": namespace, "name": name}}
            await lab.who["autoscaler"].call("POST", f"{path('Pod', namespace, name)}/eviction", body)
    await lab.pause(BUILD_SECONDS + 3)
    lab.outside.dead_nodes.add(node)
    await lab.culprit("autoscaler", "delete", "Node", "", node)


@family(
    "A rule of the alerts on logs is to look at everything that was ever logged: what evaluates it has no limit and"
    " reads a whole index into memory, until its node has none left and is called lost.",
    joined=10,
)
async def node_memory(lab: Lab) -> AsyncIterator[None]:
    """As in "Maximize learnings from a Kubernetes cluster failure" (NU.nl, 2019)."""
    name, whole = "elastalert", "scan_entire_timeframe: true"
    began: dict[str, datetime] = {}

    def check(container: Container) -> Problem | None:
        """It reads its rules anew when they change."""
        uid = container.pod["metadata"]["uid"]
        if whole in container.config["rules.yaml"]:
            reads = (now() - began.setdefault(uid, now())).total_seconds()
            lab.outside.taken[uid] = READ_MIB * min(reads, container.seconds)
        return None

    def rules(index: str, *more: str) -> dict[str, str]:
        lines = (f"index: {index}", "type: frequency", "num_events: 50", "timeframe:", "  minutes: 5", *more)
        return {"rules.yaml": "\n".join(lines) + "\n"}

    await lab.apply(objects.config_map("monitoring", name, **rules("logstash-*")))
    image = f"registry.corp.example/monitoring/{name}"
    lab.apps[image] = App(image, check=check)
    manifest = objects.deployment("monitoring", name, f"{image}:0.2.4", replicas=1, config=name)
    manifest["spec"]["template"]["spec"]["containers"][0]["resources"] = {}
    await lab.apply(manifest)
    for node in NODES:
        lab.alert("HostOomKillDetected", _killed_on(lab, node), f"node {node} was out of memory", 2, instance=node)
        lab.alert("KubeNodeNotReady", _lost(lab, node), f"node {node} has been unready", 15, node=node)
    yield
    by = lab.rng.choice(("ci", "alice", "argocd"))
    body = {"data": rules(lab.rng.choice(("logstash-*", "access-*", "*")), whole, "use_count_query: false")}
    await lab.culprit(by, "update", "ConfigMap", "monitoring", name, body)


def _killed_on(lab: Lab, node: str) -> Callable[[], bool]:
    def holds() -> bool:
        events = lab.world["Event"].values()
        return any(one["reason"] == "SystemOOM" and one["involvedObject"]["name"] == node for one in events)

    return holds


def _lost(lab: Lab, node: str) -> Callable[[], bool]:
    def holds() -> bool:
        conditions = lab.world["Node"]["", node]["status"]["conditions"]
        return any(one["type"] == "Ready" and one["status"] != "True" for one in conditions)

    return holds
