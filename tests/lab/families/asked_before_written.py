"""What is asked before anything is written: a policy that refuses, a webhook that is slow, a sync of all or none."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

from tests.lab.api import Json, Kind, path
from tests.lab.apps import App, Process
from tests.lab.families.by_annotation import rolled
from tests.lab.lab import Lab
from tests.lab.manifests import images
from tests.lab.network import backends
from tests.lab.programs import both, every, leading
from tests.lab.scenario import family
from tests.lab.webhook import Webhook, configuration

ANY: Json = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
TEAMS = (("shop", "cart"), ("payments", "ledger"), ("search", "indexer"), ("media", "thumbnails"))
LABEL = "policy.corp.example/checked"


async def _roll_on(lab: Lab, by: str, teams: list[tuple[str, str]]) -> None:
    """One team after the other has a release."""
    for team in teams:
        await lab.pause(lab.rng.uniform(1, 6))
        await lab.roll(by, *team, "2.1.0")


def _lacks(pod: Json, rule: str) -> str:
    """What a rule says of a pod that does not keep to it; or ""."""
    containers = pod["spec"]["containers"]
    if rule == "require-run-as-nonroot" and not all(
        one.get("securityContext", {}).get("runAsNonRoot") for one in containers
    ):
        return "validation error: Running as root is not allowed. rule run-as-non-root failed"
    if rule == "require-cpu-limits" and not all(
        one.get("resources", {}).get("limits", {}).get("cpu") for one in containers
    ):
        return "validation error: CPU limits are required. rule validate-resources failed"
    if rule == "require-team-label" and "team" not in pod["metadata"].get("labels", {}):
        return "validation error: The label `team` is required. rule check-for-labels failed"
    return ""


@family(
    "A policy for pods has told of violations for weeks and let all of them pass. It is switched over to enforcing:"
    " what runs goes on, and each team that rolls out next gets no new pods.",
    joined=69,
)
async def audit_to_enforce(lab: Lab) -> AsyncIterator[None]:
    """As users of Kyverno and Gatekeeper tell of the day on which they enforced what nobody had read the reports of."""
    rule = lab.rng.choice(("require-run-as-nonroot", "require-cpu-limits", "require-team-label"))
    by, deploys = lab.rng.choice(("alice", "flux", "carol")), lab.rng.choice(("ci", "argocd"))
    rolling = lab.rng.sample(TEAMS, 3)
    policy = await lab.custom("ClusterPolicy", "kyverno.io", ANY, namespaced=False)

    async def review(request: Json) -> str | None:
        for (_, name), found in lab.world["ClusterPolicy"].items():
            if found["spec"]["validationFailureAction"] == "Enforce" and (why := _lacks(request["object"], name)):
                return f"policy {name}: {why}"
        return None

    place = ("platform", "kyverno-admission")
    await lab.app(*place, like=App("", serves=False), tag="1.13.4")
    await lab.served(policy)
    for name, action in ((rule, "Audit"), ("disallow-host-path", "Enforce")):
        spec = {"validationFailureAction": action, "background": True, "rules": [{"name": name}]}
        meta = {"name": name}
        await lab.apply({"kind": "ClusterPolicy", "metadata": meta, "spec": spec})
    await rolled(lab, *place, "1.13.4")
    webhook = Webhook(review, service=place)
    await webhook.start()
    lab.servers.append(webhook)
    for namespace in sorted({one for one, _ in TEAMS}):
        await lab.edit("admin", "Namespace", "", namespace, {"metadata": {"labels": {LABEL: "enabled"}}})
    await lab.apply(configuration("kyverno-resource-validating", webhook, only=LABEL))
    for team in TEAMS:
        lab.reserve(*team)
        lab.alert_stuck(*team)
    await lab.until(lab.is_well)
    yield
    await lab.roll(deploys, *lab.rng.choice(TEAMS), "2.0.1")
    await lab.pause(lab.rng.uniform(4, 10))
    await lab.culprit(by, "update", "ClusterPolicy", "", rule, {"spec": {"validationFailureAction": "Enforce"}})
    lab.start(_roll_on(lab, deploys, rolling))


@family(
    "What is asked of each new pod before it is let in gets a new version, which looks up where an image comes from"
    " and takes its time: some are let in late, most are not answered for before the API server gives up, and"
    " rollouts do not go on.",
    joined=69,
)
async def slow_review(lab: Lab) -> AsyncIterator[None]:
    """As those tell whose webhook verifies signatures with a registry at each admission."""
    name = lab.rng.choice(("image-policy", "signature-check", "pod-policy"))
    old, new = "1.9.3", lab.rng.choice(("1.10.0", "2.0.0"))
    by, deploys = lab.rng.choice(("argocd", "flux", "ci")), lab.rng.choice(("ci", "alice"))
    late, allowed = lab.rng.uniform(0.75, 0.95), lab.rng.choice((3, 4))
    chance = lab.rng.getrandbits(32)
    place = ("platform", name)

    async def review(request: Json) -> None:
        nonlocal chance
        there = [images(pod)[0] for pod in backends(lab.world, *place)]
        share = sum(one.endswith(f":{new}") for one in there) / max(1, len(there))
        chance = (chance * 1103515245 + 12345) % 2**31
        if chance / 2**31 < share:
            await asyncio.sleep(allowed + 1 if (chance >> 8) % 1000 < 1000 * late else 0.7 * allowed)

    await lab.app(*place, like=App("", serves=False), tag=old)
    await rolled(lab, *place, old)
    webhook = Webhook(review, service=place)
    await webhook.start()
    lab.servers.append(webhook)
    for namespace in sorted({one for one, _ in TEAMS}):
        await lab.edit("admin", "Namespace", "", namespace, {"metadata": {"labels": {LABEL: "enabled"}}})
    await lab.apply(configuration(name, webhook, seconds=allowed, only=LABEL))
    for team in TEAMS:
        lab.reserve(*team)
        lab.alert_stuck(*team)
    await lab.until(lab.is_well)
    yield
    await lab.edit(deploys, "ConfigMap", *lab.rng.choice(TEAMS), {"data": {"LOG_LEVEL": "debug"}})
    await lab.pause(lab.rng.uniform(2, 6))
    await lab.roll(by, *place, new, culprit=True)
    await rolled(lab, *place, new)
    lab.start(_roll_on(lab, deploys, lab.rng.sample(TEAMS, 3)))


PARTS = ("basket", "vouchers", "returns")


@dataclass
class _Sync:
    """What brings an Application's manifests into the cluster: all of them are tried first, and one refused is all."""

    application: Kind
    namespace: str
    name: str

    async def step(self, process: Process) -> None:
        where = self.application.path("argocd", self.name)
        found = await process.api.call("GET", where)
        if not found.ok:
            return
        values = found.body["spec"]["source"]["helm"]["valuesObject"]
        wanted, why = {part: self._manifest(part, one) for part, one in values.items()}, ""
        for query in ("?dryRun=All", ""):
            for part, body in wanted.items():
                answer = await process.api.call("PATCH", f"{path('Deployment', self.namespace, part)}{query}", body)
                if not answer.ok:
                    why = why or f'Deployment "{part}": {answer.body.get("message", "")}'
            if why:
                break
        told = why if len(why) < 400 else f"{why[:90]} ... {why[-300:]}"  # an answer may name the whole object
        status = {"sync": {"status": "OutOfSync" if why else "Synced"}, "operationState": {"message": told}}
        if found.body.get("status") != status:
            await process.api.call("PATCH", where, {"status": status})

    def _manifest(self, part: str, told: Json) -> Json:
        """As the chart renders it."""
        container = {
            "name": part,
            "image": f"registry.corp.example/{self.namespace}/{part}:{told['tag']}",
            "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"memory": told["memory"]}},
            "readinessProbe": {"httpGet": {"path": "/healthz", "port": 8080}, "periodSeconds": 5},
            "env": [{"name": name, "value": value} for name, value in told.get("env", {}).items()],
        }
        return {"spec": {"template": {"spec": {"containers": [container]}}}}


@family(
    "Several teams have their apps in one application of the GitOps agent. One enters a value that the API server does"
    " not read, and as a sync is all or nothing, another team's release does not arrive either.",
    joined=69,
)
async def one_bad_manifest(lab: Lab) -> AsyncIterator[None]:
    """As users of umbrella charts tell of a number that was not in quotes."""
    namespace, name = lab.rng.choice(("shop", "payments")), "storefront-suite"
    parts = lab.rng.sample(PARTS, 3)
    by, other = lab.rng.sample(("alice", "bob", "carol"), 2)
    change: Json = lab.rng.choice(({"env": {"MAX_ITEMS": 50}}, {"memory": "256MB"}, {"env": {"USE_CACHE": True}}))
    application = await lab.custom("Application", "argoproj.io", ANY)
    for part in PARTS:
        await lab.app(namespace, part, like=App(""), tag="3.1.0")
        await rolled(lab, namespace, part, "3.1.0")
    await lab.served(application)
    values = {part: {"tag": "3.1.0", "memory": "256Mi", "env": {"MAX_ITEMS": "20"}} for part in PARTS}
    spec = {"source": {"chart": name, "targetRevision": "12.4.0", "helm": {"valuesObject": values}}}
    await lab.apply({"kind": "Application", "metadata": {"namespace": "argocd", "name": name}, "spec": spec})
    sync = _Sync(application, namespace, name)
    agent = ("argocd", "argocd-suite-controller")
    rules = ("apps", "deployments", "get,patch"), ("argoproj.io", "applications", "get,patch")
    lease = ("coordination.k8s.io", "leases", "*")
    program = both(every(1.5, sync.step), leading(*agent))
    await lab.controller(*agent, program, *rules, lease, replicas=1, tag="2.14.2")
    await rolled(lab, *agent, "2.14.2")

    def is_out() -> bool:
        found = lab.world["Application"].get(("argocd", name), {})
        return bool(found.get("status", {}).get("sync", {}).get("status", "OutOfSync") != "Synced")

    def edit(part: str, told: Json) -> Json:
        return {"spec": {"source": {"helm": {"valuesObject": {part: told}}}}}

    await lab.until(lambda: not is_out())
    lab.alert("ArgoAppOutOfSync", is_out, f"{name} has been out of sync for a while", 14, name=name, namespace="argocd")
    await lab.until(lab.is_well)
    for part in PARTS:
        await rolled(lab, namespace, part, "3.1.0")
    yield
    await lab.edit(other, "Application", "argocd", name, edit(parts[2], {"tag": "3.1.1"}))
    await lab.pause(lab.rng.uniform(8, 12))
    await lab.culprit(by, "update", "Application", "argocd", name, edit(parts[0], change))
    await lab.pause(lab.rng.uniform(3, 7))
    await lab.edit(other, "Application", "argocd", name, edit(parts[1], {"tag": "3.2.0"}))
