"""What is made or sent where it does not belong: runs in another namespace, calls for a part that nobody defines."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta

from tests.lab import objects
from tests.lab.api import Json, Kind, now, path, stamp
from tests.lab.apps import App, Process
from tests.lab.before import before
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.families.databases import ANY
from tests.lab.families.loops import LOOSE
from tests.lab.lab import Lab
from tests.lab.manifests import is_done
from tests.lab.network import backends
from tests.lab.programs import every
from tests.lab.scenario import family

BUILDS, PODS = "builds", "build-pods"
"""Where what is to be built is declared, and where its pods run and have what they need."""
KNOWN, REFACTORED = "0.61.4", "0.62.0"
KEYS = "build-keys"
BUILD_SECONDS, HANGS_SECONDS, MANY_HANG = 3, 14, 3
MESH = "networking.istio.io"
OLDER_SHARE = 0.3
"""Of the calls of an app those that its users' older versions make, by a path of their own."""


@dataclass
class _Builds:
    """Developers push, and for each push a run is declared, whose pod is made and cleared away as it is through."""

    lab: Lab
    kind: Kind

    async def push(self, process: Process) -> None:
        if self.hanging() > 12:  # by then nobody pushes any more
            return
        meta = {"name": f"unit-{process.rng.getrandbits(32):08x}"}
        body = {
            "apiVersion": f"{self.kind.group}/v1",
            "kind": self.kind.name,
            "metadata": meta,
            "spec": {"job": "unit"},
        }
        await process.api.call("POST", self.kind.path(BUILDS), body)

    async def plank(self, process: Process) -> None:
        """The namespace for pods is a setting; one version reads that for what is declared in its place."""
        setting = "JOB_NAMESPACE" if process.tag == REFACTORED else "POD_NAMESPACE"
        home = process.config[setting]
        listed = await process.api.call("GET", self.kind.path(BUILDS))
        for one in listed.body.get("items", []):
            name, told = one["metadata"]["name"], one.get("status", {})
            if not told:
                made = await process.api.call("POST", path("Pod", home), _pod(name))
                state: Json = {"state": "pending", "namespace": home}
                if made.ok:
                    await process.api.call("PATCH", self.kind.path(BUILDS, name), {"status": state})
                continue
            pod = await process.api.call("GET", path("Pod", told["namespace"], name))
            if pod.status == 404 or (pod.ok and is_done(pod.body)):
                await process.api.call("DELETE", path("Pod", told["namespace"], name))
                await process.api.call("DELETE", self.kind.path(BUILDS, name))

    def hanging(self) -> int:
        """Runs that were declared a while ago and are not through."""
        since = stamp(now() - timedelta(seconds=HANGS_SECONDS))
        return sum(one["metadata"]["creationTimestamp"] < since for one in self.lab.world[self.kind.name].values())

    def waiting(self) -> int:
        return len(self.lab.world[self.kind.name])


def _pod(name: str) -> Json:
    """One that needs a key to fetch what it builds."""
    key = {"secretKeyRef": {"name": KEYS, "key": "deploy-key"}}
    container = {
        "name": "test",
        "image": f"registry.corp.example/{BUILDS}/builder:2.7.0",
        "env": [{"name": "DEPLOY_KEY", "valueFrom": key}],
        "resources": {"requests": {"cpu": "500m", "memory": "128Mi"}, "limits": {"memory": "512Mi"}},
    }
    labels = {"app.kubernetes.io/name": "builder", "created-by": "build-controller"}
    spec = {"restartPolicy": "Never", "containers": [container]}
    return {"metadata": {"name": name, "labels": labels}, "spec": spec}


@family(
    "What makes a pod for each declared build gets a new version, whose clients were put in order: by a slip it reads"
    " the setting for the namespace of builds where it needs that of their pods. In a sibling both are the same. Here"
    " the pods are made where their keys are not, and none starts.",
    joined=42,
)
async def stray_runs(lab: Lab) -> AsyncIterator[None]:
    """As told of a Prow of February 2019, which made its pods in another namespace (kubernetes/test-infra 11135)."""
    name, by = "build-controller", lab.rng.choice(("ci", "argocd", "flux"))
    builds = _Builds(lab, await lab.custom("Build", "builds.corp.example", ANY))
    await lab.served(builds.kind)
    key = {"kind": "Secret", "type": "Opaque", "stringData": {"deploy-key": "ssh-ed25519 AAAA"}}
    for home in (BUILDS, PODS):
        await lab.namespace(home)
    await lab.apply({**key, "metadata": {"namespace": PODS, "name": KEYS}})
    image = f"registry.corp.example/{BUILDS}/builder"
    lab.apps[image] = App(image, ends_after=BUILD_SECONDS)
    await lab.apply(objects.config_map(BUILDS, name, JOB_NAMESPACE=BUILDS, POD_NAMESPACE=PODS, MAX_CONCURRENCY="20"))
    rights = ("builds.corp.example", "builds", "*"), ("", "pods", "get,list,create,delete")
    plank = every(0.7, builds.plank)
    await lab.controller(BUILDS, name, plank, *rights, replicas=1, tag=KNOWN, config=name)
    hook, right = every(2.2, builds.push), ("builds.corp.example", "builds", "create")
    await lab.controller(BUILDS, "webhook-receiver", hook, right, replicas=1, tag="0.61.4")
    await lab.until(lambda: backends(lab.world, BUILDS, "webhook-receiver"))
    lab.measure("builds_unfinished", builds.waiting, namespace=BUILDS, service=name)
    holds = lambda: builds.hanging() >= MANY_HANG  # noqa: E731
    lab.alert("BuildsHanging", holds, "builds do not come to their end", 4, namespace=BUILDS)
    await lab.until(lab.is_well)
    await lab.edit("admin", "ConfigMap", BUILDS, name, {"data": {"POD_NAMESPACE": BUILDS}})  # as the sibling has it
    await lab.apply({**key, "metadata": {"namespace": BUILDS, "name": KEYS}})
    await lab.pause(7)
    async with before(lab, hours=lab.rng.randrange(2, 20), cluster=lab.rng.choice(("test", "eu-2"))):
        await lab.pause(3)
        await lab.roll(by, BUILDS, name, REFACTORED)
        await rolled(lab, BUILDS, name, REFACTORED)
        await lab.pause(6)
    await lab.edit("admin", "ConfigMap", BUILDS, name, {"data": {"POD_NAMESPACE": PODS}})
    await lab.roll("admin", BUILDS, name, KNOWN)
    await rolled(lab, BUILDS, name, KNOWN)
    await lab.until(lambda: all(one.get("status", {}).get("namespace") != BUILDS for one in _declared(lab)))
    await lab.who["admin"].must("DELETE", path("Secret", BUILDS, KEYS))
    await lab.until(lab.is_well)
    yield
    await lab.roll(by, BUILDS, name, REFACTORED, culprit=True)


def _declared(lab: Lab) -> list[Json]:
    return list(lab.world["Build"].values())


@family(
    "Somebody tidies up what parts an app has by its mesh's rules, and takes one out that no new page asks for. A route"
    " for the path of older versions still names it: the proxies of those who call have nobody for these, and answer"
    " them with 503 themselves.",
    joined=42,
)
async def last_reference(lab: Lab) -> AsyncIterator[None]:
    """As guides to Istio warn: a subset is made before it is named, and is taken away after (ecweb.ecer.com)."""
    namespace, name, front, other = lab.rng.choice(
        (
            ("shop", "cart-api", "app-gateway", ("media", "adverts")),
            ("search", "find-api", "find-gateway", ("shop", "similar")),
            ("payments", "account-api", "account-gateway", ("shop", "refunds")),
        )
    )
    older, newer = f"{name}-v1", f"{name}-v2"
    by, team = lab.rng.choice(("bob", "carol", "argocd")), lab.rng.choice(("ci", "alice"))
    asked = lab.rng.uniform(40, 60)
    route, rule = await lab.custom("VirtualService", MESH, LOOSE), await lab.custom("DestinationRule", MESH, LOOSE)
    await lab.served(route, rule)

    def is_defined(subset: str) -> bool:
        found = lab.world["DestinationRule"].get((namespace, name), {}).get("spec", {}).get("subsets", ())
        return any(one["name"] == subset for one in found)

    def lost() -> float:
        """The share for which a proxy finds nobody: a subset that is not defined has no cluster."""
        found = lab.world["VirtualService"].get((namespace, name), {}).get("spec", {}).get("http", ())
        named = [one["route"][0]["destination"]["subset"] for one in found]
        shares: dict[str, float] = dict(zip(named, (OLDER_SHARE, 1 - OLDER_SHARE), strict=False))
        return sum(share for subset, share in shares.items() if not is_defined(subset))

    for one, share in ((older, OLDER_SHARE), (newer, 1 - OLDER_SHARE)):
        subset = one.rsplit("-", 1)[1]
        part = lambda share=share, subset=subset: max(0.1, asked * share * is_defined(subset))  # noqa: E731
        tag = "1.44.2" if one == older else "2.3.0"
        await lab.app(namespace, one, like=App("", asked=part), replicas=2, tag=tag)
        labels = {"product": name, "version": subset}
        await lab.edit("admin", "Deployment", namespace, one, {"spec": {"template": {"metadata": {"labels": labels}}}})
    whole = objects.service(namespace, name)
    whole["spec"]["selector"] = {"product": name}
    await lab.apply(whole)
    reaches = ((namespace, name),)
    like = App("", upstreams=reaches, asked=lambda: asked, failing=lambda _: lost())
    await lab.app(namespace, front, like=like, replicas=3, tag="5.8.1")
    await lab.app(*other, like=App("", upstreams=reaches), replicas=2, tag="1.2.0")
    host, meta = f"{name}.{namespace}.svc.cluster.local", {"namespace": namespace, "name": name}
    subsets = [{"name": one, "labels": {"version": one}} for one in ("v1", "v2")]
    defined = {"host": host, "trafficPolicy": {"tls": {"mode": "ISTIO_MUTUAL"}}, "subsets": subsets}
    to = {one: [{"destination": {"host": host, "subset": one}}] for one in ("v1", "v2")}
    routes = [{"match": [{"uri": {"prefix": "/api/v1/"}}], "route": to["v1"]}, {"route": to["v2"]}]
    await lab.apply({"apiVersion": f"{MESH}/v1", "kind": rule.name, "metadata": meta, "spec": defined})
    spec = {"hosts": [host], "http": routes}
    await lab.apply({"apiVersion": f"{MESH}/v1", "kind": route.name, "metadata": meta, "spec": spec})
    await lab.until(lambda: len(backends(lab.world, namespace, name)) == 4 and backends(lab.world, namespace, front))
    await publish(lab, namespace, front)
    lab.reserve(namespace, name, older, newer)
    without = {"response_code": "503", "response_flags": "NC", "reporter": "source", "destination_service": host}
    proxied = lab.adding_up(lambda: asked * lost())
    lab.measure("istio_requests_total", proxied, "counter", namespace=namespace, service=front, **without)
    lab.alert_errors(namespace, front)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)
    yield
    await lab.roll(team, namespace, newer, "2.4.0")
    await rolled(lab, namespace, newer, "2.4.0")
    await lab.pause(lab.rng.uniform(4, 11))
    await lab.culprit(by, "update", rule.name, namespace, name, {"spec": {"subsets": subsets[1:]}})
