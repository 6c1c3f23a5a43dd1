"""Fewer than come: an autoscaler beside a manifest with a number of its own, and one that may not go far enough."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from tests.lab import objects
from tests.lab.api import Json
from tests.lab.apps import App, Container
from tests.lab.families.by_annotation import rolled
from tests.lab.families.not_in_mind import TEAMS, change_page, set_before
from tests.lab.lab import Lab
from tests.lab.manifests import images
from tests.lab.metrics_api import PodMetricsApi
from tests.lab.network import backends
from tests.lab.scenario import family

METRICS = ("kube-system", "metrics-server")
STANDS, USES_M, AIMED_PERCENT = 20.0, 5.0, 60
"""Requests a second that a pod stands, thousandths of a processor for each, and the share that is aimed at."""
LONGEST_WAIT, MOST_LOST = 2.0, 0.9


@dataclass
class Crowd:
    """Those who come, and an app whose autoscaler goes by what its pods use of a processor."""

    lab: Lab
    namespace: str
    name: str
    asked: float
    image: str = field(init=False)

    def __post_init__(self) -> None:
        self.image = f"registry.corp.example/{self.namespace}/{self.name}"

    def there(self) -> int:
        return len(backends(self.lab.world, self.namespace, self.name))

    def load(self) -> float:
        """What comes, as a share of what is stood."""
        return self.asked / (STANDS * max(1, self.there()))

    def uses(self, pod: Json) -> float:
        """Thousandths of a processor."""
        is_ours = images(pod)[0].rsplit(":", 1)[0] == self.image
        return USES_M * STANDS * min(1.0, self.load()) if is_ours else 8.0

    def turned_away(self, _: Container) -> float:
        return min(MOST_LOST, max(0.0, 1 - 1 / max(self.load(), 0.01)))

    def waits(self, _: Container) -> float:
        return min(LONGEST_WAIT, max(0.0, 4 * (self.load() - 0.95)))

    async def grow(self, to: float, seconds: float) -> None:
        first = self.asked
        for step in range(round(seconds * 2)):
            self.asked = first + (to - first) * (step + 1) / (seconds * 2)
            await asyncio.sleep(0.5)

    async def begin(self, front: str, other: str, tag: str, most: int, starts_seconds: float) -> None:
        """The app, as many of it as its autoscaler has made, a page before it and another app of the team."""
        lab, namespace, name = self.lab, self.namespace, self.name
        server, image = PodMetricsApi(lab.world, self.uses), f"registry.corp.example/{'/'.join(METRICS)}"
        lab.apps[image] = App(image, serves=False)
        await lab.apply(objects.deployment(*METRICS, f"{image}:0.7.2", replicas=1))
        await rolled(lab, *METRICS, "0.7.2")
        await server.start()
        lab.servers.append(server)
        await server.register(lab.who["admin"], *METRICS)
        await lab.apply(objects.config_map(namespace, name, LOG_LEVEL="info", BATCH="20"))
        like = App("", asked=lambda: self.asked, failing=self.turned_away, latency=self.waits, capacity=60)
        like.fails_with, like.start_seconds = lambda _: "503", starts_seconds
        await lab.app(namespace, name, like=like, replicas=2, tag=tag, config=name)
        await lab.apply(objects.config_map(namespace, other, LOG_LEVEL="info", EVERY="60s"))
        await lab.app(namespace, other, replicas=2, tag="1.4.2", config=other)
        await rolled(lab, namespace, name, tag)
        await rolled(lab, namespace, other, "1.4.2")
        await set_before(lab, namespace, front, name)
        target = {"type": "Utilization", "averageUtilization": AIMED_PERCENT}
        spec = {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
            "minReplicas": 2,
            "maxReplicas": most,
            "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": target}}],
        }
        meta = {"namespace": namespace, "name": name}
        await lab.apply({"kind": "HorizontalPodAutoscaler", "metadata": meta, "spec": spec})
        needed = self.asked * USES_M / AIMED_PERCENT
        await lab.until(lambda: self.there() >= 0.9 * needed)
        for one in (name, front):
            lab.alert_errors(namespace, one)
        lab.alert_slow(namespace, name)
        lab.alert_ingress_errors(namespace, namespace)
        await lab.until(lab.is_well)


# -- a manifest that says two


@family(
    "An app has an autoscaler, and its manifest says two replicas all the same. Whenever that is applied in a busy hour"
    " the others are taken away, and the autoscaler begins at two again.",
    joined=94,
)
async def two_in_the_manifest(lab: Lab) -> AsyncIterator[None]:
    """As those tell whose graph of replicas is a saw in each week with many releases."""
    namespace, name, front, other = lab.rng.choice(
        (
            ("shop", "price-api", "price-page", "price-feed"),
            ("payments", "quote-api", "quote-view", "quote-mails"),
            ("media", "stream-keys", "live-page", "live-stats"),
            ("search", "hits-api", "hits-page", "hits-export"),
        )
    )
    by, minor = lab.rng.choice(("flux", "ci", "argocd")), lab.rng.randrange(2, 40)
    crowd = Crowd(lab, namespace, name, lab.rng.uniform(94, 118))
    await crowd.begin(front, other, f"3.{minor}.0", 14, lab.rng.uniform(3, 5))

    async def apply(patch: int, *, culprit: bool = False) -> None:
        """All that the manifest says: the release, and the number. Raises RefusedError."""
        there = lab.world["Deployment"][namespace, name]["spec"]["template"]["spec"]["containers"][0]
        container = {**there, "image": f"{crowd.image}:3.{minor}.{patch}"}
        body = {"spec": {"replicas": 2, "template": {"spec": {"containers": [container]}}}}
        if culprit:
            await lab.culprit(by, "update", "Deployment", namespace, name, body)
        else:
            why = "the same manifest, which is applied once more and takes the others away again"
            await lab.also(why, by, "update", "Deployment", namespace, name, body)

    async def afterwards() -> None:
        """Flux applies it each ten minutes, a pipeline with the next release."""
        await lab.pause(lab.rng.uniform(4, 7))
        await change_page(lab, namespace, front)
        for patch in (2, 3, 4):
            await lab.pause(10 if by == "flux" else lab.rng.uniform(11, 19))
            await apply(1 if by == "flux" else patch)

    yield
    await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, other, "1.4.3")
    await lab.pause(lab.rng.uniform(5, 11))
    await lab.edit(lab.rng.choice(TEAMS), "ConfigMap", namespace, name, {"data": {"BATCH": "30"}})
    await lab.pause(lab.rng.uniform(3, 8))
    await apply(1, culprit=True)
    lab.start(afterwards())


# -- a maximum


def _is_at_its_maximum(lab: Lab, namespace: str, name: str) -> bool:
    found = lab.world["HorizontalPodAutoscaler"].get((namespace, name), {})
    most = found.get("spec", {}).get("maxReplicas")
    return most is not None and found.get("status", {}).get("currentReplicas") == most


@family(
    "The bill is to be smaller, and an autoscaler gets a lower maximum at an hour when its app is far from either. In"
    " the evening as many come as on each day, and the app may not grow as it does each day.",
    joined=94,
)
async def ceiling_before_the_evening(lab: Lab) -> AsyncIterator[None]:
    """As those tell who had looked at the graph of the morning."""
    namespace, name, front, other = lab.rng.choice(
        (
            ("shop", "recommender", "ideas-page", "ideas-mails"),
            ("payments", "fees-api", "fees-page", "fees-report"),
            ("media", "epg-api", "tonight-page", "epg-import"),
            ("search", "trends-api", "trends-page", "trends-report"),
        )
    )
    by, minor, lower = lab.rng.choice((*TEAMS, "flux", "argocd")), lab.rng.randrange(2, 40), lab.rng.choice((5, 6))
    crowd = Crowd(lab, namespace, name, lab.rng.uniform(34, 41))
    await crowd.begin(front, other, f"6.{minor}.0", lab.rng.choice((18, 16)), lab.rng.uniform(1.5, 2.5))
    told = {"namespace": namespace, "horizontalpodautoscaler": name}
    is_maxed = lambda: _is_at_its_maximum(lab, namespace, name)  # noqa: E731
    lab.alert("KubeHpaMaxedOut", is_maxed, f"HPA {namespace}/{name} has been at its maximum for a while", 15, **told)

    async def evening() -> None:
        await lab.pause(lab.rng.uniform(3, 9))
        await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, other, "1.4.3")
        await lab.pause(lab.rng.uniform(3, 9))
        lab.start(crowd.grow(lab.rng.uniform(140, 175), lab.rng.uniform(26, 32)))
        await lab.pause(lab.rng.uniform(4, 12))
        await change_page(lab, namespace, front)

    yield
    await lab.edit(lab.rng.choice((*TEAMS, "flux")), "ConfigMap", namespace, name, {"data": {"BATCH": "25"}})
    await lab.pause(lab.rng.uniform(4, 10))
    body = {"spec": {"maxReplicas": lower}}
    await lab.culprit(by, "update", "HorizontalPodAutoscaler", namespace, name, body)
    lab.start(evening())
