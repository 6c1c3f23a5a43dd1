"""After a year: a token of a controller is over, and a volume is full with what has been kept."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

from tests.lab import objects
from tests.lab.alerts import restarts
from tests.lab.api import Json, Key, Kind, now, stamp
from tests.lab.apps import App, Container, Problem, Process
from tests.lab.families.by_annotation import rolled
from tests.lab.families.databases import ANY
from tests.lab.families.more_than_was_meant import Lately
from tests.lab.families.not_in_mind import TEAMS, change_page, set_before
from tests.lab.lab import Lab
from tests.lab.network import backends
from tests.lab.programs import both, every, leading, tell
from tests.lab.scenario import family

# -- a token


@dataclass(frozen=True)
class _Sort:
    """Of controllers that do something outside, and what they are told there once their token is over."""

    kind: str
    group: str
    place: Key
    tag: str
    done: str
    failed: str
    refused: str


SORTS = (
    _Sort(
        "GitRepository",
        "source.toolkit.fluxcd.io",
        ("flux-system", "source-controller"),
        "v1.6.2",
        "Succeeded",
        "GitOperationFailed",
        "failed to checkout and determine revision: authentication required: HTTP Basic: Access denied",
    ),
    _Sort(
        "Bucket",
        "s3.aws.upbound.io",
        ("platform", "provider-aws-s3"),
        "v1.23.0",
        "ReconcileSuccess",
        "ReconcileError",
        "observe failed: cannot get bucket: ExpiredToken: The provided token has expired. status code: 400",
    ),
    _Sort(
        "DNSRecord",
        "cloudflare.upbound.io",
        ("platform", "provider-cloudflare"),
        "v0.9.1",
        "ReconcileSuccess",
        "ReconcileError",
        "observe failed: HTTP status 403: Invalid access token (9109)",
    ),
)
HOMES = ("shop", "payments", "media", "search")


@dataclass
class _Controller:
    """It asks somebody outside for each of its objects, with a token that was made for a year."""

    lab: Lab
    sort: _Sort
    kind: Kind
    over_at: float = float("inf")
    since: float = 0.0
    """Since when it fails."""

    def is_over(self) -> bool:
        """Also of what it has asked for just before."""
        return now().timestamp() - self.lab.lag >= self.over_at

    async def reconcile(self, process: Process) -> None:
        is_well = not self.is_over()
        self.since = 0.0 if is_well else self.since or now().timestamp()
        reason, said = (self.sort.done, "up to date") if is_well else (self.sort.failed, self.sort.refused)
        for one in (await process.api.call("GET", self.kind.path())).body.get("items", ()):
            there = one.get("status", {}).get("conditions", [{}])[0]
            if there.get("reason") != reason:
                ready = {"type": "Ready", "status": str(is_well), "reason": reason, "message": said}
                status = {"conditions": [{**ready, "lastTransitionTime": f"{stamp(now())[:19]}Z"}]}
                where = self.kind.path(one["metadata"]["namespace"], one["metadata"]["name"])
                await process.api.call("PATCH", where, {"status": status})
            if not is_well:
                about = {**one, "kind": self.kind.name}
                await tell(process, about, "Warning", reason, said, by=self.sort.place[1])

    def failing(self) -> bool:
        return self.since > 0

    def are_done(self) -> bool:
        """Whether each object has once been seen to."""
        listed = self.lab.world[self.kind.name].values()
        return bool(listed) and all("conditions" in one.get("status", {}) for one in listed)


@family(
    "No culprit. A controller does its work outside of the cluster, in Git, at the cloud or at who keeps the names, by"
    " a token that somebody has made for a year. The year is over: whatever it asks for is refused. What is there goes"
    " on, and what teams change from now on is not carried out.",
    culprit=False,
    joined=103,
)
async def over_on_its_day(lab: Lab) -> AsyncIterator[None]:
    """As those tell who had made the token under their own name, and then had left."""
    sort, minor = lab.rng.choice(SORTS), lab.rng.randrange(2, 40)
    kind = await lab.custom(sort.kind, sort.group, ANY)
    await lab.served(kind)
    controller, home = _Controller(lab, sort, kind), lab.rng.choice(HOMES)
    if sort.place[0] not in [name for _, name in lab.world["Namespace"]]:
        await lab.namespace(sort.place[0])
    secret = f"{sort.place[1]}-token"
    held = {"metadata": {"namespace": sort.place[0], "name": secret}, "stringData": {"token": "made-by-hand"}}
    await lab.apply({"kind": "Secret", **held})
    for one in HOMES:
        spec = {"interval": "1m", "owner": one, "secretRef": {"name": secret}}
        meta = {"namespace": one, "name": f"{one}-{kind.name.lower()}"}
        await lab.apply({"kind": kind.name, "apiVersion": f"{sort.group}/v1", "metadata": meta, "spec": spec})
    await lab.apply(objects.config_map(*sort.place, LOG_LEVEL="info", CONCURRENT="4"))
    rights = (sort.group, kind.plural, "get,list,watch,patch"), ("", "events", "create")
    program = both(every(2.0, controller.reconcile), leading(*sort.place))
    lease = ("coordination.k8s.io", "leases", "*")
    await lab.controller(*sort.place, program, *rights, lease, replicas=1, tag=sort.tag, config=sort.place[1])
    await rolled(lab, *sort.place, sort.tag)
    await lab.until(controller.are_done)
    told = {"namespace": sort.place[0], "service": sort.place[1], "kind": kind.name}
    for result, is_failed in (("success", False), ("error", True)):
        rate = lambda is_failed=is_failed: 2.0 if controller.failing() is is_failed else 0.0  # noqa: E731
        lab.measure("controller_runtime_reconcile_total", lab.adding_up(rate), "counter", **told, result=result)
    summary = f"no {kind.name} has been reconciled for a while: {sort.place[1]} fails at each"
    lab.alert("ReconciliationFails", controller.failing, summary, 12, **told)
    lab.alert_stuck(*sort.place)
    await lab.until(lab.is_well)

    async def goes_by() -> None:
        await lab.pause(lab.rng.uniform(3, 9))
        controller.over_at = now().timestamp()

    yield
    longer = {"spec": {"interval": lab.rng.choice(("2m", "5m"))}}
    await lab.edit(lab.rng.choice(TEAMS), kind.name, home, f"{home}-{kind.name.lower()}", longer)
    await lab.pause(lab.rng.uniform(5, 9))
    more = {"data": {"CONCURRENT": lab.rng.choice(("6", "8"))}}
    await lab.edit(lab.rng.choice((*TEAMS, "argocd")), "ConfigMap", *sort.place, more)
    await lab.pause(lab.rng.uniform(4, 9))
    body = {"data": {"TIMEOUT_MS": str(700 + minor)}}
    await lab.edit(lab.rng.choice(("flux", *TEAMS)), "ConfigMap", "search", "indexer", body)
    lab.start(goes_by())


# -- a volume

GIB = 2.0**30
A_SECOND = 3e-4
"""The share of a volume that is written in a second."""


@dataclass
class _Store:
    """What is kept on a volume, for which nobody has ever said for how long."""

    lab: Lab
    place: Key
    tag: str
    folder: str
    size: float
    says: str = ""
    """With what it ends once there is no room; "" where it goes on and refuses what is to be written."""
    used: float = 0.0

    def is_full(self) -> bool:
        return self.used >= self.size

    def check(self, _: Container) -> Problem | None:
        return Problem("crash", self.says, at_once=True) if self.says and self.is_full() else None

    async def fill(self) -> None:
        """For ever."""
        while True:
            await asyncio.sleep(1)
            more = self.size * A_SECOND * self.lab.kubelets.rng.uniform(0.6, 1.4)
            self.used = min(self.size, self.used + more)

    async def be_there(self) -> None:
        """With its claim. Raises RefusedError, TimeoutError."""
        (namespace, name), lab = self.place, self.lab
        claim, pv = f"data-{name}-0", f"pvc-{lab.rng.getrandbits(32):08x}"
        room: Json = {"accessModes": ["ReadWriteOnce"], "storageClassName": ""}
        meta = {"namespace": namespace, "name": claim}
        spec = {**room, "capacity": {"storage": f"{self.size:.0f}Gi"}}
        spec["claimRef"] = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", **meta}
        spec["csi"] = {"driver": "ebs.csi.aws.com", "volumeHandle": f"vol-{lab.rng.getrandbits(48):012x}"}
        await lab.apply({"kind": "PersistentVolume", "metadata": {"name": pv}, "spec": spec})
        asked = {**room, "volumeName": pv, "resources": {"requests": {"storage": f"{self.size:.0f}Gi"}}}
        await lab.apply({"kind": "PersistentVolumeClaim", "metadata": meta, "spec": asked})
        image = f"registry.corp.example/{namespace}/{name}"
        lab.apps[image] = App(image, check=self.check, serves=False)
        volume = {"name": "data", "persistentVolumeClaim": {"claimName": claim}}
        made = objects.deployment(
            namespace, name, f"{image}:{self.tag}", kind="StatefulSet", replicas=1, volumes=[volume]
        )
        mounts = [{"name": "data", "mountPath": self.folder}]
        made["spec"]["template"]["spec"]["containers"][0]["volumeMounts"] = mounts
        await lab.apply(made)
        await lab.apply(objects.service(namespace, name))
        await rolled(lab, namespace, name, self.tag)
        await lab.until(lambda: backends(lab.world, namespace, name))
        lab.reserve(namespace, name)
        told = {"namespace": namespace, "service": "kubelet", "persistentvolumeclaim": claim}
        lab.measure("kubelet_volume_stats_used_bytes", lambda: self.used * GIB, **told)
        lab.measure("kubelet_volume_stats_capacity_bytes", lambda: self.size * GIB, **told)


@family(
    "No culprit. The volume of the database of a team, or of what keeps the logs or figures of all, has grown with its"
    " data for a year and is full. Nothing more is written there: it is refused, or the process ends and cannot start.",
    culprit=False,
    joined=103,
)
async def grown_with_its_data(lab: Lab) -> AsyncIterator[None]:
    """As those tell whose alert on volumes stood on that very volume."""
    namespace, store, tag, folder, says, writer, front = lab.rng.choice(
        (
            ("monitoring", "loki", "3.4.2", "/var/loki", "", "log-gateway", "log-view"),
            (
                "monitoring",
                "long-term-metrics",
                "v1.115.0",
                "/storage",
                "FATAL: cannot create file: no space left on device",
                "metrics-gateway",
                "dashboards",
            ),
            ("shop", "reviews-db", "16.4", "/var/lib/postgresql/data", "", "review-api", "review-page"),
            (
                "payments",
                "journal-db",
                "16.4",
                "/var/lib/postgresql/data",
                'PANIC: could not write to file "pg_wal/xlogtemp.41": No space left on device',
                "journal-api",
                "journal-view",
            ),
        )
    )
    size, minor, writes = float(lab.rng.choice((100, 200, 500))), lab.rng.randrange(2, 40), lab.rng.uniform(0.3, 0.7)
    kept = _Store(lab, (namespace, store), tag, folder, size, says, size * (1 - A_SECOND * lab.rng.uniform(80, 95)))
    await kept.be_there()
    shows = Lately(lab, kept.is_full)

    def fails(_: Container) -> float:
        return writes if shows() and not says else 0.0

    await lab.apply(objects.config_map(namespace, writer, LOG_LEVEL="info", BATCH="500"))
    like = App("", upstreams=((namespace, store),), asked=lambda: 25.0, failing=fails)
    await lab.app(namespace, writer, like=like, replicas=3, tag=f"1.{minor}.0", config=writer)
    await rolled(lab, namespace, writer, f"1.{minor}.0")
    await set_before(lab, namespace, front, writer)
    many = lambda: restarts(lab.world, namespace, store) >= 2  # noqa: E731
    summary = f"a pod of {namespace}/{store} restarts again and again"
    lab.alert("KubePodCrashLooping", many, summary, 4, namespace=namespace, container=store)
    for one in (writer, front):
        lab.alert_errors(namespace, one)
    lab.alert_ingress_errors(namespace, namespace)
    lab.start(kept.fill())
    await lab.until(lab.is_well)
    yield
    await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, writer, f"1.{minor}.1")
    await lab.pause(lab.rng.uniform(5, 10))
    await lab.edit(lab.rng.choice((*TEAMS, "flux")), "ConfigMap", namespace, writer, {"data": {"BATCH": "800"}})
    await lab.pause(lab.rng.uniform(4, 9))
    await change_page(lab, namespace, front)
