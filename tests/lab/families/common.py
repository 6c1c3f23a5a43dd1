"""What was told of what all share: a domain that DNS takes for its own, storage that fills, a node's resolvers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from tests.lab.alerts import pods
from tests.lab.api import Json
from tests.lab.apps import LATE, App, Container, Problem, Process
from tests.lab.company import COREFILE
from tests.lab.families.databases import ANY
from tests.lab.families.nodes import provide, stateful
from tests.lab.lab import NODES, Lab
from tests.lab.programs import every
from tests.lab.scenario import family

NEARLY_FULL, FULL = 0.85, 0.95
"""As Ceph has it: from here on it warns, and from here on it takes no write."""
DISKS, DISK_BYTES = 6, 2 * 2**40


@family(
    "The cluster's DNS gets the company's own domain as a zone, for the names of tools inside: what else that domain"
    " has is kept by somebody outside, and none of its names is found any more.",
    joined=14,
)
async def dns_zone(lab: Lab) -> AsyncIterator[None]:
    """As a user of Technitium's DNS server tells (2026)."""
    domain = "corp.example"
    callers = (
        ("shop", "login", f"accounts.{domain}"),
        ("payments", "statements", f"files.{domain}"),
        ("media", "player", f"video.{domain}"),
    )
    for namespace, name, host in lab.rng.sample(callers, 2):
        await lab.app(namespace, name, like=App("", abroad=(host,)), replicas=3)
        lab.alert_lacking(namespace, name)
    await lab.app("search", "importer", like=App("", abroad=("feeds.partner.example",)))
    yield
    inside = ("10.20.0.11 wiki", "10.20.0.12 grafana", "10.20.0.13 tickets")
    hosts = "\n".join(f"        {one}.{domain}" for one in lab.rng.sample(inside, 2))
    zone = f"{domain}:53 {{\n    errors\n    hosts {{\n{hosts}\n    }}\n}}\n"
    by = lab.rng.choice(("bob", "flux", "carol"))
    body = {"data": {"Corefile": f"{zone}{COREFILE}"}}
    await lab.culprit(by, "update", "ConfigMap", "kube-system", "coredns", body)


@family(
    "The storage of the cluster fills: what keeps metrics for long writes more from day to day, three times each, until"
    " one disk is full, and then nothing is written any more, whoever has a volume there.",
    culprit=False,
    joined=14,
)
async def storage_full(lab: Lab) -> AsyncIterator[None]:
    """As Operate First tells of 14 May 2021."""
    used = [0.78]
    group, namespace = "ceph.rook.io", "rook-ceph"
    cluster = await lab.custom("CephCluster", group, ANY)

    def health() -> Json:
        if used[0] < NEARLY_FULL:
            return {"health": "HEALTH_OK"}
        if used[0] < FULL:
            near = {"severity": "HEALTH_WARN", "message": "1 nearfull osd(s)"}
            return {"health": "HEALTH_WARN", "details": {"OSD_NEARFULL": near}}
        full = {"severity": "HEALTH_ERR", "message": "1 full osd(s)"}
        return {"health": "HEALTH_ERR", "details": {"OSD_FULL": full}}

    async def report(process: Process) -> None:
        """As the operator of the storage: what its monitors say becomes the status of its object."""
        total = DISKS * DISK_BYTES
        taken = int(total * used[0])
        capacity = {"bytesTotal": total, "bytesUsed": taken, "bytesAvailable": total - taken}
        body = {"status": {"phase": "Ready", "ceph": {**health(), "capacity": capacity}}}
        await process.api.call("PATCH", cluster.path(namespace, namespace), body)

    def check(container: Container) -> Problem | None:
        """A write waits until there is room again."""
        return Problem("unready", LATE) if used[0] >= FULL else None

    async def fill(up_to: float, by: float) -> None:
        while used[0] < up_to:
            used[0] += lab.rng.uniform(0.2, 1.2) * by
            await asyncio.sleep(1)

    def is_full() -> bool:
        told = lab.world["CephCluster"].get((namespace, namespace), {}).get("status", {})
        return "OSD_FULL" in told.get("ceph", {}).get("details", {})

    await lab.namespace(namespace)
    await lab.served(cluster)
    meta = {"namespace": namespace, "name": namespace}
    spec = {"dataDirHostPath": "/var/lib/rook", "mon": {"count": 3}, "storage": {"useAllNodes": True}}
    await lab.apply({"apiVersion": f"{group}/v1", "kind": "CephCluster", "metadata": meta, "spec": spec})
    await lab.controller(namespace, "rook-ceph-operator", every(2, report), (group, "cephclusters", "*"), replicas=1)
    rules = (("", "persistentvolumeclaims,persistentvolumes", "*"), ("storage.k8s.io", "*", "get,list,watch"))
    await lab.controller("kube-system", "csi-provisioner", every(1, provide), *rules, replicas=1)
    mark = {"storageclass.kubernetes.io/is-default-class": "true"}
    named = {"metadata": {"name": "standard", "annotations": mark}, "provisioner": "disk.csi.example"}
    await lab.apply({"kind": "StorageClass", **named})
    lab.alert("CephOSDFull", is_full, "an OSD of rook-ceph is full, and writes are blocked", 8, namespace=namespace)
    for place in (("monitoring", "thanos-store"), ("platform", "image-registry"), ("media", "notebooks")):
        image = "registry.corp.example/" + "/".join(place)
        lab.apps[image] = App(image, check=check)
        await stateful(lab, *place)
        lab.alert_lacking(*place, seconds=10)
    lab.start(fill(NEARLY_FULL - 0.01, 0.0015))
    yield
    lab.start(fill(FULL + 0.002, 0.01))  # in the evening there is more to measure


@family(
    "A daemon of a machine empties the file that names its resolvers: what runs there goes on with what it has, and"
    " whoever comes there, as by a harmless rollout, gets no image, since the registry's name is not found.",
    culprit=False,
    joined=14,
)
async def resolv_conf(lab: Lab) -> AsyncIterator[None]:
    """As users of TrinityX tell of its nscd (2017)."""
    namespace, name = lab.rng.choice((("shop", "offers"), ("search", "suggest"), ("media", "renditions")))
    spread = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": {"app.kubernetes.io/name": name}},
    }

    def waits() -> bool:
        states = (one for pod in pods(lab.world, namespace, name) for one in pod["status"].get("containerStatuses", ()))
        return any(one["state"].get("waiting", {}).get("reason") == "ImagePullBackOff" for one in states)

    await lab.app(namespace, name, replicas=6, topologySpreadConstraints=[spread])
    summary = f"a container of {namespace}/{name} has been waiting for a while"
    lab.alert("KubeContainerWaiting", waits, summary, 6, namespace=namespace, deployment=name)
    yield
    lab.outside.nameless.add(lab.rng.choice(NODES))
    await lab.pause(lab.rng.uniform(6, 12))
    await lab.roll("argocd", namespace, name, "1.0.1")
