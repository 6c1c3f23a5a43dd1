"""Nothing goes on: a release that is pending for good, and an operator that has run for weeks."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from itertools import count

from tests.lab import objects
from tests.lab.alerts import restarts
from tests.lab.api import Json, Key, Kind, now, path
from tests.lab.apps import App, Container, Problem, Process, mebibytes
from tests.lab.families.by_annotation import rolled
from tests.lab.families.databases import ANY
from tests.lab.families.not_in_mind import TEAMS
from tests.lab.lab import Lab
from tests.lab.programs import both, every, informer, leading, tell
from tests.lab.scenario import family

# -- a release

FAILED, WAITS_SECONDS = 2, 2.5
"""How often in a row deployments of an app fail until somebody is told, and for how long one waits for its pods."""


def _revision(name: str, revision: int, status: str) -> Json:
    """What Helm keeps of one of a release."""
    labels = {"name": name, "owner": "helm", "status": status, "version": str(revision)}
    meta = {"name": f"sh.helm.release.v1.{name}.v{revision}", "labels": labels}
    return {"metadata": meta, "type": "helm.sh/release.v1", "stringData": {"release": f"H4sIAAAA{name}{revision}"}}


@dataclass
class _Pipelines:
    """They deploy apps by Helm, one after the other, for as long as no revision of a release is pending."""

    lab: Lab
    places: list[Key]
    minor: int
    busy: asyncio.Lock = field(default_factory=asyncio.Lock)
    done: Counter[tuple[Key, str]] = field(default_factory=Counter)
    in_a_row: Counter[Key] = field(default_factory=Counter)
    """How often it has failed by now, by app."""
    patch: count[int] = field(default_factory=lambda: count(1))

    async def _latest(self, namespace: str, name: str) -> tuple[int, str]:
        """Revision and status, as Helm looks for them."""
        where = f"{path('Secret', namespace)}?labelSelector=owner%3Dhelm,name%3D{name}"
        found = (await self.lab.who["ci"].must("GET", where)).body["items"]
        told = [one["metadata"]["labels"] for one in found]
        return max((int(one["version"]), str(one["status"])) for one in told)

    async def _say(self, namespace: str, name: str, revision: int, status: str) -> None:
        kept = _revision(name, revision, status)["metadata"]
        await self.lab.edit("ci", "Secret", namespace, kept["name"], {"metadata": {"labels": kept["labels"]}})

    def _image(self, namespace: str, name: str, tag: str) -> Json:
        there = self.lab.world["Deployment"][namespace, name]["spec"]["template"]["spec"]["containers"][0]
        one = {**there, "image": f"{there['image'].rsplit(':', 1)[0]}:{tag}"}
        return {"spec": {"template": {"spec": {"containers": [one]}}}}

    async def deploy(self, namespace: str, name: str) -> None:
        """As `helm upgrade --wait`. Raises RefusedError."""
        place = namespace, name
        async with self.busy:
            revision, status = await self._latest(*place)
            if status.startswith("pending"):  # another operation is in progress
                self.done[place, "failed"] += 1
                self.in_a_row[place] += 1
                return
            kept = _revision(name, revision + 1, "pending-upgrade")
            await self.lab.who["ci"].must("POST", path("Secret", namespace), kept)
            body = self._image(namespace, name, f"2.{self.minor}.{next(self.patch)}")
            await self.lab.edit("ci", "Deployment", namespace, name, body)
            await asyncio.sleep(WAITS_SECONDS)
            await self._say(namespace, name, revision, "superseded")
            await self._say(namespace, name, revision + 1, "deployed")
            self.done[place, "success"] += 1
            self.in_a_row[place] = 0

    async def go_on(self) -> None:
        """For ever, as teams merge."""
        for turn in count():
            await asyncio.sleep(self.lab.rng.uniform(3.0, 6.5))
            await self.deploy(*self.places[turn % len(self.places)])

    async def stop_in_the_middle(self, *, waits: bool) -> None:
        """Its job is cancelled after what Helm writes first; ``waits`` as it waits for pods that come up by then."""
        namespace, name = self.places[0]
        async with self.busy:
            revision, _ = await self._latest(namespace, name)
            kept = _revision(name, revision + 1, "pending-upgrade")
            await self.lab.culprit("ci", "create", "Secret", namespace, kept["metadata"]["name"], kept)
            values = {"data": {"TIMEOUT_MS": self.lab.rng.choice(("700", "900"))}}
            await self.lab.culprit("ci", "update", "ConfigMap", namespace, name, values)
            if waits:
                body = self._image(namespace, name, f"2.{self.minor}.{next(self.patch)}")
                await self.lab.culprit("ci", "update", "Deployment", namespace, name, body)


@family(
    "Somebody cancels the job that deploys an app, in the middle. Helm has written that an upgrade is pending, and does"
    " not come to write that it is done. The app goes on. Each further release of it is refused, as another operation"
    " is in progress, until somebody puts that one back by hand.",
    joined=102,
)
async def pending_upgrade(lab: Lab) -> AsyncIterator[None]:
    """As very many tell of *another operation (install/upgrade/rollback) is in progress*."""
    places = lab.rng.sample(
        (("shop", "wishlists"), ("payments", "credit-notes"), ("media", "playlists"), ("search", "suggest-feed")), 3
    )
    pipelines, waits = _Pipelines(lab, places, lab.rng.randrange(2, 30)), lab.rng.random() < 0.6
    for namespace, name in places:
        await lab.apply(objects.config_map(namespace, name, LOG_LEVEL="info", TIMEOUT_MS="800"))
        like = App("", asked=lambda: 14.0)
        await lab.app(namespace, name, like=like, replicas=2, tag=f"2.{pipelines.minor}.0", config=name)
        await rolled(lab, namespace, name, f"2.{pipelines.minor}.0")
        revision = lab.rng.randrange(14, 180)
        for one, status in ((revision - 1, "superseded"), (revision, "deployed")):
            kept = _revision(name, one, status)
            kept["metadata"]["namespace"] = namespace
            await lab.apply({"kind": "Secret", **kept}, "ci")
        lab.reserve(namespace, name)
        for result in ("success", "failed"):
            value = lambda key=((namespace, name), result): pipelines.done[key]  # noqa: E731
            told = {"namespace": "monitoring", "service": "ci-exporter", "project": f"{namespace}/{name}"}
            lab.measure("pipeline_deployments_total", value, "counter", **told, result=result)
        fails = lambda place=(namespace, name): pipelines.in_a_row[place] >= FAILED  # noqa: E731
        summary = f"deployments of {namespace}/{name} fail again and again"
        lab.alert("DeploymentJobsFailing", fails, summary, 4, namespace=namespace, service=name)
        lab.alert_stuck(namespace, name)
        lab.alert_errors(namespace, name)
    await lab.until(lab.is_well)
    lab.start(pipelines.go_on())

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(4, 8))
        level = {"data": {"LOG_LEVEL": lab.rng.choice(("warn", "debug"))}}
        await lab.edit(lab.rng.choice(TEAMS), "ConfigMap", *places[0], level)
        await lab.pause(lab.rng.uniform(3, 8))
        await lab.edit(lab.rng.choice(TEAMS), "ConfigMap", "search", "indexer", {"data": {"TIMEOUT_MS": "880"}})

    yield
    note = {"metadata": {"annotations": {"corp.example/owner": f"team-{places[0][0]}"}}}
    await lab.edit(lab.rng.choice(TEAMS), "Deployment", *places[0], note)
    await lab.pause(lab.rng.uniform(5, 9))
    await lab.edit(lab.rng.choice((*TEAMS, "flux")), "ConfigMap", "payments", "ledger", {"data": {"LOG_LEVEL": "warn"}})
    await lab.pause(lab.rng.uniform(5, 10))
    await pipelines.stop_in_the_middle(waits=waits)
    lab.start(afterwards())


# -- an operator

OPERATORS = (
    ("Queue", "mq.corp.example", "queue-operator"),
    ("Site", "sites.corp.example", "site-operator"),
    ("KeyRing", "keys.corp.example", "keyring-operator"),
)
LIMIT, AT_FIRST, BUSY_WITH_ITSELF = "512Mi", 0.8, 0.97
"""What it may have, how much of that weeks have filled, and from where on it does nothing but look for some."""
FULL_SECONDS, LISTS_SECONDS, OLD_SECONDS = 100.0, 9.0, 15
"""Until it has all, for how long it reads its objects after a start, and from when on an order waits for too long."""
HOMES = ("shop", "payments", "media", "search")
KEPT = 8


@dataclass
class _Operator:
    """It makes what is asked for; one of weeks ago, which leaks, or loses its watch and does not find out."""

    kind: Kind
    leaks: bool
    began: float = float("inf")
    deaf_since: float = float("inf")
    done: int = 0
    has: float = 0.0
    """Of what it may have in memory."""
    asked: dict[Key, float] = field(default_factory=dict)
    """When each was asked for that is not there yet."""
    numbers: count[int] = field(default_factory=lambda: count(1))

    def check(self, container: Container) -> Problem | None:
        at = now().timestamp()
        is_old = at - container.seconds < self.began
        grown = max(0.0, at - self.began) / FULL_SECONDS if self.leaks else 0.0
        self.has = AT_FIRST + (1 - AT_FIRST) * grown if is_old else 0.3
        return Problem("oom", f"needs more than {LIMIT}") if self.has >= 1 else None

    def _works(self, process: Process) -> bool:
        """Whether it comes to anything just now."""
        at, seconds = now().timestamp(), process.see().seconds
        is_new = at - seconds > self.began
        return at < self.deaf_since and self.has < BUSY_WITH_ITSELF and not (is_new and seconds < LISTS_SECONDS)

    async def reconcile(self, process: Process) -> None:
        if not self._works(process):
            return
        for one in (await process.api.call("GET", self.kind.path())).body.get("items", ()):
            key = one["metadata"]["namespace"], one["metadata"]["name"]
            if "status" in one:
                self.asked.pop(key, None)
                continue
            ready = {"type": "Ready", "status": "True", "reason": "Provisioned"}
            made = await process.api.call("PATCH", self.kind.path(*key), {"status": {"conditions": [ready]}})
            self.done += made.ok
            about = {**one, "kind": self.kind.name}
            said = f"{self.kind.name} {'/'.join(key)} is ready"
            await tell(process, about, "Normal", "Provisioned", said, by=f"{self.kind.name.lower()}-controller")

    async def ask(self, process: Process) -> None:
        """As a team of each namespace in turn asks for another one, and gives its oldest back."""
        number = next(self.numbers)
        home, name = HOMES[number % len(HOMES)], f"{self.kind.name.lower()}-{number:04}"
        listed = (await process.api.call("GET", self.kind.path(home))).body.get("items", ())
        for old in sorted(one["metadata"]["name"] for one in listed)[:-KEPT]:
            await process.api.call("DELETE", self.kind.path(home, old))
            self.asked.pop((home, old), None)
        body = {"apiVersion": f"{self.kind.group}/v1", "kind": self.kind.name, "metadata": {"name": name}}
        made = await process.api.call(
            "POST", self.kind.path(home), {**body, "spec": {"size": process.rng.randrange(9)}}
        )
        if made.ok:
            self.asked[home, name] = now().timestamp()

    def oldest(self) -> float:
        return now().timestamp() - min(self.asked.values()) if self.asked else 0.0


@family(
    "No culprit. An operator has run for weeks as it is. It has kept a little of each object that it ever saw, until"
    " its memory is full and it is killed; or its watch ends on the way and it does not hear of that, and it is alive"
    " and does nothing. What teams ask for is not made.",
    culprit=False,
    joined=102,
)
async def run_for_weeks(lab: Lab) -> AsyncIterator[None]:
    """As those tell who restarted it, and all was well."""
    name, group, operator = lab.rng.choice(OPERATORS)
    minor, desk = lab.rng.randrange(2, 30), lab.rng.choice(("order-desk", "self-service"))
    kind = await lab.custom(name, group, ANY)
    await lab.served(kind)
    works = _Operator(kind, leaks=lab.rng.random() < 0.5)
    await lab.apply(objects.config_map("platform", operator, LOG_LEVEL="info", MAX_CONCURRENT_RECONCILES="4"))
    rights = (group, kind.plural, "get,list,watch,patch")
    more = ("", "events", "create"), ("coordination.k8s.io", "leases", "*")
    program = both(informer(kind.path()), every(1.0, works.reconcile), leading("platform", operator))
    app = await lab.controller(
        "platform", operator, program, rights, *more, replicas=1, tag=f"0.{minor}.2", config=operator, memory=LIMIT
    )
    app.check = works.check
    await rolled(lab, "platform", operator, f"0.{minor}.2")
    await lab.controller("platform", desk, every(2.5, works.ask), (group, kind.plural, "*"), replicas=1, tag="5.0.3")
    await rolled(lab, "platform", desk, "5.0.3")
    told = {"namespace": "platform", "service": operator}
    lab.measure("process_resident_memory_bytes", lambda: works.has * mebibytes(LIMIT) * 2**20, **told)
    made = {**told, "controller": name.lower(), "result": "success"}
    lab.measure("controller_runtime_reconcile_total", lambda: works.done, "counter", **made)
    told = {"namespace": "platform", "service": desk}
    lab.measure("orders_waiting", lambda: len(works.asked), **told)
    summary = f"a {name} that was asked for has not been made for a while"
    lab.alert("OrdersWaiting", lambda: works.oldest() > OLD_SECONDS, summary, 5, **told)
    ended = lambda: restarts(lab.world, "platform", operator) > 0  # noqa: E731
    summary = f"a container of platform/{operator} was OOM-killed"
    lab.alert("KubeContainerOOMKilled", ended, summary, 3, namespace="platform", container=operator)
    await lab.until(lambda: works.done > 3 and lab.is_well())
    works.began = now().timestamp()

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(4, 9))
        await lab.edit(lab.rng.choice(TEAMS), "ConfigMap", "search", "query", {"data": {"TIMEOUT_MS": "910"}})

    yield
    level = {"data": {"LOG_LEVEL": lab.rng.choice(("warn", "debug"))}}
    await lab.edit(lab.rng.choice((*TEAMS, "flux")), "ConfigMap", "platform", operator, level)
    await lab.pause(lab.rng.uniform(6, 10))
    await lab.roll(lab.rng.choice(("ci", "argocd")), "platform", desk, "5.0.4")
    await lab.pause(lab.rng.uniform(6, 11))
    if not works.leaks:
        works.deaf_since = now().timestamp()
    lab.start(afterwards())
