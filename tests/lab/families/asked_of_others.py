"""What is asked of somebody outside: an image for a machine that is new, a certificate for a name that is."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import datetime

from tests.lab import objects
from tests.lab.alerts import lacking
from tests.lab.api import Json, Kind, now, path, stamp
from tests.lab.apps import App, Process
from tests.lab.families.by_annotation import rolled
from tests.lab.families.databases import ANY
from tests.lab.lab import LATER, NODES, Lab
from tests.lab.network import INGRESS_CLASS, backends
from tests.lab.programs import both, every, tell
from tests.lab.scenario import family

LIMITED = (
    "429 Too Many Requests - Server message: toomanyrequests: You have reached your unauthenticated pull rate limit"
)
DOWN = "unexpected status from HEAD request: 503 Service Unavailable"
NO_ANSWER = "dial tcp 203.0.113.40:443: i/o timeout"


@family(
    "No culprit. A public registry is down, or gives out no more to the company's address for some hours. A machine"
    " joins as many do each day, and the agent that has to run on each one is not there yet: its image is not given"
    " out.",
    culprit=False,
    joined=81,
)
async def first_on_it(lab: Lab) -> AsyncIterator[None]:
    """As those tell whose cluster was well, but for what was new, on the day a registry was down."""
    host, why = lab.rng.choice((("docker.io", LIMITED), ("quay.io", DOWN), ("ghcr.io", NO_ANSWER)))
    namespace, name, tag = lab.rng.choice(
        (
            ("monitoring", "log-agent", "v2.4.1"),
            ("kube-system", "csi-node", "v1.48.0"),
            ("monitoring", "runtime-guard", "0.41.3"),
        )
    )
    image = f"{host}/{name}-project/{name}"
    lab.apps[image] = App(image, serves=False)
    await lab.apply(objects.deployment(namespace, name, f"{image}:{tag}", kind="DaemonSet"))
    await rolled(lab, namespace, name, tag)
    there = lambda: lab.world["DaemonSet"][namespace, name].get("status", {}).get("numberReady") == len(NODES)  # noqa: E731
    await lab.until(there)
    summary = f"{namespace}/{name} does not run on every node"
    missing = lambda: lacking(lab.world, namespace, name)  # noqa: E731
    lab.alert("KubeDaemonSetNotReady", missing, summary, 12, namespace=namespace, daemonset=name)
    await lab.until(lab.is_well)

    async def grow() -> None:
        await lab.pause(lab.rng.uniform(3, 7))
        lab.outside.broken[host] = why
        await lab.pause(lab.rng.uniform(4, 9))
        await lab.kubelets.join(LATER, "v1.36.1", {"pool": "general"})

    yield
    await lab.roll(lab.rng.choice(("ci", "bob")), *lab.rng.choice((("shop", "cart"), ("media", "uploads"))), "1.57.1")
    lab.start(grow())


CERTIFICATES, ACME = "cert-manager.io", "acme-v02.api.letsencrypt.org"
ISSUER = f"{CERTIFICATES}/cluster-issuer"
SPENT = (
    '429 urn:ietf:params:acme:error:rateLimited: too many certificates (50) already issued for "corp.example" in the'
    " last 168h0m0s"
)
AWAY = "503 urn:ietf:params:acme:error:serverInternal: The service is down for maintenance or had an internal error"
AGAIN_SECONDS, READY_SECONDS, KEPT = 25.0, 12.0, 4
"""Before what was refused is asked for again, how long a certificate may take, and how many previews there are."""
HOME = "previews"


@dataclass
class _Issuing:
    """cert-manager, and whom it asks: of a week there are only so many left, where ``left`` says so."""

    lab: Lab
    kind: Kind
    left: int | None = None
    tried: dict[str, datetime] = field(default_factory=dict)

    def refusal(self) -> str:
        if why := self.lab.outside.broken.get(ACME):
            return why
        if self.left is None:
            return ""
        self.left -= 1
        return SPENT if self.left < 0 else ""

    async def step(self, process: Process) -> None:
        """A Certificate for each Ingress that asks for one, and what each is to have."""
        ingresses = await process.api.call("GET", path("Ingress"))
        for one in ingresses.body.get("items", ()):
            if ISSUER in one["metadata"].get("annotations", {}):
                await self._declare(process, one)
        listed = await process.api.call("GET", self.kind.path())
        for one in listed.body.get("items", ()):
            uid = one["metadata"]["uid"]
            is_due = uid not in self.tried or (now() - self.tried[uid]).total_seconds() > AGAIN_SECONDS
            if not is_issued(one) and is_due:
                self.tried[uid] = now()
                await self._ask(process, {**one, "kind": "Certificate"})

    async def _declare(self, process: Process, ingress: Json) -> None:
        meta, [asked] = ingress["metadata"], ingress["spec"]["tls"]
        if (meta["namespace"], asked["secretName"]) in self.lab.world[self.kind.name]:
            return
        owner = {key: meta[key] for key in ("name", "uid")}
        owner |= {"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "controller": True}
        issuer = {"kind": "ClusterIssuer", "name": meta["annotations"][ISSUER]}
        body = {
            "apiVersion": f"{CERTIFICATES}/v1",
            "kind": "Certificate",
            "metadata": {"name": asked["secretName"], "ownerReferences": [owner]},
            "spec": {"secretName": asked["secretName"], "dnsNames": asked["hosts"], "issuerRef": issuer},
        }
        await process.api.call("POST", self.kind.path(meta["namespace"]), body)

    async def _ask(self, process: Process, one: Json) -> None:
        namespace, name = one["metadata"]["namespace"], one["metadata"]["name"]
        why = self.refusal()
        told: Json = {"type": "Ready", "status": "False" if why else "True", "lastTransitionTime": stamp(now())}
        if why:
            message = f'The certificate request has failed: failed to create Order resource "{name}-1": {why}'
            told |= {"reason": "Failed", "message": message}
            await tell(process, one, "Warning", "Failed", message, by="cert-manager-certificates-issuing")
        else:
            told |= {"reason": "Ready", "message": "Certificate is up to date and has not expired"}
            data = {"tls.crt": f"certificate of {name}", "tls.key": "key"}
            secret = {"metadata": {"name": name}, "type": "kubernetes.io/tls", "stringData": data}
            await process.api.call("POST", path("Secret", namespace), secret)
            said = "The certificate has been successfully issued"
            await tell(process, one, "Normal", "Issuing", said, by="cert-manager-certificates-issuing")
        await process.api.call("PATCH", self.kind.path(namespace, name), {"status": {"conditions": [told]}})


def is_issued(certificate: Json) -> bool:
    """Whether it says so."""
    conditions = certificate.get("status", {}).get("conditions", ())
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


async def _branches(lab: Lab) -> None:
    """Each branch has a preview with a public name of its own, the oldest of which goes."""
    names: list[str] = []
    while True:
        name = f"pr-{lab.rng.randrange(1000, 9999)}"
        host, service = f"{name}.preview.corp.example", {"service": {"name": "web", "port": {"number": 80}}}
        paths = [{"path": "/", "pathType": "Prefix", "backend": service}]
        meta = {"namespace": HOME, "name": name, "annotations": {ISSUER: "letsencrypt"}}
        tls = [{"hosts": [host], "secretName": f"{name}-tls"}]
        spec = {"ingressClassName": INGRESS_CLASS, "tls": tls, "rules": [{"host": host, "http": {"paths": paths}}]}
        await lab.apply({"kind": "Ingress", "metadata": meta, "spec": spec}, by="ci")
        names.append(name)
        if len(names) > KEPT:
            await lab.who["ci"].call("DELETE", path("Ingress", HOME, names.pop(0)))
        await lab.pause(lab.rng.uniform(5, 9))


@family(
    "No culprit. Each branch gets a preview with a public name and a certificate, as it has for long. Who issues those"
    " is down, or has issued as many in a week as one company is given: from then on no new name has one.",
    culprit=False,
    joined=81,
)
async def new_hosts(lab: Lab) -> AsyncIterator[None]:
    """As all tell who have read too many certificates already issued."""
    manager, is_down = ("cert-manager", "cert-manager"), lab.rng.random() < 0.5
    kind = await lab.custom("Certificate", CERTIFICATES, ANY)
    await lab.served(kind)
    issuing = _Issuing(lab, kind)
    rules = (
        (CERTIFICATES, "certificates", "get,list,watch,create,patch"),
        ("", "secrets,events", "get,list,watch,create,patch"),
    )
    await lab.apply(objects.cluster_role("cert-manager-issuing", *rules))
    await lab.apply(objects.binding("cert-manager-issuing", "cert-manager-issuing", *manager))
    app = lab.apps["registry.corp.example/cert-manager/cert-manager"]
    assert app.program
    app.program = both(app.program, every(1.5, issuing.step))
    await lab.edit("admin", "Deployment", *manager, {"spec": {"replicas": 1}})
    await lab.roll("admin", *manager, "1.18.2")
    await rolled(lab, *manager, "1.18.2")
    await lab.namespace(HOME)
    await lab.app(HOME, "web", replicas=1, tag="1.0.0")
    await lab.until(lambda: backends(lab.world, HOME, "web"))

    def is_late() -> bool:
        made = (one["metadata"]["creationTimestamp"] for one in lab.world["Certificate"].values() if not is_issued(one))
        return any((now() - datetime.fromisoformat(at)).total_seconds() > READY_SECONDS for at in made)

    summary = f"a certificate has not been ready for more than {READY_SECONDS:g} minutes"
    lab.alert("CertManagerCertNotReady", is_late, summary, 5, namespace=HOME, issuer="letsencrypt")
    lab.start(_branches(lab))
    await lab.until(lambda: any(map(is_issued, lab.world["Certificate"].values())))
    await lab.until(lab.is_well)

    async def cease() -> None:
        await lab.pause(lab.rng.uniform(4, 10))
        if is_down:
            lab.outside.broken[ACME] = AWAY
        else:
            issuing.left = lab.rng.randrange(1, 3)

    yield
    await lab.roll(
        lab.rng.choice(("argocd", "bob")), *lab.rng.choice((("shop", "cart"), ("search", "query"))), "1.58.3"
    )
    lab.start(cease())
