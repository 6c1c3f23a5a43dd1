"""Who may what: a tool with an account of its own that nothing is bound to, a webhook that asks whether one may."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from datetime import timedelta

from tests.lab import objects
from tests.lab.api import Caller, Json, Kind, now, path, stamp
from tests.lab.apps import App, Process, Program
from tests.lab.families.databases import ANY
from tests.lab.lab import Lab
from tests.lab.programs import every, lagging
from tests.lab.scenario import family
from tests.lab.webhook import Webhook, configuration

SHARED = "platform-tools"
SECURITY = "pod-security.kubernetes.io/"
"""How the labels of a namespace begin that say what its pods may be."""
Work = Callable[[Process], Awaitable[None]]
REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


@family(
    "Tools that share one ServiceAccount get one each, as an audit wants it, and for one of them nobody thinks of the"
    " binding: its new pod has an account that may nothing, and what it should keep in step is not any more.",
    joined=19,
)
async def own_account(lab: Lab) -> AsyncIterator[None]:
    """Nobody told this one: it is the plainest that there is."""
    name, other = lab.rng.sample(("dns-publisher", "route-exporter", "status-page-sync"), 2)
    rules = (("", "services", "list"), ("networking.k8s.io", "ingresses", "list"))
    synced = {name: now(), other: now()}

    def syncing(tool: str) -> Program:
        async def sync(process: Process) -> None:
            found = [await process.api.call("GET", f"{path(kind)}?limit=30") for kind in ("Service", "Ingress")]
            if all(one.ok for one in found):
                synced[tool] = now()

        return every(1.5, sync)

    def stale(tool: str) -> bool:
        return (now() - synced[tool]).total_seconds() > 7

    await lab.apply(objects.account("platform", SHARED))
    await lab.apply(objects.cluster_role(SHARED, *rules))
    await lab.apply(objects.binding(SHARED, SHARED, "platform", SHARED))
    for tool in (name, other):
        like = App("", program=syncing(tool), serves=False)
        await lab.app("platform", tool, tag="1.4.0", like=like, account=SHARED, replicas=1)
        summary, holds = f"{tool} has not synced for a while", lambda tool=tool: stale(tool)
        lab.alert("SyncStale", holds, summary, 4, namespace="platform", service=tool)
    yield
    by = lab.rng.choice(("carol", "ci", "alice"))
    for tool in (other, name):
        await lab.who[by].must("POST", path("ServiceAccount", "platform"), objects.account("platform", tool))
        body = {"spec": {"template": {"spec": {"serviceAccountName": tool}}}}
        if tool == name:
            await lab.culprit(by, "update", "Deployment", "platform", tool, body)
            continue
        await lab.who[by].must("POST", path("ClusterRoleBinding"), objects.binding(tool, SHARED, "platform", tool))
        await lab.edit(by, "Deployment", "platform", tool, body)
        await lab.pause(lab.rng.uniform(1, 2))


@dataclass
class _Guard:
    """A webhook of which its pods say themselves, as they start, what it is to be asked for."""

    name: str
    webhook: Webhook = field(init=False)
    asking: list[Caller] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.webhook = Webhook(self.review, service=("platform", self.name))

    async def review(self, request: Json) -> str | None:
        """Whether somebody may, is asked of the API server, with the token of the pod that answers."""
        has, had = ((request.get(one) or {}).get("metadata", {}).get("labels", {}) for one in ("object", "oldObject"))
        changed = {key for key in {**has, **had} if key.startswith(SECURITY) and has.get(key) != had.get(key)}
        if request["resource"]["resource"] != "namespaces" or not changed:
            return None
        wanted = {"verb": "updatepsa", "group": "management.corp.example", "resource": "projects"}
        user = {"user": request["userInfo"]["username"], "groups": request["userInfo"].get("groups", [])}
        done = await self.asking[-1].call("POST", REVIEWS, {"spec": {**user, "resourceAttributes": wanted}})
        if done.body.get("status", {}).get("allowed"):
            return None
        return f"{user['user']} may not set {', '.join(sorted(changed))}: needs updatepsa on projects"

    async def run(self, process: Process) -> None:
        """For ever."""
        self.asking.append(process.api)
        await lagging(process)
        made = configuration(self.name, self.webhook)
        rule = {"apiGroups": ["rbac.authorization.k8s.io"], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"]}
        rules: list[Json] = [{**rule, "resources": ["rolebindings"]}]
        if not process.tag.startswith("0.3."):
            rules.append({**rule, "apiGroups": [""], "resources": ["namespaces"]})
        webhooks = [{**made["webhooks"][0], "rules": rules}]
        where = path("ValidatingWebhookConfiguration")
        if (await process.api.call("PATCH", f"{where}/{self.name}", {"webhooks": webhooks})).status == 404:
            await process.api.call("POST", where, {"metadata": made["metadata"], "webhooks": webhooks})
        await asyncio.Event().wait()


def _signing_up(tenant: Kind) -> Work:
    async def sign_up(process: Process) -> None:
        """A new customer now and then."""
        meta = {"name": f"t-{process.rng.randrange(16**6):06x}"}
        body = {"apiVersion": f"{tenant.group}/v1", "kind": "Tenant", "metadata": meta, "spec": {"plan": "standard"}}
        await process.api.call("POST", tenant.path("platform"), body)

    return sign_up


def _providing(tenant: Kind) -> Work:
    async def provide(process: Process) -> None:
        """Each tenant that has no namespace gets one."""
        listed = await process.api.call("GET", tenant.path("platform"))
        for one in listed.body.get("items", []):
            name = one["metadata"]["name"]
            if one.get("status", {}).get("phase") == "Ready":
                continue
            labels = {f"{SECURITY}enforce": "baseline", f"{tenant.group}/tenant": name}
            made = await process.api.call("POST", path("Namespace"), {"metadata": {"name": name, "labels": labels}})
            if made.status in (201, 409):
                await process.api.call("PATCH", tenant.path("platform", name), {"status": {"phase": "Ready"}})

    return provide


@family(
    "The new version of a webhook is asked for namespaces too, and whoever labels one with how safe its pods have to be"
    " needs leave for that: an operator that makes a namespace for each new tenant has none, and is denied.",
    joined=19,
)
async def security_labels(lab: Lab) -> AsyncIterator[None]:
    """As Rancher tells of its webhook (August 2023, rancher-docs 816)."""
    group = "tenancy.corp.example"
    guard = _Guard(lab.rng.choice(("policy-webhook", "project-webhook", "fleet-webhook")))
    tenant = await lab.custom("Tenant", group, ANY)

    def waits() -> bool:
        since = stamp(now() - timedelta(seconds=6))
        found = lab.world["Tenant"].values()
        return any("status" not in one and one["metadata"]["creationTimestamp"] < since for one in found)

    await guard.webhook.start()
    lab.servers.append(guard.webhook)
    await lab.served(tenant)
    may = (("authorization.k8s.io", "subjectaccessreviews", "create"), ("admissionregistration.k8s.io", "*", "*"))
    await lab.controller("platform", guard.name, guard.run, *may, replicas=1, tag="0.3.6")
    may = (("", "namespaces", "get,list,create"), (group, "tenants", "*"))
    await lab.controller("platform", "tenant-operator", every(2, _providing(tenant)), *may, replicas=1)
    await lab.controller("platform", "signup", every(6, _signing_up(tenant)), (group, "tenants", "create"), replicas=1)
    await lab.until(lambda: lab.world["ValidatingWebhookConfiguration"] and lab.world["Tenant"])
    summary = "a new tenant has been waiting for its namespace"
    lab.alert("TenantsNotProvisioned", waits, summary, 4, namespace="platform", service="tenant-operator")
    yield
    await lab.roll(lab.rng.choice(("ci", "argocd", "flux")), "platform", guard.name, "0.4.0", culprit=True)
