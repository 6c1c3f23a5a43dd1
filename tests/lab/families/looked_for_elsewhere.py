"""Looked for elsewhere: a folder of Git that is somewhere else now, and objects that no operator looks for any more."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count

from tests.lab import objects
from tests.lab.api import Json, Kind, now, path, stamp
from tests.lab.apps import App, Process
from tests.lab.families.by_annotation import rolled
from tests.lab.families.databases import ANY
from tests.lab.families.not_in_mind import TEAMS, change_page, set_before
from tests.lab.lab import Lab
from tests.lab.network import backends
from tests.lab.programs import both, event, every, informer, leading, tell
from tests.lab.scenario import family

LEASE, EVENTS = ("coordination.k8s.io", "leases", "*"), ("", "events", "create")

# -- a folder of Git

FLUX, OF = "kustomize.toolkit.fluxcd.io", "kustomize.toolkit.fluxcd.io/name"


def _revision(lab: Lab) -> str:
    return f"main@sha1:{lab.rng.getrandbits(160):040x}"


async def _applied(lab: Lab, kind: Kind, name: str, revision: str, *, culprit: str = "") -> None:
    """What the controller says of a Kustomization once a commit is carried out; ``culprit`` why that is told of too."""
    ready = {"type": "Ready", "status": "True", "reason": "ReconciliationSucceeded"}
    told = {**ready, "message": f"Applied revision: {revision}", "lastTransitionTime": f"{stamp(now())[:19]}Z"}
    status = {"conditions": [told], "lastAppliedRevision": revision, "lastAttemptedRevision": revision}
    if culprit:
        await lab.also(culprit, "flux", "update", kind.name, "flux-system", name, {"status": status})
    else:
        await lab.edit("flux", kind.name, "flux-system", name, {"status": status})


async def _prune(lab: Lab, kind: Kind, named: str, app: tuple[str, str], gone: Sequence[str]) -> None:
    """What a Kustomization had of an app is deleted, of which it is told as that controller tells of it."""
    for one in gone:
        await lab.culprit("flux", "delete", one, *app)
    said = "\n".join(f"{one}/{'/'.join(app)} deleted" for one in gone)
    told = event(lab.world[kind.name]["flux-system", named], "Normal", "Progressing", said, by="kustomize-controller")
    await lab.who["flux"].call("POST", path("Event", "flux-system"), told)
    why = "it tells of the commit by which these were not found any more"
    await _applied(lab, kind, named, _revision(lab), culprit=why)


@family(
    "The folders of a repository are put in order, and the one of an app is moved out of what the GitOps controller"
    " looks at there, or its name is not in the list beside it any more. It deletes what it no longer finds: the app"
    " with all that it has. Whoever calls it gets no answer.",
    joined=99,
)
async def moved_and_pruned(lab: Lab) -> AsyncIterator[None]:
    """As users of Flux tell who had moved a folder and read of garbage that was collected."""
    namespace, name, front, stays = lab.rng.choice(
        (
            ("shop", "size-charts", "product-page", "size-import"),
            ("payments", "fee-rules", "fee-page", "fee-report"),
            ("media", "cover-art", "album-page", "art-import"),
            ("search", "facet-api", "filter-page", "facet-feed"),
        )
    )
    minor, is_scaled = lab.rng.randrange(2, 30), lab.rng.random() < 0.5
    kind = await lab.custom("Kustomization", FLUX, ANY)
    await lab.served(kind)
    source = {"sourceRef": {"kind": "GitRepository", "name": "apps"}, "interval": "10m", "prune": True}
    named = f"{namespace}-apps"
    meta = {"namespace": "flux-system", "name": named}
    body = {"apiVersion": f"{FLUX}/v1", "kind": kind.name, "metadata": meta}
    where = lab.rng.choice((f"./apps/{namespace}", f"./clusters/eu-1/{namespace}", f"./{namespace}/overlays/prod"))
    await lab.apply({**body, "spec": {**source, "path": where, "targetNamespace": namespace}})
    await lab.apply(objects.config_map(namespace, name, LOG_LEVEL="info", CACHE_SECONDS="60"))
    await lab.app(namespace, name, like=App("", asked=lambda: 17.0), replicas=3, tag=f"2.{minor}.0", config=name)
    await rolled(lab, namespace, name, f"2.{minor}.0")
    await lab.apply(objects.config_map(namespace, stays, LOG_LEVEL="info", EVERY="60s"))
    await lab.app(namespace, stays, replicas=1, tag="1.2.0", config=stays)
    await rolled(lab, namespace, stays, "1.2.0")
    kept = [(one, who) for who in (name, stays) for one in ("Deployment", "Service", "ConfigMap")]
    owned = {"metadata": {"labels": {OF: named, f"{FLUX}/namespace": "flux-system"}}}
    for one, who in kept:
        await lab.edit("flux", one, namespace, who, owned)
    gone = ["Deployment", "ConfigMap", "Service"]
    if is_scaled:
        target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}
        spec = {"scaleTargetRef": target, "minReplicas": 3, "maxReplicas": 8}
        tracked = {"namespace": namespace, "name": name, **owned["metadata"]}
        await lab.apply({"kind": "HorizontalPodAutoscaler", "metadata": tracked, "spec": spec})
        gone.insert(0, "HorizontalPodAutoscaler")
    await set_before(lab, namespace, front, name)
    await _applied(lab, kind, named, _revision(lab))
    lab.alert_errors(namespace, front)
    lab.alert_ingress_errors(namespace, namespace)
    lost = lambda: not backends(lab.world, namespace, name)  # noqa: E731
    summary = f"Prometheus has had no target of {namespace}/{name} for a while"
    lab.alert("TargetMissing", lost, summary, 10, job=f"{namespace}/{name}")
    await lab.until(lab.is_well)

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(5, 10))
        await change_page(lab, namespace, front)

    yield
    await lab.edit("flux", "ConfigMap", namespace, stays, {"data": {"EVERY": "45s"}})
    await _applied(lab, kind, named, _revision(lab))
    await lab.pause(lab.rng.uniform(5, 9))
    await change_page(lab, namespace, front)
    await lab.pause(lab.rng.uniform(6, 11))
    await lab.roll(lab.rng.choice(("ci", "flux")), namespace, stays, "1.2.1")
    await lab.pause(lab.rng.uniform(3, 7))
    await _prune(lab, kind, named, (namespace, name), gone)
    lab.start(afterwards())


# -- whose an object is

TENANTS = ("shop", "payments", "media", "search")
OPERATORS = (
    ("Topic", "kafka.corp.example", "topic-operator", "topic"),
    ("Bucket", "storage.corp.example", "bucket-operator", "bucket"),
    ("Database", "dbs.corp.example", "database-operator", "db"),
)
SHARD, KEPT, WAITS_SECONDS = "platform.corp.example/shard", 8, 18


def _is_carried_out(one: Json) -> bool:
    """Whether it has been made as large as it is to be."""
    return bool(one.get("status", {}).get("size") == one["spec"]["size"])


def _named(process: Process, variable: str) -> str:
    return process.env.get(variable, "")


@dataclass
class _Operator:
    """It carries out what is asked for by the objects that it watches: by their namespaces, or by their labels."""

    kind: Kind
    done: int = 0
    asked: dict[tuple[str, str], float] = field(default_factory=dict)
    """When each was asked for that is not there yet."""
    numbers: count[int] = field(default_factory=lambda: count(1))

    def _lists(self, process: Process) -> list[str]:
        """Where it lists, as its environment said when it was started."""
        labels = _named(process, "WATCH_LABEL_SELECTOR")
        within = [one for one in _named(process, "WATCH_NAMESPACE").split(",") if one]
        return [f"{self.kind.path(one)}?labelSelector={labels}" for one in within or (None,)]

    async def run(self, process: Process) -> None:
        await both(*(informer(where) for where in self._lists(process)), every(1.0, self._reconcile))(process)

    async def _reconcile(self, process: Process) -> None:
        for where in self._lists(process):
            for one in (await process.api.call("GET", where)).body.get("items", ()):
                if not _is_carried_out(one):
                    await self._carry_out(process, {**one, "kind": self.kind.name})

    async def _carry_out(self, process: Process, one: Json) -> None:
        meta = one["metadata"]
        ready = {"type": "Ready", "status": "True", "reason": "Reconciled"}
        status = {"size": one["spec"]["size"], "conditions": [ready]}
        done = await process.api.call("PATCH", self.kind.path(meta["namespace"], meta["name"]), {"status": status})
        self.done += done.ok
        if done.ok:
            said = f"{self.kind.name} {meta['namespace']}/{meta['name']} is up to date"
            await tell(process, one, "Normal", "Reconciled", said, by=f"{self.kind.name.lower()}-controller")

    async def ask(self, process: Process, prefix: str, labelled: Mapping[str, str]) -> None:
        """As a team of each namespace in turn asks for another one, or changes one that is there."""
        number = next(self.numbers)
        home = TENANTS[number % len(TENANTS)]
        listed = (await process.api.call("GET", self.kind.path(home))).body.get("items", ())
        there = sorted(one["metadata"]["name"] for one in listed if one["metadata"]["name"].startswith(f"{prefix}-"))
        if there and process.rng.random() < 0.3:
            name, spec = process.rng.choice(there), {"size": process.rng.randrange(2, 60)}
            done = await process.api.call("PATCH", self.kind.path(home, name), {"spec": spec})
        else:
            name, meta = f"{prefix}-{number:04}", {}
            if home in labelled:
                meta = {"labels": {SHARD: labelled[home]}}
            body = {"apiVersion": f"{self.kind.group}/v1", "kind": self.kind.name, "metadata": {"name": name, **meta}}
            done = await process.api.call("POST", self.kind.path(home), {**body, "spec": {"size": 1}})
        if done.ok:
            self.asked.setdefault((home, name), now().timestamp())
        for one in there[:-KEPT]:
            await process.api.call("DELETE", self.kind.path(home, one))
            self.asked.pop((home, one), None)

    async def look(self, process: Process) -> None:
        """What was asked for is there once the operator has seen it as it is."""
        for one in (await process.api.call("GET", self.kind.path())).body.get("items", ()):
            if _is_carried_out(one):
                self.asked.pop((one["metadata"]["namespace"], one["metadata"]["name"]), None)

    def oldest(self) -> float:
        return now().timestamp() - min(self.asked.values()) if self.asked else 0.0


@family(
    "What an operator watches is written anew, by a label or by the names of namespaces, and some of what it is there"
    " for is not among that any more. Nobody looks after it: what its teams change or ask for is not carried out. What"
    " was made before goes on, and all others get what they ask for.",
    joined=99,
)
async def belongs_to_nobody(lab: Lab) -> AsyncIterator[None]:
    """As those tell who had split an operator in two, or left one namespace out of WATCH_NAMESPACE."""
    name, group, operator, prefix = lab.rng.choice(OPERATORS)
    by, minor, by_label = (
        lab.rng.choice(("flux", "argocd", "ci", *TEAMS)),
        lab.rng.randrange(2, 30),
        lab.rng.random() < 0.5,
    )
    left_out = lab.rng.sample(TENANTS, lab.rng.choice((1, 1, 2)))
    labelled = {one: "main" for one in TENANTS if one not in left_out} if by_label else {}
    within = ",".join(one for one in TENANTS if one not in left_out)
    before, after = {"WATCH_NAMESPACE": ",".join(TENANTS)}, {"WATCH_NAMESPACE": within}
    if by_label:
        before, after = {"WATCH_LABEL_SELECTOR": f"{SHARD}!=legacy"}, {"WATCH_LABEL_SELECTOR": f"{SHARD}=main"}
    kind = await lab.custom(name, group, ANY)
    await lab.served(kind)
    works = _Operator(kind)
    env = [{"name": key, "value": value} for key, value in before.items()]
    program = both(works.run, leading("platform", operator))
    rights = (group, kind.plural, "get,list,watch,patch")
    await lab.controller("platform", operator, program, rights, LEASE, EVENTS, replicas=1, tag=f"0.{minor}.0", env=env)
    await rolled(lab, "platform", operator, f"0.{minor}.0")

    async def ask(process: Process) -> None:
        await works.ask(process, prefix, labelled)

    desk = "self-service"
    program = both(every(2.5, ask), every(1.5, works.look))
    await lab.controller("platform", desk, program, (group, kind.plural, "*"), replicas=1, tag="3.4.0")
    await rolled(lab, "platform", desk, "3.4.0")
    told = {"namespace": "platform", "service": operator, "controller": name.lower()}
    lab.measure("controller_runtime_reconcile_total", lambda: works.done, "counter", **told, result="success")
    told = {"namespace": "platform", "service": desk}
    lab.measure("orders_waiting", lambda: len(works.asked), **told)
    summary = f"a {name} that was asked for or changed has not been carried out for a while"
    lab.alert("OrdersWaiting", lambda: works.oldest() > WAITS_SECONDS, summary, 5, **told)
    await lab.until(lambda: works.done > 8 and lab.is_well())

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(5, 9))
        await lab.edit(lab.rng.choice(TEAMS), "ConfigMap", "search", "indexer", {"data": {"TIMEOUT_MS": "950"}})

    yield
    await lab.roll(lab.rng.choice(("ci", "argocd")), "platform", desk, "3.4.1")
    await lab.pause(lab.rng.uniform(6, 10))
    await lab.edit(lab.rng.choice((*TEAMS, "flux")), "ConfigMap", "payments", "ledger", {"data": {"LOG_LEVEL": "warn"}})
    await lab.pause(lab.rng.uniform(4, 8))
    env = [{"name": key, "value": value} for key, value in after.items()]
    await lab.roll(by, "platform", operator, f"0.{minor}.0", culprit=True, env=env)
    lab.start(afterwards())
