"""What is let in now and refused a moment later, by a quota or by the definition of a kind."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from functools import partial
from itertools import count

from tests.lab import objects
from tests.lab.api import Json, Kind, path
from tests.lab.apps import App, Container, Process
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.families.databases import ANY
from tests.lab.lab import Lab
from tests.lab.manifests import is_done
from tests.lab.network import backends
from tests.lab.programs import every, lagging
from tests.lab.scenario import family

TENANTS, PLANS, QUOTA = "tenancy.corp.example", {"small": 16, "large": 32}, "team-quota"
BUDGET, FRUGAL = "cost.corp.example/budget", 4
"""The label of who asked for a small quota, and how many pods that lets run."""
ASKED_FOR, FOR_ALL = "1.9.1", "2.0.0"
RUN_SECONDS, EARLY_EVERY, DAY_EVERY = 13.0, 3.0, 0.8
"""For how long a run takes, and after which time another one is started, early and by day."""
GROUP = "environments.corp.example"
OWN_OWNER, WITH_OWNER = "3.8.0", "4.0.0"


@dataclass
class _Outcomes:
    """What became of what was asked for lately."""

    failed: int = 0
    lately: deque[bool] = field(default_factory=lambda: deque(maxlen=12))

    def add(self, *, is_done: bool) -> None:
        self.lately.append(is_done)
        self.failed += not is_done

    def lacking(self, share: float, _: Container) -> float:
        """Of all that an app is asked, where such a share asks for one."""
        return share * self.lately.count(False) / len(self.lately) if self.lately else 0.0


@dataclass
class _Teams:
    """Namespaces of teams whose quota follows from their plan; one of them has no plan and asked to be frugal."""

    tenants: Kind
    frugal: str
    image: str
    pause: float = EARLY_EVERY
    runs: _Outcomes = field(default_factory=_Outcomes)
    numbers: count[int] = field(default_factory=count)

    async def by_plan(self, process: Process) -> None:
        """As their operator: it puts right what differs."""
        listed = await process.api.call("GET", self.tenants.path())
        for one in listed.body.get("items", []):
            await self._keep(process, one["metadata"]["name"], PLANS[one["spec"]["plan"]])

    async def by_cost(self, process: Process) -> None:
        """As what keeps costs down: up to a version only where somebody asked for it."""
        if process.tag == FOR_ALL:
            await lagging(process)
        listed = await process.api.call("GET", f"{path('Namespace')}?labelSelector=team")
        for meta in (one["metadata"] for one in listed.body.get("items", [])):
            if process.tag == FOR_ALL or meta["labels"].get(BUDGET) == "small":
                await self._keep(process, meta["name"], FRUGAL)

    async def _keep(self, process: Process, namespace: str, most: int) -> None:
        where = path("ResourceQuota", namespace, QUOTA)
        found = await process.api.call("GET", where)
        if found.ok and found.body["spec"]["hard"].get("pods") != str(most):
            await process.api.call("PATCH", where, {"spec": {"hard": {"pods": str(most)}}})

    async def start(self, teams: tuple[str, ...], process: Process) -> None:
        """A run of a team's pipeline; what has ended is cleared away."""
        namespace = teams[next(self.numbers) % len(teams)]
        where = path("Pod", namespace)
        for one in (await process.api.call("GET", where)).body.get("items", []):
            if is_done(one):
                await process.api.call("DELETE", f"{where}/{one['metadata']['name']}", {"gracePeriodSeconds": 0})
        made = objects.deployment(namespace, "run", f"{self.image}:11.4", restartPolicy="Never")["spec"]["template"]
        meta = {"generateName": "run-", "labels": made["metadata"]["labels"]}
        self.runs.add(is_done=(await process.api.call("POST", where, {**made, "metadata": meta})).ok)


@family(
    "A new version of what keeps costs down writes the quotas of all teams, and not only of those that asked for it. An"
    " operator writes them by each team's plan: the two correct each other without end, and whatever run is started"
    " while the small one holds is refused.",
    joined=43,
)
async def quota_fight(lab: Lab) -> AsyncIterator[None]:
    """Nobody told this one: a quota is a field as any other, and what it lets in follows it at once."""
    teams = tuple(lab.rng.sample(("team-atlas", "team-birch", "team-comet", "team-delta"), 3))
    queue, by = lab.rng.choice(("pipeline-queue", "run-scheduler")), lab.rng.choice(("argocd", "flux", "ci"))
    image = "registry.corp.example/builds/runner"
    lab.apps[image] = App(image, ends_after=RUN_SECONDS, serves=False)
    kind = await lab.custom("Tenant", TENANTS, ANY, namespaced=False)
    await lab.served(kind)
    work = _Teams(kind, teams[2], image)
    for namespace in teams:
        await lab.namespace(namespace)
        is_frugal = namespace == work.frugal
        labels = {"team": namespace.removeprefix("team-"), **({BUDGET: "small"} if is_frugal else {})}
        await lab.edit("admin", "Namespace", "", namespace, {"metadata": {"labels": labels}})
        plan = "large" if namespace == teams[0] else "small"
        most = FRUGAL if is_frugal else PLANS[plan]
        meta = {"namespace": namespace, "name": QUOTA}
        await lab.apply({"kind": "ResourceQuota", "metadata": meta, "spec": {"hard": {"pods": str(most)}}})
        if not is_frugal:
            body = {"apiVersion": f"{TENANTS}/v1", "kind": kind.name, "metadata": {"name": namespace}}
            await lab.apply({**body, "spec": {"plan": plan}})
    quotas = ("", "resourcequotas", "get,list,watch,patch")
    tenants = (TENANTS, kind.plural, "get,list,watch")
    await lab.controller("platform", "tenant-operator", every(1.6, work.by_plan), quotas, tenants, replicas=1)
    names = ("", "namespaces", "list")
    await lab.controller("platform", "cost-guard", every(2.2, work.by_cost), quotas, names, replicas=1, tag=ASKED_FOR)
    run = ("", "pods", "list,create,delete")
    starts = every(lambda process: work.pause, partial(work.start, teams[:2]))
    app = await lab.controller("platform", queue, starts, run, replicas=1, tag="8.3.0")
    app.serves, app.failing, app.fails_with = True, partial(work.runs.lacking, 0.6), lambda _: "503"
    await lab.until(lambda: backends(lab.world, "platform", queue))
    await publish(lab, "platform", queue)
    failures = lambda: work.runs.failed  # noqa: E731
    labels = {"namespace": "platform", "service": queue}
    lab.measure("runs_refused_total", failures, "counter", **labels)
    lab.alert("RunsRefused", lab.rate(failures, 0.15, seconds=12), f"{queue} cannot start runs", 4, **labels)
    lab.alert_errors("platform", queue, 0.1)
    await rolled(lab, "platform", "cost-guard", ASKED_FOR)
    await lab.pause(15)
    await lab.until(lab.is_well)
    yield
    work.pause = DAY_EVERY
    await lab.pause(lab.rng.uniform(12, 18))
    await lab.roll(by, "platform", "cost-guard", FOR_ALL, culprit=True)


def _definition(*mandatory: str) -> Json:
    """Of environments: what has to be said of one."""
    text: Json = {"type": "string"}
    spec = {"type": "object", "properties": {"image": text, "size": text, "owner": text}}
    if mandatory:
        spec["required"] = list(mandatory)
    return {"type": "object", "properties": {"spec": spec, "status": ANY}}


@dataclass
class _Orders:
    """Who orders environments: ``owner`` is whom it names as theirs, if anybody."""

    kind: Kind
    prefix: str
    owner: str = ""
    outcomes: _Outcomes = field(default_factory=_Outcomes)

    async def order(self, process: Process) -> None:
        meta = {"name": f"{self.prefix}-{process.rng.getrandbits(28):07x}"}
        image = f"registry.corp.example/shop/site:pr-{process.rng.randrange(400, 900)}"
        spec = {"image": image, "size": "small", **({"owner": self.owner} if self.owner else {})}
        body = {"apiVersion": f"{GROUP}/v1", "kind": self.kind.name, "metadata": meta, "spec": spec}
        answer = await process.api.call("POST", self.kind.path("previews"), body)
        self.outcomes.add(is_done=answer.ok)


async def _provide(kind: Kind, process: Process) -> None:
    """As the operator of environments: up to a version whoever ordered one without an owner is taken for that."""
    listed = await process.api.call("GET", kind.path("previews"))
    for one in [one for one in listed.body.get("items", []) if "status" not in one]:
        name = one["metadata"]["name"]
        owner = one["spec"].get("owner") or ("unowned" if process.tag == OWN_OWNER else "")
        settings = {"metadata": {"name": name}, "data": {"OWNER": owner, "IMAGE": one["spec"]["image"]}}
        await process.api.call("POST", path("ConfigMap", "previews"), settings)
        await process.api.call("PATCH", kind.path("previews", name), {"status": {"phase": "Ready"}})


@family(
    "A chart's new definition makes a field mandatory that its operator filled in by itself until now. Whoever orders"
    " environments by the console has always said it; what makes one for each change of the code never did, and is"
    " answered with 422 each time.",
    joined=43,
)
async def owner_mandatory(lab: Lab) -> AsyncIterator[None]:
    """As those tell whose pipelines left out what a definition had not asked for."""
    by = lab.rng.choice(("argocd", "flux", "alice"))
    maker, console = lab.rng.choice((("preview-maker", "dev-console"), ("branch-deployer", "env-console")))
    kind = await lab.custom("Environment", GROUP, _definition())
    definition = f"{kind.plural}.{GROUP}"
    await lab.served(kind)
    await lab.namespace("previews")
    rights = (GROUP, kind.plural, "list,patch"), ("", "configmaps", "create")
    operator = "environment-operator"
    await lab.controller("platform", operator, every(1.4, partial(_provide, kind)), *rights, replicas=1, tag=OWN_OWNER)
    orders = (_Orders(kind, "pr"), 1.5), (_Orders(kind, "dev", "team-web"), 6.0)
    creates = (GROUP, kind.plural, "create")
    for (one, seconds), name in zip(orders, (maker, console), strict=True):
        app = await lab.controller("platform", name, every(seconds, one.order), creates, replicas=1, tag="2.7.5")
        app.serves, app.failing = True, partial(one.outcomes.lacking, 0.5)
    await lab.until(lambda: all(backends(lab.world, "platform", one) for one in (maker, console)))
    await publish(lab, "platform", maker)
    for (one, _), name in zip(orders, (maker, console), strict=True):
        failures = partial(lambda one: one.outcomes.failed, one)
        labels = {"namespace": "platform", "service": name}
        lab.measure("environment_orders_failed_total", failures, "counter", **labels)
        lab.alert_errors("platform", name, 0.15)
    lab.alert_ingress_errors("platform", "platform", 0.15)
    await rolled(lab, "platform", operator, OWN_OWNER)
    await lab.pause(10)
    await lab.until(lab.is_well)
    yield
    await lab.roll("ci", "platform", maker, "2.7.6")
    await lab.pause(lab.rng.uniform(6, 12))
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": _definition("owner")}}
    body = {"spec": {"versions": [version]}}
    await lab.culprit(by, "update", "CustomResourceDefinition", "", definition, body)
    await lab.pause(1)
    await lab.roll(by, "platform", operator, WITH_OWNER)
