"""Where pods may run: taints, drains, priorities, volumes."""

from __future__ import annotations

from collections.abc import AsyncIterator

from tests.lab import objects
from tests.lab.alerts import lacking, pending
from tests.lab.api import Json, Key, path
from tests.lab.apps import Process
from tests.lab.lab import NODES, Lab
from tests.lab.programs import every, getting
from tests.lab.scenario import family


@family("Nodes are tainted for a new team before it has anywhere to go: a scaled-up app finds no node.")
async def node_taint(lab: Lab) -> AsyncIterator[None]:
    lab.reserve("shop", "catalog")
    holds = lambda: pending(lab.world, "shop")  # noqa: E731
    lab.alert("KubePodPending", holds, "a pod of shop has had no node for a while", 6, namespace="shop")
    yield
    body = {"spec": {"taints": [{"key": "dedicated", "value": "ml", "effect": "NoSchedule"}]}}
    for node in NODES:
        await lab.culprit("bob", "update", "Node", "", node, body)
    await lab.pause(5)
    await lab.edit("argocd", "Deployment", "shop", "catalog", {"spec": {"replicas": 4}})


@family("A budget that allows no disruption at all is made: the rolling replacement of nodes cannot drain any more.")
async def disruption_budget(lab: Lab) -> AsyncIterator[None]:
    lab.reserve("search", "query")

    async def drain(process: Process) -> None:
        """The pod that is oldest, as a replacement of nodes that takes its time."""
        listed = await process.api.call("GET", f"{path('Pod', 'search')}?labelSelector=app.kubernetes.io/name=query")
        for pod in sorted(listed.body.get("items", []), key=lambda one: str(one["metadata"]["creationTimestamp"]))[:1]:
            name = pod["metadata"]["name"]
            body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"namespace": "search", "name": name}}
            await process.api.call("POST", f"{path('Pod', 'search', name)}/eviction", body)

    rules = (("", "pods,nodes", "get,list"), ("", "pods/eviction", "create"))
    app = await lab.controller("platform", "node-replacer", every(5, drain), *rules, replicas=1)
    old = {"maxUnavailable": 1, "selector": {"matchLabels": {"app.kubernetes.io/name": "query"}}}
    meta = {"namespace": "search", "name": "query"}
    await lab.apply({"kind": "PodDisruptionBudget", "metadata": meta, "spec": old})
    refused = lab.rate(lab.refused(app.image, 429), 0.1, seconds=15)
    lab.alert(
        "NodeDrainStuck", refused, "a node could not be drained", 8, service="node-replacer", namespace="platform"
    )
    yield
    spec = {"minAvailable": "100%", "maxUnavailable": None}
    await lab.culprit("alice", "update", "PodDisruptionBudget", "search", "query", {"spec": spec})


@family("A batch job of a high priority takes the room of the shop: its pods are preempted and find no other node.")
async def preemption(lab: Lab) -> AsyncIterator[None]:
    lab.reserve("shop", "catalog", "cart", "frontend")
    meta = {"name": "business-critical"}
    await lab.apply({"kind": "PriorityClass", "metadata": meta, "value": 100000})
    holds = lambda: pending(lab.world, "shop") or lacking(lab.world, "shop", "catalog")  # noqa: E731
    lab.alert("KubePodPending", holds, "a pod of shop has had no node for a while", 8, namespace="shop")
    yield
    image = "registry.corp.example/platform/training:1.0.0"
    manifest: Json = objects.deployment(
        "platform", "training", image, replicas=6, priorityClassName="business-critical"
    )
    one = manifest["spec"]["template"]["spec"]["containers"][0]
    one["resources"] = {"requests": {"cpu": "15800m", "memory": "64Mi"}}
    await lab.culprit("bob", "create", "Deployment", "platform", "training", manifest)


async def provide(process: Process) -> None:
    """As a CSI provisioner: a volume for each claim of its class."""
    claims = await process.api.call("GET", path("PersistentVolumeClaim"))
    for claim in claims.body.get("items", []):
        meta: Json = claim["metadata"]
        key: Key = (meta["namespace"], meta["name"])
        if claim["status"]["phase"] == "Pending" and claim["spec"].get("storageClassName") == "standard":
            reference = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": key[0], "name": key[1]}
            spec = {
                "capacity": {"storage": "1Gi"},
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": "standard",
                "claimRef": {**reference, "uid": meta["uid"]},
                "csi": {"driver": "disk.csi.example", "volumeHandle": meta["uid"]},
            }
            body = {"metadata": {"name": f"pvc-{meta['uid']}"}, "spec": spec}
            await process.api.call("POST", path("PersistentVolume"), body)


async def stateful(lab: Lab, namespace: str, name: str) -> None:
    """A StatefulSet each of whose pods claims a volume and names no class. Raises RefusedError."""
    await lab.apply(objects.service(namespace, name))
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    image = f"registry.corp.example/{namespace}/{name}:1.0.0"
    template: Json = objects.deployment(namespace, name, image, kind="StatefulSet")
    template["spec"]["volumeClaimTemplates"] = [{"metadata": {"name": "data"}, "spec": claim}]
    template["spec"]["serviceName"] = name
    await lab.apply(template)


@family(
    "The default StorageClass loses its mark in a migration: new volumes have no class, and their pods wait for ever."
)
async def storage_class(lab: Lab) -> AsyncIterator[None]:
    rules = (("", "persistentvolumeclaims,persistentvolumes", "*"), ("storage.k8s.io", "*", "get,list,watch"))
    await lab.controller("kube-system", "csi-provisioner", every(1, provide), *rules, replicas=1)
    mark = {"storageclass.kubernetes.io/is-default-class": "true"}
    meta = {"name": "standard", "annotations": mark}
    await lab.apply({"kind": "StorageClass", "metadata": meta, "provisioner": "disk.csi.example"})
    holds = lambda: pending(lab.world, "search")  # noqa: E731
    lab.alert("KubePodPending", holds, "a pod of search has had no node for a while", 6, namespace="search")
    await stateful(lab, "search", "vectors")
    yield
    body = {"metadata": {"annotations": {"storageclass.kubernetes.io/is-default-class": "false"}}}
    await lab.culprit("ci", "update", "StorageClass", "", "standard", body)
    await lab.pause(6)
    await lab.edit("argocd", "StatefulSet", "search", "vectors", {"spec": {"replicas": 3}})


@family("An agent on every node is rolled out with a request for CPU that no full node has left: its pods wait.")
async def daemon_request(lab: Lab) -> AsyncIterator[None]:
    async def nothing(process: Process) -> None:
        await getting(f"{path('Node')}?limit=1")(process)

    await lab.controller("monitoring", "profiler", every(4, nothing), ("", "nodes", "list"), kind="DaemonSet")
    lab.alert(
        "KubeDaemonSetRolloutStuck",
        lambda: pending(lab.world, "monitoring"),
        "profiler waits",
        6,
        namespace="monitoring",
    )
    yield
    image = "registry.corp.example/monitoring/profiler:1.1.0"
    container = objects.deployment("monitoring", "profiler", image)["spec"]["template"]["spec"]["containers"][0]
    container["resources"] = {"requests": {"cpu": "16", "memory": "64Mi"}}
    body = {"spec": {"template": {"spec": {"containers": [container]}}}}
    await lab.culprit("argocd", "update", "DaemonSet", "monitoring", "profiler", body)
