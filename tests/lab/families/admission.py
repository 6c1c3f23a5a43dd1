"""What the API server refuses: webhooks, rights, schemas, its own flow control."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from tests.lab import objects
from tests.lab.alerts import pods
from tests.lab.api import Json, now, path, stamp
from tests.lab.apps import Process
from tests.lab.company import APPS, SYSTEM
from tests.lab.lab import Lab
from tests.lab.manifests import is_ready
from tests.lab.programs import every
from tests.lab.scenario import family
from tests.lab.webhook import DAY, Review, Webhook, configuration


async def _policy(lab: Lab, review: Review, *, lifetime: float = DAY, seconds: int = 5, only: str = "") -> Json:
    """The webhook of the policy controller, which is there already; returns the configuration."""
    webhook = Webhook(review, seconds=lifetime, service=("platform", "policy"))
    await webhook.start()
    lab.servers.append(webhook)
    made = configuration("policy", webhook, seconds=seconds, only=only)
    await lab.apply(made)
    return made


@family("A policy that was tried in one namespace is widened to all: pods without its label are denied everywhere.")
async def webhook_scope(lab: Lab) -> AsyncIterator[None]:
    lab.reserve("shop", "catalog")

    async def review(request: Json) -> str | None:
        labels = request["object"]["metadata"].get("labels", {})
        return None if "cost-center" in labels else "every pod needs a label cost-center"

    await lab.app("platform", "policy")
    made = await _policy(lab, review, only="policy.corp.example/enforce")
    lab.alert_stuck("shop", "catalog")
    yield
    wide: Json = {
        "matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-system"]}]
    }
    hooks = {"webhooks": [{**made["webhooks"][0], "namespaceSelector": wide}]}
    await lab.culprit("flux", "update", "ValidatingWebhookConfiguration", "", "policy", hooks)
    await lab.pause(6)
    await lab.roll("argocd", "shop", "catalog", "1.0.1")


@family(
    "The policy controller's cache is switched off: its webhook takes longer than it may, and no pod is made any more."
)
async def webhook_timeout(lab: Lab) -> AsyncIterator[None]:
    lab.reserve("search", "indexer")

    async def review(request: Json) -> str | None:
        settings = lab.world["ConfigMap"]["platform", "policy"]["data"]
        await asyncio.sleep(6 if settings["CACHE"] == "off" else 0)
        return None

    await lab.apply(objects.config_map("platform", "policy", CACHE="on"))
    await lab.app("platform", "policy", config="policy")
    await _policy(lab, review, seconds=2)
    lab.alert_stuck("search", "indexer")
    yield
    await lab.culprit("bob", "update", "ConfigMap", "platform", "policy", {"data": {"CACHE": "off"}})
    await lab.pause(6)
    await lab.roll("ci", "search", "indexer", "1.0.1")


@family(
    "The certificate of a webhook expires: the API server trusts it no more, and pods are refused.",
    culprit=False,
)
async def certificate_expired(lab: Lab) -> AsyncIterator[None]:
    lab.reserve("media", "uploads")

    async def review(request: Json) -> str | None:
        return None

    await lab.app("platform", "policy")
    await _policy(lab, review, lifetime=65)
    expires = now().timestamp() + 65
    lab.alert_stuck("media", "uploads")
    yield
    await lab.pause(expires - now().timestamp())
    await lab.roll("argocd", "media", "uploads", "1.0.1")


@family("The policy controller is scaled to nothing to save money while its webhook must be asked: pods are refused.")
async def webhook_backend(lab: Lab) -> AsyncIterator[None]:
    lab.reserve("shop", "cart")

    async def review(request: Json) -> str | None:
        if not any(is_ready(pod) for pod in pods(lab.world, "platform", "policy")):
            raise ConnectionError("no pod is behind it")
        return None

    await lab.app("platform", "policy")
    await _policy(lab, review)
    lab.alert_stuck("shop", "cart")
    yield
    await lab.culprit("alice", "update", "Deployment", "platform", "policy", {"spec": {"replicas": 0}})
    await lab.pause(8)
    await lab.roll("argocd", "shop", "cart", "1.0.1")


@family(
    "A namespace gets the strictest of the Pod Security Standards: what runs there goes on, and no pod of the next,"
    " harmless rollout is admitted.",
    joined=4,
)
async def pod_security(lab: Lab) -> AsyncIterator[None]:
    namespace, name = lab.rng.choice(
        (("shop", "catalog"), ("payments", "ledger"), ("search", "indexer"), ("media", "thumbnails"))
    )
    lab.reserve(namespace, name)
    lab.alert_stuck(namespace, name)
    yield
    body = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}
    await lab.culprit("flux", "update", "Namespace", "", namespace, body)
    await lab.pause(8)
    await lab.roll("argocd", namespace, name, "1.0.1")


@family("A RoleBinding is deleted in an audit of rights: the controller that lives by it is forbidden what it does.")
async def role_binding(lab: Lab) -> AsyncIterator[None]:
    await lab.apply(objects.config_map("media", "mirror", seen="never"))

    async def sync(process: Process) -> None:
        await process.api.call("PATCH", path("ConfigMap", "media", "mirror"), {"data": {"seen": stamp(now())}})

    app = await lab.controller("platform", "mirror", every(1, sync), ("", "pods", "list"), replicas=1)
    await lab.apply(objects.cluster_role("mirror-writer", ("", "configmaps", "get,patch")))
    await lab.apply(objects.binding("mirror", "mirror-writer", "platform", "mirror", within="media"))
    refused = lab.rate(lab.refused(app.image, 403), 0.4)
    lab.alert("MirrorStale", refused, "the mirror of media is stale", namespace="platform", service="mirror")
    yield
    await lab.culprit("carol", "delete", "RoleBinding", "media", "mirror")


@family("A chart's new CustomResourceDefinition wants a number where the operator writes text: every write is invalid.")
async def crd_schema(lab: Lab) -> AsyncIterator[None]:
    def schema(kind: str) -> Json:
        spec = {"type": "object", "properties": {"port": {"type": kind}, "seen": {"type": "string"}}}
        return {"type": "object", "properties": {"spec": spec}}

    tunnel = await lab.custom("Tunnel", "net.corp.example", schema("string"))

    async def sync(process: Process) -> None:
        spec = {"spec": {"port": str(process.rng.randrange(30000, 32767)), "seen": stamp(now())}}
        done = await process.api.call("PATCH", tunnel.path("platform", "edge"), spec)
        if done.status == 404:
            body = {"apiVersion": "net.corp.example/v1", "kind": "Tunnel", "metadata": {"name": "edge"}, **spec}
            await process.api.call("POST", tunnel.path("platform"), body)

    app = await lab.controller("platform", "tunnels", every(1, sync), ("net.corp.example", "tunnels", "*"), replicas=1)
    await lab.pause(4)
    await lab.world.watch(tunnel)
    refused = lab.rate(lab.refused(app.image, 400, 422), 0.4)
    lab.alert("TunnelsNotReconciled", refused, "tunnels cannot be reconciled", namespace="platform", service="tunnels")
    yield
    versions = [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema("integer")}}]
    body = {"spec": {"versions": versions}}
    await lab.culprit("ci", "update", "CustomResourceDefinition", "", "tunnels.net.corp.example", body)


@family("A FlowSchema that should slow one exporter down matches every ServiceAccount of platform: they get 429.")
async def flow_schema(lab: Lab) -> AsyncIterator[None]:
    async def discover(process: Process) -> None:
        """Every namespace at once, as a client that is in a hurry."""
        await asyncio.gather(*(process.api.call("GET", path("Service", name)) for name in (*SYSTEM, *APPS)))

    app = await lab.controller("platform", "discovery", every(0.8, discover), ("", "services", "list"))
    limits = {
        "nominalConcurrencyShares": 0,
        "lendablePercent": 0,
        "borrowingLimitPercent": 0,
        "limitResponse": {"type": "Reject"},
    }
    meta = {"name": "quarantine"}
    await lab.apply(
        {"kind": "PriorityLevelConfiguration", "metadata": meta, "spec": {"type": "Limited", "limited": limits}}
    )
    refused = lab.rate(lab.refused(app.image, 429), 0.5)
    lab.alert("DiscoveryStale", refused, "discovery serves stale data", namespace="platform", service="discovery")
    yield
    rule = {
        "subjects": [{"kind": "Group", "group": {"name": "system:serviceaccounts:platform"}}],
        "resourceRules": [
            {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"], "clusterScope": True}
        ],
    }
    spec = {"priorityLevelConfiguration": {"name": "quarantine"}, "matchingPrecedence": 500, "rules": [rule]}
    await lab.culprit(
        "carol", "create", "FlowSchema", "", "exporters", {"metadata": {"name": "exporters"}, "spec": spec}
    )
