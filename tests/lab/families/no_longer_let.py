"""No longer let: rights that looked unused, and pods that nobody is there to look at."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from itertools import count

from tests.lab import objects
from tests.lab.api import Json, path
from tests.lab.apps import App, Process
from tests.lab.company import APPS
from tests.lab.families.by_annotation import rolled
from tests.lab.families.moving import spare
from tests.lab.families.not_in_mind import TEAMS
from tests.lab.lab import NODES, Lab
from tests.lab.network import backends
from tests.lab.programs import every
from tests.lab.scenario import family
from tests.lab.webhook import Webhook, configuration

# -- rights

UNUSED = (("contractor-autumn", "view", "jdoe"), ("k6-trial", "edit", "k6"), ("jenkins-edit", "edit", "jenkins"))
KEPT_BY = ("platform-edit", "migration-2025", "edit-temporary", "infra-poc")
FAILED = 2
"""How often in a row something has to fail in a namespace until somebody is told."""


@dataclass
class _Works:
    """What does one thing after another in the namespaces of teams, as long as it may."""

    places: list[tuple[str, str]]
    deploys: bool
    done: Counter[str] = field(default_factory=Counter)
    in_a_row: Counter[str] = field(default_factory=Counter)
    """How often it has failed by now, by namespace."""
    turn: count[int] = field(default_factory=count)

    async def work(self, process: Process) -> None:
        turn = next(self.turn)
        namespace, name = self.places[turn % len(self.places)]
        is_done = await (self._deploy if self.deploys else self._write)(process, namespace, name, turn)
        self.done["success" if is_done else "failed"] += 1
        self.in_a_row[namespace] = 0 if is_done else self.in_a_row[namespace] + 1

    async def _deploy(self, process: Process, namespace: str, name: str, turn: int) -> bool:
        where = path("Deployment", namespace, name)
        found = await process.api.call("GET", where)
        if not found.ok:
            return False
        container = found.body["spec"]["template"]["spec"]["containers"][0]
        image = f"{container['image'].rsplit(':', 1)[0]}:1.{turn + 8}.0"
        body = {"spec": {"template": {"spec": {"containers": [{**container, "image": image}]}}}}
        return (await process.api.call("PATCH", where, body)).ok

    async def _write(self, process: Process, namespace: str, name: str, turn: int) -> bool:
        body = {"data": {"revision": str(4100 + turn)}}
        return (await process.api.call("PATCH", path("ConfigMap", namespace, name), body)).ok


@family(
    "Somebody cleans up bindings of roles whose names say nothing to anybody. Most of them are of accounts that have"
    " gone. By one of them a pipeline deploys the apps of a team, or a controller brings it its settings: it is"
    " answered with 403 from then on.",
    joined=101,
)
async def bindings_tidied(lab: Lab) -> AsyncIterator[None]:
    """As those tell whose next deployment failed on the day after an audit."""
    deploys, is_wide = lab.rng.random() < 0.5, lab.rng.random() < 0.4
    home, name = ("platform", "deploy-runner" if deploys else lab.rng.choice(("flag-sync", "settings-sync")))
    by, minor, kept_by = lab.rng.choice(TEAMS), lab.rng.randrange(2, 30), lab.rng.choice(KEPT_BY)
    homes = lab.rng.sample(sorted(APPS), 3)
    target = "site" if deploys else f"{name}-values"
    works = _Works([(one, target) for one in homes], deploys)
    for one in homes:
        if deploys:
            await lab.app(one, target, replicas=1, tag="1.7.0")
            await rolled(lab, one, target, "1.7.0")
        else:
            await lab.apply(objects.config_map(one, target, revision="4099"))
    await lab.apply(objects.account(home, name))
    await lab.apply(objects.cluster_role(name, ("apps", "deployments", "get,patch"), ("", "configmaps", "get,patch")))
    for one in homes[:1] if is_wide else homes:
        called = kept_by if one == homes[0] else name
        await lab.apply(objects.binding(called, name, home, name, within="" if is_wide else one))
    gone = [(one, where) for one in UNUSED for where in (["" if is_wide else homes[0]])]
    for (called, role, account), where in gone:
        await lab.apply(objects.binding(called, role, "platform", account, within=where))
    like = App("", program=every(3.2 if deploys else 2.0, works.work), serves=False)
    await lab.app(home, name, like=like, account=name, replicas=1, tag=f"2.{minor}.0")
    await rolled(lab, home, name, f"2.{minor}.0")
    series = "pipeline_jobs_total" if deploys else "sync_runs_total"
    for result in ("success", "failed"):
        value = lambda result=result: works.done[result]  # noqa: E731
        lab.measure(series, value, "counter", namespace=home, service=name, result=result)
    what = "deployments by" if deploys else "runs of"
    summary = f"{what} {home}/{name} fail again and again for at least one namespace"
    fails = lambda: max(works.in_a_row.values(), default=0) >= FAILED  # noqa: E731
    alertname = "DeploymentJobsFailing" if deploys else "SyncFailing"
    lab.alert(alertname, fails, summary, 4, namespace=home, service=name)
    await lab.until(lambda: works.done["success"] >= 2 * len(homes) and lab.is_well())
    kind = "ClusterRoleBinding" if is_wide else "RoleBinding"
    before, after = (gone[:2], gone[2:]) if lab.rng.random() < 0.5 else (gone[:1], gone[1:])

    async def clear(rest: list[tuple[tuple[str, str, str], str]]) -> None:
        for (called, _, _), where in rest:
            await lab.who[by].must("DELETE", path(kind, where, called))
            await lab.pause(lab.rng.uniform(0.5, 1.5))

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(4, 8))
        await lab.edit(lab.rng.choice(TEAMS), "ConfigMap", "search", "indexer", {"data": {"TIMEOUT_MS": "820"}})

    yield
    await lab.roll(lab.rng.choice(("ci", "argocd")), home, name, f"2.{minor}.1")
    await lab.pause(lab.rng.uniform(6, 11))
    level = {"data": {"LOG_LEVEL": lab.rng.choice(("warn", "debug"))}}
    await lab.edit(lab.rng.choice((*TEAMS, "flux")), "ConfigMap", "payments", "ledger", level)
    await lab.pause(lab.rng.uniform(3, 8))
    await clear(before)
    await lab.culprit(by, "delete", kind, "" if is_wide else homes[0], kept_by)
    await lab.pause(lab.rng.uniform(0.5, 1.5))
    await clear(after)
    lab.start(afterwards())


# -- a policy engine

ENGINES = (
    ("gatekeeper-system", "gatekeeper-controller-manager", "v3.20.1"),
    ("kyverno", "kyverno-admission-controller", "v1.15.2"),
    ("platform", "policy-server", "1.31.0"),
)
ENFORCED = "policy.corp.example/enforced"
LACKING_SECONDS = 15


async def _start_on(lab: Lab, node: str, namespace: str, name: str, *, tag: str, replicas: int) -> None:
    """All pods of an app are on one node for now, as nothing keeps them apart. Raises RefusedError."""
    others = [one for one in NODES if one != node]
    for one in others:
        await lab.edit("admin", "Node", "", one, {"spec": {"unschedulable": True}})
    await lab.app(namespace, name, like=App("", serves=False), replicas=replicas, tag=tag)
    await rolled(lab, namespace, name, tag)
    for one in others:
        await lab.edit("admin", "Node", "", one, {"spec": {"unschedulable": None}})


async def _empty(lab: Lab, by: str, node: str) -> None:
    """As `kubectl drain`: nothing comes to a node any more, and whatever no DaemonSet owns is asked to leave."""
    await lab.edit(by, "Node", "", node, {"spec": {"unschedulable": True}})
    for (namespace, name), pod in list(lab.world["Pod"].items()):
        owners = pod["metadata"].get("ownerReferences", ())
        if pod["spec"].get("nodeName") == node and not any(one["kind"] == "DaemonSet" for one in owners):
            meta = {"namespace": namespace, "name": name}
            body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": meta}
            await lab.who[by].call("POST", f"{path('Pod', namespace, name)}/eviction", body)


@family(
    "The webhook of a policy engine is set to refuse whatever it is not asked about, or is to be asked about all"
    " namespaces, its own too. All goes on. Then the node of its pods is emptied, as one is each week: nobody is there"
    " to be asked, and nobody can make a pod, not even those of the engine.",
    joined=101,
)
async def closed_when_away(lab: Lab) -> AsyncIterator[None]:
    """As those tell who had to delete a webhook's configuration by hand at night."""
    home, name, tag = lab.rng.choice(ENGINES)
    by, drains, to_all = lab.rng.choice(("flux", "argocd", *TEAMS)), lab.rng.choice(TEAMS), lab.rng.random() < 0.5
    teams = lab.rng.sample((("shop", "coupons"), ("media", "posters"), ("search", "stems"), ("payments", "tariffs")), 3)
    [node], minor, count_of = spare(lab, 1), lab.rng.randrange(2, 30), lab.rng.choice((1, 2))
    if home != "platform":
        await lab.namespace(home)

    async def review(_: Json) -> None:
        """Nobody takes the connection while no pod is ready."""
        if not backends(lab.world, home, name):
            raise ConnectionError

    await _start_on(lab, node, home, name, tag=tag, replicas=count_of)
    for namespace, app in teams:
        await lab.app(namespace, app, like=App("", asked=lambda: 15.0), replicas=3, tag=f"3.{minor}.0")
        await rolled(lab, namespace, app, f"3.{minor}.0")
        lab.alert_stuck(namespace, app)
        lab.alert_lacking(namespace, app, seconds=LACKING_SECONDS)
    lab.alert_lacking(home, name, seconds=LACKING_SECONDS)
    webhook = Webhook(review, service=(home, name))
    await webhook.start()
    lab.servers.append(webhook)
    told = configuration(name, webhook)
    [hook] = told["webhooks"]
    everywhere = hook["namespaceSelector"]
    if to_all:
        hook["namespaceSelector"] = {"matchLabels": {ENFORCED: "true"}}
        enforced = {"metadata": {"labels": {ENFORCED: "true"}}}
        await lab.edit("admin", "Namespace", "", teams[0][0], enforced)
    else:
        hook["failurePolicy"] = "Ignore"
    await lab.apply(told)
    await lab.until(lab.is_well)

    async def afterwards() -> None:
        """The node is emptied, and given back; teams release."""
        await lab.pause(lab.rng.uniform(9, 15))
        await lab.edit(lab.rng.choice(TEAMS), "ConfigMap", "search", "query", {"data": {"TIMEOUT_MS": "770"}})
        await lab.pause(lab.rng.uniform(3, 6))
        await _empty(lab, drains, node)
        await lab.pause(lab.rng.uniform(3, 6))
        await lab.roll(lab.rng.choice(("ci", "argocd")), *teams[1], f"3.{minor}.1")
        await lab.pause(lab.rng.uniform(3, 6))
        await lab.edit(drains, "Node", "", node, {"spec": {"unschedulable": None}})
        await lab.roll(lab.rng.choice(("ci", "argocd")), *teams[2], f"3.{minor}.2")

    yield
    await lab.roll(lab.rng.choice(("ci", "argocd")), *teams[0], f"3.{minor}.1")
    await lab.pause(lab.rng.uniform(8, 12))
    new: Json = {**hook, "failurePolicy": "Fail", "namespaceSelector": everywhere}
    await lab.culprit(by, "update", "ValidatingWebhookConfiguration", "", name, {"webhooks": [new]})
    lab.start(afterwards())
