"""What is planned beside what is there already: the bounds of an autoscaler, which an operator has made itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

from tests.lab.api import Json, Kind, now, path
from tests.lab.apps import App, Process
from tests.lab.families.by_annotation import rolled
from tests.lab.families.databases import ANY
from tests.lab.lab import Lab
from tests.lab.manifests import uid_of
from tests.lab.network import backends
from tests.lab.programs import every
from tests.lab.scenario import family

SCALERS, PLANS = "scaling.corp.example", "capacity.corp.example"
BALANCED_SECONDS = 6.0
"""For how long a group of consumers takes nothing after one of them has come or gone: its partitions are dealt anew."""
COME_IN, TAKES, STORES = 80.0, 45.0, 150.0
"""Messages that come in each second, how many one consumer takes, and all of them, as their store takes no more."""
BEHIND = 900.0
OF_PLANS = ("exports", "digests")
"""Apps whose autoscalers nobody keeps but their plan."""


def _bounds(least: int, most: int) -> Json:
    return {"minReplicas": least, "maxReplicas": most}


@dataclass
class _Group:
    """The consumers of a topic: whoever is ready is a member."""

    lab: Lab
    namespace: str
    name: str
    members: frozenset[str] = frozenset()
    until: float = 0.0
    lag: float = 0.0
    dealt: int = 0
    """How often its partitions were dealt anew."""

    async def run(self) -> None:
        while True:
            await asyncio.sleep(0.5)
            there = frozenset(uid_of(pod) for pod in backends(self.lab.world, self.namespace, self.name))
            if there != self.members:
                self.members, self.until = there, now().timestamp() + BALANCED_SECONDS
                self.dealt += 1
            takes = 0.0 if now().timestamp() < self.until else min(STORES, TAKES * len(there))
            self.lag = max(0.0, self.lag + (COME_IN - takes) / 2)


@dataclass
class _Keepers:
    """Who writes the bounds of autoscalers: an operator those that it has made, a planner those that have a plan."""

    scaled: Kind
    plan: Kind

    async def by_operator(self, process: Process) -> None:
        listed = await process.api.call("GET", self.scaled.path())
        for one in listed.body.get("items", []):
            spec = one["spec"]
            await self._keep(process, one, f"keda-hpa-{one['metadata']['name']}", _bounds(spec["least"], spec["most"]))

    async def by_plan(self, process: Process) -> None:
        listed = await process.api.call("GET", self.plan.path())
        for one in listed.body.get("items", []):
            spec = one["spec"]
            await self._keep(process, one, spec["autoscaler"], _bounds(spec["least"], spec["most"]))

    async def _keep(self, process: Process, one: Json, name: str, wanted: Json) -> None:
        where = path("HorizontalPodAutoscaler", one["metadata"]["namespace"], name)
        found = await process.api.call("GET", where)
        if found.ok and any(found.body["spec"].get(key) != value for key, value in wanted.items()):
            await process.api.call("PATCH", where, {"spec": wanted})


async def _scaler(lab: Lab, namespace: str, app: str, name: str, least: int, most: int) -> None:
    """Raises RefusedError."""
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": app}
    meta = {"namespace": namespace, "name": name}
    spec = {"scaleTargetRef": target, **_bounds(least, most)}
    await lab.apply({"kind": "HorizontalPodAutoscaler", "metadata": meta, "spec": spec})


@family(
    "A team plans more pods for its consumers' evening, in an object of what keeps such plans. Their autoscaler is one"
    " that an operator has made, which has bounds of its own: the two write these back and forth, members come and go,"
    " and as their partitions are dealt anew each time hardly a message is taken.",
    joined=54,
)
async def bounds_fight(lab: Lab) -> AsyncIterator[None]:
    """As users of KEDA tell who write the autoscalers that it has made, and others of groups that never settle."""
    namespace, name = lab.rng.choice(
        (("shop", "stock-events"), ("payments", "booking-events"), ("search", "document-events"))
    )
    by = lab.rng.choice(("alice", "bob", "carol", "ci"))
    scaled = await lab.custom("ScaledObject", SCALERS, ANY)
    plan = await lab.custom("CapacityPlan", PLANS, ANY)
    keepers, group = _Keepers(scaled, plan), _Group(lab, namespace, name)
    await lab.served(scaled, plan)
    await lab.app("platform", "kafka", like=App("", serves=False), kind="StatefulSet", replicas=3, tag="3.9.0")
    await lab.app("monitoring", "kafka-exporter", like=App("", serves=False), replicas=1, tag="1.9.0")
    like = App("", upstreams=(("platform", "kafka"),), serves=False)
    await lab.app(namespace, name, like=like, replicas=3, tag="2.16.0")
    await lab.namespace("reports")
    for other in OF_PLANS:
        await lab.app("reports", other, like=App("", serves=False), replicas=2, tag="1.3.0")
        await _scaler(lab, "reports", other, other, 2, 6)
        meta = {"namespace": "reports", "name": other}
        spec = {"autoscaler": other, "hours": "00-24", "least": 2, "most": 6}
        await lab.apply({"apiVersion": f"{PLANS}/v1", "kind": plan.name, "metadata": meta, "spec": spec})
    await _scaler(lab, namespace, name, f"keda-hpa-{name}", 3, 5)
    meta = {"namespace": namespace, "name": name}
    spec = {"scaleTargetRef": {"name": name}, "least": 3, "most": 5, "triggers": [{"type": "kafka"}]}
    await lab.apply({"apiVersion": f"{SCALERS}/v1", "kind": scaled.name, "metadata": meta, "spec": spec})
    writes = ("autoscaling", "horizontalpodautoscalers", "get,list,watch,patch")
    rules = ((SCALERS, scaled.plural, "get,list,watch"), writes)
    await lab.controller("platform", "keda-operator", every(6, keepers.by_operator), *rules, replicas=1, tag="2.17.2")
    rules = ((PLANS, plan.plural, "get,list,watch"), writes)
    await lab.controller("platform", "capacity-planner", every(7, keepers.by_plan), *rules, replicas=1, tag="0.9.1")
    await rolled(lab, namespace, name, "2.16.0")
    lab.reserve(namespace, name)
    told = {"consumergroup": name, "topic": f"{namespace}.events"}
    exporter = {"namespace": "monitoring", "service": "kafka-exporter"}
    lab.measure("kafka_consumergroup_lag", lambda: round(group.lag), "gauge", **exporter, **told)
    members = lambda: float(len(group.members))  # noqa: E731
    lab.measure("kafka_consumergroup_members", members, "gauge", **exporter, consumergroup=name)
    summary = f"the consumers of {namespace}/{name} are behind by more than {BEHIND:.0f} messages"
    lab.alert("KafkaConsumerLag", lambda: group.lag > BEHIND, summary, 5, namespace=namespace, deployment=name)
    lab.start(group.run())
    await lab.until(lab.is_well)
    yield
    await lab.pause(lab.rng.uniform(2, 8))
    least = lab.rng.randrange(8, 11)
    spec = {"autoscaler": f"keda-hpa-{name}", "hours": "17-23", "least": least, "most": least + 4}
    body = {"apiVersion": f"{PLANS}/v1", "kind": plan.name, "metadata": {**meta, "name": f"{name}-evening"}}
    await lab.culprit(by, "create", plan.name, namespace, f"{name}-evening", {**body, "spec": spec})
