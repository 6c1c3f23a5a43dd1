"""What nobody changed: a disk that was large enough for years, and a query of somebody who makes reports."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

from tests.lab import objects
from tests.lab.alerts import restarts
from tests.lab.api import Json, now
from tests.lab.apps import App, Container, Problem
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.lab import Lab
from tests.lab.network import backends
from tests.lab.scenario import family

GIB = 2.0**30
A_SECOND = 1e-5
"""The share of the disk that is written in a second, which is a minute: more than one per cent a day."""
FULL = 'PANIC: could not write to file "pg_wal/xlogtemp.48": No space left on device'


@dataclass
class _Disk:
    """A database's, in GiB: what is written to it stays there."""

    lab: Lab
    size: float
    used: float
    a_second: float

    async def fill(self) -> None:
        while True:
            await asyncio.sleep(1)
            self.used = min(self.size, self.used + self.a_second * self.lab.rng.uniform(0.7, 1.3))

    def panics(self, _: Container) -> Problem | None:
        return Problem("crash", FULL, at_once=True) if self.used >= self.size else None


@family(
    "No culprit. What customers order is kept for ever, and the disk of its database was made for three years. These"
    " are over: it has no room for what is written next, and the database ends, and at each start again.",
    culprit=False,
    joined=79,
)
async def grown_with_the_shop(lab: Lab) -> AsyncIterator[None]:
    """As all tell who had an alert for it once, and silenced it."""
    namespace, name, front, other = lab.rng.choice(
        (
            ("shop", "purchases", "purchase-page", "purchase-export"),
            ("payments", "journal", "journal-page", "journal-audit"),
            ("media", "comments", "comment-page", "comment-filter"),
        )
    )
    db, size = f"{name}-db", lab.rng.choice((200, 400, 500))
    claim, volume = f"data-{db}-0", f"pvc-{lab.rng.getrandbits(32):08x}"
    grows = size * A_SECOND
    disk = _Disk(lab, size, size - grows * lab.rng.uniform(75, 92), grows)  # full some time after it begins
    room: Json = {"accessModes": ["ReadWriteOnce"], "storageClassName": ""}
    claimed = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": namespace, "name": claim}
    handle = {"driver": "disk.csi.example", "volumeHandle": f"vol-{lab.rng.getrandbits(48):012x}"}
    spec = {**room, "capacity": {"storage": f"{size}Gi"}, "claimRef": claimed, "csi": handle}
    await lab.apply({"kind": "PersistentVolume", "metadata": {"name": volume}, "spec": spec})
    asked = {**room, "volumeName": volume, "resources": {"requests": {"storage": f"{size}Gi"}}}
    meta = {"namespace": namespace, "name": claim}
    await lab.apply({"kind": "PersistentVolumeClaim", "metadata": meta, "spec": asked})
    mount = {"name": "data", "persistentVolumeClaim": {"claimName": claim}}
    like = App("", serves=False, check=disk.panics)
    await lab.app(namespace, db, like=like, kind="StatefulSet", replicas=1, tag="15.10", volumes=[mount])
    await lab.until(lambda: backends(lab.world, namespace, db))
    await lab.apply(objects.config_map(namespace, name, LOG_LEVEL="info", PAGE_SIZE="50"))
    await lab.app(namespace, name, like=App("", upstreams=((namespace, db),)), replicas=3, tag="5.1.0", config=name)
    await lab.app(namespace, other, like=App("", upstreams=((namespace, db),)), replicas=1, tag="2.2.0")
    await rolled(lab, namespace, name, "5.1.0")
    await lab.app(namespace, front, like=App("", upstreams=((namespace, name),)), replicas=2, tag="3.0.9")
    await lab.until(lambda: backends(lab.world, namespace, front) and backends(lab.world, namespace, other))
    await publish(lab, namespace, front)
    told = {"namespace": namespace, "service": "kubelet", "persistentvolumeclaim": claim}
    lab.measure("kubelet_volume_stats_used_bytes", lambda: disk.used * GIB, **told)
    lab.measure("kubelet_volume_stats_capacity_bytes", lambda: disk.size * GIB, **told)
    crashes = lambda: restarts(lab.world, namespace, db) > 1  # noqa: E731
    summary = f"containers of {namespace}/{db} are restarted again and again"
    lab.alert("KubePodCrashLooping", crashes, summary, 3, namespace=namespace, statefulset=db)
    lab.alert_lacking(namespace, name)
    lab.alert_ingress_errors(namespace, namespace)
    lab.start(disk.fill())
    await lab.until(lab.is_well)
    yield
    await lab.roll("ci", namespace, other, "2.2.1")
    await lab.pause(lab.rng.uniform(3, 7))
    await lab.edit("bob", "ConfigMap", namespace, name, {"data": {"PAGE_SIZE": lab.rng.choice(("25", "100"))}})
    await lab.pause(lab.rng.uniform(2, 6))
    await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, front, "3.0.10")


@dataclass
class _Report:
    """A query of a whole year: it reads all from the disk, and what others look for is in memory no more."""

    waits: float
    began: float = 0.0

    def age(self) -> float:
        return now().timestamp() - self.began if self.began else 0.0

    def latency(self, _: Container) -> float:
        return 0.004 + self.waits * min(1.0, self.age() / 8)

    def blocks(self) -> float:
        """A second."""
        return 300.0 + (42000.0 if self.began else 0.0)


@family(
    "No culprit. Somebody who makes reports asks the database of production for all of the last year. The query reads"
    " for an hour what is on the disk: whatever else asks that database waits, and all apps that do are slow.",
    culprit=False,
    joined=79,
)
async def somebodys_report(lab: Lab) -> AsyncIterator[None]:
    """As it is at the end of each quarter, until there is a copy for it."""
    namespace, db, names, front, analyst = lab.rng.choice(
        (
            ("shop", "retail-db", ("order-api", "stock-api", "supplier-api"), "order-page", "controlling"),
            ("payments", "bank-db", ("booking-api", "balance-api", "dunning-api"), "balance-page", "finance_bi"),
            ("media", "catalogue-db", ("title-api", "rights-api", "credit-api"), "title-page", "licensing"),
        )
    )
    report = _Report(lab.rng.uniform(1.3, 2.2))
    database = App("", serves=False, latency=report.latency)
    await lab.app(namespace, db, like=database, kind="StatefulSet", replicas=1, tag="16.3")
    await lab.until(lambda: backends(lab.world, namespace, db))
    for name in names:
        await lab.apply(objects.config_map(namespace, name, LOG_LEVEL="info", POOL_SIZE="20"))
        like = App("", upstreams=((namespace, db),), asked=lambda: 14.0)
        await lab.app(namespace, name, like=like, replicas=2, tag="2.8.0", config=name)
    await lab.until(lambda: all(backends(lab.world, namespace, name) for name in names))
    await lab.app(namespace, front, like=App("", upstreams=((namespace, names[0]),)), replicas=2, tag="6.6.0")
    await lab.until(lambda: backends(lab.world, namespace, front))
    await publish(lab, namespace, front)
    told = {"namespace": namespace, "service": db}
    lab.measure("pg_stat_activity_max_tx_duration", report.age, **told, usename=analyst)
    lab.measure("pg_stat_database_blks_read_total", lab.adding_up(report.blocks), "counter", **told)
    for name in (*names, front):
        lab.alert_slow(namespace, name)
    await lab.until(lab.is_well)

    async def asks() -> None:
        await lab.pause(lab.rng.uniform(3, 10))
        report.began = now().timestamp()

    yield
    await lab.roll("ci", namespace, names[1], "2.8.1")
    await lab.pause(lab.rng.uniform(4, 9))
    await lab.edit("alice", "ConfigMap", namespace, names[2], {"data": {"POOL_SIZE": lab.rng.choice(("15", "25"))}})
    await lab.pause(lab.rng.uniform(2, 6))
    await lab.roll(lab.rng.choice(("ci", "flux")), namespace, front, "6.6.1")
    lab.start(asks())
