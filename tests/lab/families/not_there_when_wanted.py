"""Not there when it is wanted: an app between two folders of Git, and a field that a definition does not have."""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field

from tests.lab import objects
from tests.lab.alerts import pods
from tests.lab.api import Json, Key, Kind, now, path, stamp
from tests.lab.apps import App, Process
from tests.lab.families.by_annotation import rolled
from tests.lab.families.databases import ANY
from tests.lab.families.not_in_mind import TEAMS, change_page, set_before
from tests.lab.lab import Lab
from tests.lab.manifests import is_ready
from tests.lab.network import backends
from tests.lab.programs import both, event, every, informer, leading, tell
from tests.lab.scenario import family

# -- between two folders

ARGO, TRACKED, BY = "argoproj.io", "argocd.argoproj.io/tracking-id", "argocd-application-controller"
PARTS = ("ConfigMap", "Service", "Deployment")
"""What an app consists of, in the order in which it is made; it is pruned the other way round."""


def _commit(lab: Lab) -> str:
    return f"{lab.rng.getrandbits(160):040x}"


@dataclass
class _Folders:
    """Two Applications of the GitOps agent: one that has had an app, and one that is to have it."""

    lab: Lab
    kind: Kind
    namespace: str
    repo: str

    async def declare(self, by: str, name: str, where: str, *, is_automated: bool) -> None:
        """Raises RefusedError."""
        source = {"repoURL": self.repo, "path": where, "targetRevision": "main"}
        to = {"server": "https://kubernetes.default.svc", "namespace": self.namespace}
        spec: Json = {"project": self.namespace, "source": source, "destination": to}
        if is_automated:
            spec["syncPolicy"] = {"automated": {"prune": True, "selfHeal": True}}
        meta = {"namespace": "argocd", "name": name}
        body = {"apiVersion": f"{ARGO}/v1", "kind": self.kind.name, "metadata": meta, "spec": spec}
        await self.lab.apply(body, by=by)

    def tracked(self, name: str, kind: str, app: str) -> Json:
        """How an object says to which Application it belongs."""
        group = "apps" if kind == "Deployment" else ""
        return {"annotations": {TRACKED: f"{name}:{group}/{kind}:{self.namespace}/{app}"}}

    def status(self, commit: str, phase: str, listed: Sequence[tuple[str, str]], told: str) -> Json:
        """Of a sync: each kind and name, and what became of it."""
        result = [{"kind": kind, "name": one, "namespace": self.namespace, "status": told} for kind, one in listed]
        synced_to = {"revision": commit, "resources": result}
        state = {"phase": phase, "startedAt": f"{stamp(now())[:19]}Z", "syncResult": synced_to}
        synced = {"status": "Synced" if phase == "Succeeded" else "OutOfSync", "revision": commit}
        return {"status": {"sync": synced, "operationState": state}}

    async def tell(self, name: str, reason: str, said: str) -> None:
        about = self.lab.world[self.kind.name]["argocd", name]
        told = event(about, "Normal", reason, said, by=BY)
        await self.lab.who["argocd"].call("POST", path("Event", "argocd"), told)

    async def prune(self, name: str, app: str) -> None:
        """The app is not in the folder of an Application any more. Raises RefusedError."""
        lab, commit, gone = self.lab, _commit(self.lab), [(one, app) for one in reversed(PARTS)]
        await self.tell(name, "OperationStarted", f"Initiated automated sync to '{commit}'")
        for kind, one in gone:
            await lab.culprit("argocd", "delete", kind, self.namespace, one)
        why = "it tells of the commit by which these were not found any more"
        body = self.status(commit, "Succeeded", gone, "Pruned")
        await lab.also(why, "argocd", "update", self.kind.name, "argocd", name, body)
        await self.tell(name, "OperationCompleted", f"Sync operation to {commit} succeeded")

    async def make(self, name: str, app: str, kept: Sequence[Json]) -> None:
        """The other Application is synced, and makes what it has. Raises RefusedError."""
        for one in kept:
            own = {"labels": {"app.kubernetes.io/name": app}, **self.tracked(name, one["kind"], app)}
            body = {**one, "metadata": {"namespace": self.namespace, "name": app, **own}}
            await self.lab.who["argocd"].must("POST", path(one["kind"], self.namespace), body)
        body = self.status(_commit(self.lab), "Succeeded", [(one, app) for one in PARTS], "Synced")
        await self.lab.edit("argocd", self.kind.name, "argocd", name, body)


@family(
    "The folder of an app is moved in Git, out of what one Application of the GitOps agent looks at and into what"
    " another one does, which is new. The first one is synced at once and prunes what is not there any more. The second"
    " one is to be synced by hand, or looks some minutes later: until then there is no app.",
    joined=104,
)
async def moved_before_it_was_there(lab: Lab) -> AsyncIterator[None]:
    """As those tell who had thought of a move as of one thing."""
    namespace, name, front, stays = lab.rng.choice(
        (
            ("shop", "tax-rates", "basket-view", "tax-import"),
            ("payments", "bank-holidays", "transfer-page", "holiday-import"),
            ("media", "age-ratings", "title-view", "ratings-import"),
            ("search", "stop-words", "search-view", "word-import"),
        )
    )
    minor, by_hand = lab.rng.randrange(2, 30), lab.rng.random() < 0.5
    team, first, second = f"{namespace}-team", f"{namespace}-backend", f"{namespace}-{name}"
    folders = _Folders(
        lab,
        await lab.custom("Application", ARGO, ANY),
        namespace,
        f"https://git.corp.example/{team}/deploy.git",
    )
    await lab.served(folders.kind)
    await folders.declare("admin", first, "backend/overlays/prod", is_automated=True)
    await lab.apply(objects.config_map(namespace, name, LOG_LEVEL="info", REFRESH="300s"))
    await lab.app(namespace, name, like=App("", asked=lambda: 19.0), replicas=3, tag=f"1.{minor}.0", config=name)
    await lab.apply(objects.config_map(namespace, stays, LOG_LEVEL="info", EVERY="60s"))
    await lab.app(namespace, stays, replicas=1, tag="1.4.0", config=stays)
    for one, tag in ((name, f"1.{minor}.0"), (stays, "1.4.0")):
        await rolled(lab, namespace, one, tag)
        for kind in PARTS:
            await lab.edit("argocd", kind, namespace, one, {"metadata": folders.tracked(first, kind, one)})
    there = [(kind, one) for one in (name, stays) for kind in PARTS]
    body = folders.status(_commit(lab), "Succeeded", there, "Synced")
    await lab.edit("argocd", folders.kind.name, "argocd", first, body)
    await set_before(lab, namespace, front, name)
    lab.alert_errors(namespace, front)
    lab.alert_ingress_errors(namespace, namespace)
    lost = lambda: not backends(lab.world, namespace, name)  # noqa: E731
    summary = f"Prometheus has had no target of {namespace}/{name} for a while"
    lab.alert("TargetMissing", lost, summary, 10, job=f"{namespace}/{name}")
    await lab.until(lab.is_well)

    async def afterwards(kept: Sequence[Json]) -> None:
        await lab.pause(lab.rng.uniform(4, 9))
        await change_page(lab, namespace, front)
        if not by_hand:
            await lab.pause(lab.rng.uniform(45, 60))
            await folders.make(second, name, kept)

    yield
    await lab.edit("argocd", "ConfigMap", namespace, stays, {"data": {"EVERY": lab.rng.choice(("45s", "90s"))}})
    await lab.pause(lab.rng.uniform(5, 10))
    await change_page(lab, namespace, front)
    await lab.pause(lab.rng.uniform(5, 10))
    by = lab.rng.choice(("argocd", *TEAMS))
    await folders.declare(by, second, f"{name}/overlays/prod", is_automated=not by_hand)
    await lab.pause(lab.rng.uniform(2, 6))
    found = {kind: lab.world[kind][namespace, name] for kind in PARTS}
    kept = [
        {"kind": "ConfigMap", "data": found["ConfigMap"]["data"]},
        {"kind": "Service", "spec": objects.service(namespace, name)["spec"]},
        {"kind": "Deployment", "spec": found["Deployment"]["spec"]},
    ]
    await folders.prune(first, name)
    lab.start(afterwards(kept))


# -- a field

KINDS = (
    ("CacheCluster", "cache.platform.example", "cache-operator", "cache", "CACHE"),
    ("MessageBus", "bus.platform.example", "bus-operator", "bus", "BUS"),
    ("IndexCluster", "index.platform.example", "index-operator", "index", "INDEX"),
)
BEFORE, AFTER, MEMBERS = "1.8.3", "1.9.0", 3
OFTEN = 3
"""How many times its members are rolled before somebody is told."""


def _schema() -> Json:
    """Of the version before: what the operator says of an object is two fields, and all others are dropped."""
    told = {"phase": {"type": "string"}, "readyMembers": {"type": "integer"}}
    return {"type": "object", "properties": {"spec": ANY, "status": {"type": "object", "properties": told}}}


def _mark(spec: Json) -> str:
    return hashlib.sha256(json.dumps(spec, sort_keys=True).encode()).hexdigest()[:16]


@dataclass
class _Operator:
    """It has a StatefulSet for each of its objects; its new version notes with which settings that was rolled last."""

    lab: Lab
    kind: Kind
    name: str
    first: dict[Key, int] = field(default_factory=dict)
    """Of each StatefulSet its generation once all was set up."""

    async def keep(self, process: Process) -> None:
        listed = await process.api.call("GET", self.kind.path())
        is_new = process.tag == AFTER and (now() - process.started).total_seconds() >= process.lag
        for one in listed.body.get("items", ()):
            place = one["metadata"]["namespace"], one["metadata"]["name"]
            found = await process.api.call("GET", path("StatefulSet", *place))
            if not found.ok:
                continue
            ready = int(found.body["status"].get("readyReplicas", 0))
            status: Json = {"phase": "Running" if ready == MEMBERS else "Updating", "readyMembers": ready}
            mark = _mark(one["spec"])
            if is_new and _is_through(found.body) and one.get("status", {}).get("appliedSettings") != mark:
                await self._roll(process, {**one, "kind": self.kind.name}, mark)
                status["appliedSettings"] = mark
            if any(one.get("status", {}).get(key) != value for key, value in status.items()):
                await process.api.call("PATCH", self.kind.path(*place), {"status": status})

    async def _roll(self, process: Process, one: Json, mark: str) -> None:
        place = one["metadata"]["namespace"], one["metadata"]["name"]
        notes = {f"{self.kind.group}/settings": mark, f"{self.kind.group}/rolled-at": f"{stamp(now())[:19]}Z"}
        body = {"spec": {"template": {"metadata": {"annotations": notes}}}}
        await process.api.call("PATCH", path("StatefulSet", *place), body)
        said = f"settings {mark} are not applied yet, rolling {MEMBERS} members"
        await tell(process, one, "Normal", "RollingRestart", said, by=self.name)

    def rolls(self, place: Key) -> int:
        """How many times a StatefulSet was written since all was set up."""
        there = self.lab.world["StatefulSet"].get(place)
        return int(there["metadata"]["generation"]) - self.first.get(place, 10**6) if there else 0

    def is_short(self, place: Key) -> bool:
        """Whether a member is away while those that were rolled shortly before have not caught up yet."""
        return self.rolls(place) > 1 and sum(map(is_ready, pods(self.lab.world, *place))) < MEMBERS


def _is_through(one: Json) -> bool:
    """Whether a StatefulSet is as it was last wanted."""
    status = one["status"]
    seen = status.get("observedGeneration", 0) >= one["metadata"]["generation"]
    return bool(
        seen
        and status.get("readyReplicas", 0) == MEMBERS
        and status.get("currentRevision") == status.get("updateRevision")
    )


async def _noted(lab: Lab, release: str, revision: int) -> None:
    """Helm keeps a note of each upgrade, before it does anything. Raises RefusedError."""
    labels = {"owner": "helm", "name": release, "status": "pending-upgrade", "version": str(revision)}
    name = f"sh.helm.release.v1.{release}.v{revision}"
    body: Json = {"metadata": {"name": name, "labels": labels}, "type": "helm.sh/release.v1"}
    body["stringData"] = {"release": f"H4sIAAAA{release}{revision}"}
    await lab.also("Helm's own note of the upgrade", "ci", "create", "Secret", "platform", name, body)


async def _ordered(lab: Lab, kind: Kind, place: Key) -> None:
    """A cluster that somebody has ordered, with its members. Raises RefusedError, TimeoutError."""
    like = App("", serves=False, start_seconds=2.5)
    await lab.app(*place, like=like, kind="StatefulSet", replicas=MEMBERS, tag="7.4.2")
    meta = {"namespace": place[0], "name": place[1]}
    spec = {"members": MEMBERS, "version": "7.4.2", "memory": lab.rng.choice(("2Gi", "4Gi"))}
    await lab.apply({"kind": kind.name, "apiVersion": f"{kind.group}/v1", "metadata": meta, "spec": spec})
    await rolled(lab, *place, "7.4.2")
    lab.reserve(*place)


@family(
    "The operator of a kind that teams order is upgraded by its chart. Helm installs definitions once and never"
    " upgrades them: the new version notes in each object with which settings it was rolled last, the old definition"
    " has no such field, and it is dropped without a word. The operator finds nothing there at each look, and rolls all"
    " members of all clusters again, and again.",
    joined=104,
)
async def dropped_by_the_definition(lab: Lab) -> AsyncIterator[None]:
    """As those tell who read in the release notes afterwards: apply the CRDs by hand."""
    called, group, operator, short, variable = lab.rng.choice(KINDS)
    users = lab.rng.sample(
        (
            ("shop", "basket-store", "basket-page"),
            ("payments", "session-store", "login-page"),
            ("media", "progress-store", "resume-page"),
            ("search", "query-store", "history-page"),
        ),
        2,
    )
    minor, revision = lab.rng.randrange(2, 40), lab.rng.randrange(9, 60)
    keeper = _Operator(lab, await lab.custom(called, group, _schema()), operator)
    await lab.served(keeper.kind)
    for namespace, name, front in users:
        place = namespace, f"{name}-{short}"
        await _ordered(lab, keeper.kind, place)
        fails = lambda _, place=place: 0.25 if keeper.is_short(place) else 0.0  # noqa: E731
        user = App("", upstreams=(place,), asked=lambda: 20.0, failing=fails)
        env = [{"name": f"{variable}_HOSTS", "value": f"{place[1]}.{namespace}:6379"}]
        await lab.apply(objects.config_map(namespace, name, LOG_LEVEL="info", TTL="600"))
        await lab.app(namespace, name, like=user, replicas=3, tag=f"2.{minor}.0", config=name, env=env)
        await rolled(lab, namespace, name, f"2.{minor}.0")
        await set_before(lab, namespace, front, name)
    rights = (group, keeper.kind.plural, "get,list,watch,patch"), ("apps", "statefulsets", "get,list,watch,patch")
    more = ("", "events", "create"), ("coordination.k8s.io", "leases", "*")
    program = both(informer(keeper.kind.path()), every(1.5, keeper.keep), leading("platform", operator))
    await lab.apply(objects.config_map("platform", operator, LOG_LEVEL="info", CONCURRENT="2"))
    await lab.controller("platform", operator, program, *rights, *more, replicas=1, tag=BEFORE, config=operator)
    await rolled(lab, "platform", operator, BEFORE)
    for namespace, name, _ in users:
        place = namespace, f"{name}-{short}"
        keeper.first[place] = int(lab.world["StatefulSet"][place]["metadata"]["generation"])
        often = lambda place=place: keeper.rolls(place) >= OFTEN  # noqa: E731
        summary = f"the StatefulSet {'/'.join(place)} has been changed again and again"
        told = {"namespace": place[0], "statefulset": place[1]}
        lab.alert("StatefulSetRolledTooOften", often, summary, 3, **told)
        lab.alert_errors(namespace, name)
        lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(4, 9))
        await change_page(lab, users[0][0], users[0][2])

    yield
    await lab.roll(lab.rng.choice(("ci", "argocd")), *users[0][:2], f"2.{minor}.1")
    await lab.pause(lab.rng.uniform(7, 12))
    ttl = {"data": {"TTL": lab.rng.choice(("300", "900"))}}
    await lab.edit(lab.rng.choice((*TEAMS, "flux")), "ConfigMap", *users[1][:2], ttl)
    await lab.pause(lab.rng.uniform(5, 10))
    await _noted(lab, operator, revision)
    settings = {"data": {"CONCURRENT": "4"}}
    await lab.also("the same upgrade of the chart", "ci", "update", "ConfigMap", "platform", operator, settings)
    await lab.roll("ci", "platform", operator, AFTER, culprit=True)
    lab.start(afterwards())
