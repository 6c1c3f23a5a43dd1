"""What issues certificates is upgraded by its chart: without its definitions, or with another name of its webhook."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial

from tests.lab import objects
from tests.lab.api import Json, Kind, now, path, stamp
from tests.lab.apps import App, Process
from tests.lab.families.by_annotation import rolled
from tests.lab.families.databases import ANY
from tests.lab.families.not_in_mind import TEAMS
from tests.lab.lab import Lab
from tests.lab.network import INGRESS_CLASS, backends, unserved
from tests.lab.programs import both, every, tell
from tests.lab.scenario import family
from tests.lab.webhook import PATH, Webhook, configuration

HOME, GROUP = "cert-manager", "cert-manager.io"
MANAGER, HOOK, RENAMED = (HOME, "cert-manager"), (HOME, "cert-manager-webhook"), (HOME, "certs-webhook")
BEFORE, AFTER = "v1.14.7", "v1.19.1"
ISSUER, ASKED = "letsencrypt", {"cert-manager.io/cluster-issuer": "letsencrypt"}
ISSUED_SECONDS = 3.0
FRONTS = {"shop": "frontend", "payments": "checkout", "search": "query", "media": "uploads"}


@dataclass
class _Manager:
    """Makes a Certificate of what an Ingress asks for, a request of that, and a Secret once that is answered."""

    lab: Lab
    certificates: Kind
    requests: Kind
    trusted: set[str] = field(default_factory=set)
    refused: int = 0

    async def look(self, process: Process) -> None:
        wanted = await process.api.call("GET", self.certificates.path())
        if not wanted.ok:
            self.refused += 1
            return
        there = {(one["metadata"]["namespace"], one["metadata"]["name"]) for one in wanted.body["items"]}
        for one in (await process.api.call("GET", path("Ingress"))).body.get("items", ()):
            if ASKED.items() <= one["metadata"].get("annotations", {}).items():
                for tls in one["spec"].get("tls", ()):
                    if (one["metadata"]["namespace"], tls["secretName"]) not in there:
                        await self._ask(process, {**one, "kind": "Ingress"}, tls)
        for one in wanted.body["items"]:
            if not _is_ready(one):
                await self._issue(process, {**one, "kind": "Certificate"})

    async def _ask(self, process: Process, ingress: Json, tls: Json) -> None:
        home, name = ingress["metadata"]["namespace"], tls["secretName"]
        owner = {"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "controller": True}
        owner |= {key: ingress["metadata"][key] for key in ("name", "uid")}
        spec = {"secretName": name, "dnsNames": tls["hosts"], "issuerRef": {"kind": "ClusterIssuer", "name": ISSUER}}
        body = _object(self.certificates, home, name, spec)
        body["metadata"]["ownerReferences"] = [owner]
        done = await process.api.call("POST", self.certificates.path(home), body)
        self.refused += not done.ok
        if done.ok:
            made = f'Successfully created Certificate "{name}"'
            await tell(process, ingress, "Normal", "CreateCertificate", made, by="cert-manager-ingress-shim")

    async def _issue(self, process: Process, one: Json) -> None:
        home, name = one["metadata"]["namespace"], one["metadata"]["name"]
        asked = await process.api.call("GET", self.requests.path(home, f"{name}-1"))
        if asked.status == 404:
            await self._tell(process, one, "False", "DoesNotExist", "Issuing certificate as Secret does not exist")
            body = _object(self.requests, home, f"{name}-1", {"issuerRef": one["spec"]["issuerRef"], "request": "LS0t"})
            self.refused += not (await process.api.call("POST", self.requests.path(home), body)).ok
            return
        since = datetime.fromisoformat(asked.body["metadata"]["creationTimestamp"])
        if (now() - since).total_seconds() > ISSUED_SECONDS:
            [host] = one["spec"]["dnsNames"]
            data = {"tls.crt": f"certificate of {host}", "tls.key": f"key of {host}"}
            body = {"metadata": {"name": name}, "type": "kubernetes.io/tls", "stringData": data}
            if (await process.api.call("POST", path("Secret", home), body)).status in (201, 409):
                await self._tell(process, one, "True", "Ready", "Certificate is up to date and has not expired")
                self.trusted.add(host)

    async def _tell(self, process: Process, one: Json, status: str, reason: str, message: str) -> None:
        """The condition of a Certificate, if that is news."""
        told = {"type": "Ready", "status": status, "reason": reason, "message": message}
        if any(before == {**before, **told} for before in one.get("status", {}).get("conditions", ())):
            return
        body = {"status": {"conditions": [{**told, "lastTransitionTime": f"{stamp(now())[:19]}Z"}]}}
        where = self.certificates.path(one["metadata"]["namespace"], one["metadata"]["name"])
        if (await process.api.call("PATCH", where, body)).ok:
            news = "Issuing" if status == "True" else "Requested"
            said = "The certificate has been successfully issued" if status == "True" else message
            await tell(process, one, "Normal", news, said, by="cert-manager-certificates-issuing")

    async def browse(self) -> None:
        """A name is trusted whose Ingress has its certificate: the others show one that their controller has made."""
        while True:
            there = self.lab.world["Ingress"].values()
            hosts = {host for one in there for tls in one["spec"].get("tls", ()) for host in tls["hosts"]}
            self.lab.outside.unreached = hosts - self.trusted
            await asyncio.sleep(0.5)

    def fails(self, host: str) -> bool:
        """Whether a name that is published is not answered, or not trusted."""
        rules = (rule for one in self.lab.world["Ingress"].values() for rule in one["spec"]["rules"])
        is_published = any(rule["host"] == host for rule in rules)
        return is_published and (host in self.lab.outside.unreached or bool(unserved(self.lab.world, host)))


def _is_ready(certificate: Json) -> bool:
    return any(one["status"] == "True" for one in certificate.get("status", {}).get("conditions", ()))


def _object(kind: Kind, namespace: str, name: str, spec: Json) -> Json:
    meta = {"namespace": namespace, "name": name} if namespace else {"name": name}
    return {"apiVersion": f"{kind.group}/v1", "kind": kind.name, "metadata": meta, "spec": spec}


def _ingress(namespace: str, host: str, name: str) -> Json:
    """As a team has it for a name of its own, with a certificate that is to be issued."""
    service = {"service": {"name": name, "port": {"number": 80}}}
    paths = [{"path": "/", "pathType": "Prefix", "backend": service}]
    short = host.partition(".")[0]
    spec = {
        "ingressClassName": INGRESS_CLASS,
        "rules": [{"host": host, "http": {"paths": paths}}],
        "tls": [{"hosts": [host], "secretName": f"{short}-tls"}],
    }
    return {"kind": "Ingress", "metadata": {"namespace": namespace, "name": short, "annotations": ASKED}, "spec": spec}


async def _hooked(lab: Lab) -> None:
    """What is asked for each object of the manager's kinds. Raises RefusedError."""

    async def review(_: Json) -> str | None:
        if not backends(lab.world, *HOOK):
            raise ConnectionError("no pod is behind it")
        return None

    await lab.app(*HOOK, like=App("", serves=False), replicas=1, tag=BEFORE)
    await rolled(lab, *HOOK, BEFORE)
    webhook = Webhook(review, service=HOOK)
    await webhook.start()
    lab.servers.append(webhook)
    made = configuration(HOOK[1], webhook, seconds=30)
    [one] = made["webhooks"]
    rule = {"apiGroups": [GROUP, f"acme.{GROUP}"], "apiVersions": ["v1"], "resources": ["*/*"]}
    one["name"], one["rules"] = "webhook.cert-manager.io", [{**rule, "operations": ["CREATE", "UPDATE"]}]
    made["metadata"]["labels"] = {"helm.sh/chart": f"cert-manager-{BEFORE}"}
    await lab.apply(made)


async def _rename(lab: Lab, by: str) -> None:
    """The webhook has another name from now on; the company's own chart around this one still has the old one."""
    hook = objects.service(*RENAMED)
    await lab.culprit(by, "create", "Service", *RENAMED, {"apiVersion": "v1", **hook})
    image = f"registry.corp.example/{HOME}/{HOOK[1]}:{AFTER}"
    deployed = {"apiVersion": "apps/v1", **objects.deployment(*RENAMED, image, replicas=1)}
    await lab.culprit(by, "create", "Deployment", *RENAMED, deployed)
    await lab.roll(by, *MANAGER, AFTER, culprit=True)
    [one] = lab.world["ValidatingWebhookConfiguration"]["", HOOK[1]]["webhooks"]
    service = {"namespace": HOME, "name": HOOK[1], "path": PATH, "port": 443}
    asked = {**one, "clientConfig": {"service": service, "caBundle": one["clientConfig"]["caBundle"]}}
    body = {"metadata": {"labels": {"helm.sh/chart": f"cert-manager-{AFTER}"}}, "webhooks": [asked]}
    await lab.culprit(by, "update", "ValidatingWebhookConfiguration", "", HOOK[1], body)
    for kind in ("Service", "Deployment"):
        await lab.culprit(by, "delete", kind, *HOOK)


@family(
    "What issues certificates is upgraded by its chart, without its definitions, which go with all that was made of"
    " them, or with another name of its webhook, by which nobody asks it. Certificates that are there are good for"
    " weeks. What has an Ingress of its own from now on waits for its Secret, and nobody trusts it.",
    joined=97,
)
async def nobody_issues_them(lab: Lab) -> AsyncIterator[None]:
    """As those tell who had left a value out that had another name since, or had set fullnameOverride."""
    certificates, requests = (
        await lab.custom("Certificate", GROUP, ANY),
        await lab.custom("CertificateRequest", GROUP, ANY),
    )
    manager, is_renamed = _Manager(lab, certificates, requests), lab.rng.random() < 0.5
    (early, first), (namespace, name) = lab.rng.sample(sorted(FRONTS.items()), 2)
    words = lab.rng.sample(("spring", "members", "wholesale", "careers", "status", "labs"), 2)
    host, other = (f"{word}.corp.example" for word in words)
    by, deploys = lab.rng.choice(("ci", "flux", "argocd")), lab.rng.choice(("ci", "argocd"))
    await lab.served(certificates, requests)
    await _hooked(lab)
    rules = (GROUP, "*", "*"), ("", "secrets,events", "create,get,update,patch")
    await lab.apply(objects.cluster_role("cert-manager-issuing", *rules))
    await lab.apply(objects.binding("cert-manager-issuing", "cert-manager-issuing", *MANAGER))
    app = lab.apps[f"registry.corp.example/{'/'.join(MANAGER)}"]
    assert app.program
    app.program = both(app.program, every(1.5, manager.look))
    await lab.edit("admin", "Deployment", *MANAGER, {"spec": {"replicas": 1}})
    await lab.roll("admin", *MANAGER, BEFORE)
    await rolled(lab, *MANAGER, BEFORE)
    for home, one in FRONTS.items():
        await lab.apply(_ingress(home, f"{home}.corp.example", one))
        lab.reserve(home, one)
    await lab.until(lambda: len(manager.trusted) == len(FRONTS))
    lab.start(manager.browse())
    for one in (host, other, *(f"{home}.corp.example" for home in FRONTS)):
        url, fails = f"https://{one}", partial(manager.fails, one)
        told = {"namespace": "monitoring", "service": "blackbox-exporter", "instance": url}
        lab.measure("probe_success", lambda fails=fails: float(not fails()), **told)  # type: ignore[misc]
        lab.alert("ProbeFailed", fails, f"{url} is not trusted", 14, job="blackbox", instance=url)
    await lab.until(lab.is_well)

    async def publish_new(where: str, one: str, behind: str) -> None:
        await lab.who[deploys].must("POST", path("Ingress", where), _ingress(where, one, behind))

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(6, 11))
        await lab.roll(deploys, namespace, name, f"3.{lab.rng.randrange(2, 30)}.0")
        await lab.pause(lab.rng.uniform(3, 6))
        await publish_new(namespace, host, name)

    yield
    await publish_new(early, other, first)
    await lab.pause(lab.rng.uniform(8, 12))
    await lab.edit(lab.rng.choice(TEAMS), "ConfigMap", namespace, name, {"data": {"TIMEOUT_MS": "700"}})
    await lab.pause(lab.rng.uniform(4, 8))
    if is_renamed:
        await _rename(lab, by)
    else:
        await lab.roll(by, *MANAGER, AFTER, culprit=True)
        for kind in (certificates, requests):
            await lab.culprit(by, "delete", "CustomResourceDefinition", "", f"{kind.plural}.{GROUP}")
    lab.start(afterwards())
