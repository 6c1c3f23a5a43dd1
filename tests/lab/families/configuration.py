"""Configuration that an app lives by: ConfigMaps, Secrets, images, memory, defaults of a namespace."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator

from tests.lab import objects
from tests.lab.api import Json, path
from tests.lab.apps import App, Container, Problem
from tests.lab.lab import Lab
from tests.lab.programs import every, getting
from tests.lab.scenario import family


def _timeout_is_a_number(container: Container) -> Problem | None:
    timeout = container.config.get("TIMEOUT_MS", "800")
    return None if timeout.isdigit() else Problem("crash", f"invalid TIMEOUT_MS: {timeout!r}")


@family("A ConfigMap gets a duration where the app reads a number: it reloads its configuration and crashes.")
async def config_value(lab: Lab) -> AsyncIterator[None]:
    lab.reserve("search", "indexer", "query")
    lab.apps["registry.corp.example/search/indexer"].check = _timeout_is_a_number
    lab.alert_lacking("search", "indexer")
    yield
    await lab.culprit("bob", "update", "ConfigMap", "search", "indexer", {"data": {"TIMEOUT_MS": "1500ms"}})


@family("A rotation writes a password into the Secret that the database does not know yet: the ledger cannot log in.")
async def secret_rotation(lab: Lab) -> AsyncIterator[None]:
    lab.reserve("payments", "billing")
    known = base64.b64encode(b"first").decode()

    def check(container: Container) -> Problem | None:
        same = container.secret.get("password") == known
        return None if same else Problem("unready", "probe failed: password authentication failed for user billing")

    secret = {
        "kind": "Secret",
        "metadata": {"namespace": "payments", "name": "billing-db"},
        "data": {"password": known},
    }
    await lab.apply(secret)
    await lab.app("payments", "billing", like=App("", check=check), secret="billing-db")
    lab.alert_lacking("payments", "billing")
    yield
    rotated = {"data": {"password": base64.b64encode(b"second").decode()}}
    await lab.culprit("flux", "update", "Secret", "payments", "billing-db", rotated)


@family("A release names an image that was never pushed: its pods cannot pull it.")
async def image_missing(lab: Lab) -> AsyncIterator[None]:
    lab.reserve("media", "uploads")
    lab.outside.missing.add("registry.corp.example/media/uploads:2.0.0-rc1")
    lab.alert_stuck("media", "uploads")
    yield
    await lab.roll("ci", "media", "uploads", "2.0.0-rc1", culprit=True)


@family("Right-sizing halves a memory limit below what the app needs: it is killed again and again.")
async def memory_limit(lab: Lab) -> AsyncIterator[None]:
    lab.reserve("media", "thumbnails")
    lab.apps["registry.corp.example/media/thumbnails"].memory_mi = 180
    lab.alert_stuck("media", "thumbnails")
    yield
    limits = {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"memory": "128Mi"}}
    await lab.roll("argocd", "media", "thumbnails", "1.0.0", culprit=True, resources=limits)


@family(
    "A LimitRange gets a small default: pods without limits, made anew by a harmless rollout, are killed for memory."
)
async def limit_range(lab: Lab) -> AsyncIterator[None]:
    lab.reserve("search", "ranker")
    app = await lab.app("search", "ranker", like=App("", memory_mi=200))
    await _without_limits(lab, "search", "ranker", app)
    lab.alert_stuck("search", "ranker")
    yield
    spec = {"limits": [{"type": "Container", "default": {"memory": "128Mi"}, "defaultRequest": {"memory": "64Mi"}}]}
    body: Json = {"metadata": {"name": "defaults"}, "spec": spec}
    await lab.culprit("carol", "create", "LimitRange", "search", "defaults", body)
    await lab.pause(4)
    await lab.roll("argocd", "search", "ranker", "1.0.1")


async def _without_limits(lab: Lab, namespace: str, name: str, app: App) -> None:
    """Its container asks for nothing and has no limit."""
    container = objects.deployment(namespace, name, f"{app.image}:1.0.0")["spec"]["template"]["spec"]["containers"][0]
    body = {"spec": {"template": {"spec": {"containers": [{**container, "resources": None}]}}}}
    await lab.edit("argocd", "Deployment", namespace, name, body)


@family("A chart claims a ConfigMap for an owner that does not exist: it is garbage-collected, its pods cannot start.")
async def owner_reference(lab: Lab) -> AsyncIterator[None]:
    lab.reserve("media", "transcoder")
    await lab.apply(objects.config_map("media", "transcoder", PRESETS="hd"))
    await lab.app("media", "transcoder", config="transcoder")
    lab.alert_stuck("media", "transcoder")
    yield
    owner = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "name": "transcoder-v2",
        "uid": "6c1d2f0e-0000-4000-8000-0d1e2f3a4b5c",
    }
    body = {"metadata": {"ownerReferences": [owner]}}
    await lab.culprit("ci", "update", "ConfigMap", "media", "transcoder", body)
    await lab.pause(5)
    await lab.roll("argocd", "media", "transcoder", "1.0.1")


@family("Somebody cleans up the wrong namespace: payments is deleted, and what called it is not ready.")
async def namespace_deleted(lab: Lab) -> AsyncIterator[None]:
    lab.reserve("shop", "cart")
    lab.reserve("payments", "checkout", "ledger")
    lab.alert_lacking("shop", "cart")
    yield
    await lab.culprit("alice", "delete", "Namespace", "", "payments")


@family("The maximum of an autoscaler is lowered to save money: what is left is too little for the load and fails.")
async def autoscaler_maximum(lab: Lab) -> AsyncIterator[None]:
    lab.reserve("shop", "pricing")
    app = App("", capacity=50, load=170)
    await lab.app("shop", "pricing", like=app, replicas=6)
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "pricing"}
    spec = {"scaleTargetRef": target, "minReplicas": 2, "maxReplicas": 8}
    hpa = {"kind": "HorizontalPodAutoscaler", "metadata": {"namespace": "shop", "name": "pricing"}, "spec": spec}
    await lab.apply(hpa)
    lab.alert_lacking("shop", "pricing")
    yield
    body = {"spec": {"maxReplicas": 2}}
    await lab.culprit("flux", "update", "HorizontalPodAutoscaler", "shop", "pricing", body)


@family("A quota is cut to what runs: the next, harmless rollout may not make its pods.")
async def quota(lab: Lab) -> AsyncIterator[None]:
    lab.reserve("media", "uploads", "thumbnails")
    hard = {"metadata": {"name": "team"}, "spec": {"hard": {"pods": "30"}}}
    await lab.apply({"kind": "ResourceQuota", **hard, "metadata": {"namespace": "media", "name": "team"}})
    lab.alert_stuck("media", "uploads")
    yield
    await lab.culprit("flux", "update", "ResourceQuota", "media", "team", {"spec": {"hard": {"pods": "4"}}})
    await lab.pause(5)
    await lab.roll("argocd", "media", "uploads", "1.0.1")


@family("Somebody deletes a ServiceAccount that looked unused: its controller's token is no longer taken.")
async def service_account(lab: Lab) -> AsyncIterator[None]:
    rules = ("", "services,pods", "get,list,watch")
    program = every(1, getting(path("Service"), f"{path('Pod')}?limit=20"))
    app = await lab.controller("platform", "dns-publisher", program, rules, replicas=1)
    refused = lab.rate(lab.refused(app.image, 401, 403), 0.5)
    lab.alert(
        "DNSPublisherErrors",
        refused,
        "dns-publisher cannot sync records",
        namespace="platform",
        service="dns-publisher",
    )
    yield
    await lab.culprit("alice", "delete", "ServiceAccount", "platform", "dns-publisher")
