"""What is kept beside what it is of: copies on a database's own disk."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import datetime

from tests.lab import objects
from tests.lab.api import Json, now, path, stamp
from tests.lab.apps import App, Container, Problem, Process
from tests.lab.families.between import publish
from tests.lab.lab import Lab
from tests.lab.network import backends
from tests.lab.programs import every
from tests.lab.scenario import family

SIZE_GIB, OWN_GIB, EACH_GIB = 40.0, 22.0, 3.0
"""Of a database's disk, of the database, and of each copy that is kept beside it."""
COPIED_EVERY, KEPT_SECONDS = 4.0, 13.0
READS_TIMES, MISREADS_TIMES = "1.6.3", "1.7.0"
FULL = 'PANIC: could not write to file "pg_wal/xlogtemp.31": No space left on device'


@dataclass
class _Copies:
    """What is copied, and what of it is still on the database's own disk, as a catalogue has it."""

    lab: Lab
    namespace: str
    database: str
    number: int = 0
    catalogue: str = field(init=False)
    claim: str = field(init=False)

    def __post_init__(self) -> None:
        self.catalogue, self.claim = f"{self.database}-copies", f"data-{self.database}-0"

    async def make_disk(self) -> None:
        """The claim and its volume, as they were made long ago. Raises RefusedError."""
        claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": self.namespace, "name": self.claim}
        room: Json = {"accessModes": ["ReadWriteMany"], "storageClassName": ""}
        share = {"server": "10.0.8.20", "path": f"/exports/{self.database}"}
        volume = {**room, "capacity": {"storage": f"{SIZE_GIB:g}Gi"}, "claimRef": claim, "nfs": share}
        await self.lab.apply({"kind": "PersistentVolume", "metadata": {"name": self.claim}, "spec": volume})
        spec = {**room, "volumeName": self.claim, "resources": {"requests": {"storage": f"{SIZE_GIB:g}Gi"}}}
        meta = {"namespace": self.namespace, "name": self.claim}
        await self.lab.apply({"kind": "PersistentVolumeClaim", "metadata": meta, "spec": spec})

    @property
    def disk(self) -> Json:
        """As a pod names it."""
        return {"name": "data", "persistentVolumeClaim": {"claimName": self.claim}}

    def used(self) -> float:
        copies = self.lab.world["ConfigMap"].get((self.namespace, self.catalogue), {}).get("data") or {}
        return min(SIZE_GIB, OWN_GIB + EACH_GIB * len(copies))

    def check(self, _: Container) -> Problem | None:
        return Problem("crash", FULL) if self.used() >= SIZE_GIB else None

    async def copy(self, process: Process) -> None:
        self.number += 1
        name, image = f"{self.database}-copy-{self.number:04}", f"registry.corp.example/{self.namespace}/pg-dump"
        pod = objects.deployment(self.namespace, name, f"{image}:17.4", volumes=[self.disk])["spec"]["template"]["spec"]
        del pod["containers"][0]["readinessProbe"]
        spec = {"template": {"spec": {**pod, "restartPolicy": "Never"}}, "ttlSecondsAfterFinished": 6}
        made = {"metadata": {"name": name}, "spec": {**spec, "backoffLimit": 1}}
        if not (await process.api.call("POST", path("Job", self.namespace), made)).ok:
            return
        for pause in itertools.repeat(0.5):
            if self.lab.world["Job"].get((self.namespace, name), {}).get("status", {}).get("succeeded"):
                break
            await asyncio.sleep(pause)
        body = {"data": {f"{name}.dump": stamp(now())}}
        await process.api.call("PATCH", path("ConfigMap", self.namespace, self.catalogue), body)

    async def remove(self, process: Process) -> None:
        """What is older than it is kept for; the new version takes all for younger than it is."""
        where = path("ConfigMap", self.namespace, self.catalogue)
        found = await process.api.call("GET", where)
        for name, at in (found.body.get("data") or {}).items() if found.ok else ():
            age = (now() - datetime.fromisoformat(at)).total_seconds()
            if age > KEPT_SECONDS and process.tag != MISREADS_TIMES:
                await process.api.call("PATCH", where, {"data": {name: None}})


@family(
    "Copies of a database are kept on its own disk for a while, and a program removes the old ones. Its new version"
    " reads the times of the copies wrongly and finds none that is old: nobody sees it until the disk is full and the"
    " database does not start any more.",
    joined=51,
)
async def copies_stay(lab: Lab) -> AsyncIterator[None]:
    """As WAYSCloud tells of 13 April 2026 (report TR-2026-0012)."""
    namespace, name, front = lab.rng.choice(
        (
            ("shop", "loyalty", "loyalty-page"),
            ("media", "subscriptions", "account-page"),
            ("payments", "mandates", "mandate-page"),
        )
    )
    by, database = lab.rng.choice(("ci", "argocd", "flux")), f"{name}-db"
    copies = _Copies(lab, namespace, database)
    await lab.apply(objects.config_map(namespace, copies.catalogue))
    like = App("", serves=False, check=copies.check)
    await copies.make_disk()
    await lab.app(namespace, database, like=like, kind="StatefulSet", replicas=1, tag="17.4", volumes=[copies.disk])
    image = f"registry.corp.example/{namespace}/pg-dump"
    lab.apps[image] = App(image, upstreams=((namespace, database),), ends_after=1.5, serves=False)
    await lab.app(namespace, name, like=App("", upstreams=((namespace, database),)), replicas=3, tag="8.4.0")
    await lab.app(namespace, front, like=App("", upstreams=((namespace, name),)), replicas=2, tag="2.30.1")
    await lab.until(lambda: backends(lab.world, namespace, front))
    known = ("", "configmaps", "get,patch")
    runs = every(COPIED_EVERY, copies.copy)
    await lab.controller(namespace, f"{name}-backup", runs, ("batch", "jobs", "create"), known, replicas=1, tag="2.1.0")
    cleaner = f"{name}-retention"
    await lab.controller(namespace, cleaner, every(2, copies.remove), known, replicas=1, tag=READS_TIMES)
    await publish(lab, namespace, front)
    lab.reserve(namespace, name)
    volume = {"namespace": namespace, "service": "kubelet", "persistentvolumeclaim": copies.claim}
    lab.measure("kubelet_volume_stats_used_bytes", lambda: copies.used() * 2**30, "gauge", **volume)
    lab.measure("kubelet_volume_stats_capacity_bytes", lambda: SIZE_GIB * 2**30, "gauge", **volume)
    lab.alert_lacking(namespace, name)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)
    await lab.pause(KEPT_SECONDS)
    yield
    await lab.pause(lab.rng.uniform(2, 8))
    await lab.roll(by, namespace, cleaner, MISREADS_TIMES, culprit=True)
