"""What is taken as a whole or for all alike: a batch of records, duplicates on one node."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import datetime

from tests.lab import objects
from tests.lab.api import Json, World, now, path
from tests.lab.apps import App, Process
from tests.lab.families.between import publish
from tests.lab.lab import NODES, Lab
from tests.lab.network import backends
from tests.lab.programs import both, every, leading
from tests.lab.scenario import family

DOMAIN = "corp.example"
SET, WEIGHT = "external-dns.alpha.kubernetes.io/set-identifier", "external-dns.alpha.kubernetes.io/aws-weight"
"""By the first a record is one of several of its name, and then needs the second."""
TENANTS, FRESH_SECONDS = 4, 10.0
"""How many there are at a time, and how long the record of a new one may take."""
FEW, MANY, START_SECONDS = 5, 13, 8.0
"""Replicas of an app before and after, and how long one takes to start."""


@dataclass
class _Records:
    """What the provider of the domain's names has."""

    hosts: set[str] = field(default_factory=set)
    refused: int = 0

    async def write(self, process: Process) -> None:
        """All that is not yet as declared in one request, of which the provider takes all or nothing."""
        listed = await process.api.call("GET", path("Ingress"))
        found = {rule["host"]: one for one in listed.body.get("items", []) for rule in one["spec"].get("rules", ())}
        marks = {host: one["metadata"].get("annotations", {}) for host, one in found.items()}
        if any(SET in marked and WEIGHT not in marked for marked in marks.values()):
            self.refused += 1
        elif listed.ok:
            self.hosts = set(found)

    def lacks(self, world: World) -> bool:
        """Whether a tenant is there for a while, and its name is not found."""
        tenants = (one for (where, _), one in world["Ingress"].items() if where == "platform")
        return any(
            now().timestamp() - _made(one) > FRESH_SECONDS and one["spec"]["rules"][0]["host"] not in self.hosts
            for one in tenants
        )


def _made(thing: Json) -> float:
    """When, in seconds."""
    return datetime.fromisoformat(thing["metadata"]["creationTimestamp"]).timestamp()


def _public(name: str, service: str, host: str) -> Json:
    """An Ingress."""
    backend = {"service": {"name": service, "port": {"number": 80}}}
    paths = [{"path": "/", "pathType": "Prefix", "backend": backend}]
    return {
        "metadata": {"name": name},
        "spec": {"ingressClassName": "nginx", "rules": [{"host": host, "http": {"paths": paths}}]},
    }


async def _host(process: Process) -> None:
    """A new tenant now and then, and the oldest one goes."""
    where = path("Ingress", "platform")
    listed = await process.api.call("GET", f"{where}?labelSelector=corp.example/tenant")
    name = f"tenant-{int(now().timestamp()) % 10**6:06}"
    made = _public(name, "workspaces", f"{name}.apps.{DOMAIN}")
    made["metadata"]["labels"] = {"corp.example/tenant": name}
    await process.api.call("POST", where, made)
    for one in sorted(listed.body.get("items", []), key=_made)[: 1 - TENANTS]:
        await process.api.call("DELETE", f"{where}/{one['metadata']['name']}")


@family(
    "A team publishes a further name with an annotation that makes its record one of several, and forgets the weight"
    " which such a record needs. All records are written in one batch, which is refused as a whole: no new name of"
    " anybody else is found.",
    joined=24,
)
async def record_batch(lab: Lab) -> AsyncIterator[None]:
    """As the Cloud Platform of the Ministry of Justice tells of 22 January 2022."""
    records = _Records()
    rule = ("networking.k8s.io", "ingresses", "list,create,delete")
    writes = every(2, records.write)
    await lab.apply(objects.config_map("kube-system", "external-dns", LOG_LEVEL="info", POLICY="sync"))
    await lab.controller("kube-system", "external-dns", writes, rule, replicas=1, config="external-dns")
    await lab.app("platform", "workspaces", replicas=3)
    await lab.controller("platform", "portal", every(6, _host), rule, replicas=1)
    of_dns = {"namespace": "kube-system", "service": "external-dns"}
    lab.measure("external_dns_registry_errors_total", lambda: records.refused, "counter", **of_dns)
    public = {"shop": "frontend", "media": "uploads"}
    for place in public.items():
        await publish(lab, *place)
    await lab.until(lambda: len(records.hosts) > TENANTS)
    summary = "the name of a new tenant has not been found for a while"
    holds = lambda: records.lacks(lab.world)  # noqa: E731
    lab.alert("TenantNotReachable", holds, summary, 4, namespace="platform", service="portal")
    yield
    await lab.edit("bob", "ConfigMap", "kube-system", "external-dns", {"data": {"LOG_LEVEL": "debug"}})
    await lab.pause(lab.rng.uniform(4, 8))
    namespace, name = lab.rng.choice(sorted(public.items()))
    which = lab.rng.choice(("promo", "campaign", "beta"))
    body = _public(which, name, f"{which}.{DOMAIN}")
    body["metadata"]["annotations"] = {SET: f"{namespace}-{which}-green"}
    await lab.culprit(lab.rng.choice(("carol", "flux", "ci")), "create", "Ingress", namespace, which, body)
    await lab.pause(lab.rng.uniform(2, 5))
    await lab.roll("ci", "platform", "portal", "1.1.0")


def _duplicates(found: list[Json]) -> list[Json]:
    """Of each owner all pods of a node but one."""
    seen = Counter[tuple[str, str]]()
    doubled = []
    for pod in found:
        owner = pod["metadata"].get("ownerReferences", [{}])[0].get("uid", "")
        node = pod["spec"].get("nodeName")
        if owner and node and "deletionTimestamp" not in pod["metadata"]:
            seen[owner, node] += 1
            doubled += [pod] if seen[owner, node] > 1 else []
    return doubled


@family(
    "A team that expects a busy morning gives its app more replicas than there are nodes. A descheduler takes two of"
    " them on one node for a mistake and evicts one, again and again: they never get through their slow start.",
    joined=24,
)
async def duplicates_evicted(lab: Lab) -> AsyncIterator[None]:
    """As the Cloud Platform of the Ministry of Justice tells of 2 February 2023."""
    assert FEW < len(NODES) < MANY
    namespace, name = lab.rng.choice((("search", "case-lists"), ("media", "schedules"), ("shop", "dashboard")))

    async def deschedule(process: Process) -> None:
        """As its strategy RemoveDuplicates."""
        listed = await process.api.call("GET", path("Pod", namespace))
        for pod in _duplicates(listed.body.get("items", [])):
            meta = {"namespace": namespace, "name": pod["metadata"]["name"]}
            body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": meta}
            await process.api.call("POST", f"{path('Pod', namespace, meta['name'])}/eviction", body)

    policy = f"RemoveDuplicates:\n  enabled: true\n  namespaces: [{namespace}]\n"
    await lab.apply(objects.config_map("kube-system", "descheduler", **{"policy.yaml": policy}))
    rules = ("", "pods", "get,list,watch"), ("", "pods/eviction", "create"), ("coordination.k8s.io", "leases", "*")
    program = both(every(4, deschedule), leading("kube-system", "descheduler"))
    await lab.controller("kube-system", "descheduler", program, *rules, replicas=1, config="descheduler")
    await lab.apply(objects.config_map(namespace, name, CACHE_SECONDS="300", LOG_LEVEL="info"))
    like = App("", start_seconds=START_SECONDS, upstreams=((namespace, f"{name}-db"),))
    await lab.app(namespace, f"{name}-db", like=App("", serves=False), kind="StatefulSet", replicas=1)
    await lab.app(namespace, name, like=like, replicas=FEW, config=name)
    await lab.until(lambda: len(backends(lab.world, namespace, name)) == FEW)
    lab.reserve(namespace, name)
    lab.alert_lacking(namespace, name, seconds=2 * START_SECONDS + 4)
    yield
    await lab.edit("ci", "ConfigMap", namespace, name, {"data": {"CACHE_SECONDS": "30"}})
    await lab.pause(lab.rng.uniform(4, 8))
    by = lab.rng.choice(("alice", "carol"))
    await lab.culprit(by, "update", "Deployment", namespace, name, {"spec": {"replicas": MANY}})
