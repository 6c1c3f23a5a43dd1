"""What is cut short while it is at something: members of a cache that catch up, a program that migrates its tables."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from math import inf

from tests.lab import objects
from tests.lab.alerts import pods, restarts
from tests.lab.api import Json, path
from tests.lab.apps import App, Container, Problem
from tests.lab.before import before
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.families.nodes import provide
from tests.lab.lab import Lab
from tests.lab.manifests import is_ready, uid_of
from tests.lab.network import backends
from tests.lab.programs import every
from tests.lab.scenario import family

MEMBERS, JOINS_SECONDS = 6, 14.0
"""Members of a cache's cluster, and for how long one that was started anew catches up before it has its slots."""
ASKED, USES_MIB, MAY_MIB = 36.0, 110.0, 256.0
"""Requests a second of an app, and the memory that a process of it needs and may have."""
WAITING_MIB = 3.0
"""What a session that waits to be read again costs, each of which came within a second and was not in the cache."""
OLD_CHART, NEW_CHART = "redis-cluster-9.8.2", "redis-cluster-10.1.0"


@dataclass
class _Sessions:
    """A cluster that keeps the sessions of an app: whose part of it is not there waits in the app's memory."""

    lab: Lab
    namespace: str
    cache: str
    name: str
    waiting: float = 0.0
    joined: dict[str, float] = field(default_factory=dict)
    """For how long a member has been ready, by uid: its kubelet does not look at more than whether it answers."""

    def gone(self) -> float:
        """The share of all slots that nobody answers for."""
        return 1 - min(MEMBERS, sum(one >= JOINS_SECONDS for one in self.joined.values())) / MEMBERS

    async def follow(self) -> None:
        found = pods(self.lab.world, self.namespace, self.cache)
        self.joined = {uid_of(one): JOINS_SECONDS for one in found if is_ready(one)}
        while True:
            await asyncio.sleep(1)
            found = pods(self.lab.world, self.namespace, self.cache)
            ready = (uid_of(one) for one in found if is_ready(one) and "deletionTimestamp" not in one["metadata"])
            self.joined = {uid: self.joined.get(uid, -1.0) + 1 for uid in ready}
            there = len(backends(self.lab.world, self.namespace, self.name))
            self.waiting += ASKED * self.gone() if there else 0.0
            self.waiting = max(0.0, self.waiting - 2 * ASKED * (1 - self.gone()) ** 2)

    def check(self, container: Container) -> Problem | None:
        """A process that has just been started has none of them yet."""
        processes = max(1, len(pods(self.lab.world, self.namespace, self.name)))
        part = min(self.waiting, container.seconds * ASKED) / processes
        needed = USES_MIB + WAITING_MIB * part
        return Problem("oom", f"needs {needed:.0f}Mi, may have {MAY_MIB:.0f}Mi") if needed > MAY_MIB else None


@family(
    "The volumes of a cache's cluster were made larger while it ran, and a StatefulSet does not let anybody write so"
    " into it: somebody deletes it without its pods and makes it anew. The chart has moved on since, so all members are"
    " made anew in turn, each as soon as the last one answers and long before that one has caught up; the app whose"
    " sessions are there keeps all that wait in its memory, and is killed for it.",
    joined=53,
)
async def claim_template(lab: Lab) -> AsyncIterator[None]:
    """As AdGuard VPN tells of the second of December 2025 (adguard-vpn.com)."""
    namespace, name, front = lab.rng.choice(
        (
            ("shop", "session-keeper", "account-page"),
            ("media", "watch-sessions", "watch-page"),
            ("search", "query-sessions", "answers-page"),
        )
    )
    cache, by = f"{namespace}-redis", lab.rng.choice(("alice", "bob", "carol"))
    sessions = _Sessions(lab, namespace, cache, name)
    image = f"registry.corp.example/{namespace}/{cache}"
    lab.apps[image] = App(image, serves=False, asked=lambda: 2 * ASKED)

    def manifest(size: str, chart: str) -> Json:
        body = objects.deployment(namespace, cache, f"{image}:7.2.5", kind="StatefulSet", replicas=MEMBERS)
        template = body["spec"]["template"]
        template["metadata"]["labels"] = {**template["metadata"]["labels"], "helm.sh/chart": chart}
        template["spec"]["containers"][0]["volumeMounts"] = [{"name": "data", "mountPath": "/data"}]
        claim: Json = {"accessModes": ["ReadWriteOnce"], "storageClassName": "standard"}
        claim["resources"] = {"requests": {"storage": size}}
        body["spec"] |= {"serviceName": cache, "podManagementPolicy": "Parallel"}
        body["spec"]["volumeClaimTemplates"] = [{"metadata": {"name": "data"}, "spec": claim}]
        return body

    rules = (("", "persistentvolumeclaims,persistentvolumes", "*"), ("storage.k8s.io", "*", "get,list,watch"))
    await lab.controller("kube-system", "csi-provisioner", every(1, provide), *rules, replicas=1)
    driver = {"provisioner": "disk.csi.example", "allowVolumeExpansion": True}
    await lab.apply({"kind": "StorageClass", "metadata": {"name": "standard"}, **driver})
    await lab.apply(objects.service(namespace, cache))
    await lab.apply(manifest("1Gi", OLD_CHART))
    await lab.until(lambda: len(backends(lab.world, namespace, cache)) == MEMBERS)
    like = App("", upstreams=((namespace, cache),), asked=lambda: ASKED, check=sessions.check)
    like.failing, like.fails_with = (lambda _: sessions.gone()), (lambda _: "503")
    await lab.app(namespace, name, like=like, replicas=3, tag="2.31.4", memory=f"{MAY_MIB:.0f}Mi")
    like = App("", upstreams=((namespace, name),), asked=lambda: 20.0)
    await lab.app(namespace, front, like=like, replicas=2, tag="6.4.0")
    await lab.until(lambda: len(backends(lab.world, namespace, name)) == 3 and backends(lab.world, namespace, front))
    await publish(lab, namespace, front)
    lab.reserve(namespace, cache, name)
    gone = lambda: float(round(16384 * (1 - sessions.gone())))  # noqa: E731
    lab.measure("redis_cluster_slots_ok", gone, namespace=namespace, service=cache)
    summary = f"containers of {namespace}/{name} are killed for their memory"
    holds = lambda: restarts(lab.world, namespace, name) >= 2  # noqa: E731
    lab.alert("KubePodOOMKilled", holds, summary, 3, namespace=namespace, deployment=name)
    lab.alert_errors(namespace, front, 0.2)
    lab.start(sessions.follow())
    await lab.until(lab.is_well)
    yield
    for number in range(MEMBERS):
        where = path("PersistentVolumeClaim", namespace, f"data-{cache}-{number}")
        grown = {"spec": {"resources": {"requests": {"storage": "2Gi"}}}}
        await lab.who[by].must("PATCH", where, grown)
        await lab.pause(0.3)
    await lab.pause(lab.rng.uniform(4, 9))
    await lab.culprit(by, "delete", "StatefulSet", namespace, cache, {"propagationPolicy": "Orphan"})
    await lab.until(lambda: (namespace, cache) not in lab.world["StatefulSet"])
    await lab.culprit(by, "create", "StatefulSet", namespace, cache, manifest("2Gi", NEW_CHART))


GATE_EVERY, GATE_TIMES = 2, 5
"""How often a startup probe asks, and how often in a row it may be answered nothing."""
GATE_SECONDS = float(GATE_EVERY * GATE_TIMES)
REFUSED = "probe failed: dial tcp :8080: connect: connection refused"


@dataclass
class _ChangeLog:
    """Whoever starts takes a lock in the database and brings its tables up to date: the lock is a row, and stays."""

    takes: float = 2.0
    """Seconds for which the change of a new version rewrites its table: as many as that has rows."""
    done: set[str] = field(default_factory=set)
    """The versions whose changes the tables have."""
    holder: str = ""
    """The uid of the pod that has the lock."""
    is_kept: bool = False
    """Whether its program has ended without giving it back."""
    up: dict[str, float] = field(default_factory=dict)
    """How old those were as they were last looked at that have come through, by uid of the pod."""

    def check(self, container: Container) -> Problem | None:
        uid = uid_of(container.pod)
        if container.seconds >= self.up.get(uid, inf):
            self.up[uid] = container.seconds
            return None
        self.up.pop(uid, None)  # it was started anew
        self.holder = self.holder or uid
        if self.holder == uid and not self.is_kept:
            if container.tag in self.done or container.seconds >= self.takes:
                self.done.add(container.tag)
                self.up[uid], self.holder = container.seconds, ""
                return None
            self.is_kept = container.seconds >= GATE_SECONDS
        return Problem("killed" if container.seconds >= GATE_SECONDS else "starting", REFUSED, "Startup")


@family(
    "A program takes a lock in its database as it starts, and changes the tables to what its version needs. A release"
    " changes a large table, which took a moment in a sibling with few rows: its startup probe does not wait so long,"
    " it is killed in the midst, and the lock stays with nobody. Whoever starts afterwards waits for it until killed.",
    joined=53,
)
async def changelog_lock(lab: Lab) -> AsyncIterator[None]:
    """As those tell who let Liquibase migrate their tables on Kubernetes (servermanagers.ng)."""
    namespace, name, front = lab.rng.choice(
        (
            ("payments", "invoicing", "billing-page"),
            ("shop", "loyalty", "points-page"),
            ("media", "playlists", "library-page"),
        )
    )
    by, number = lab.rng.choice(("ci", "argocd", "flux")), lab.rng.randrange(11, 40)
    old, new, changes = f"5.{number}.0", f"5.{number + 1}.0", _ChangeLog()
    changes.done.add(old)
    await lab.app(namespace, f"{name}-db", like=App("", serves=False), kind="StatefulSet", replicas=1, tag="16.4")
    await lab.apply(objects.config_map(namespace, name, LOG_LEVEL="info", LIQUIBASE_CHANGELOG="db/changelog.xml"))
    get = {"httpGet": {"path": "/healthz", "port": 8080}}
    probe: Json = {**get, "periodSeconds": GATE_EVERY, "failureThreshold": GATE_TIMES}
    like = App("", upstreams=((namespace, f"{name}-db"),), check=changes.check, start_seconds=1.0)
    await lab.app(namespace, name, like=like, replicas=2, tag=old, config=name, startup=probe)
    await rolled(lab, namespace, name, old)
    await lab.app(namespace, front, like=App("", upstreams=((namespace, name),)), replicas=2, tag="8.2.1")
    await lab.until(lambda: backends(lab.world, namespace, front))
    await publish(lab, namespace, front)
    lab.reserve(namespace, name)
    summary = f"containers of {namespace}/{name} are started again and again"
    holds = lambda: restarts(lab.world, namespace, name) >= 2  # noqa: E731
    lab.alert("KubePodCrashLooping", holds, summary, 4, namespace=namespace, deployment=name)
    lab.alert_lacking(namespace, name)
    await lab.until(lab.is_well)
    async with before(lab, days=lab.rng.choice((1, 2, 5)), cluster="eu-2"):
        await lab.pause(3)
        await lab.roll(by, namespace, name, new)
        await rolled(lab, namespace, name, new)
        await lab.pause(4)
    await lab.roll("admin", namespace, name, old)
    await rolled(lab, namespace, name, old)
    changes.done = {old}
    changes.takes = lab.rng.uniform(60, 90)
    await lab.until(lab.is_well)
    yield
    await lab.pause(lab.rng.uniform(2, 6))
    await lab.roll(by, namespace, name, new, culprit=True)
