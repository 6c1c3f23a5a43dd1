"""What was told of webhooks that wait for what waits for them: for a ConfigMap, for themselves, for each other."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable
from datetime import datetime

from tests.lab import objects
from tests.lab.alerts import pods
from tests.lab.api import Json, now, path, stamp
from tests.lab.apps import App, CrashError, Process
from tests.lab.families.moving import spare
from tests.lab.families.still_more_stories import drain
from tests.lab.lab import NODES, Lab
from tests.lab.manifests import is_ready
from tests.lab.programs import every, leading
from tests.lab.scenario import family
from tests.lab.webhook import Review, Webhook, configuration

LOOK_SECONDS, STAMP_SECONDS, IDLE_SECONDS = 2.5, 5.0, 12.0
"""How often a replica looks after its webhook, writes down when that was asked, and how old that may be at most."""
TRY_SECONDS = 6.0
"""Until somebody whose write was refused tries again."""
STAMP, ACTIVE = "kyverno.io/last-request-time", "kyverno.io/webhookActive"


def _answers(lab: Lab, namespace: str, name: str) -> None:
    """As a webhook's Service: somebody is behind it. Raises ConnectionError."""
    there = (pod for pod in pods(lab.world, namespace, name) if is_ready(pod))
    if not any(pod["spec"]["nodeName"] not in lab.outside.dead_nodes for pod in there):
        raise ConnectionError("no pod is behind it")


async def _webhook(lab: Lab, review: Review, namespace: str, name: str) -> Webhook:
    webhook = Webhook(review, service=(namespace, name))
    await webhook.start()
    lab.servers.append(webhook)
    return webhook


async def _placed(lab: Lab, nodes: list[str], work: Awaitable[object], namespace: str, name: str) -> None:
    """An app that was made when there were only these nodes. Raises RefusedError."""

    def is_there() -> bool:
        found = pods(lab.world, namespace, name)
        return bool(found) and all(is_ready(pod) for pod in found)

    others = [node for node in NODES if node not in nodes]
    for node in others:
        await lab.edit("admin", "Node", "", node, {"spec": {"unschedulable": True}})
    await work
    await lab.until(is_there)
    for node in others:
        await lab.edit("admin", "Node", "", node, {"spec": {"unschedulable": None}})


@family(
    "The ConfigMap of a webhook, which nothing mounts, is deleted in a clean-up: the webhook runs on until its node is"
    " emptied, then it ends at each start, and as it must be asked for ConfigMaps, nobody can make that one again.",
    joined=14,
)
async def webhook_config(lab: Lab) -> AsyncIterator[None]:
    """As the authors of Knative Eventing tell (2020)."""
    namespace, name, config, mark = "knative-eventing", "eventing-webhook", "default-ch-webhook", "eventing.knative.dev"
    defaults = "clusterDefault:\n  apiVersion: messaging.knative.dev/v1\n  kind: InMemoryChannel\n"
    manifest = objects.config_map(namespace, config, **{"default-ch-config": defaults})

    async def serve(process: Process) -> None:
        """What it is to fill in it reads as it starts, and follows from then on."""
        if not (await process.api.call("GET", path("ConfigMap", namespace, config))).ok:
            raise CrashError(f'Error reading ConfigMap "{config}": configmaps "{config}" not found')
        await leading(namespace, name)(process)

    async def review(request: Json) -> str | None:
        _answers(lab, namespace, name)
        return None

    async def restore() -> None:
        while True:
            await lab.pause(TRY_SECONDS)
            await lab.who["bob"].call("POST", path("ConfigMap", namespace), manifest)

    await lab.namespace(namespace)
    await lab.edit("admin", "Namespace", "", namespace, {"metadata": {"labels": {f"{mark}/release": "v0.15.0"}}})
    for one in (manifest, objects.config_map(namespace, "config-ping-defaults", dataMaxSize="-1")):
        await lab.apply(one)
    [node] = spare(lab, 1)
    rules = (("", "configmaps", "get,list,watch"), ("coordination.k8s.io", "leases", "*"))
    await _placed(lab, [node], lab.controller(namespace, name, serve, *rules, replicas=1), namespace, name)
    made = configuration("config.webhook.eventing", await _webhook(lab, review, namespace, name))
    rule = {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "operations": ["CREATE", "UPDATE"],
        "resources": ["configmaps"],
    }
    selector = {"matchExpressions": [{"key": f"{mark}/release", "operator": "Exists"}]}
    made["webhooks"][0] |= {"rules": [rule], "namespaceSelector": selector}
    await lab.apply(made)
    lab.alert_lacking(namespace, name, seconds=8)
    yield
    by = lab.rng.choice(("carol", "alice"))
    await lab.edit(by, "ConfigMap", namespace, "config-ping-defaults", {"metadata": {"labels": {"used": "true"}}})
    await lab.culprit(by, "delete", "ConfigMap", namespace, config)
    await lab.pause(lab.rng.uniform(6, 10))
    await lab.edit("admin", "Node", "", node, {"spec": {"unschedulable": True}})
    lab.start(drain(lab, "admin", node))
    lab.start(restore())


@family(
    "A new version of a policy controller no longer writes down when its webhook was last asked: each of its replicas"
    " takes it for dead, and deletes and makes it again without end.",
    joined=14,
)
async def webhook_recreated(lab: Lab) -> AsyncIterator[None]:
    """As users of Kyverno 1.6.0 tell (2022)."""
    namespace, name = "kyverno", "kyverno"
    version, new = "v1.5.8", "v1.6.0"
    hooks: list[Json] = []
    where = path("Deployment", namespace, name)

    async def review(request: Json) -> str | None:
        _answers(lab, namespace, name)
        return None

    async def look(process: Process) -> None:
        """What it knows of the requests of all replicas is what an annotation says."""
        found = await process.api.call("GET", where)
        if not found.ok:
            return
        told = found.body["metadata"].get("annotations", {}).get(STAMP, "")
        age = (now() - datetime.fromisoformat(told)).total_seconds() if told else IDLE_SECONDS + 1
        if process.tag == version and age > STAMP_SECONDS:
            await process.api.call("PATCH", where, {"metadata": {"annotations": {STAMP: stamp(now())}}})
        elif age > IDLE_SECONDS:
            await process.api.call("PATCH", where, {"metadata": {"annotations": {ACTIVE: "false"}}})
            for hook in hooks:
                kept = path(hook["kind"], None, hook["metadata"]["name"])
                await process.api.call("DELETE", kept)
                await process.api.call("POST", path(hook["kind"]), hook)
            await process.api.call("PATCH", where, {"metadata": {"annotations": {ACTIVE: "true"}}})

    await lab.namespace(namespace)
    webhook = await _webhook(lab, review, namespace, name)
    for kind, what in (("ValidatingWebhookConfiguration", "validating"), ("MutatingWebhookConfiguration", "mutating")):
        made = {**configuration(f"kyverno-resource-{what}-webhook-cfg", webhook), "kind": kind}
        made["webhooks"][0] |= {"failurePolicy": "Ignore"}
        hooks.append(made)
    kinds = "validatingwebhookconfigurations,mutatingwebhookconfigurations"
    rules = (("apps", "deployments", "get,patch"), ("admissionregistration.k8s.io", kinds, "*"))
    app = await lab.controller(namespace, name, every(LOOK_SECONDS, look), *rules, replicas=3, tag=version)
    await lab.until(lambda: len([pod for pod in pods(lab.world, namespace, name) if is_ready(pod)]) == 3)
    for made in hooks:
        await lab.apply(made)
    often = lab.rate(lab.refused(app.image, 201), 0.5)
    lab.alert("WebhookConfigurationsRecreated", often, "webhooks are made again and again", 4, job="apiserver")
    yield
    await lab.roll(lab.rng.choice(("ci", "flux", "argocd")), namespace, name, new, culprit=True)


@family(
    "Old nodes are deleted without being drained, once there are new ones: all of a policy controller and of a mesh's"
    " control plane ran there, the webhook of each must be asked for the pods of the other, and no pod is made.",
    joined=14,
)
async def webhook_circle(lab: Lab) -> AsyncIterator[None]:
    """As users of UDS Core tell (2024)."""
    policy, mesh = ("policy-system", "admission"), ("istio-system", "istiod")
    proxy, label = "registry.corp.example/istio-system/proxyv2", "istio-injection"
    old = spare(lab, lab.rng.choice((2, 3)))

    async def validate(request: Json) -> str | None:
        _answers(lab, *policy)
        return None

    async def inject(request: Json) -> list[Json] | None:
        _answers(lab, *mesh)
        resources = {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"memory": "128Mi"}}
        one = {"name": "istio-proxy", "image": f"{proxy}:1.21.1", "resources": resources}
        return [{"op": "add", "path": "/spec/containers/-", "value": one}]

    lab.apps[proxy] = App(proxy)
    for namespace, name in (mesh, policy):
        await lab.namespace(namespace)
        await _placed(lab, old, lab.app(namespace, name), namespace, name)
    for namespace in (policy[0], "shop"):
        await lab.edit("admin", "Namespace", "", namespace, {"metadata": {"labels": {label: "enabled"}}})
    injector = configuration("istio-sidecar-injector", await _webhook(lab, inject, *mesh), only=label)
    await lab.apply({**injector, "kind": "MutatingWebhookConfiguration"})
    made = configuration("pepr-uds-core", await _webhook(lab, validate, *policy))
    excluded = {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-system", policy[0]]}
    made["webhooks"][0] |= {"namespaceSelector": {"matchExpressions": [excluded]}}
    await lab.apply(made)
    for place in (mesh, policy, ("shop", "frontend"), ("payments", "checkout")):
        lab.alert_lacking(*place)
    yield
    by = lab.rng.choice(("alice", "carol"))
    for node in old:
        lab.kubelets.crash(node)
        await lab.culprit(by, "delete", "Node", "", node)
        await lab.pause(lab.rng.uniform(0.5, 2))
