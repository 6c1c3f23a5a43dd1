"""What was told of how much there is of something: disks that one chart fills, nodes and pods that are let go."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator

from tests.lab import objects
from tests.lab.alerts import pending, pods
from tests.lab.api import Json, path
from tests.lab.apps import LATE, App, Container, Problem, Process, Program
from tests.lab.company import READ
from tests.lab.families.joining import AUTOSCALER
from tests.lab.families.moving import spare
from tests.lab.families.scaling import SCALING
from tests.lab.lab import NODES, Lab
from tests.lab.programs import both, every
from tests.lab.scenario import family

FRACTION = "--max-scale-in-fraction"
LOOK_SECONDS = 3
LEAST_PODS, EACH_STANDS = 2, 60.0


@family(
    "A policy controller is installed on nodes whose disks are small: its images fill what room was left, and kubelets"
    " evict what else runs there, the storage's own pods among it.",
    joined=18,
)
async def small_disks(lab: Lab) -> AsyncIterator[None]:
    """As a user of Longhorn and Kyverno tells (longhorn 6023, May 2023)."""
    home, name, storage = "kyverno", "kyverno-admission-controller", "longhorn-system"
    image = f"registry.corp.example/{home}/{name}"
    lab.apps[image] = App(image, serves=False)

    async def fill() -> None:
        """Where it runs, its images are on the disk, and stay there when it has gone."""
        while True:
            await asyncio.sleep(1)
            there = (pod for pod in pods(lab.world, home, name) if pod.get("status", {}).get("phase") == "Running")
            lab.outside.full_disks.update(pod["spec"]["nodeName"] for pod in there)

    def is_full(node: str) -> bool:
        found: list[Json] = lab.world["Node"]["", node]["status"]["conditions"]
        return any(one["type"] == "DiskPressure" and one["status"] == "True" for one in found)

    await lab.namespace(storage)
    for part in ("csi-attacher", "csi-provisioner", "csi-snapshotter"):
        await lab.app(storage, part, like=App("", serves=False), replicas=3)
        lab.alert_lacking(storage, part, seconds=10)
    for node in NODES:
        full = lambda node=node: is_full(node)  # noqa: E731
        lab.alert("KubeNodePressure", full, f"node {node} has no room on its disk", 8, node=node)
    lab.start(fill())
    yield
    by = lab.rng.choice(("alice", "carol", "ci"))
    await lab.apply({"kind": "Namespace", "metadata": {"name": home}}, by)
    apart = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": {"app.kubernetes.io/name": name}},
    }
    body = objects.deployment(home, name, f"{image}:v1.9.0", replicas=3, topologySpreadConstraints=[apart])
    await lab.culprit(by, "create", "Deployment", home, name, body)


@family(
    "Who calls an app is down for a while, so its autoscaler takes it down to the least there may be; then all callers"
    " are back at once, and what is left of it does not stand them.",
    culprit=False,
    joined=18,
)
async def callers_return(lab: Lab) -> AsyncIterator[None]:
    """As a user of KEDA tells (keda 5166, November 2023). Why its callers were down is not told."""
    namespace, caller, name = lab.rng.choice(
        (("payments", "gateway", "pricing"), ("search", "portal", "ranking"), ("shop", "storefront", "stock"))
    )
    usual, away = lab.rng.choice((240.0, 300.0, 360.0)), [False]
    asked = [usual]

    def keep_sessions(_: Container) -> Problem | None:
        """The caller does so in a store outside of the cluster."""
        why = "sessions.stores.example: dial tcp 203.0.113.40:6379: i/o timeout"
        return Problem("unready", f"probe failed: HTTP probe failed with statuscode: 503 ({why})") if away[0] else None

    def stand(container: Container) -> Problem | None:
        """All of it comes to those that have started."""
        if container.seconds < app.start_seconds:
            return None
        there = (one.container.seconds for one in lab.kubelets.running() if one.app is app)
        up = sum(seconds >= app.start_seconds for seconds in there)
        return Problem("unready", LATE) if asked[0] > EACH_STANDS * up else None

    app = App("", capacity=EACH_STANDS, asked=lambda: asked[0], start_seconds=1, check=stand)

    async def scale(process: Process) -> None:
        """So many that each gets two thirds of what it stands."""
        wanted = max(LEAST_PODS, math.ceil(asked[0] / EACH_STANDS * 1.5))
        where = f"{path('Deployment', namespace, name)}/scale"
        found = await process.api.call("GET", where)
        if found.ok and found.body["spec"]["replicas"] != wanted:
            await process.api.call("PATCH", where, {"spec": {"replicas": wanted}})

    async def outage() -> None:
        away[0], asked[0] = True, 0.0
        await asyncio.sleep(lab.rng.uniform(14, 20))
        away[0], asked[0] = False, usual * lab.rng.uniform(1.2, 1.5)  # whoever waited asks again

    await lab.app(namespace, name, like=app, replicas=math.ceil(usual / EACH_STANDS * 1.5))
    await lab.app(namespace, caller, like=App("", check=keep_sessions), replicas=3)
    lab.reserve(namespace, name, caller)
    await lab.controller("platform", "traffic-scaler", every(LOOK_SECONDS, scale), SCALING, replicas=1)
    lab.alert_lacking(namespace, name)
    yield
    app.start_seconds = 18.0  # as ever, but nobody waits for that before it began
    lab.start(outage())


@family(
    "A new version of an autoscaler finds none of a group's machines and takes them for gone, which a limit on how many"
    " nodes it lets go at once holds up; the limit is lifted, as it scales nothing in: it deletes all of their nodes.",
    joined=18,
)
async def scale_in_limit(lab: Lab) -> AsyncIterator[None]:
    """As a user of OpenAI's autoscaler tells (kubernetes-ec2-autoscaler 95, March 2018); the machines went on."""
    own = {pod["spec"]["nodeName"] for pod in pods(lab.world, *AUTOSCALER)}
    group = [node for node in spare(lab, 4) if node not in own][:3]
    for node in group:
        await lab.edit("admin", "Node", "", node, {"metadata": {"labels": {"pool": "workers"}}})
    for place in lab.rng.sample([("search", "crawler"), ("media", "encoder"), ("shop", "feeds")], 2):
        await lab.app(*place, replicas=3, nodeSelector={"pool": "workers"})
        lab.reserve(*place)
        waits = lambda where=place[0]: pending(lab.world, where)  # noqa: E731
        lab.alert("KubePodPending", waits, f"a pod of {place[0]} has had no node for a while", 6, namespace=place[0])
    app = lab.apps[f"registry.corp.example/{'/'.join(AUTOSCALER)}"]
    assert app.program
    app.program = both(app.program, _letting_go())
    rules = READ, ("", "configmaps", "*"), ("", "nodes", "patch,delete")
    await lab.edit("admin", "ClusterRole", "", AUTOSCALER[1], objects.cluster_role(AUTOSCALER[1], *rules))
    await lab.edit("admin", "Deployment", *AUTOSCALER, _told(lab, "0.1"))
    elsewhere = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [OTHERS]}}}
    body = {"spec": {"template": {"spec": {"affinity": elsewhere}}}}
    await lab.edit("admin", "Deployment", *AUTOSCALER, body)
    yield
    by = lab.rng.choice(("alice", "bob", "carol"))
    await lab.culprit(by, "update", "Deployment", *AUTOSCALER, _told(lab, "1.0"))


OTHERS: Json = {"matchExpressions": [{"key": "pool", "operator": "NotIn", "values": ["workers"]}]}


def _told(lab: Lab, fraction: str) -> Json:
    """A change of what the autoscaler is started with."""
    container = lab.world["Deployment"][AUTOSCALER]["spec"]["template"]["spec"]["containers"][0]
    return {"spec": {"template": {"spec": {"containers": [{**container, "args": [f"{FRACTION}={fraction}"]}]}}}}


def _letting_go() -> Program:
    """As the autoscaler: a node whose machine it does not find is deleted, unless too many are to go at once."""

    async def look(process: Process) -> None:
        nodes = (await process.api.call("GET", path("Node"))).body.get("items", [])
        gone = [one["metadata"]["name"] for one in nodes if one["metadata"]["labels"].get("pool") == "workers"]
        args = process.see().spec.get("args", ())
        most = next((float(arg.split("=")[1]) for arg in args if arg.startswith(FRACTION)), 0.1) * len(nodes)
        for node in gone if len(gone) <= most else ():
            await process.api.call("DELETE", path("Node", None, node))

    return every(LOOK_SECONDS, look)
