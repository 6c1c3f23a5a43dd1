"""Load on the API server: who makes it, and what made them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

from tests.lab import objects
from tests.lab.api import Json, path
from tests.lab.apps import Process
from tests.lab.lab import Lab
from tests.lab.programs import both, every, getting, informer, lagging
from tests.lab.scenario import family

BUSY = 18.0
"""Requests a second of all controllers at which the alert on load holds; a calm company makes some five."""
LOAD = "KubeAPIRequestRateHigh"


def alert_on_load(lab: Lab) -> None:
    """Far more requests of all controllers than a calm company makes."""
    lab.alert(
        LOAD, lab.rate(lab.requests, BUSY), "the API server gets far more requests than usual", 4, job="apiserver"
    )


@family("A new version of an operator lists all pods again and again where the old one watched them.")
async def operator_version(lab: Lab) -> AsyncIterator[None]:
    watching = informer(path("Pod"))

    async def program(process: Process) -> None:
        if process.tag.startswith("1."):
            await watching(process)
        await lagging(process)
        await every(0.08, getting(path("Pod")))(process)

    await lab.controller("platform", "rightsizer", program, ("", "pods", "get,list,watch"))
    alert_on_load(lab)
    yield
    await lab.roll("argocd", "platform", "rightsizer", "2.0.0", culprit=True)


@family(
    "Somebody scales the runners of a pipeline tenfold: each asks as often as before, but there are ten times as many."
)
async def more_clients(lab: Lab) -> AsyncIterator[None]:
    program = every(1, getting(f"{path('Job', 'platform')}?limit=10"))
    await lab.controller("platform", "runner", program, ("batch", "jobs", "list"), replicas=3)
    alert_on_load(lab)
    yield
    await lab.culprit("alice", "update", "Deployment", "platform", "runner", {"spec": {"replicas": 30}})


@family(
    "The interval of a poll is cut in a ConfigMap: the same few clients ask fifty times as often, without a rollout."
)
async def more_per_client(lab: Lab) -> AsyncIterator[None]:
    def interval(process: Process) -> float:
        return float(process.config["INTERVAL_SECONDS"])

    await lab.apply(objects.config_map("monitoring", "inventory", INTERVAL_SECONDS="4"))
    program = every(interval, getting(f"{path('Deployment')}?limit=20", f"{path('Service')}?limit=20"))
    rules = (("apps", "deployments", "list"), ("", "services", "list"))
    await lab.controller("monitoring", "inventory", program, *rules, replicas=3, config="inventory")
    alert_on_load(lab)
    yield
    await lab.culprit("bob", "update", "ConfigMap", "monitoring", "inventory", {"data": {"INTERVAL_SECONDS": "0.08"}})


@family(
    "The new version of one controller takes every seat of a priority level it shares; the others retry at once"
    " and are louder than it is."
)
async def first_mover(lab: Lab) -> AsyncIterator[None]:
    queue = {
        "nominalConcurrencyShares": 1,
        "lendablePercent": 0,
        "borrowingLimitPercent": 0,
        "limitResponse": {"type": "Reject"},
    }
    meta = {"name": "controllers"}
    await lab.apply(
        {"kind": "PriorityLevelConfiguration", "metadata": meta, "spec": {"type": "Limited", "limited": queue}}
    )
    rule = {
        "subjects": [{"kind": "Group", "group": {"name": "system:serviceaccounts:platform"}}],
        "resourceRules": [
            {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"], "clusterScope": True}
        ],
    }
    spec = {"priorityLevelConfiguration": meta, "matchingPrecedence": 500, "rules": [rule]}
    await lab.apply({"kind": "FlowSchema", "metadata": meta, "spec": spec})

    async def retrying(process: Process) -> None:
        for _ in range(6):
            done = await process.api.call("GET", f"{path('ConfigMap')}?limit=5")
            if done.status != 429:
                return
            await asyncio.sleep(0.05)

    async def heavy(process: Process) -> None:
        if process.tag.startswith("1."):
            await every(3, getting(f"{path('Pod')}?limit=20"))(process)
        await lagging(process)
        greedy = every(0.01, getting(path("Pod"), path("ReplicaSet")))
        await both(*[greedy] * 6)(process)

    rules = (("", "configmaps,pods", "list"), ("apps", "replicasets", "list"))
    images = [
        (await lab.controller("platform", name, every(0.6, retrying), *rules)).image
        for name in ("billing-sync", "dns-sync")
    ]
    await lab.controller("platform", "tenants", heavy, *rules, replicas=1)
    refused = [lab.refused(image, 429) for image in images]
    lab.alert(
        "ControllerRequestsRejected",
        lab.rate(lambda: sum(one() for one in refused), 0.5),
        "requests of billing-sync and dns-sync are rejected",
        namespace="platform",
        service="billing-sync",
    )
    yield
    await lab.roll("flux", "platform", "tenants", "2.0.0", culprit=True)


@family(
    "An autoscaler is made for an app whose replicas are declared in Git: the two write its replicas back and forth."
)
async def replicas_fight(lab: Lab) -> AsyncIterator[None]:
    lab.reserve("shop", "catalog")

    async def heal() -> None:
        """As Argo CD with selfHeal: what differs from Git is written back."""
        while True:
            await asyncio.sleep(2)
            if lab.world["Deployment"]["shop", "catalog"]["spec"]["replicas"] != 2:
                await lab.edit("argocd", "Deployment", "shop", "catalog", {"spec": {"replicas": 2}})

    lab.start(heal())
    written = lab.rate(
        lambda: int(lab.world["Deployment"]["shop", "catalog"]["metadata"]["generation"]), 0.25, seconds=12
    )
    lab.alert(
        "KubeDeploymentFlapping",
        written,
        "replicas of catalog go up and down",
        6,
        namespace="shop",
        deployment="catalog",
    )
    yield
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "catalog"}
    body = {"metadata": {"name": "catalog"}, "spec": {"scaleTargetRef": target, "minReplicas": 4, "maxReplicas": 9}}
    await lab.culprit("carol", "create", "HorizontalPodAutoscaler", "shop", "catalog", body)


@family(
    "A new version of a labeller writes another form of the same label than the owner of it: both correct each other."
)
async def label_fight(lab: Lab) -> AsyncIterator[None]:
    def holding(form: str) -> Callable[[Process], Awaitable[None]]:
        async def sync(process: Process) -> None:
            value = "CC-1001" if form == "new" and not process.tag.startswith("1.") else "cc-1001"
            for name in ("frontend", "cart", "catalog"):
                where = path("Service", "shop", name)
                found = await process.api.call("GET", where)
                if found.ok and found.body["metadata"].get("labels", {}).get("cost-center") != value:
                    await process.api.call("PATCH", where, {"metadata": {"labels": {"cost-center": value}}})

        return sync

    rules = ("", "services", "get,patch")
    await lab.controller("platform", "cost-labeller", every(0.7, holding("new")), rules, replicas=1)
    await lab.controller("platform", "finops", every(0.7, holding("old")), rules, replicas=1)

    seen: dict[str, str] = {}
    written = [0]

    def writes() -> int:
        for one in _services(lab):
            name, now_is = one["metadata"]["name"], one["metadata"]["resourceVersion"]
            written[0] += seen.get(name, now_is) != now_is
            seen[name] = now_is
        return written[0]

    lab.alert(
        "KubeObjectWritesHigh", lab.rate(writes, 0.8), "services of shop are written without end", namespace="shop"
    )
    yield
    await lab.roll("argocd", "platform", "cost-labeller", "2.0.0", culprit=True)


def _services(lab: Lab) -> list[Json]:
    return [one for (namespace, _), one in lab.world["Service"].items() if namespace == "shop"]


@family(
    "A new version of a spawner makes and deletes pods without end: the store outgrows what it keeps, watchers"
    " that come back get 410 and list everything.",
    flags=("--watch-cache=false",),
)
async def churn_relist(lab: Lab) -> AsyncIterator[None]:
    async def spawn(process: Process) -> None:
        if process.tag.startswith("1."):
            await asyncio.sleep(5)
            return
        name = f"task-{process.rng.randrange(10**9)}"
        image = "registry.corp.example/platform/task:1.0.0"
        one = objects.deployment("platform", name, image)["spec"]["template"]
        await process.api.call(
            "POST",
            path("Pod", "platform"),
            {"metadata": {"name": name, "labels": {"task": "one"}}, "spec": one["spec"]},
        )
        listed = await process.api.call("GET", f"{path('Pod', 'platform')}?labelSelector=task=one")
        for pod in listed.body.get("items", [])[:-12]:
            await process.api.call("DELETE", path("Pod", "platform", pod["metadata"]["name"]))

    async def compact() -> None:
        """As etcd with auto-compaction-mode=revision: it keeps so many revisions."""
        kept = await _revision(lab)
        while True:
            await asyncio.sleep(2)
            newest = await _revision(lab)
            if newest - kept > KEPT_REVISIONS:
                kept = await asyncio.to_thread(lab.plane.compact)

    await lab.controller("platform", "spawner", every(0.15, spawn), ("", "pods", "*"), replicas=1)
    edge = both(informer(path("Namespace"), seconds=3), informer(path("ConfigMap"), seconds=3))
    app = await lab.controller("ingress-nginx", "edge", edge, ("", "namespaces,configmaps", "list,watch"), replicas=6)
    lab.alert(
        "KubeAPITerminatedWatches",
        lab.rate(lab.refused(app.image, 410), 0.8, seconds=9),
        "watchers list anew again and again",
        3,
        job="apiserver",
    )
    await lab.pause(3)
    lab.start(compact())
    yield
    await lab.roll("ci", "platform", "spawner", "2.0.0", culprit=True)


KEPT_REVISIONS = 600


async def _revision(lab: Lab) -> int:
    found = await lab.world.caller.must("GET", f"{path('Namespace')}?limit=1")
    return int(found.body["metadata"]["resourceVersion"])
