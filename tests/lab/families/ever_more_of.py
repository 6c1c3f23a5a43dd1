"""What there is ever more of: looks at everything that is kept, small files on one disk."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

from tests.lab import objects
from tests.lab.api import Json, Kind, path
from tests.lab.apps import App, Process
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.families.databases import ANY
from tests.lab.families.load import BUSY, LOAD
from tests.lab.lab import Lab
from tests.lab.network import backends
from tests.lab.programs import both, every, lagging
from tests.lab.scenario import family

GROUP, TEAMS = "sites.corp.example", ("shop", "payments", "search", "media")
SITES_EACH, OWNED = 12, ("ConfigMap", "Service", "ServiceAccount")
"""Sites of a team, and what belongs to each."""
FLAG, USUAL, OFTEN = "--sync-period", "10h0m0s", "1m0s"
SECONDS = {USUAL: 600.0, OFTEN: 1.0}
LOOKS_EVERY, QUERIES = 2.5, 60.0
"""Seconds between two looks for what is new, and how many requests a second its client lets it make."""


@dataclass
class _Sites:
    """An operator: what is new it makes at once, and all that there is it looks at anew each sync period."""

    lab: Lab
    kind: Kind
    looked: int = 0

    def period(self, process: Process) -> float:
        [told] = [one.split("=")[1] for one in process.see().spec["args"] if one.startswith(FLAG)]
        return SECONDS[told]

    async def run(self, process: Process) -> None:
        await both(every(LOOKS_EVERY, self._look), self._resync)(process)

    async def _look(self, process: Process) -> None:
        listed = await process.api.call("GET", f"{self.kind.path()}?limit=100")
        for one in listed.body.get("items", []):
            if "status" not in one:
                await self._reconcile(process, one)

    async def _resync(self, process: Process) -> None:
        await lagging(process)
        while True:
            listed = await process.api.call("GET", self.kind.path())
            for one in listed.body.get("items", []):
                await self._reconcile(process, one)
            await asyncio.sleep(self.period(process))

    async def _reconcile(self, process: Process, one: Json) -> None:
        """All that belongs to it is read, and made where it is not there."""
        self.looked += 1
        namespace, name = one["metadata"]["namespace"], one["metadata"]["name"]
        for kind in OWNED:
            if (await process.api.call("GET", path(kind, namespace, name))).status == 404:
                body: Json = {"metadata": {"name": name}}
                if kind == "Service":
                    body["spec"] = {"selector": {"site": name}, "ports": [{"port": 80, "targetPort": 8080}]}
                await process.api.call("POST", path(kind, namespace), body)
            await asyncio.sleep(1 / QUERIES)
        if "status" not in one:
            await process.api.call("PATCH", self.kind.path(namespace, name), {"status": {"phase": "Ready"}})


@family(
    "Somebody wants what was changed by hand to be put right soon, and has an operator look at all of its objects each"
    " minute in place of every ten hours. It reads everything that belongs to each of them, and the API server gets"
    " many times the requests.",
    joined=52,
)
async def sync_period(lab: Lab) -> AsyncIterator[None]:
    """As those who make controller-runtime warn of its sync period: it is not to be short where there is much."""
    name = lab.rng.choice(("site-operator", "landing-operator", "pages-operator"))
    by = lab.rng.choice(("alice", "argocd", "carol"))
    kind = await lab.custom("Site", GROUP, ANY)
    sites = _Sites(lab, kind)
    await lab.served(kind)
    for namespace in TEAMS:
        for number in range(1, SITES_EACH + 1):
            meta = {"namespace": namespace, "name": f"site-{namespace}-{number:02}"}
            spec = {"template": lab.rng.choice(("campaign", "partner", "legal"))}
            await lab.apply({"apiVersion": f"{GROUP}/v1", "kind": kind.name, "metadata": meta, "spec": spec})
    await lab.apply(objects.account("platform", name))
    rules = (GROUP, kind.plural, "list,patch"), ("", "configmaps,services,serviceaccounts", "get,create")
    await lab.apply(objects.cluster_role(name, *rules))
    await lab.apply(objects.binding(name, name, "platform", name))
    image = f"registry.corp.example/platform/{name}"
    lab.apps[image] = App(image, program=sites.run, serves=False)
    made = objects.deployment("platform", name, f"{image}:0.31.0", replicas=1, account=name)

    def flags(period: str) -> list[str]:
        return ["--metrics-bind-address=:8080", f"{FLAG}={period}", f"--kube-api-qps={QUERIES:g}"]

    made["spec"]["template"]["spec"]["containers"][0]["args"] = flags(USUAL)
    await lab.apply(made)
    await lab.apply(objects.service("platform", name))
    await rolled(lab, "platform", name, "0.31.0")
    lab.reserve("platform", name)
    labels = {"namespace": "platform", "service": name, "controller": "site"}
    lab.measure("controller_runtime_reconcile_total", lambda: sites.looked, "counter", **labels)
    await lab.until(lambda: sites.looked >= 2 * SITES_EACH * len(TEAMS))
    summary = "the API server gets far more requests than usual"
    busy = lab.rate(lab.requests, BUSY, seconds=12)  # more than what any start of the operator makes
    lab.alert(LOAD, busy, summary, 6, job="apiserver")
    yield
    await lab.pause(lab.rng.uniform(2, 9))
    await lab.roll(by, "platform", name, "0.31.0", culprit=True, args=flags(OFTEN))


DISK_GIB, INODES = 200, 13_107_200
"""Of a volume, and how many files it can have: one for each 16 KiB, as mkfs makes it."""
FILE_KIB = 5.0
FILLED = (0.938, 0.948)
CALM, EVENING = 0.00015, (0.0028, 0.0042)
"""The share of all files there may be that is new in a second, by day and in the evening at least and at most."""


@family(
    "For each picture that users upload a store keeps a dozen small previews, each of them a file. Users are ever more,"
    " and on one evening the disk has as many files as it can have, while half of its room is left: whatever is"
    " uploaded fails.",
    culprit=False,
    joined=52,
)
async def files_counted(lab: Lab) -> AsyncIterator[None]:
    """As told of disks that have room and take no further file (moby 10613)."""
    namespace, name, front = lab.rng.choice(
        (
            ("media", "albums", "album-page"),
            ("shop", "photos", "seller-page"),
            ("search", "snapshots", "results-page"),
        )
    )
    team, store, writes = lab.rng.choice(("ci", "alice", "argocd")), f"{name}-store", lab.rng.uniform(0.3, 0.5)
    used, grows, claim = [lab.rng.uniform(*FILLED)], [CALM], f"data-{name}-store-0"

    async def fill() -> None:
        while True:
            await asyncio.sleep(0.5)
            used[0] = min(1.0, used[0] + 0.5 * grows[0] * lab.rng.uniform(0.7, 1.3))

    refused = lambda _: writes if used[0] >= 1.0 else 0.0  # noqa: E731
    room: Json = {"accessModes": ["ReadWriteMany"], "storageClassName": ""}
    bound = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": namespace, "name": claim}
    shared = {"server": "10.0.8.24", "path": f"/exports/{store}"}
    volume = {**room, "capacity": {"storage": f"{DISK_GIB}Gi"}, "claimRef": bound, "nfs": shared}
    await lab.apply({"kind": "PersistentVolume", "metadata": {"name": claim}, "spec": volume})
    spec = {**room, "volumeName": claim, "resources": {"requests": {"storage": f"{DISK_GIB}Gi"}}}
    meta = {"namespace": namespace, "name": claim}
    await lab.apply({"kind": "PersistentVolumeClaim", "metadata": meta, "spec": spec})
    disk = {"name": "data", "persistentVolumeClaim": {"claimName": claim}}
    like = App("", failing=refused, asked=lambda: 21.0)
    await lab.app(namespace, store, like=like, kind="StatefulSet", replicas=1, tag="0.8.11", volumes=[disk])
    await lab.apply(objects.config_map(namespace, name, UPLOAD_TIMEOUT_MS="4000", LOG_LEVEL="info"))
    like = App("", upstreams=((namespace, store),), asked=lambda: 18.0)
    await lab.app(namespace, name, like=like, replicas=3, tag="7.2.3", config=name)
    await lab.app(namespace, front, like=App("", upstreams=((namespace, name),)), replicas=2, tag="2.2.0")
    await lab.until(lambda: len(backends(lab.world, namespace, name)) == 3 and backends(lab.world, namespace, front))
    await publish(lab, namespace, front)
    lab.reserve(namespace, name, store)
    told = {"namespace": namespace, "service": "kubelet", "persistentvolumeclaim": claim}
    lab.measure("kubelet_volume_stats_inodes", lambda: INODES, "gauge", **told)
    lab.measure("kubelet_volume_stats_inodes_used", lambda: int(INODES * used[0]), "gauge", **told)
    lab.measure("kubelet_volume_stats_capacity_bytes", lambda: DISK_GIB * 2**30, "gauge", **told)
    lab.measure("kubelet_volume_stats_used_bytes", lambda: int(INODES * used[0] * FILE_KIB * 2**10), "gauge", **told)
    lab.alert_errors(namespace, name)
    lab.alert_ingress_errors(namespace, namespace)
    lab.start(fill())
    await lab.until(lab.is_well)
    yield
    await lab.pause(lab.rng.uniform(1, 5))
    grows[0] = lab.rng.uniform(*EVENING)  # in the evening users upload what they took by day
    await lab.pause(lab.rng.uniform(3, 8))
    timeout = lab.rng.choice(("5000", "6000"))
    await lab.edit(team, "ConfigMap", namespace, name, {"data": {"UPLOAD_TIMEOUT_MS": timeout}})
