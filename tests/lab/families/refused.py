"""What the API server refuses since a definition of it is stricter: a field, a condition, a number of objects."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from tests.lab import objects
from tests.lab.alerts import pods
from tests.lab.api import Json, Kind, path
from tests.lab.apps import App, Container, Process
from tests.lab.before import before
from tests.lab.families.between import publish
from tests.lab.lab import Lab
from tests.lab.manifests import is_done, is_ready
from tests.lab.network import backends
from tests.lab.programs import every
from tests.lab.scenario import family
from tests.lab.webhook import Webhook, configuration

SIZES = {"small": 3, "large": 8}
"""How many pods a class means."""
EACH_STANDS, BY_DAY, BY_NIGHT = 60.0, 90.0, 340.0
ENFORCED, EXEMPT = "policy.corp.example/enforce", "policy.corp.example/exempt"
BUILDS_AT_ONCE, BUILD_SECONDS = 3, 6.0
SESSIONS = 5
"""How many notebooks are open at once."""


def _class(rule: str = "") -> Json:
    """The schema of what an app is served by; ``rule`` is one in CEL that its class has to keep."""
    validations = [{"rule": rule, "message": "class is immutable"}] if rule else []
    of_class = {"type": "string", "enum": sorted(SIZES), **({"x-kubernetes-validations": validations} if rule else {})}
    spec = {"type": "object", "properties": {"class": of_class, "target": {"type": "string"}}}
    return {"type": "object", "properties": {"spec": spec}}


@dataclass
class _Evenings:
    """An app whose users come in the evening, and the two controllers that size it: by the clock, and by its class."""

    lab: Lab
    kind: Kind
    namespace: str
    name: str
    asked: float = BY_DAY
    is_evening: bool = False

    async def users(self) -> None:
        while True:
            await asyncio.sleep(0.5)
            self.asked += 0.12 * ((BY_NIGHT if self.is_evening else BY_DAY) - self.asked)

    def overload(self, _: Container) -> float:
        ready = sum(is_ready(pod) for pod in pods(self.lab.world, self.namespace, self.name))
        return max(0.0, 1 - EACH_STANDS * max(1, ready) / self.asked)

    async def choose(self, process: Process) -> None:
        """By the clock."""
        wanted = "large" if self.is_evening else "small"
        where = self.kind.path(self.namespace, self.name)
        found = await process.api.call("GET", where)
        if found.ok and found.body["spec"]["class"] != wanted:
            await process.api.call("PATCH", where, {"spec": {"class": wanted}})

    async def resize(self, process: Process) -> None:
        """By the class."""
        found = await process.api.call("GET", self.kind.path(self.namespace, self.name))
        where = f"{path('Deployment', self.namespace, self.name)}/scale"
        scale = await process.api.call("GET", where)
        if found.ok and scale.ok:
            wanted = SIZES[found.body["spec"]["class"]]
            if scale.body["spec"]["replicas"] != wanted:
                await process.api.call("PATCH", where, {"spec": {"replicas": wanted}})

    def has(self, name: str) -> bool:
        return len(backends(self.lab.world, self.namespace, self.name)) == SIZES[name]


@family(
    "The new definition of a kind says that the class of its objects may not be changed. All is well by day, and in the"
    " evening what gives an app the larger class, as each evening, is answered with 422.",
    joined=25,
)
async def class_immutable(lab: Lab) -> AsyncIterator[None]:
    """Fields made immutable by a rule in CEL are what several operators' notes of their releases warn of."""
    namespace, name = lab.rng.choice((("media", "live-chat"), ("shop", "auctions"), ("search", "answers")))
    group = "serving.corp.example"
    kind = await lab.custom("ServingPool", group, _class())
    app = _Evenings(lab, kind, namespace, name)
    await lab.served(kind)
    like = App("", capacity=2 * EACH_STANDS, asked=lambda: app.asked, failing=app.overload, fails_with=lambda _: "503")
    await lab.app(namespace, name, like=like, replicas=SIZES["small"])
    meta = {"namespace": namespace, "name": name}
    spec = {"class": "small", "target": name}
    await lab.apply({"apiVersion": f"{group}/v1", "kind": kind.name, "metadata": meta, "spec": spec})
    rules = (group, kind.plural, "get,list,watch,patch"), ("apps", "deployments/scale", "get,patch")
    for one, work in (("pool-operator", app.resize), ("evening-scaler", app.choose)):
        await lab.controller("platform", one, every(1.5, work), *rules, replicas=1)
    await lab.until(lambda: app.has("small"))
    lab.start(app.users())
    await publish(lab, namespace, name)
    lab.alert_errors(namespace, name)
    async with before(lab, days=1):
        app.is_evening = True
        await lab.until(lambda: app.has("large"))
        await lab.pause(5)
        app.is_evening = False
        await lab.until(lambda: app.has("small"))
    yield
    versions = [{"name": "v1", "served": True, "storage": True}]
    body = {"spec": {"versions": [{**versions[0], "schema": {"openAPIV3Schema": _class("self == oldSelf")}}]}}
    by = lab.rng.choice(("argocd", "ci"))
    await lab.culprit(by, "update", "CustomResourceDefinition", "", f"{kind.plural}.{group}", body)
    await lab.pause(lab.rng.uniform(8, 14))
    app.is_evening = True


async def _build(process: Process) -> None:
    """So many builds at once, each a pod with the annotations that its runner's settings say; what is done goes."""
    where = path("Pod", "builds")
    listed = await process.api.call("GET", f"{where}?labelSelector=app.kubernetes.io/name=build")
    if not listed.ok:
        return
    for one in filter(is_done, listed.body["items"]):
        await process.api.call("DELETE", f"{where}/{one['metadata']['name']}")
    if sum(not is_done(one) for one in listed.body["items"]) < BUILDS_AT_ONCE:
        told = process.config.get("POD_ANNOTATIONS", "")
        notes = dict(one.split("=", 1) for one in told.split() if one)
        meta = {"generateName": "build-", "labels": {"app.kubernetes.io/name": "build"}, "annotations": notes}
        made = objects.deployment("builds", "build", "registry.corp.example/builds/build:1.0.0", restartPolicy="Never")
        spec = made["spec"]["template"]["spec"]
        del spec["containers"][0]["readinessProbe"]
        await process.api.call("POST", where, {"metadata": meta, "spec": spec})


@family(
    "A webhook gets a condition by which it is not asked of what is exempt. The condition reads the annotations of a"
    " pod, and for a pod that has none it fails: no build is started. In a sibling, builds have some.",
    joined=25,
)
async def condition_fails(lab: Lab) -> AsyncIterator[None]:
    """As users of webhooks with ``matchConditions`` tell of fields that are not always there."""
    by = lab.rng.choice(("carol", "flux"))

    async def review(request: Json) -> str | None:
        found = [str(one["image"]) for one in request["object"]["spec"]["containers"]]
        is_ours = all(one.startswith("registry.corp.example/") for one in found)
        return None if is_ours else "only images of registry.corp.example may be run"

    await lab.app("platform", "policy")
    await lab.namespace("builds")
    await lab.edit("admin", "Namespace", "", "builds", {"metadata": {"labels": {ENFORCED: "enabled"}}})
    webhook = Webhook(review, service=("platform", "policy"))
    await webhook.start()
    lab.servers.append(webhook)
    made = configuration("policy", webhook, only=ENFORCED)
    await lab.apply(made)
    image = "registry.corp.example/builds/build"
    lab.apps[image] = App(image, ends_after=BUILD_SECONDS, serves=False)
    notes = {"POD_ANNOTATIONS": "cluster-autoscaler.kubernetes.io/safe-to-evict=false"}
    await lab.apply(objects.config_map("builds", "runner", LOG_LEVEL="info", **notes))
    rules = ("", "pods", "list,create,delete")
    runner = await lab.controller("builds", "runner", every(1.2, _build), rules, config="runner", replicas=1)
    refused = lab.rate(lab.refused(runner.image, 403, 500), 0.3)
    lab.alert("BuildsNotStarted", refused, "builds are not started", 6, namespace="builds", service="runner")
    condition = {"name": "not-exempt", "expression": f"!('{EXEMPT}' in object.metadata.annotations)"}
    conditioned = {"webhooks": [{**made["webhooks"][0], "matchConditions": [condition]}]}
    await lab.until(lambda: len(pods(lab.world, "builds", "build")) >= 2)
    async with before(lab, hours=22, cluster=lab.rng.choice(("eu-1", "staging"))):
        await lab.edit(by, "ValidatingWebhookConfiguration", "", "policy", conditioned)
        await lab.pause(12)
    plain = {"webhooks": [{**made["webhooks"][0], "matchConditions": None}]}
    await lab.edit("admin", "ValidatingWebhookConfiguration", "", "policy", plain)
    await lab.edit("admin", "ConfigMap", "builds", "runner", {"data": {"POD_ANNOTATIONS": ""}})
    yield
    await lab.culprit(by, "update", "ValidatingWebhookConfiguration", "", "policy", conditioned)


@dataclass
class _Hub:
    """Opens a notebook for each user who wants one, with a Secret and a pod; Secrets are left until the week's end."""

    namespace: str
    number: int = 0
    outcomes: list[bool] = field(default_factory=list)

    async def open(self, process: Process) -> None:
        where, name = path("Pod", self.namespace), f"notebook-{self.number}"
        self.number += 1
        body = {"metadata": {"name": name}, "stringData": {"token": f"{process.rng.randrange(10**9)}"}}
        is_open = (await process.api.call("POST", path("Secret", self.namespace), body)).ok
        if is_open:
            image = f"registry.corp.example/{self.namespace}/notebook"
            made = objects.deployment(self.namespace, "notebook", f"{image}:1.0.0", secret=name)["spec"]["template"]
            await process.api.call("POST", where, {**made, "metadata": {**made["metadata"], "name": name}})
            await process.api.call("DELETE", f"{where}/notebook-{self.number - 1 - SESSIONS}")
        self.outcomes.append(is_open)

    def failing(self, _: Container) -> float:
        """A third of what it is asked is for a notebook."""
        lately = self.outcomes[-4:]
        return 0.35 * lately.count(False) / max(1, len(lately))


@family(
    "A namespace may have only so many Secrets, well above what it has: a hub makes one for each notebook and leaves it"
    " until the end of the week, so a while later no notebook is opened any more.",
    joined=25,
)
async def secrets_counted(lab: Lab) -> AsyncIterator[None]:
    """Quotas on the number of objects are what keepers of shared clusters recommend; hubs that leave some are many."""
    namespace = lab.rng.choice(("notebooks", "research", "classroom"))
    hub = _Hub(namespace)
    await lab.namespace(namespace)
    image = f"registry.corp.example/{namespace}/notebook"
    lab.apps[image] = App(image, serves=False)
    rules = ("", "pods,secrets", "list,create,delete")
    app = await lab.controller(namespace, "hub", every(2.5, hub.open), rules, replicas=1)
    app.serves, app.failing = True, hub.failing
    await lab.until(lambda: hub.number > SESSIONS)
    await publish(lab, namespace, "hub")
    lab.alert_errors(namespace, "hub")
    lab.alert_ingress_errors(namespace, namespace)
    yield
    hard = {"count/secrets": f"{hub.number + lab.rng.randrange(4, 8)}"}
    body = {"metadata": {"name": "objects"}, "spec": {"hard": {**hard, "count/configmaps": "50"}}}
    await lab.culprit(lab.rng.choice(("bob", "flux")), "create", "ResourceQuota", namespace, "objects", body)
