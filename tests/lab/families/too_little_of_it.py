"""Too little of it on a day like any other: the disk below a database, and a shop on the day of its newsletter."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from tests.lab import objects
from tests.lab.alerts import restarts
from tests.lab.api import Json
from tests.lab.apps import App, Container, Problem
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.families.more_than_was_meant import Lately
from tests.lab.families.not_in_mind import TEAMS, change_page, set_before
from tests.lab.lab import Lab
from tests.lab.manifests import images
from tests.lab.metrics_api import PodMetricsApi
from tests.lab.network import backends
from tests.lab.scenario import family

# -- a disk

GIB = 2.0**30
A_SECOND = 2e-4
"""The share of the disk that is written in a second."""


@dataclass(frozen=True)
class _Engine:
    """A kind of database, and what becomes of who writes to it while its disk has no room."""

    suffix: str
    tag: str
    folder: str
    waits: float = 0.0
    """Seconds for which a write is left to wait until its client gives up; 0 where it is refused at once."""
    ends: str = ""
    """What it says as it ends; "" where it goes on."""


ENGINES = (
    _Engine("db", "16.4", "/var/lib/postgresql/data"),  # could not extend file: No space left on device
    _Engine("mysql", "8.0.39", "/var/lib/mysql", waits=3.0),  # Disk is full writing ... Waiting for someone to free
    _Engine(
        "mongo",
        "7.0.14",
        "/data/db",
        ends="WiredTiger error: __posix_file_write: handle-write: pwrite: failed to write 4096 bytes at offset"
        " 1073741824: No space left on device\nFatal assertion 28559 at WiredTigerUtil",
    ),
)


@dataclass
class _Disk:
    """Of a database, in GiB: tables have grown for months, and nothing is ever deleted."""

    lab: Lab
    size: float
    used: float

    async def fill(self) -> None:
        while True:
            await asyncio.sleep(1)
            self.used = min(self.size, self.used + self.size * A_SECOND * self.lab.kubelets.rng.uniform(0.7, 1.3))

    def is_full(self) -> bool:
        return self.used >= self.size


async def _database(lab: Lab, namespace: str, name: str, engine: _Engine, disk: _Disk) -> str:
    """One with its data on a volume of that size; returns the claim of it. Raises RefusedError, TimeoutError."""
    pv, claim = f"pvc-{lab.rng.getrandbits(32):08x}", f"data-{name}-0"
    room: Json = {"accessModes": ["ReadWriteOnce"], "storageClassName": ""}
    meta = {"namespace": namespace, "name": claim}
    to = {"driver": "disk.csi.example", "volumeHandle": f"vol-{lab.rng.getrandbits(48):012x}"}
    bound = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", **meta}
    spec = {**room, "capacity": {"storage": f"{disk.size:.0f}Gi"}, "claimRef": bound, "csi": to}
    await lab.apply({"kind": "PersistentVolume", "metadata": {"name": pv}, "spec": spec})
    asked = {**room, "volumeName": pv, "resources": {"requests": {"storage": f"{disk.size:.0f}Gi"}}}
    await lab.apply({"kind": "PersistentVolumeClaim", "metadata": meta, "spec": asked})

    def check(_: Container) -> Problem | None:
        return Problem("crash", engine.ends, at_once=True) if engine.ends and disk.is_full() else None

    image = f"registry.corp.example/{namespace}/{name}"
    lab.apps[image] = App(image, check=check, serves=False)
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": claim}}
    made = objects.deployment(
        namespace, name, f"{image}:{engine.tag}", kind="StatefulSet", replicas=1, volumes=[volume]
    )
    mounts = [{"name": "data", "mountPath": engine.folder}]
    made["spec"]["template"]["spec"]["containers"][0]["volumeMounts"] = mounts
    await lab.apply(made)
    await lab.apply(objects.service(namespace, name))
    await rolled(lab, namespace, name, engine.tag)
    await lab.until(lambda: backends(lab.world, namespace, name))
    lab.reserve(namespace, name)
    return claim


@family(
    "No culprit. The tables of a database have grown for months, and today its disk is full. Rows that are to be"
    " written are refused, or wait for somebody to make room, or the database ends: none is taken.",
    culprit=False,
    joined=93,
)
async def a_year_of_rows(lab: Lab) -> AsyncIterator[None]:
    """As those tell who found a table of logs that had once been switched on for a week."""
    namespace, name, other, front, size = lab.rng.choice(
        (
            ("shop", "return-desk", "return-stats", "return-page", 200),
            ("payments", "claim-desk", "claim-export", "claim-page", 400),
            ("media", "comment-api", "comment-feed", "comment-page", 100),
            ("search", "crawl-state", "crawl-stats", "crawl-page", 800),
        )
    )
    engine, writes, minor = lab.rng.choice(ENGINES), lab.rng.uniform(0.25, 0.6), lab.rng.randrange(2, 40)
    place, asked = f"{name}-{engine.suffix}", 21.0
    disk = _Disk(lab, float(size), size * (1 - A_SECOND * lab.rng.uniform(86, 102)))
    claim = await _database(lab, namespace, place, engine, disk)
    is_felt = Lately(lab, disk.is_full)

    def fails(_: Container) -> float:
        return writes if is_felt() and not engine.ends else 0.0

    to = ((namespace, place),)
    like = App(
        "",
        upstreams=to,
        asked=lambda: asked,
        failing=fails,
        fails_with=lambda _: "504" if engine.waits else "500",
        latency=lambda container: engine.waits * fails(container),
    )
    await lab.apply(objects.config_map(namespace, name, LOG_LEVEL="info", BATCH="25"))
    await lab.app(namespace, name, like=like, replicas=3, tag=f"6.{minor}.0", config=name)
    await lab.apply(objects.config_map(namespace, other, LOG_LEVEL="info", EVERY="60s"))
    await lab.app(namespace, other, like=App("", upstreams=to), replicas=2, tag="2.3.0", config=other)
    await rolled(lab, namespace, name, f"6.{minor}.0")
    await rolled(lab, namespace, other, "2.3.0")
    await set_before(lab, namespace, front, name)
    told = {"namespace": namespace, "service": "kubelet", "persistentvolumeclaim": claim}
    lab.measure("kubelet_volume_stats_used_bytes", lambda: disk.used * GIB, **told)
    lab.measure("kubelet_volume_stats_capacity_bytes", lambda: disk.size * GIB, **told)
    many = lambda: restarts(lab.world, namespace, place) >= 2  # noqa: E731
    summary = f"a pod of {namespace}/{place} restarts again and again"
    lab.alert("KubePodCrashLooping", many, summary, 4, namespace=namespace, container=place)
    for one in (name, front):
        lab.alert_errors(namespace, one)
    lab.alert_slow(namespace, name)
    lab.alert_ingress_errors(namespace, namespace)
    lab.start(disk.fill())
    await lab.until(lab.is_well)
    yield
    await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, other, "2.3.1")
    await lab.pause(lab.rng.uniform(4, 9))
    await lab.edit(lab.rng.choice((*TEAMS, "flux")), "ConfigMap", namespace, name, {"data": {"BATCH": "40"}})
    await lab.pause(lab.rng.uniform(4, 9))
    await change_page(lab, namespace, front)


# -- a newsletter

LEAST, EACH_STANDS, USES_M = 3, 15.0, 5.0
"""Pods of the page at all times, requests a second that one stands, and thousandths of a processor for each."""
METRICS = ("kube-system", "metrics-server")


@dataclass
class _Shop:
    """A page whose pods are as many as its autoscaler makes them, and the API and the database behind it."""

    lab: Lab
    namespace: str
    front: str
    usual: float
    stands: float
    """Requests a second that the database behind the API stands."""
    times: float = 1.0
    image: str = field(init=False)

    def __post_init__(self) -> None:
        self.image = f"registry.corp.example/{self.namespace}/{self.front}"

    def asked(self) -> float:
        return self.usual * self.times

    def there(self) -> int:
        return max(1, len(backends(self.lab.world, self.namespace, self.front)))

    def uses(self, pod: Json) -> float:
        """Thousandths of a processor."""
        is_ours = images(pod)[0].rsplit(":", 1)[0] == self.image
        return USES_M * min(EACH_STANDS, self.asked() / self.there()) if is_ours else 8.0

    def beyond(self, stands: float) -> float:
        """By how much what is asked is more than what is stood."""
        return max(0.0, self.asked() / stands - 1)

    def turned_away(self, _: Container) -> float:
        over = self.beyond(EACH_STANDS * self.there())
        return min(0.9, over / (1 + over))

    def given_up(self, _: Container) -> float:
        return min(0.8, 0.4 * self.beyond(self.stands))

    def waits(self, _: Container) -> float:
        return min(2.5, 1.6 * self.beyond(self.stands))

    async def letter(self) -> None:
        """Most who read it do so in the first minutes."""
        rng, most = self.lab.rng, self.lab.rng.uniform(4.2, 6.5)
        await self.lab.pause(rng.uniform(4, 10))
        while self.times < most:
            self.times = min(most, self.times * rng.uniform(1.1, 1.35))
            await asyncio.sleep(1)
        while self.times > 2:
            self.times *= rng.uniform(0.985, 1.0)
            await asyncio.sleep(1)


def _is_scaled(lab: Lab, namespace: str, name: str) -> bool:
    """Whether the autoscaler of an app has something to go by."""
    told = lab.world["HorizontalPodAutoscaler"].get((namespace, name), {}).get("status", {}).get("conditions") or ()
    return any(one["type"] == "ScalingActive" and one["status"] == "True" for one in told)


@family(
    "No culprit. The newsletter of the month goes to everybody at the same minute, and brings several times the"
    " visitors of any other hour. The autoscaler makes as many pods as it may, or the database has enough before.",
    culprit=False,
    joined=93,
)
async def letter_to_everybody(lab: Lab) -> AsyncIterator[None]:
    """As those tell who got the letter themselves, some minutes after the page."""
    namespace, front, api, of_api = lab.rng.choice(
        (
            ("shop", "offers-web", "offers-api", "campaign-texts"),
            ("media", "premieres-web", "premieres-api", "trailer-links"),
            ("payments", "bonus-web", "bonus-api", "bonus-mails"),
            ("search", "travel-web", "travel-api", "travel-tips"),
        )
    )
    shop = _Shop(lab, namespace, front, lab.rng.uniform(26, 34), lab.rng.choice((75.0, 400.0)))
    most, minor, has_banner = lab.rng.choice((6, 7)), lab.rng.randrange(2, 40), lab.rng.random() < 0.5
    server = PodMetricsApi(lab.world, shop.uses)
    image = f"registry.corp.example/{'/'.join(METRICS)}"
    lab.apps[image] = App(image, serves=False)
    await lab.apply(objects.deployment(*METRICS, f"{image}:0.7.2", replicas=1))
    await rolled(lab, *METRICS, "0.7.2")
    await server.start()
    lab.servers.append(server)
    await server.register(lab.who["admin"], *METRICS)
    db = f"{api}-db"
    await lab.app(namespace, db, like=App("", serves=False), kind="StatefulSet", replicas=1, tag="16.4")
    await rolled(lab, namespace, db, "16.4")
    for one, tag, like, replicas in (
        (api, f"4.{minor}.0", App("", upstreams=((namespace, db),), asked=shop.asked), 4),
        (front, "9.3.0", App("", upstreams=((namespace, api),), asked=shop.asked, fails_with=lambda _: "503"), LEAST),
        (of_api, "1.1.4", App(""), 2),
    ):
        await lab.apply(objects.config_map(namespace, one, LOG_LEVEL="info", BANNER="none", PAGE_SIZE="50"))
        await lab.app(namespace, one, like=like, replicas=replicas, tag=tag, config=one)
        await rolled(lab, namespace, one, tag)
    behind, before = (lab.apps[f"registry.corp.example/{namespace}/{one}"] for one in (api, front))
    behind.failing, behind.latency, before.failing = shop.given_up, shop.waits, shop.turned_away
    cpu = {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 60}}
    spec = {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": front},
        "minReplicas": LEAST,
        "maxReplicas": most,
        "metrics": [{"type": "Resource", "resource": cpu}],
    }
    meta = {"namespace": namespace, "name": front}
    await lab.apply({"kind": "HorizontalPodAutoscaler", "metadata": meta, "spec": spec})
    await lab.until(lambda: _is_scaled(lab, namespace, front))
    await publish(lab, namespace, front)
    lab.reserve(namespace, api, front)
    for one in (front, api):
        lab.alert_errors(namespace, one)
        lab.alert_slow(namespace, one)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)
    yield
    await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, of_api, "1.1.5")
    await lab.pause(lab.rng.uniform(4, 9))
    if has_banner:
        await lab.edit(lab.rng.choice(TEAMS), "ConfigMap", namespace, front, {"data": {"BANNER": "autumn"}})
        await lab.pause(lab.rng.uniform(4, 9))
    await lab.edit(lab.rng.choice((*TEAMS, "flux")), "ConfigMap", namespace, api, {"data": {"PAGE_SIZE": "40"}})
    lab.start(shop.letter())
