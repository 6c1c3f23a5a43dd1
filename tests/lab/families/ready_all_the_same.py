"""Ready all the same, and of little use to who calls them: at another port, and throttled."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from tests.lab import objects
from tests.lab.api import Json
from tests.lab.apps import App, Container, millicores
from tests.lab.families.by_annotation import rolled
from tests.lab.families.not_in_mind import TEAMS, change_page, set_before
from tests.lab.families.up_to_a_limit import Day
from tests.lab.lab import Lab
from tests.lab.network import backends
from tests.lab.scenario import family

# -- a port


@family(
    "A new version of an app listens at another port than before. Its probe, a command within the container, goes along"
    " with it, and the Service does not: its pods are ready, and whoever calls them is refused.",
    joined=100,
)
async def at_another_port(lab: Lab) -> AsyncIterator[None]:
    """As those tell who asked the pod itself, and were answered."""
    namespace, name, front, other = lab.rng.choice(
        (
            ("shop", "coupon-api", "coupons-page", "coupons-import"),
            ("payments", "plan-quotes", "plans-view", "plans-export"),
            ("media", "credits-api", "credits-page", "credits-index"),
            ("search", "synonyms-api", "synonyms-page", "synonyms-build"),
        )
    )
    by, minor = lab.rng.choice(("ci", "argocd", "flux", *TEAMS)), lab.rng.randrange(2, 40)
    old, new, port = f"4.{minor}.3", lab.rng.choice((f"4.{minor + 1}.0", "5.0.0")), lab.rng.choice((80, 3000, 8000))
    is_told, is_declared = lab.rng.random() < 0.5, lab.rng.random() < 0.5

    def is_missed(container: Container) -> bool:
        [sent] = lab.world["Service"][namespace, name]["spec"]["ports"]
        return bool(sent["targetPort"] != (port if container.tag == new else 8080))

    def manifest(at: int, *, env: bool, declared: bool) -> dict[str, Any]:
        probe = {"exec": {"command": ["/app/healthcheck"]}, "periodSeconds": 5}
        further: dict[str, Any] = {"env": [{"name": "PORT", "value": str(at)}]} if env else {}
        return {"readinessProbe": probe, **({"ports": [{"containerPort": at}]} if declared else {}), **further}

    await lab.apply(objects.config_map(namespace, name, LOG_LEVEL="info", PAGE_SIZE="50"))
    like = App("", asked=lambda: 26.0, deaf=is_missed)
    await lab.app(namespace, name, like=like, replicas=3, tag=old, config=name)
    await lab.until(lambda: (namespace, name) in lab.world["Deployment"])
    await lab.roll("admin", namespace, name, old, **manifest(8080, env=is_told, declared=is_declared))
    await lab.apply(objects.config_map(namespace, other, LOG_LEVEL="info", EVERY="60s"))
    await lab.app(namespace, other, replicas=2, tag="1.0.9", config=other)
    await rolled(lab, namespace, name, old)
    await rolled(lab, namespace, other, "1.0.9")
    await lab.until(lambda: len(backends(lab.world, namespace, name)) == 3)
    await set_before(lab, namespace, front, name)
    for one in (name, front):
        lab.alert_errors(namespace, one)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(3, 8))
        await change_page(lab, namespace, front)

    yield
    await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, other, "1.1.0")
    await lab.pause(lab.rng.uniform(4, 9))
    size = {"data": {"PAGE_SIZE": lab.rng.choice(("40", "60"))}}
    await lab.edit(lab.rng.choice((*TEAMS, "flux")), "ConfigMap", namespace, name, size)
    await lab.pause(lab.rng.uniform(5, 10))
    await lab.roll(by, namespace, name, new, culprit=True, **manifest(port, env=is_told, declared=is_declared))
    lab.start(afterwards())


# -- of a processor's time

IDLE_M, LONGEST_SECONDS = 60.0, 3.0
"""Thousandths of a processor that a process uses which is asked nothing, and for how long a caller waits."""


@dataclass
class _Throttled:
    """Processes that may use only so much of a processor in each tenth of a second, and then stand still."""

    lab: Lab
    namespace: str
    name: str
    day: Day
    each: float
    """Thousandths of a processor for a request a second."""

    def needs(self) -> float:
        """Thousandths, of each of them."""
        return IDLE_M + self.each * self.day.asked / max(1, len(backends(self.lab.world, self.namespace, self.name)))

    def used(self, container: Container) -> float:
        """What it needs of what it may have; requests do not come evenly."""
        limit = container.spec["resources"]["limits"].get("cpu")
        is_felt = limit and container.seconds >= self.lab.lag
        return self.needs() / millicores(limit) if is_felt else 0.0

    def waits(self, container: Container) -> float:
        used = self.used(container)
        return min(LONGEST_SECONDS, 0.2 * max(0.0, used - 0.6) / max(0.04, 1 - used))

    def fails(self, container: Container) -> float:
        """Whoever waits for longer than a caller does."""
        return min(0.9, max(0.0, 1 - 1 / max(self.used(container), 0.01)))

    def most(self) -> float:
        """The share of its periods in which that process stood still that did so most."""
        image = f"registry.corp.example/{self.namespace}/{self.name}"
        there = (one.container for one in self.lab.kubelets.running() if one.app.image == image)
        return min(0.98, max((max(0.0, 1.6 * (self.used(one) - 0.5)) for one in there), default=0.0))


def _room(cpu: str, requested: str) -> Json:
    return {"requests": {"cpu": requested, "memory": "128Mi"}, "limits": {"cpu": cpu, "memory": "256Mi"}}


@family(
    "To save costs the CPU limits of some apps are lowered, by what they use on average. One of them uses little for"
    " most of the time and much where requests come together: it is throttled in between, and answers late.",
    joined=100,
)
async def stands_still_in_between(lab: Lab) -> AsyncIterator[None]:
    """As those tell whose graph of the processor has never been flatter."""
    namespace, name, front, other = lab.rng.choice(
        (
            ("shop", "price-engine", "prices-page", "price-feed"),
            ("payments", "risk-score", "risk-page", "risk-report"),
            ("media", "thumb-server", "thumbs-page", "thumb-stats"),
            ("search", "spell-server", "spell-view", "spell-build"),
        )
    )
    by, minor, replicas = lab.rng.choice((*TEAMS, "argocd", "flux")), lab.rng.randrange(2, 40), lab.rng.choice((3, 4))
    (before, after), tag, day = (
        lab.rng.choice((("1", "300m"), ("2", "500m"), ("800m", "200m"))),
        f"9.{minor}.0",
        Day(24),
    )
    least = lab.rng.uniform(0.93, 1.15)
    cpu = _Throttled(lab, namespace, name, day, (least * millicores(after) - IDLE_M) * replicas / day.asked)
    peak = day.asked * lab.rng.uniform(1.1, 1.35)
    await lab.apply(objects.config_map(namespace, name, LOG_LEVEL="info", BATCH="20"))
    like = App("", asked=lambda: day.asked, latency=cpu.waits, failing=cpu.fails, fails_with=lambda _: "504")
    await lab.app(namespace, name, like=like, replicas=replicas, tag=tag, config=name)
    await lab.apply(objects.config_map(namespace, other, LOG_LEVEL="info", EVERY="60s"))
    await lab.app(namespace, other, replicas=2, tag="1.6.0", config=other)
    for one, version in ((name, tag), (other, "1.6.0")):
        await lab.until(lambda one=one: (namespace, one) in lab.world["Deployment"])  # type: ignore[misc]
        await lab.roll("admin", namespace, one, version, resources=_room(before, "200m"))
        await rolled(lab, namespace, one, version)
    await lab.until(lambda: len(backends(lab.world, namespace, name)) == replicas)
    await set_before(lab, namespace, front, name)
    told = {"namespace": namespace, "service": name, "container": name}
    lab.measure("container_cpu_cfs_periods_total", lab.adding_up(lambda: 10.0), "counter", **told)
    stood = lab.adding_up(lambda: 10 * cpu.most())
    lab.measure("container_cpu_cfs_throttled_periods_total", stood, "counter", **told)
    if lab.rng.random() < 0.4:
        summary = f"{namespace}/{name} is throttled in more than half of its periods"
        lab.alert("CPUThrottlingHigh", lambda: cpu.most() > 0.5, summary, 12, namespace=namespace, container=name)
    for one in (name, front):
        lab.alert_slow(namespace, one)
        lab.alert_errors(namespace, one)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)

    async def afterwards() -> None:
        lab.start(day.rise(peak, lab.rng.uniform(8, 18)))
        await lab.pause(lab.rng.uniform(3, 8))
        await change_page(lab, namespace, front)

    yield
    await lab.edit(lab.rng.choice((*TEAMS, "flux")), "ConfigMap", namespace, name, {"data": {"BATCH": "25"}})
    await lab.pause(lab.rng.uniform(4, 9))
    await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, name, f"9.{minor}.1")
    await lab.pause(lab.rng.uniform(7, 12))
    await lab.roll(by, namespace, other, "1.6.0", resources=_room(after, "100m"))  # of the same list
    await lab.pause(lab.rng.uniform(1, 4))
    await lab.roll(by, namespace, name, f"9.{minor}.1", culprit=True, resources=_room(after, "100m"))
    lab.start(afterwards())
