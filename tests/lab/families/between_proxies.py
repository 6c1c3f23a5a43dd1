"""What apps show each other: a mesh that takes no plain text any more, certificates that are good for an hour."""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial

from tests.lab.alerts import pods
from tests.lab.api import Json, Kind, now, path, stamp
from tests.lab.apps import App, Container, Process
from tests.lab.before import before
from tests.lab.company import UPSTREAMS
from tests.lab.families.between import publish
from tests.lab.families.databases import ANY
from tests.lab.lab import Lab
from tests.lab.manifests import images, is_ready
from tests.lab.network import backends
from tests.lab.programs import changes, every, lagging, tell
from tests.lab.scenario import family
from tests.lab.webhook import Webhook, configuration

MESH, PROXY = "security.istio.io", "registry.corp.example/istio/proxyv2"
CALLS = 0.6
"""The share of its requests for which an app has to call another one."""
ISSUING, HOME, HOOK = "cert-manager.io", "cert-manager", "cert-manager-webhook"
OLD_ISSUER, NEW_ISSUER = "v1.13.5", "v1.14.0"
GOOD_FOR, MARGIN, TRIES_EVERY = 40.0, 15.0, 2.0
"""Seconds for which a certificate is good, before its end it is renewed, and between two tries."""


async def proxied(lab: Lab, namespace: str, name: str, *, is_in: bool) -> None:
    """Have an app's pods made with a proxy of the mesh beside them, or without one."""
    template = lab.world["Deployment"][namespace, name]["spec"]["template"]
    containers = copy.deepcopy(template["spec"]["containers"][:1])
    if is_in:
        resources = {"requests": {"cpu": "10m", "memory": "40Mi"}}
        containers.append({"name": "istio-proxy", "image": f"{PROXY}:1.26.2", "resources": resources})
    await lab.edit("admin", "Deployment", namespace, name, {"spec": {"template": {"spec": {"containers": containers}}}})

    def is_through() -> bool:
        found = pods(lab.world, namespace, name)
        return all(is_ready(pod) and len(pod["spec"]["containers"]) == len(containers) for pod in found)

    await lab.until(lambda: bool(backends(lab.world, namespace, name)) and is_through())


@family(
    "A mesh lets plain text through for those who are not in it yet. Once a console shows no more of it, whoever looks"
    " after the mesh has it take none any more: an app in a namespace that nobody took in still calls that way.",
    joined=36,
)
async def mesh_strict(lab: Lab) -> AsyncIterator[None]:
    """As told of how to make a mesh strict, and of what breaks (oneuptime.com, February 2026)."""
    namespace, called, front = lab.rng.choice(
        (("billing", "tariffs", "plans-page"), ("travel", "seats", "booking-page"), ("news", "articles", "start-page"))
    )
    home, caller = "backoffice", lab.rng.choice(("partner-feed", "sales-desk", "support-desk"))
    kind, mode = await lab.custom("PeerAuthentication", MESH, ANY), ["PERMISSIVE"]

    async def push(process: Process) -> None:
        """As istiod: what is declared for the whole mesh, all proxies have a moment later."""

        def told(one: Json) -> None:
            if one["metadata"]["namespace"] == "istio-system":
                mode[0] = one["spec"]["mtls"]["mode"]

        await lagging(process)
        await changes(process, kind.path(), told, of_all=True)

    def reset(container: Container) -> float:
        """Who has no proxy speaks plain text: the other one's proxy resets the connection."""
        is_plain = all(one["name"] != "istio-proxy" for one in container.pod["spec"]["containers"])
        return CALLS if is_plain and mode[0] == "STRICT" else 0.0

    for one in ("istio-system", namespace, home):
        await lab.namespace(one)
    injected = {"metadata": {"labels": {"istio-injection": "enabled"}}}
    for one in (namespace, home):
        await lab.edit("admin", "Namespace", "", one, injected)
    await lab.served(kind)
    await lab.apply(
        {
            "apiVersion": f"{MESH}/v1",
            "kind": kind.name,
            "metadata": {"namespace": "istio-system", "name": "default"},
            "spec": {"mtls": {"mode": "PERMISSIVE"}},
        }
    )
    await lab.controller("istio-system", "istiod", push, (MESH, kind.plural, "get,list,watch"), tag="1.26.2")
    lab.apps[PROXY] = App(PROXY)
    await lab.app(namespace, called, like=App(""), replicas=3, tag="6.1.0")
    for place, name in ((namespace, front), (home, caller)):
        like = App("", upstreams=((namespace, called),), failing=reset)
        await lab.app(place, name, like=like, replicas=2, tag="2.8.3")
    for place, name in ((namespace, called), (namespace, front), (home, caller)):
        await lab.until(partial(lab.world["Deployment"].get, (place, name)))
        await proxied(lab, place, name, is_in=True)
    for place, name in ((namespace, front), (home, caller)):
        await publish(lab, place, name)
        lab.alert_errors(place, name)
        lab.alert_ingress_errors(place, place)
    lab.alert_errors(namespace, called)
    await lab.until(lab.is_well)
    by = lab.rng.choice(("alice", "argocd", "flux"))
    strict = {"spec": {"mtls": {"mode": "STRICT"}}}
    async with before(lab, days=lab.rng.randrange(3, 8), cluster=lab.rng.choice(("staging", "eu-2"))):
        await lab.pause(4)
        await lab.edit(by, kind.name, "istio-system", "default", strict)
        await lab.pause(12)
    await lab.edit("admin", kind.name, "istio-system", "default", {"spec": {"mtls": {"mode": "PERMISSIVE"}}})
    left_out = {"metadata": {"labels": {"istio-injection": None}}}  # as it is here, unlike there
    await lab.edit("admin", "Namespace", "", home, left_out)
    await proxied(lab, home, caller, is_in=False)
    await lab.until(lab.is_well)
    yield
    await lab.culprit(by, "update", kind.name, "istio-system", "default", strict)


@dataclass
class _Certificates:
    """Those of the servers that apps call, each good for so long; who calls one that is over trusts it no more."""

    lab: Lab
    kind: Kind
    request: Kind
    ends: dict[tuple[str, str], float] = field(default_factory=dict)
    number: int = 0

    async def renew(self, process: Process) -> None:
        """As cert-manager: whoever's time has come gets a request, which its own webhook is asked of first."""
        listed = await process.api.call("GET", self.kind.path())
        for one in listed.body.get("items", []):
            meta = one["metadata"]
            place = meta["namespace"], meta["name"]
            if self.ends[place] - now().timestamp() < MARGIN:
                await self._renew(process, one, place)

    async def _renew(self, process: Process, one: Json, place: tuple[str, str]) -> None:
        self.number += 1
        namespace, name = place
        meta = {"name": f"{name}-{self.number}", "annotations": {"cert-manager.io/certificate-name": name}}
        spec = {"issuerRef": one["spec"]["issuerRef"], "duration": "1h0m0s", "usages": ["server auth", "client auth"]}
        body = {"apiVersion": f"{ISSUING}/v1", "kind": self.request.name, "metadata": meta, "spec": spec}
        made = await process.api.call("POST", self.request.path(namespace), body)
        if not made.ok:
            why = f"Failed to create CertificateRequest: {made.body.get('message')}"
            about = {**one, "kind": self.kind.name}
            await tell(process, about, "Warning", "RequestFailed", why, by="cert-manager-certificates-request-manager")
            return
        self.ends[place] = now().timestamp() + GOOD_FOR
        data = {"stringData": {"tls.crt": f"{name}.{namespace}.svc not after {self.until(place)}"}}
        await process.api.call("PATCH", path("Secret", namespace, f"{name}-mtls"), data)
        status = {"notAfter": self.until(place), "conditions": [{"type": "Ready", "status": "True"}]}
        await process.api.call("PATCH", self.kind.path(namespace, name), {"status": status})
        await process.api.call("DELETE", self.request.path(namespace, f"{name}-{self.number}"))

    def until(self, place: tuple[str, str]) -> str:
        return f"{stamp(datetime.fromtimestamp(self.ends[place], UTC))[:19]}Z"

    def is_over(self, place: tuple[str, str]) -> bool:
        return place in self.ends and self.ends[place] < now().timestamp()

    def untrusted(self, called: Iterable[tuple[str, str]], _: Container) -> float:
        """The share of its requests that fail for who calls these."""
        return CALLS if any(map(self.is_over, called)) else 0.0

    async def review(self, request: Json) -> str | None:
        """The pods of the webhook answer; the new version takes the usages of what is renewed for a fault."""
        there = [pod for pod in pods(self.lab.world, HOME, HOOK) if is_ready(pod)]
        if not there:
            raise ConnectionError("no pod is behind it")
        pod = self.lab.rng.choice(there)
        if not images(pod)[0].endswith(NEW_ISSUER) or "server auth" not in request["object"]["spec"]["usages"]:
            return None
        return 'spec.usages: Invalid value: []string{"server auth", "client auth"}: encoded usages do not match'

    async def open(self) -> None:
        """Its webhook, which is asked of each request."""
        webhook = Webhook(self.review, service=(HOME, HOOK))
        await webhook.start()
        self.lab.servers.append(webhook)
        made = configuration(HOOK, webhook)
        rule = {"apiGroups": [ISSUING], "apiVersions": ["v1"], "operations": ["CREATE"]}
        hooks = [{**made["webhooks"][0], "name": "webhook.cert-manager.io"}]
        hooks[0]["rules"] = [{**rule, "resources": [self.request.plural]}]
        await self.lab.apply({**made, "webhooks": hooks})


@family(
    "A new version of what issues certificates has its own webhook refuse each request that renews one. What apps show"
    " each other is good for an hour: one after another is over, and whoever calls that server trusts it no more.",
    joined=36,
)
async def renewals_refused(lab: Lab) -> AsyncIterator[None]:
    """As told of cert-manager 1.14 (dev.to, "Postmortem: how a cert-manager bug broke TLS")."""
    kind = await lab.custom("Certificate", ISSUING, ANY)
    request = await lab.custom("CertificateRequest", ISSUING, ANY)
    certificates = _Certificates(lab, kind, request)
    await lab.served(kind, request)
    servers = [place for called in UPSTREAMS.values() for place in called]
    for number, place in enumerate(servers):
        namespace, name = place
        certificates.ends[place] = now().timestamp() + GOOD_FOR + number * 4
        meta = {"namespace": namespace, "name": name}
        data = {"tls.crt": f"{name}.{namespace}.svc not after {certificates.until(place)}"}
        secret = {"metadata": {**meta, "name": f"{name}-mtls"}, "type": "Opaque", "stringData": data}
        await lab.apply({"kind": "Secret", **secret})
        issuer = {"name": "internal", "kind": "ClusterIssuer"}
        spec = {"secretName": f"{name}-mtls", "dnsNames": [f"{name}.{namespace}.svc"], "issuerRef": issuer}
        status = {"notAfter": certificates.until(place), "conditions": [{"type": "Ready", "status": "True"}]}
        one = {"apiVersion": f"{ISSUING}/v1", "kind": kind.name, "metadata": meta, "spec": spec, "status": status}
        await lab.apply(one)
    await lab.app(HOME, HOOK, like=App("", serves=False), replicas=2, tag=OLD_ISSUER)
    await lab.until(lambda: len(backends(lab.world, HOME, HOOK)) == 2)
    await certificates.open()
    rules = (ISSUING, f"{kind.plural},{request.plural}", "*"), ("", "secrets", "get,patch"), ("", "events", "create")
    renewing = every(TRIES_EVERY, certificates.renew)
    await lab.controller(HOME, "cert-manager-issuing", renewing, *rules, replicas=1, tag=OLD_ISSUER)
    for (namespace, image), app in [(image.split("/")[1:], app) for image, app in lab.apps.items()]:
        called = UPSTREAMS.get(image, ())
        if called and namespace in ("shop", "payments", "search"):
            app.failing = partial(certificates.untrusted, called)
            lab.alert_errors(namespace, image)
    await publish(lab, "shop", "frontend")
    lab.alert_ingress_errors("shop", "shop")
    await lab.until(lambda: min(certificates.ends.values()) - now().timestamp() > MARGIN)
    await lab.until(lab.is_well)
    by = lab.rng.choice(("ci", "argocd", "flux"))
    yield
    await lab.roll(by, HOME, HOOK, NEW_ISSUER, culprit=True)
    await lab.roll(by, HOME, "cert-manager-issuing", NEW_ISSUER, culprit=True)
