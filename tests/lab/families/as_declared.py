"""What does as it is told: an injector of authorities, a priority level, the defaults of a kind."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field

from tests.lab import objects
from tests.lab.api import Json, now, path
from tests.lab.apps import App, Container, Process
from tests.lab.before import before
from tests.lab.company import APPS, SYSTEM
from tests.lab.families.between import publish
from tests.lab.lab import Lab
from tests.lab.network import backends
from tests.lab.programs import every
from tests.lab.scenario import family
from tests.lab.webhook import Webhook

INJECT = "cert-manager.io/inject-ca-from"
GUARD, OWN, SHARED = "job-policy", "job-policy-serving", "platform-webhooks"
"""What admits Jobs, its own certificate, and the one that new webhooks share."""
JOB_SECONDS, TOO_MANY = 3.0, 3


async def inject_authorities(process: Process) -> None:
    """Who says of which certificate gets the authority of that one."""
    listed = await process.api.call("GET", path("ValidatingWebhookConfiguration"))
    for one in listed.body.get("items", []):
        told = one["metadata"].get("annotations", {}).get(INJECT)
        if not told:
            continue
        secret = await process.api.call("GET", path("Secret", *told.split("/")))
        bundle = secret.body.get("data", {}).get("ca.crt")
        if bundle and any(webhook["clientConfig"].get("caBundle") != bundle for webhook in one["webhooks"]):
            webhooks = [
                {**webhook, "clientConfig": {**webhook["clientConfig"], "caBundle": bundle}}
                for webhook in one["webhooks"]
            ]
            where = path("ValidatingWebhookConfiguration", None, one["metadata"]["name"])
            await process.api.call("PATCH", where, {"webhooks": webhooks})


@dataclass
class _Runs:
    """Whoever wants something gets a Job for it."""

    namespace: str
    name: str
    numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))
    waiting: int = 0

    async def wanted(self, lab: Lab) -> None:
        while True:
            await asyncio.sleep(2 * lab.rng.uniform(0.5, 1.5))
            self.waiting += 1

    async def start(self, process: Process) -> None:
        for _ in range(self.waiting):
            image = f"registry.corp.example/{self.namespace}/{self.name}-run"
            made = objects.deployment(self.namespace, f"{self.name}-{next(self.numbers):04}", f"{image}:1.0.0")
            pod = {**made["spec"]["template"]["spec"], "restartPolicy": "Never"}
            del pod["containers"][0]["readinessProbe"]
            spec = {"template": {"spec": pod}, "backoffLimit": 1, "ttlSecondsAfterFinished": 8}
            body = {"metadata": {"name": made["metadata"]["name"]}, "spec": spec}
            if (await process.api.call("POST", path("Job", self.namespace), body)).ok:
                self.waiting -= 1


@family(
    "The configuration of a webhook names another certificate as the one whose authority it wants: what injects"
    " authorities writes that one's, while the webhook's own pods still show the certificate that they have. The API"
    " server trusts it no more, and no Job is made.",
    joined=29,
)
async def injected_authority(lab: Lab) -> AsyncIterator[None]:
    """As users of cert-manager tell whose chart names the wrong Certificate for its webhook."""
    namespace, name = lab.rng.choice((("media", "encodings"), ("search", "crawls"), ("payments", "statements")))
    by = lab.rng.choice(("ci", "argocd", "alice"))
    runs = _Runs(namespace, name)

    async def review(_: Json) -> None:
        if not backends(lab.world, "platform", GUARD):
            raise ConnectionError("no pod is behind it")

    guard, other = Webhook(review, service=("platform", GUARD)), Webhook(review)
    await guard.start()
    lab.servers.append(guard)
    for secret, kept in ((OWN, guard), (SHARED, other)):
        meta: Json = {"namespace": "platform", "name": secret}
        await lab.apply({"kind": "Secret", "metadata": meta, "data": {"ca.crt": kept.authority}})
    await lab.app("platform", GUARD, secret=OWN)
    await lab.until(lambda: backends(lab.world, "platform", GUARD))
    rules = (("admissionregistration.k8s.io", "validatingwebhookconfigurations", "list,patch"), ("", "secrets", "get"))
    await lab.controller("cert-manager", "cainjector", every(1.5, inject_authorities), *rules, replicas=1)
    one = {
        "name": f"{GUARD}.corp.example",
        "clientConfig": guard.client_config(),
        "rules": [{"apiGroups": ["batch"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["jobs"]}],
        "failurePolicy": "Fail",
        "sideEffects": "None",
        "timeoutSeconds": 5,
        "admissionReviewVersions": ["v1"],
    }
    meta = {"name": GUARD, "annotations": {INJECT: f"platform/{OWN}"}}
    await lab.apply({"kind": "ValidatingWebhookConfiguration", "metadata": meta, "webhooks": [one]})
    image = f"registry.corp.example/{namespace}/{name}-run"
    lab.apps[image] = App(image, ends_after=JOB_SECONDS, serves=False)
    await lab.controller(namespace, name, every(1, runs.start), ("batch", "jobs", "create"), replicas=1)
    lab.start(runs.wanted(lab))
    lab.measure(f"{name}_waiting", lambda: runs.waiting, namespace=namespace, service=name)
    summary = f"{name} have been waiting to be started for a while"
    lab.alert("RunsWaiting", lambda: runs.waiting >= TOO_MANY, summary, 5, namespace=namespace, service=name)
    yield
    body: Json = {"metadata": {"annotations": {INJECT: f"platform/{SHARED}"}}}
    await lab.culprit(by, "update", "ValidatingWebhookConfiguration", "", GUARD, body)


LEVEL = "platform-controllers"
QUEUE: Json = {"type": "Queue", "queuing": {"queues": 8, "handSize": 4, "queueLengthLimit": 100}}
STALE_SECONDS = 16


@dataclass
class _Rounds:
    """What looks at all namespaces at once, and is through once each has answered."""

    places: Sequence[str]
    done: float = field(default_factory=lambda: now().timestamp())

    async def go(self, process: Process) -> None:
        """Its client takes 429 for an error like others: the round is over, and the next one begins at its time."""
        answers = await asyncio.gather(*(process.api.call("GET", where) for where in self.places))
        if all(answer.ok for answer in answers):
            self.done = now().timestamp()

    @property
    def age(self) -> float:
        return now().timestamp() - self.done


@family(
    "Somebody sees requests wait in a priority level and has it reject what it has no seat for. What looks at all"
    " namespaces at once has always waited there for a moment: now a part of what it asks is answered with 429 each"
    " time, and it is never through.",
    joined=29,
)
async def reject_not_queue(lab: Lab) -> AsyncIterator[None]:
    """Nobody told this one: priority and fairness does so with whoever asks in bursts."""
    name, kinds = lab.rng.choice(
        (
            ("access-sync", ("ServiceAccount", "ConfigMap", "Role")),
            ("inventory-sync", ("Deployment", "Service", "ConfigMap")),
            ("quota-sync", ("Pod", "ReplicaSet", "Service")),
        )
    )
    team, by = lab.rng.choice(("ci", "flux")), lab.rng.choice(("carol", "bob"))
    limited: Json = {
        "nominalConcurrencyShares": 1,
        "lendablePercent": 0,
        "borrowingLimitPercent": 0,
        "limitResponse": QUEUE,
    }
    spec: Json = {"type": "Limited", "limited": limited}
    await lab.apply({"kind": "PriorityLevelConfiguration", "metadata": {"name": LEVEL}, "spec": spec})
    subject = {"kind": "Group", "group": {"name": "system:serviceaccounts:platform"}}
    everything = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"], "clusterScope": True}
    spec = {
        "priorityLevelConfiguration": {"name": LEVEL},
        "matchingPrecedence": 500,
        "rules": [{"subjects": [subject], "resourceRules": [everything]}],
    }
    await lab.apply({"kind": "FlowSchema", "metadata": {"name": LEVEL}, "spec": spec})
    rounds = _Rounds([path(kind, one) for kind in kinds for one in (*SYSTEM, *APPS)] * 3)
    await lab.controller("platform", name, every(4, rounds.go), ("*", "*", "get,list"), replicas=1)
    summary = f"{name} has not been through for {STALE_SECONDS}s"
    lab.measure("last_success_age_seconds", lambda: rounds.age, namespace="platform", service=name)
    stale = lambda: rounds.age > STALE_SECONDS  # noqa: E731
    lab.alert("SyncStale", stale, summary, 2, namespace="platform", service=name)
    yield
    await lab.roll(team, "platform", name, "1.0.1")
    await lab.pause(lab.rng.uniform(9, 12))
    body = {"spec": {"limited": {"limitResponse": {"type": "Reject", "queuing": None}}}}
    await lab.culprit(by, "update", "PriorityLevelConfiguration", "", LEVEL, body)


GROUP, LIMIT, GENEROUS = "db.corp.example", 100, 400


def _schema(*, default: bool) -> Json:
    """What nobody says is not there, or is so many."""
    clients: Json = {"type": "integer", "minimum": 0, **({"default": LIMIT} if default else {})}
    spec = {"type": "object", "properties": {"database": {"type": "string"}, "maxClients": clients}}
    return {"type": "object", "properties": {"spec": spec}}


def _defined(*, default: bool) -> Json:
    """A change of the definition, which has one version."""
    schema = {"openAPIV3Schema": _schema(default=default)}
    return {"spec": {"versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}]}}


@family(
    "A chart's new definition gives a field of its kind a default. What is stored stays as it is, but whoever reads it"
    " finds the default where nothing was said: an operator limits the clients of a pooler that never had a limit, and"
    " whoever comes too much is turned away.",
    joined=29,
)
async def field_default(lab: Lab) -> AsyncIterator[None]:
    """As Kubernetes' documentation tells of defaults: they are filled in as an object is read, too."""
    namespace, name = lab.rng.choice((("payments", "transfers"), ("shop", "stock"), ("media", "messages")))
    by, clients = lab.rng.choice(("ci", "argocd")), lab.rng.randrange(170, 240)
    kind = await lab.custom("Pooler", GROUP, _schema(default=False))
    definition = f"{kind.plural}.{GROUP}"
    pooler, settings = f"{name}-pgbouncer", f"{name}-pgbouncer-settings"

    async def render(process: Process) -> None:
        """What is declared of a pooler stands in its settings; nothing is no limit."""
        listed = await process.api.call("GET", kind.path())
        for one in listed.body.get("items", []):
            where = path("ConfigMap", one["metadata"]["namespace"], f"{one['metadata']['name']}-settings")
            found = await process.api.call("GET", where)
            wanted = str(one["spec"].get("maxClients", 0))
            if found.ok and found.body["data"]["MAX_CLIENTS"] != wanted:
                await process.api.call("PATCH", where, {"data": {"MAX_CLIENTS": wanted}})

    def turned_away(container: Container) -> float:
        """The share of clients that find no room: "no more connections allowed (max_client_conn)"."""
        limit = int(container.config.get("MAX_CLIENTS", 0))
        return max(0.0, 1 - limit / clients) if limit else 0.0

    await lab.served(kind)
    await lab.apply(objects.config_map(namespace, settings, MAX_CLIENTS="0", POOL_MODE="transaction"))
    like = App("", serves=False, failing=turned_away)
    await lab.app(namespace, pooler, like=like, replicas=2, config=settings)
    meta, spec = {"namespace": namespace, "name": pooler}, {"database": name}
    await lab.apply({"apiVersion": f"{GROUP}/v1", "kind": kind.name, "metadata": meta, "spec": spec})
    for where, one in (("search", "suggestions"), ("platform", "audit-trail")):
        meta = {"namespace": where, "name": f"{one}-pgbouncer"}
        limited: Json = {"database": one, "maxClients": lab.rng.choice((50, 100, 150))}
        await lab.apply({"apiVersion": f"{GROUP}/v1", "kind": kind.name, "metadata": meta, "spec": limited})
        kept = objects.config_map(where, f"{one}-pgbouncer-settings", MAX_CLIENTS=str(limited["maxClients"]))
        await lab.apply(kept)
    await lab.app(namespace, name, like=App("", upstreams=((namespace, pooler),)), replicas=3)
    await publish(lab, namespace, name)
    rules = (GROUP, kind.plural, "list"), ("", "configmaps", "get,patch")
    await lab.controller("platform", "pooler-operator", every(2, render), *rules, replicas=1)
    await lab.until(lambda: len(backends(lab.world, namespace, name)) == 3)
    lab.reserve(namespace, name)
    lab.alert_errors(namespace, name)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.edit("admin", kind.name, namespace, pooler, {"spec": {"maxClients": GENEROUS}})
    await lab.until(lambda: lab.world["ConfigMap"][namespace, settings]["data"]["MAX_CLIENTS"] == str(GENEROUS))
    await lab.until(lab.is_well)
    body = _defined(default=True)
    async with before(lab, days=1, cluster="staging-2"):  # there, everybody says it
        await lab.edit(by, "CustomResourceDefinition", "", definition, body)
        await lab.pause(8)
    await lab.edit("admin", "CustomResourceDefinition", "", definition, _defined(default=False))
    await lab.pause(4)  # until then it is read and watched with the default
    await lab.edit("admin", kind.name, namespace, pooler, {"spec": {"maxClients": None}})
    await lab.until(lambda: "maxClients" not in lab.world[kind.name][namespace, pooler]["spec"])
    await lab.until(lambda: lab.world["ConfigMap"][namespace, settings]["data"]["MAX_CLIENTS"] == "0")
    yield
    await lab.culprit(by, "update", "CustomResourceDefinition", "", definition, body)
