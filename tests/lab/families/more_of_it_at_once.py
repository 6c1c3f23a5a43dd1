"""What is turned up or pointed elsewhere: a branch that is behind, workers that do more at once."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

from tests.lab import objects
from tests.lab.api import Json, path
from tests.lab.apps import App, Process
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.families.databases import ANY
from tests.lab.lab import Lab
from tests.lab.manifests import app_of, image_of
from tests.lab.network import backends
from tests.lab.programs import every
from tests.lab.scenario import family

FLUX, SOURCE = "kustomize.toolkit.fluxcd.io", "source.toolkit.fluxcd.io"
MARK = f"{FLUX}/name"


@dataclass
class _Flux:
    """Its two controllers, for one team: what a branch of its repository has is applied, all else is pruned."""

    namespace: str
    source: str
    kustomization: str
    branches: dict[str, set[str]]
    """The names of the apps that each has."""
    revisions: dict[str, str]

    async def fetch(self, process: Process) -> None:
        """As source-controller: what the branch has now is the artifact of the source."""
        found = await process.api.call("GET", self.source)
        if found.ok and (branch := found.body["spec"]["ref"]["branch"]) in self.revisions:
            told = {"artifact": {"revision": self.revisions[branch]}}
            if found.body.get("status") != told:
                await process.api.call("PATCH", self.source, {"status": told})

    async def sync(self, process: Process) -> None:
        """As kustomize-controller: what has its mark and is not in the artifact is removed."""
        found = await process.api.call("GET", self.source)
        mine = await process.api.call("GET", self.kustomization)
        revision = found.body.get("status", {}).get("artifact", {}).get("revision", "")
        if not (mine.ok and revision) or mine.body.get("status", {}).get("lastAppliedRevision") == revision:
            return
        await self._prune(process, self.branches[revision.split("@")[0]])
        ready = {"type": "Ready", "status": "True", "message": f"Applied revision: {revision}"}
        told = {"status": {"lastAppliedRevision": revision, "conditions": [ready]}}
        await process.api.call("PATCH", self.kustomization, told)

    async def _prune(self, process: Process, wanted: set[str]) -> None:
        for kind in ("Service", "Deployment"):
            marked = await process.api.call("GET", f"{path(kind, self.namespace)}?labelSelector={MARK}=apps")
            for name in (one["metadata"]["name"] for one in marked.body.get("items", [])):
                if name not in wanted:
                    await process.api.call("DELETE", path(kind, self.namespace, name))


@family(
    "What Flux reads of a team's repository is pointed at another branch, to hold still for a sale. That one was cut"
    " before the team's newest app was added: the app is not in it, and is pruned, with what calls it left alone.",
    joined=65,
)
async def branch_behind(lab: Lab) -> AsyncIterator[None]:
    """As a guide to deletions by Flux has it among its causes (oneuptime.com, March 2026)."""
    namespace, newest, older, front = lab.rng.choice(
        (
            ("shop", "gift-cards", "vouchers", "checkout-page"),
            ("media", "captions", "subtitles", "watch-page"),
            ("search", "synonyms", "spelling", "results-page"),
        )
    )
    by = lab.rng.choice(("alice", "bob", "carol"))
    branches = {"main": {newest, older, front}, "release-2026.11": {older, front}}
    revisions = {one: f"{one}@sha1:{lab.rng.getrandbits(160):040x}" for one in branches}
    source, kustomization = await lab.custom("GitRepository", SOURCE, ANY), await lab.custom("Kustomization", FLUX, ANY)
    flux = _Flux(namespace, source.path(namespace, "team"), kustomization.path(namespace, "apps"), branches, revisions)
    await lab.served(source, kustomization)
    spec: Json = {"url": f"ssh://git@git.corp.example/{namespace}/deploy", "interval": "1m", "ref": {"branch": "main"}}
    meta = {"namespace": namespace, "name": "team"}
    await lab.apply({"apiVersion": f"{SOURCE}/v1", "kind": "GitRepository", "metadata": meta, "spec": spec})
    reference = {"kind": "GitRepository", "name": "team"}
    spec = {"path": "./production", "prune": True, "interval": "5m", "sourceRef": reference}
    meta = {"namespace": namespace, "name": "apps"}
    await lab.apply({"apiVersion": f"{FLUX}/v1", "kind": "Kustomization", "metadata": meta, "spec": spec})
    for name in (newest, older):
        await lab.app(namespace, name, replicas=2, tag="1.3.0")
        await rolled(lab, namespace, name, "1.3.0")
    like = App("", upstreams=((namespace, newest), (namespace, older)))
    await lab.app(namespace, front, like=like, replicas=3, tag="6.1.0")
    for name in (newest, older, front):
        for kind in ("Deployment", "Service"):
            await lab.edit("admin", kind, namespace, name, {"metadata": {"labels": {MARK: "apps"}}})
    await rolled(lab, namespace, front, "6.1.0")
    await publish(lab, namespace, front)
    rules = (
        (SOURCE, "*", "*"),
        (FLUX, "*", "*"),
        ("", "services", "list,delete"),
        ("apps", "deployments", "list,delete"),
    )
    await lab.controller("flux-system", "source-controller", every(3, flux.fetch), rules[0], replicas=1)
    await lab.controller("flux-system", "kustomize-controller-teams", every(3, flux.sync), *rules, replicas=1)
    applied = lambda: "status" in lab.world["Kustomization"].get((namespace, "apps"), {})  # noqa: E731
    await lab.until(applied)
    lab.alert_lacking(namespace, front)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)
    yield
    await lab.pause(lab.rng.uniform(2, 9))
    body = {"spec": {"ref": {"branch": "release-2026.11"}}}
    await lab.culprit(by, "update", "GitRepository", namespace, "team", body)


THREADS = "WORKER_CONCURRENCY"
CORES, QUERY_SECONDS, QUERIES = 16.0, 0.05, 4
"""What the machine of a database has, and what an app asks of it: so many queries for each request."""
GIVES_UP_SECONDS = 2.0
"""After which the database ends a request's statement, as the app tells it."""


@dataclass
class _Database:
    """Queries share its processors: with more of them at once than these are, each takes so much longer."""

    lab: Lab
    namespace: str
    worker: str
    asked: float
    """Requests a second of the app that users ask."""

    def threads(self) -> float:
        """All of the workers' that run a query; of a backlog each has one at all times, once it is warm."""
        total = 0.0
        for one in self.lab.kubelets.running():
            if app_of(image_of(one.container.pod)) == (self.namespace, self.worker) and one.problem is None:
                env = {given["name"]: given.get("value") for given in one.container.spec.get("env", ())}
                warm = one.container.seconds >= max(2.0, self.lab.lag)
                total += float(env[THREADS] or 0) if warm else 0.0
        return total

    def query_seconds(self) -> float:
        """Users' queries come as they come: what they need of the processors is left out of the workers' share."""
        left = 1 - self.asked * QUERIES * QUERY_SECONDS / CORES
        return QUERY_SECONDS * max(1.0, self.threads() / CORES / left)

    def waits(self) -> float:
        return QUERIES * (self.query_seconds() - QUERY_SECONDS)

    def fails(self) -> float:
        """The share of users' requests with a statement that was ended for its time."""
        return max(0.0, 1 - GIVES_UP_SECONDS / max(GIVES_UP_SECONDS, QUERIES * self.query_seconds()))

    def done(self) -> float:
        """Jobs a second, of some queries each."""
        return self.threads() / self.query_seconds() / 40


@family(
    "The workers of an import have a backlog, and their team has each do many times as much at once. All of it comes"
    " to the database that they share with the app of the same product: queries of its users take as many times longer,"
    " and are ended for their time.",
    joined=65,
)
async def worker_threads(lab: Lab) -> AsyncIterator[None]:
    """As one tells of background workers that a database does not stand (fixmymess.ai)."""
    namespace, name, worker = lab.rng.choice(
        (
            ("shop", "assortment", "feed-import"),
            ("payments", "statements", "bank-import"),
            ("media", "catalogue", "metadata-import"),
        )
    )
    by, database = lab.rng.choice(("ci", "bob", "argocd")), f"{name}-db"
    load = _Database(lab, namespace, worker, lab.rng.uniform(24, 32))
    await lab.app(namespace, database, like=App("", serves=False), kind="StatefulSet", replicas=1, tag="16.6")
    await lab.until(lambda: backends(lab.world, namespace, database))
    await lab.apply(objects.config_map(namespace, name, STATEMENT_TIMEOUT_MS="2000", POOL_SIZE="30"))
    like = App("", upstreams=((namespace, database),), asked=lambda: load.asked)
    like.latency, like.failing = (lambda _: load.waits()), (lambda _: load.fails())
    await lab.app(namespace, name, like=like, replicas=3, tag="9.12.0", config=name)
    env = [{"name": THREADS, "value": "4"}, {"name": "QUEUE", "value": "imports"}]
    like = App("", upstreams=((namespace, database),), serves=False)
    await lab.app(namespace, worker, like=like, replicas=3, tag="9.12.0", env=env)
    for one in (name, worker):
        await rolled(lab, namespace, one, "9.12.0")
    await publish(lab, namespace, name)
    lab.reserve(namespace, name)
    lab.reserve(namespace, worker)
    told = {"namespace": namespace, "service": database}
    lab.measure("pg_stat_activity_count", load.threads, "gauge", **told, usename=worker, state="active")
    lab.measure("jobs_done_total", lab.adding_up(load.done), "counter", namespace=namespace, service=worker)
    lab.alert_slow(namespace, name, 1.0)
    lab.alert_errors(namespace, name, 0.1)
    await lab.until(lab.is_well)
    yield
    await lab.pause(lab.rng.uniform(2, 6))
    more = [{"name": THREADS, "value": lab.rng.choice(("32", "40", "50"))}]
    await lab.roll(by, namespace, worker, "9.12.0", culprit=True, env=more)
