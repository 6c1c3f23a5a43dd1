"""What has gone on for months and nobody has seen: what is kept of each release, a renewal that fails each time."""

from __future__ import annotations

import asyncio
import base64
import math
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import timedelta

from tests.lab import objects
from tests.lab.api import Json, Kind, now, path, stamp
from tests.lab.apps import App, Container, Process
from tests.lab.company import APPS
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.families.databases import ANY
from tests.lab.families.more_than_was_meant import Lately
from tests.lab.families.not_in_mind import TEAMS, change_page, set_before
from tests.lab.families.over_and_full import SIZE
from tests.lab.lab import Lab
from tests.lab.network import unserved
from tests.lab.programs import both, every, informer
from tests.lab.scenario import family

# -- what is kept of each release

DEPLOYER = ("platform", "helm-deployer")
STORE_BYTES, LEFT_BYTES, RELEASE_BYTES, FILLS_IN, AT_ONCE = 30_000_000, 8_000_000, 15_000, 92.0, 12
"""What the store may have, what months have left of it, what Helm keeps of a release, seconds until the store is full,
and how many releases come at the same time at most."""
LOW = 0.95


@dataclass
class _Releases:
    """Helm keeps each revision of each release as a Secret, and is told to forget none of them."""

    lab: Lab
    revision: int
    size: float = 0.0
    first: tuple[float, float] = (0.0, 0.0)
    """Since when the store grows evenly, and how much it had then."""
    done: int = 0
    failed: int = 0

    async def look(self) -> None:
        """How much the store has, as the API server tells Prometheus."""
        told = await self.lab.world.caller.call("GET", "/metrics")
        for size in SIZE.findall(str(told.body.get("message", ""))):
            self.size = float(size)

    async def go_on(self, process: Process) -> None:
        """What months have written, and then so many that the store grows evenly, whatever all others write."""
        await self.look()
        at = now().timestamp()
        if not self.first[0] and self.size < STORE_BYTES - LEFT_BYTES:
            await asyncio.gather(*(self._release(process) for _ in range(3 * AT_ONCE)))
            return
        if not self.first[0]:
            self.first = at, self.size
        began, least = self.first
        due = least + (STORE_BYTES - least) * (at - began) / FILLS_IN
        number = min(AT_ONCE, max(1, math.ceil((due - self.size) / (2 * RELEASE_BYTES))))
        await asyncio.gather(*(self._release(process) for _ in range(number)))

    async def _release(self, process: Process) -> None:
        self.revision += 1
        revision, home = self.revision, process.rng.choice(sorted(APPS))
        name = process.rng.choice(APPS[home])
        labels = {"name": name, "owner": "helm", "status": "deployed", "version": str(revision)}
        meta = {"name": f"sh.helm.release.v1.{name}.v{revision}", "labels": labels}
        release = base64.b64encode(process.rng.randbytes(RELEASE_BYTES)).decode()
        body = {"metadata": meta, "type": "helm.sh/release.v1", "stringData": {"release": release}}
        kept = await process.api.call("POST", path("Secret", home), body)
        self.done += kept.ok
        self.failed += not kept.ok


@family(
    "No culprit. Helm keeps all that it has ever installed, a Secret for each revision, as nobody has told it to forget"
    " any. For two years they have become more: the store of the cluster is full by its quota, and takes no write.",
    culprit=False,
    joined=97,
    store_flags=(f"--quota-backend-bytes={STORE_BYTES}",),
)
async def nobody_deletes_them(lab: Lab) -> AsyncIterator[None]:
    """As very many tell of *mvcc: database space exceeded*, and of history-max, which had been 0."""
    releases, minor = _Releases(lab, lab.rng.randrange(9_000, 30_000)), lab.rng.randrange(1, 9)
    asks_store = lab.rng.random() < 0.5
    await lab.apply(objects.config_map(*DEPLOYER, HELM_MAX_HISTORY="0", TIMEOUT="5m"))
    rights = ("", "secrets", "get,list,create,patch")
    await lab.controller(
        *DEPLOYER, every(1.0, releases.go_on), rights, replicas=1, tag=f"3.{minor}.0", config=DEPLOYER[1]
    )
    await rolled(lab, *DEPLOYER, f"3.{minor}.0")

    def failed() -> int:
        return sum(one.counts[500] for callers in lab.kubelets.counts.values() for one in callers)

    failing = lab.rate(failed, 0.5, seconds=6)
    lab.alert("KubeAPIErrorsHigh", failing, "the API server answers many requests with 5xx", job="apiserver")
    told = {"namespace": DEPLOYER[0], "service": DEPLOYER[1]}
    lab.measure("deployments_total", lambda: releases.done, "counter", **told, result="success")
    lab.measure("deployments_total", lambda: releases.failed, "counter", **told, result="failure")
    summary = "deployments fail"
    lab.alert("DeploymentsFailing", lab.rate(lambda: releases.failed, 0.3, seconds=8), summary, 4, **told)
    if asks_store:
        is_low = lambda: releases.size > LOW * STORE_BYTES  # noqa: E731
        lab.alert("etcdDatabaseQuotaLowSpace", is_low, "etcd has nearly used its quota", 8, job="etcd")
    await lab.until(lambda: releases.first[0])
    yield
    await lab.pause(lab.rng.uniform(1, 3))
    await lab.edit(lab.rng.choice(TEAMS), "ConfigMap", "search", "query", {"data": {"TIMEOUT_MS": "750"}})
    await lab.pause(lab.rng.uniform(2, 5))
    await lab.roll(lab.rng.choice(("ci", "argocd")), "media", "thumbnails", f"1.{minor + 20}.0")


# -- a renewal

GROUP, ISSUING = "cert-manager.io", ("cert-manager", "cert-manager-issuing")
OVER_SECONDS, RENEWED_SECONDS = 95.0, 61 * 86400.0
"""For how long the certificate that is due is good once all is set up, and how long all others are."""
DOORS = {"shop": "frontend", "payments": "checkout", "search": "query", "media": "uploads"}


def _reasons(host: str) -> tuple[str, ...]:
    """Why an authority has not issued another one for weeks, as is told of the last order."""
    zone = host.partition(".")[2]
    order = "Failed to wait for order resource"
    key = f"http://{host}/.well-known/acme-challenge/p2vX8dLq"
    unknown = f"DNS problem: NXDOMAIN looking up TXT for _acme-challenge.{host} - check that a DNS record exists"
    many = f'too many certificates (50) already issued for "{zone}" in the last 168h0m0s'
    invalid = 'to become ready: order is in "invalid" state'
    return (
        f"{order} {invalid}: 403 urn:ietf:params:acme:error:caa: CAA record for {zone} prevents issuance",
        f"{order} {invalid}: 403 urn:ietf:params:acme:error:unauthorized: Invalid response from {key}: 404",
        f"{order} {invalid}: 400 urn:ietf:params:acme:error:dns: {unknown}",
        f"Failed to create Order: 429 urn:ietf:params:acme:error:rateLimited: {many}",
    )


@dataclass
class _Certificates:
    """Of the public names, each with its last second; one of them has not been renewed since its time came."""

    lab: Lab
    kind: Kind
    why: str = ""
    ends: dict[str, float] = field(default_factory=dict)

    def ready(self, host: str) -> Json:
        """What is said of whether it is good."""
        if self.ends[host] > now().timestamp():
            good = "Certificate is up to date and has not expired"
            return {"type": "Ready", "status": "True", "reason": "Ready", "message": good}
        day = (now() - timedelta(seconds=now().timestamp() - self.ends[host])).strftime("%a, %d %b %Y %H:%M:%S UTC")
        return {"type": "Ready", "status": "False", "reason": "Expired", "message": f"Certificate expired on {day}"}

    async def add(self, namespace: str, host: str, seconds: float, tries: int) -> None:
        """As it is now: ``tries`` have failed since its time came. Raises RefusedError."""
        self.ends[host] = now().timestamp() + seconds
        meta = {"namespace": namespace, "name": f"{namespace}-public"}
        data = {"tls.crt": f"{host} until {self.ends[host]:.0f}", "tls.key": f"{self.lab.rng.randrange(10**9)}"}
        await self.lab.apply({"kind": "Secret", "metadata": meta, "type": "kubernetes.io/tls", "stringData": data})
        tls = [{"hosts": [host], "secretName": meta["name"]}]
        await self.lab.edit("admin", "Ingress", namespace, namespace, {"spec": {"tls": tls}})
        at = now()
        until, renewed = (f"{stamp(at + timedelta(seconds=one))[:19]}Z" for one in (seconds, seconds - 30 * 86400))
        status: Json = {"notAfter": until, "renewalTime": renewed, "conditions": [self.ready(host)]}
        if tries:
            why = {"type": "Issuing", "status": "False", "reason": "Failed"}
            message = f"The certificate request has failed to complete and will be retried: {self.why}"
            status["conditions"].append({**why, "message": message})
            last = f"{stamp(at - timedelta(hours=self.lab.rng.randrange(5, 30)))[:19]}Z"
            status |= {"failedIssuanceAttempts": tries, "lastFailureTime": last}
        issuer = {"name": "letsencrypt", "kind": "ClusterIssuer"}
        spec = {"secretName": meta["name"], "dnsNames": [host], "issuerRef": issuer}
        made = {"apiVersion": f"{GROUP}/v1", "kind": self.kind.name, "metadata": meta, "spec": spec}
        await self.lab.apply({**made, "status": status})

    async def look(self, process: Process) -> None:
        """As cert-manager: what is over is told to be."""
        for one in (await process.api.call("GET", self.kind.path())).body.get("items", ()):
            home, name = one["metadata"]["namespace"], one["metadata"]["name"]
            told, (before, *others) = self.ready(one["spec"]["dnsNames"][0]), one["status"]["conditions"]
            if before != told:
                where = self.kind.path(home, name)
                await process.api.call("PATCH", where, {"status": {"conditions": [told, *others]}})

    def is_over(self, host: str) -> bool:
        return self.ends[host] <= now().timestamp()

    async def browse(self) -> None:
        """Who is shown a certificate that is over goes away."""
        while True:
            self.lab.outside.unreached = {host for host in self.ends if self.is_over(host)}
            await asyncio.sleep(0.5)


@family(
    "No culprit. The renewal of a public certificate has failed for weeks, each time for the same reason, and nobody is"
    " told of that. The old one is over at its hour: browsers warn of the page, and apps that call it by its public"
    " name get no connection.",
    culprit=False,
    joined=97,
)
async def failed_for_weeks(lab: Lab) -> AsyncIterator[None]:
    """As those tell who found twenty failed orders of one name, once customers had called."""
    due, *others = lab.rng.sample(sorted(DOORS), 4)
    caller, front, part = lab.rng.choice(
        (("mobile-api", "app-page", "mail"), ("partner-feed", "feed-page", "sync"), ("bot-gateway", "chat-page", "log"))
    )
    home, minor, share = others[0], lab.rng.randrange(2, 40), lab.rng.uniform(0.3, 0.7)
    hosts = {namespace: await publish(lab, namespace, name) for namespace, name in DOORS.items() if namespace != home}
    host, kind = hosts[due], await lab.custom("Certificate", GROUP, ANY)
    await lab.served(kind)
    certificates = _Certificates(lab, kind, lab.rng.choice(_reasons(host)))
    calls = Lately(lab, lambda: host in certificates.ends and certificates.is_over(host))

    def fails(_: Container) -> float:
        return share if calls() else 0.0

    like = App("", abroad=(host,), asked=lambda: 20.0, failing=fails, fails_with=lambda _: "502")
    await lab.app(home, caller, like=like, replicas=3, tag=f"5.{minor}.0")
    await rolled(lab, home, caller, f"5.{minor}.0")
    await lab.apply(objects.config_map(home, f"{caller}-{part}", LOG_LEVEL="info", EVERY="60s"))
    await lab.app(home, f"{caller}-{part}", replicas=2, tag="1.0.9", config=f"{caller}-{part}")
    await rolled(lab, home, f"{caller}-{part}", "1.0.9")
    await set_before(lab, home, front, caller)
    rights = (GROUP, "certificates", "get,list,watch,patch")
    program = both(informer(kind.path()), every(2.0, certificates.look))
    await lab.controller(*ISSUING, program, rights, replicas=1, tag="v1.19.1")
    await rolled(lab, *ISSUING, "v1.19.1")
    for one in (caller, front):
        lab.alert_errors(home, one)
    lab.alert_ingress_errors(home, home)
    for one in hosts.values():
        url = f"https://{one}"
        answered = lambda one=one: one not in lab.outside.unreached and not unserved(lab.world, one)  # noqa: E731
        told = {"namespace": "monitoring", "service": "blackbox-exporter", "instance": url}
        lab.measure("probe_success", lambda answered=answered: float(answered()), **told)  # type: ignore[misc]
        lost = lambda answered=answered: not answered()  # noqa: E731
        lab.alert("ProbeFailed", lost, f"{url} is not answered", 6, job="blackbox", instance=url)
    await lab.until(lab.is_well)
    for namespace, one in hosts.items():
        is_due = namespace == due
        seconds = OVER_SECONDS if is_due else RENEWED_SECONDS
        await certificates.add(namespace, one, seconds, lab.rng.randrange(17, 29) if is_due else 0)
    lab.start(certificates.browse())

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(4, 9))
        await change_page(lab, home, front)

    yield
    await lab.roll(lab.rng.choice(("ci", "argocd")), due, DOORS[due], f"1.{minor}.4")
    await lab.pause(lab.rng.uniform(4, 8))
    await lab.edit(lab.rng.choice((*TEAMS, "flux")), "ConfigMap", home, f"{caller}-{part}", {"data": {"EVERY": "45s"}})
    await lab.pause(lab.rng.uniform(4, 8))
    await lab.roll(lab.rng.choice(("ci", "argocd")), home, caller, f"5.{minor}.1")
    lab.start(afterwards())
