"""Autoscalers that go by how much is asked: a ceiling that was lowered, a figure that nobody has, a sale."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from tests.lab.api import Json
from tests.lab.apps import App, Container
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.lab import Lab
from tests.lab.metrics_api import MetricsApi
from tests.lab.network import backends
from tests.lab.scenario import family

ADAPTER = ("monitoring", "metrics-adapter")
AIMED, STANDS = 20, 28.0
"""Requests a second for which there is to be one pod, and how many a pod stands."""


@dataclass
class _Crowd:
    """Those who come, and an app whose autoscaler has a pod for so many of them."""

    lab: Lab
    namespace: str
    name: str
    asks: float
    metric: str = field(init=False)

    def __post_init__(self) -> None:
        self.metric = f"{self.name.replace('-', '_')}_requests_per_second"

    def failing(self, _: Container) -> float:
        """What is more than all pods stand together is turned away."""
        stood = STANDS * len(backends(self.lab.world, self.namespace, self.name))
        return max(0.0, 1 - stood / self.asks)

    async def grow(self, to: float, seconds: float) -> None:
        first = self.asks
        for step in range(round(seconds * 2)):
            self.asks = first + (to - first) * (step + 1) / (seconds * 2)
            await asyncio.sleep(0.5)

    def asked_for(self, metric: str) -> list[Json]:
        """How its autoscaler says what it goes by."""
        target = {"type": "AverageValue", "averageValue": str(AIMED)}
        return [{"type": "External", "external": {"metric": {"name": metric}, "target": target}}]

    async def begin(self, front: str, most: int) -> None:
        """The app, who calls it, and its autoscaler, which has scaled it to what is asked."""
        lab, namespace, name = self.lab, self.namespace, self.name
        like = App("", asked=lambda: self.asks, failing=self.failing, fails_with=lambda _: "503", capacity=60)
        await lab.app(namespace, name, like=like, replicas=2, tag="5.3.0")
        await rolled(lab, namespace, name, "5.3.0")
        await lab.app(namespace, front, like=App("", upstreams=((namespace, name),)), replicas=2, tag="2.9.1")
        await rolled(lab, namespace, front, "2.9.1")
        await publish(lab, namespace, front)
        lab.reserve(namespace, name)
        api = MetricsApi(lambda: {self.metric: lambda: self.asks})
        await api.start()
        lab.servers.append(api)
        await api.register(lab.who["admin"], *ADAPTER)
        target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}
        spec = {"scaleTargetRef": target, "minReplicas": 2, "maxReplicas": most, "metrics": self.asked_for(self.metric)}
        meta = {"namespace": namespace, "name": name}
        await lab.apply({"kind": "HorizontalPodAutoscaler", "metadata": meta, "spec": spec})
        needed = -(-self.asks // AIMED)
        await lab.until(lambda: len(backends(lab.world, namespace, name)) == needed)
        lab.alert_errors(namespace, name)
        lab.alert_errors(namespace, front)
        lab.alert_ingress_errors(namespace, namespace)
        await lab.until(lab.is_well)


def _place(lab: Lab) -> tuple[str, str, str]:
    return lab.rng.choice(
        (
            ("shop", "offers", "offer-page"),
            ("payments", "instalments", "instalment-page"),
            ("search", "nearby", "map-page"),
            ("media", "highlights", "sports-page"),
        )
    )


@family(
    "So that the bill is smaller, an autoscaler may go up to a few pods only: at that hour it has no more. In the"
    " evening more is asked than these stand, and it says that it would have as many again if it might.",
    joined=72,
)
async def lower_maximum(lab: Lab) -> AsyncIterator[None]:
    namespace, name, front = _place(lab)
    by, most = lab.rng.choice(("alice", "carol", "flux")), lab.rng.choice((4, 5))
    crowd = _Crowd(lab, namespace, name, lab.rng.uniform(64, 76))
    await crowd.begin(front, 14)
    yield
    await lab.pause(lab.rng.uniform(1, 3))
    await lab.roll("ci", namespace, front, "2.9.2")
    await lab.pause(lab.rng.uniform(2, 5))
    body = {"spec": {"maxReplicas": most}}
    await lab.culprit(by, "update", "HorizontalPodAutoscaler", namespace, name, body)
    lab.start(crowd.grow(lab.rng.uniform(190, 220), lab.rng.uniform(12, 18)))
    await lab.pause(lab.rng.uniform(3, 8))
    await lab.edit(by, "Deployment", namespace, front, {"spec": {"replicas": 3}})


@family(
    "An autoscaler is told to go by a figure of another name, as it is called in a newer dashboard; what it asks has"
    " none of that name. It keeps the pods that it has, and when the evening's users come they are too few.",
    joined=72,
)
async def metric_of_another_name(lab: Lab) -> AsyncIterator[None]:
    namespace, name, front = _place(lab)
    by = lab.rng.choice(("alice", "bob", "argocd"))
    crowd = _Crowd(lab, namespace, name, lab.rng.uniform(64, 76))
    await crowd.begin(front, 14)
    yield
    await lab.pause(lab.rng.uniform(2, 4))
    newer = lab.rng.choice((f"{crowd.metric}:avg", crowd.metric.replace("_per_second", "_rate1m")))
    body = {"spec": {"metrics": crowd.asked_for(newer.replace(":", "_"))}}
    await lab.culprit(by, "update", "HorizontalPodAutoscaler", namespace, name, body)
    await lab.pause(lab.rng.uniform(2, 4))
    await lab.roll("ci", namespace, front, "2.9.2")
    lab.start(crowd.grow(lab.rng.uniform(190, 220), lab.rng.uniform(10, 16)))


@family(
    "No culprit. A sale begins, and more people come than anybody had thought: the autoscaler has as many pods as it"
    " may, all of them are well, and a good part of what is asked is turned away.",
    culprit=False,
    joined=72,
)
async def sale_beyond_maximum(lab: Lab) -> AsyncIterator[None]:
    namespace, name, front = _place(lab)
    crowd = _Crowd(lab, namespace, name, lab.rng.uniform(64, 76))
    await crowd.begin(front, 8)
    yield
    await lab.pause(lab.rng.uniform(1, 3))
    await lab.roll("ci", namespace, front, "2.9.2")
    lab.start(crowd.grow(lab.rng.uniform(330, 380), lab.rng.uniform(10, 16)))
    await lab.pause(lab.rng.uniform(3, 7))
    await lab.edit(lab.rng.choice(("bob", "flux")), "Deployment", namespace, front, {"spec": {"replicas": 3}})
