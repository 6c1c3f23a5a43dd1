"""What goes by a name that somebody changes: a port of a Service, what an app is declared in."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from tests.lab import objects
from tests.lab.alerts import pods
from tests.lab.api import Json, Kind, path
from tests.lab.apps import App, Process
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.families.databases import ANY
from tests.lab.lab import Lab
from tests.lab.manifests import is_ready
from tests.lab.network import backends
from tests.lab.programs import every
from tests.lab.scenario import family

MEMBERS, OF_OLD = 3, "postgresql"
LED_BY = "leader.db.corp.example/pod"


@dataclass
class _Leader:
    """What looks after a database: the one EndpointSlice of its Service for writes has the leader's address."""

    namespace: str
    name: str

    @property
    def service(self) -> str:
        """The Service that has no selector."""
        return f"{self.name}-rw"

    async def keep(self, process: Process) -> None:
        """As Patroni does: the slice is made once, afterwards only whom it leads to is written."""
        told = await process.api.call("GET", path("ConfigMap", self.namespace, f"{self.name}-leader"))
        leader = told.body.get("metadata", {}).get("annotations", {}).get(LED_BY, "")
        found = await process.api.call("GET", path("Pod", self.namespace, leader)) if leader else told
        if not found.ok or not is_ready(found.body):
            return
        meta = found.body["metadata"]
        endpoint = {
            "addresses": [found.body["status"]["podIP"]],
            "conditions": {"ready": True},
            "nodeName": found.body["spec"]["nodeName"],
            "targetRef": {"kind": "Pod", **{key: meta[key] for key in ("namespace", "name", "uid")}},
        }
        where = path("EndpointSlice", self.namespace)
        there = await process.api.call("GET", f"{where}/{self.service}")
        if there.status == 404:
            manager = {"endpointslice.kubernetes.io/managed-by": "pg-operator"}
            labels = {"kubernetes.io/service-name": self.service, **manager}
            body = {
                "metadata": {"name": self.service, "labels": labels},
                "addressType": "IPv4",
                "ports": [{"name": OF_OLD, "port": 8080, "protocol": "TCP"}],
                "endpoints": [endpoint],
            }
            await process.api.call("POST", where, body)
        elif there.ok and [one["targetRef"]["uid"] for one in there.body["endpoints"]] != [meta["uid"]]:
            await process.api.call("PATCH", f"{where}/{self.service}", {"endpoints": [endpoint]})


def _port(service: Json, name: str) -> Json:
    """The one port that a Service has, under a name."""
    [port] = service["spec"]["ports"]
    kept = {key: port[key] for key in ("port", "targetPort", "protocol") if key in port}
    return {"spec": {"ports": [{**kept, "name": name}]}}


@family(
    "All ports of a namespace's Services get names by which a mesh will know what is spoken there. The EndpointSlice of"
    " a database's Service for writes is not kept by the control plane but by an operator, under the old name of its"
    " port: nobody is behind that Service any more.",
    joined=45,
)
async def slice_port(lab: Lab) -> AsyncIterator[None]:
    """Of the documentation: a port of an EndpointSlice is that of a Service which has the same name."""
    namespace, name, reader = lab.rng.choice(
        (
            ("shop", "vouchers", "voucher-list"),
            ("payments", "mandates", "mandate-list"),
            ("media", "watchlists", "recently-seen"),
        )
    )
    database, by = _Leader(namespace, f"{name}-db"), lab.rng.choice(("alice", "flux", "ci", "bob"))
    like = App("", serves=False)
    await lab.app(namespace, database.name, like=like, kind="StatefulSet", replicas=MEMBERS, tag="17.2")
    await lab.until(lambda: sum(map(is_ready, pods(lab.world, namespace, database.name))) == MEMBERS)
    kept = objects.config_map(namespace, f"{database.name}-leader")
    kept["metadata"]["annotations"] = {LED_BY: f"{database.name}-{lab.rng.randrange(MEMBERS)}"}
    await lab.apply(kept)
    service = objects.service(namespace, database.service)
    service["spec"] = {"ports": [{"name": OF_OLD, "port": 5432, "targetPort": 8080}]}
    await lab.apply(service)
    rules = ("", "configmaps,pods", "get"), ("discovery.k8s.io", "endpointslices", "get,create,patch")
    await lab.controller("platform", "pg-operator", every(2, database.keep), *rules, replicas=1, tag="1.14.0")
    await lab.until(lambda: backends(lab.world, namespace, database.service))
    like = App("", upstreams=((namespace, database.service),), asked=lambda: 24.0)
    await lab.app(namespace, name, like=like, replicas=3, tag="2.6.0")
    await lab.app(namespace, reader, like=App("", upstreams=((namespace, database.name),)), tag="2.6.0")
    await lab.until(lambda: len(backends(lab.world, namespace, name)) == 3 and backends(lab.world, namespace, reader))
    await publish(lab, namespace, name)
    lab.reserve(namespace, name, reader)
    for one in (name, reader):
        lab.alert_errors(namespace, one)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)
    yield
    for one, port in ((reader, "http"), (name, "http"), (database.name, "tcp-postgresql")):
        await lab.edit(by, "Service", namespace, one, _port(lab.world["Service"][namespace, one], port))
        await lab.pause(lab.rng.uniform(0.5, 2))
    body = _port(lab.world["Service"][namespace, database.service], "tcp-postgresql")
    await lab.culprit(by, "update", "Service", namespace, database.service, body)


FLUX, FINALIZER = "kustomize.toolkit.fluxcd.io", "finalizers.fluxcd.io"
MARK = f"{FLUX}/name"
Thing = tuple[str, str, str]
"""Kind, namespace and name of what is declared in Git."""


@dataclass
class _Declared:
    """A shard of what applies Kustomizations: ``paths`` is what Git has, as of ``revision``."""

    kind: Kind
    paths: dict[str, tuple[Thing, ...]]
    revision: str = "main@sha1:4be1a07c"
    told: dict[str, Json] = field(default_factory=dict)

    def manifest(self, name: str, where: str, *needed: str) -> Json:
        """Of a Kustomization."""
        source = {"kind": "GitRepository", "name": "fleet"}
        spec: Json = {"path": where, "prune": True, "interval": "10m", "sourceRef": source}
        if needed:
            spec["dependsOn"] = [{"name": one} for one in needed]
        meta = {"namespace": "flux-system", "name": name, "finalizers": [FINALIZER]}
        return {"apiVersion": f"{FLUX}/v1", "kind": self.kind.name, "metadata": meta, "spec": spec}

    async def reconcile(self, process: Process) -> None:
        listed = await process.api.call("GET", self.kind.path("flux-system"))
        there = {one["metadata"]["name"]: one for one in listed.body.get("items", [])}
        for name, one in there.items():
            if "deletionTimestamp" not in one["metadata"]:
                await self._apply(process, name, there)
        for name, one in there.items():
            if "deletionTimestamp" in one["metadata"]:
                await self._prune(process, one["spec"]["path"], name)
                where = self.kind.path("flux-system", name)
                await process.api.call("PATCH", where, {"metadata": {"finalizers": None}})

    async def _apply(self, process: Process, name: str, there: dict[str, Json]) -> None:
        """What is declared there becomes its own, once what it needs is there as of the same revision."""
        one = there[name]
        if one.get("status", {}).get("lastAppliedRevision") == self.revision:
            return None
        for needed in (each["name"] for each in one["spec"].get("dependsOn", ())):
            at = f"dependency 'flux-system/{needed}'"
            if needed not in there:
                gone = f'{self.kind.plural}.{FLUX} "{needed}" not found'
                return await self._tell(process, name, "False", "DependencyNotReady", f"{at} not found: {gone}")
            if there[needed].get("status", {}).get("lastAppliedRevision") != self.revision:
                stale = f"{at} revision is not up to date"
                return await self._tell(process, name, "False", "DependencyNotReady", stale)
        for kind, namespace, thing in self.paths[one["spec"]["path"]]:
            await process.api.call("PATCH", path(kind, namespace, thing), {"metadata": {"labels": {MARK: name}}})
        await self._tell(process, name, "True", "ReconciliationSucceeded", f"Applied revision: {self.revision}")
        return None

    async def _prune(self, process: Process, where: str, name: str) -> None:
        """What has its mark goes with it; what another one has applied since is that one's."""
        for kind, namespace, thing in self.paths[where]:
            found = await process.api.call("GET", path(kind, namespace, thing))
            if found.ok and found.body["metadata"].get("labels", {}).get(MARK) == name:
                body = {"propagationPolicy": "Background"}
                await process.api.call("DELETE", path(kind, namespace, thing), body)

    async def _tell(self, process: Process, name: str, ready: str, reason: str, message: str) -> None:
        condition = {"type": "Ready", "status": ready, "reason": reason, "message": message}
        status: Json = {"conditions": [condition]}
        if ready == "True":
            status["lastAppliedRevision"] = self.revision
        if self.told.get(name) != status:
            await process.api.call("PATCH", self.kind.path("flux-system", name), {"status": status})
            self.told[name] = status


@family(
    "All Kustomizations of a cluster get names with its own in front: the new ones are made, the old ones deleted. One"
    " waits for another under the name that it had, so it applies nothing, and what the old one had applied goes with"
    " that one.",
    joined=45,
)
async def prefixed_names(lab: Lab) -> AsyncIterator[None]:
    """Of Flux's documentation: what a Kustomization that is deleted has applied is deleted, where it prunes."""
    namespace, name, front = lab.rng.choice(
        (
            ("shop", "gifts", "gift-page"),
            ("search", "related", "related-page"),
            ("media", "lyrics", "lyrics-page"),
        )
    )
    prefix, settings, pages = lab.rng.choice(("prod", "eu1", "main")), f"{name}-settings", f"{name}-pages"
    kind = await lab.custom("Kustomization", FLUX, ANY)
    await lab.served(kind)
    await lab.apply(objects.config_map(namespace, name, LOG_LEVEL="info", PAGE_SIZE="24"))
    await lab.app(namespace, f"{name}-db", like=App("", serves=False), kind="StatefulSet", replicas=1, tag="16.9")
    like = App("", upstreams=((namespace, f"{name}-db"),))
    await lab.app(namespace, name, like=like, replicas=3, tag="1.19.2", config=name)
    await lab.app(namespace, front, like=App("", upstreams=((namespace, name),)), replicas=2, tag="3.3.0")
    declared = _Declared(
        kind,
        {
            f"./{namespace}/{settings}": (("ConfigMap", namespace, name),),
            f"./{namespace}/{pages}": (("Deployment", namespace, front), ("Service", namespace, front)),
            f"./{namespace}/{name}": (("Deployment", namespace, name), ("Service", namespace, name)),
        },
    )
    for one, needed in ((settings, ()), (pages, ()), (name, (settings,))):
        await lab.apply(declared.manifest(one, f"./{namespace}/{one}", *needed))
    rules = (
        (FLUX, kind.plural, "get,list,watch,patch"),
        ("", "configmaps,services", "get,patch,delete"),
        ("apps", "deployments", "get,patch,delete"),
    )
    sync = every(1.5, declared.reconcile)
    await lab.controller("flux-system", "kustomize-controller-shard1", sync, *rules, replicas=1, tag="1.6.1")
    await lab.until(lambda: all("status" in one for one in lab.world[kind.name].values()))
    for one, tag in ((name, "1.19.2"), (front, "3.3.0")):
        await rolled(lab, namespace, one, tag)
    await publish(lab, namespace, front)
    lab.reserve(namespace, name)
    lab.alert_errors(namespace, front)
    lab.alert_ingress_errors(namespace, namespace)
    lab.alert_lacking(namespace, front, seconds=10)
    await lab.until(lambda: lab.is_well() and len(lab.world[kind.name]) == 3)
    yield
    declared.revision = f"main@sha1:{lab.rng.getrandbits(32):08x}"
    for one in (settings, pages):
        await lab.apply(declared.manifest(f"{prefix}-{one}", f"./{namespace}/{one}"), "flux")
    waits = declared.manifest(f"{prefix}-{name}", f"./{namespace}/{name}", settings)
    why = "the same hand, for the same purpose: it waits for one that is gone"
    await lab.also(why, "flux", "create", kind.name, "flux-system", f"{prefix}-{name}", waits)
    await lab.culprit("flux", "delete", kind.name, "flux-system", name)
    await lab.who["flux"].must("DELETE", kind.path("flux-system", pages))
    why = "the same hand, for the same purpose: it is the one that the new one waits for"
    await lab.also(why, "flux", "delete", kind.name, "flux-system", settings)
