"""What was told of public names: a record that waits for a certificate, and who may issue one for a domain."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from tests.lab.api import Json, Key, Kind, now, stamp
from tests.lab.apps import App, Process
from tests.lab.families.between import publish
from tests.lab.families.databases import ANY
from tests.lab.lab import Lab
from tests.lab.network import unserved
from tests.lab.programs import every
from tests.lab.scenario import family

DOMAIN, ADDRESS = "corp.example", "198.51.100.7"
ZONE: Key = ("platform", "corp-example")
"""Where the domain's records are declared."""
RECORD_GROUP, CERTIFICATE_GROUP = "dns.corp.example", "networking.gke.io"
ISSUED_SECONDS = 32.0
"""How long the issuer of a certificate takes for the first one of an object."""
GOOD_FOR_SECONDS, RENEWED_BEFORE_SECONDS = 60.0, 30.0
"""A certificate, and how long before its end the platform has another one."""
ISSUER, OTHER_ISSUER = "pki.goog", "letsencrypt.org"
"""Of the platform that serves one name of the domain, and of who has the certificates of all others."""
DOWNLOADS = (("media", "downloads"), ("shop", "packages"), ("search", "datasets"))
"""Who serves what others download; they do it by a public name, also inside of the cluster."""
BUILDS, NEED_IT = ("platform", "builds"), 0.7
"""Who downloads inside, and the share of its requests for which it has to."""


@dataclass
class Names:
    """What the world resolves, as declared, and until when the certificate of each certificate's object is good."""

    lab: Lab
    record_set: Kind
    certificate: Kind
    records: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    """Targets, by name and type."""
    seen: dict[str, datetime] = field(default_factory=dict)
    """When the issuer was first asked, by uid of the object."""
    expires: dict[str, datetime] = field(default_factory=dict)
    """By domain."""

    async def resolve(self, process: Process) -> None:
        """What is declared becomes what is resolved, as external-dns does it: what is not declared any more, too."""
        listed = await process.api.call("GET", self.record_set.path())
        if listed.ok:
            declared = [one for thing in listed.body["items"] for one in thing["spec"]["records"]]
            self.records = {(one["dnsName"], one["recordType"]): one["targets"] for one in declared}

    async def issue(self, process: Process) -> None:
        """As the platform's controller: the first certificate of an object, and further ones in time."""
        listed = await process.api.call("GET", self.certificate.path())
        for one in listed.body.get("items", []):
            told = self.status(one["spec"]["domains"][0], one["metadata"]["uid"])
            if one.get("status") != told:
                where = self.certificate.path(one["metadata"]["namespace"], one["metadata"]["name"])
                await process.api.call("PATCH", where, {"status": told})

    def status(self, domain: str, uid: str) -> Json:
        """What is told of a certificate now; its words are those of the cloud."""
        asked = self.seen.setdefault(uid, now())
        is_later = len(self.seen) > 1  # the first of all is there for long
        if is_later and (now() - asked).total_seconds() < ISSUED_SECONDS:
            return _status(domain, "Provisioning", "Provisioning")
        until = self.expires.get(domain, now()).timestamp()
        if until - now().timestamp() < RENEWED_BEFORE_SECONDS:
            allowed = self.records.get((DOMAIN, "CAA"), [])
            if allowed and not any(ISSUER in one for one in allowed):
                return _status(domain, "RenewalFailed", "FailedCaaForbidden", until)
            until = now().timestamp() + GOOD_FOR_SECONDS
            self.expires[domain] = datetime.fromtimestamp(until, UTC)
        return _status(domain, "Active", "Active", until)

    def reach(self, host: str) -> None:
        """Whether whoever is outside gets a connection by that name: it is found, and what is there is trusted."""
        is_trusted = host not in self.expires or self.expires[host] > now()
        is_met = (host, "A") in self.records and is_trusted
        self.lab.outside.unreached = set() if is_met else {host}

    async def watch(self, host: str) -> None:
        while True:
            self.reach(host)
            await asyncio.sleep(0.5)


def _status(domain: str, whole: str, of_domain: str, until: float | None = None) -> Json:
    end = {} if until is None else {"expireTime": f"{stamp(datetime.fromtimestamp(until, UTC))[:19]}Z"}
    return {"certificateStatus": whole, "domainStatus": [{"domain": domain, "status": of_domain}], **end}


def _record(name: str, kind: str, *targets: str) -> Json:
    return {"dnsName": name, "recordType": kind, "recordTTL": 300, "targets": list(targets)}


def _object(kind: str, group: str, namespace: str, name: str, spec: Json) -> Json:
    return {"apiVersion": f"{group}/v1", "kind": kind, "metadata": {"namespace": namespace, "name": name}, "spec": spec}


async def _found(lab: Lab, namespace: str, name: str, zone: Key, records: Sequence[Json]) -> tuple[Names, str]:
    """Somebody who serves downloads by a public name with a certificate, and somebody inside who needs them.

    The name is declared in a ``zone``, with other ``records``.
    """
    record_set, certificate = [
        await lab.custom(kind, group, ANY)
        for kind, group in (("DNSRecordSet", RECORD_GROUP), ("ManagedCertificate", CERTIFICATE_GROUP))
    ]
    names = Names(lab, record_set, certificate)
    await lab.app(namespace, name)
    host = await publish(lab, namespace, name)
    await lab.app(*BUILDS, like=App("", failing=lambda _: NEED_IT if host in lab.outside.unreached else 0.0))
    await lab.served(record_set, certificate)
    listed = {"records": [*records, _record(host, "A", ADDRESS)]}
    await lab.apply(_object("DNSRecordSet", RECORD_GROUP, *zone, listed))
    await lab.apply(_object("ManagedCertificate", CERTIFICATE_GROUP, namespace, name, {"domains": [host]}))
    may = (RECORD_GROUP, "dnsrecordsets", "get,list")
    await lab.controller("platform", "external-dns", every(2, names.resolve), may, replicas=1)
    may = (CERTIFICATE_GROUP, "managedcertificates", "get,list,patch")
    await lab.controller("kube-system", "managed-certificate-controller", every(2, names.issue), may, replicas=1)
    await lab.until(lambda: (host, "A") in names.records and host in names.expires)
    lab.start(names.watch(host))
    await lab.until(lambda: not unserved(lab.world, host))
    holds = lambda: host in lab.outside.unreached or bool(unserved(lab.world, host))  # noqa: E731
    lab.alert("ProbeFailed", holds, f"https://{host} is not answered", 6, job="blackbox", instance=f"https://{host}")
    lab.alert_errors(*BUILDS)
    return names, host


@family(
    "A deployment brings a public name another certificate and another record: the old ones are removed first, the new"
    " certificate takes its time, and the record waits for it. Meanwhile nobody finds the name.",
    joined=17,
)
async def record_removed(lab: Lab) -> AsyncIterator[None]:
    """As the Rust project tells of static.crates.io (January 2023, blog.rust-lang.org 1071)."""
    namespace, name = lab.rng.choice(DOWNLOADS)
    names, host = await _found(lab, namespace, name, (namespace, name), ())
    by = lab.rng.choice(("ci", "alice", "bob"))

    async def go_on() -> None:
        """What is to be made is made in the order in which one needs the other."""
        hand, alias = lab.who[by], f"fastly-{host}"
        spec = {"domains": [host, alias]}
        body = _object("ManagedCertificate", CERTIFICATE_GROUP, namespace, name, spec)
        await hand.must("POST", names.certificate.path(namespace), body)
        while True:
            await asyncio.sleep(3)
            made = await hand.call("GET", names.certificate.path(namespace, name))
            if made.body.get("status", {}).get("certificateStatus") == "Active":
                break
        records = [_record(host, "A", ADDRESS), _record(alias, "A", ADDRESS)]
        body = _object("DNSRecordSet", RECORD_GROUP, namespace, name, {"records": records})
        await hand.must("POST", names.record_set.path(namespace), body)

    yield
    await lab.culprit(by, "delete", "DNSRecordSet", namespace, name)
    await lab.culprit(by, "delete", "ManagedCertificate", namespace, name)
    lab.start(go_on())


@family(
    "A domain gets a record of who may issue certificates for it, and the issuer of most of its names alone is there:"
    " the platform that serves another one may not renew its certificate, and once that one is over nobody trusts it.",
    joined=17,
)
async def issuer_forbidden(lab: Lab) -> AsyncIterator[None]:
    """As OpenTelemetry tells of go.opentelemetry.io (September 2025, opentelemetry.io 7886)."""
    namespace, name = lab.rng.choice(DOWNLOADS)
    others = [
        one for one in (("payments", "checkout"), ("media", "uploads"), ("shop", "frontend")) if one[0] != namespace
    ]
    text = _record(DOMAIN, "TXT", "v=spf1 include:mail.example -all")
    names = [_record(f"{other}.{DOMAIN}", "A", ADDRESS) for other, _ in others]
    _, host = await _found(lab, namespace, name, ZONE, (text, *names))
    for place in others:
        url = f"https://{await publish(lab, *place)}"
        holds = lambda url=url: bool(unserved(lab.world, url.removeprefix("https://")))  # noqa: E731
        lab.alert("ProbeFailed", holds, f"{url} is not answered", 6, job="blackbox", instance=url)
    yield
    caa = _record(DOMAIN, "CAA", f'0 issue "{OTHER_ISSUER}"')
    body = {"spec": {"records": [text, caa, *names, _record(host, "A", ADDRESS)]}}
    by = lab.rng.choice(("bob", "flux", "carol"))
    await lab.culprit(by, "update", "DNSRecordSet", *ZONE, body)
