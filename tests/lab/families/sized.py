"""What was told of how much there is of something: disks that one chart fills, nodes and pods that are let go."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from tests.lab import objects
from tests.lab.alerts import pods
from tests.lab.api import Json
from tests.lab.apps import App
from tests.lab.lab import NODES, Lab
from tests.lab.scenario import family


@family(
    "A policy controller is installed on nodes whose disks are small: its images fill what room was left, and kubelets"
    " evict what else runs there, the storage's own pods among it.",
    joined=18,
)
async def small_disks(lab: Lab) -> AsyncIterator[None]:
    """As a user of Longhorn and Kyverno tells (longhorn 6023, May 2023)."""
    home, name, storage = "kyverno", "kyverno-admission-controller", "longhorn-system"
    image = f"registry.corp.example/{home}/{name}"
    lab.apps[image] = App(image, serves=False)

    async def fill() -> None:
        """Where it runs, its images are on the disk, and stay there when it has gone."""
        while True:
            await asyncio.sleep(1)
            there = (pod for pod in pods(lab.world, home, name) if pod.get("status", {}).get("phase") == "Running")
            lab.outside.full_disks.update(pod["spec"]["nodeName"] for pod in there)

    def is_full(node: str) -> bool:
        found: list[Json] = lab.world["Node"]["", node]["status"]["conditions"]
        return any(one["type"] == "DiskPressure" and one["status"] == "True" for one in found)

    await lab.namespace(storage)
    for part in ("csi-attacher", "csi-provisioner", "csi-snapshotter"):
        await lab.app(storage, part, like=App("", serves=False), replicas=3)
        lab.alert_lacking(storage, part, seconds=10)
    for node in NODES:
        full = lambda node=node: is_full(node)  # noqa: E731
        lab.alert("KubeNodePressure", full, f"node {node} has no room on its disk", 8, node=node)
    lab.start(fill())
    yield
    by = lab.rng.choice(("alice", "carol", "ci"))
    await lab.apply({"kind": "Namespace", "metadata": {"name": home}}, by)
    apart = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": {"app.kubernetes.io/name": name}},
    }
    body = objects.deployment(home, name, f"{image}:v1.9.0", replicas=3, topologySpreadConstraints=[apart])
    await lab.culprit(by, "create", "Deployment", home, name, body)
