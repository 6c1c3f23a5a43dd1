"""What a setting of the nodes takes: each of them is emptied and boots again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from tests.lab import objects
from tests.lab.alerts import is_lost
from tests.lab.api import Json, Kind, now, path
from tests.lab.apps import App, Process
from tests.lab.families.loops import LOOSE
from tests.lab.families.moving import spare
from tests.lab.families.still_more_stories import drain
from tests.lab.lab import Lab
from tests.lab.programs import every
from tests.lab.scenario import family

GROUP = "machineconfiguration.openshift.io"
CURRENT, DESIRED = f"{GROUP}/currentConfig", f"{GROUP}/desiredConfig"
BOOT_SECONDS, HELD_SECONDS = 12.0, 10.0
"""Until a machine is up again; for how long somebody watches a node that cannot be emptied."""
RUN_SECONDS = 900.0
"""What a workflow takes."""
RESERVED, LEFT = "4Gi", "60Gi"
"""Of a node's memory, for the system and for pods."""


@dataclass
class Machines:
    """The operator of the nodes: one after another gets what is set for them, and its machine starts anew for it."""

    lab: Lab
    kind: Kind
    nodes: Sequence[str]
    emptied: dict[str, datetime] = field(default_factory=dict)
    """Nodes that are being emptied, and since when."""

    async def reconcile(self, process: Process) -> None:
        listed = await process.api.call("GET", self.kind.path("platform"))
        if not listed.ok:
            return
        settings = json.dumps([one["spec"] for one in listed.body["items"]], sort_keys=True)
        wanted = f"rendered-worker-{hashlib.sha256(settings.encode()).hexdigest()[:32]}"
        self.lab.who["machine-config-operator"] = process.api
        for node in self.nodes:
            found = await process.api.call("GET", path("Node", None, node))
            current = found.body["metadata"].get("annotations", {}).get(CURRENT) if found.ok else wanted
            if current is None:  # as it was installed
                marks: Json = {"metadata": {"annotations": {CURRENT: wanted, DESIRED: wanted}}}
                await process.api.call("PATCH", path("Node", None, node), marks)
            elif current != wanted:
                await self._renew(process, node, wanted)

    async def _renew(self, process: Process, node: str, wanted: str) -> None:
        where = path("Node", None, node)
        meta = {"annotations": {DESIRED: wanted}}
        await process.api.call("PATCH", where, {"metadata": meta, "spec": {"unschedulable": True}})
        self.emptied[node] = now()
        await drain(self.lab, "machine-config-operator", node)
        del self.emptied[node]
        self.lab.kubelets.crash(node)
        await self.lab.pause(BOOT_SECONDS)
        await self.lab.kubelets.come_back(node, rebooted=True)
        await self.lab.kubelets.allot(node, LEFT)
        meta = {"annotations": {CURRENT: wanted}}
        await process.api.call("PATCH", where, {"metadata": meta, "spec": {"unschedulable": None}})

    async def delete_what_holds(self, by: str) -> None:
        """For ever: somebody deletes what keeps a node from being emptied."""
        while True:
            await self.lab.pause(2)
            late = [node for node, since in self.emptied.items() if (now() - since).total_seconds() > HELD_SECONDS]
            for pod in [one for one in self.lab.world["Pod"].values() if one["spec"].get("nodeName") in late]:
                if not any(owner["kind"] == "DaemonSet" for owner in pod["metadata"].get("ownerReferences", ())):
                    where = path("Pod", pod["metadata"]["namespace"], pod["metadata"]["name"])
                    await self.lab.who[by].call("DELETE", where)


@family(
    "More memory of the nodes is set aside for the system, as an alert had asked for, and nobody knew what that takes:"
    " the operator of the nodes empties and boots one after another, and what runs there for long is lost.",
    joined=13,
)
async def node_config(lab: Lab) -> AsyncIterator[None]:
    """As Operate First tells of its cluster (May 2021, operations 321)."""
    kubelet_config = await lab.custom("KubeletConfig", GROUP, LOOSE)
    nodes = spare(lab, 3)
    for node in nodes:
        await lab.edit("admin", "Node", "", node, {"metadata": {"labels": {"pool": "workers"}}})
    machines = Machines(lab, kubelet_config, nodes)
    rules = (GROUP, "kubeletconfigs", "list"), ("", "nodes", "get,patch"), ("", "pods/eviction", "create")
    general = {"pool": "general"}
    program = every(1, machines.reconcile)
    await lab.controller("platform", "machine-config-operator", program, *rules, replicas=1, nodeSelector=general)
    namespace, name = lab.rng.choice((("media", "transcoding"), ("search", "training"), ("payments", "forecast")))
    image = f"registry.corp.example/{namespace}/{name}"
    lab.apps[image] = App(image, ends_after=RUN_SECONDS)
    workers = {"pool": "workers"}
    for run in lab.rng.sample(range(100, 999), 4):
        made = objects.deployment(namespace, name, f"{image}:1.0.0", restartPolicy="Never", nodeSelector=workers)
        meta = {"namespace": namespace, "name": f"{name}-{run}"}
        await lab.apply(
            {"kind": "Job", "metadata": meta, "spec": {"template": made["spec"]["template"], "backoffLimit": 0}}
        )

    def failed() -> bool:
        """A run was given up."""
        runs = [one for (where, _), one in lab.world["Job"].items() if where == namespace]
        return any(it["type"] == "Failed" for one in runs for it in one.get("status", {}).get("conditions") or ())

    gateway = "mesh-gateway"
    await lab.app("platform", gateway, replicas=1, nodeSelector=workers)
    labels = {"matchLabels": {"app.kubernetes.io/name": gateway}}
    meta = {"namespace": "platform", "name": gateway}
    await lab.apply({"kind": "PodDisruptionBudget", "metadata": meta, "spec": {"minAvailable": 1, "selector": labels}})
    await lab.served(kubelet_config)
    lab.alert("KubeJobFailed", failed, f"a run of {namespace}/{name} failed", 15, namespace=namespace)
    for node in nodes:
        lost = lambda node=node: is_lost(lab.world, node)  # noqa: E731
        lab.alert("KubeNodeNotReady", lost, f"node {node} has been unready", 10, node=node)
    await lab.until(lambda: all(CURRENT in _annotations(lab, node) for node in nodes))
    yield
    spec = {"kubeletConfig": {"systemReserved": {"memory": RESERVED}}}
    body = {"apiVersion": f"{GROUP}/v1", "kind": "KubeletConfig", "metadata": {"name": "worker-reserved"}, "spec": spec}
    await lab.culprit("argocd", "create", "KubeletConfig", "platform", "worker-reserved", body)
    lab.start(machines.delete_what_holds(lab.rng.choice(("alice", "bob"))))


def _annotations(lab: Lab, node: str) -> Json:
    found: Json = lab.world["Node"]["", node]["metadata"].get("annotations", {})
    return found
