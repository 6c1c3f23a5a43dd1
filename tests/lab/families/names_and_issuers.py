"""Who looks after public names: what keeps their records, and what has certificates issued for them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial

from tests.lab import objects
from tests.lab.api import Json, Kind, now, path, stamp
from tests.lab.apps import Process
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import annotated, rolled
from tests.lab.families.databases import ANY
from tests.lab.families.not_in_mind import TEAMS
from tests.lab.lab import Lab
from tests.lab.network import INGRESS_CLASS, INGRESS_CONTROLLER, backends, unserved
from tests.lab.programs import both, every, tell
from tests.lab.scenario import family

PUBLISHED = {"dns.corp.example/publish": "true"}
KEEPER = ("platform", "external-dns")
KNOWN_SECONDS = 3.0
"""For which resolvers outside still know a record that is gone."""
FRONTS = {"shop": "frontend", "payments": "checkout", "search": "query", "media": "uploads"}


@dataclass
class _Records:
    """The zone of the company's public names, of which each record is the keeper's own."""

    lab: Lab
    there: set[str] = field(default_factory=set)
    gone: dict[str, float] = field(default_factory=dict)
    """Since when each is, that was there once."""

    async def keep(self, process: Process) -> None:
        """As external-dns: what Ingresses ask for is made; what none asks for is deleted, where the policy says so."""
        args = process.see().spec.get("args", ())
        listed = await process.api.call("GET", path("Ingress"))
        if not listed.ok:
            return
        wanted = {
            rule["host"]
            for one in listed.body["items"]
            if PUBLISHED.items() <= one["metadata"].get("annotations", {}).items()
            for rule in one["spec"]["rules"]
        }
        if "--policy=sync" in args:
            self.gone |= dict.fromkeys(self.there - wanted, now().timestamp())
            self.there &= wanted
        self.there |= wanted
        self.reach()

    def reach(self) -> None:
        """By which names nobody gets anywhere any more."""
        late = now().timestamp() - KNOWN_SECONDS - self.lab.lag
        self.lab.outside.unreached = {host for host, at in self.gone.items() if host not in self.there and at < late}


@family(
    "What keeps the records of public names only ever made and changed them. So that those of old previews go, its"
    " policy is changed to one that also deletes. Records go of names that no Ingress asks for any more in the way that"
    " it reads, and two of those are in use: nobody outside finds them.",
    joined=86,
)
async def sync_policy(lab: Lab) -> AsyncIterator[None]:
    """As those tell whose records had outlived the annotation that once made them."""
    hosts = dict[str, str]()
    for namespace, name in FRONTS.items():
        hosts[namespace] = await publish(lab, namespace, name)
    unmarked, by = lab.rng.sample(sorted(FRONTS), 2), lab.rng.choice((*TEAMS, "flux", "argocd"))
    for namespace in FRONTS:
        if namespace not in unmarked:
            await lab.edit("admin", "Ingress", namespace, namespace, {"metadata": {"annotations": PUBLISHED}})
    previews = {f"preview-{lab.rng.randrange(10000)}.corp.example" for _ in range(lab.rng.randrange(14, 30))}
    records = _Records(lab, {*hosts.values(), *previews})
    reads = ("networking.k8s.io", "ingresses", "get,list,watch")
    await lab.controller(*KEEPER, every(2, records.keep), reads, replicas=1, tag="0.18.0")
    await rolled(lab, *KEEPER, "0.18.0")
    usual = ["--source=ingress", "--annotation-filter=dns.corp.example/publish=true", "--domain-filter=corp.example"]
    usual += ["--registry=txt", "--txt-owner-id=prod-1", "--interval=1m"]
    await lab.roll("admin", *KEEPER, "0.19.0", args=[*usual, "--policy=upsert-only"])
    await rolled(lab, *KEEPER, "0.19.0")
    told = {"namespace": KEEPER[0], "service": KEEPER[1], "record_type": "a"}
    lab.measure("external_dns_registry_records", lambda: float(len(records.there)), **told)

    def fails(host: str) -> bool:
        return host in lab.outside.unreached or bool(unserved(lab.world, host))

    for host in hosts.values():
        url = f"https://{host}"
        lab.alert("ProbeFailed", partial(fails, host), f"{url} is not answered", 6, job="blackbox", instance=url)
    await lab.until(lab.is_well)
    first, _ = unmarked
    yield
    await lab.roll("argocd", *INGRESS_CONTROLLER, f"1.14.{lab.rng.randrange(2, 6)}")
    await lab.pause(lab.rng.uniform(7, 12))
    await lab.edit(lab.rng.choice(TEAMS), "Ingress", first, first, annotated(proxy_body_size="32m"))
    await lab.pause(lab.rng.uniform(1, 4))
    await lab.roll(by, *KEEPER, "0.19.0", args=[*usual, "--policy=sync"], culprit=True)
    await lab.pause(lab.rng.uniform(1, 3))
    await lab.roll(lab.rng.choice(("ci", "argocd")), first, FRONTS[first], f"2.{lab.rng.randrange(2, 30)}.0")


ISSUER, ASKED = "letsencrypt", {"cert-manager.io/cluster-issuer": "letsencrypt"}
MANAGER = ("cert-manager", "cert-manager")
CHALLENGED_SECONDS = 3.0
"""How long the authority takes to look at the answer to its challenge."""
DUE_SECONDS = 12.0
"""After which a certificate that was asked for is late."""


@dataclass
class _Manager:
    """Makes a Certificate of what an Ingress asks for, answers the challenge, and writes the Secret."""

    lab: Lab
    issuers: Kind
    certificates: Kind
    challenges: Kind
    trusted: set[str] = field(default_factory=set)

    async def look(self, process: Process) -> None:
        listed = await process.api.call("GET", path("Ingress"))
        for one in listed.body.get("items", ()):
            if ASKED.items() <= one["metadata"].get("annotations", {}).items():
                for tls in one["spec"].get("tls", ()):
                    await self._ask(process, one, tls)
        wanted = await process.api.call("GET", self.certificates.path())
        for one in wanted.body.get("items", ()):
            if not _is_ready(one):
                await self._issue(process, {**one, "kind": "Certificate"})

    async def _ask(self, process: Process, ingress: Json, tls: Json) -> None:
        namespace, name = ingress["metadata"]["namespace"], tls["secretName"]
        if (namespace, name) in self.lab.world["Certificate"]:
            return
        spec = {"secretName": name, "dnsNames": tls["hosts"], "issuerRef": {"kind": "ClusterIssuer", "name": ISSUER}}
        owner = {"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "controller": True}
        owner |= {key: ingress["metadata"][key] for key in ("name", "uid")}
        body = _object(self.certificates, namespace, name, spec)
        body["metadata"]["ownerReferences"] = [owner]
        await process.api.call("POST", self.certificates.path(namespace), body)

    async def _issue(self, process: Process, one: Json) -> None:
        namespace, name = one["metadata"]["namespace"], one["metadata"]["name"]
        [host], issuer = one["spec"]["dnsNames"], await process.api.call("GET", self.issuers.path(None, ISSUER))
        if not issuer.ok:
            return
        solver = next((each for each in issuer.body["spec"]["acme"]["solvers"] if _solves(each, host)), None)
        if solver is None:
            why = f"Failed to create Order: no configured challenge solvers can be used for this challenge: {host}"
            await self._tell(process, one, "False", "Errored", why)
            return
        by_class = solver["http01"]["ingress"]["ingressClassName"]
        spec = {"type": "HTTP-01", "dnsName": host, "solver": solver, "issuerRef": one["spec"]["issuerRef"]}
        made = self.lab.world["Challenge"].get((namespace, name))
        if made is None:
            await process.api.call(
                "POST", self.challenges.path(namespace), _object(self.challenges, namespace, name, spec)
            )
            await self._tell(process, one, "False", "DoesNotExist", "Issuing certificate as Secret does not exist")
            return
        is_met = by_class == INGRESS_CLASS and backends(self.lab.world, *INGRESS_CONTROLLER)
        if not is_met:
            why = "Waiting for HTTP-01 challenge propagation: wrong status code '404', expected '200'"
            status = {"state": "pending", "presented": True, "processing": True, "reason": why}
            if made.get("status") != status:
                await process.api.call("PATCH", self.challenges.path(namespace, name), {"status": status})
                presented = "Presented challenge using HTTP-01 challenge mechanism"
                about = {**made, "kind": "Challenge"}
                await tell(process, about, "Normal", "Presented", presented, by="cert-manager-challenges")
        elif (now() - datetime.fromisoformat(made["metadata"]["creationTimestamp"])).total_seconds() > (
            CHALLENGED_SECONDS
        ):
            await self._write(process, one, host)

    async def _write(self, process: Process, one: Json, host: str) -> None:
        """The challenge was met."""
        namespace, name = one["metadata"]["namespace"], one["metadata"]["name"]
        body = {"metadata": {"name": name}, "type": "kubernetes.io/tls"}
        data = {"tls.crt": f"certificate of {host}", "tls.key": f"key of {host}"}
        await process.api.call("POST", path("Secret", namespace), {**body, "stringData": data})
        await process.api.call("DELETE", self.challenges.path(namespace, name))
        told = "Certificate is up to date and has not expired"
        await self._tell(process, one, "True", "Ready", told)
        self.trusted.add(host)
        self.reach()

    async def _tell(self, process: Process, one: Json, status: str, reason: str, message: str) -> None:
        """The condition of a Certificate, if that is news."""
        told = {"type": "Ready", "status": status, "reason": reason, "message": message}
        [before] = one.get("status", {}).get("conditions") or [{}]
        if before == {**before, **told}:
            return
        body = {"status": {"conditions": [{**told, "lastTransitionTime": f"{stamp(now())[:19]}Z"}]}}
        where = self.certificates.path(one["metadata"]["namespace"], one["metadata"]["name"])
        await process.api.call("PATCH", where, body)
        kind = "Normal" if reason != "Errored" else "Warning"
        await tell(process, one, kind, "Issuing" if status == "False" else "Issued", message, by="cert-manager")

    def reach(self) -> None:
        """A name whose Ingress shows no certificate of an authority is not trusted."""
        hosts = {
            host
            for one in self.lab.world["Ingress"].values()
            for tls in one["spec"].get("tls", ())
            for host in tls["hosts"]
        }
        self.lab.outside.unreached = hosts - self.trusted

    def fails(self, host: str) -> bool:
        """Whether a name that is published is not answered; its certificate takes a moment."""
        rules = (rule for one in self.lab.world["Ingress"].values() for rule in one["spec"]["rules"])
        is_published = any(rule["host"] == host for rule in rules)
        return is_published and (host in self.lab.outside.unreached or bool(unserved(self.lab.world, host)))

    def is_late(self, namespace: str, name: str) -> bool:
        """Whether a certificate was asked for a while ago, and is not there."""
        one = self.lab.world["Certificate"].get((namespace, name))
        if one is None or _is_ready(one):
            return False
        return (now() - datetime.fromisoformat(one["metadata"]["creationTimestamp"])).total_seconds() > DUE_SECONDS


def _is_ready(certificate: Json) -> bool:
    return any(one["status"] == "True" for one in certificate.get("status", {}).get("conditions", ()))


def _solves(solver: Json, host: str) -> bool:
    """Whether a solver is for a name: one without a selector is for all."""
    zones = solver.get("selector", {}).get("dnsZones", ())
    return not zones or any(host.endswith(f".{zone}") for zone in zones)


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


@family(
    "Somebody edits the issuer of all public certificates, for what is to come: another class of Ingresses for its"
    " challenges, which nothing serves yet, or a zone beside, to which its only solver is then kept. Certificates that"
    " are there are good for weeks. The next team that publishes a new name gets none, and nobody trusts that name.",
    joined=86,
)
async def issuer_edited(lab: Lab) -> AsyncIterator[None]:
    """As those tell whose new customer had a warning of the browser on the first day."""
    group = "cert-manager.io"
    issuers = await lab.custom("ClusterIssuer", group, ANY, namespaced=False)
    certificates = await lab.custom("Certificate", group, ANY)
    challenges = await lab.custom("Challenge", f"acme.{group}", ANY)
    manager = _Manager(lab, issuers, certificates, challenges)
    (early, first), (namespace, name) = lab.rng.sample(sorted(FRONTS.items()), 2)
    words = lab.rng.sample(("summer", "partners", "b2b", "outlet", "events", "beta"), 2)
    host, other = (f"{word}.corp.example" for word in words)
    by, is_class = lab.rng.choice((*TEAMS, "flux", "argocd")), lab.rng.random() < 0.5
    deploys = lab.rng.choice(("ci", "argocd"))
    await lab.served(issuers, certificates, challenges)
    solver: Json = {"http01": {"ingress": {"ingressClassName": INGRESS_CLASS}}}
    acme = {
        "server": "https://acme-v02.api.letsencrypt.org/directory",
        "email": "platform@corp.example",
        "privateKeySecretRef": {"name": "letsencrypt-account"},
        "solvers": [solver],
    }
    await lab.apply(_object(issuers, "", ISSUER, {"acme": acme}))
    rules = (("cert-manager.io,acme.cert-manager.io", "*", "*"), ("", "secrets,events", "create,get,update,patch"))
    role = "cert-manager-issuing"
    await lab.apply(objects.cluster_role(role, *rules))
    await lab.apply(objects.binding(role, role, *MANAGER))
    app = lab.apps[f"registry.corp.example/{'/'.join(MANAGER)}"]
    assert app.program
    app.program = both(app.program, every(1.5, manager.look))
    await lab.edit("admin", "Deployment", *MANAGER, {"spec": {"replicas": 1}})
    await lab.roll("admin", *MANAGER, "1.19.0")
    await rolled(lab, *MANAGER, "1.19.0")
    for home, one in FRONTS.items():
        await lab.apply(_ingress(home, f"{home}.corp.example", one))
        lab.reserve(home, one)
    await lab.until(lambda: len(manager.trusted) == len(FRONTS))
    for home, word in zip((early, namespace), reversed(words), strict=True):
        asked = {"namespace": home, "name": f"{word}-tls"}
        summary = f"the certificate {home}/{word}-tls has not become ready for a while"
        late = partial(manager.is_late, home, f"{word}-tls")
        lab.alert("CertManagerCertNotReady", late, summary, 3, **asked, issuer_name=ISSUER)
    for one in (host, other, *(f"{home}.corp.example" for home in FRONTS)):
        url = f"https://{one}"
        lab.alert("ProbeFailed", partial(manager.fails, one), f"{url} is not trusted", 14, job="blackbox", instance=url)
    await lab.until(lab.is_well)

    async def publish_new(where: str, one: str, behind: str) -> None:
        made = _ingress(where, one, behind)
        await lab.who[deploys].must("POST", path("Ingress", where), made)
        manager.reach()

    yield
    await publish_new(early, other, first)
    await lab.pause(lab.rng.uniform(7, 10))
    await lab.roll("argocd", *MANAGER, "1.19.1")
    await lab.pause(lab.rng.uniform(5, 9))
    edited = (
        [{"http01": {"ingress": {"ingressClassName": lab.rng.choice(("edge", "public-gateway", "nginx-v2"))}}}]
        if is_class
        else [{**solver, "selector": {"dnsZones": [lab.rng.choice(("corp-apps.example", "corp.dev.example"))]}}]
    )
    await lab.culprit(by, "update", "ClusterIssuer", "", ISSUER, {"spec": {"acme": {"solvers": edited}}})
    await lab.pause(lab.rng.uniform(5, 10))
    await lab.roll(deploys, namespace, name, f"3.{lab.rng.randrange(2, 30)}.0")
    await lab.pause(lab.rng.uniform(3, 6))
    await publish_new(namespace, host, name)
