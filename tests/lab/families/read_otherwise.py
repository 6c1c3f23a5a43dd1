"""What is written in one place and read in another: a list that may not be changed any more, a field that has moved."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

from tests.lab import objects
from tests.lab.alerts import pods
from tests.lab.api import Json, Kind, path
from tests.lab.apps import App, Container, Process
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.lab import Lab
from tests.lab.manifests import is_ready
from tests.lab.network import backends
from tests.lab.programs import every, tell
from tests.lab.scenario import family

SHARDS = 5
DRAINS: Json = {"preStop": {"sleep": {"seconds": 4}}}
"""Until everybody knows that a pod goes."""
ACCESS = "access.corp.example"
OLD, NEW = "1.9.2", "2.0.0"


def _address(pod: Json) -> str:
    return f"{pod['status'].get('podIP', '')}:9300"


@dataclass
class _Members:
    """Who has a share of the data: what looks after it writes their addresses down, a router reads them."""

    lab: Lab
    namespace: str
    name: str
    members: str

    async def write(self, process: Process) -> None:
        listed = await process.api.call("GET", path("Pod", self.namespace))
        found = await process.api.call("GET", path("ConfigMap", self.namespace, self.members))
        if not (listed.ok and found.ok):
            return
        there = sorted(
            _address(pod)
            for pod in listed.body["items"]
            if pod["metadata"].get("labels", {}).get("app.kubernetes.io/name") == self.name
            and is_ready(pod)
            and "deletionTimestamp" not in pod["metadata"]
        )
        if found.body.get("data", {}).get("members") != "\n".join(there):
            body = {"data": {"members": "\n".join(there)}}
            done = await process.api.call("PATCH", path("ConfigMap", self.namespace, self.members), body)
            if not done.ok:
                about = {"kind": "ConfigMap", **found.body}
                said = f"could not write the members: {done.body.get('message')}"
                await tell(process, about, "Warning", "UpdateFailed", said, by=f"{self.name}-controller")

    def lost(self, container: Container) -> float:
        """The share of its requests that goes to addresses at which nobody is."""
        named = container.config.get("members", "").split()
        there = {_address(pod) for pod in pods(self.lab.world, self.namespace, self.name) if is_ready(pod)}
        return sum(one not in there for one in named) / max(1, len(named))


@family(
    "Somebody makes the ConfigMaps of a namespace immutable, as nobody has changed them for months and kubelets need"
    " not watch them then. One is where a controller writes the addresses of those that share the data. It may not any"
    " more, and after the next, harmless release the router still asks those that have gone.",
    joined=39,
)
async def config_immutable(lab: Lab) -> AsyncIterator[None]:
    """Of the documentation of ConfigMaps: an immutable one is never changed again, and has to be made anew."""
    namespace, name, router = lab.rng.choice(
        (
            ("search", "shard", "search-router"),
            ("media", "segment-store", "segment-router"),
            ("shop", "price-shard", "price-router"),
        )
    )
    members, front = f"{name}-members", "lookup"
    plain = (f"{router}-limits", f"{name}-analysis", f"{front}-texts")
    two = _Members(lab, namespace, name, members)
    for one in plain:
        await lab.apply(objects.config_map(namespace, one, REVIEWED="2025-11", DEFAULTS="true"))
    await lab.apply(objects.config_map(namespace, members, members=""))
    await lab.app(namespace, name, like=App("", serves=False), replicas=SHARDS, tag="4.2.0")
    await lab.until(lambda: len(backends(lab.world, namespace, name)) == SHARDS)
    [container] = lab.world["Deployment"][namespace, name]["spec"]["template"]["spec"]["containers"]
    body = {"spec": {"template": {"spec": {"containers": [{**container, "lifecycle": DRAINS}]}}}}
    await lab.edit("admin", "Deployment", namespace, name, body)
    rules = ("", "pods", "get,list,watch"), ("", "configmaps", "get,list,patch"), ("", "events", "create")
    await lab.controller(namespace, f"{name}-controller", every(1, two.write), *rules, replicas=1, tag="4.2.0")
    like = App("", upstreams=((namespace, name),), failing=two.lost, fails_with=lambda _: "503")
    await lab.app(namespace, router, like=like, config=members, replicas=3, tag="1.14.0")
    await lab.app(namespace, front, like=App("", upstreams=((namespace, router),)), replicas=2, tag="8.1.1")
    await lab.until(lambda: backends(lab.world, namespace, front) and backends(lab.world, namespace, router))
    await publish(lab, namespace, front)
    for one in (router, front):
        lab.alert_errors(namespace, one)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lambda: len(pods(lab.world, namespace, name)) == SHARDS and lab.is_well())
    by, deploys = lab.rng.choice(("carol", "alice", "flux")), lab.rng.choice(("ci", "argocd"))
    yield
    for one in lab.rng.sample((*plain, members), len(plain) + 1):
        if one == members:
            await lab.culprit(by, "update", "ConfigMap", namespace, one, {"immutable": True})
        else:
            await lab.edit(by, "ConfigMap", namespace, one, {"immutable": True})
        await lab.pause(lab.rng.uniform(0.3, 1.2))
    await lab.pause(lab.rng.uniform(8, 15))
    await lab.roll(deploys, namespace, name, "4.2.1")


def _schema(spec: Json) -> Json:
    text: Json = {"type": "string"}
    whole: Json = {"type": "object", "properties": {"app": text, **spec}}
    return {"type": "object", "properties": {"spec": whole}}


LISTED: Json = {"type": "array", "items": {"type": "string"}}
FORMER = _schema({"allowedNamespaces": LISTED})
LATER = _schema({"from": {"type": "object", "properties": {"namespaces": LISTED, "addresses": LISTED}}})
"""What may be said of who calls an app, in two versions of a kind."""


@dataclass
class _Gatekeeper:
    """Of each object it makes a policy of the network; each of its versions reads its own one of the kind."""

    kind: Kind

    async def reconcile(self, process: Process) -> None:
        version = "v1" if process.tag == OLD else "v2"
        listed = await process.api.call("GET", f"/apis/{ACCESS}/{version}/{self.kind.plural}")
        for one in listed.body.get("items", []) if listed.ok else ():
            meta, spec = one["metadata"], one.get("spec", {})
            former, later = spec.get("allowedNamespaces", ()), spec.get("from", {}).get("namespaces", ())
            await self._write(process, meta, spec["app"], list(former if version == "v1" else later))

    async def _write(self, process: Process, meta: Json, app: str, namespaces: list[str]) -> None:
        peers = [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": one}}} for one in namespaces]
        spec: Json = {
            "podSelector": {"matchLabels": {"app.kubernetes.io/name": app}},
            "policyTypes": ["Ingress"],
            "ingress": [{"from": peers}] if peers else [],
        }
        where = path("NetworkPolicy", meta["namespace"])
        found = await process.api.call("GET", f"{where}/{meta['name']}")
        if found.status == 404:
            await process.api.call("POST", where, {"metadata": {"name": meta["name"]}, "spec": spec})
        elif found.ok and found.body["spec"].get("ingress", []) != spec["ingress"]:
            await process.api.call("PATCH", f"{where}/{meta['name']}", {"spec": spec})


@family(
    "A chart brings the next version of a kind, in which who may call an app is said by another field, and says nothing"
    " of a conversion: the API server only writes the other version on what is there, and drops the field of old. The"
    " new operator reads that nobody is named, and its policies let nobody in.",
    joined=39,
)
async def converted_in_name(lab: Lab) -> AsyncIterator[None]:
    """Of the documentation of CustomResourceDefinitions: the conversion None changes the version and nothing else."""
    operator = lab.rng.choice(("access-operator", "perimeter", "gatekeeper"))
    named = lab.rng.sample(
        (
            ("payments", "invoicing", "shop", "order-page"),
            ("media", "renditions", "search", "image-page"),
            ("shop", "vouchers", "payments", "promotion-page"),
            ("payments", "consents", "media", "upload-page"),
        ),
        2,
    )
    by = lab.rng.choice(("ci", "argocd", "flux"))
    keeper = _Gatekeeper(await lab.custom("ServiceAccess", ACCESS, FORMER))
    kind = keeper.kind
    for home, name, namespace, caller in named:
        await lab.app(home, name, replicas=3, tag="2.2.0")
        await lab.app(namespace, caller, like=App("", upstreams=((home, name),)), replicas=3, tag="1.0.8")
        lab.reserve(home, name)
    await lab.served(kind)
    for home, name, namespace, _ in named:
        meta = {"namespace": home, "name": name}
        spec = {"app": name, "allowedNamespaces": sorted({home, namespace})}
        await lab.apply({"apiVersion": f"{ACCESS}/v1", "kind": kind.name, "metadata": meta, "spec": spec})
    rules = (ACCESS, kind.plural, "get,list,watch"), ("networking.k8s.io", "networkpolicies", "get,create,patch")
    await lab.controller("platform", operator, every(2, keeper.reconcile), *rules, replicas=1, tag=OLD)
    await rolled(lab, "platform", operator, OLD)
    await lab.until(lambda: all((home, name) in lab.world["NetworkPolicy"] for home, name, *_ in named))
    await lab.until(lambda: all(len(backends(lab.world, *one[2:])) == 3 for one in named))
    for _, _, namespace, caller in named:
        await publish(lab, namespace, caller)
        lab.alert_lacking(namespace, caller)
        lab.alert_errors(namespace, caller)
    await lab.until(lab.is_well)
    yield
    former = {"name": "v1", "served": True, "storage": False, "schema": {"openAPIV3Schema": FORMER}}
    later = {"name": "v2", "served": True, "storage": True, "schema": {"openAPIV3Schema": LATER}}
    place, body = f"{kind.plural}.{ACCESS}", {"spec": {"versions": [former, later]}}
    await lab.culprit(by, "update", "CustomResourceDefinition", "", place, body)
    await lab.pause(lab.rng.uniform(2, 5))
    await lab.roll(by, "platform", operator, NEW, culprit=True)
