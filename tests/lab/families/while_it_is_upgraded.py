"""While it is upgraded: nodes of which one does not get empty, and a control plane that its provider replaces."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import partial

from tests.lab import objects
from tests.lab.alerts import pending
from tests.lab.api import Json, Key, path
from tests.lab.apps import App, Process
from tests.lab.families.by_annotation import rolled
from tests.lab.families.databases import ANY
from tests.lab.families.moving import spare
from tests.lab.families.not_in_mind import TEAMS, change_page, set_before
from tests.lab.lab import Lab
from tests.lab.manifests import place
from tests.lab.programs import both, every, informer, leading
from tests.lab.scenario import family

# -- nodes

GROUP, PLAN, OF_POOL, POOL = "upgrade.cattle.io", "nodes", "pool.corp.example/name", "stateful"
BEFORE, AFTER = "v1.35.4", "v1.35.6"
UPGRADER = ("kube-system", "system-upgrade-controller")
STUCK_SECONDS = 22


def _is_of_a_daemon_set(pod: Json) -> bool:
    return any(owner["kind"] == "DaemonSet" for owner in pod["metadata"].get("ownerReferences", ()))


@dataclass
class _Upgrader:
    """What brings the nodes of a pool to a plan's version, one after the other: each is emptied first."""

    lab: Lab
    plan: str

    async def step(self, process: Process) -> None:
        plan = await process.api.call("GET", self.plan)
        nodes = await process.api.call("GET", f"{path('Node')}?labelSelector={OF_POOL}={POOL}")
        if not (plan.ok and nodes.ok):
            return
        version = plan.body["spec"]["version"]
        behind = [one for one in nodes.body["items"] if one["status"]["nodeInfo"]["kubeletVersion"] != version]
        turn = sorted(one["metadata"]["name"] for one in behind)[:1]
        if plan.body.get("status", {}).get("applying", []) != turn:
            await process.api.call("PATCH", self.plan, {"status": {"applying": turn}})
        for name in turn:
            await self._upgrade(process, name, version)

    async def _upgrade(self, process: Process, name: str, version: str) -> None:
        where = path("Node", None, name)
        await process.api.call("PATCH", where, {"spec": {"unschedulable": True}})
        there = await process.api.call("GET", f"{path('Pod')}?fieldSelector=spec.nodeName={name}")
        left = [one for one in there.body.get("items", ()) if not _is_of_a_daemon_set(one)]
        for pod in left:
            if "deletionTimestamp" not in pod["metadata"]:
                meta = {key: pod["metadata"][key] for key in ("namespace", "name")}
                body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": meta}
                await process.api.call("POST", f"{place(pod)}/eviction", body)
        if there.ok and not left:
            await self.lab.kubelets.update(name, version)
            await process.api.call("PATCH", where, {"spec": {"unschedulable": None}})


async def _pool(lab: Lab) -> tuple[list[str], Json]:
    """Some nodes that are for one pool; how pods say that they are of it. Raises RefusedError, TimeoutError."""
    chosen = sorted(spare(lab, 3))
    taint = {"key": "dedicated", "value": POOL, "effect": "NoSchedule"}
    for node in chosen:
        await lab.edit(
            "admin", "Node", "", node, {"metadata": {"labels": {OF_POOL: POOL}}, "spec": {"taints": [taint]}}
        )
        await lab.kubelets.update(node, BEFORE)

    def strangers() -> list[Json]:
        found = lab.world["Pod"].values()
        return [one for one in found if one["spec"].get("nodeName") in chosen and not _is_of_a_daemon_set(one)]

    for pod in strangers():
        await lab.who["admin"].must("DELETE", place(pod))
    await lab.until(lambda: not strangers())
    return chosen, {"nodeSelector": {OF_POOL: POOL}, "tolerations": [{**taint, "operator": "Equal"}]}


@family(
    "An app of one pod gets a budget, as each app is to have one, and by it at least one pod has to be there: its only"
    " one may never go. Nothing is to be seen of that until the nodes are upgraded as each month. The upgrade empties"
    " one after another, comes to the node of that pod, is refused each time it asks, and goes no further.",
    joined=105,
)
async def budget_of_the_only_pod(lab: Lab) -> AsyncIterator[None]:
    """As those tell who upgrade clusters for others, and ask them each time."""
    namespace, name, others = lab.rng.choice(
        (
            ("search", "reindexer", ("query-cache", "synonym-api")),
            ("media", "playlist-writer", ("cover-cache", "chapter-api")),
            ("shop", "stock-sync", ("price-cache", "variant-api")),
            ("payments", "sepa-gateway", ("limit-cache", "mandate-api")),
        )
    )
    by, upgrades = lab.rng.choice(("ci", "argocd", "flux", *TEAMS)), lab.rng.choice((*TEAMS, "flux"))
    allows: Json = lab.rng.choice(({"minAvailable": 1}, {"minAvailable": 1}, {"minAvailable": "100%"}))
    minor, with_chart = lab.rng.randrange(2, 40), lab.rng.random() < 0.5
    chosen, there = await _pool(lab)
    for one, replicas in ((name, 1), *((other, 3) for other in others)):
        await lab.apply(objects.config_map(namespace, one, LOG_LEVEL="info", WORKERS="4"))
        await lab.app(namespace, one, replicas=replicas, tag=f"1.{minor}.0", config=one, **there)
        await rolled(lab, namespace, one, f"1.{minor}.0")
    plan = await lab.custom("Plan", GROUP, ANY)
    await lab.served(plan)
    spec = {"concurrency": 1, "cordon": True, "drain": {"force": False}, "version": BEFORE}
    meta = {"namespace": UPGRADER[0], "name": PLAN}
    await lab.apply({"kind": plan.name, "apiVersion": f"{GROUP}/v1", "metadata": meta, "spec": spec})
    upgrader = _Upgrader(lab, plan.path(UPGRADER[0], PLAN))
    rules = (
        ("", "nodes", "get,list,patch"),
        ("", "pods", "get,list"),
        ("", "pods/eviction", "create"),
        (GROUP, "plans", "get,list,patch"),
    )
    await lab.controller(*UPGRADER, every(1.0, upgrader.step), *rules, replicas=1, tag="v0.16.0")
    await rolled(lab, *UPGRADER, "v0.16.0")

    def is_closed(node: str) -> bool:
        return bool(lab.world["Node"]["", node]["spec"].get("unschedulable"))

    for node in chosen:
        summary = f"{node} has been unschedulable for long while it is upgraded"
        lab.alert("NodeUpgradeStuck", partial(is_closed, node), summary, STUCK_SECONDS, node=node)
    lab.alert_stuck(namespace, name)
    await lab.until(lab.is_well)

    def budget(app: str, kept: Json) -> Json:
        labels = {"matchLabels": {"app.kubernetes.io/name": app}}
        return {"metadata": {"name": app}, "spec": {**kept, "selector": labels}}

    async def upgrade() -> None:
        await lab.pause(lab.rng.uniform(4, 9))
        await lab.edit(upgrades, plan.name, UPGRADER[0], PLAN, {"spec": {"version": AFTER}})

    yield
    lenient = lab.rng.choice(({"minAvailable": 2}, {"maxUnavailable": 1}))
    for one in others[:1]:
        await lab.who[by].must("POST", path("PodDisruptionBudget", namespace), budget(one, lenient))
    await lab.pause(lab.rng.uniform(3, 7))
    await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, others[1], f"1.{minor}.1")
    await lab.pause(lab.rng.uniform(5, 10))
    await lab.culprit(by, "create", "PodDisruptionBudget", namespace, name, budget(name, allows))
    if with_chart:
        await lab.pause(0.3)
        await lab.edit(by, "ConfigMap", namespace, name, {"data": {"WORKERS": lab.rng.choice(("6", "8"))}})
    await lab.pause(lab.rng.uniform(3, 8))
    await lab.edit(lab.rng.choice(TEAMS), "ConfigMap", namespace, others[0], {"data": {"WORKERS": "5"}})
    lab.start(upgrade())


# -- the control plane

WAITS_SECONDS = 12
"""For how long something has to wait until somebody is told."""
CONTROLLERS = (
    ("kube-system", "aws-load-balancer-controller", "v2.14.1"),
    ("monitoring", "prometheus-operator", "v0.86.1"),
    ("platform", "external-secrets", "v1.0.0"),
)


@dataclass
class _Provider:
    """Who runs the control plane, and brings it to a newer patch on a day of its own choice."""

    lab: Lab
    away: float
    """Seconds without an API; what makes pods, and what finds them a node, begin later still."""
    makes_later: float
    places_later: float
    answers: bool = True

    async def replace(self) -> None:
        plane = self.lab.plane
        manager, scheduler = plane.controller_manager, plane.scheduler
        assert manager
        assert scheduler
        self.answers = False
        for program in (scheduler, manager, plane.apiserver):
            await asyncio.to_thread(program.stop)
        await asyncio.sleep(self.away)
        await asyncio.to_thread(plane.apiserver.start)
        self.answers = True
        await asyncio.sleep(self.makes_later)
        await asyncio.to_thread(manager.start)
        await asyncio.sleep(self.places_later)
        await asyncio.to_thread(scheduler.start)


def _is_unseen(lab: Lab, at: Key) -> bool:
    """Whether no controller has looked at a Deployment as it is by now."""
    one = lab.world["Deployment"].get(at)
    return one is not None and one["status"].get("observedGeneration", 0) < one["metadata"]["generation"]


@family(
    "No culprit. The provider of the managed control plane brings it to a newer patch at a time of its own. The API is"
    " away for a moment only. What makes pods, and what finds them a node, is back some minutes later: whatever is"
    " deployed or scaled meanwhile is taken, and nothing comes of it. All that runs goes on.",
    culprit=False,
    joined=105,
)
async def nothing_placed_meanwhile(lab: Lab) -> AsyncIterator[None]:
    """As those tell who looked for the fault in their pipeline, until the provider's mail came."""
    (home, name, front), (away, other) = lab.rng.choice(
        (
            (("shop", "search-filters", "filter-page"), ("media", "image-proxy")),
            (("payments", "fee-tables", "fee-page"), ("shop", "parcel-quotes")),
            (("media", "live-chat", "chat-page"), ("search", "trend-feed")),
            (("search", "hotel-index", "hotel-page"), ("payments", "cash-api")),
        )
    )
    minor, more = lab.rng.randrange(2, 40), lab.rng.choice((4, 5))
    provider = _Provider(lab, lab.rng.uniform(2.5, 5.0), lab.rng.uniform(28, 38), lab.rng.uniform(18, 26))
    for namespace, one, tag in CONTROLLERS:
        program = both(informer(path("Service")), leading(namespace, one))
        rights = ("", "services", "get,list,watch"), ("coordination.k8s.io", "leases", "*")
        await lab.controller(namespace, one, program, *rights, replicas=1, tag=tag)
        await rolled(lab, namespace, one, tag)
    for at in ((home, name), (away, other)):
        await lab.apply(objects.config_map(*at, LOG_LEVEL="info", CACHE_SECONDS="60"))
        await lab.app(*at, like=App("", asked=lambda: 18.0), replicas=3, tag=f"7.{minor}.0", config=at[1])
        await rolled(lab, *at, f"7.{minor}.0")
        lab.reserve(*at)
    await set_before(lab, home, front, name)
    for at in ((home, name), (away, other)):
        summary = f"{'/'.join(at)} was changed, and no controller has looked at it"
        told = {"namespace": at[0], "deployment": at[1]}
        unseen = partial(_is_unseen, lab, at)
        lab.alert("KubeDeploymentGenerationMismatch", unseen, summary, WAITS_SECONDS, **told)
        lab.alert_lacking(*at, seconds=WAITS_SECONDS)
        summary = f"pods of {at[0]} have had no node for a while"
        lab.alert("KubePodNotScheduled", partial(pending, lab.world, at[0]), summary, WAITS_SECONDS, namespace=at[0])
    lab.alert_errors(home, name)
    lab.alert_ingress_errors(home, home)
    await lab.until(lab.is_well)

    async def meanwhile() -> None:
        """Teams go on to deliver and to scale, as on any day."""
        await lab.until(lambda: not provider.answers)
        await lab.until(lambda: provider.answers)
        await lab.pause(lab.rng.uniform(2, 5))
        await lab.roll(lab.rng.choice(("ci", "argocd")), home, name, f"7.{minor}.1")
        await lab.pause(lab.rng.uniform(2, 5))
        await lab.edit(lab.rng.choice(TEAMS), "Deployment", away, other, {"spec": {"replicas": more}})

    yield
    await lab.roll(lab.rng.choice(("ci", "argocd")), away, other, f"7.{minor}.1")
    await lab.pause(lab.rng.uniform(6, 11))
    await lab.edit(lab.rng.choice((*TEAMS, "flux")), "ConfigMap", home, name, {"data": {"CACHE_SECONDS": "90"}})
    await lab.pause(lab.rng.uniform(4, 9))
    await change_page(lab, home, front)
    await lab.pause(lab.rng.uniform(6, 10))
    lab.start(meanwhile())
    lab.start(provider.replace())
