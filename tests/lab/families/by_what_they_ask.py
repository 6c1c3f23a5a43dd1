"""What scales by what it is told to look at: consumers by a queue, the machines of a pool by their price."""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from tests.lab import objects
from tests.lab.alerts import lacking
from tests.lab.api import Json, Kind, now, path
from tests.lab.apps import App, Container, Process
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.families.databases import ANY
from tests.lab.families.loops import LOOSE
from tests.lab.families.moving import spare
from tests.lab.families.not_in_mind import TEAMS
from tests.lab.families.upgraded import TYPE, empty
from tests.lab.lab import LATER, Lab
from tests.lab.network import backends
from tests.lab.programs import every, tell
from tests.lab.scenario import family

KEDA, OPERATOR = "keda.sh", ("platform", "keda-operator")
EACH_DOES, ONE_FOR, COOLDOWN_SECONDS = 4.0, 10.0, 8.0
"""Messages a second of a consumer, for how many that wait there is to be one, and how long fewer have to do."""
LABEL = re.compile(r'queue="([^"]*)"')


@dataclass
class _Queues:
    """A broker's queues, of which one is emptied by the consumers that are scaled by what waits in it."""

    lab: Lab
    kind: Kind
    place: tuple[str, str]
    own: str
    comes: float
    waiting: dict[str, float]
    few_since: float | None = None
    told: str = ""

    async def run(self) -> None:
        """What comes, and what is taken."""
        while True:
            await asyncio.sleep(0.5)
            there = [one for one in self.lab.kubelets.running() if one.app is self.app and one.problem is None]
            comes = self.comes * self.lab.kubelets.rng.uniform(0.85, 1.15)
            self.waiting[self.own] = max(0.0, self.waiting[self.own] + (comes - EACH_DOES * len(there)) / 2)

    @property
    def app(self) -> App:
        return self.lab.apps[f"registry.corp.example/{'/'.join(self.place)}"]

    def found(self, trigger: Json) -> float:
        """How many wait, as a trigger is told: nothing that a query matches is none to it."""
        meta = trigger["metadata"]
        asked = LABEL.search(meta["query"]) if "query" in meta else None
        name = asked[1] if asked else meta.get("queueName", "")
        return self.waiting.get(name, 0.0)

    async def scale(self, process: Process) -> None:
        declared = await process.api.call("GET", self.kind.path(*self.place))
        where = f"{path('Deployment', *self.place)}/scale"
        scale = await process.api.call("GET", where)
        if not (declared.ok and scale.ok):
            return
        spec, there = declared.body["spec"], int(scale.body["spec"]["replicas"])
        waits = self.found(spec["triggers"][0])
        wanted = min(spec["maxReplicaCount"], max(spec["minReplicaCount"], math.ceil(waits / ONE_FOR)))
        if wanted >= there:
            self.few_since = None
        else:
            self.few_since = self.few_since or now().timestamp()
        may_go = self.few_since is not None and now().timestamp() - self.few_since >= COOLDOWN_SECONDS
        if wanted > there or may_go:
            self.few_since = None
            await process.api.call("PATCH", where, {"spec": {"replicas": wanted}})
            if not (wanted and there):
                which = "Activated" if wanted else "Deactivated"
                said = f"{which} apps/v1.Deployment {'/'.join(self.place)} from {there} to {wanted}"
                about = {**declared.body, "kind": self.kind.name}
                await tell(process, about, "Normal", f"KEDAScaleTarget{which}", said, by="keda-operator")


@family(
    "The trigger of a ScaledObject is edited, as queues have got other names or as somebody wants to scale by a better"
    " figure, and asks for a queue in which nothing ever waits. The consumers are scaled to none, or to the fewest that"
    " there may be, while what they are there for grows and grows.",
    joined=88,
)
async def other_queue(lab: Lab) -> AsyncIterator[None]:
    """As those tell whose consumers were asleep, and whose scaler had no error."""
    namespace, name, own, quiet = lab.rng.choice(
        (
            ("shop", "order-mails", "orders.mail", "orders.mails"),
            ("payments", "payout-batches", "payouts.due", "payouts.due.retry"),
            ("media", "frame-renders", "renders.wanted", "renders.wanted.v1"),
            ("search", "page-crawls", "crawl.pages", "crawl.sites"),
        )
    )
    by, minor, least = lab.rng.choice((*TEAMS, "flux", "argocd")), lab.rng.randrange(2, 40), lab.rng.choice((0, 0, 1))
    by_query = lab.rng.random() < 0.5
    kind = await lab.custom("ScaledObject", KEDA, ANY)
    await lab.served(kind)
    known = {own: 40.0} if by_query else {own: 40.0, quiet: 0.0}
    queues = _Queues(lab, kind, (namespace, name), own, lab.rng.uniform(14, 19), known)

    def trigger(queue: str) -> Json:
        if by_query:
            query = f'sum(rabbitmq_queue_messages_ready{{namespace="platform",queue="{queue}"}})'
            server = "http://prometheus.monitoring.svc:9090"
            told = {"serverAddress": server, "query": query, "threshold": f"{ONE_FOR:.0f}"}
            return {"triggers": [{"type": "prometheus", "metadata": told}]}
        told = {"hostFromEnv": "RABBITMQ_URL", "mode": "QueueLength", "value": f"{ONE_FOR:.0f}", "queueName": queue}
        return {"triggers": [{"type": "rabbitmq", "metadata": told}]}

    await lab.app("platform", "rabbitmq", like=App("", serves=False), kind="StatefulSet", replicas=1, tag="4.1.2")
    await lab.until(lambda: backends(lab.world, "platform", "rabbitmq"))
    await lab.apply(objects.config_map(namespace, name, LOG_LEVEL="info", PREFETCH="10"))
    like = App("", upstreams=(("platform", "rabbitmq"),), serves=False)
    await lab.app(namespace, name, like=like, replicas=4, tag=f"2.{minor}.0", config=name)
    await rolled(lab, namespace, name, f"2.{minor}.0")
    lab.reserve(namespace, name)
    spec = {"scaleTargetRef": {"name": name}, "minReplicaCount": least, "maxReplicaCount": 12, **trigger(own)}
    meta = {"namespace": namespace, "name": name}
    await lab.apply({"apiVersion": f"{KEDA}/v1", "kind": kind.name, "metadata": meta, "spec": spec})
    rules = (KEDA, kind.plural, "get,list,watch"), ("apps", "deployments/scale", "get,patch"), ("", "events", "create")
    await lab.controller(*OPERATOR, every(1.0, queues.scale), *rules, replicas=1, tag="2.18.1")
    await rolled(lab, *OPERATOR, "2.18.1")
    lab.start(queues.run())
    for queue in known:
        told = {"namespace": "platform", "service": "rabbitmq", "queue": queue}
        waits = lambda queue=queue: queues.waiting[queue]  # noqa: E731
        lab.measure("rabbitmq_queue_messages_ready", waits, **told)
    grows = lambda: queues.waiting[own] > 220  # noqa: E731
    summary = f"more than 220 messages wait in the queue {own}"
    lab.alert("RabbitmqQueueMessagesReadyHigh", grows, summary, 4, namespace="platform", queue=own)
    await lab.until(lab.is_well)
    await lab.pause(COOLDOWN_SECONDS)

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(4, 9))
        await lab.edit("flux", "ConfigMap", "search", "indexer", {"data": {"TIMEOUT_MS": "1200"}})

    yield
    await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, name, f"2.{minor}.1")
    await lab.pause(lab.rng.uniform(6, 11))
    prefetch = {"data": {"PREFETCH": lab.rng.choice(("8", "16", "20"))}}
    await lab.edit(lab.rng.choice((*TEAMS, "ci")), "ConfigMap", namespace, name, prefetch)
    await lab.pause(lab.rng.uniform(3, 7))
    await lab.culprit(by, "update", kind.name, namespace, name, {"spec": trigger(quiet)})
    lab.start(afterwards())


KARPENTER, GROUP, POOL = ("platform", "karpenter"), "karpenter.sh", "web-spot"
TAINT: Json = {"key": "dedicated", "value": POOL, "effect": "NoExecute"}
BOOT_SECONDS, EACH_STANDS, LOADS_SECONDS = 3.0, 6.0, 11.0
"""Until a machine is up, requests a second that a pod stands, and until one has loaded what it answers from."""
KINDS = ("m7i.2xlarge", "m7a.2xlarge", "m6i.2xlarge", "c7i.4xlarge", "r7i.2xlarge")
MINUTES = {"s": 1 / 60, "m": 1.0, "h": 60.0}


@dataclass
class _Karpenter:
    """A machine that is not among the cheapest today is replaced, once its node has been as it is for long enough."""

    lab: Lab
    pools: Kind
    nodes: list[str]
    spare: str = LATER
    since: dict[str, float] = field(default_factory=dict)
    is_at_it: bool = False

    def cheapest(self) -> str:
        """What the provider asks least for, which is another kind of machine every few minutes."""
        return KINDS[int(now().timestamp() / 5) % len(KINDS)]

    async def consolidate(self, process: Process) -> None:
        pool = await process.api.call("GET", self.pools.path(None, POOL))
        told = pool.body.get("spec", {}).get("disruption", {}).get("consolidateAfter", "Never")
        listed = await process.api.call("GET", f"{path('Node')}?labelSelector=pool={POOL}")
        if self.is_at_it or told == "Never" or not listed.ok:
            return
        after, at = float(told[:-1]) * MINUTES[told[-1]], now().timestamp()
        kinds = {one["metadata"]["name"]: one["metadata"]["labels"].get(TYPE) for one in listed.body["items"]}
        dear = [
            node
            for node in sorted(kinds, key=lambda node: self.since.setdefault(node, at))
            if kinds[node] != self.cheapest() and at - self.since[node] >= after
        ]
        if dear:
            self.is_at_it = True
            self.lab.start(self._replace(process, dear[0]))

    async def _replace(self, process: Process, node: str) -> None:
        """First another machine comes, then the pods are asked to leave, and then the old one goes."""
        other, cheap = self.spare, self.cheapest()
        await asyncio.sleep(BOOT_SECONDS)
        await self.lab.kubelets.join(other, "v1.36.1", {"pool": POOL, TYPE: cheap})
        await process.api.call("PATCH", path("Node", None, other), {"spec": {"taints": [TAINT]}})
        going = {"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}
        await process.api.call("PATCH", path("Node", None, node), {"spec": {"taints": [TAINT, going]}})
        about = {"kind": "Node", "metadata": {"namespace": "default", "name": node, "uid": node}}
        why = f"Disrupting Node: Underutilized/Replace, by a {cheap}"
        await tell(process, about, "Normal", "DisruptionTerminating", why, by="karpenter")
        await empty(process, node)
        await process.api.call("DELETE", path("Node", None, node))
        self.lab.kubelets.crash(node)
        self.since.pop(node, None)
        self.since[other], self.spare, self.is_at_it = now().timestamp(), node, False


@family(
    "To save money, what provides machines may replace those of a pool by cheaper ones as soon as they have been as"
    " they are for a minute, and no longer after a day. Which are cheapest changes all the time: one machine after the"
    " other is replaced, again and again, and the pods of an app that is slow to load are evicted each time.",
    joined=88,
)
async def consolidated_at_once(lab: Lab) -> AsyncIterator[None]:
    """As those tell whose pods were never older than some minutes after a change of consolidateAfter."""
    namespace, name = lab.rng.choice(
        (("shop", "storefront"), ("search", "landing-pages"), ("media", "player-web"), ("payments", "pay-widget"))
    )
    by, minor, asked = lab.rng.choice((*TEAMS, "flux", "argocd")), lab.rng.randrange(2, 40), lab.rng.uniform(25, 29)
    karpenter = _Karpenter(lab, await lab.custom("NodePool", GROUP, LOOSE, namespaced=False), spare(lab, 3))
    await lab.served(karpenter.pools)
    for node in karpenter.nodes:
        told = {"metadata": {"labels": {"pool": POOL, TYPE: lab.rng.choice(KINDS)}}, "spec": {"taints": [TAINT]}}
        await lab.edit("admin", "Node", "", node, told)
    keep = {"consolidationPolicy": "WhenEmptyOrUnderutilized", "consolidateAfter": "24h"}
    template = {"metadata": {"labels": {"pool": POOL}}, "spec": {"taints": [TAINT]}}
    spec: Json = {"template": template, "limits": {"cpu": "96"}, "disruption": {**keep, "budgets": [{"nodes": "1"}]}}
    meta = {"name": POOL}
    await lab.apply({"apiVersion": f"{GROUP}/v1", "kind": karpenter.pools.name, "metadata": meta, "spec": spec})
    rights = (GROUP, "nodepools", "get,list"), ("", "nodes", "get,list,patch,delete"), ("", "pods", "list")
    more, work = (("", "pods/eviction", "create"), ("", "events", "create")), every(1.5, karpenter.consolidate)
    general: Json = {"nodeSelector": {"pool": "general"}}
    await lab.controller(*KARPENTER, work, *rights, *more, replicas=1, tag="1.8.1", **general)
    await rolled(lab, *KARPENTER, "1.8.1")

    def beyond(_: Container) -> float:
        """The share of what comes that those who are ready do not stand."""
        return max(0.0, 1 - EACH_STANDS * len(backends(lab.world, namespace, name)) / asked)

    await lab.apply(objects.config_map(namespace, name, LOG_LEVEL="info", PAGE_SIZE="24"))
    like = App("", asked=lambda: asked, failing=beyond, fails_with=lambda _: "503", start_seconds=LOADS_SECONDS)
    like.capacity = 4 * EACH_STANDS
    spread = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": {"app.kubernetes.io/name": name}},
    }
    where: Json = {"nodeSelector": {"pool": POOL}, "tolerations": [{"key": "dedicated", "operator": "Exists"}]}
    where["topologySpreadConstraints"] = [spread]
    await lab.app(namespace, name, like=like, replicas=6, tag=f"8.{minor}.0", config=name, **where)
    await rolled(lab, namespace, name, f"8.{minor}.0")
    await lab.until(lambda: len(backends(lab.world, namespace, name)) == 6)
    await publish(lab, namespace, name)
    away = lambda: lacking(lab.world, namespace, name)  # noqa: E731
    summary = f"{namespace}/{name} has not had its replicas for a while"
    lab.alert("KubeDeploymentReplicasMismatch", away, summary, 22, namespace=namespace, deployment=name)
    lab.alert_errors(namespace, name)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(4, 9))
        await lab.edit(lab.rng.choice(TEAMS), "ConfigMap", namespace, name, {"data": {"PAGE_SIZE": "36"}})

    yield
    await lab.edit("ci", "ConfigMap", namespace, name, {"data": {"LOG_LEVEL": "warn"}})
    await lab.pause(lab.rng.uniform(4, 9))
    await lab.edit(lab.rng.choice(("ci", "alice")), "ConfigMap", "shop", "cart", {"data": {"TIMEOUT_MS": "950"}})
    await lab.pause(lab.rng.uniform(2, 6))
    sooner = {"disruption": {**keep, "consolidateAfter": lab.rng.choice(("30s", "1m", "2m"))}}
    await lab.culprit(by, "update", karpenter.pools.name, "", POOL, {"spec": sooner})
    lab.start(afterwards())
