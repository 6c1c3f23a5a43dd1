"""What is meant for one place and reaches further: an operator without its scope, a name in the wrong cluster."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from tests.lab import objects
from tests.lab.api import Json, Kind, World, now, path
from tests.lab.apps import App, Process
from tests.lab.before import before
from tests.lab.families.between import publish
from tests.lab.families.databases import ANY
from tests.lab.lab import Lab
from tests.lab.network import backends, unserved
from tests.lab.programs import every
from tests.lab.scenario import family

TEAMS, PILOT = ("shop", "payments", "search", "media"), "sandbox"
STUCK = ("CreateContainerConfigError", "ImagePullBackOff", "CrashLoopBackOff")
"""For what a container waits that does not get on by itself."""
FLEET, OPERATOR, SCOPE = "fleet", "onboarding-operator", "onboarding-scope"
"""What is not deployed for now, who makes teams at home, and for whom: in ConfigMaps of the same names."""
CREDENTIALS = "partner-registry"
DOMAIN = "corp.example"


async def _deploy(process: Process) -> None:
    """What is on the list does not run."""
    listed = await process.api.call("GET", path("ConfigMap", "platform", FLEET))
    found = await process.api.call("GET", path("Deployment", "platform", OPERATOR))
    if listed.ok and found.ok:
        wanted = int(OPERATOR not in listed.body["data"]["exclude"].split())
        if found.body["spec"]["replicas"] != wanted:
            where = path("Deployment", "platform", OPERATOR)
            await process.api.call("PATCH", where, {"spec": {"replicas": wanted}})


def _onboarding(tools: Sequence[str]) -> Callable[[Process], Awaitable[None]]:
    """Install tools for all whom they are for: without a scope these are all that have a team."""

    async def install(process: Process, namespace: str, tool: str) -> None:
        image = f"registry.corp.example/platform/{tool}:0.9.2"
        made = objects.deployment(namespace, tool, image, replicas=1, secret=CREDENTIALS)
        if (await process.api.call("GET", path("Deployment", namespace, tool))).status == 404:
            await process.api.call("POST", path("Deployment", namespace), made)

    async def work(process: Process) -> None:
        told = await process.api.call("GET", path("ConfigMap", "platform", SCOPE))
        listed = await process.api.call("GET", f"{path('Namespace')}?labelSelector=corp.example/team")
        names = [one["metadata"]["name"] for one in listed.body.get("items", [])]
        for namespace in told.body["data"]["targets"].split() if told.ok else names:
            for tool in tools:
                await install(process, namespace, tool)

    return work


def _waiting(world: World, namespace: str) -> bool:
    """Whether a container there does not get on by itself."""
    found = (pod for (where, _), pod in world["Pod"].items() if where == namespace)
    statuses = (one for pod in found for one in pod.get("status", {}).get("containerStatuses", ()))
    return any(one["state"].get("waiting", {}).get("reason") in STUCK for one in statuses)


async def _onboarded_elsewhere(lab: Lab, tools: Sequence[str], opened: Json, held_back: Json) -> None:
    """In a sibling, whose scope got there: one pilot got the tools. Afterwards all is as it was."""
    deployments = lab.world["Deployment"]
    async with before(lab, days=2, cluster="dev-2"):
        scope = objects.config_map("platform", SCOPE, targets=PILOT)
        await lab.who["bob"].must("POST", path("ConfigMap", "platform"), scope)
        await lab.edit("bob", "ConfigMap", "platform", FLEET, opened)
        await lab.until(lambda: all(backends(lab.world, PILOT, tool) or (PILOT, tool) in deployments for tool in tools))
        await lab.pause(5)
    await lab.edit("admin", "ConfigMap", "platform", FLEET, held_back)
    await lab.until(lambda: not deployments["platform", OPERATOR]["spec"]["replicas"])
    await lab.until(lambda: not deployments["platform", OPERATOR].get("status", {}).get("replicas"))
    await lab.who["admin"].must("DELETE", path("ConfigMap", "platform", SCOPE))
    for tool in tools:
        await lab.who["admin"].must("DELETE", path("Deployment", PILOT, tool))


@family(
    "An operator that makes new teams at home is taken off the list of what is not deployed. The file that says for"
    " whom it is never got there, so it takes all teams for new ones and installs its tools everywhere, where they wait"
    " for credentials that only the pilot has.",
    joined=24,
)
async def onboarding_unscoped(lab: Lab) -> AsyncIterator[None]:
    """As IONOS tells of its managed Kubernetes, 8 May 2026; what clusters were there are namespaces here."""
    tools = lab.rng.sample(("toolbox", "usage-meter", "cost-agent", "log-relay"), 2)
    held_back, opened = ({"data": {"exclude": names}} for names in (f"{OPERATOR} chargeback", "chargeback"))
    await lab.namespace(PILOT)
    for one in (*TEAMS, PILOT):
        await lab.edit("admin", "Namespace", "", one, {"metadata": {"labels": {"corp.example/team": one}}})
    meta = {"namespace": PILOT, "name": CREDENTIALS}
    await lab.apply({"kind": "Secret", "metadata": meta, "stringData": {"token": "s3cr3t"}})
    await lab.apply(objects.config_map("platform", FLEET, exclude=held_back["data"]["exclude"]))
    for tool in tools:
        image = f"registry.corp.example/platform/{tool}"
        lab.apps[image] = App(image)
    rules = (("", "configmaps", "get"), ("apps", "deployments", "get,patch"))
    await lab.controller("platform", "fleet-deployer", every(2, _deploy), *rules, replicas=1)
    rules = (("", "configmaps,namespaces", "get,list"), ("apps", "deployments", "get,create"))
    await lab.controller("platform", OPERATOR, every(3, _onboarding(tools)), *rules, replicas=0, tag="1.4.0")
    namespace, name = lab.rng.choice((("shop", "offers"), ("media", "captions"), ("payments", "payouts")))
    await lab.app(namespace, name, replicas=3)
    await lab.until(lambda: len(backends(lab.world, namespace, name)) == 3)
    for one in TEAMS:
        holds = functools.partial(_waiting, lab.world, one)
        summary = f"a container in {one} has been waiting for a while"
        lab.alert("KubeContainerWaiting", holds, summary, 8, namespace=one)
    await _onboarded_elsewhere(lab, tools, opened, held_back)
    yield
    await lab.roll("argocd", namespace, name, "1.1.0")
    await lab.pause(lab.rng.uniform(4, 8))
    await lab.culprit(lab.rng.choice(("bob", "flux")), "update", "ConfigMap", "platform", FLEET, opened)


@dataclass
class _Issuer:
    """Keeps the Secret of each Certificate; what it has issued is what is shown to who comes to a public name."""

    kind: Kind
    issued: list[str] = field(default_factory=list)

    async def issue(self, process: Process) -> None:
        """A new one as soon as the names are others than those it has."""
        listed = await process.api.call("GET", self.kind.path())
        for one in listed.body.get("items", []):
            names, kept = one["spec"]["dnsNames"], one["spec"]["secretName"]
            if one.get("status", {}).get("dnsNames") == names:
                continue
            meta = {"name": kept, "annotations": {"cert-manager.io/alt-names": ",".join(names)}}
            body = {"metadata": meta, "stringData": {"tls.crt": f"for {names}", "tls.key": "key"}}
            where = path("Secret", one["metadata"]["namespace"])
            if (await process.api.call("PATCH", f"{where}/{kept}", body)).status == 404:
                await process.api.call("POST", where, body)
            self.issued = names
            ready = [{"type": "Ready", "status": "True", "reason": "Ready"}]
            told = {"status": {"conditions": ready, "dnsNames": names, "notAfter": "2026-12-01T00:00:00Z"}}
            await process.api.call("PATCH", self.kind.path(one["metadata"]["namespace"], one["metadata"]["name"]), told)

    async def show(self, lab: Lab, hosts: Sequence[str]) -> None:
        """A star stands for one label."""
        while True:
            lab.outside.unreached = {host for host in hosts if f"*.{host.partition('.')[2]}" not in self.issued}
            await asyncio.sleep(0.5)


def _probe(lab: Lab, host: str) -> None:
    """From another place, as a blackbox exporter does."""
    holds = lambda: host in lab.outside.unreached or bool(unserved(lab.world, host))  # noqa: E731
    lab.alert("ProbeFailed", holds, f"https://{host} is not answered", 6, job="blackbox", instance=f"https://{host}")


def _named(*names: str) -> Json:
    return {"spec": {"dnsNames": list(names)}}


@family(
    "Somebody sets up a test cluster and writes its name into the certificate of all public names, but is connected to"
    " the cluster that is in use: whoever comes there is shown a name that is not the one that was asked for.",
    joined=24,
)
async def default_certificate(lab: Lab) -> AsyncIterator[None]:
    """As the Cloud Platform of the Ministry of Justice tells of 10 March 2022, and of 12 July 2021 before that."""
    kind = await lab.custom("Certificate", "cert-manager.io", ANY)
    namespace, name = "ingress-nginx", "default-certificate"
    own = [f"*.{DOMAIN}", f"*.apps.{DOMAIN}"]
    issuer = _Issuer(kind)
    await lab.served(kind)
    meta = {"namespace": namespace, "name": name}
    spec = {"secretName": name, "issuerRef": {"kind": "ClusterIssuer", "name": "acme"}, "dnsNames": own}
    await lab.apply({"kind": "Certificate", "apiVersion": "cert-manager.io/v1", "metadata": meta, "spec": spec})
    rules = (("cert-manager.io", "certificates", "*"), ("", "secrets", "create,patch"))
    await lab.controller("cert-manager", "acme-issuer", every(2, issuer.issue), *rules, replicas=1)
    places = {"shop": "frontend", "payments": "checkout", "media": "uploads"}
    hosts = [await publish(lab, *place) for place in places.items()]
    await lab.until(lambda: issuer.issued)
    lab.start(issuer.show(lab, hosts))
    for host in hosts:
        _probe(lab, host)
    async with before(lab, days=lab.rng.randrange(50, 70)) as then:
        answer = await lab.edit("ci", "Certificate", namespace, name, _named(f"*.apps.manager.{DOMAIN}"))
        await then.fires()
        await lab.edit("alice", "Certificate", namespace, name, _named(*own))
        await then.is_well()
        then.judge(answer, "it")
    yield
    size = {"nginx.ingress.kubernetes.io/proxy-body-size": "32m"}
    place = lab.rng.choice(sorted(places))
    await lab.edit("alice", "Ingress", place, place, {"metadata": {"annotations": size}})
    await lab.pause(lab.rng.uniform(3, 6))
    test = f"test-{now():%m%d}-{lab.rng.randrange(1000, 2400)}"
    by = lab.rng.choice(("bob", "carol"))
    await lab.culprit(by, "update", "Certificate", namespace, name, _named(f"*.apps.{test}.{DOMAIN}"))
    await lab.pause(2)
    await lab.roll("argocd", "ingress-nginx", "ingress-nginx", "1.0.1")
