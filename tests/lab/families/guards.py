"""What was made to be safe: a rule about owners, tokens that nobody mounts, a store of secrets."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator

from tests.lab.api import Json, path
from tests.lab.apps import App, Container, Problem, Process
from tests.lab.company import APPS, SYSTEM
from tests.lab.families.loops import LOOSE
from tests.lab.lab import NODES, Lab
from tests.lab.programs import every, getting
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
    await lab.app("platform", "namespace-owner")
    webhook = Webhook(review, service=("platform", "namespace-owner"))
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


@family(
    "A ServiceAccount is told to mount no token, as a benchmark of security wants it: what runs has one, and after the"
    " next, harmless rollout the controller finds none and ends.",
    joined=7,
)
async def token_mount(lab: Lab) -> AsyncIterator[None]:
    name = lab.rng.choice(("dns-sync", "certificate-sync", "tenant-sync"))
    work = every(1.5, getting(f"{path('Service')}?limit=20", f"{path('Ingress')}?limit=20"))
    await lab.controller("platform", name, work, ("", "services", "list"), ("networking.k8s.io", "ingresses", "list"))
    lab.reserve("platform", name)
    lab.alert_stuck("platform", name)
    yield
    by, body = lab.rng.choice(("carol", "alice")), {"automountServiceAccountToken": False}
    for harmless in lab.rng.sample(sorted(APPS), 2):  # what runs there asks the API for nothing
        await lab.edit(by, "ServiceAccount", harmless, "default", body)
        await lab.pause(1)
    await lab.culprit(by, "update", "ServiceAccount", "platform", name, body)
    await lab.pause(lab.rng.uniform(7, 12))
    await lab.roll("argocd", "platform", name, "1.0.1")


@family(
    "A store of secrets gets another path in a tidying-up: the operator that syncs from it writes what is there into"
    " every Secret, and those passwords are of another database.",
    joined=7,
)
async def secret_store(lab: Lab) -> AsyncIterator[None]:
    group = "external-secrets.io"
    store, external = await lab.custom("SecretStore", group, LOOSE), await lab.custom("ExternalSecret", group, LOOSE)
    namespace, names = lab.rng.choice(
        (("payments", ("payouts", "refunds")), ("shop", ("orders", "loyalty")), ("media", ("rights", "uploaders")))
    )
    vault = {mount: {name: f"{mount} {name}" for name in names} for mount in ("kv/production", "kv/shared")}

    async def sync(process: Process) -> None:
        """As External Secrets: what differs from the store is written."""
        listed = await process.api.call("GET", external.path())
        for one in listed.body.get("items", []):
            where, name = one["metadata"]["namespace"], one["metadata"]["name"]
            found = await process.api.call("GET", store.path(where, one["spec"]["store"]))
            there = await process.api.call("GET", path("Secret", where, name))
            if not found.ok or not there.ok:
                continue
            value = base64.b64encode(vault[found.body["spec"]["path"]][name].encode()).decode()
            if there.body.get("data", {}).get("password") != value:
                await process.api.call("PATCH", path("Secret", where, name), {"data": {"password": value}})

    def checked(name: str) -> App:
        right = base64.b64encode(vault["kv/production"][name].encode()).decode()

        def check(container: Container) -> Problem | None:
            same = container.secret.get("password") == right
            return None if same else Problem("crash", f"FATAL: password authentication failed for user {name}")

        return App("", check=check)

    for name in names:
        right = base64.b64encode(vault["kv/production"][name].encode()).decode()
        meta = {"namespace": namespace, "name": name}
        await lab.apply({"kind": "Secret", "metadata": meta, "data": {"password": right}})
        await lab.app(namespace, name, like=checked(name), secret=name)
    rules = ((group, "secretstores,externalsecrets", "get,list"), ("", "secrets", "get,patch"))
    await lab.controller("platform", "external-secrets", every(2, sync), *rules, replicas=1)
    await lab.served(store, external)
    api, meta = f"{group}/v1", {"namespace": namespace, "name": "vault"}
    await lab.apply({"apiVersion": api, "kind": "SecretStore", "metadata": meta, "spec": {"path": "kv/production"}})
    for name in names:
        meta = {"namespace": namespace, "name": name}
        await lab.apply({"apiVersion": api, "kind": "ExternalSecret", "metadata": meta, "spec": {"store": "vault"}})
        lab.alert_lacking(namespace, name)
    yield
    by = lab.rng.choice(("bob", "flux"))
    await lab.culprit(by, "update", "SecretStore", namespace, "vault", {"spec": {"path": "kv/shared"}})
