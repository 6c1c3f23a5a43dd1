"""What was told of storms: mirrors that all look for room at once, and sessions that wait for one who knows of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from zlib import crc32

from tests.lab import objects
from tests.lab.alerts import restarts
from tests.lab.api import Json, now
from tests.lab.apps import LATE, App, Container, Problem, mebibytes
from tests.lab.families.nodes import provide, stateful
from tests.lab.lab import Lab
from tests.lab.programs import every
from tests.lab.scenario import family

STORE = ("storage", "blockstore")
WIDE, NARROW = "bond0", "eth2"
"""The network over which members copy, and the small one that is there for their control."""
OTHERS, FREE, VOLUME_BYTES = 44, 9, 2**40
"""Volumes of machines outside of the cluster, for how many more there is room, and how much of it one takes."""
COPY_SECONDS = (14.0, 40.0)
DATABASES = (("shop", "orders"), ("payments", "invoices"), ("media", "comments"), ("search", "documents"))
"""Who has a database beside it, with volumes."""
HOLDS_SECONDS = 15.0
"""For how long something is amiss before anybody is told, as usual."""
USUAL_MIB, QUEUED_MIB = 150.0, 20.0
"""What a process of the sessions needs, and what it queues in a second of events that it cannot hand on."""
STALLED, HERD_SECONDS, HERD_LATENCY = 0.33, 20.0, 2.0
"""Sessions whose state the lost server has; for how long all come to the others at once, and what that costs."""
FLAGS = "flags.vendor.example"


@dataclass
class Mirrors:
    """Which volumes have their mirror. Who does not reach it takes it for dead, and looks for room for another one."""

    lab: Lab
    mirrored: set[str] = field(default_factory=lambda: {f"vm-{number:02}" for number in range(OTHERS)})
    lost: set[str] = field(default_factory=set)
    copying: dict[str, datetime] = field(default_factory=dict)
    """Until when a volume is copied to where there was room; the room of a mirror that was lost is not given back."""
    free: int = FREE

    async def run(self) -> None:
        """For ever."""
        while True:
            await asyncio.sleep(1)
            self.step(reached=self.lab.world["ConfigMap"][STORE]["data"]["REPLICATION_INTERFACE"] == WIDE)

    def step(self, *, reached: bool) -> None:
        """Once a second; ``reached`` where members reach each other."""
        self._join()
        if not reached:
            self.lost |= self.mirrored
            self.mirrored.clear()
            return
        for volume in sorted(self.lost - self.copying.keys(), key=lambda _: self.lab.kubelets.rng.random()):
            if self.free:
                self.free -= 1
                self.copying[volume] = now() + timedelta(seconds=self.lab.kubelets.rng.uniform(*COPY_SECONDS))
        done = {volume for volume in self.lost if volume in self.copying and self.copying[volume] < now()}
        self.lost -= done
        self.mirrored |= done

    def _join(self) -> None:
        """A volume that was never seen is new, and has a mirror."""
        claims = {"/".join(claim) for claim in self.lab.world["PersistentVolumeClaim"]}
        self.mirrored |= claims - self.lost

    def check(self, container: Container) -> Problem | None:
        """No write is done before it is in both places."""
        namespace, volumes = container.pod["metadata"]["namespace"], container.pod["spec"].get("volumes", ())
        claims = (one["persistentVolumeClaim"]["claimName"] for one in volumes if "persistentVolumeClaim" in one)
        return Problem("unready", LATE) if any(f"{namespace}/{claim}" in self.lost for claim in claims) else None


@family(
    "The network over which a storage copies is to be changed for a while, and becomes the small one beside it: no"
    " volume reaches its mirror. It is changed back soon, but all look for room for a new mirror at once.",
    joined=17,
)
async def mirror_storm(lab: Lab) -> AsyncIterator[None]:
    """As Amazon tells of its volumes (April 2011, post-mortems 10)."""
    mirrors = Mirrors(lab)
    await lab.namespace(STORE[0])
    config = objects.config_map(*STORE, REPLICATION_INTERFACE=WIDE, CONTROL_INTERFACE=NARROW, COPIES="2")
    await lab.apply(config)
    await lab.app(*STORE, like=App("", serves=False), kind="StatefulSet", replicas=6, config=STORE[1])
    rules = (("", "persistentvolumeclaims,persistentvolumes", "*"), ("storage.k8s.io", "*", "get,list,watch"))
    await lab.controller("kube-system", "csi-provisioner", every(1, provide), *rules, replicas=1)
    mark = {"storageclass.kubernetes.io/is-default-class": "true"}
    meta: Json = {"name": "standard", "annotations": mark}
    await lab.apply({"kind": "StorageClass", "metadata": meta, "provisioner": "disk.csi.example"})
    for namespace, name in DATABASES:
        database = f"{name}-db"
        image = f"registry.corp.example/{namespace}/{database}"
        lab.apps[image] = App(image, check=mirrors.check, serves=False)
        await stateful(lab, namespace, database)
        await lab.app(namespace, name, like=App("", upstreams=((namespace, database),)), replicas=3)
        lab.alert_lacking(namespace, database, seconds=HOLDS_SECONDS)
    namespace, service = STORE
    lab.measure("blockstore_volumes_without_mirror", lambda: len(mirrors.lost), namespace=namespace, service=service)
    lab.measure("blockstore_free_bytes", lambda: mirrors.free * VOLUME_BYTES, namespace=namespace, service=service)
    holds = lambda: len(mirrors.lost) > OTHERS / 10  # noqa: E731
    summary = "more than a tenth of all volumes have no mirror"
    lab.alert("BlockstoreVolumesWithoutMirror", holds, summary, HOLDS_SECONDS, namespace=namespace, service=service)
    lab.start(mirrors.run())
    by = lab.rng.choice(("alice", "bob"))

    async def undo() -> None:
        await asyncio.sleep(lab.rng.uniform(7, 10))
        await lab.edit(by, "ConfigMap", *STORE, {"data": {"REPLICATION_INTERFACE": WIDE}})

    yield
    await lab.culprit(by, "update", "ConfigMap", *STORE, {"data": {"REPLICATION_INTERFACE": NARROW}})
    lab.start(undo())


@family(
    "One of those that know who is there loses the others of its cluster: a third of all sessions wait for what it"
    " knows and keep events in memory meanwhile, until what holds the sessions is killed for it again and again.",
    culprit=False,
    joined=17,
)
async def presence_lost(lab: Lab) -> AsyncIterator[None]:
    """As Discord tells of 20 March 2017 (one of post-mortems 89)."""
    namespace = lab.rng.choice(("media", "shop", "search"))
    lost: list[datetime] = []

    def seconds() -> float:
        return (now() - lost[0]).total_seconds() if lost else 0.0

    def check(container: Container) -> Problem | None:
        if not lost:
            return None
        share = 0.7 + crc32(container.pod["metadata"]["uid"].encode()) % 60 / 100
        needed = USUAL_MIB + QUEUED_MIB * share * min(container.seconds, seconds())
        limit = container.spec["resources"]["limits"]["memory"]
        return Problem("oom", f"needs {needed:.0f}Mi, may have {limit}") if needed > mebibytes(limit) else None

    def herd(container: Container) -> float:
        return HERD_LATENCY if lost and seconds() < HERD_SECONDS else 0.0

    await lab.app(namespace, "presence", like=App("", latency=herd), kind="StatefulSet", replicas=3)
    like = App("", check=check, failing=lambda _: STALLED if lost else 0.0, upstreams=((namespace, "presence"),))
    await lab.app(namespace, "sessions", like=like, replicas=6, memory="512Mi")
    lab.alert_errors(namespace, "sessions")
    holds = lambda: restarts(lab.world, namespace, "sessions") >= 4  # noqa: E731
    lab.alert("KubePodRestarting", holds, "pods of sessions restart", 2, namespace=namespace, deployment="sessions")
    yield
    lost.append(now())


@family(
    "Who keeps the company's feature flags is not reached any more: whatever is started then, as by a harmless release,"
    " goes by its defaults, takes a path of old for its calls, and the network does not stand all its questions.",
    culprit=False,
    joined=17,
)
async def flag_defaults(lab: Lab) -> AsyncIterator[None]:
    """As Inngest tells of 10 July 2026 (website 1790)."""
    namespace, name, called = lab.rng.choice(
        (("platform", "executor", "state"), ("media", "encoder", "jobs"), ("search", "crawler", "frontier"))
    )
    by_default: dict[str, bool] = {}  # whether one has the defaults, by uid: flags are read at the start
    asked = [0.0]

    def share() -> float:
        return sum(by_default.values()) / max(1, len(by_default))

    def start(container: Container) -> Problem | None:
        if container.seconds < 2 or container.pod["metadata"]["uid"] not in by_default:
            by_default[container.pod["metadata"]["uid"]] = FLAGS in lab.outside.broken
        return None

    async def ask() -> None:
        """Each call of the old path asks for names, and who has gone asks no more."""
        while True:
            await asyncio.sleep(1)
            asked[0] += lab.kubelets.rng.uniform(0.9, 1.1) * (60 + 640 * share())
            there = {pod["metadata"]["uid"] for pod in lab.world["Pod"].values()}
            for uid in by_default.keys() - there:
                del by_default[uid]

    def latency(container: Container) -> float:
        return 2.0 * share() ** 2

    like = App("", check=start, latency=latency, failing=lambda _: 0.5 * share() ** 2)
    await lab.app(namespace, called, like=App("", latency=latency), replicas=3)
    await lab.app(namespace, name, like=like, replicas=6)
    await lab.app(namespace, f"{name}-api", like=App("", upstreams=((namespace, name),)), replicas=3)
    lab.measure("coredns_dns_requests_total", lambda: asked[0], "counter", namespace="kube-system", service="kube-dns")
    for place in ((namespace, name), (namespace, f"{name}-api")):
        lab.alert_errors(*place)
        lab.alert_slow(*place)
    lab.start(ask())

    async def release() -> None:
        await asyncio.sleep(lab.rng.uniform(6, 12))
        await lab.roll(lab.rng.choice(("argocd", "ci")), namespace, name, "1.1.0")

    yield
    lab.outside.broken[FLAGS] = "i/o timeout"
    lab.start(release())
