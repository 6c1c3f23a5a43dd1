"""What was made to be safe: a rule about owners, tokens that nobody mounts, a store of secrets."""

from __future__ import annotations

from collections.abc import AsyncIterator

from tests.lab.api import Json
from tests.lab.company import APPS, SYSTEM
from tests.lab.lab import NODES, Lab
from tests.lab.scenario import family
from tests.lab.webhook import Webhook, configuration

OWNER = "owner.corp.example"


@family(
    "A webhook is made that lets nothing be written in a namespace that nobody owns: the kubelets' heartbeats are"
    " Leases in such a one, and node after node is called lost.",
    joined=7,
)
async def webhook_leases(lab: Lab) -> AsyncIterator[None]:
    async def review(request: Json) -> str | None:
        found = lab.world["Namespace"].get(("", request.get("namespace", "")), {}).get("metadata", {})
        return None if OWNER in found.get("labels", {}) else f"a namespace needs the label {OWNER}"

    for namespace in (*SYSTEM, *APPS, "default"):
        await lab.edit("admin", "Namespace", "", namespace, {"metadata": {"labels": {OWNER: f"team-{namespace}"}}})
    webhook = Webhook(review)
    await webhook.start()
    lab.servers.append(webhook)

    def lost() -> bool:
        ready = [
            one["status"] == "True"
            for node in NODES
            for one in lab.world["Node"]["", node]["status"]["conditions"]
            if one["type"] == "Ready"
        ]
        return ready.count(False) >= 2

    lab.alert("KubeNodesNotReady", lost, "several nodes have been unready", 4, job="apiserver")
    yield
    made = configuration("namespace-owner", webhook)
    rule = {
        "apiGroups": ["*"],
        "apiVersions": ["*"],
        "operations": ["CREATE", "UPDATE"],
        "resources": ["*"],
        "scope": "Namespaced",
    }
    body = {"metadata": made["metadata"], "webhooks": [{**made["webhooks"][0], "rules": [rule]}]}
    by = lab.rng.choice(("carol", "flux"))
    await lab.culprit(by, "create", "ValidatingWebhookConfiguration", "", "namespace-owner", body)
