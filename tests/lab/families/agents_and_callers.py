"""What runs on every node and who calls the API: an image that is not there, a loop, a machine that is lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial

from tests.lab import objects
from tests.lab.alerts import is_lost, lacking, pods
from tests.lab.api import Caller, Json, path
from tests.lab.apps import App, Process
from tests.lab.lab import Lab
from tests.lab.manifests import is_ready
from tests.lab.programs import both, every, informer, leading
from tests.lab.scenario import family


@family(
    "The agent that runs on every node is to get its next version, and the tag that is written is one that nobody has"
    " pushed: as the pods may all be replaced at once, none of the nodes has its agent.",
    joined=69,
)
async def agent_image_tag(lab: Lab) -> AsyncIterator[None]:
    """As users tell of a chart that was out some hours before its image was."""
    namespace, name, old, new = lab.rng.choice(
        (
            ("kube-system", "ebs-csi-node", "1.44.0", "1.45.1"),
            ("monitoring", "node-exporter", "1.9.0", "1.9.11"),
            ("kube-system", "network-agent", "3.29.1", "3.30"),
        )
    )
    by = lab.rng.choice(("flux", "argocd", "ci", "alice"))
    team, place = lab.rng.choice(("bob", "ci")), lab.rng.choice((("search", "query"), ("media", "uploads")))
    await lab.app(namespace, name, like=App("", serves=False), kind="DaemonSet", tag=old)
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "100%"}}
    await lab.edit("admin", "DaemonSet", namespace, name, {"spec": {"updateStrategy": strategy}})
    image = f"registry.corp.example/{namespace}/{name}"
    lab.outside.missing.add(f"{image}:{new}")
    summary = f"the rollout of {namespace}/{name} has not been through for a while"
    holds = lambda: lacking(lab.world, namespace, name)  # noqa: E731
    lab.alert("KubeDaemonSetRolloutStuck", holds, summary, 10, namespace=namespace, daemonset=name)
    await lab.until(lambda: len([one for one in pods(lab.world, namespace, name) if is_ready(one)]) > 5)
    await lab.until(lab.is_well)
    yield
    await lab.roll(team, *place, f"1.{lab.rng.randrange(41, 60)}.0")
    await lab.pause(lab.rng.uniform(2, 8))
    there = lab.world["DaemonSet"][namespace, name]["spec"]["template"]["spec"]["containers"][0]
    body = {"spec": {"template": {"spec": {"containers": [{**there, "image": f"{image}:{new}"}]}}}}
    await lab.culprit(by, "update", "DaemonSet", namespace, name, body)
    await lab.pause(lab.rng.uniform(1, 3))
    await lab.edit("bob", "ConfigMap", *place, {"data": {"LOG_LEVEL": "warn"}})


CONTROLLERS = (
    ("argocd", "argocd-application-controller"),
    ("flux-system", "kustomize-controller"),
    ("kube-system", "cluster-autoscaler"),
)


@family(
    "No culprit. A machine is gone from one moment to the next, and with it all that ran there, a controller of which"
    " there is only one among it: nothing is heard of the node, and its pods are kept where they were for minutes.",
    culprit=False,
    joined=69,
)
async def lost_with_controllers(lab: Lab) -> AsyncIterator[None]:
    """As everybody has it who keeps machines for long enough."""
    namespace, name = lab.rng.choice(CONTROLLERS)
    wire = lab.rng.random() < 0.4
    seconds = lab.rng.uniform(3, 12)
    for place in CONTROLLERS:
        lab.alert_lacking(*place, seconds=10)
    for node in sorted(one for _, one in lab.world["Node"]):
        holds = partial(is_lost, lab.world, node)
        lab.alert("KubeNodeNotReady", holds, f"{node} has not been ready for a while", 6, node=node)
    await lab.until(lab.is_well)
    yield
    await lab.roll("ci", *lab.rng.choice((("search", "indexer"), ("media", "thumbnails"))), "2.3.0")
    await lab.pause(seconds)
    [pod] = pods(lab.world, namespace, name)
    node = pod["spec"]["nodeName"]
    if wire:  # it goes on, and nobody reaches it
        lab.outside.silent_nodes.add(node)
        lab.outside.cut_off.add(node)
    else:
        lab.outside.dead_nodes.add(node)


async def _list_all(lab: Lab, caller: Caller, places: tuple[str, ...]) -> None:
    """One after the other without a pause, as a shell's loop in one of several windows."""
    while True:
        for where in places:
            await caller.call("GET", where)
            await asyncio.sleep(0.03)


@family(
    "No culprit. Somebody looks for something from their laptop with a loop in the shell that asks for every pod,"
    " every event and all settings of all namespaces, over and over and in several windows: the API server has several"
    " times as many lists to answer as usual.",
    culprit=False,
    joined=69,
)
async def loop_from_laptop(lab: Lab) -> AsyncIterator[None]:
    """As those tell who found kubectl at the top of the requests by user agent."""
    by = lab.rng.choice(("alice", "bob", "carol"))
    windows = lab.rng.randrange(3, 6)
    places = tuple(path(kind) for kind in ("Pod", "Event", "ConfigMap", "ReplicaSet"))
    user = lab.who[by].user
    laptop = Caller(lab.client, user, lab.plane.token(user), "kubectl/v1.34.1 (darwin/arm64) kubernetes/93248f9")
    count = lambda: lab.requests() + laptop.counts.total()  # noqa: E731
    summary = "the API server gets several times as many requests as is usual"
    lab.alert("KubeAPIServerRequestRateHigh", lab.rate(count, 30), summary, 8, job="apiserver")
    await lab.until(lab.is_well)
    yield
    await lab.roll("ci", *lab.rng.choice((("payments", "ledger"), ("shop", "catalog"))), "1.45.2")
    await lab.pause(lab.rng.uniform(3, 10))
    for _ in range(windows):
        lab.start(_list_all(lab, laptop, places))
        await lab.pause(lab.rng.uniform(0.2, 1))


ORDINARY, TIGHT = {"nominalConcurrencyShares": 30}, {"nominalConcurrencyShares": 1, "borrowingLimitPercent": 0}
QUEUES = {"type": "Queue", "queuing": {"queues": 8, "handSize": 2, "queueLengthLimit": 50}}


def level(shares: Json, response: Json) -> Json:
    """A priority level's own part."""
    return {"spec": {"type": "Limited", "limited": {**shares, "limitResponse": response}}}


@family(
    "So that people get through, what controllers may ask of the API server is tightened: one of them, which asks for"
    " much at once at each of its rounds, is refused most of it from then on.",
    flags=("--max-requests-inflight=80", "--max-mutating-requests-inflight=40"),
    joined=69,
)
async def tightened_level(lab: Lab) -> AsyncIterator[None]:
    """As those tell who made flow schemas of their own and met 429 of their own making."""
    namespace, name = lab.rng.choice((("platform", "tenant-operator"), ("platform", "backup-controller")))
    by, workers = lab.rng.choice(("alice", "admin", "flux")), lab.rng.randrange(20, 30)
    is_level = lab.rng.random() < 0.5
    places = [path(kind) for kind in ("Pod", "Deployment", "ConfigMap", "Service", "ReplicaSet")]

    async def resync(process: Process) -> None:
        """All that it looks after, at once."""
        await asyncio.gather(*(process.api.call("GET", places[one % len(places)]) for one in range(workers)))

    for one, told in (
        ("controllers", level(ORDINARY, QUEUES)),
        ("background-jobs", level(TIGHT, {"type": "Reject"})),
    ):
        await lab.apply({"kind": "PriorityLevelConfiguration", "metadata": {"name": one}, **told})
    subject = {"kind": "ServiceAccount", "serviceAccount": {"namespace": namespace, "name": "*"}}
    rule = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"], "clusterScope": True}
    spec = {
        "priorityLevelConfiguration": {"name": "controllers"},
        "matchingPrecedence": 800,
        "distinguisherMethod": {"type": "ByUser"},
        "rules": [{"subjects": [subject], "resourceRules": [rule]}],
    }
    await lab.apply({"kind": "FlowSchema", "metadata": {"name": "platform-controllers"}, "spec": spec})
    program = both(every(2.5, resync), leading(namespace, name))
    rules = ("*", "*", "get,list,watch"), ("coordination.k8s.io", "leases", "*")
    await lab.controller(namespace, name, program, *rules, replicas=1, tag="4.2.1")
    refused = lab.rate(lab.refused(f"registry.corp.example/{namespace}/{name}", 429), 2.0)
    summary = f"{namespace}/{name} is refused many of its requests to the API server"
    lab.alert("KubeClientErrors", refused, summary, 8, namespace=namespace, job=name)
    await lab.until(lambda: any(is_ready(pod) for pod in pods(lab.world, namespace, name)))
    yield
    await lab.roll("ci", *lab.rng.choice((("search", "query"), ("shop", "catalog"))), "1.52.0")
    await lab.pause(lab.rng.uniform(3, 9))
    if is_level:
        body = level(TIGHT, {"type": "Reject", "queuing": None})
        await lab.culprit(by, "update", "PriorityLevelConfiguration", "", "controllers", body)
    else:
        body = {"spec": {"priorityLevelConfiguration": {"name": "background-jobs"}}}
        await lab.culprit(by, "update", "FlowSchema", "", "platform-controllers", body)
    await lab.pause(lab.rng.uniform(0.5, 2))
    await lab.roll("argocd", "cert-manager", "cert-manager", "1.17.1")


@family(
    "A controller's next version writes how things are where its kind has no such place, is told that there is none,"
    " and tries again at once, for each of its objects and for ever: the API server gets many times the requests.",
    joined=69,
)
async def retry_without_pause(lab: Lab) -> AsyncIterator[None]:
    """As those tell whose operator requeued on each error and no rate limiter was in between."""
    kind, group, name = lab.rng.choice(
        (
            ("Tenant", "tenancy.corp.example", "tenant-controller"),
            ("Bucket", "storage.corp.example", "bucket-controller"),
            ("Topic", "events.corp.example", "topic-controller"),
        )
    )
    namespace, old, new = "platform", "0.14.2", "0.15.0"
    by, number, pause = lab.rng.choice(("argocd", "flux", "ci", "bob")), lab.rng.randrange(10, 16), 0.1
    made = await lab.custom(kind, group, {"type": "object", "x-kubernetes-preserve-unknown-fields": True})

    async def keep(process: Process, where: str) -> None:
        """One of its workers: reads an object, and writes how it is."""
        while True:
            found = await process.api.call("GET", where)
            if not found.ok:
                await asyncio.sleep(5)
                continue
            if process.tag == new:
                done = await process.api.call("PATCH", f"{where}/status", {"status": {"phase": "Ready"}})
                await asyncio.sleep(5 if done.ok else pause)  # no more than the turn of its own queue
                continue
            if found.body.get("status", {}).get("phase") != "Ready":
                await process.api.call("PATCH", where, {"status": {"phase": "Ready"}})
            await asyncio.sleep(5)

    async def work(process: Process) -> None:
        listed = (await process.api.call("GET", made.path())).body.get("items", [])
        await asyncio.gather(
            *(keep(process, made.path(one["metadata"]["namespace"], one["metadata"]["name"])) for one in listed)
        )

    await lab.served(made)
    homes = ("shop", "payments", "search", "media")
    for one in range(number):
        meta = {"namespace": homes[one % len(homes)], "name": f"{kind.lower()}-{one:02}"}
        await lab.apply({"kind": kind, "metadata": meta, "spec": {"size": lab.rng.randrange(1, 9)}})
    rules = (group, "*", "get,list,watch,patch"), ("coordination.k8s.io", "leases", "*")
    program = both(every(5, work), informer(made.path()), leading(namespace, name))
    await lab.controller(namespace, name, program, *rules, replicas=1, tag=old)
    await lab.apply(objects.config_map(namespace, name, WORKERS="4"))
    summary = "the API server gets several times as many requests as is usual"
    lab.alert("KubeAPIServerRequestRateHigh", lab.rate(lab.requests, 45), summary, 6, job="apiserver")
    await lab.until(lambda: any(is_ready(pod) for pod in pods(lab.world, namespace, name)))
    yield
    await lab.edit("bob", "ConfigMap", namespace, name, {"data": {"WORKERS": lab.rng.choice(("3", "5"))}})
    await lab.pause(lab.rng.uniform(3, 10))
    await lab.roll(by, namespace, name, new, culprit=True)
    await lab.pause(lab.rng.uniform(0.5, 2))
    await lab.roll("ci", *lab.rng.choice((("media", "uploads"), ("payments", "checkout"))), "1.61.0")
