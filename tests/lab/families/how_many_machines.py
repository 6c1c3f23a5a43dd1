"""How many machines there are: a pool that is told otherwise, and spot machines that are taken back."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tests.lab import objects
from tests.lab.alerts import pending
from tests.lab.api import Json, Kind, path
from tests.lab.apps import App, Container, Process
from tests.lab.families.by_annotation import rolled
from tests.lab.families.databases import ANY
from tests.lab.families.joining import forgetting, leaving
from tests.lab.families.moving import spare
from tests.lab.families.not_in_mind import TEAMS, change_page, set_before
from tests.lab.lab import LATER, Lab
from tests.lab.metrics_api import MetricsApi
from tests.lab.network import backends
from tests.lab.programs import both, every, leading, tell
from tests.lab.scenario import family

# -- a pool

KARPENTER, GROUP, POOL = ("platform", "karpenter"), "karpenter.sh", "batch"
LABEL, EACH, BOOT_SECONDS = "workload", 2.0, 4.0
"""By which pods find the pool's machines; and what a worker does in a second."""
ROOM = {"requests": {"cpu": "6", "memory": "128Mi"}, "limits": {"memory": "512Mi"}}
"""What one worker needs: two of them have room on a machine."""
BACKLOG, UNPLACED_SECONDS = 140, 18


def _template(limit: int, label: str, taint: str = "") -> Json:
    """What a pool has: so many processors in all, and machines with this label, and with a taint."""
    kinds = {"key": "karpenter.k8s.aws/instance-cpu", "operator": "In", "values": ["16"]}
    taints = [{"key": taint, "value": POOL, "effect": "NoSchedule"}] if taint else []
    spec: Json = {"requirements": [kinds], "taints": taints, "nodeClassRef": {"name": "default"}}
    calm = {"budgets": [{"nodes": "0"}], "consolidationPolicy": "WhenEmpty"}
    template = {"metadata": {"labels": {LABEL: label}}, "spec": spec}
    return {"spec": {"limits": {"cpu": str(limit)}, "disruption": calm, "template": template}}


@dataclass
class _Provider:
    """It makes a machine for who finds no node, by what its pool says: it comes and bears what is said there."""

    lab: Lab
    kind: Kind
    is_asked: bool = False
    told: set[str] = field(default_factory=set)

    async def look(self, process: Process) -> None:
        declared = await process.api.call("GET", self.kind.path(None, POOL))
        listed = await process.api.call("GET", f"{path('Pod')}?fieldSelector=spec.nodeName%3D")
        left = [one for one in listed.body.get("items", ()) if one.get("status", {}).get("conditions")]
        if not declared.ok or not left or self.is_asked:
            return
        about = {**left[0], "kind": "Pod"}
        if why := self._refusal(declared.body["spec"], left[0]):
            uid = str(about["metadata"]["uid"])
            if uid not in self.told:
                self.told.add(uid)
                said = f"Failed to schedule pod, {why}"
                await tell(process, about, "Warning", "FailedScheduling", said, by=KARPENTER[1])
            return
        self.is_asked = True
        said = f"Pod should schedule on: nodeclaim/{POOL}-{self.lab.kubelets.rng.getrandbits(20):05x}"
        await tell(process, about, "Normal", "Nominated", said, by=KARPENTER[1])
        await asyncio.sleep(BOOT_SECONDS)
        labels = declared.body["spec"]["template"]["metadata"]["labels"]
        await self.lab.kubelets.join(LATER, "v1.36.1", {"pool": "general", "karpenter.sh/nodepool": POOL, **labels})

    def _refusal(self, pool: Json, pod: Json) -> str:
        """Why no machine of the pool helps a pod, in Karpenter's words; "" where one does."""
        used = 16 * sum(LABEL in one["metadata"]["labels"] for one in self.lab.world["Node"].values())
        if used + 16 > int(pool["limits"]["cpu"]):
            return f'all available instance types exceed limits for nodepool: "{POOL}"'
        wanted = pod["spec"].get("nodeSelector", {}).get(LABEL)
        if wanted != pool["template"]["metadata"]["labels"][LABEL]:
            why = f'incompatible requirements, label "{LABEL}" does not have known values'
            return f'incompatible with nodepool "{POOL}", {why}'
        taints = pool["template"]["spec"]["taints"]
        tolerated = {one.get("key") for one in pod["spec"].get("tolerations", ())}
        missed = [one for one in taints if one["key"] not in tolerated]
        return f"did not tolerate taint (taint={missed[0]['key']}={POOL}:NoSchedule)" if missed else ""


async def _heavy(lab: Lab, place: tuple[str, str], like: App, tag: str, resources: Json, **manifest: Any) -> None:
    """An app that needs much, and is up. Raises RefusedError, TimeoutError."""
    like.image = f"registry.corp.example/{'/'.join(place)}"
    lab.apps[like.image] = like
    made = objects.deployment(*place, f"{like.image}:{tag}", **manifest)
    made["spec"]["template"]["spec"]["containers"][0]["resources"] = resources
    await lab.apply(made)
    await lab.apply(objects.service(*place))
    await rolled(lab, *place, tag)


@dataclass
class _Work:
    """What comes for the workers, and is done by those who have a node."""

    lab: Lab
    app: App
    arrives: float
    waiting: float = 0.0

    async def go_on(self) -> None:
        """For ever."""
        while True:
            await asyncio.sleep(0.5)
            there = sum(one.app is self.app and one.problem is None for one in self.lab.kubelets.running())
            self.waiting = max(0.0, self.waiting + 0.5 * (self.arrives - EACH * there))

    async def be_scaled(self, namespace: str, name: str, metric: str) -> None:
        """There are as many workers as what comes needs. Raises RefusedError."""
        api = MetricsApi(lambda: {f"{metric}_per_second": lambda: self.arrives})
        await api.start()
        self.lab.servers.append(api)
        await api.register(self.lab.who["admin"], "monitoring", "external-metrics")
        target = {"type": "AverageValue", "averageValue": f"{EACH:g}"}
        external = {"metric": {"name": f"{metric}_per_second"}, "target": target}
        spec = {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
            "minReplicas": math.ceil(self.arrives / EACH),
            "maxReplicas": 20,
            "metrics": [{"type": "External", "external": external}],
        }
        meta = {"namespace": namespace, "name": name}
        await self.lab.apply({"kind": "HorizontalPodAutoscaler", "metadata": meta, "spec": spec})

    async def evening(self, most: float) -> None:
        """More comes than at noon, as each day."""
        first = self.arrives
        for step in range(6):
            self.arrives = first + (most - first) * (step + 1) / 6
            await asyncio.sleep(0.8)


@family(
    "The pool of machines for batches is told otherwise: it may have fewer processors in all, to save money, or its"
    " machines get a label of another value, or a taint, as those of all other pools do. The machines that are there"
    " stay as they are. In the evening, as each day, more workers are wanted than have a node, and no machine is made"
    " for them.",
    joined=104,
)
async def pool_told_otherwise(lab: Lab) -> AsyncIterator[None]:
    """As those tell who put their pools in order in the morning, and were called at seven."""
    namespace, name, metric, other = lab.rng.choice(
        (
            ("media", "thumb-worker", "frames", "thumb-api"),
            ("search", "crawl-worker", "pages", "crawl-api"),
            ("shop", "feed-worker", "offers", "feed-api"),
            ("payments", "report-worker", "reports", "report-api"),
        )
    )
    by, minor, what = lab.rng.choice(("flux", "argocd", *TEAMS)), lab.rng.randrange(2, 30), lab.rng.randrange(3)
    limit = lab.rng.choice((160, 200))
    after = (_template(48, POOL), _template(limit, "jobs"), _template(limit, POOL, "dedicated"))[what]
    provider = _Provider(lab, await lab.custom("NodePool", GROUP, ANY, namespaced=False))
    await lab.served(provider.kind)
    for node in spare(lab, 3):
        labels = {LABEL: POOL, "karpenter.sh/nodepool": POOL}
        await lab.edit("admin", "Node", "", node, {"metadata": {"labels": labels}})
    made = {"kind": "NodePool", "apiVersion": f"{GROUP}/v1", "metadata": {"name": POOL}, **_template(limit, POOL)}
    await lab.apply(made)
    rights = (GROUP, provider.kind.plural, "get,list,watch"), ("", "nodes,pods", "get,list,watch")
    more = ("", "events", "create"), ("coordination.k8s.io", "leases", "*")
    program = both(every(2.0, provider.look), leading(*KARPENTER))
    await lab.controller(*KARPENTER, program, *rights, *more, replicas=1, tag="1.6.2")
    await rolled(lab, *KARPENTER, "1.6.2")
    like = App("", serves=False)
    await _heavy(lab, (namespace, name), like, f"3.{minor}.0", ROOM, replicas=6, nodeSelector={LABEL: POOL})
    await lab.apply(objects.config_map(namespace, other, LOG_LEVEL="info", BATCH="50"))
    await lab.app(namespace, other, like=App("", asked=lambda: 12.0), replicas=2, tag="2.2.0", config=other)
    await rolled(lab, namespace, other, "2.2.0")
    lab.reserve(namespace, name, other)
    work = _Work(lab, like, EACH * 6 - lab.rng.uniform(0.2, 0.7))
    await work.be_scaled(namespace, name, metric)
    lab.start(work.go_on())
    told = {"namespace": namespace, "service": name}
    lab.measure(f"{metric}_waiting", lambda: round(work.waiting), **told)
    summary = f"more {metric} wait for {namespace}/{name} than are done in ten minutes"
    lab.alert("QueueBacklogHigh", lambda: work.waiting > BACKLOG, summary, 5, **told)
    summary = f"pods of {namespace} have had no node for a quarter of an hour"
    unplaced = partial(pending, lab.world, namespace)
    lab.alert("KubePodNotScheduled", unplaced, summary, UNPLACED_SECONDS, namespace=namespace)
    await lab.until(lab.is_well)

    async def afterwards() -> None:
        """The rest of the day, and the evening."""
        await lab.pause(lab.rng.uniform(7, 12))
        await lab.edit(lab.rng.choice((*TEAMS, "flux")), "ConfigMap", namespace, other, {"data": {"BATCH": "80"}})
        await lab.pause(lab.rng.uniform(3, 8))
        await work.evening(EACH * 8 - lab.rng.uniform(0.3, 0.9))

    yield
    most = {"spec": {"maxReplicas": lab.rng.choice((16, 24))}}
    await lab.edit(lab.rng.choice(TEAMS), "HorizontalPodAutoscaler", namespace, name, most)
    await lab.pause(lab.rng.uniform(5, 9))
    await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, other, "2.2.1")
    await lab.pause(lab.rng.uniform(6, 11))
    await lab.culprit(by, "update", provider.kind.name, "", POOL, after)
    lab.start(afterwards())


# -- spot machines

SPOT, NOTICE_SECONDS = "spot", 3.0
STARTS_SECONDS, COMES_SECONDS, STANDS = 7.0, 45.0, 9.0
"""What a pod needs to start, what until other machines are there, and what one stands a second."""
LARGE = {"requests": {"cpu": "4", "memory": "128Mi"}, "limits": {"memory": "512Mi"}}


async def _take(lab: Lab, nodes: Sequence[str], told: set[str]) -> None:
    """Each gets its notice and is gone soon; after a while others come, under the names of old."""
    for node in nodes:
        told.add(node)
        await asyncio.sleep(lab.kubelets.rng.uniform(0.2, 1.5))
    await asyncio.sleep(NOTICE_SECONDS)
    for node in nodes:
        lab.kubelets.crash(node)
        await asyncio.sleep(lab.kubelets.rng.uniform(0.2, 1.5))
    await asyncio.sleep(COMES_SECONDS)
    await lab.kubelets.join(LATER, "v1.36.1", {"pool": "general", "lifecycle": SPOT})


@family(
    "No culprit. The cloud takes two of its spot machines back within a minute, as it may. Their pods are asked to"
    " leave, and those that are left elsewhere are too few for what customers ask. Others have no node until another"
    " machine is there, which takes its time.",
    culprit=False,
    joined=104,
)
async def spot_taken_back(lab: Lab) -> AsyncIterator[None]:
    """As those tell who save two thirds with spot machines, and know of it by their alerts."""
    namespace, name, front = lab.rng.choice(
        (
            ("shop", "product-renderer", "product-page"),
            ("payments", "quote-engine", "quote-page"),
            ("media", "stream-packager", "stream-page"),
            ("search", "hit-scorer", "hits-page"),
        )
    )
    minor, told, nodes = lab.rng.randrange(2, 40), set[str](), spare(lab, 3)
    like, asked = App("", start_seconds=STARTS_SECONDS), lab.rng.uniform(42, 50)

    def stands() -> float:
        """The share of what is asked that those who are well can answer."""
        there = sum(one.app is like and one.problem is None for one in lab.kubelets.running())
        return min(1.0, STANDS * there / asked)

    def fails(_: Container) -> float:
        return 1 - stands()

    like.asked, like.failing, like.fails_with = lambda: asked, fails, lambda _: "503"
    like.latency = lambda _: 1.2 * (1 - stands())
    for node in nodes:
        await lab.edit("admin", "Node", "", node, {"metadata": {"labels": {"lifecycle": SPOT}}})
    rules = ("", "nodes", "get,list,patch"), ("", "pods", "get,list"), ("", "pods/eviction", "create")
    await lab.controller("kube-system", "node-termination-handler", leaving(told), *rules, kind="DaemonSet")
    program, may = forgetting(lambda: told & lab.outside.dead_nodes), ("", "nodes", "get,list,delete")
    await lab.controller("kube-system", "cloud-controller-manager", program, may, replicas=1)
    await lab.apply(objects.config_map(namespace, name, LOG_LEVEL="info", CACHE_SECONDS="60"))
    spread = {"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway"}
    labels = {"matchLabels": {"app.kubernetes.io/name": name}}
    where = {"nodeSelector": {"lifecycle": SPOT}, "topologySpreadConstraints": [{**spread, "labelSelector": labels}]}
    await _heavy(lab, (namespace, name), like, f"5.{minor}.0", LARGE, replicas=7, config=name, **where)
    await lab.until(lambda: len(backends(lab.world, namespace, name)) == 7)
    await set_before(lab, namespace, front, name)
    lab.alert_errors(namespace, name)
    lab.alert_lacking(namespace, name, seconds=14)
    lab.alert_ingress_errors(namespace, namespace)
    unplaced = partial(pending, lab.world, namespace)
    lab.alert("KubePodNotScheduled", unplaced, f"pods of {namespace} have had no node", 14, namespace=namespace)
    await lab.until(lab.is_well)

    async def takes() -> None:
        await lab.pause(lab.rng.uniform(3, 10))
        await _take(lab, nodes[:2], told)

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(8, 18))
        await change_page(lab, namespace, front)

    yield
    await change_page(lab, namespace, front)
    await lab.pause(lab.rng.uniform(5, 10))
    body = {"data": {"CACHE_SECONDS": lab.rng.choice(("45", "90"))}}
    await lab.edit(lab.rng.choice((*TEAMS, "flux")), "ConfigMap", namespace, name, body)
    await lab.pause(lab.rng.uniform(5, 10))
    budget = {"maxUnavailable": 2, "selector": labels}
    await lab.apply(
        {"kind": "PodDisruptionBudget", "metadata": {"namespace": namespace, "name": name}, "spec": budget},
        by=lab.rng.choice(TEAMS),
    )
    lab.start(takes())
    lab.start(afterwards())
