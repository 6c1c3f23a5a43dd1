"""Room that runs out as more is kept: on a volume that may not be grown again yet, in the store of the cluster."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from tests.lab.alerts import pods
from tests.lab.api import Json, Kind, now, path
from tests.lab.apps import App, Container, Problem, Process, mebibytes
from tests.lab.families.between import publish
from tests.lab.families.databases import ANY
from tests.lab.lab import Lab
from tests.lab.network import backends
from tests.lab.programs import every, tell
from tests.lab.scenario import family

DRIVER, CLASS, CLAIM = "ebs.csi.aws.com", "gp3", "data"
SIZE_GI, GROWN_BY, GROWN_AT = 20, 4, 0.85
"""What a volume has at first, by how much it is grown, and when it is."""
AGAIN_AFTER = 360.0
"""Seconds, each of which is a minute, after which the cloud changes the same volume once more."""
ALMOST_FULL = 0.97
FULL = 'PANIC: could not write to file "pg_wal/xlogtemp.31": No space left on device'
WORKSPACES, OPERATOR, GROUP, STORE_BYTES = "workspaces", "workspace-operator", "apps.corp.example", 16_000_000
RELEASE_BYTES, SLOWLY = 170_000, 0.15
"""What Helm keeps of a workspace's release, and how many users sign up in a second as ever."""


@dataclass
class Volume:
    """A database's disk, in GiB: how much is used, how large it is, and when the cloud has changed it last."""

    lab: Lab
    namespace: str
    claim: str
    volume: str
    handle: str
    used: float = 0.66 * SIZE_GI
    changed: float | None = None
    grown_by: float = GROWN_BY
    refused: int = 0
    """How often the API server did not take what was asked for."""

    @property
    def size(self) -> float:
        found = self.lab.world["PersistentVolume"].get(("", self.volume), {}).get("spec", {})
        return mebibytes(found.get("capacity", {}).get("storage", f"{SIZE_GI}Gi")) / 1024

    def is_full(self) -> bool:
        return self.used >= self.size

    def panics(self, _: Container) -> Problem | None:
        return Problem("crash", FULL) if self.is_full() else None

    async def fill(self, rate: float) -> None:
        """So many GiB a second, as long as somebody writes them."""
        while True:
            await asyncio.sleep(0.5)
            self.used = min(self.size, self.used + rate / 2 * self.lab.kubelets.rng.uniform(0.7, 1.3))

    async def ask(self, process: Process) -> None:
        """As what grows volumes as they fill: it asks for more by the claim, and for no more until it has that."""
        claim = await process.api.call("GET", path("PersistentVolumeClaim", self.namespace, self.claim))
        if not claim.ok or self.used / self.size < GROWN_AT:
            return
        wanted = mebibytes(claim.body["spec"]["resources"]["requests"]["storage"]) / 1024
        if wanted <= self.size:
            body = {"spec": {"resources": {"requests": {"storage": f"{wanted + self.grown_by:g}Gi"}}}}
            where = path("PersistentVolumeClaim", self.namespace, self.claim)
            self.refused += not (await process.api.call("PATCH", where, body)).ok

    async def resize(self, process: Process) -> None:
        """As the driver: the cloud changes a volume, unless it has done so in the last hours."""
        claim = await process.api.call("GET", path("PersistentVolumeClaim", self.namespace, self.claim))
        if not claim.ok:
            return
        asked = claim.body["spec"]["resources"]["requests"]["storage"]
        if mebibytes(asked) / 1024 <= self.size:
            return
        at, about = now().timestamp(), {**claim.body, "kind": "PersistentVolumeClaim"}
        if self.changed is not None and at - self.changed < AGAIN_AFTER:
            limit = "You've reached the maximum modification rate per volume limit. Wait at least 6 hours"
            told = f'resize volume "{self.volume}" by resizer "{DRIVER}" failed: rpc error: code = Internal desc = '
            told += f'Could not resize volume "{self.handle}": VolumeModificationRateExceeded: {limit}'
            await tell(process, about, "Warning", "VolumeResizeFailed", told, by=f"external-resizer {DRIVER}")
            return
        room = {"capacity": {"storage": asked}}
        if (await process.api.call("PATCH", path("PersistentVolume", None, self.volume), {"spec": room})).ok:
            self.changed = at
            where = f"{path('PersistentVolumeClaim', self.namespace, self.claim)}/status"
            await process.api.call("PATCH", where, {"status": room})
            told = "Resize volume succeeded"
            await tell(process, about, "Normal", "VolumeResizeSuccessful", told, by=f"external-resizer {DRIVER}")


async def mounted(lab: Lab, disk: Volume) -> Json:
    """The claim and its volume, as they were made long ago. Raises RefusedError."""
    claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": disk.namespace, "name": disk.claim}
    expandable = {"provisioner": DRIVER, "allowVolumeExpansion": True}
    await lab.apply({"kind": "StorageClass", "metadata": {"name": CLASS}, **expandable})
    room: Json = {"accessModes": ["ReadWriteOnce"], "storageClassName": CLASS}
    by = {"driver": DRIVER, "volumeHandle": disk.handle}
    volume = {**room, "capacity": {"storage": f"{SIZE_GI}Gi"}, "claimRef": claim, "csi": by}
    await lab.apply({"kind": "PersistentVolume", "metadata": {"name": disk.volume}, "spec": volume})
    meta = {
        "namespace": disk.namespace,
        "name": disk.claim,
        "annotations": {"resize.topolvm.io/storage_limit": "200Gi", "resize.topolvm.io/threshold": "15%"},
    }
    spec = {**room, "volumeName": disk.volume, "resources": {"requests": {"storage": f"{SIZE_GI}Gi"}}}
    await lab.apply({"kind": "PersistentVolumeClaim", "metadata": meta, "spec": spec})
    return {"name": CLAIM, "persistentVolumeClaim": {"claimName": disk.claim}}


@family(
    "A customer imports all that it has, and what grows volumes as they fill gives a database's disk some more. It is"
    " not done by then, and asks once more: the cloud changes a volume only every six hours. The disk is full, and the"
    " database does not start any more.",
    culprit=False,
    joined=42,
)
async def second_growth(lab: Lab) -> AsyncIterator[None]:
    """As told of volumes that were to be grown and are not (kubernetes.io 2025, csi-digitalocean 291)."""
    namespace, name, front = lab.rng.choice(
        (
            ("shop", "stock-items", "stock-page"),
            ("media", "archive", "archive-page"),
            ("search", "documents", "documents-page"),
        )
    )
    database, imports = f"{name}-db", f"{name}-import"
    volume, handle = f"pvc-{lab.rng.getrandbits(32):08x}", f"vol-0{lab.rng.getrandbits(60):015x}"
    disk = Volume(lab, namespace, f"data-{database}-0", volume, handle)
    mount = await mounted(lab, disk)
    like = App("", serves=False, check=disk.panics)
    await lab.app(namespace, database, like=like, kind="StatefulSet", replicas=1, tag="17.4", volumes=[mount])
    await lab.app(namespace, name, like=App("", upstreams=((namespace, database),)), replicas=3, tag="6.2.0")
    await lab.app(namespace, imports, like=App("", upstreams=((namespace, name),)), replicas=1, tag="1.10.3")
    await lab.app(namespace, front, like=App("", upstreams=((namespace, name),)), replicas=2, tag="4.7.0")
    claims = ("", "persistentvolumeclaims,persistentvolumeclaims/status,persistentvolumes", "*")
    events = ("", "events", "create")
    await lab.controller("kube-system", "pvc-autoresizer", every(1.5, disk.ask), claims, replicas=1, tag="0.17.0")
    resizer = every(2, disk.resize)
    await lab.controller("kube-system", "ebs-csi-controller", resizer, claims, events, replicas=1, tag="1.45.0")
    await lab.until(lambda: all(backends(lab.world, namespace, one) for one in (database, name, imports, front)))
    await publish(lab, namespace, front)
    lab.reserve(namespace, name, front)
    kubelet = {"namespace": namespace, "service": "kubelet", "persistentvolumeclaim": disk.claim}
    lab.measure("kubelet_volume_stats_used_bytes", lambda: disk.used * 2**30, "gauge", **kubelet)
    lab.measure("kubelet_volume_stats_capacity_bytes", lambda: disk.size * 2**30, "gauge", **kubelet)
    filling, of_claim = lambda: disk.used / disk.size > ALMOST_FULL, {"persistentvolumeclaim": disk.claim}
    summary = f"the volume claimed by {disk.claim} in {namespace} is almost full"
    lab.alert("KubePersistentVolumeFillingUp", filling, summary, 9, namespace=namespace, **of_claim)
    lab.alert_lacking(namespace, name)
    lab.alert_ingress_errors(namespace, namespace)
    lab.start(disk.fill(0.002))
    await lab.until(lab.is_well)
    yield
    await lab.pause(lab.rng.uniform(2, 8))
    lab.start(disk.fill(lab.rng.uniform(0.38, 0.48)))


@dataclass
class _Workspaces:
    """Who signs up gets a workspace, which an operator installs by a chart; Helm keeps each release in a Secret."""

    lab: Lab
    kind: Kind
    rate: float = SLOWLY
    owed: float = 0.0
    installed: set[str] = field(default_factory=set)

    async def sign_up(self, process: Process) -> None:
        self.owed += self.rate * process.rng.uniform(0.5, 1.0)
        while self.owed >= 1:
            self.owed -= 1
            meta = {"name": f"team-{process.rng.getrandbits(36):09x}"}
            body = {"apiVersion": f"{GROUP}/v1", "kind": self.kind.name, "metadata": meta, "spec": {"plan": "free"}}
            await process.api.call("POST", self.kind.path(WORKSPACES), body)

    async def install(self, process: Process) -> None:
        listed = await process.api.call("GET", self.kind.path(WORKSPACES))
        for name in (one["metadata"]["name"] for one in listed.body.get("items", []) if "status" not in one):
            if name not in self.installed:
                release = base64.b64encode(process.rng.randbytes(RELEASE_BYTES)).decode()
                labels = {"name": name, "owner": "helm", "status": "deployed", "version": "1"}
                meta = {"name": f"sh.helm.release.v1.{name}.v1", "labels": labels}
                secret = {"metadata": meta, "type": "helm.sh/release.v1", "stringData": {"release": release}}
                if not (await process.api.call("POST", path("Secret", WORKSPACES), secret)).ok:
                    continue
                self.installed.add(name)
            settings = {"metadata": {"name": name}, "data": {"PLAN": "free", "LOCALE": "en"}}
            await process.api.call("POST", path("ConfigMap", WORKSPACES), settings)
            body = {"status": {"phase": "Ready"}}
            await process.api.call("PATCH", self.kind.path(WORKSPACES, name), body)

    def waiting(self) -> int:
        found = self.lab.world[self.kind.name].values()
        return sum("status" not in one for one in found)


@family(
    "A product is written about, and many users sign up, each of whom gets a workspace. What Helm keeps of their"
    " releases is more than the store of the cluster has room for by its quota, which nobody has changed since there"
    " were few: it takes nothing from anybody.",
    culprit=False,
    joined=42,
    store_flags=(f"--quota-backend-bytes={STORE_BYTES}",),
)
async def workspaces_kept(lab: Lab) -> AsyncIterator[None]:
    """As told of a store whose limit was reached by workspaces, on a holiday (mattermost.com)."""
    signed = lab.rng.choice(("sign-up", "onboarding"))
    work = _Workspaces(lab, await lab.custom("Workspace", GROUP, ANY))
    await lab.served(work.kind)
    await lab.namespace(WORKSPACES)
    rights = (GROUP, "workspaces", "list,patch"), ("", "secrets,configmaps", "create")
    await lab.controller(WORKSPACES, OPERATOR, every(0.7, work.install), *rights, replicas=1, tag="3.4.0")
    await lab.controller(WORKSPACES, signed, every(0.75, work.sign_up), (GROUP, "workspaces", "create"), replicas=1)
    lab.apps[f"registry.corp.example/{WORKSPACES}/{signed}"].serves = True
    seen = lambda: float(len(work.installed))  # noqa: E731
    lab.measure("workspaces_installed_total", seen, "counter", namespace=WORKSPACES, service=OPERATOR)

    def failed() -> int:
        return sum(one.counts[500] for callers in lab.kubelets.counts.values() for one in callers)

    failing = lab.rate(failed, 0.5, seconds=6)
    lab.alert("KubeAPIErrorsHigh", failing, "the API server answers many requests with 5xx", job="apiserver")
    waits = lambda: work.waiting() >= 10  # noqa: E731
    summary = "workspaces wait to be installed"
    lab.alert("WorkspacesPending", waits, summary, 6, namespace=WORKSPACES)
    await lab.until(lambda: pods(lab.world, WORKSPACES, OPERATOR) and backends(lab.world, WORKSPACES, signed))
    yield
    await lab.pause(lab.rng.uniform(3, 7))
    work.rate = lab.rng.uniform(1.5, 2.0)
