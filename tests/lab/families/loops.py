"""What never comes to rest: controllers that undo each other, or ask for what is gone."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator

from tests.lab.api import Json, path
from tests.lab.apps import App, Container, Problem, Process
from tests.lab.families.load import alert_on_load
from tests.lab.lab import Lab
from tests.lab.programs import every
from tests.lab.scenario import family
from tests.lab.webhook import Webhook, configuration

LOOSE: Json = {
    "type": "object",
    "properties": {"spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
}
"""A schema that takes any spec."""


@family(
    "A second Certificate names the Secret of the first one: the issuer sees each time the other's, and issues both"
    " anew without end.",
    joined=2,
)
async def certificate_loop(lab: Lab) -> AsyncIterator[None]:
    group, mark = "cert-manager.io", "cert-manager.io/certificate-name"
    certificate = await lab.custom("Certificate", group, LOOSE)
    request = await lab.custom("CertificateRequest", group, LOOSE)
    api = {"apiVersion": f"{group}/v1"}

    async def issue(process: Process) -> None:
        listed = await process.api.call("GET", certificate.path())
        for one in listed.body.get("items", []):
            name, namespace = one["metadata"]["name"], one["metadata"]["namespace"]
            where = path("Secret", namespace, one["spec"]["secretName"])
            found = await process.api.call("GET", where)
            if found.body.get("metadata", {}).get("annotations", {}).get(mark) == name:
                continue
            meta = {"generateName": f"{name}-"}
            spec = {"spec": {"dnsNames": one["spec"]["dnsNames"]}}
            await process.api.call(
                "POST", request.path(namespace), {**api, "kind": request.name, "metadata": meta, **spec}
            )
            body = {"metadata": {"name": one["spec"]["secretName"], "annotations": {mark: name}}}
            if found.status == 404:
                await process.api.call("POST", path("Secret", namespace), body)
            else:
                await process.api.call("PATCH", where, body)

    rules = ((group, "*", "*"), ("", "secrets", "get,create,patch"))
    await lab.controller("cert-manager", "acme-issuer", every(0.8, issue), *rules, replicas=1)

    def wanted(name: str, host: str) -> Json:
        meta = {"namespace": "shop", "name": name}
        return {
            **api,
            "kind": "Certificate",
            "metadata": meta,
            "spec": {"secretName": "storefront-tls", "dnsNames": [host]},
        }

    await lab.served(certificate, request)
    await lab.apply(wanted("storefront", "shop.example"))
    made = lab.rate(lambda: len(lab.world["CertificateRequest"]), 0.8)
    lab.alert("CertificateRequestsHigh", made, "certificates are issued without end", 5, namespace="cert-manager")
    yield
    body = wanted("storefront-internal", "shop.internal.example")
    await lab.culprit("carol", "create", "Certificate", "shop", "storefront-internal", body)


@family(
    "A chart that looks unused is removed, and its CustomResourceDefinition with it: every Route is gone, proxies ask"
    " for them without a back-off, and the gateway has nothing to serve.",
    joined=2,
)
async def crd_deleted(lab: Lab) -> AsyncIterator[None]:
    group = "mesh.corp.example"
    route = await lab.custom("Route", group, LOOSE)

    async def sync(process: Process) -> None:
        """Its client knows no back-off: what is answered with an error is asked for anew."""
        for pause in itertools.repeat(0.1):
            if (await process.api.call("GET", route.path())).ok:
                return
            await asyncio.sleep(pause)

    await lab.controller("ingress-nginx", "mesh-proxy", every(3, sync), (group, "routes", "list"), replicas=4)
    await lab.served(route)
    for name in ("shop", "checkout", "search"):
        meta = {"namespace": "ingress-nginx", "name": name}
        spec = {"host": f"{name}.example", "backend": name}
        await lab.apply({"apiVersion": f"{group}/v1", "kind": "Route", "metadata": meta, "spec": spec})

    def check(container: Container) -> Problem | None:
        return None if lab.world["Route"] else Problem("unready", "HTTP probe failed with statuscode: 503 (no routes)")

    await lab.app("ingress-nginx", "gateway", like=App("", check=check))
    lab.alert_lacking("ingress-nginx", "gateway")
    alert_on_load(lab)
    yield
    await lab.culprit("ci", "delete", "CustomResourceDefinition", "", f"routes.{group}")


@family(
    "A webhook is made that writes a default over what Git says: an agent that syncs writes it back in vain, for ever.",
    joined=2,
)
async def mutating_webhook(lab: Lab) -> AsyncIterator[None]:
    key, places = "cost-center", (("shop", "cart"), ("shop", "catalog"), ("payments", "checkout"), ("search", "query"))
    written = [0]

    async def default(request: Json) -> list[Json] | None:
        labels = {**request["object"]["metadata"].get("labels", {}), key: "unassigned"}
        return [{"op": "add", "path": "/metadata/labels", "value": labels}]

    async def sync(process: Process) -> None:
        """What differs from Git is written at once, and all of it now and then."""
        for namespace, name in places:
            where = path("Service", namespace, name)
            found = await process.api.call("GET", where)
            labels = found.body.get("metadata", {}).get("labels", {})
            if labels.get(key) != f"cc-{namespace}" or process.rng.random() < 0.1:
                done = await process.api.call("PATCH", where, {"metadata": {"labels": {key: f"cc-{namespace}"}}})
                written[0] += done.ok

    await lab.controller("platform", "git-sync", every(0.6, sync), ("", "services", "get,patch"), replicas=1)
    await lab.app("platform", "cost-defaults")
    webhook = Webhook(default, service=("platform", "cost-defaults"))
    await webhook.start()
    lab.servers.append(webhook)
    lab.alert(
        "GitSyncNeverSettles",
        lab.rate(lambda: written[0], 2.5),
        "git-sync writes the same objects again and again",
        5,
        namespace="platform",
        service="git-sync",
    )
    yield
    made = configuration("cost-defaults", webhook)
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": ["services"]}
    body = {"metadata": made["metadata"], "webhooks": [{**made["webhooks"][0], "rules": [rule]}]}
    await lab.culprit("bob", "create", "MutatingWebhookConfiguration", "", "cost-defaults", body)
