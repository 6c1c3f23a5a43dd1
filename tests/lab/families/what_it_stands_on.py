"""What apps stand on and do not see: a password, a quota, the disk of their node, the registry of their images."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial

from tests.lab import objects
from tests.lab.alerts import pods, restarts
from tests.lab.api import now, path, stamp
from tests.lab.apps import App, Container, Problem
from tests.lab.company import APPS
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.lab import NODES, Lab
from tests.lab.manifests import uid_of
from tests.lab.network import backends
from tests.lab.scenario import family

CONNECTING_SECONDS = 8.0
"""After its start a process connects to its database, and keeps the connections that it has."""


@family(
    "The password of a database is changed, and what is written into the Secret is not all of it. Whoever is connected"
    " stays so; each pod that is started from then on ends at its first connection.",
    joined=77,
)
async def password_cut_short(lab: Lab) -> AsyncIterator[None]:
    """As all tell who have copied a password from somewhere."""
    namespace, name, front = lab.rng.choice(
        (
            ("payments", "refunds", "refund-page"),
            ("shop", "wishlist", "wishlist-page"),
            ("media", "captions", "caption-page"),
        )
    )
    by, is_restarted = lab.rng.choice(("alice", "bob", "carol")), lab.rng.random() < 0.5
    db, secret, minor = f"{name}-db", f"{name}-db-login", lab.rng.randrange(4, 40)
    valid = [f"{lab.rng.getrandbits(96):024x}"]

    def check(container: Container) -> Problem | None:
        given = base64.b64decode(container.secret.get("password", "")).decode()
        if container.seconds < CONNECTING_SECONDS and given != valid[0]:
            why = f'FATAL: password authentication failed for user "{name}" (SQLSTATE 28P01)'
            return Problem("crash", why, at_once=True)
        return None

    login = {"username": name, "password": valid[0]}
    await lab.apply({"kind": "Secret", "metadata": {"namespace": namespace, "name": secret}, "stringData": login})
    await lab.app(namespace, db, like=App("", serves=False), kind="StatefulSet", replicas=1, tag="16.4")
    like = App("", upstreams=((namespace, db),), check=check)
    await lab.app(namespace, name, like=like, replicas=4, tag=f"3.{minor}.0", secret=secret)
    await rolled(lab, namespace, name, f"3.{minor}.0")
    await lab.app(namespace, front, like=App("", upstreams=((namespace, name),)), replicas=2, tag="5.2.0")
    await lab.until(lambda: backends(lab.world, namespace, front))
    await publish(lab, namespace, front)
    lab.reserve(namespace, name)
    summary = f"containers of {namespace}/{name} are restarted again and again"
    crashes = lambda: restarts(lab.world, namespace, name) > 3  # noqa: E731
    lab.alert("KubePodCrashLooping", crashes, summary, 3, namespace=namespace, deployment=name)
    lab.alert_lacking(namespace, name, seconds=10)
    await lab.until(lab.is_well)
    await lab.pause(CONNECTING_SECONDS)
    yield
    await lab.roll("ci", namespace, front, "5.2.1")
    await lab.pause(lab.rng.uniform(3, 6))
    valid[0] = f"{lab.rng.getrandbits(96):024x}"  # as the database was told
    body = {"stringData": {"password": valid[0][: -lab.rng.randrange(1, 4)]}}
    await lab.culprit(by, "update", "Secret", namespace, secret, body)
    if is_restarted:
        await lab.pause(lab.rng.uniform(1, 3))
        again = {"kubectl.kubernetes.io/restartedAt": f"{stamp(now())[:19]}Z"}
        restart = {"spec": {"template": {"metadata": {"annotations": again}}}}
        await lab.culprit(by, "update", "Deployment", namespace, name, restart)
    else:
        await lab.pause(lab.rng.uniform(5, 12))
        await lab.roll("ci", namespace, name, f"3.{minor}.1")


@family(
    "Each namespace is given a quota, so that none takes all. What one may have is what ran in it that day and hardly"
    " more: the next release there finds no room for its new pods beside the old ones, and does not begin.",
    joined=77,
)
async def quota_of_that_day(lab: Lab) -> AsyncIterator[None]:
    """As those tell whose ReplicaSet says forbidden: exceeded quota."""
    namespace, other = lab.rng.sample(sorted(APPS), 2)
    by, deploys = lab.rng.choice(("carol", "flux", "alice")), lab.rng.choice(("ci", "argocd"))
    what = lab.rng.choice(("requests.cpu", "limits.memory", "pods"))
    released = lab.rng.choice(APPS[namespace])
    lab.reserve(namespace, *APPS[namespace])
    for name in APPS[namespace]:
        lab.alert_stuck(namespace, name)
    await lab.until(lab.is_well)
    yield
    await lab.roll(deploys, other, APPS[other][0], "1.42.0")
    await lab.pause(lab.rng.uniform(2, 5))
    ample = {"requests.cpu": "12", "limits.memory": "48Gi", "pods": "80"}
    ample_quota = {"metadata": {"name": "team"}, "spec": {"hard": {what: ample[what]}}}
    await lab.who[by].must("POST", path("ResourceQuota", other), ample_quota)
    await lab.pause(lab.rng.uniform(1, 3))
    there = sum(where == namespace for where, _ in lab.world["Pod"])
    scarce = {"requests.cpu": f"{100 * there + 50}m", "limits.memory": f"{256 * there + 128}Mi", "pods": f"{there}"}
    body = {"metadata": {"name": "team"}, "spec": {"hard": {what: scarce[what]}}}
    await lab.culprit(by, "create", "ResourceQuota", namespace, "team", body)
    await lab.pause(lab.rng.uniform(6, 14))
    await lab.roll(deploys, namespace, released, "1.42.0")


GIB = 1024.0
FULL_BELOW = 10 * GIB
"""What has to be free on a node's disk, in MiB."""


def _presses(lab: Lab) -> bool:
    """Whether a node says that its disk has no room."""
    conditions = (one for node in lab.world["Node"].values() for one in node["status"].get("conditions", ()))
    return any(one["type"] == "DiskPressure" and one["status"] == "True" for one in conditions)


@family(
    "Somebody sets the log level of a busy app to debug to look for something. It writes whole requests into its own"
    " files on its nodes' disks: these have no room in half an hour, and its pods are evicted, one after another.",
    joined=77,
)
async def debug_for_an_hour(lab: Lab) -> AsyncIterator[None]:
    """As those tell whose kubelet says that it attempts to reclaim ephemeral-storage."""
    namespace, name, front = lab.rng.choice(
        (
            ("search", "suggest", "search-box"),
            ("shop", "pricing", "price-page"),
            ("media", "player-events", "player-page"),
        )
    )
    by, tag = lab.rng.choice(("alice", "bob", "carol")), f"4.{lab.rng.randrange(3, 50)}.0"
    free = {node: lab.rng.uniform(20, 34) * GIB for node in NODES}
    written, a_second = lab.outside.written, lab.rng.uniform(700, 950)

    def left(node: str) -> float:
        """MiB; what an evicted pod had is gone with it."""
        found = [one for one in pods(lab.world, namespace, name) if one["spec"].get("nodeName") == node]
        here = (uid_of(one) for one in found if one.get("status", {}).get("phase") == "Running")
        return free[node] - sum(written.get(uid, 0.0) for uid in here)

    def available(node: str) -> float:
        return left(node) * 2**20

    async def write() -> None:
        since = 0.0
        while True:
            await asyncio.sleep(1)
            for one in lab.kubelets.running():
                if one.app is like and one.container.config.get("LOG_LEVEL") == "debug":
                    since = since or now().timestamp()
                    if now().timestamp() - since >= lab.lag:
                        uid = uid_of(one.container.pod)
                        written[uid] = written.get(uid, 0.0) + a_second * lab.rng.uniform(0.8, 1.2)
            for node in NODES:
                (lab.outside.full_disks.add if left(node) < FULL_BELOW else lab.outside.full_disks.discard)(node)

    await lab.apply(objects.config_map(namespace, name, LOG_LEVEL="info", POOL_SIZE="20"))
    volumes = [{"name": "config", "configMap": {"name": name}}, {"name": "logs", "emptyDir": {}}]
    mounts = [{"name": "config", "mountPath": "/etc/config"}, {"name": "logs", "mountPath": "/var/log/app"}]
    like = App("", asked=lambda: 120.0)
    await lab.app(namespace, name, like=like, replicas=6, tag="4.0.0", config=name, volumes=volumes)
    await rolled(lab, namespace, name, "4.0.0")
    await lab.roll("admin", namespace, name, tag, volumeMounts=mounts)
    await rolled(lab, namespace, name, tag)
    await lab.app(namespace, front, like=App("", upstreams=((namespace, name),)), replicas=2, tag="8.0.4")
    await lab.until(lambda: backends(lab.world, namespace, front))
    await publish(lab, namespace, front)
    lab.reserve(namespace, name)
    for node in NODES:
        told = {"namespace": "monitoring", "service": "node-agent", "node": node, "mountpoint": "/"}
        lab.measure("node_filesystem_avail_bytes", partial(available, node), **told)

    lab.alert("KubeNodeDiskPressure", lambda: _presses(lab), "a node's disk has no room", 8)
    lab.alert_lacking(namespace, name)
    lab.start(write())
    await lab.until(lab.is_well)
    yield
    await lab.roll("ci", namespace, front, "8.0.5")
    await lab.pause(lab.rng.uniform(3, 8))
    await lab.culprit(by, "update", "ConfigMap", namespace, name, {"data": {"LOG_LEVEL": "debug"}})
    await lab.pause(lab.rng.uniform(3, 6))
    await lab.edit(
        "flux", "ConfigMap", "payments", "ledger", {"data": {"TIMEOUT_MS": str(lab.rng.randrange(400, 900))}}
    )


OLD, NEW = "registry.corp.example", "images.corp.example"


@family(
    "The old registry is to be switched off. Its images were copied to the new one by a list, and one app was not on"
    " it: as the manifests of a team are changed over one by one, that one's new pods find no image.",
    joined=77,
)
async def image_left_behind(lab: Lab) -> AsyncIterator[None]:
    """As those tell who have moved from one registry to another."""
    namespace, names = lab.rng.choice(
        (
            ("shop", ["vouchers", "returns", "reviews", "stock"]),
            ("payments", ["invoices", "payouts", "disputes", "fees"]),
            ("media", ["albums", "subtitles", "posters", "ratings"]),
        )
    )
    by = lab.rng.choice(("ci", "flux", "bob"))
    tags = {name: f"{lab.rng.randrange(1, 6)}.{lab.rng.randrange(30)}.{lab.rng.randrange(6)}" for name in names}
    lab.rng.shuffle(names)
    turn = lab.rng.randrange(1, 3)
    for name in names:
        app = await lab.app(namespace, name, replicas=lab.rng.choice((2, 3)), tag=tags[name])
        image = f"{NEW}/{namespace}/{name}"
        lab.apps[image] = replace(app, image=image)
        lab.alert_stuck(namespace, name)
    lab.outside.missing.add(f"{NEW}/{namespace}/{names[turn]}:{tags[names[turn]]}")
    for name in names:
        await rolled(lab, namespace, name, tags[name])
    await lab.until(lab.is_well)

    async def change_over(name: str, *, culprit: bool = False) -> None:
        there = lab.world["Deployment"][namespace, name]["spec"]["template"]["spec"]["containers"][0]
        moved = {**there, "image": str(there["image"]).replace(OLD, NEW)}
        body = {"spec": {"template": {"spec": {"containers": [moved]}}}}
        if culprit:
            await lab.culprit(by, "update", "Deployment", namespace, name, body)
        else:
            await lab.edit(by, "Deployment", namespace, name, body)

    async def the_rest() -> None:
        for name in names[turn + 1 :]:
            await lab.pause(lab.rng.uniform(2, 4))
            await change_over(name)

    yield
    for name in names[:turn]:
        await change_over(name)
        await lab.pause(lab.rng.uniform(3, 6))
    await change_over(names[turn], culprit=True)
    lab.start(the_rest())
