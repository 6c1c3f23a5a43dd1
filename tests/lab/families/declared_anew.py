"""What is declared once more: a password that is only made once, and a policy that now denies."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import datetime

from tests.lab.alerts import pods
from tests.lab.api import Json, Kind, now, path, stamp
from tests.lab.apps import App, Container, Problem, Process
from tests.lab.before import before
from tests.lab.families.by_annotation import rolled
from tests.lab.families.databases import ANY
from tests.lab.families.moving import spare
from tests.lab.families.passwords import begun, from_secret
from tests.lab.families.still_more_stories import drain
from tests.lab.lab import Lab
from tests.lab.network import backends
from tests.lab.programs import every, tell
from tests.lab.scenario import family
from tests.lab.webhook import Webhook, configuration

SECRETS, RELOADED = "external-secrets.io", "reloader.stakater.com/auto"
KYVERNO, RULE, SCOPE = ("kyverno", "kyverno-svc"), "run-as-non-root", "policy.corp.example/restricted"


@dataclass
class _Passwords:
    """What writes Secrets by what is declared, and what starts anew whoever mounts one that has changed."""

    kind: Kind
    namespace: str
    name: str
    made: list[datetime] = field(default_factory=list)
    """When a password was made; the database has read the first."""

    async def sync(self, process: Process) -> None:
        """What is to be made only once is made where the object's own status does not say that it was."""
        where = self.kind.path(self.namespace, self.secret)
        found = await process.api.call("GET", where)
        if not found.ok or "refreshTime" in found.body.get("status", {}):
            return
        body = {"metadata": {"name": self.secret}, "stringData": {"password": f"{process.rng.randrange(16**12):x}"}}
        secrets = path("Secret", self.namespace)
        written = await process.api.call("PATCH", f"{secrets}/{self.secret}", body)
        if written.status == 404:
            written = await process.api.call("POST", secrets, body)
        if written.ok:
            self.made.append(now())
            await process.api.call("PATCH", where, {"status": {"refreshTime": stamp(now())}})
            about: Json = {"kind": self.kind.name, **found.body}
            await tell(process, about, "Normal", "Updated", "secret updated", by="external-secrets")

    async def reload(self, process: Process) -> None:
        found = await process.api.call("GET", path("Secret", self.namespace, self.secret))
        where = path("Deployment", self.namespace, self.name)
        there = await process.api.call("GET", where)
        if not (found.ok and there.ok):
            return
        version, template = found.body["metadata"]["resourceVersion"], there.body["spec"]["template"]
        noted = template["metadata"].get("annotations", {}).get(RELOADED.replace("auto", "last-reloaded-from"))
        if noted != version:
            note = {"annotations": {RELOADED.replace("auto", "last-reloaded-from"): version}}
            await process.api.call("PATCH", where, {"spec": {"template": {"metadata": note}}})

    def refused(self, container: Container) -> Problem | None:
        """Who starts with a later one."""
        if len(self.made) > 1 and begun(container) > self.made[1]:
            return Problem("crash", f'FATAL: password authentication failed for user "{self.name}" (SQLSTATE 28P01)')
        return None

    @property
    def secret(self) -> str:
        return f"{self.name}-db"


@family(
    "What declares a database's password moves to another chart: the object is deleted and created, and its Secret"
    " stays. Its operator makes a password only once, and takes an object without a status for one that has none.",
    joined=30,
)
async def password_made_again(lab: Lab) -> AsyncIterator[None]:
    """As those who make External Secrets tell of ``CreatedOnce`` (external-secrets 6640, July 2026)."""
    namespace, name, front = lab.rng.choice(
        (("shop", "returns", "help-desk"), ("payments", "refunds", "claims"), ("media", "comments", "articles"))
    )
    kind = await lab.custom("ExternalSecret", SECRETS, ANY)
    passwords, by = _Passwords(kind, namespace, name), lab.rng.choice(("argocd", "ci", "alice"))
    generator = {"apiVersion": "generators.external-secrets.io/v1alpha1", "kind": "Password", "name": "random"}
    meta = {"namespace": namespace, "name": passwords.secret, "labels": {"helm.sh/chart": f"{name}-4.2.0"}}
    spec = {
        "refreshPolicy": "CreatedOnce",
        "target": {"name": passwords.secret, "creationPolicy": "Orphan"},
        "dataFrom": [{"sourceRef": {"generatorRef": generator}}],
    }
    declared = {"apiVersion": f"{SECRETS}/v1", "kind": kind.name, "metadata": meta, "spec": spec}
    await lab.served(kind)
    await lab.apply(declared)
    rules = (SECRETS, kind.plural, "get,patch"), ("", "secrets", "get,create,patch"), ("", "events", "create")
    await lab.controller("platform", "external-secrets", every(1.5, passwords.sync), *rules, replicas=1)
    await lab.until(lambda: passwords.made)
    database = f"{name}-postgresql"
    await lab.app(namespace, database, like=App("", serves=False), kind="StatefulSet", replicas=1)
    like = App("", upstreams=((namespace, database),), check=passwords.refused)
    env = [from_secret("DB_PASSWORD", passwords.secret, "password")]
    await lab.app(namespace, name, like=like, replicas=3, tag="3.8.1", env=env)
    strategy = {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}
    note = {"annotations": {RELOADED: "true"}}
    await lab.edit("admin", "Deployment", namespace, name, {"metadata": note, "spec": {"strategy": strategy}})
    rights = ("", "secrets", "get,list"), ("apps", "deployments", "get,list,patch")
    await lab.controller("platform", "reloader", every(2, passwords.reload), *rights, replicas=1)
    await lab.app(namespace, front, like=App("", upstreams=((namespace, name),)), replicas=2)
    await lab.until(lambda: len(backends(lab.world, namespace, front)) == 2)
    await lab.pause(6)
    await rolled(lab, namespace, name, "3.8.1")
    lab.reserve(namespace, name)
    lab.alert_lacking(namespace, name, seconds=10)
    lab.alert_stuck(namespace, name)
    yield
    await lab.culprit(by, "delete", kind.name, namespace, passwords.secret)
    await lab.pause(lab.rng.uniform(0.5, 1.5))
    moved = {**declared, "metadata": {**meta, "labels": {"helm.sh/chart": "databases-1.0.0"}}}
    await lab.also("the same hand's same move", by, "create", kind.name, namespace, passwords.secret, moved)


def _is_restricted(pod: Json) -> bool:
    contexts = (pod["spec"], *pod["spec"]["containers"])
    return any(one.get("securityContext", {}).get("runAsNonRoot") for one in contexts)


@family(
    "A policy that only reported is told to enforce, as in a sibling where all pods keep to it. What runs goes on; then"
    " a machine is drained for its updates, and the pods from there are not let in anywhere else.",
    joined=30,
)
async def policy_enforced(lab: Lab) -> AsyncIterator[None]:
    """As teams go from ``Audit`` to ``Deny`` cluster by cluster (modernisation-platform-environments 18587, 2026)."""
    namespace, name, caller = lab.rng.choice(
        (("search", "synonyms", "suggest"), ("media", "covers", "library"), ("shop", "ratings", "product-page"))
    )
    kind = await lab.custom("ClusterPolicy", "kyverno.io", ANY, namespaced=False)
    by, keeper = lab.rng.choice(("flux", "carol", "ci")), lab.rng.choice(("alice", "bob"))

    async def review(request: Json) -> str | None:
        action = lab.world[kind.name].get(("", RULE), {}).get("spec", {}).get("validationFailureAction")
        if action != "Enforce" or _is_restricted(request["object"]):
            return None
        what = (
            f"resource Pod/{request['namespace']}/{request['object']['metadata'].get('generateName', '')} was blocked"
        )
        return (
            f"{what} due to the following policies\n\n{RULE}:\n  {RULE}: 'validation error: runAsNonRoot must be true'"
        )

    def action(word: str) -> Json:
        return {"spec": {"validationFailureAction": word}}

    await lab.served(kind)
    await lab.namespace(KYVERNO[0])
    await lab.app(*KYVERNO, tag="1.15.2")
    await lab.edit("admin", "Namespace", "", namespace, {"metadata": {"labels": {SCOPE: "enabled"}}})
    webhook = Webhook(review, service=KYVERNO)
    await webhook.start()
    lab.servers.append(webhook)
    match = {"any": [{"resources": {"kinds": ["Pod"], "namespaceSelector": {"matchLabels": {SCOPE: "enabled"}}}}]}
    spec = {"background": True, "rules": [{"name": RULE, "match": match}], **action("Audit")["spec"]}
    await lab.apply({"apiVersion": "kyverno.io/v1", "kind": kind.name, "metadata": {"name": RULE}, "spec": spec})
    await lab.until(lambda: len(backends(lab.world, *KYVERNO)) == 2)
    await lab.apply(configuration("kyverno-resource-validating", webhook, only=SCOPE))
    spread = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": {"app.kubernetes.io/name": name}},
    }
    await lab.app(
        namespace, name, replicas=6, topologySpreadConstraints=[spread], securityContext={"runAsNonRoot": True}
    )
    await lab.app(namespace, caller, like=App("", upstreams=((namespace, name),)), replicas=2)
    await lab.until(lambda: len(backends(lab.world, namespace, caller)) == 2)
    lab.reserve(namespace, name)
    lab.reserve(namespace, caller)
    lab.alert_lacking(namespace, name, seconds=12)
    async with before(lab, days=5, cluster=lab.rng.choice(("staging", "eu-2"))):
        await lab.edit(by, kind.name, "", RULE, action("Enforce"))
        await lab.pause(3)
        await lab.roll("ci", namespace, name, "1.0.1")
        await rolled(lab, namespace, name, "1.0.1")
    await lab.edit("admin", kind.name, "", RULE, action("Audit"))
    plain = {"spec": {"template": {"spec": {"securityContext": None}}}}
    await lab.edit("admin", "Deployment", namespace, name, plain)
    await lab.until(lambda: not any(_is_restricted(one) for one in pods(lab.world, namespace, name)))
    await rolled(lab, namespace, name, "1.0.1")
    free = [
        one for one in spare(lab, 4) if any(pod["spec"]["nodeName"] == one for pod in pods(lab.world, namespace, name))
    ]
    yield
    await lab.culprit(by, "update", kind.name, "", RULE, action("Enforce"))
    await lab.pause(lab.rng.uniform(12, 20))
    await lab.edit(keeper, "Node", "", free[0], {"spec": {"unschedulable": True}})
    lab.start(drain(lab, keeper, free[0]))
