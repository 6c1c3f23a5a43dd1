"""What one release finds of another: an entry of the cache they share, a message at the head of a queue."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from tests.lab import objects
from tests.lab.alerts import pods
from tests.lab.api import Json, now, path
from tests.lab.apps import App, Container, Process
from tests.lab.before import before
from tests.lab.families.between import publish
from tests.lab.lab import Lab
from tests.lab.manifests import images, is_ready
from tests.lab.network import backends
from tests.lab.programs import every
from tests.lab.scenario import family

CHANGED = "13.7."
"""How the tags begin of the releases that keep an object where the older ones keep a list."""
KEPT = timedelta(seconds=13)
ASKED = 0.9
"""The share of pages that show what is kept so."""
AT_ONCE, RUN_SECONDS = 10, 5.0
"""How many builds run at a time, and for how long each."""
BURST, OFTEN, ABORTED = (6, 10), 0.16, 0.05
"""How many builds a push brings, how likely one is in a second, and that somebody aborts one that waits."""
NEW_QUEUE = "1.61."


@dataclass
class _Entry:
    """In the cache that all releases share: whoever finds none there writes it, of the type that is its own."""

    lab: Lab
    namespace: str
    names: tuple[str, str]
    is_object: bool = False
    until: datetime = field(default_factory=now)

    async def run(self) -> None:
        while True:
            await asyncio.sleep(0.5)
            found = [pod for name in self.names for pod in pods(self.lab.world, self.namespace, name) if is_ready(pod)]
            if found and now() > self.until:
                writer = images(self.lab.kubelets.rng.choice(found))[0]
                self.is_object, self.until = writer.rsplit(":", 1)[1].startswith(CHANGED), now() + KEPT

    def failing(self, container: Container) -> float:
        """What is no type of its own has no such method; and nobody divides by nothing."""
        is_other = container.tag.startswith(CHANGED) is not self.is_object
        return ASKED if is_other or container.config.get("HIGHLIGHTS_PER_PAGE") == "0" else 0.0


@family(
    "A release keeps an object in the cache where the one before kept a list, under the same key. It is tried on a few"
    " pods first: these and all others find what the other ones have written, and fail on it.",
    joined=26,
)
async def cached_type(lab: Lab) -> AsyncIterator[None]:
    """As GitLab tells of its staging, 4 December 2020 (production 3144)."""
    namespace, name = lab.rng.choice((("shop", "storefront"), ("media", "portal"), ("search", "pages")))
    canary, team = f"{name}-canary", lab.rng.choice(("alice", "bob"))
    entry = _Entry(lab, namespace, (name, canary))
    cache = f"{name}-redis"
    await lab.app(namespace, cache, like=App("", serves=False), kind="StatefulSet", replicas=1)
    await lab.apply(objects.config_map(namespace, name, LOG_LEVEL="info", HIGHLIGHTS_PER_PAGE="5"))
    for one, replicas in ((name, 4), (canary, 2)):
        like = App("", upstreams=((namespace, cache),), failing=entry.failing)
        await lab.app(namespace, one, like=like, replicas=replicas, config=name, tag="13.6.4")
    await lab.until(lambda: len(backends(lab.world, namespace, name)) == 4 and backends(lab.world, namespace, canary))
    await publish(lab, namespace, name)
    lab.start(entry.run())
    for one in (name, canary):
        lab.alert_errors(namespace, one)
    lab.alert_ingress_errors(namespace, namespace)
    async with before(lab, days=lab.rng.randrange(12, 26)) as then:
        none = await lab.edit(team, "ConfigMap", namespace, name, {"data": {"HIGHLIGHTS_PER_PAGE": "0"}})
        await then.fires()
        await lab.edit(team, "ConfigMap", namespace, name, {"data": {"HIGHLIGHTS_PER_PAGE": "5"}})
        await then.is_well()
        then.judge(none, "it")
    yield
    await lab.edit(team, "ConfigMap", namespace, name, {"data": {"HIGHLIGHTS_PER_PAGE": "8"}})
    await lab.pause(lab.rng.uniform(7, 11))
    await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, canary, f"{CHANGED}0", culprit=True)


@dataclass
class _Builds:
    """What runs builds, so many at a time; all others wait in a queue, which outlives its processes."""

    namespace: str
    image: str
    queue: list[tuple[str, datetime]] = field(default_factory=list)
    aborted: set[str] = field(default_factory=set)
    """Of those that wait; nothing else is known of them any more."""
    made: int = 0

    def oldest(self) -> float:
        """For how many seconds somebody waits."""
        return max(
            ((now() - since).total_seconds() for name, since in self.queue if name not in self.aborted), default=0
        )

    async def turn(self, process: Process) -> None:
        """New ones begin at once where there is room; then it is the turn of who waits."""
        where = path("Pod", self.namespace)
        listed = await process.api.call("GET", f"{where}?labelSelector=corp.example/build")
        room = AT_ONCE
        for pod in listed.body.get("items", []):
            if pod["status"].get("phase") == "Succeeded":
                await process.api.call("DELETE", f"{where}/{pod['metadata']['name']}", {"gracePeriodSeconds": 0})
            else:
                room -= 1
        for _ in range(process.rng.randint(*BURST) if process.rng.random() < OFTEN else 0):
            self.made += 1
            name = f"build-{self.made:05}"
            if room > 0:
                room -= await self._start(process, name)
            else:
                self.queue.append((name, now()))
        self.aborted |= {name for name, _ in self.queue if process.rng.random() < ABORTED}
        while room > 0 and self.queue:
            name, _ = self.queue[0]
            if name in self.aborted and process.tag.startswith(NEW_QUEUE):
                return  # there is nothing to take a lock on: it goes back to the head
            del self.queue[0]
            if name not in self.aborted:
                room -= await self._start(process, name)

    async def _start(self, process: Process, name: str) -> bool:
        resources = {"requests": {"cpu": "200m", "memory": "128Mi"}}
        body: Json = {
            "metadata": {"name": name, "labels": {"corp.example/build": name}},
            "spec": {
                "restartPolicy": "Never",
                "containers": [{"name": "runner", "image": f"{self.image}:2.0.0", "resources": resources}],
            },
        }
        return (await process.api.call("POST", path("Pod", self.namespace), body)).ok


@family(
    "A release changes how builds that wait are taken from their queue: one that was aborted meanwhile cannot be locked"
    " and goes back to the head, again and again. Whoever waits behind it waits for ever; new ones run.",
    joined=26,
)
async def aborted_head(lab: Lab) -> AsyncIterator[None]:
    """As Harness tells of 3 December 2025."""
    namespace, manager = lab.rng.choice((("builds", "ci-manager"), ("pipelines", "run-dispatcher")))
    image = f"registry.corp.example/{namespace}/runner"
    store, builds = f"{manager}-redis", _Builds(namespace, image)
    await lab.namespace(namespace)
    lab.apps[image] = App(image, ends_after=RUN_SECONDS, serves=False)
    await lab.app("platform", store, like=App("", serves=False), kind="StatefulSet", replicas=1)
    turns = every(1, builds.turn)
    upstreams = (("platform", store),)
    rules = ("", "pods", "list,create,delete")
    await lab.controller("platform", manager, turns, rules, upstreams=upstreams, replicas=1, tag="1.60.3")
    await lab.until(lambda: builds.made)
    lab.measure("builds_queued", lambda: len(builds.queue), namespace="platform", service=manager)
    lab.measure("builds_queued_oldest_seconds", builds.oldest, namespace="platform", service=manager)
    summary = "a build has been waiting for long"
    lab.alert("BuildsQueuedForLong", lambda: builds.oldest() > 28, summary, 4, namespace="platform", service=manager)
    yield
    by = lab.rng.choice(("argocd", "ci", "flux"))
    await lab.roll(by, "platform", manager, f"{NEW_QUEUE}0", culprit=True)
