"""Killed for its memory: a release that gives back less than it takes, and a limit that was too high at night."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from zlib import crc32

from tests.lab import objects
from tests.lab.alerts import restarts
from tests.lab.api import Json
from tests.lab.apps import App, Container, Problem, mebibytes
from tests.lab.families.by_annotation import rolled
from tests.lab.families.not_in_mind import TEAMS, change_page, set_before
from tests.lab.lab import Lab
from tests.lab.manifests import image_of, uid_of
from tests.lab.scenario import family

MIB = 2.0**20
NEAR = 0.9
"""The share of its limit from which on a container is said to be near it."""


def _own(container: Container) -> float:
    """No two processes are alike: how much more or less of something this one takes."""
    return 0.85 + crc32(uid_of(container.pod).encode()) % 31 / 100


def _limit(container: Container) -> str:
    return str(container.spec["resources"]["limits"]["memory"])


def _killed(needs: Callable[[Container], float]) -> Callable[[Container], Problem | None]:
    """By the kernel, once a container has more than its limit."""

    def check(container: Container) -> Problem | None:
        much, limit = needs(container), _limit(container)
        is_over = much > mebibytes(limit)
        return Problem("oom", f"needs {much:.0f}Mi, may have {limit}", at_once=True) if is_over else None

    return check


def _watch_memory(lab: Lab, namespace: str, name: str, needs: Callable[[Container], float], *, is_near: bool) -> None:
    """What a company measures of an app's memory, and the rules that it has of it."""
    image = f"registry.corp.example/{namespace}/{name}"

    def there() -> list[Container]:
        return [one.container for one in lab.kubelets.running() if image_of(one.container.pod) == image]

    def most() -> float:
        """Bytes of that process that has most."""
        return MIB * max((min(needs(one), mebibytes(_limit(one))) for one in there()), default=0)

    def near() -> bool:
        return any(needs(one) > NEAR * mebibytes(_limit(one)) for one in there())

    lab.measure("container_memory_working_set_bytes", most, namespace=namespace, service=name, container=name)
    many = lambda: restarts(lab.world, namespace, name) >= 2  # noqa: E731
    summary = f"containers of {namespace}/{name} have been killed for their memory"
    lab.alert("KubernetesContainerOomKiller", many, summary, 3, namespace=namespace, container=name)
    if is_near:
        summary = f"a container of {namespace}/{name} uses more than {NEAR:.0%} of its memory limit"
        lab.alert("ContainerHighMemoryUtilization", near, summary, 8, namespace=namespace, container=name)
    lab.alert_lacking(namespace, name, seconds=12)
    lab.alert_errors(namespace, name, 0.1)
    lab.alert_ingress_errors(namespace, namespace, 0.1)


# -- a release

FRESH_MIB = (150.0, 220.0)
"""What a process has once it is up, at least and at most."""


@family(
    "A new version of an app keeps a little of each request for ever. All is well with its rollout; some time later"
    " the first of its pods has as much as it may, and is killed, and then the others, one by one, and each again.",
    joined=98,
)
async def kept_until_killed(lab: Lab) -> AsyncIterator[None]:
    """As those tell whose graph of memory is a saw, since Tuesday."""
    namespace, name, front, other = lab.rng.choice(
        (
            ("shop", "price-quotes", "quotes-page", "quotes-mails"),
            ("payments", "receipt-api", "receipt-page", "receipt-export"),
            ("media", "waveforms", "waveform-view", "waveform-import"),
            ("search", "facet-api", "facets-page", "facets-warmup"),
        )
    )
    by, minor, replicas = lab.rng.choice(("ci", "argocd", "flux")), lab.rng.randrange(2, 40), lab.rng.choice((3, 4))
    limit, fresh, lasts = lab.rng.choice((384, 512, 768)), lab.rng.uniform(*FRESH_MIB), lab.rng.uniform(30, 46)
    old, new = f"5.{minor}.2", f"5.{minor + 1}.0"

    def needs(container: Container) -> float:
        """It is asked as much all the time, and so grows as much each second."""
        kept = (limit - fresh) / lasts * _own(container) if container.tag != old else 0.0
        return fresh + kept * max(0.0, container.seconds - lab.lag)

    await lab.apply(objects.config_map(namespace, name, LOG_LEVEL="info", PAGE_LIMIT="100"))
    like = App("", asked=lambda: 26.0, check=_killed(needs))
    await lab.app(namespace, name, like=like, replicas=replicas, tag=old, config=name, memory=f"{limit}Mi")
    await lab.apply(objects.config_map(namespace, other, LOG_LEVEL="info", EVERY="60s"))
    await lab.app(namespace, other, replicas=2, tag="1.3.6", config=other)
    await rolled(lab, namespace, name, old)
    await rolled(lab, namespace, other, "1.3.6")
    await set_before(lab, namespace, front, name)
    _watch_memory(lab, namespace, name, needs, is_near=lab.rng.random() < 0.5)
    await lab.until(lab.is_well)

    async def meanwhile() -> None:
        """The day goes on, as nobody sees anything yet."""
        await lab.pause(lab.rng.uniform(5, 11))
        await change_page(lab, namespace, front)
        await lab.pause(lab.rng.uniform(4, 9))
        limit_of = {"data": {"PAGE_LIMIT": lab.rng.choice(("50", "80", "120"))}}
        await lab.edit(lab.rng.choice((*TEAMS, "flux")), "ConfigMap", namespace, name, limit_of)
        await lab.pause(lab.rng.uniform(4, 9))
        await lab.edit(lab.rng.choice(TEAMS), "ConfigMap", namespace, other, {"data": {"EVERY": "45s"}})

    yield
    await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, other, "1.3.7")
    await lab.pause(lab.rng.uniform(3, 8))
    await lab.roll(by, namespace, name, new, culprit=True)
    lab.start(meanwhile())


# -- a limit


@dataclass
class _Day:
    """How often a second an app is asked: by night, and at the peak of the day."""

    lab: Lab
    asked: float

    async def rise(self, to: float, seconds: float) -> None:
        first = self.asked
        for step in range(round(seconds * 2)):
            self.asked = first + (to - first) * (step + 1) / (seconds * 2)
            await asyncio.sleep(0.5)


@family(
    "To save costs the memory of some apps is lowered, by what they used in the hours that somebody looked at. One of"
    " them needs more at the peak of the day, when more is asked of it at once: its pods are killed, and those that are"
    " left get what those were asked.",
    joined=98,
)
async def less_than_at_its_peak(lab: Lab) -> AsyncIterator[None]:
    """As those tell who had been sent a list of what they could save."""
    namespace, name, front, other = lab.rng.choice(
        (
            ("shop", "cart-totals", "totals-page", "totals-mails"),
            ("payments", "fee-engine", "fees-page", "fees-report"),
            ("media", "poster-maker", "poster-page", "poster-feed"),
            ("search", "result-merge", "merge-page", "merge-stats"),
        )
    )
    by, minor, replicas = lab.rng.choice((*TEAMS, "argocd", "flux")), lab.rng.randrange(2, 40), lab.rng.choice((3, 4))
    tag, night, idle = f"8.{minor}.1", lab.rng.uniform(18, 24), lab.rng.uniform(110, 150)
    before, after = lab.rng.choice((("768Mi", "384Mi"), ("1Gi", "448Mi"), ("640Mi", "320Mi")))
    peak, day = lab.rng.uniform(2.6, 3.2), _Day(lab, night)
    each = (mebibytes(after) * lab.rng.uniform(1.15, 1.3) - idle) / (peak * night / replicas)
    """MiB for each request a second: at the peak a little more than it may have by the new limit."""

    def needs(container: Container) -> float:
        there = sum(one.app is like for one in lab.kubelets.running())
        warm = min(1.0, container.seconds / 4)
        return idle + each * warm * _own(container) * day.asked / max(2, there)

    def room(much: str, *, cpu: str = "100m") -> Json:
        return {"requests": {"cpu": cpu, "memory": much}, "limits": {"memory": much}}

    await lab.apply(objects.config_map(namespace, name, LOG_LEVEL="info", BATCH="20"))
    like = App("", asked=lambda: day.asked, check=_killed(needs))
    await lab.app(namespace, name, like=like, replicas=replicas, tag=tag, config=name, memory=before)
    await lab.until(lambda: (namespace, name) in lab.world["Deployment"])
    await lab.roll("admin", namespace, name, tag, resources=room(before))
    await lab.apply(objects.config_map(namespace, other, LOG_LEVEL="info", EVERY="60s"))
    await lab.app(namespace, other, replicas=2, tag="1.6.0", config=other)
    await lab.until(lambda: (namespace, other) in lab.world["Deployment"])
    await lab.roll("admin", namespace, other, "1.6.0", resources=room("512Mi"))
    await rolled(lab, namespace, name, tag)
    await rolled(lab, namespace, other, "1.6.0")
    await set_before(lab, namespace, front, name)
    _watch_memory(lab, namespace, name, needs, is_near=lab.rng.random() < 0.4)
    await lab.until(lab.is_well)

    async def peaks() -> None:
        await lab.pause(lab.rng.uniform(5, 11))
        await change_page(lab, namespace, front)
        await lab.pause(lab.rng.uniform(3, 8))
        lab.start(day.rise(peak * night, lab.rng.uniform(18, 28)))
        await lab.pause(lab.rng.uniform(5, 12))
        await lab.edit(lab.rng.choice((*TEAMS, "flux")), "ConfigMap", namespace, name, {"data": {"BATCH": "25"}})

    yield
    await lab.edit(lab.rng.choice((*TEAMS, "flux")), "ConfigMap", namespace, other, {"data": {"EVERY": "90s"}})
    await lab.pause(lab.rng.uniform(4, 9))
    if lab.rng.random() < 0.6:  # of the same list, and does no harm
        await lab.roll(by, namespace, other, "1.6.0", resources=room("256Mi"))
        await lab.pause(lab.rng.uniform(1, 4))
    await lab.roll(by, namespace, name, tag, culprit=True, resources=room(after))
    lab.start(peaks())
