"""Who is led to whom: a Service that somebody else keeps, and who may ask the servers of names."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

from tests.lab import objects
from tests.lab.alerts import pods
from tests.lab.api import Json, path
from tests.lab.apps import App, Container, Process
from tests.lab.before import before
from tests.lab.company import APPS, COREFILE, SYSTEM
from tests.lab.families.between import publish
from tests.lab.lab import Lab
from tests.lab.manifests import is_ready
from tests.lab.network import DNS, backends
from tests.lab.programs import every
from tests.lab.scenario import family

MEMBERS = 3


@dataclass
class _Cluster:
    """A database of which one member takes writes; who that is, its members have agreed on in a ConfigMap."""

    lab: Lab
    namespace: str
    name: str

    @property
    def primary(self) -> str:
        """The Service that has no selector: what looks after the cluster says whom it leads to."""
        return f"{self.name}-primary"

    def leader(self) -> str:
        kept = self.lab.world["ConfigMap"][self.namespace, f"{self.name}-leader"]
        return str(kept["metadata"]["annotations"]["leader"])

    async def lead(self, process: Process) -> None:
        """The one EndpointSlice has the leader's address, and nobody else's."""
        told = await process.api.call("GET", path("ConfigMap", self.namespace, f"{self.name}-leader"))
        if not told.ok:
            return
        leader = told.body["metadata"]["annotations"]["leader"]
        found = await process.api.call("GET", path("Pod", self.namespace, leader))
        if not found.ok or not is_ready(found.body):
            return
        reference = {"kind": "Pod", **{key: found.body["metadata"][key] for key in ("namespace", "name", "uid")}}
        endpoint = {
            "addresses": [found.body["status"]["podIP"]],
            "conditions": {"ready": True},
            "nodeName": found.body["spec"]["nodeName"],
            "targetRef": reference,
        }
        labels = {
            "kubernetes.io/service-name": self.primary,
            "endpointslice.kubernetes.io/managed-by": "postgres-operator",
        }
        body = {
            "metadata": {"name": self.primary, "labels": labels},
            "addressType": "IPv4",
            "ports": [{"port": 8080, "protocol": "TCP"}],
            "endpoints": [endpoint],
        }
        where = path("EndpointSlice", self.namespace)
        there = await process.api.call("GET", f"{where}/{self.primary}")
        if there.status == 404:
            await process.api.call("POST", where, body)
        elif there.ok and [one["targetRef"]["name"] for one in there.body["endpoints"]] != [leader]:
            await process.api.call("PATCH", f"{where}/{self.primary}", {"endpoints": [endpoint]})

    def reads_only(self, _: Container) -> float:
        """The share of connections to the primary's Service that get to somebody who takes no write."""
        reached = {pod["metadata"]["name"] for pod in backends(self.lab.world, self.namespace, self.primary)}
        return len(reached - {self.leader()}) / max(1, len(reached))


@family(
    "The Service of a database's primary has no selector, as what looks after the database keeps its EndpointSlice."
    " Somebody who brings all Services into one form gives it one: the control plane adds all members, and most writes"
    " get to one that only reads.",
    joined=29,
)
async def leader_selector(lab: Lab) -> AsyncIterator[None]:
    """As Patroni's documentation warns whose Service of the leader has a selector."""
    namespace, name, reader = lab.rng.choice(
        (("shop", "reservations", "availability"), ("payments", "refunds", "reports"), ("media", "ratings", "charts"))
    )
    cluster = _Cluster(lab, namespace, f"{name}-db")
    by = lab.rng.choice(("carol", "flux", "ci"))
    database = App("", serves=False)
    await lab.app(namespace, cluster.name, like=database, kind="StatefulSet", replicas=MEMBERS, tag="16.4")
    await lab.until(lambda: sum(map(is_ready, pods(lab.world, namespace, cluster.name))) == MEMBERS)
    kept = objects.config_map(namespace, f"{cluster.name}-leader")
    kept["metadata"]["annotations"] = {"leader": f"{cluster.name}-{lab.rng.randrange(MEMBERS)}", "ttl": "30"}
    await lab.apply(kept)
    service = objects.service(namespace, cluster.primary)
    service["spec"] |= {"ports": [{"port": 5432, "targetPort": 8080}]}
    del service["spec"]["selector"]
    await lab.apply(service)
    rules = (
        ("", "configmaps,pods", "get"),
        ("discovery.k8s.io", "endpointslices", "get,create,patch"),
    )
    await lab.controller("platform", "postgres-operator", every(2, cluster.lead), *rules, replicas=1)
    await lab.until(lambda: backends(lab.world, namespace, cluster.primary))
    like = App("", upstreams=((namespace, cluster.primary),), failing=cluster.reads_only)
    await lab.app(namespace, name, like=like, replicas=3)
    await lab.app(namespace, reader, like=App("", upstreams=((namespace, cluster.name),)))
    await lab.until(lambda: len(backends(lab.world, namespace, name)) == 3)
    await publish(lab, namespace, name)
    lab.reserve(namespace, name, reader)
    for one in (name, reader):
        lab.alert_errors(namespace, one)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)
    yield
    body: Json = {"spec": {"selector": {"app.kubernetes.io/name": cluster.name}}}
    await lab.culprit(by, "update", "Service", namespace, cluster.primary, body)


@family(
    "Somebody closes the servers of names off: only namespaces with the label that each new one is given may ask them."
    " One of old was made before there was that label, and no name is resolved there.",
    joined=29,
)
async def dns_ingress(lab: Lab) -> AsyncIterator[None]:
    """As those tell who harden a cluster by a default deny, and forget who asks for names."""
    namespace, name = lab.rng.choice((("loyalty", "points"), ("stores", "opening-hours"), ("fleet", "routes")))
    label = {"corp.example/onboarded": "true"}
    by, team = lab.rng.choice(("bob", "flux")), lab.rng.choice(("ci", "argocd"))
    await lab.namespace(namespace)
    for one in (*APPS, *SYSTEM):
        await lab.edit("admin", "Namespace", "", one, {"metadata": {"labels": label}})
    await lab.app(namespace, f"{name}-db", like=App("", serves=False), kind="StatefulSet", replicas=1)
    await lab.app(namespace, name, like=App("", upstreams=((namespace, f"{name}-db"),)), replicas=3, tag="1.4.0")
    await publish(lab, namespace, name)
    await lab.until(lambda: len(backends(lab.world, namespace, name)) == 3)
    for place in ((namespace, name), ("shop", "frontend")):
        lab.alert_lacking(*place)
        lab.reserve(*place)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)
    async with before(lab, days=lab.rng.randrange(20, 40)) as then:
        faulty = COREFILE.replace("kubernetes cluster.local", "kubernetes corp.example")
        answer = await lab.edit("flux", "ConfigMap", DNS[0], "coredns", {"data": {"Corefile": faulty}})
        await then.fires()
        await lab.edit("alice", "ConfigMap", DNS[0], "coredns", {"data": {"Corefile": COREFILE}})
        await then.is_well()
        then.judge(answer, "it")
    yield
    await lab.roll(team, namespace, name, "1.4.1")
    await lab.pause(lab.rng.uniform(5, 8))
    spec: Json = {
        "podSelector": {"matchLabels": {"app.kubernetes.io/name": DNS[1]}},
        "policyTypes": ["Ingress"],
        "ingress": [{"from": [{"namespaceSelector": {"matchLabels": label}}]}],
    }
    await lab.culprit(
        by, "create", "NetworkPolicy", DNS[0], "dns-callers", {"metadata": {"name": "dns-callers"}, "spec": spec}
    )
