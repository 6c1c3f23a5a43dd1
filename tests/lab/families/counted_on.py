"""Counted on by others: a column of a table, and the moments that a pod goes on for after it was told to end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from tests.lab import objects
from tests.lab.alerts import pods
from tests.lab.api import Json, now
from tests.lab.apps import App, Container
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.families.more_than_was_meant import Lately
from tests.lab.families.not_in_mind import TEAMS, change_page, set_before
from tests.lab.families.sent_to_production import stored
from tests.lab.lab import Lab
from tests.lab.manifests import is_done, is_ready, sleeps_before_end, uid_of
from tests.lab.network import backends
from tests.lab.scenario import family

# -- a column

ASKED = 20.0


@dataclass
class _Table:
    """Of an app's database, by a column of which others read; a migration takes it away for good."""

    lab: Lab
    namespace: str
    migration: str
    """The Job of it, or "" where the app's new version does it at its start."""
    owner: App
    new: str
    was_dropped: bool = False
    is_felt: Lately = field(init=False)

    def __post_init__(self) -> None:
        self.is_felt = Lately(self.lab, self.is_dropped)

    def is_dropped(self) -> bool:
        if self.migration:
            through = any(is_done(pod) for pod in pods(self.lab.world, self.namespace, self.migration))
        else:
            there = (one.container for one in self.lab.kubelets.running() if one.app is self.owner)
            through = any(one.tag == self.new and one.seconds >= 1 for one in there)
        self.was_dropped = self.was_dropped or through
        return self.was_dropped


def _migrate(namespace: str, name: str, image: str) -> Json:
    """As a pipeline runs it before the release, of an image of the same build."""
    made = objects.deployment(namespace, name, image, restartPolicy="Never")
    [container] = made["spec"]["template"]["spec"]["containers"]
    del container["readinessProbe"]
    container["args"] = ["migrate", "up"]
    spec = {"template": made["spec"]["template"], "backoffLimit": 0}
    return {"kind": "Job", "metadata": {"namespace": namespace, "name": name}, "spec": spec}


@family(
    "A new version of an app has no use for a column any more, and its migration drops it. Another app reads the same"
    " table, of which nobody of the team knew: each of its queries that names the column fails.",
    joined=98,
)
async def read_by_another(lab: Lab) -> AsyncIterator[None]:
    """As those tell who read *column does not exist* in the log of a program that they had never heard of."""
    namespace, name, home, reader, front, other = lab.rng.choice(
        (
            ("shop", "orders-core", "shop", "order-history", "history-page", "order-mails"),
            ("payments", "accounts-core", "shop", "credit-notes", "credit-page", "credit-mails"),
            ("media", "titles-core", "search", "title-lookup", "title-page", "title-feed"),
            ("search", "places-core", "search", "nearby-api", "nearby-page", "nearby-sync"),
        )
    )
    by, minor, step = lab.rng.choice(("ci", "argocd", "flux")), lab.rng.randrange(2, 40), lab.rng.randrange(40, 120)
    by_job, reads_old, share = lab.rng.random() < 0.5, lab.rng.random() < 0.4, lab.rng.uniform(0.25, 0.75)
    old, new, db = f"6.{minor}.4", f"6.{minor + 1}.0", f"{name}-db"
    migration, tool = f"{name}-migrate-{step}", f"registry.corp.example/{namespace}/{name}-migrations"
    owner = App("", upstreams=((namespace, db),), asked=lambda: 16.0)
    table = _Table(lab, namespace, migration if by_job else "", owner, new)

    def fails(_: Container) -> float:
        return share if table.is_felt() else 0.0

    def fails_before(container: Container) -> float:
        """What is still of the version before may read it too."""
        return 0.6 * share if reads_old and container.tag == old and table.is_felt() else 0.0

    await stored(lab, namespace, db)
    lab.apps[tool] = App(tool, upstreams=((namespace, db),), serves=False, ends_after=lab.rng.uniform(1.5, 4))
    owner.failing = fails_before
    await lab.apply(objects.config_map(namespace, name, LOG_LEVEL="info", POOL_SIZE="20"))
    await lab.app(namespace, name, like=owner, replicas=3, tag=old, config=name)
    await rolled(lab, namespace, name, old)
    await lab.apply(objects.config_map(home, reader, LOG_LEVEL="info", PAGE_LIMIT="100"))
    like = App("", upstreams=((namespace, db),), asked=lambda: ASKED, failing=fails)
    await lab.app(home, reader, like=like, replicas=3, tag="2.4.0", config=reader)
    await lab.apply(objects.config_map(home, other, LOG_LEVEL="info", EVERY="60s"))
    await lab.app(home, other, replicas=2, tag="1.5.3", config=other)
    await rolled(lab, home, reader, "2.4.0")
    await rolled(lab, home, other, "1.5.3")
    await set_before(lab, home, front, reader)
    lab.reserve(namespace, name)
    refused = lab.adding_up(lambda: ASKED * share * table.is_felt())
    lab.measure("db_statement_errors_total", refused, "counter", namespace=home, service=reader, sqlstate="42703")
    for where, one in ((home, reader), (home, front), (namespace, name)):
        lab.alert_errors(where, one)
    lab.alert_ingress_errors(home, home)
    await lab.until(lab.is_well)

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(4, 9))
        await change_page(lab, home, front)

    yield
    await lab.edit(lab.rng.choice((*TEAMS, "flux")), "ConfigMap", home, reader, {"data": {"PAGE_LIMIT": "80"}})
    await lab.pause(lab.rng.uniform(4, 9))
    if lab.rng.random() < 0.4:
        await lab.roll(lab.rng.choice(("ci", "argocd")), home, reader, "2.4.1")
    else:
        await lab.roll(lab.rng.choice(("ci", "argocd")), home, other, "1.5.4")
    await lab.pause(lab.rng.uniform(5, 10))
    if by_job:
        body = _migrate(namespace, migration, f"{tool}:{new}")
        await lab.culprit(by, "create", "Job", namespace, migration, body)
        await lab.pause(lab.rng.uniform(3, 6))
    await lab.roll(by, namespace, name, new, culprit=True)
    lab.start(afterwards())


# -- an end

PODS, KNOWN_SECONDS = 6, 4.0
"""Of the app; and for how long who calls it goes on to send something to one that was told to end."""


@dataclass
class _Ends:
    """Pods of an app that were ready and are to end: until all who call it know, it gets requests all the same."""

    lab: Lab
    namespace: str
    name: str
    ready: dict[str, float] = field(default_factory=dict)
    """By uid, for how long each sleeps before its end."""
    ended: dict[str, tuple[float, float]] = field(default_factory=dict)
    """By uid, when it was told to, and for how long it sleeps."""

    async def run(self) -> None:
        while True:
            found = {uid_of(pod): pod for pod in pods(self.lab.world, self.namespace, self.name)}
            for uid, sleeps in list(self.ready.items()):
                if uid not in found or "deletionTimestamp" in found[uid]["metadata"]:
                    self.ended[uid] = (now().timestamp(), sleeps)
                    del self.ready[uid]
            for uid, pod in found.items():
                if uid not in self.ended and is_ready(pod):
                    self.ready[uid] = sleeps_before_end(pod)
            await asyncio.sleep(0.2)

    def lost(self) -> float:
        """The share of all requests that comes where nobody listens any more."""
        at = now().timestamp()
        gone = sum(told + sleeps <= at < told + KNOWN_SECONDS for told, sleeps in self.ended.values())
        return gone / max(1, gone + len(self.ready))


def _is_through(lab: Lab, namespace: str, name: str) -> bool:
    """Whether an app has its pods as they are to be by now, each of them ready, and no others are left."""
    thing, there = lab.world["Deployment"].get((namespace, name), {}), pods(lab.world, namespace, name)
    status, many = thing.get("status", {}), thing.get("spec", {}).get("replicas")
    if status.get("observedGeneration", 0) < thing.get("metadata", {}).get("generation", 1):
        return False
    return status.get("updatedReplicas") == many == len(there) and all(map(is_ready, there))


async def _draining(lab: Lab, namespace: str, name: str, tag: str, lifecycle: Json) -> None:
    """An app whose pods wait before their end, and are replaced one at a time. Raises TimeoutError, RefusedError."""
    await lab.apply(objects.config_map(namespace, name, LOG_LEVEL="info", PAGE_SIZE="50"))
    like = App("", asked=lambda: 45.0, start_seconds=2.0)
    await lab.app(namespace, name, like=like, replicas=PODS, tag=tag, config=name)
    await lab.until(lambda: (namespace, name) in lab.world["Deployment"])
    await lab.roll("admin", namespace, name, tag, lifecycle=lifecycle)
    await lab.until(lambda: _is_through(lab, namespace, name), seconds=150)
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
    await lab.edit("admin", "Deployment", namespace, name, {"spec": {"strategy": strategy}})


@family(
    "The wait before the end of an app's pods is taken out or cut to a second, as its rollouts take too long. The"
    " rollout of that is the last one that nobody notices: with each that follows, and each time that it gets fewer"
    " pods, what is sent to those that end is answered with 502.",
    joined=98,
)
async def ends_while_asked(lab: Lab) -> AsyncIterator[None]:
    """As those tell who had 502 for some minutes, each Tuesday and Thursday at noon."""
    namespace, name, caller, other = lab.rng.choice(
        (
            ("shop", "storefront-api", "app-gateway", "storefront-feed"),
            ("payments", "wallet-web", "wallet-gateway", "wallet-export"),
            ("media", "watch-api", "tv-gateway", "watch-stats"),
            ("search", "search-web", "partner-gateway", "search-trends"),
        )
    )
    by, minor, with_release = lab.rng.choice(("ci", "argocd", *TEAMS)), lab.rng.randrange(2, 40), lab.rng.random() < 0.4
    waits = {"preStop": {"sleep": {"seconds": lab.rng.choice((8, 10))}}}
    cut = lab.rng.choice((None, {"preStop": {"sleep": {"seconds": 1}}}))
    deploys, person, ends = lab.rng.choice(("ci", "argocd")), lab.rng.choice(TEAMS), _Ends(lab, namespace, name)
    tags = [f"9.{minor}.{patch}" for patch in range(4)]
    await _draining(lab, namespace, name, tags[0], waits)
    await lab.apply(objects.config_map(namespace, other, LOG_LEVEL="info", EVERY="60s"))
    await lab.app(namespace, other, replicas=2, tag="1.2.2", config=other)
    await rolled(lab, namespace, other, "1.2.2")
    await lab.until(lambda: len(backends(lab.world, namespace, name)) == PODS)
    within = App("", upstreams=((namespace, name),), asked=lambda: 15.0, fails_with=lambda _: "502")
    within.failing = lambda _: ends.lost()
    await lab.app(namespace, caller, like=within, replicas=2, tag="5.0.3")
    await rolled(lab, namespace, caller, "5.0.3")
    await publish(lab, namespace, name)
    lab.start(ends.run())
    lab.outside.misled = lambda where: ends.lost() if where == namespace else 0.0
    lab.reserve(namespace, name, caller)
    for one in (name, caller):
        lab.alert_errors(namespace, one)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)

    async def go_on() -> None:
        """The team delivers, and has fewer pods in between, as on other days."""
        await lab.pause(1)
        await lab.until(lambda: _is_through(lab, namespace, name), seconds=150)
        await lab.pause(lab.rng.uniform(3, 7))
        await lab.edit(lab.rng.choice((*TEAMS, "flux")), "ConfigMap", namespace, other, {"data": {"EVERY": "45s"}})
        await lab.pause(lab.rng.uniform(2, 6))
        await lab.roll(deploys, namespace, name, tags[2])
        await lab.until(lambda: _is_through(lab, namespace, name), seconds=150)
        await lab.edit(person, "Deployment", namespace, name, {"spec": {"replicas": PODS - 2}})
        await lab.pause(lab.rng.uniform(3, 6))
        await lab.roll(deploys, namespace, name, tags[3])

    yield
    await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, other, "1.2.3")
    await lab.pause(lab.rng.uniform(4, 9))
    size = {"data": {"PAGE_SIZE": lab.rng.choice(("40", "60"))}}
    await lab.edit(lab.rng.choice((*TEAMS, "flux")), "ConfigMap", namespace, name, size)
    await lab.pause(lab.rng.uniform(4, 9))
    await lab.roll(by, namespace, name, tags[with_release], culprit=True, lifecycle=cut)
    lab.start(go_on())
