"""What was told of a public name that is pointed elsewhere, where nothing may answer for it yet."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import datetime

from tests.lab.api import Json, Kind, now
from tests.lab.apps import Process
from tests.lab.families.between import publish
from tests.lab.families.databases import ANY
from tests.lab.lab import Lab
from tests.lab.network import backends, unserved
from tests.lab.programs import every
from tests.lab.scenario import family

OLD, NEW = "198.51.100.7", "203.0.113.51"
"""Where the ingress controller answers, and where a load balancer of the cloud does."""
ISSUED_SECONDS = 45.0
"""How long the cloud takes to issue a certificate once it has found that a name leads to its load balancer."""


@dataclass
class _Names:
    """Where public names lead, as the world resolves them, and the certificate that the new place has for them."""

    record_set: Kind
    certificate: Kind
    records: dict[str, str] = field(default_factory=dict)
    found: datetime | None = None
    """When a name was seen to lead to the new load balancer."""

    @property
    def is_issued(self) -> bool:
        return self.found is not None and (now() - self.found).total_seconds() > ISSUED_SECONDS

    async def publish(self, process: Process) -> None:
        """What is declared becomes what is resolved, as external-dns does it."""
        listed = await process.api.call("GET", self.record_set.path())
        for one in listed.body.get("items", []):
            self.records |= {each["dnsName"]: each["targets"][0] for each in one["spec"]["records"]}

    async def issue(self, process: Process) -> None:
        """As the cloud's controller, which looks where a name leads; its words are those of the cloud."""
        listed = await process.api.call("GET", self.certificate.path())
        for one in listed.body.get("items", []):
            [domain] = one["spec"]["domains"]
            if self.records.get(domain) == NEW:
                self.found = self.found or now()
            waits = "Provisioning" if self.found else "FailedNotVisible"
            whole, status = ("Active", "Active") if self.is_issued else ("Provisioning", waits)
            told = {"certificateStatus": whole, "domainStatus": [{"domain": domain, "status": status}]}
            if one.get("status") != told:
                where = self.certificate.path(one["metadata"]["namespace"], one["metadata"]["name"])
                await process.api.call("PATCH", where, {"status": told})


@family(
    "The name of a page is pointed to a new load balancer, whose certificate the cloud issues only once the name leads"
    " there: until it has, nobody who comes gets an encrypted connection.",
    joined=15,
)
async def certificate_awaited(lab: Lab) -> AsyncIterator[None]:
    """As those who run TestGrid tell (June 2023, k8s.io 5429; what they did before the next try, 5433, tells why)."""
    namespace, name = lab.rng.choice((("shop", "boards"), ("media", "gallery"), ("search", "explorer")))
    groups = {"DNSRecordSet": "dns.corp.example", "ManagedCertificate": "networking.gke.io"}
    record_set, certificate = [await lab.custom(kind, group, ANY) for kind, group in groups.items()]
    names = _Names(record_set, certificate)
    await lab.app(namespace, name)
    host = await publish(lab, namespace, name)
    paths = [{"path": "/", "pathType": "Prefix", "backend": {"service": {"name": name, "port": {"number": 80}}}}]
    notes = {"networking.gke.io/managed-certificates": name, "kubernetes.io/ingress.class": "gce"}
    meta: Json = {"namespace": namespace, "name": f"{name}-lb", "annotations": notes}
    spec: Json = {"rules": [{"host": host, "http": {"paths": paths}}]}
    await lab.apply({"kind": "Ingress", "metadata": meta, "spec": spec})
    await lab.served(record_set, certificate)
    wanted: Json = {"DNSRecordSet": {"records": [_record(host, OLD)]}, "ManagedCertificate": {"domains": [host]}}
    for kind, group in groups.items():
        meta = {"namespace": namespace, "name": name}
        await lab.apply({"apiVersion": f"{group}/v1", "kind": kind, "metadata": meta, "spec": wanted[kind]})
    may = (groups["DNSRecordSet"], "dnsrecordsets", "get,list")
    await lab.controller("platform", "external-dns", every(2, names.publish), may, replicas=1)
    may = (groups["ManagedCertificate"], "managedcertificates", "get,list,patch")
    await lab.controller("kube-system", "managed-certificate-controller", every(2, names.issue), may, replicas=1)
    await lab.until(lambda: names.records.get(host) == OLD and not unserved(lab.world, host))

    def fails() -> bool:
        """As a blackbox exporter at another place: it wants an answer over TLS."""
        if names.records[host] == OLD:
            return bool(unserved(lab.world, host))
        return not (names.is_issued and backends(lab.world, namespace, name))

    lab.outside.reached = lambda: not fails()
    lab.alert("ProbeFailed", fails, f"https://{host} is not answered", 8, job="blackbox", instance=f"https://{host}")
    yield
    body = {"spec": {"records": [_record(host, NEW)]}}
    by = lab.rng.choice(("ci", "alice", "flux"))
    await lab.culprit(by, "update", "DNSRecordSet", namespace, name, body)


def _record(host: str, target: str) -> Json:
    return {"dnsName": host, "recordType": "A", "recordTTL": 300, "targets": [target]}
