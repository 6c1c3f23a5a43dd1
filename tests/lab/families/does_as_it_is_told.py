"""Does as it is told: an operator by what is declared of a database, and who syncs an overlay by what stands in it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from functools import partial

from tests.lab import objects
from tests.lab.alerts import restarts
from tests.lab.api import Json, Key, Kind, path
from tests.lab.apps import App, Container, Problem, Process
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.families.databases import ANY
from tests.lab.families.not_in_mind import TEAMS, change_page, set_before
from tests.lab.families.sent_to_production import stored
from tests.lab.lab import Lab
from tests.lab.manifests import uid_of
from tests.lab.network import backends, unreachable
from tests.lab.programs import both, every, informer, leading, tell
from tests.lab.scenario import family

# -- a database


@dataclass(frozen=True)
class _Sort:
    """Of databases that an operator looks after, and what a later version says of what the last one has stored."""

    kind: str
    group: str
    operator: str
    tag: str
    ending: str
    old: str
    new: str
    says: str


NOT_READ = "FATAL: database files are incompatible with server, the data directory was initialized by 16"
NOT_ON = "Feature flags: `stream_queue`: required feature flag not enabled, it must be before upgrading"
SORTS = (
    _Sort("Postgresql", "acid.zalan.do", "postgres-operator", "1.14.0", "db", "16.4", "17.5", NOT_READ),
    _Sort("RabbitmqCluster", "rabbitmq.com", "rabbitmq-cluster-operator", "2.15.0", "bus", "3.11.28", "4.1.4", NOT_ON),
)
NEEDS_MIB = 900


@dataclass
class _Member:
    """What the processes of one database are like: what they have stored, and with whom they vote."""

    lab: Lab
    sort: _Sort
    image: str
    known: int = 0
    """Members of its configuration, which nobody takes out of it when their pods go."""

    def check(self, container: Container) -> Problem | None:
        if container.tag == self.sort.new:
            return Problem("crash", self.sort.says, at_once=True)
        there = sum(one.app.image == self.image for one in self.lab.kubelets.running())
        self.known = max(self.known, there)
        if 2 * there > self.known:
            return None
        why = f"HTTP probe failed with statuscode: 503 (no primary: {there} of {self.known} members)"
        return Problem("unready", f"probe failed: {why}")


@dataclass
class _Operator:
    """It makes of each database what is declared, and asks nobody whether that is wise."""

    lab: Lab
    kind: Kind
    sort: _Sort

    def _rendered(self, one: Json) -> Json:
        meta, spec = one["metadata"], one["spec"]
        image = f"registry.corp.example/{meta['namespace']}/{meta['name']}:{spec['version']}"
        memory = spec["resources"]["limits"]["memory"]
        where = meta["namespace"], meta["name"]
        made = objects.deployment(*where, image, kind="StatefulSet", replicas=spec["replicas"], memory=memory)
        owner = {"apiVersion": f"{self.kind.group}/v1", "kind": self.kind.name, "name": meta["name"]}
        made["metadata"]["ownerReferences"] = [{**owner, "uid": meta["uid"], "controller": True}]
        return made

    async def reconcile(self, process: Process) -> None:
        for one in (await process.api.call("GET", self.kind.path())).body.get("items", ()):
            namespace, name = one["metadata"]["namespace"], one["metadata"]["name"]
            wanted, found = self._rendered(one), await process.api.call("GET", path("StatefulSet", namespace, name))
            if found.status == 404:
                await process.api.call("POST", path("StatefulSet", namespace), wanted)
            elif found.ok and _of(found.body) != _of(wanted):
                body = {"spec": {"replicas": wanted["spec"]["replicas"], "template": wanted["spec"]["template"]}}
                await process.api.call("PATCH", path("StatefulSet", namespace, name), body)
                about = {**one, "kind": self.kind.name}
                await tell(process, about, "Normal", "Update", "StatefulSet was updated", by=self.sort.operator)

    async def add(self, namespace: str, name: str, replicas: int) -> None:
        """Raises RefusedError, TimeoutError."""
        image = f"registry.corp.example/{namespace}/{name}"
        member = _Member(self.lab, self.sort, image)
        self.lab.apps[image] = App(image, serves=False, memory_mi=NEEDS_MIB, check=member.check)
        limits = {"limits": {"memory": "2Gi"}}
        spec = {
            "version": self.sort.old,
            "replicas": replicas,
            "resources": limits,
            "backup": {"schedule": "15 2 * * *"},
        }
        meta = {"namespace": namespace, "name": name}
        made = {"apiVersion": f"{self.kind.group}/v1", "kind": self.kind.name, "metadata": meta, "spec": spec}
        await self.lab.apply(made)
        await self.lab.apply(objects.service(namespace, name))
        await self.lab.until(lambda: len(backends(self.lab.world, namespace, name)) == replicas)


def _of(made: Json) -> tuple[int, str, str]:
    """What follows from what is declared."""
    [container] = made["spec"]["template"]["spec"]["containers"]
    return made["spec"]["replicas"], container["image"], container["resources"]["limits"]["memory"]


@family(
    "What is declared of one database is edited: its next major version, less memory, or one member in place of"
    " three. Its operator does as it is told. What is stored is not of that version, the memory does not do, or the one"
    " that is left waits for the others to vote: the database is away.",
    joined=103,
)
async def as_it_was_told(lab: Lab) -> AsyncIterator[None]:
    """As those tell who had trusted that an operator would refuse it."""
    sort, by, other = lab.rng.choice(SORTS), lab.rng.choice(("ci", "flux", *TEAMS)), lab.rng.choice(TEAMS)
    callers = lab.rng.sample(
        (("shop", "gift-cards"), ("payments", "instalments"), ("search", "bookmarks"), ("media", "ratings")), 3
    )
    change, members = lab.rng.choice(
        (
            ({"version": sort.new}, 1),
            ({"resources": {"limits": {"memory": lab.rng.choice(("512Mi", "768Mi"))}}}, 1),
            ({"replicas": 1}, 3),
        )
    )
    kind = await lab.custom(sort.kind, sort.group, ANY)
    await lab.served(kind)
    operator = _Operator(lab, kind, sort)
    rules = (sort.group, kind.plural, "get,list,watch"), ("apps", "statefulsets", "get,list,watch,create,patch")
    more = ("", "events", "create"), ("coordination.k8s.io", "leases", "*")
    program = both(informer(kind.path()), every(1.5, operator.reconcile), leading("platform", sort.operator))
    await lab.controller("platform", sort.operator, program, *rules, *more, replicas=1, tag=sort.tag)
    await rolled(lab, "platform", sort.operator, sort.tag)
    for turn, (namespace, caller) in enumerate(callers):
        name = f"{caller}-{sort.ending}"
        await operator.add(namespace, name, members if turn == 0 else 1)
        like = App("", upstreams=((namespace, name),), asked=lambda: 16.0)
        await lab.app(namespace, caller, like=like, replicas=2, tag="4.2.0")
        await lab.until(partial(backends, lab.world, namespace, caller))
        await publish(lab, namespace, caller)
        lab.alert_ingress_errors(namespace, namespace)
        lab.alert_lacking(namespace, caller, seconds=8)
        lab.alert_lacking(namespace, name, seconds=14)
        many = lambda place=(namespace, name): restarts(lab.world, *place) >= 2  # noqa: E731
        summary = f"a pod of {namespace}/{name} restarts again and again"
        lab.alert("KubePodCrashLooping", many, summary, 4, namespace=namespace, container=name)
    await lab.until(lab.is_well, seconds=180)
    (namespace, caller), (home, beside), _ = callers

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(3, 7))
        await lab.edit(lab.rng.choice(TEAMS), "ConfigMap", "search", "indexer", {"data": {"TIMEOUT_MS": "870"}})

    yield
    backup = {"spec": {"backup": {"schedule": lab.rng.choice(("45 1 * * *", "0 4 * * *"))}}}
    await lab.edit(other, kind.name, home, f"{beside}-{sort.ending}", backup)
    await lab.pause(lab.rng.uniform(5, 9))
    await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, caller, "4.2.1")
    await lab.pause(lab.rng.uniform(7, 12))
    if lab.rng.random() < 0.5:
        await lab.roll(lab.rng.choice(("ci", "flux")), home, beside, "4.3.0")
        await lab.pause(lab.rng.uniform(3, 7))
    await lab.culprit(by, "update", kind.name, namespace, f"{caller}-{sort.ending}", {"spec": change})
    lab.start(afterwards())


# -- an overlay

ASKED = 170.0
REFUSES = {"podSelector": {}, "policyTypes": ["Ingress"], "ingress": [{"from": [{"podSelector": {}}]}]}
"""Nobody of another namespace is let in."""


@dataclass
class _Overlay:
    """What is synced of an app in production, and how the app is with it."""

    lab: Lab
    by: str
    place: Key
    is_probed: bool
    had: dict[str, str] = field(default_factory=dict)

    def trouble(self, container: Container) -> str:
        """Why a process has no connection to its database, whose address it has read at its start; or ""."""
        host = self.had.setdefault(uid_of(container.pod), container.config.get("DB_HOST", ""))
        name, home = host.split(".")[:2]
        return unreachable(self.lab.world, container.pod, home, name)

    def check(self, container: Container) -> Problem | None:
        why = self.trouble(container) if self.is_probed else ""
        return Problem("unready", f"probe failed: HTTP probe failed with statuscode: 503 ({why})") if why else None

    def fails(self, container: Container) -> float:
        return 0.9 if container.seconds >= self.lab.lag and self.trouble(container) else 0.0

    def body(self, replicas: int, memory: str) -> Json:
        """Of the Deployment, which says by a checksum that there are other values."""
        there = self.lab.world["Deployment"][self.place]["spec"]["template"]["spec"]["containers"][0]
        resources = {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"memory": memory}}
        mark = {"annotations": {"checksum/config": f"{self.lab.rng.getrandbits(64):016x}"}}
        template = {"metadata": mark, "spec": {"containers": [{**there, "resources": resources}]}}
        return {"spec": {"replicas": replicas, "template": template}}

    async def sync(self, cache: str) -> None:
        """As on any other day. Raises RefusedError."""
        await self.lab.edit(self.by, "ConfigMap", *self.place, {"data": {"CACHE_SECONDS": cache}})
        await self.lab.edit(self.by, "Deployment", *self.place, self.body(4, "512Mi"))

    async def sync_of_staging(self, host: str) -> None:
        """With the address of its database, or else with as little as it has. Raises RefusedError."""
        lab, why = self.lab, "of the same sync"
        if host:
            values = {"data": {"DB_HOST": host, "LOG_LEVEL": "debug"}}
            await lab.culprit(self.by, "update", "ConfigMap", *self.place, values)
            await lab.also(why, self.by, "update", "Deployment", *self.place, self.body(4, "512Mi"))
        else:
            values = {"data": {"LOG_LEVEL": "debug"}}
            await lab.also(why, self.by, "update", "ConfigMap", *self.place, values)
            await lab.culprit(self.by, "update", "Deployment", *self.place, self.body(1, "192Mi"))


@family(
    "An overlay in Git is edited, and what belongs to staging comes into that of production, which is synced. The app"
    " there gets the address of the database of staging, which does not let it in, or one pod in place of four, as"
    " staging has.",
    joined=103,
)
async def overlay_of_staging(lab: Lab) -> AsyncIterator[None]:
    """As those tell whose two files differ in three lines, and who had copied one of them."""
    namespace, name, front, other = lab.rng.choice(
        (
            ("shop", "price-lists", "prices-page", "price-export"),
            ("payments", "loyalty-points", "points-page", "points-mails"),
            ("media", "art-work", "artwork-page", "artwork-crawl"),
            ("search", "facet-counts", "facets-page", "facets-sync"),
        )
    )
    by, minor, is_address = lab.rng.choice(("argocd", "flux")), lab.rng.randrange(2, 30), lab.rng.random() < 0.5
    overlay = _Overlay(lab, by, (namespace, name), lab.rng.random() < 0.5)
    staging, db, tag = f"{namespace}-staging", f"{name}-db", f"3.{minor}.0"
    await lab.namespace(staging)
    await lab.apply({"kind": "NetworkPolicy", "metadata": {"namespace": staging, "name": "own-only"}, "spec": REFUSES})
    for place, level in ((namespace, "info"), (staging, "debug")):
        await stored(lab, place, db)
        host = f"{db}.{place}.svc.cluster.local"
        await lab.apply(objects.config_map(place, name, LOG_LEVEL=level, DB_HOST=host, CACHE_SECONDS="60"))
    like = App("", load=ASKED, check=overlay.check, failing=overlay.fails)
    await lab.app(namespace, name, like=like, replicas=4, tag=tag, config=name, memory="512Mi")
    await lab.app(staging, name, replicas=1, tag=tag, config=name, memory="192Mi")
    await lab.apply(objects.config_map(namespace, other, LOG_LEVEL="info", EVERY="60s"))
    await lab.app(namespace, other, replicas=2, tag="1.4.0", config=other)
    await rolled(lab, namespace, name, tag)
    await rolled(lab, namespace, other, "1.4.0")
    await set_before(lab, namespace, front, name)
    for one in (name, front):
        lab.alert_errors(namespace, one)
    lab.alert_stuck(namespace, name)
    lab.alert_lacking(namespace, name, seconds=12)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(3, 8))
        await change_page(lab, namespace, front)

    yield
    await lab.edit(by, "ConfigMap", staging, name, {"data": {"CACHE_SECONDS": "90"}})
    await lab.pause(lab.rng.uniform(3, 6))
    await overlay.sync("90")
    await lab.pause(lab.rng.uniform(12, 17))
    await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, other, "1.4.1")
    await lab.pause(lab.rng.uniform(4, 8))
    await change_page(lab, namespace, front)
    await lab.pause(lab.rng.uniform(3, 7))
    await overlay.sync_of_staging(f"{db}.{staging}.svc.cluster.local" if is_address else "")
    lab.start(afterwards())
