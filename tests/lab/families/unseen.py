"""Incidents without a culprit among the changes: a certificate that is not renewed, a bucket that refuses."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from datetime import datetime

from tests.lab.api import Json, now, stamp
from tests.lab.apps import App, Container, Process
from tests.lab.families.between import publish
from tests.lab.families.databases import ANY
from tests.lab.lab import Lab
from tests.lab.network import unserved
from tests.lab.programs import every, tell
from tests.lab.scenario import family

GROUP = "cert-manager.io"
GOOD_FOR_SECONDS, RENEWED_SECONDS, MARGIN_SECONDS = 80.0, 60 * 1440.0, 30 * 1440.0
"""How long the certificate is good that was not renewed, and the others; how long before its end a new one is due."""
TRIES_EVERY = 18.0
DNS = "dns.vendor.example"
FORGOTTEN_SECONDS = 8.0
"""For how long an app keeps what it has read from a bucket, in the mean."""


@family(
    "The key by which the issuer of certificates proves to whom a name belongs ran out at the company's DNS provider a"
    " month ago: since then each renewal has failed, which nobody is told, and one certificate is over at its hour.",
    culprit=False,
    joined=20,
)
async def renewal_failing(lab: Lab) -> AsyncIterator[None]:
    """As in "Kubernetes TLS Certificate Rotation: The 3AM Outage" (Michal Drozd)."""
    doors = {"shop": "frontend", "payments": "checkout", "search": "query", "media": "uploads"}
    due = lab.rng.choice(sorted(doors))
    certificate = await lab.custom("Certificate", GROUP, ANY)
    lab.outside.broken[DNS] = "401 Unauthorized: API key expired"
    ends: dict[str, float] = {}
    failed: dict[str, int] = {}

    async def renew(process: Process) -> None:
        """As cert-manager: whoever's time has come gets a new one, where the name can be shown to be ours."""
        listed = await process.api.call("GET", certificate.path())
        for one in listed.body.get("items", []):
            [host], meta = one["spec"]["dnsNames"], one["metadata"]
            left = ends[host] - now().timestamp()
            if left > MARGIN_SECONDS:
                continue
            failed[host] = failed.get(host, 0) + 1
            why = f"Failed to present challenge for {host}: {DNS}: {lab.outside.broken[DNS]}"
            condition = {"type": "Issuing", "status": "False", "reason": "Failed", "message": why}
            told = {"conditions": [_is_ready(left), condition], "failedIssuanceAttempts": 28 + failed[host]}
            where = certificate.path(meta["namespace"], meta["name"])
            await process.api.call("PATCH", where, {"status": {**told, "lastFailureTime": f"{stamp(now())[:19]}Z"}})
            await tell(process, {**one, "kind": "Certificate"}, "Warning", "Failed", why, by="cert-manager")

    async def browse() -> None:
        """Who is shown a certificate that is over goes away."""
        while True:
            lab.outside.unreached = {host for host, until in ends.items() if until < now().timestamp()}
            await asyncio.sleep(0.5)

    await lab.served(certificate)
    for namespace, name in doors.items():
        host = await publish(lab, namespace, name)
        ends[host] = now().timestamp() + (GOOD_FOR_SECONDS if namespace == due else RENEWED_SECONDS)
        until = f"{stamp(datetime.fromtimestamp(ends[host], now().tzinfo))[:19]}Z"
        meta = {"namespace": namespace, "name": f"{namespace}-public"}
        data = {"tls.crt": f"{host} not after {until}", "tls.key": f"{lab.rng.randrange(10**9)}"}
        await lab.apply({"kind": "Secret", "metadata": meta, "type": "kubernetes.io/tls", "stringData": data})
        tls = [{"hosts": [host], "secretName": meta["name"]}]
        await lab.edit("admin", "Ingress", namespace, namespace, {"spec": {"tls": tls}})
        issuer = {"name": "public", "kind": "ClusterIssuer"}
        spec = {"secretName": meta["name"], "dnsNames": [host], "issuerRef": issuer}
        status = {"notAfter": until, "conditions": [_is_ready(ends[host] - now().timestamp())]}
        body = {"apiVersion": f"{GROUP}/v1", "kind": "Certificate", "metadata": meta, "spec": spec, "status": status}
        await lab.apply(body)
    rules = ((GROUP, "certificates", "get,list,patch"), ("", "events", "create"))
    await lab.controller("cert-manager", "cert-manager-issuing", every(TRIES_EVERY, renew), *rules, replicas=1)
    for host in ends:
        fails = lambda host=host: host in lab.outside.unreached or bool(unserved(lab.world, host))  # noqa: E731
        instance = f"https://{host}"
        lab.alert("ProbeFailed", fails, f"{instance} is not answered", 6, job="blackbox", instance=instance)
    lab.start(browse())
    yield
    await lab.pause(max(0.0, min(ends.values()) - now().timestamp()))


def _is_ready(left: float) -> Json:
    """What is said of a certificate that is good for so many seconds."""
    if left > 0:
        return {"type": "Ready", "status": "True", "reason": "Ready", "message": "Certificate is up to date"}
    return {"type": "Ready", "status": "False", "reason": "Expired", "message": "Certificate has expired"}


@family(
    "In the console of the cloud somebody tightens who may read a bucket, and the role of an app's pods is not among"
    " those that may: what the app still has in its cache it serves, for all else it is answered 403 and answers 500.",
    culprit=False,
    joined=20,
)
async def bucket_policy(lab: Lab) -> AsyncIterator[None]:
    """Nobody told this one: it is the plainest that there is."""
    namespace, name, caller = lab.rng.choice(
        (("media", "gallery", "albums"), ("shop", "pictures", "product-pages"), ("search", "previews", "results"))
    )
    bucket = f"{namespace}-originals.s3.cloud.example"
    rare = lab.rng.uniform(0.45, 0.7)
    since: list[datetime] = []

    def failing(_: Container) -> float:
        """What is asked for often is read anew once it is forgotten."""
        if not since:
            return 0.0
        return rare * (1 - math.exp(-(now() - since[0]).total_seconds() / FORGOTTEN_SECONDS))

    await lab.app(namespace, name, like=App("", abroad=(bucket,), failing=failing), replicas=3)
    await lab.app(namespace, caller, like=App("", upstreams=((namespace, name),)), replicas=2)
    for one in (name, caller):
        lab.alert_errors(namespace, one)
    yield
    lab.outside.broken[bucket] = "403 Forbidden: AccessDenied"
    since.append(now())
