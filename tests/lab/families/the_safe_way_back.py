"""The safe way back, and none that is needed yet: a rollback by habit, and a release that is well for a while."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from tests.lab import objects
from tests.lab.alerts import restarts
from tests.lab.apps import App, Container, Problem
from tests.lab.families.by_annotation import rolled
from tests.lab.families.not_in_mind import TEAMS, change_page, set_before
from tests.lab.families.sent_to_production import stored
from tests.lab.lab import Lab
from tests.lab.manifests import uid_of
from tests.lab.scenario import family


def _well(lab: Lab, app: App) -> list[Container]:
    """The containers of an app that run and are well."""
    return [one.container for one in lab.kubelets.running() if one.app is app and one.problem is None]


# -- what was written meanwhile

ASKED, STEP = 23.0, 0.5


@dataclass
class _Sessions:
    """What users have open is in a store, in the form of the version that wrote it last."""

    lab: Lab
    app: App
    new: str
    turned_over: float
    """Seconds within which each of them is written once more."""
    share: float = 0.0
    """Of what is in the store, that which the new version wrote."""

    async def run(self) -> None:
        """For ever. Who cannot read one cannot write it either: it stays as it is until its user gives up."""
        while True:
            await asyncio.sleep(STEP)
            there = _well(self.lab, self.app)
            part = sum(one.tag == self.new for one in there) / len(there) if there else 0.0
            written = part * (1 - self.share) / self.turned_over
            given_up = (1 - part) * self.share / (12 * self.turned_over)
            self.share += STEP * (written - given_up)

    def unread(self, container: Container) -> float:
        is_older = container.tag != self.new and container.seconds >= self.lab.lag
        return self.share if is_older else 0.0

    def failed(self) -> float:
        there = _well(self.lab, self.app)
        return ASKED * sum(map(self.unread, there)) / len(there) if there else 0.0


@family(
    "A release writes what users have open in the store of sessions in a new form; it reads both. In the afternoon a"
    " customer complains of something, and as a release was the last thing that happened it is rolled back, as always."
    " The older version cannot read what has been written since, and whoever had been there meanwhile gets an error.",
    joined=106,
)
async def back_by_habit(lab: Lab) -> AsyncIterator[None]:
    """As those tell whose handbook begins with: roll back first."""
    namespace, name, front, other, thrown = lab.rng.choice(
        (
            ("shop", "basket-sessions", "basket-view", "basket-mails", "InvalidClassException"),
            ("payments", "login-sessions", "login-page", "login-audit", "JsonMappingException"),
            ("media", "player-sessions", "player-view", "player-stats", "UnpicklingError"),
            ("search", "filter-sessions", "filter-view", "filter-stats", "InvalidProtocolBufferException"),
        )
    )
    by, minor = lab.rng.choice((*TEAMS, "ci", "argocd")), lab.rng.randrange(3, 50)
    old, new, store = f"4.{minor}.3", f"4.{minor + 1}.0", f"{name}-redis"
    like = App("", upstreams=((namespace, store),), asked=lambda: ASKED)
    sessions = _Sessions(lab, like, new, lab.rng.uniform(35, 60))
    like.failing = sessions.unread
    await stored(lab, namespace, store)
    await lab.apply(objects.config_map(namespace, name, LOG_LEVEL="info", SESSION_TTL="3600"))
    await lab.app(namespace, name, like=like, replicas=4, tag=old, config=name)
    await lab.apply(objects.config_map(namespace, other, LOG_LEVEL="info", EVERY="60s"))
    await lab.app(namespace, other, replicas=2, tag="2.2.0", config=other)
    await rolled(lab, namespace, name, old)
    await rolled(lab, namespace, other, "2.2.0")
    await set_before(lab, namespace, front, name)
    told = {"namespace": namespace, "service": name, "exception": thrown}
    lab.measure("session_read_errors_total", lab.adding_up(sessions.failed), "counter", **told)
    lab.start(sessions.run())
    for one in (name, front):
        lab.alert_errors(namespace, one)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(3, 7))
        await lab.edit(lab.rng.choice((*TEAMS, "flux")), "ConfigMap", namespace, other, {"data": {"EVERY": "45s"}})

    yield
    await lab.roll("argocd" if by == "argocd" else "ci", namespace, name, new)
    await rolled(lab, namespace, name, new)
    await lab.pause(lab.rng.uniform(9, 16))
    await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, other, "2.2.1")
    await lab.pause(lab.rng.uniform(6, 11))
    if lab.rng.random() < 0.5:
        await change_page(lab, namespace, front)
    else:
        longer = {"data": {"SESSION_TTL": "7200"}}
        await lab.edit(lab.rng.choice((*TEAMS, "flux")), "ConfigMap", namespace, name, longer)
    await lab.pause(lab.rng.uniform(3, 8))
    await lab.roll(by, namespace, name, old, culprit=True)
    lab.start(afterwards())


# -- well for a while


@dataclass
class _Buffers:
    """Each request leaves something behind in a process of the new version, which is never given back."""

    lab: Lab
    new: str
    limit: float
    """MiB that a container may have."""
    each: float
    """MiB that a request leaves there."""
    base: float = 130.0
    kept: dict[str, tuple[float, float]] = field(default_factory=dict)
    """Of each pod's process how old it was, and MiB that it kept by then."""
    rate: float = 26.0

    def memory(self, container: Container) -> float:
        """In MiB."""
        return self.base + self.kept.get(uid_of(container.pod), (0.0, 0.0))[1]

    def check(self, container: Container) -> Problem | None:
        has = self.memory(container)
        return Problem("oom", f"has {has:.0f}Mi, may have {self.limit:.0f}Mi") if has > self.limit else None

    async def run(self, app: App) -> None:
        """For ever: whoever was started anew begins with nothing, and those that are left get what it got."""
        while True:
            await asyncio.sleep(STEP)
            there = [one.container for one in self.lab.kubelets.running() if one.app is app]
            for one in there:
                age, kept = self.kept.get(uid_of(one.pod), (0.0, 0.0))
                if one.seconds < age:
                    kept = 0.0
                if one.tag == self.new and one.seconds >= self.lab.lag:
                    kept += STEP * self.each * self.rate / len(there) * self.lab.kubelets.rng.uniform(0.5, 1.5)
                self.kept[uid_of(one.pod)] = one.seconds, kept

    def most(self, app: App) -> float | None:
        """Bytes of the process that has most."""
        there = [one.container for one in self.lab.kubelets.running() if one.app is app]
        return max((self.memory(one) * 2**20 for one in there), default=None)


@family(
    "A new version of an app holds on to a buffer of each request that it has answered. It passes all tests and is well"
    " for a good while; others go on with their work. Then its pods are at their limit of memory one after another, are"
    " killed by the kernel and begin anew, and callers meet one that is just away.",
    joined=106,
)
async def buffers_never_given_back(lab: Lab) -> AsyncIterator[None]:
    """As those tell whose graph of memory has teeth like a saw."""
    namespace, name, front, other = lab.rng.choice(
        (
            ("shop", "image-proxy", "gallery-page", "gallery-feed"),
            ("payments", "pdf-invoices", "invoices-view", "invoice-mails"),
            ("media", "transcode-api", "studio-page", "studio-mails"),
            ("search", "snippet-api", "snippets-page", "snippet-cache"),
        )
    )
    by, minor, limit = lab.rng.choice(("ci", "argocd", "flux")), lab.rng.randrange(3, 50), 512.0
    old, new = f"2.{minor}.1", f"2.{minor + 1}.0"
    buffers = _Buffers(lab, new, limit, lab.rng.uniform(2.1, 2.9))
    like = App("", asked=lambda: buffers.rate, check=buffers.check)
    await lab.apply(objects.config_map(namespace, name, LOG_LEVEL="info", THREADS="16"))
    await lab.app(namespace, name, like=like, replicas=3, tag=old, config=name, memory=f"{limit:.0f}Mi")
    await lab.apply(objects.config_map(namespace, other, LOG_LEVEL="info", EVERY="60s"))
    await lab.app(namespace, other, replicas=2, tag="1.1.8", config=other)
    await rolled(lab, namespace, name, old)
    await rolled(lab, namespace, other, "1.1.8")
    await set_before(lab, namespace, front, name)
    told = {"namespace": namespace, "service": name, "container": name}
    lab.measure("container_memory_working_set_bytes", lambda: buffers.most(like), **told)
    lab.start(buffers.run(like))
    summary = f"containers of {namespace}/{name} were killed for want of memory again and again"
    killed = lambda: restarts(lab.world, namespace, name) >= 4  # noqa: E731
    lab.alert("KubeContainerOOMKilled", killed, summary, 4, namespace=namespace, container=name)
    lab.alert_errors(namespace, name)
    lab.alert_errors(namespace, front)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(7, 12))
        body = {"data": {"THREADS": lab.rng.choice(("12", "24"))}}
        await lab.edit(lab.rng.choice(TEAMS), "ConfigMap", namespace, name, body)
        await lab.pause(lab.rng.uniform(5, 9))
        await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, other, "1.1.9")
        await lab.pause(lab.rng.uniform(5, 9))
        await change_page(lab, namespace, front)

    yield
    await lab.edit(lab.rng.choice((*TEAMS, "flux")), "ConfigMap", namespace, other, {"data": {"EVERY": "30s"}})
    await lab.pause(lab.rng.uniform(3, 8))
    await lab.roll(by, namespace, name, new, culprit=True)
    lab.start(afterwards())
