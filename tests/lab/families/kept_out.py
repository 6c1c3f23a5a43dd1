"""Where a pod is not let in: a machine that somebody cordoned, a namespace that is full, a tag that is gone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from tests.lab import objects
from tests.lab.alerts import is_lost, pending, pods
from tests.lab.api import Json
from tests.lab.apps import App
from tests.lab.company import APPS
from tests.lab.families.by_annotation import rolled
from tests.lab.families.moving import spare
from tests.lab.families.not_in_mind import TEAMS, change_page, set_before
from tests.lab.families.of_one_machine import TOLERATED
from tests.lab.lab import NODES, Lab
from tests.lab.network import backends
from tests.lab.scenario import family

MACHINES, EACH_CPU = 3, "3500m"
"""Of a pool; four pods that ask for so much find room on a machine of sixteen."""


@family(
    "A machine of a small pool is cordoned for a repair that is put off then, and stays so. What runs there goes on,"
    " and nobody sees it. Later the app of that pool needs more pods for a while, for a release or for an"
    " evening, which the pool has room for: a good part of that room is on the cordoned machine.",
    joined=86,
)
async def cordon_forgotten(lab: Lab) -> AsyncIterator[None]:
    """As those tell who found SchedulingDisabled in a list of nodes that they had not looked at for a week."""
    namespace, name, front = lab.rng.choice(
        (
            ("media", "transcoder", "upload-page"),
            ("search", "embedder", "alike-page"),
            ("shop", "configurator", "kitchen-page"),
            ("payments", "score-model", "loan-page"),
        )
    )
    by, then, machines = lab.rng.choice(TEAMS), lab.rng.choice(("ci", "argocd")), spare(lab, MACHINES)
    is_release, pool = lab.rng.random() < 0.5, f"{namespace}-heavy"
    replicas, minor = 10 if is_release else 8, lab.rng.randrange(2, 40)
    for node in machines:
        await lab.edit("admin", "Node", "", node, {"metadata": {"labels": {"pool": pool}}})
    await lab.apply(objects.config_map(namespace, name, LOG_LEVEL="info", WORKERS="3"))
    selector: Json = {"pool": pool}
    like = App("", asked=lambda: 50.0)
    await lab.app(namespace, name, like=like, replicas=1, tag=f"3.{minor}.0", config=name, nodeSelector=selector)
    await rolled(lab, namespace, name, f"3.{minor}.0")
    resources = {"requests": {"cpu": EACH_CPU, "memory": "2Gi"}, "limits": {"memory": "4Gi"}}
    await lab.roll("admin", namespace, name, f"3.{minor}.1", resources=resources)
    await rolled(lab, namespace, name, f"3.{minor}.1")
    await lab.edit("admin", "Deployment", namespace, name, {"spec": {"replicas": replicas}})
    await lab.until(lambda: len(backends(lab.world, namespace, name)) == replicas)
    await set_before(lab, namespace, front, name)
    no_node = lambda: pending(lab.world, namespace)  # noqa: E731
    lab.alert("KubePodNotScheduled", no_node, f"a pod in {namespace} has no node", 12, namespace=namespace)
    lab.alert_lacking(namespace, name, seconds=18)
    await lab.until(lab.is_well)
    yield
    await change_page(lab, namespace, front)
    await lab.pause(lab.rng.uniform(2, 5))
    await lab.culprit(by, "update", "Node", "", lab.rng.choice(machines), {"spec": {"unschedulable": True}})
    for _ in range(2):
        await lab.pause(lab.rng.uniform(20, 30))
        await change_page(lab, namespace, front)
    await lab.pause(lab.rng.uniform(4, 8))
    data = {"data": {"WORKERS": lab.rng.choice(("2", "4"))}}
    await lab.edit(lab.rng.choice((*TEAMS, "flux")), "ConfigMap", namespace, name, data)
    await lab.pause(lab.rng.uniform(3, 7))
    if is_release:
        await lab.roll(then, namespace, name, f"3.{minor + 1}.0")
    else:
        await lab.edit(lab.rng.choice((*TEAMS, then)), "Deployment", namespace, name, {"spec": {"replicas": 12}})


MORE = 4
"""By how many pods a team scales its app, and how many more the quota lets there be."""


@family(
    "One team has more pods of its app made, as many as the quota of their namespace still lets there be. All of them"
    " come up. The namespace is another team's too: of the next release of that one's app, which is harmless, no pod is"
    " made, as there is nothing left.",
    joined=86,
)
async def neighbours_quota(lab: Lab) -> AsyncIterator[None]:
    """As those tell who read *exceeded quota* under a release that asked for nothing more than the one before."""
    namespace, grows, name, front = lab.rng.choice(
        (
            ("shop", "label-printer", "return-slips", "returns-page"),
            ("media", "thumbnailer", "chapter-marks", "chapter-page"),
            ("search", "page-fetcher", "query-logs", "trends-page"),
            ("payments", "statement-batch", "payee-book", "payee-page"),
        )
    )
    by, deploys, minor = lab.rng.choice((*TEAMS, "flux")), lab.rng.choice(("ci", "argocd")), lab.rng.randrange(3, 50)
    is_memory = lab.rng.random() < 0.4
    for one, count in ((grows, 2), (name, 3)):
        await lab.apply(objects.config_map(namespace, one, LOG_LEVEL="info", BATCH="100"))
        await lab.app(namespace, one, replicas=count, tag=f"2.{minor}.0", config=one)
        await rolled(lab, namespace, one, f"2.{minor}.0")
    await set_before(lab, namespace, front, name)
    lab.reserve(namespace, grows, front, *APPS[namespace])
    await lab.until(lambda: all(len(pods(lab.world, namespace, one)) == 2 for one in (*APPS[namespace], front)))
    there = sum(where == namespace for where, _ in lab.world["Pod"])
    what, each, unit = ("requests.memory", 64, "Mi") if is_memory else ("requests.cpu", 100, "m")
    hard = {what: f"{(there + MORE) * each}{unit}", "pods": "60"}
    meta = {"namespace": namespace, "name": lab.rng.choice(("team", "compute", f"{namespace}-share"))}
    await lab.apply({"kind": "ResourceQuota", "metadata": meta, "spec": {"hard": hard}})
    lab.alert_stuck(namespace, name)
    quota = (namespace, meta["name"])
    await lab.until(lambda: what in lab.world["ResourceQuota"].get(quota, {}).get("status", {}).get("used", {}))
    await lab.until(lab.is_well)
    yield
    data = {"data": {"BATCH": lab.rng.choice(("50", "150", "200"))}}
    await lab.edit(lab.rng.choice((by, *TEAMS)), "ConfigMap", namespace, grows, data)
    await lab.pause(lab.rng.uniform(3, 7))
    await lab.culprit(by, "update", "Deployment", namespace, grows, {"spec": {"replicas": 2 + MORE}})
    await lab.pause(lab.rng.uniform(9, 16))
    level = {"data": {"LOG_LEVEL": lab.rng.choice(("warn", "debug"))}}
    await lab.edit(lab.rng.choice(TEAMS), "ConfigMap", namespace, name, level)
    await lab.pause(lab.rng.uniform(3, 6))
    await lab.roll(deploys, namespace, name, f"2.{minor}.1")


@family(
    "No culprit. The company's registry, outside of the cluster, keeps the twenty latest tags of each image, and an app"
    " that is hardly ever released still runs the twenty-first. The nodes that have it go on with it. One of those"
    " machines stops, and the pod that is made in its place elsewhere finds no image.",
    flags=TOLERATED,
    culprit=False,
    joined=86,
)
async def tag_cleared_away(lab: Lab) -> AsyncIterator[None]:
    """As those tell whose oldest app was the one that did not come back."""
    namespace, name, front = lab.rng.choice(
        (
            ("shop", "vat-numbers", "invoice-page"),
            ("payments", "sort-codes", "bank-page"),
            ("search", "stemmer", "words-page"),
            ("media", "rating-boards", "about-page"),
        )
    )
    tag = f"1.{lab.rng.randrange(2, 9)}.{lab.rng.randrange(5)}"
    apart = {
        "labelSelector": {"matchLabels": {"app.kubernetes.io/name": name}},
        "topologyKey": "kubernetes.io/hostname",
    }
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}}
    await lab.apply(objects.config_map(namespace, name, LOG_LEVEL="info", TIMEOUT_MS="900"))
    app = await lab.app(namespace, name, replicas=3, tag=tag, config=name, affinity=affinity)
    await rolled(lab, namespace, name, tag)
    await set_before(lab, namespace, front, name)
    used, free = {pod["spec"]["nodeName"] for pod in pods(lab.world, namespace, name)}, spare(lab, len(NODES) - 2)
    node = lab.rng.choice([one for one in free if one in used])

    def waits() -> bool:
        return any(
            one.get("state", {}).get("waiting", {}).get("reason") == "ImagePullBackOff"
            for pod in pods(lab.world, namespace, name)
            for one in pod.get("status", {}).get("containerStatuses", ())
        )

    summary = f"a container of {namespace}/{name} has been waiting for a while"
    lab.alert("KubeContainerWaiting", waits, summary, 5, namespace=namespace, deployment=name, container=name)
    lost = lambda: is_lost(lab.world, node)  # noqa: E731
    lab.alert("KubeNodeNotReady", lost, f"{node} has not been ready for a while", 16, node=node)
    await lab.until(lab.is_well)
    lab.outside.missing.add(f"{app.image}:{tag}")

    places = [(where, one) for where, names in APPS.items() for one in names if where != namespace]
    beside = lab.rng.choice(places)
    lab.reserve(*beside)

    async def night() -> None:
        """The machine stops; elsewhere somebody releases as ever, whose image is there."""
        await lab.pause(lab.rng.uniform(2, 6) + lab.lag)
        lab.kubelets.crash(node)
        await asyncio.sleep(lab.rng.uniform(4, 12))
        await lab.roll(lab.rng.choice(("ci", "argocd")), *beside, f"2.{lab.rng.randrange(2, 40)}.0")

    yield
    await change_page(lab, namespace, front)
    await lab.pause(lab.rng.uniform(3, 7))
    data = {"data": {"TIMEOUT_MS": lab.rng.choice(("700", "1100", "1500"))}}
    await lab.edit(lab.rng.choice((*TEAMS, "flux")), "ConfigMap", namespace, name, data)
    lab.start(night())
