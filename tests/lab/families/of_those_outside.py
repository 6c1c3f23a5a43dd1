"""What nobody changed: a provider that is slow today, and a volume that was large enough for years."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

from tests.lab import objects
from tests.lab.api import Json, now
from tests.lab.apps import LATE, App, Container, Problem
from tests.lab.families.by_annotation import rolled
from tests.lab.families.not_in_mind import TEAMS, change_page, set_before
from tests.lab.lab import Lab
from tests.lab.network import backends
from tests.lab.scenario import family

GROWS_SECONDS = 10.0
"""Until a provider that gets slow is as slow as it will be today."""


@dataclass
class _Provider:
    """How long it takes for an answer, and what that makes of the threads of those who wait for it."""

    usual: float
    today: float
    threads: int
    """Of all processes of the app, of which each request takes one for as long as it lasts."""
    calls: float
    """How many requests a second need it."""
    began: float = 0.0

    def seconds(self) -> float:
        grown = min(1.0, (now().timestamp() - self.began) / GROWS_SECONDS) if self.began else 0.0
        return self.usual + (self.today - self.usual) * grown

    def wanted(self) -> float:
        """How many threads would be waiting for it, if there were so many."""
        return self.calls * self.seconds()

    def lacks(self, _: Container) -> float:
        """The share of all requests that find no thread free before their own time is over."""
        return max(0.0, 1 - self.threads / self.wanted())

    def waits(self, _: Container) -> float:
        """The mean of what each request waits: for the provider, some, and for a thread, all."""
        queued = 1.5 if self.wanted() > self.threads else 0.0
        return 0.3 * self.seconds() + queued


@family(
    "No culprit. The provider whose API an app calls for some of its pages answers after many seconds today. Each such"
    " request keeps a thread for as long; soon all of them wait, and whoever wants another page of that app waits too.",
    culprit=False,
    joined=89,
)
async def threads_all_waiting(lab: Lab) -> AsyncIterator[None]:
    """As those tell whose thread dump was two hundred times the same call."""
    namespace, name, front, host = lab.rng.choice(
        (
            ("shop", "address-book", "address-form", "api.geocoder.example"),
            ("payments", "payment-options", "options-page", "api.risk-scores.example"),
            ("media", "subtitle-desk", "subtitle-page", "api.machine-translation.example"),
            ("search", "map-results", "map-page", "api.tiles.example"),
        )
    )
    pods, asked, share = lab.rng.choice((2, 3)), 24.0, lab.rng.uniform(0.3, 0.6)
    threads, minor, probed = pods * lab.rng.choice((20, 25)), lab.rng.randrange(2, 40), lab.rng.random() < 0.4
    today = threads / (asked * share) * lab.rng.uniform(1.5, 2.4)
    provider = _Provider(lab.rng.uniform(0.12, 0.3), today, threads, asked * share)

    def check(container: Container) -> Problem | None:
        """Its probe is answered by one of the same threads, in time or not."""
        is_late = probed and provider.lacks(container) > 0.3 and (now().timestamp() + hash_of(container)) % 12 < 5
        return Problem("unready", LATE) if is_late else None

    def hash_of(container: Container) -> int:
        return int(container.pod["metadata"]["uid"][:2], 16) % 12

    settings = {"LOG_LEVEL": "info", "server.tomcat.threads.max": str(threads // pods), "PROVIDER_TIMEOUT_MS": "30000"}
    await lab.apply(objects.config_map(namespace, name, **settings))
    like = App(
        "", abroad=(host,), asked=lambda: asked, check=check, failing=provider.lacks, latency=provider.waits,
        fails_with=lambda _: "503",
    )  # fmt: skip
    await lab.app(namespace, name, like=like, replicas=pods, tag=f"8.{minor}.0", config=name)
    await rolled(lab, namespace, name, f"8.{minor}.0")
    await set_before(lab, namespace, front, name)
    told = {"namespace": namespace, "service": name}

    def seen() -> float:
        """Of a moment, so never twice the same."""
        return lab.kubelets.rng.uniform(0.8, 1.25)

    busy = lambda: min(float(threads), round(provider.wanted() * seen() + 1))  # noqa: E731
    lab.measure("tomcat_threads_busy_threads", busy, **told)
    lab.measure("tomcat_threads_config_max_threads", lambda: float(threads), **told)
    lab.measure("http_client_requests_seconds_max", lambda: provider.seconds() * seen(), **told, client_name=host)
    for one in (name, front):
        lab.alert_errors(namespace, one)
        lab.alert_slow(namespace, one, 0.9)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)

    async def gets_slow() -> None:
        await lab.pause(lab.rng.uniform(3, 10))
        provider.began = now().timestamp()

    yield
    await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, name, f"8.{minor}.1")
    await lab.pause(lab.rng.uniform(8, 13))
    await lab.edit(lab.rng.choice((*TEAMS, "flux")), "ConfigMap", namespace, name, {"data": {"LOG_LEVEL": "warn"}})
    await lab.pause(lab.rng.uniform(3, 7))
    await change_page(lab, namespace, front)
    lab.start(gets_slow())


GIB = 2.0**30
A_SECOND = 1.2e-5
"""The share of the volume that is written in a second, which is a minute: nearly two per cent a day."""


@dataclass
class _Volume:
    """Of a database, in GiB: rows come and stay, and what finds no room is refused; what is there can be read."""

    lab: Lab
    size: float
    used: float
    asked: float

    async def fill(self) -> None:
        while True:
            await asyncio.sleep(1)
            self.used = min(self.size, self.used + self.size * A_SECOND * self.lab.rng.uniform(0.7, 1.3))

    def is_full(self) -> bool:
        return self.used >= self.size


@family(
    "No culprit. The volume of a database has filled up over two years, and nobody made it larger. From now on nothing"
    " is written there: whoever orders, books or uploads something gets an error, and whoever reads sees all as ever.",
    culprit=False,
    joined=89,
)
async def volume_outgrown(lab: Lab) -> AsyncIterator[None]:
    """As those tell who read *could not extend file: No space left on device* in a log, on a Sunday."""
    namespace, name, other, front, size = lab.rng.choice(
        (
            ("shop", "order-intake", "order-history", "order-page", 300),
            ("payments", "entry-service", "entry-search", "entry-page", 500),
            ("media", "annotation-api", "annotation-feed", "annotation-page", 200),
            ("search", "feedback-intake", "feedback-view", "feedback-page", 100),
        )
    )
    db, writes, minor = f"{name}-db", lab.rng.uniform(0.2, 0.6), lab.rng.randrange(2, 40)
    claim, pv = f"data-{db}-0", f"pvc-{lab.rng.getrandbits(32):08x}"
    volume = _Volume(lab, size, size * (1 - A_SECOND * lab.rng.uniform(82, 100)), 18.0)
    room: Json = {"accessModes": ["ReadWriteOnce"], "storageClassName": ""}
    claimed = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": namespace, "name": claim}
    disk = {"driver": "disk.csi.example", "volumeHandle": f"vol-{lab.rng.getrandbits(48):012x}"}
    spec = {**room, "capacity": {"storage": f"{size}Gi"}, "claimRef": claimed, "csi": disk}
    await lab.apply({"kind": "PersistentVolume", "metadata": {"name": pv}, "spec": spec})
    asked = {**room, "volumeName": pv, "resources": {"requests": {"storage": f"{size}Gi"}}}
    meta = {"namespace": namespace, "name": claim}
    await lab.apply({"kind": "PersistentVolumeClaim", "metadata": meta, "spec": asked})
    mount = {"name": "data", "persistentVolumeClaim": {"claimName": claim}}
    await lab.app(
        namespace, db, like=App("", serves=False), kind="StatefulSet", replicas=1, tag="16.4", volumes=[mount]
    )
    await lab.until(lambda: backends(lab.world, namespace, db))
    like = App(
        "",
        upstreams=((namespace, db),),
        asked=lambda: volume.asked,
        failing=lambda _: writes if volume.is_full() else 0.0,
    )
    await lab.apply(objects.config_map(namespace, name, LOG_LEVEL="info", BATCH="25"))
    await lab.app(namespace, name, like=like, replicas=3, tag=f"6.{minor}.0", config=name)
    await lab.app(namespace, other, like=App("", upstreams=((namespace, db),)), replicas=2, tag="3.3.0")
    await rolled(lab, namespace, name, f"6.{minor}.0")
    await rolled(lab, namespace, other, "3.3.0")
    await set_before(lab, namespace, front, name)
    told = {"namespace": namespace, "service": "kubelet", "persistentvolumeclaim": claim}
    lab.measure("kubelet_volume_stats_used_bytes", lambda: volume.used * GIB, **told)
    lab.measure("kubelet_volume_stats_capacity_bytes", lambda: volume.size * GIB, **told)
    refused = lab.adding_up(lambda: volume.asked * writes if volume.is_full() else 0.0)
    told = {"namespace": namespace, "service": name, "sqlstate": "53100"}
    lab.measure("db_statement_errors_total", refused, "counter", **told)
    lab.alert_errors(namespace, name)
    lab.alert_errors(namespace, front)
    lab.alert_ingress_errors(namespace, namespace)
    lab.start(volume.fill())
    await lab.until(lab.is_well)
    yield
    await lab.roll(lab.rng.choice(("ci", "flux")), namespace, other, "3.3.1")
    await lab.pause(lab.rng.uniform(4, 8))
    await lab.edit(
        lab.rng.choice(TEAMS), "ConfigMap", namespace, name, {"data": {"BATCH": lab.rng.choice(("20", "50"))}}
    )
    await lab.pause(lab.rng.uniform(3, 7))
    await change_page(lab, namespace, front)
