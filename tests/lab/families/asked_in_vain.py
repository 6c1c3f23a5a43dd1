"""What is asked for in vain: images of a public registry in the evening, more room for what is stored."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from hashlib import sha256

from tests.lab import objects
from tests.lab.alerts import pods
from tests.lab.api import Json, path
from tests.lab.apps import App, Container, Process
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.families.out_of_room import ALMOST_FULL, CLASS, SIZE_GI, Volume, mounted
from tests.lab.lab import Lab
from tests.lab.network import backends
from tests.lab.programs import every
from tests.lab.scenario import family

HUB = "docker.io/"
CALM, EACH, BY_DAY, BY_NIGHT = 30.0, 20.0, 3, 6
"""Requests a second of an app by day, how many one of its pods stands, and how many pods it has."""
ONCE_MORE, IMPORT_GI = 20.0, 9.0
"""By how much a disk is grown, and how much a day with an import brings."""


@dataclass
class _Evening:
    """When more users come, and whether the public registry still gives out to who has no account with it."""

    lab: Lab
    namespace: str
    name: str
    busy: float
    asked: float = 0.0
    has_begun: bool = False
    is_spent: bool = False

    async def users(self) -> None:
        while True:
            await asyncio.sleep(0.5)
            self.asked += 0.1 * ((self.busy if self.has_begun else CALM) - self.asked)

    def overload(self, _: Container) -> float:
        there = len(backends(self.lab.world, self.namespace, self.name))
        return max(0.0, 1 - EACH * max(1, there) / max(1.0, self.asked))

    def denied(self, image: str, _: Json) -> str:
        """As containerd hands on what Docker Hub says to an address that has asked too often."""
        if not (self.is_spent and image.startswith(HUB)):
            return ""
        host, repository = "https://registry-1.docker.io/v2", image.removeprefix(HUB).rsplit(":", 1)[0]
        digest = f"sha256:{sha256(image.encode()).hexdigest()}"
        told = "You have reached your unauthenticated pull rate limit. https://www.docker.com/increase-rate-limit"
        failed = f'failed to pull and unpack image "{image}": failed to copy: httpReadSeeker: failed open'
        asked = f"unexpected status code {host}/{repository}/manifests/{digest}"
        return f"{failed}: {asked}: 429 Too Many Requests - Server message: toomanyrequests: {told}"

    async def scale(self, process: Process) -> None:
        """By the clock: so many in the evening, so many else."""
        where = f"{path('Deployment', self.namespace, self.name)}/scale"
        found, wanted = await process.api.call("GET", where), BY_NIGHT if self.has_begun else BY_DAY
        if found.ok and found.body["spec"]["replicas"] != wanted:
            await process.api.call("PATCH", where, {"spec": {"replicas": wanted}})


@family(
    "A public registry gives out fewer images than ever to an address without an account, from the day on that it told"
    " of, and all clusters of the company leave by one. In the evening an app gets more pods, as each day: on nodes"
    " that do not have its image none comes up, and those that are there do not stand what comes.",
    culprit=False,
    joined=59,
)
async def pulls_lowered(lab: Lab) -> AsyncIterator[None]:
    """As users of Rahti and of etcd-manager tell of Docker Hub's limits (engineered.at, kopeio/etcd-manager 404)."""
    namespace, name, repository, tag, front = lab.rng.choice(
        (
            ("media", "imgproxy", "darthsim/imgproxy", "v3.27.2", "gallery"),
            ("shop", "varnish", "library/varnish", "7.6.1", "landing-page"),
            ("search", "libretranslate", "libretranslate/libretranslate", "v1.6.5", "abroad-page"),
        )
    )
    team, evening = lab.rng.choice(("ci", "argocd")), _Evening(lab, namespace, name, lab.rng.uniform(88, 104))
    image = f"{HUB}{repository}"
    like = App(image, asked=lambda: evening.asked, failing=evening.overload, fails_with=lambda _: "503")
    lab.apps[image] = like
    spread = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app.kubernetes.io/name": name}},
    }
    made = objects.deployment(namespace, name, f"{image}:{tag}", replicas=BY_DAY, topologySpreadConstraints=[spread])
    await lab.apply(made)
    await lab.apply(objects.service(namespace, name))
    await lab.apply(objects.config_map(namespace, front, LOG_LEVEL="info", PAGE_SIZE="24"))
    like = App("", upstreams=((namespace, name),))
    await lab.app(namespace, front, like=like, replicas=2, tag="4.9.0", config=front)
    may = ("apps", "deployments/scale", "get,patch")
    await lab.controller("platform", "schedule-scaler", every(1, evening.scale), may, replicas=1, tag="1.4.0")
    await rolled(lab, namespace, name, tag)
    await lab.until(lambda: backends(lab.world, namespace, front))
    await publish(lab, namespace, front)
    lab.reserve(namespace, name)
    lab.outside.denied = evening.denied

    def waits() -> bool:
        states = (one for pod in pods(lab.world, namespace, name) for one in pod["status"].get("containerStatuses", ()))
        return any(one["state"].get("waiting", {}).get("reason") == "ImagePullBackOff" for one in states)

    summary = f"a container of {namespace}/{name} has been waiting for a while"
    lab.alert("KubeContainerWaiting", waits, summary, 15, namespace=namespace, deployment=name)
    lab.alert_errors(namespace, name, 0.15)
    lab.alert_ingress_errors(namespace, namespace, 0.1)
    lab.start(evening.users())
    await lab.until(lambda: evening.asked > 0.9 * CALM and lab.is_well())
    yield
    evening.is_spent = True
    await lab.pause(lab.rng.uniform(2, 6))
    await lab.edit(team, "ConfigMap", namespace, front, {"data": {"PAGE_SIZE": lab.rng.choice(("30", "36", "48"))}})
    await lab.pause(lab.rng.uniform(3, 8))
    evening.has_begun = True


@family(
    "The class of a cluster's disks is taken into Git, by a file that says nothing of whether they may be grown, and"
    " that means no. What grows disks as they fill is refused from then on: with the next large import a database's"
    " disk is full, and it does not start any more.",
    joined=59,
)
async def growth_refused(lab: Lab) -> AsyncIterator[None]:
    """As those tell whose claims could not be resized, by a class without allowVolumeExpansion (kubernetes.io)."""
    namespace, name, front = lab.rng.choice(
        (
            ("payments", "ledger-archive", "statements-page"),
            ("shop", "price-history", "trends-page"),
            ("media", "play-history", "recap-page"),
        )
    )
    database, imports = f"{name}-db", f"{name}-import"
    by = lab.rng.choice(("alice", "flux", "argocd"))
    volume, handle = f"pvc-{lab.rng.getrandbits(32):08x}", f"vol-0{lab.rng.getrandbits(60):015x}"
    disk = Volume(lab, namespace, f"data-{database}-0", volume, handle, used=0.71 * SIZE_GI, grown_by=ONCE_MORE)
    mount = await mounted(lab, disk)
    like = App("", serves=False, check=disk.panics)
    await lab.app(namespace, database, like=like, kind="StatefulSet", replicas=1, tag="17.2", volumes=[mount])
    reaches = ((namespace, database),)
    await lab.app(namespace, name, like=App("", upstreams=reaches), replicas=2, tag="3.14.0")
    await lab.app(namespace, imports, like=App("", upstreams=reaches), replicas=1, tag="3.14.0")
    await lab.app(namespace, front, like=App("", upstreams=((namespace, name),)), replicas=2, tag="2.2.6")
    claims = ("", "persistentvolumeclaims,persistentvolumeclaims/status,persistentvolumes", "*")
    events = ("", "events", "create")
    await lab.controller("kube-system", "pvc-autoresizer", every(1.5, disk.ask), claims, replicas=1, tag="0.17.0")
    resizer = every(2, disk.resize)
    await lab.controller("kube-system", "ebs-csi-controller", resizer, claims, events, replicas=1, tag="1.45.0")
    await lab.until(lambda: all(backends(lab.world, namespace, one) for one in (database, name, imports, front)))
    await publish(lab, namespace, front)
    lab.reserve(namespace, name)
    kubelet = {"namespace": namespace, "service": "kubelet", "persistentvolumeclaim": disk.claim}
    lab.measure("kubelet_volume_stats_used_bytes", lambda: disk.used * 2**30, "gauge", **kubelet)
    lab.measure("kubelet_volume_stats_capacity_bytes", lambda: disk.size * 2**30, "gauge", **kubelet)
    of_claim = {"persistentvolumeclaim": disk.claim}
    grower = {"namespace": "kube-system", "service": "pvc-autoresizer", **of_claim}
    lab.measure("pvcautoresizer_failed_resize_total", lambda: disk.refused, "counter", **grower)
    filling = lambda: disk.used / disk.size > ALMOST_FULL  # noqa: E731
    summary = f"the volume claimed by {disk.claim} in {namespace} is almost full"
    lab.alert("KubePersistentVolumeFillingUp", filling, summary, 6, namespace=namespace, **of_claim)
    lab.alert_lacking(namespace, name)
    lab.alert_ingress_errors(namespace, namespace)
    lab.start(disk.fill(0.002))
    await lab.until(lab.is_well)
    yield
    await lab.pause(lab.rng.uniform(2, 7))
    labels = {"app.kubernetes.io/part-of": "cluster-storage"}
    body = {"metadata": {"labels": labels}, "allowVolumeExpansion": None}
    await lab.culprit(by, "update", "StorageClass", "", CLASS, body)
    await lab.pause(lab.rng.uniform(4, 9))
    lab.start(_import(disk, lab.rng.uniform(0.35, 0.45)))


async def _import(disk: Volume, rate: float) -> None:
    """So many GiB a second, until all is there."""
    work = asyncio.create_task(disk.fill(rate))
    await asyncio.sleep(IMPORT_GI / rate)
    work.cancel()
