"""Where pods may go: a zone that is there for others, a volume that is made before its pod has a node."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from zlib import crc32

from tests.lab import objects
from tests.lab.alerts import pending
from tests.lab.api import Json, path
from tests.lab.apps import App, Process
from tests.lab.before import before
from tests.lab.families.scaling import SCALING
from tests.lab.lab import LATER, NODES, Lab
from tests.lab.network import backends
from tests.lab.programs import every
from tests.lab.scenario import family

ZONE = "topology.kubernetes.io/zone"
ZONES = ("eu-1a", "eu-1b", "eu-1c")
SELECTED = "volume.kubernetes.io/selected-node"
CLASS, DRIVER = "replicated", "disk.csi.example"
USUAL, EVENING = 230.0, 400.0
"""Requests a second by day, and what they come to."""


async def _place_nodes(lab: Lab, *zones: str) -> None:
    """As many nodes in each zone. Raises RefusedError."""
    for number, node in enumerate(NODES):
        body = {"metadata": {"labels": {ZONE: zones[number * len(zones) // len(NODES)]}}}
        await lab.edit("admin", "Node", "", node, body)


def _alert_pending(lab: Lab, namespace: str) -> None:
    summary = f"a pod of {namespace} has had no node for a while"
    lab.alert("KubePodPending", lambda: pending(lab.world, namespace), summary, 6, namespace=namespace)


@family(
    "A machine that is kept for others gets the label of its zone, which is a new one: an app is to be spread evenly"
    " over all zones, also over that one, where its pods may not go, and finds no node for any further pod.",
    joined=27,
)
async def zone_for_others(lab: Lab) -> AsyncIterator[None]:
    """As the documentation of topology spread has it of taints: they are not looked at, unless one asks for it."""
    namespace, name = lab.rng.choice((("shop", "offers"), ("search", "suggest"), ("payments", "tariffs")))
    kept_for = lab.rng.choice(("gpu", "licensed", "ingest"))
    by = lab.rng.choice(("alice", "bob", "carol"))
    await _place_nodes(lab, *ZONES[:2])
    await lab.kubelets.join(LATER, "v1.36.1", {"pool": kept_for})
    taint = {"key": "dedicated", "value": kept_for, "effect": "NoSchedule"}
    await lab.edit("admin", "Node", "", LATER, {"spec": {"taints": [taint]}})
    asked, capacity = [USUAL], 62.0
    app = App("", capacity=900, asked=lambda: asked[0])

    async def scale(process: Process) -> None:
        """So many that each gets two thirds of what it stands."""
        where = f"{path('Deployment', namespace, name)}/scale"
        found = await process.api.call("GET", where)
        wanted = max(6, math.ceil(asked[0] / capacity * 1.5))
        if found.ok and found.body["spec"]["replicas"] != wanted:
            await process.api.call("PATCH", where, {"spec": {"replicas": wanted}})

    async def evening() -> None:
        while asked[0] < EVENING:
            asked[0] += lab.rng.uniform(4, 14)
            await asyncio.sleep(1)

    spread = {
        "maxSkew": 1,
        "topologyKey": ZONE,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app.kubernetes.io/name": name}},
    }
    await lab.app(namespace, name, like=app, replicas=6, topologySpreadConstraints=[spread])
    await lab.until(lambda: len(backends(lab.world, namespace, name)) == 6)
    app.failing = lambda _: max(0.0, 1 - capacity * len(backends(lab.world, namespace, name)) / asked[0])
    await lab.controller("platform", "traffic-scaler", every(3, scale), SCALING, replicas=1)
    lab.reserve(namespace, name)
    _alert_pending(lab, namespace)
    lab.alert_lacking(namespace, name, seconds=12)
    lab.alert_errors(namespace, name)
    label = {"metadata": {"labels": {ZONE: ZONES[2]}}}
    async with before(lab, hours=30, cluster=lab.rng.choice(("us-1", "ap-1"))):  # nothing is scaled there meanwhile
        await lab.edit(by, "Node", "", LATER, label)
        await lab.pause(9)
    await lab.edit("admin", "Node", "", LATER, {"metadata": {"labels": {ZONE: None}}})
    yield
    await lab.culprit(by, "update", "Node", "", LATER, label)
    await lab.pause(lab.rng.uniform(5, 9))
    lab.start(evening())


async def _provide(process: Process) -> None:
    """As a driver's provisioner: in the zone of the node that is selected, or, where none is, over all zones in turn.

    A StatefulSet's claims are spread by what comes before their number and by that one.
    """
    claims = await process.api.call("GET", path("PersistentVolumeClaim"))
    for claim in claims.body.get("items", []):
        meta: Json = claim["metadata"]
        if claim["status"]["phase"] != "Pending" or claim["spec"].get("storageClassName") != CLASS:
            continue
        found = await process.api.call("GET", path("StorageClass", None, CLASS))
        if not found.ok:
            continue
        node = meta.get("annotations", {}).get(SELECTED)
        if node:
            labels = (await process.api.call("GET", path("Node", None, node))).body["metadata"]["labels"]
            zone = labels[ZONE]
        elif found.body.get("volumeBindingMode") == "WaitForFirstConsumer":
            continue
        else:
            base, _, ordinal = meta["name"].rpartition("-")
            zone = ZONES[(crc32(base.encode()) + int(ordinal)) % len(ZONES)]
        reference = {"apiVersion": "v1", "kind": "PersistentVolumeClaim"}
        here = {"matchExpressions": [{"key": ZONE, "operator": "In", "values": [zone]}]}
        spec = {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": CLASS,
            "claimRef": {**reference, **{key: meta[key] for key in ("namespace", "name", "uid")}},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [here]}},
            "csi": {"driver": DRIVER, "volumeHandle": meta["uid"]},
        }
        body = {"metadata": {"name": f"pvc-{meta['uid']}"}, "spec": spec}
        await process.api.call("POST", path("PersistentVolume"), body)


@family(
    "A chart makes its class of storage anew and no longer says when volumes are to be bound: they are made as soon as"
    " they are claimed, in any zone, and pods that have to be in one of them find no node with their volume.",
    joined=27,
)
async def volume_before_pod(lab: Lab) -> AsyncIterator[None]:
    """As the documentation of storage classes warns of the mode that is the default."""
    namespace, name = lab.rng.choice((("search", "vectors"), ("media", "segments"), ("payments", "journal")))
    await _place_nodes(lab, *ZONES)
    rules = (
        ("", "persistentvolumeclaims,nodes", "get,list,watch"),
        ("", "persistentvolumes", "*"),
        ("storage.k8s.io", "storageclasses", "get,list,watch"),
    )
    await lab.controller("kube-system", "disk-csi-controller", every(1, _provide), *rules, replicas=1, tag="2.9.1")
    chart = {"helm.sh/chart": "disk-csi-driver-2.9.1"}
    made: Json = {
        "kind": "StorageClass",
        "metadata": {"name": CLASS, "labels": chart},
        "provisioner": DRIVER,
        "parameters": {"type": "replicated"},
        "volumeBindingMode": "WaitForFirstConsumer",
    }
    await lab.apply(made)
    image = f"registry.corp.example/{namespace}/{name}"
    lab.apps[image] = App(image, serves=False)
    claim = {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": CLASS,
        "resources": {"requests": {"storage": "1Gi"}},
    }
    near = {ZONE: lab.rng.choice(ZONES)}
    whole = objects.deployment(namespace, name, f"{image}:4.2.0", kind="StatefulSet", replicas=1, nodeSelector=near)
    whole["spec"] |= {
        "serviceName": name,
        "podManagementPolicy": "Parallel",
        "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": claim}],
    }
    await lab.apply(objects.service(namespace, name))
    await lab.apply(whole)
    await lab.until(lambda: len(backends(lab.world, namespace, name)) == 1)
    _alert_pending(lab, namespace)
    yield
    by = lab.rng.choice(("ci", "flux"))
    anew = {key: value for key, value in made.items() if key != "volumeBindingMode"}
    anew["metadata"] = {"name": CLASS, "labels": {"helm.sh/chart": "disk-csi-driver-2.10.0"}}
    why = "a class cannot be changed, so the chart deletes it to make it anew"
    await lab.also(why, by, "delete", "StorageClass", "", CLASS)
    await lab.culprit(by, "create", "StorageClass", "", CLASS, anew)
    await lab.roll(by, "kube-system", "disk-csi-controller", "2.10.0")
    await lab.pause(lab.rng.uniform(7, 12))
    await lab.edit("argocd", "StatefulSet", namespace, name, {"spec": {"replicas": 3}})
