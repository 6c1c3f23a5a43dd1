"""What a team does as ever, and what meets something this time that was not there before."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from tests.lab import objects
from tests.lab.api import Json, Kind, path
from tests.lab.apps import App, Container, Problem, Process
from tests.lab.before import before
from tests.lab.company import COREFILE
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.families.databases import ANY
from tests.lab.lab import Lab
from tests.lab.network import DNS, backends, unserved
from tests.lab.programs import every, tell
from tests.lab.scenario import family

OLD_SERVER, NEW_SERVER = "1.4.0", "1.5.0"
CALLERS = (("shop", "frontend"), ("shop", "cart"), ("payments", "checkout"), ("search", "query"))
RESOLVERS = ("10.20.0.53", "10.31.4.53", "172.20.8.10", "10.44.1.53")
ISSUED_A_WEEK = 5
"""How many certificates the issuer gives for the same name within a week."""
GROUP = "cert-manager.io"


def forwarding(zones: dict[str, str]) -> Json:
    """A Corefile whose servers ask others for some zones."""
    blocks = [f"{zone}:53 {{\n    errors\n    forward . {server}\n}}\n" for zone, server in zones.items()]
    return {"data": {"Corefile": f"{COREFILE}{''.join(blocks)}"}}


@family(
    "Somebody enters a partner's zone in the Corefile, as is done every week: since their last upgrade, which nobody"
    " noticed, the servers do not get their port back as they read it anew, and no name is resolved.",
    joined=23,
)
async def corefile_reload(lab: Lab) -> AsyncIterator[None]:
    """As users of kubeadm and MicroK8s tell of CoreDNS 1.5.0 (kubeadm 1745, microk8s 615)."""
    by, deploys = lab.rng.choice(("carol", "flux", "alice")), lab.rng.choice(("argocd", "ci"))
    partners = lab.rng.sample(("carrier", "acquirer", "warehouse", "printer", "insurer"), 3)
    zones: dict[str, str] = {}
    begun: dict[str, str] = {}

    def deaf(container: Container) -> Problem | None:
        """A server of the new version that has another Corefile than at its start."""
        corefile = container.config.get("Corefile", "")
        if container.tag == NEW_SERVER and begun.setdefault(container.pod["metadata"]["uid"], corefile) != corefile:
            return Problem("unready", "probe failed: dial tcp :8181: connect: connection refused")
        return None

    def enter() -> Json:
        """The next partner's zone."""
        zones[f"{partners[len(zones)]}.example"] = lab.rng.choice(RESOLVERS)
        return forwarding(zones)

    lab.apps[f"registry.corp.example/{'/'.join(DNS)}"].check = deaf
    await lab.roll("admin", *DNS, OLD_SERVER)
    await rolled(lab, *DNS, OLD_SERVER)
    for place in CALLERS:
        lab.alert_lacking(*place)
    for days in (15, 8):
        async with before(lab, days=days):
            await lab.edit(by, "ConfigMap", DNS[0], "coredns", enter())
            await lab.pause(5)
    async with before(lab, days=2):
        await lab.roll("flux", *DNS, NEW_SERVER)
        await rolled(lab, *DNS, NEW_SERVER)
        await lab.pause(3)
    await lab.until(lambda: all(backends(lab.world, *place) for place in CALLERS))
    yield
    await lab.roll(deploys, *lab.rng.choice(CALLERS), "2.1.0")
    await lab.pause(lab.rng.uniform(3, 5))
    await lab.culprit(by, "update", "ConfigMap", DNS[0], "coredns", enter())


@dataclass
class _Issuer:
    """What gives out certificates: whoever declares one and has none gets it, as long as the authority lets it."""

    lab: Lab
    certificate: Kind
    hosts: set[str]
    """Nobody gets a connection by one of those that has no certificate."""
    issued: Counter[str] = field(default_factory=Counter)
    """This week, by name."""

    async def issue(self, process: Process) -> None:
        held = set[str]()
        for one in (await process.api.call("GET", self.certificate.path())).body.get("items", []):
            [host], secret = one["spec"]["dnsNames"], one["spec"]["secretName"]
            where = path("Secret", one["metadata"]["namespace"])
            if (await process.api.call("GET", f"{where}/{secret}")).ok:
                held.add(host)
            elif self.issued[host] < ISSUED_A_WEEK:
                data = {"tls.crt": f"{host} {self.issued[host]}", "tls.key": f"{process.rng.randrange(10**9)}"}
                body = {"metadata": {"name": secret}, "type": "kubernetes.io/tls", "stringData": data}
                self.issued[host] += (await process.api.call("POST", where, body)).ok
            else:
                why = f"429 rateLimited: too many certificates ({ISSUED_A_WEEK}) already issued for {host}"
                about = {**one, "kind": "Certificate"}
                await tell(process, about, "Warning", "Failed", why, by="cert-manager-certificates-issuing")
        self.lab.outside.unreached = self.hosts - held


@family(
    "A team deletes the namespace of its page and makes all anew, as it does now and then: the page's certificate goes"
    " with it, and the issuer has given out as many for that name this week as it does.",
    joined=23,
)
async def certificate_limit(lab: Lab) -> AsyncIterator[None]:
    """As Mozilla's team for sign-in tells of its dashboard (mozilla-iam/iam-infra 31 and 32, August 2018)."""
    namespace, name = lab.rng.choice((("sso", "dashboard"), ("status", "status-page"), ("handbook", "pages")))
    team, issuer = lab.rng.choice(("alice", "bob", "carol")), ("cert-manager", "cert-manager-issuing")
    certificate = await lab.custom("Certificate", GROUP, ANY)
    host, secret = f"{namespace}.corp.example", f"{name}-tls"
    keeper = _Issuer(lab, certificate, {host})

    async def install(by: str) -> None:
        """As its chart."""
        await lab.until(lambda: ("", namespace) not in lab.world["Namespace"])
        await lab.apply({"kind": "Namespace", "metadata": {"name": namespace}}, by)
        await lab.apply(objects.deployment(namespace, name, f"registry.corp.example/{namespace}/{name}:1.4.0"), by)
        await lab.apply(objects.service(namespace, name), by)
        service = {"service": {"name": name, "port": {"number": 80}}}
        rule = {"host": host, "http": {"paths": [{"path": "/", "pathType": "Prefix", "backend": service}]}}
        tls = [{"hosts": [host], "secretName": secret}]
        meta = {"namespace": namespace, "name": namespace}
        spec = {"ingressClassName": "nginx", "rules": [rule], "tls": tls}
        await lab.apply({"kind": "Ingress", "metadata": meta, "spec": spec}, by)
        wanted = {"secretName": secret, "dnsNames": [host], "issuerRef": {"name": "public", "kind": "ClusterIssuer"}}
        body = {"apiVersion": f"{GROUP}/v1", "kind": "Certificate", "metadata": {**meta, "name": name}, "spec": wanted}
        await lab.apply(body, by)

    def fails() -> bool:
        return host in lab.outside.unreached or bool(unserved(lab.world, host))

    await lab.served(certificate)
    image = f"registry.corp.example/{namespace}/{name}"
    lab.apps[image] = App(image)
    rules = (GROUP, "certificates", "get,list"), ("", "secrets", "get,create"), ("", "events", "create")
    await lab.controller(*issuer, every(1.5, keeper.issue), *rules, replicas=1, tag="1.15.3")
    await publish(lab, "shop", "frontend")
    await install("admin")
    await lab.until(lambda: keeper.issued[host] and not fails())
    instance = f"https://{host}"
    lab.alert("ProbeFailed", fails, f"{instance} is not answered", 22, job="blackbox", instance=instance)
    for days in (16, 2):
        async with before(lab, days=days):
            await lab.who[team].must("DELETE", path("Namespace", None, namespace))
            await lab.until(fails)
            await install(team)
            await lab.until(lambda: not fails())
            await lab.pause(1)
    keeper.issued[host] = ISSUED_A_WEEK
    yield
    await lab.roll(lab.rng.choice(("argocd", "flux")), *issuer, "1.15.4")
    await lab.pause(lab.rng.uniform(4, 7))
    await lab.culprit(team, "delete", "Namespace", "", namespace)
    lab.start(install(team))
