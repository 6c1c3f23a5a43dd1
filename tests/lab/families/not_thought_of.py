"""Whom a change did not think of: an overlay's list, whoever looks whether all is well, a kind's definition."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field

from tests.lab import objects
from tests.lab.api import Json, Kind, path
from tests.lab.apps import App, Container, Process
from tests.lab.before import before
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.families.databases import ANY
from tests.lab.lab import Lab
from tests.lab.network import backends, unreachable
from tests.lab.programs import every, tell
from tests.lab.scenario import family

ARGO, HOME = "argoproj.io", "gitops"
FINALIZER = f"resources-finalizer.{ARGO}"
OF_SET, TRACKED = f"{ARGO}/application-set", "argocd.argoproj.io/instance"
CATALOGUE = ("platform", "service-catalogue")
FAILED_CHECKS = 3
"""In a row, after which nobody is sent to a service any more."""
BROKERS = "brokers.corp.example"
OLD, NEW = "1.21.2", "1.22.0"
EACH_STANDS = 45.0
"""Requests a second of one server."""


def of_elements(*names: str, revision: str = "main") -> Json:
    """An ApplicationSet's part that says which Applications there are."""
    elements = [{"name": one, "revision": revision} for one in names]
    return {"spec": {"generators": [{"list": {"elements": elements}}]}}


@dataclass
class _Argo:
    """Applications by the list of their set, and what belongs to each; one that goes takes all of it along."""

    sets: Kind
    applications: Kind
    target: str

    async def generate(self, process: Process) -> None:
        listed = await process.api.call("GET", self.sets.path(HOME))
        found = await process.api.call("GET", self.applications.path(HOME))
        if not (listed.ok and found.ok):
            return
        there = {one["metadata"]["name"]: one for one in found.body["items"]}
        for each in listed.body["items"]:
            elements = each["spec"]["generators"][0]["list"]["elements"]
            wanted = {one["name"]: one["revision"] for one in elements}
            for name, revision in wanted.items():
                spec = {"destination": {"namespace": self.target}, "source": {"path": name, "targetRevision": revision}}
                if name not in there:
                    meta = {"name": name, "labels": {OF_SET: each["metadata"]["name"]}, "finalizers": [FINALIZER]}
                    body = {"apiVersion": f"{ARGO}/v1", "kind": "Application", "metadata": meta, "spec": spec}
                    await process.api.call("POST", self.applications.path(HOME), body)
                elif there[name]["spec"] != spec:
                    await process.api.call("PATCH", self.applications.path(HOME, name), {"spec": spec})
            for name in there.keys() - wanted:
                if "deletionTimestamp" not in there[name]["metadata"]:
                    await process.api.call("DELETE", self.applications.path(HOME, name))

    async def finish(self, process: Process) -> None:
        """What is being deleted has all that is tracked as its own deleted first."""
        found = await process.api.call("GET", self.applications.path(HOME))
        for one in found.body.get("items", []):
            if "deletionTimestamp" in one["metadata"]:
                name = one["metadata"]["name"]
                for kind in ("Deployment", "Service", "ConfigMap"):
                    marked = f"{path(kind, self.target)}?labelSelector={TRACKED}={name}"
                    for thing in (await process.api.call("GET", marked)).body.get("items", []):
                        await process.api.call("DELETE", path(kind, self.target, thing["metadata"]["name"]))
                about = {**one, "kind": "Application"}
                await tell(process, about, "Normal", "ResourceDeleted", f"deleted {name}", by="argocd")
                await process.api.call("PATCH", self.applications.path(HOME, name), {"metadata": {"finalizers": None}})


@family(
    "An overlay is to be changed for one environment, and the list by which a set makes its applications is replaced"
    " along with it: those that are not in it any more are deleted, with all that is in their namespace.",
    joined=28,
)
async def application_set(lab: Lab) -> AsyncIterator[None]:
    """As the team of a platform for builds tells (redhat-appstudio/infra-deployments 4132, July 2024)."""
    target, name, others, *caller = lab.rng.choice(
        (
            ("members", "member-operator", ("registration", "notifications"), "platform", "console"),
            ("accounts", "profile", ("avatars", "consents"), "shop", "my-page"),
            ("tenants", "tenant-api", ("tenant-jobs", "tenant-mail"), "payments", "contracts"),
        )
    )
    everybody = (name, *others)
    argo = _Argo(await lab.custom("ApplicationSet", ARGO, ANY), await lab.custom("Application", ARGO, ANY), target)
    for namespace in (HOME, target):
        await lab.namespace(namespace)
    for one in everybody:
        await lab.apply(objects.config_map(target, one, LOG_LEVEL="info"))
        await lab.app(target, one, config=one, tag="1.8.0")
        for kind in ("Deployment", "Service", "ConfigMap"):
            await lab.edit("admin", kind, target, one, {"metadata": {"labels": {TRACKED: one}}})
    await lab.app(caller[0], caller[1], like=App("", upstreams=((target, name),)), replicas=3)
    await lab.served(argo.sets, argo.applications)
    meta = {"namespace": HOME, "name": target}
    whole = {"apiVersion": f"{ARGO}/v1", "kind": "ApplicationSet", "metadata": meta, **of_elements(*everybody)}
    await lab.apply(whole)
    rules = (ARGO, "applicationsets,applications", "*"), ("", "events", "create")
    kept = ("", "services,configmaps", "list,delete"), ("apps", "deployments", "list,delete")
    await lab.controller(HOME, "applicationset-controller", every(1.5, argo.generate), *rules, replicas=1)
    await lab.controller(HOME, "application-controller", every(1.5, argo.finish), *rules, *kept, replicas=1)
    await lab.until(lambda: all((HOME, one) in lab.world["Application"] for one in everybody))
    await lab.until(lambda: len(backends(lab.world, caller[0], caller[1])) == 3)
    await publish(lab, caller[0], caller[1])
    lab.alert_lacking(caller[0], caller[1])
    lab.alert_ingress_errors(caller[0], caller[0])
    by, revision = lab.rng.choice(("ci", "flux", "bob")), lab.rng.randrange(2100, 3900)
    for days in (14, 7):
        revision += lab.rng.randrange(3, 40)
        async with before(lab, days=days):
            body = of_elements(*everybody, revision=f"release-{revision}")
            await lab.edit(by, "ApplicationSet", HOME, target, body)
            await lab.pause(6)
    yield
    body = of_elements(*others, revision=f"release-{revision + 9}")
    await lab.culprit(by, "update", "ApplicationSet", HOME, target, body)


@dataclass
class _Catalogue:
    """Who is well, as what looks after all services sees it; whoever calls one asks there first."""

    lab: Lab
    services: Sequence[tuple[str, str]]
    failed: Counter[tuple[str, str]] = field(default_factory=Counter)

    def is_quarantined(self, service: tuple[str, str]) -> bool:
        told = self.lab.world["ConfigMap"].get(CATALOGUE, {}).get("data", {})
        return bool(told.get(".".join(service)) == "critical")

    async def check(self, process: Process) -> None:
        """By a call of its own, from its own pod."""
        for service in self.services:
            vain = unreachable(self.lab.world, process.see().pod, *service)
            self.failed[service] = self.failed[service] + 1 if vain else 0
            state = "critical" if self.failed[service] >= FAILED_CHECKS else "passing"
            key, where = ".".join(service), path("ConfigMap", *CATALOGUE)
            if self.lab.world["ConfigMap"][CATALOGUE].get("data", {}).get(key) != state:
                await process.api.call("PATCH", where, {"data": {key: state}})


@family(
    "A team lets only its front end in where its back end is, as nobody else has to call that. What looks whether"
    " services are well has to: it finds the back end dead, and the front end is sent to nobody any more.",
    joined=28,
)
async def health_checker(lab: Lab) -> AsyncIterator[None]:
    """As told of the day on which development stopped talking to production (bicov.pro)."""
    namespace, front, name = lab.rng.choice(
        (("shop", "storefront", "price-engine"), ("media", "player", "manifests"), ("search", "portal", "autocomplete"))
    )
    service, deploys = (namespace, name), lab.rng.choice(("argocd", "ci"))
    catalogue = _Catalogue(lab, (service, ("payments", "checkout"), ("media", "uploads")))

    def nobody(_: Container) -> float:
        """Of all pages, those that need it."""
        return share if catalogue.is_quarantined(service) else 0.0

    share = lab.rng.uniform(0.5, 0.8)
    await lab.apply(objects.config_map(*CATALOGUE))
    await lab.controller(*CATALOGUE, every(1.5, catalogue.check), ("", "configmaps", "get,patch"), replicas=1)
    await lab.app(namespace, name, replicas=3)
    like = App("", upstreams=(service, CATALOGUE), failing=nobody, fails_with=lambda _: "503")
    await lab.app(namespace, front, like=like, replicas=3, tag="6.3.0")
    await lab.until(lambda: len(lab.world["ConfigMap"][CATALOGUE].get("data", {})) == len(catalogue.services))
    await lab.until(lambda: len(backends(lab.world, namespace, front)) == 3 and not catalogue.is_quarantined(service))
    await publish(lab, namespace, front)
    lab.alert_errors(namespace, front)
    lab.alert_ingress_errors(namespace, namespace)
    yield
    await lab.roll(deploys, namespace, front, "6.3.1")
    await lab.pause(lab.rng.uniform(9, 13))
    of_front: Json = {"podSelector": {"matchLabels": {"app.kubernetes.io/name": front}}}
    selected = {"matchLabels": {"app.kubernetes.io/name": name}}
    spec = {"podSelector": selected, "policyTypes": ["Ingress"], "ingress": [{"from": [of_front]}]}
    body = {"metadata": {"name": "allow-frontend"}, "spec": spec}
    by = lab.rng.choice(("alice", "bob", "flux"))
    await lab.culprit(by, "create", "NetworkPolicy", namespace, "allow-frontend", body)


@dataclass
class _Operator:
    """Of the servers of a broker; from a version on it keeps how many there are at another place."""

    kind: Kind
    namespace: str

    async def reconcile(self, process: Process) -> None:
        listed = await process.api.call("GET", self.kind.path(self.namespace))
        for one in listed.body.get("items", []):
            name, spec = one["metadata"]["name"], one["spec"]
            if process.tag == NEW and "size" in spec:
                moved = {"size": None, "topology": {"servers": spec["size"]}}
                await process.api.call("PATCH", self.kind.path(self.namespace, name), {"spec": moved})
                continue
            wanted = spec.get("topology", {}).get("servers", 1) if process.tag == NEW else spec.get("size", 1)
            where = f"{path('StatefulSet', self.namespace, name)}/scale"
            found = await process.api.call("GET", where)
            if found.ok and found.body["spec"]["replicas"] != wanted:
                await process.api.call("PATCH", where, {"spec": {"replicas": wanted}})


@family(
    "A chart brings a new version of an operator, but not the definition of its kind, which its job for that was not"
    " told of. The operator moves a number to where that version keeps it, the API server drops what it does not know,"
    " and of three servers one is left.",
    joined=28,
)
async def definition_behind(lab: Lab) -> AsyncIterator[None]:
    """As the keepers of an operator for Cassandra tell of their chart (k8ssandra-operator 1603, August 2025)."""
    namespace, name, caller = lab.rng.choice(
        (
            ("platform", "events", "activity"),
            ("media", "jobs-broker", "transcoding"),
            ("shop", "orders-broker", "baskets"),
        )
    )
    integer: Json = {"type": "integer"}
    spec: Json = {"type": "object", "properties": {"size": integer, "version": {"type": "string"}}}
    kind = await lab.custom("Broker", BROKERS, {"type": "object", "properties": {"spec": spec}})
    asked = EACH_STANDS * lab.rng.uniform(2.1, 2.4)

    def short(_: Container) -> float:
        return max(0.0, 1 - EACH_STANDS * len(backends(lab.world, namespace, name)) / asked)

    await lab.app(namespace, name, like=App("", serves=False, failing=short), kind="StatefulSet", replicas=3)
    await lab.app(namespace, caller, like=App("", upstreams=((namespace, name),)), replicas=3)
    await lab.served(kind)
    meta = {"namespace": namespace, "name": name}
    body = {"apiVersion": f"{BROKERS}/v1", "kind": "Broker", "metadata": meta, "spec": {"size": 3, "version": "3.9"}}
    await lab.apply(body)
    rules = (BROKERS, "brokers", "get,list,watch,patch"), ("apps", "statefulsets,statefulsets/scale", "get,patch")
    operator = _Operator(kind, namespace)
    await lab.controller("platform", "broker-operator", every(2, operator.reconcile), *rules, replicas=1, tag=OLD)
    await rolled(lab, "platform", "broker-operator", OLD)
    await lab.until(
        lambda: len(backends(lab.world, namespace, name)) == len(backends(lab.world, namespace, caller)) == 3
    )
    await publish(lab, namespace, caller)
    lab.alert_errors(namespace, caller)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lambda: lab.traffic.of_app(namespace, caller, 10).failed < 0.02)  # its servers came one by one
    yield
    by = lab.rng.choice(("ci", "argocd", "carol"))
    await lab.roll(by, "platform", "broker-operator", NEW, culprit=True)
