"""What holds as long as nobody touches it: a claim that is in use, a cache in front of a disk."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import partial

from tests.lab.alerts import pending, pods
from tests.lab.api import Json, Kind, path
from tests.lab.apps import App, Container, Process
from tests.lab.families.between import publish
from tests.lab.families.databases import ANY
from tests.lab.lab import Lab
from tests.lab.network import backends
from tests.lab.programs import every
from tests.lab.scenario import family

ARGO, INSTANCE = "argoproj.io", "argocd.argoproj.io/instance"
CLASS, DRIVER = "gp3", "ebs.csi.aws.com"
TRACKED = ("ConfigMap", "PersistentVolumeClaim", "Service")


@dataclass
class _Application:
    """An agent that has an application as Git says: ``tag`` of its image, and which objects there are at all."""

    kind: Kind
    namespace: str
    name: str
    tag: str

    async def sync(self, process: Process) -> None:
        declared = await process.api.call("GET", self.kind.path("argocd", self.name))
        if not declared.ok:
            return
        where = path("Deployment", self.namespace, self.name)
        found = await process.api.call("GET", where)
        if found.ok:
            [there] = found.body["spec"]["template"]["spec"]["containers"]
            image, _, tag = str(there["image"]).rpartition(":")
            if tag != self.tag:
                containers = [{**there, "image": f"{image}:{self.tag}"}]
                await process.api.call("PATCH", where, {"spec": {"template": {"spec": {"containers": containers}}}})
        beyond = await self._beyond_git(process)
        if declared.body["spec"]["syncPolicy"]["automated"]["prune"]:
            for kind, name in beyond:
                await process.api.call("DELETE", path(kind, self.namespace, name), {"propagationPolicy": "Foreground"})
        status = "OutOfSync" if beyond else "Synced"
        if declared.body.get("status", {}).get("sync", {}).get("status") != status:
            told = {"status": {"sync": {"status": status, "revision": f"v{self.tag}"}}}
            await process.api.call("PATCH", self.kind.path("argocd", self.name), told)

    async def _beyond_git(self, process: Process) -> list[tuple[str, str]]:
        """What has the label of the application, is not in Git, and is not about to go."""
        found = []
        for kind in TRACKED:
            where = f"{path(kind, self.namespace)}?labelSelector={INSTANCE}={self.name}"
            listed = await process.api.call("GET", where)
            there = [
                one["metadata"] for one in listed.body.get("items", []) if "deletionTimestamp" not in one["metadata"]
            ]
            found += [(kind, str(meta["name"])) for meta in there if meta["name"] != self.name]
        return found


@family(
    "Somebody has pruning turned on for an application. A volume claim has its label and is not in Git, as it was made"
    " from a copy when the data was moved: the agent deletes it, and nothing happens, as it is in use. With the next,"
    " harmless release its pod ends, the claim goes, and the new one finds no volume.",
    joined=43,
)
async def claim_pruned(lab: Lab) -> AsyncIterator[None]:
    """Of the documentation: a claim that a pod uses is not removed until no pod uses it any more."""
    namespace, name, front = lab.rng.choice(
        (
            ("shop", "gift-cards", "gift-page"),
            ("media", "subtitles", "subtitle-editor"),
            ("search", "synonyms", "synonym-editor"),
        )
    )
    by, week = lab.rng.choice(("alice", "carol", "bob")), lab.rng.randrange(10, 44)
    claim, volume = f"{name}-data-v2", f"pvc-{lab.rng.getrandbits(32):08x}"
    application = await lab.custom("Application", ARGO, ANY)
    agent = _Application(application, namespace, name, f"2.{week}.0")
    await lab.apply({"kind": "StorageClass", "metadata": {"name": CLASS}, "provisioner": DRIVER})
    room: Json = {"accessModes": ["ReadWriteOnce"], "storageClassName": CLASS}
    refers = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": namespace, "name": claim}
    csi = {"driver": DRIVER, "volumeHandle": f"vol-0{lab.rng.getrandbits(60):015x}"}
    spec = {**room, "capacity": {"storage": "50Gi"}, "claimRef": refers, "csi": csi}
    await lab.apply({"kind": "PersistentVolume", "metadata": {"name": volume}, "spec": spec})
    labels = {INSTANCE: name}
    spec = {**room, "volumeName": volume, "resources": {"requests": {"storage": "50Gi"}}}
    meta = {"namespace": namespace, "name": claim, "labels": labels}
    await lab.apply({"kind": "PersistentVolumeClaim", "metadata": meta, "spec": spec})
    mount = [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]
    await lab.app(namespace, name, replicas=1, tag=agent.tag, volumes=mount)
    recreate = {"strategy": {"type": "Recreate", "rollingUpdate": None}}
    await lab.edit("admin", "Deployment", namespace, name, {"metadata": {"labels": labels}, "spec": recreate})
    await lab.edit("admin", "Service", namespace, name, {"metadata": {"labels": labels}})
    await lab.app(namespace, front, like=App("", upstreams=((namespace, name),)), replicas=2, tag="1.12.0")
    await lab.served(application)
    source = {"repoURL": "https://git.corp.example/deploy.git", "path": f"apps/{namespace}/{name}"}
    policy: Json = {"automated": {"prune": False, "selfHeal": True}}
    spec = {"source": source, "destination": {"namespace": namespace}, "syncPolicy": policy}
    meta = {"namespace": "argocd", "name": name}
    await lab.apply({"apiVersion": f"{ARGO}/v1", "kind": application.name, "metadata": meta, "spec": spec})
    rules = (
        (ARGO, application.plural, "get,list,watch,patch"),
        ("apps", "deployments", "get,patch"),
        ("", "configmaps,persistentvolumeclaims,services", "list,delete"),
    )
    await lab.controller("argocd", "application-sync", every(1.5, agent.sync), *rules, replicas=1, tag="3.1.4")
    await lab.until(lambda: backends(lab.world, namespace, name) and len(backends(lab.world, namespace, front)) == 2)
    await publish(lab, namespace, front)
    lab.reserve(namespace, name)
    lab.alert_lacking(namespace, name, seconds=10)
    lab.alert_ingress_errors(namespace, namespace, 0.6)
    waits = lambda: pending(lab.world, namespace)  # noqa: E731
    lab.alert("KubePodNotScheduled", waits, f"a pod of {namespace} has no node", 9, namespace=namespace)
    await lab.until(lambda: lab.is_well() and "status" in lab.world[application.name]["argocd", name])
    yield
    body = {"spec": {"syncPolicy": {"automated": {"prune": True}}}}
    await lab.culprit(by, "update", application.name, "argocd", name, body)
    await lab.pause(lab.rng.uniform(12, 22))
    agent.tag = f"2.{week + 1}.0"


WRITE_SECONDS = 1.35
"""For how long a write waits for the disks themselves, without the cache of their controller."""


@family(
    "The battery of a machine's disk controller is at its end, and without one the controller keeps nothing in its"
    " cache: each write waits for the disks. The node is ready, probes are answered, and what one of a store's members"
    " writes there takes a hundred times as long.",
    culprit=False,
    joined=43,
)
async def write_cache(lab: Lab) -> AsyncIterator[None]:
    """As makers of such controllers write of it, and those whose databases were slow for a battery's sake."""
    namespace, name, front = lab.rng.choice(
        (
            ("shop", "order-intake", "order-form"),
            ("payments", "bookings", "booking-page"),
            ("media", "upload-index", "upload-form"),
        )
    )
    store, by = f"{name}-store", lab.rng.choice(("ci", "argocd"))
    worn: list[str] = []

    def writes_through(container: Container) -> float:
        """A member of the store answers once what it was told is written."""
        return WRITE_SECONDS if container.pod["spec"].get("nodeName") in worn else 0.0

    def spending(node: str) -> float:
        """Seconds in a second that all writes of a machine wait for its disks."""
        return 4.0 * WRITE_SECONDS if node in worn else 0.05

    apart = {
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": "kubernetes.io/hostname",
                "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": {"matchLabels": {"app.kubernetes.io/name": store}},
            }
        ]
    }
    like = App("", serves=False, latency=writes_through)
    await lab.app(namespace, store, like=like, kind="StatefulSet", replicas=3, tag="8.0.36", **apart)
    like = App("", upstreams=((namespace, store),), asked=lambda: 26.0)
    await lab.app(namespace, name, like=like, replicas=3, tag="5.6.0")
    await lab.app(namespace, front, like=App("", upstreams=((namespace, name),)), replicas=2, tag="2.2.8")
    await lab.until(lambda: all(len(backends(lab.world, namespace, one)) >= 2 for one in (store, name, front)))
    await lab.until(lambda: len(backends(lab.world, namespace, store)) == 3)
    await publish(lab, namespace, front)
    lab.reserve(namespace, name, front)
    node = str(lab.rng.choice(pods(lab.world, namespace, store))["spec"]["nodeName"])
    for one in sorted({str(pod["spec"]["nodeName"]) for pod in pods(lab.world, namespace, store)}):
        spent = lab.adding_up(partial(spending, one))
        labels = {"namespace": "monitoring", "service": "node-agent", "node": one, "device": "sda"}
        lab.measure("node_disk_write_time_seconds_total", spent, "counter", **labels)
    lab.alert_slow(namespace, name, 0.25)
    lab.alert_slow(namespace, front, 0.2)
    await lab.until(lab.is_well)
    yield
    await lab.pause(lab.rng.uniform(2, 5))
    await lab.roll(by, namespace, front, "2.3.0")
    await lab.pause(lab.rng.uniform(8, 15))
    worn.append(node)
