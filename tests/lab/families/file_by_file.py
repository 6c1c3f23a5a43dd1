"""What a program finds in its own folder of settings: its certificate beside them, as single files."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial

from tests.lab.api import Json, Kind, now, path, stamp
from tests.lab.apps import App, Container, Process
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.families.databases import ANY
from tests.lab.lab import Lab
from tests.lab.network import backends
from tests.lab.programs import every, tell
from tests.lab.scenario import family

GROUP, HOME, ISSUING = "cert-manager.io", "cert-manager", "cert-manager-issuing"
LASTS, MARGIN = 75.0, 25.0
"""Seconds for which a certificate is good, and before its end at which it is renewed."""
KEPT_SECONDS = 8.0
"""For how long a caller keeps a connection, which asks for no certificate any more."""
FOLDER = "/srv/app/conf"
BUSINESS = 0.9
"""The share of a caller's requests that ask the server."""


@dataclass
class _Certificates:
    """Those of all servers, and until when each that was ever issued is good."""

    lab: Lab
    kind: Kind
    ends: dict[str, float] = field(default_factory=dict)
    """By what stands in the file."""
    due: dict[tuple[str, str], float] = field(default_factory=dict)
    """When each server's is renewed, by namespace and name."""
    serial: int = 4100

    def issue(self, place: tuple[str, str], end: float) -> Json:
        """What a Secret has of a new one."""
        self.serial += 1
        text = f"certificate {self.serial} of {place[1]}.{place[0]}.svc"
        self.ends[text], self.due[place] = end, end - MARGIN
        return {"tls.crt": text, "tls.key": f"key {self.serial}"}

    async def open(self, place: tuple[str, str], due: float) -> None:
        """A server has one, which was declared long ago. Raises RefusedError."""
        namespace, name = place
        data = self.issue(place, due + MARGIN)
        meta = {"namespace": namespace, "name": name}
        await self.lab.apply({"kind": "Secret", "metadata": {**meta, "name": f"{name}-tls"}, "stringData": data})
        issuer = {"name": "internal", "kind": "ClusterIssuer"}
        spec = {"secretName": f"{name}-tls", "dnsNames": [f"{name}.{namespace}.svc"], "issuerRef": issuer}
        one = {"apiVersion": f"{GROUP}/v1", "kind": self.kind.name, "metadata": meta, "spec": spec}
        await self.lab.apply({**one, "status": self.status(place)})
        told = {"namespace": HOME, "service": ISSUING, "exported_namespace": namespace, "name": name}
        end = lambda: self.due[place] + MARGIN  # noqa: E731
        self.lab.measure("certmanager_certificate_expiration_timestamp_seconds", end, "gauge", **told)

    def status(self, place: tuple[str, str]) -> Json:
        at = self.due[place]
        after, renewal = (f"{stamp(datetime.fromtimestamp(one, UTC))[:19]}Z" for one in (at + MARGIN, at))
        ready = [{"type": "Ready", "status": "True", "reason": "Ready"}]
        return {"conditions": ready, "notAfter": after, "renewalTime": renewal}

    async def renew(self, process: Process) -> None:
        """As cert-manager: what is due is issued anew, into the same Secret."""
        listed = await process.api.call("GET", self.kind.path())
        for one in listed.body.get("items", []):
            place = one["metadata"]["namespace"], one["metadata"]["name"]
            if now().timestamp() < self.due[place]:
                continue
            about, secret = {**one, "kind": self.kind.name}, path("Secret", place[0], one["spec"]["secretName"])
            due = f"Renewing certificate as renewal was scheduled at {one['status'].get('renewalTime')}"
            await tell(process, about, "Normal", "Issuing", due, by="cert-manager-certificates-trigger")
            data = self.issue(place, now().timestamp() + LASTS)
            await process.api.call("PATCH", secret, {"stringData": data})
            await process.api.call("PATCH", self.kind.path(*place), {"status": self.status(place)})
            done = "The certificate has been successfully issued"
            await tell(process, about, "Normal", "Issuing", done, by="cert-manager-certificates-issuing")

    def over(self, container: Container) -> float:
        """For how many seconds that one is over which a server finds in its files, and shows; 0 while it is good."""
        shown = b64decode(container.secret.get("tls.crt", "")).decode()
        return max(0.0, now().timestamp() - self.ends.get(shown, float("inf")))

    def refused(self, name: str) -> float:
        """The share of its callers' connections to a server on which that one is not trusted."""
        there = [one.container for one in self.lab.kubelets.running() if one.container.spec["name"] == name]
        shares = [min(1.0, max(0.0, self.over(one) - self.lab.lag) / KEPT_SECONDS) for one in there]
        return sum(shares) / max(1, len(shares))


def _mounts(*, singly: bool) -> list[Json]:
    if not singly:
        return [{"name": "secret", "mountPath": "/etc/secret", "readOnly": True}]
    files = ("tls.crt", "tls.key")
    return [{"name": "secret", "mountPath": f"{FOLDER}/{one}", "subPath": one, "readOnly": True} for one in files]


@family(
    "A release of a server looks for its certificate where its settings are, and that folder is full already: so the"
    " two files are mounted into it one by one. Kubelets renew a mounted folder and never a single file: the issuer"
    " renews in time, as ever, and the server goes on with the one of its start until that is over.",
    joined=58,
)
async def single_files(lab: Lab) -> AsyncIterator[None]:
    """As those tell who mounted a certificate by subPath, of which the documentation of volumes warns."""
    namespace, name, front, home, caller = lab.rng.choice(
        (
            ("payments", "account-check", "transfer-form", "shop", "pay-by-bank"),
            ("media", "rights-lookup", "clip-form", "search", "rights-filter"),
            ("shop", "tax-rates", "basket-form", "payments", "invoice-lines"),
        )
    )
    by, place, minor = lab.rng.choice(("ci", "argocd", "flux")), (namespace, name), lab.rng.randrange(2, 20)
    kind = await lab.custom("Certificate", GROUP, ANY)
    issued = _Certificates(lab, kind)
    await lab.served(kind)
    for number, one in enumerate((place, ("search", "query"), ("media", "uploads"), ("payments", "ledger"))):
        await issued.open(one, now().timestamp() + LASTS - MARGIN - number * 11)
    rules = ((GROUP, kind.plural, "*"), ("", "secrets", "get,patch"), ("", "events", "create"))
    await lab.controller(HOME, ISSUING, every(1.5, issued.renew), *rules, replicas=1, tag="v1.18.2")
    like = App("", asked=lambda: 5.0 + 30.0 * (1 - issued.refused(name)), start_seconds=1.0)
    await lab.app(namespace, name, like=like, replicas=3, tag=f"3.{minor}.0", secret=f"{name}-tls")
    await lab.roll("admin", namespace, name, f"3.{minor}.0", volumeMounts=_mounts(singly=False))
    await rolled(lab, namespace, name, f"3.{minor}.0")
    for where, app in ((namespace, front), (home, caller)):
        like = App("", upstreams=(place,), asked=lambda: 18.0, fails_with=lambda _: "502")
        like.failing = lambda _: BUSINESS * issued.refused(name)
        await lab.app(where, app, like=like, replicas=2, tag="2.4.1")
        await lab.until(partial(backends, lab.world, where, app))
        lab.alert_errors(where, app)
    await publish(lab, namespace, front)
    lab.reserve(namespace, name)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)
    due = now().timestamp() + lab.rng.uniform(84, 92)
    data = issued.issue(place, due + MARGIN)
    await lab.edit("admin", "Secret", namespace, f"{name}-tls", {"stringData": data})
    await lab.edit("admin", kind.name, namespace, name, {"status": issued.status(place)})
    yield
    await lab.pause(max(2.0, due - now().timestamp() - lab.rng.uniform(15, 26)))
    mounts = _mounts(singly=True)
    await lab.roll(by, namespace, name, f"3.{minor + 1}.0", culprit=True, volumeMounts=mounts)
