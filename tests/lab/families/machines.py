"""Incidents without a culprit among the changes: machines, time, and who calls from outside."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime

from tests.lab import objects
from tests.lab.alerts import restarts
from tests.lab.api import Caller, now, path, stamp
from tests.lab.apps import App, Container, Problem, Process
from tests.lab.families.load import alert_on_load
from tests.lab.lab import NODES, Lab
from tests.lab.programs import every
from tests.lab.scenario import family


@family("Logs fill the disk of a node: its kubelet says so and evicts one pod after another.", culprit=False, joined=3)
async def disk_pressure(lab: Lab) -> AsyncIterator[None]:
    node = NODES[4]

    def full() -> bool:
        conditions = lab.world["Node"]["", node]["status"]["conditions"]
        return any(one["type"] == "DiskPressure" and one["status"] == "True" for one in conditions)

    lab.alert("KubeNodePressure", full, f"node {node} has no room on its disk", 10, node=node)
    yield
    lab.outside.full_disks.add(node)


@family(
    "A leak that took weeks to fill the memory does so: the old processes are killed, one after another, new ones are"
    " well.",
    culprit=False,
    joined=3,
)
async def memory_leak(lab: Lab) -> AsyncIterator[None]:
    lab.reserve("search", "suggest")
    order: list[str] = []
    begun: list[datetime] = []

    def check(container: Container) -> Problem | None:
        """A process that was there before is full, each some seconds after another; one that began anew is not."""
        uid, told = container.pod["metadata"]["uid"], container.pod.get("status", {}).get("containerStatuses", ())
        if not begun or any(one["restartCount"] for one in told):
            return None
        if uid not in order:
            order.append(uid)
        is_full = (now() - begun[0]).total_seconds() > 4 * order.index(uid)
        return Problem("oom", "needs 270Mi, may have 256Mi") if is_full else None

    await lab.app("search", "suggest", like=App("", check=check), replicas=4)
    lab.alert(
        "KubePodRestarting",
        lambda: restarts(lab.world, "search", "suggest") >= 3,
        "pods of suggest restart",
        2,
        namespace="search",
        container="suggest",
    )
    yield
    begun.append(now())


@family(
    "A scanner outside of the cluster, which has been allowed to read for long, begins its yearly look at everything.",
    culprit=False,
    joined=3,
)
async def outside_scanner(lab: Lab) -> AsyncIterator[None]:
    await lab.apply(objects.account("platform", "posture-scanner"))
    await lab.apply(objects.cluster_role("posture-scanner", ("*", "*", "get,list")))
    await lab.apply(objects.binding("posture-scanner", "posture-scanner", "platform", "posture-scanner"))
    where = f"{path('ServiceAccount', 'platform', 'posture-scanner')}/token"
    given = await lab.who["admin"].must("POST", where, {"spec": {"expirationSeconds": 7200}})
    user = "system:serviceaccount:platform:posture-scanner"
    scanner = Caller(lab.client, user, given.body["status"]["token"], "posture-scanner/7.4 (outside)")
    lab.kubelets.counts["outside"] = [scanner]

    async def scan() -> None:
        """A few at a time, as a program that has many threads."""
        kinds = [path(kind) for kind in ("Pod", "Deployment", "Role", "RoleBinding", "Secret", "Service", "Ingress")]

        async def look() -> None:
            while True:
                await scanner.call("GET", lab.rng.choice(kinds))
                await asyncio.sleep(0.15)

        await asyncio.gather(*(look() for _ in range(5)))

    alert_on_load(lab)
    yield
    lab.start(scan())


@family(
    "The disk of etcd stalls again and again: the API server answers late, and nobody changed anything.",
    culprit=False,
    joined=3,
)
async def store_stalls(lab: Lab) -> AsyncIterator[None]:
    late = [0]

    async def probe(process: Process) -> None:
        began = now()
        await process.api.call("PATCH", path("ConfigMap", "monitoring", "canary"), {"data": {"at": stamp(began)}})
        late[0] += (now() - began).total_seconds() > 0.8

    async def stall() -> None:
        while True:
            lab.plane.etcd.pause()
            await asyncio.sleep(2.2)
            lab.plane.etcd.resume()
            await asyncio.sleep(lab.rng.uniform(0.8, 1.6))

    await lab.apply(objects.config_map("monitoring", "canary", at="never"))
    await lab.controller("monitoring", "canary", every(0.2, probe), ("", "configmaps", "get,patch"), replicas=2)
    slow = lab.rate(lambda: late[0], 0.3, seconds=10)
    lab.alert("KubeAPILatencyHigh", slow, "writes take longer than they may", 4, job="apiserver")
    yield
    lab.start(stall())
