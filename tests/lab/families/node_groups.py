"""What the nodes of a group have to do with what runs there: a zone that is left, a core that is not needed."""

from __future__ import annotations

from collections.abc import AsyncIterator

from tests.lab import objects
from tests.lab.alerts import pending, pods
from tests.lab.api import Json, now, path
from tests.lab.apps import App
from tests.lab.families.between import publish
from tests.lab.families.moving import spare
from tests.lab.families.still_more_stories import drain
from tests.lab.lab import LATER, NODES, Lab
from tests.lab.manifests import is_ready
from tests.lab.network import unserved
from tests.lab.programs import event
from tests.lab.scenario import family

ZONE, HOSTNAME = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
BOOT_SECONDS = 5.0
"""Until a machine that is started in place of another one has joined."""
DRAIN_SECONDS = 4.0
"""From the last eviction of an autoscaler until the machine is given back."""
LOGIN_SECONDS = 28.0
"""Until a hub that was started anew knows its users again."""


@family(
    "An upgrade replaces the nodes of a group one by one, and the cloud starts each new machine in a zone of its own"
    " choice: nobody is left in one of them, and pods whose volumes are there find no node.",
    joined=14,
)
async def volume_zone(lab: Lab) -> AsyncIterator[None]:
    """As a user of kops tells of February 2017 (kops 1835)."""
    region, group = lab.rng.choice(("eu-west-1", "us-east-1", "eu-central-1")), "stateful"
    nodes = spare(lab, 2)
    zones = [f"{region}{letter}" for letter in "abc"]
    general = [zones[number % 3] for number in range(len(NODES))]
    for node, zone in zip(NODES, general, strict=True):
        labels = {ZONE: zone}
        if node in nodes:  # the group has one machine in each of two zones
            labels = {ZONE: zones[nodes.index(node)], "pool": group}
        await lab.edit("admin", "Node", "", node, {"metadata": {"labels": labels}})
        await lab.kubelets.update(node, "v1.36.1")
    await lab.apply({"kind": "StorageClass", "metadata": {"name": "gp3"}, "provisioner": "ebs.csi.aws.com"})
    left = nodes[1]
    for number, (namespace, name) in enumerate(
        (("shop", "redis"), ("payments", "queue-store"), ("search", "crawl-db"))
    ):
        await _with_volume(lab, namespace, name, zones[number % 2], group)
        holds = lambda namespace=namespace: pending(lab.world, namespace)  # noqa: E731
        summary = f"a pod of {namespace} has had no node for a while"
        lab.alert("KubePodPending", holds, summary, 15, namespace=namespace)
    await lab.app("payments", "queue", like=App("", upstreams=(("payments", "queue-store"),)))
    yield
    by = lab.rng.choice(("alice", "bob"))
    await lab.culprit(by, "update", "Node", "", left, {"spec": {"unschedulable": True}})

    async def replace() -> None:
        await drain(lab, by, left)
        await lab.pause(1)
        lab.kubelets.crash(left)
        await lab.culprit(by, "delete", "Node", "", left)
        await lab.pause(BOOT_SECONDS)
        await lab.kubelets.join(LATER, "v1.36.2", {ZONE: zones[0], "pool": group})

    lab.start(replace())


async def _with_volume(lab: Lab, namespace: str, name: str, zone: str, group: str) -> None:
    """One pod with a volume that is in one zone. Raises RefusedError."""
    here = {"key": ZONE, "operator": "In", "values": [zone]}
    claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": namespace, "name": name}
    room: Json = {"accessModes": ["ReadWriteOnce"], "storageClassName": "gp3"}
    volume = {
        **room,
        "capacity": {"storage": "20Gi"},
        "claimRef": claim,
        "csi": {"driver": "ebs.csi.aws.com", "volumeHandle": f"vol-{lab.rng.getrandbits(68):017x}"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}},
    }
    made = f"pvc-{lab.rng.getrandbits(32):08x}"
    await lab.apply({"kind": "PersistentVolume", "metadata": {"name": made}, "spec": volume})
    spec = {**room, "volumeName": made, "resources": {"requests": {"storage": "20Gi"}}}
    meta = {"namespace": namespace, "name": name}
    await lab.apply({"kind": "PersistentVolumeClaim", "metadata": meta, "spec": spec})
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": name}}]
    await lab.app(namespace, name, replicas=1, nodeSelector={"pool": group}, volumes=volumes)


@family(
    "The autoscaler needs one core node less and empties the one where the only pods of a hub and its proxy are, which"
    " nothing keeps there: the hub takes long to start elsewhere, and nobody gets in.",
    joined=14,
)
async def core_node(lab: Lab) -> AsyncIterator[None]:
    """As 2i2c tells of the hub of LEAP (November 2023, infrastructure 3461)."""
    namespace = lab.rng.choice(("notebooks", "courses", "research"))
    scalers = {pod["spec"]["nodeName"] for pod in pods(lab.world, "kube-system", "cluster-autoscaler")}
    cores = [node for node in spare(lab, 3) if node not in scalers][:2]  # it does not take its own
    for node in cores:
        await lab.edit("admin", "Node", "", node, {"metadata": {"labels": {"pool": "core"}}})
    await lab.namespace(namespace)
    core = {"pool": "core"}
    await lab.app(namespace, "hub", like=App("", start_seconds=LOGIN_SECONDS), replicas=1, nodeSelector=core)
    like = App("", upstreams=((namespace, "hub"),))
    beside = {"labelSelector": {"matchLabels": {"app.kubernetes.io/name": "hub"}}, "topologyKey": HOSTNAME}
    weighed = {
        "podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": beside}]}
    }
    await lab.app(namespace, "proxy", like=like, replicas=1, nodeSelector=core, affinity=weighed)
    host = await publish(lab, namespace, "proxy")
    rights = ("", "nodes", "get,patch,delete"), ("", "pods/eviction", "create"), ("", "events", "create")
    await lab.apply(objects.cluster_role("cluster-autoscaler-nodes", *rights))
    names = ("cluster-autoscaler-nodes", "cluster-autoscaler-nodes", "kube-system", "cluster-autoscaler")
    await lab.apply(objects.binding(*names))
    await lab.until(lambda: any(is_ready(pod) for pod in pods(lab.world, namespace, "proxy")))
    holds = lambda: bool(unserved(lab.world, host))  # noqa: E731
    lab.alert("ProbeFailed", holds, f"https://{host} is not answered", 5, job="blackbox", instance=f"https://{host}")
    [hub] = pods(lab.world, namespace, "hub")
    leaving = hub["spec"]["nodeName"]
    await lab.robot("autoscaler", "kube-system", "cluster-autoscaler", "cluster-autoscaler/1.0.0")
    yield
    taint = {"key": "ToBeDeletedByClusterAutoscaler", "value": f"{now():%s}", "effect": "NoSchedule"}
    await lab.culprit("autoscaler", "update", "Node", "", leaving, {"spec": {"taints": [taint]}})
    lab.start(_empty(lab, leaving))


async def _empty(lab: Lab, node: str) -> None:
    """What is there and has another owner than a DaemonSet is evicted, and the machine is given back."""
    autoscaler = lab.who["autoscaler"]
    for (namespace, name), pod in list(lab.world["Pod"].items()):
        owners = {owner["kind"] for owner in pod["metadata"].get("ownerReferences", ())}
        if pod["spec"].get("nodeName") == node and "DaemonSet" not in owners:
            words = "ScaleDown", "deleting pod for node scale down"
            said = event({"kind": "Pod", **pod}, "Normal", *words, by="cluster-autoscaler")
            await autoscaler.call("POST", path("Event", namespace), said)
            body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"namespace": namespace, "name": name}}
            await autoscaler.call("POST", f"{path('Pod', namespace, name)}/eviction", body)
    await lab.pause(DRAIN_SECONDS)
    lab.kubelets.crash(node)
    await lab.culprit("autoscaler", "delete", "Node", "", node)
