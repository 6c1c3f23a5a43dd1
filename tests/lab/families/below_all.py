"""What is below all apps: names and proxies that somebody switches on or off for a namespace, a zone, a subnet."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from datetime import datetime

from tests.lab import objects
from tests.lab.alerts import is_lost
from tests.lab.api import Json, now, path
from tests.lab.apps import App, Process
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.lab import NODES, Lab
from tests.lab.network import backends
from tests.lab.programs import every
from tests.lab.scenario import family
from tests.lab.webhook import Webhook, configuration

DNS_PORTS = [{"protocol": "UDP", "port": 53}, {"protocol": "TCP", "port": 53}]
TO_DNS = {"to": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}}}]}


def only_to(namespaces: tuple[str, ...], *, with_names: bool) -> Json:
    """A NetworkPolicy's spec by which all pods may call their own namespace and some others, and ask for names."""
    peers: list[Json] = [{"podSelector": {}}]
    peers += [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": one}}} for one in namespaces]
    rules: list[Json] = [{"to": peers, "ports": [{"protocol": "TCP", "port": 8080}]}]
    rules += [{**TO_DNS, "ports": DNS_PORTS}] if with_names else []
    return {"podSelector": {}, "policyTypes": ["Egress"], "egress": rules}


@family(
    "A NetworkPolicy for what may leave a namespace lists the services that are called from there, and nobody thinks of"
    " the cluster's DNS: no name is resolved in it any more.",
    joined=71,
)
async def names_left_out(lab: Lab) -> AsyncIterator[None]:
    """The first thing that all tell who have written such a policy."""
    namespace, name, store, front, called = lab.rng.choice(
        (
            ("shop", "order-history", "order-store", "account-page", "payments"),
            ("media", "album", "album-store", "gallery-page", "search"),
            ("search", "suggestions", "terms-store", "search-page", "shop"),
        )
    )
    by, team = lab.rng.choice(("alice", "carol", "flux", "argocd")), lab.rng.choice(("ci", "bob"))
    others = [one for one in ("platform", "monitoring", "payments", "media") if one not in (namespace, called)]
    await lab.app(namespace, store, like=App("", serves=False), replicas=1, tag="15.4")
    await lab.until(lambda: backends(lab.world, namespace, store))
    like = App("", upstreams=((namespace, store),), asked=lambda: 20.0)
    await lab.app(namespace, name, like=like, replicas=3, tag="2.2.0")
    await lab.app(namespace, front, like=App("", upstreams=((namespace, name),)), replicas=2, tag="6.0.1")
    await rolled(lab, namespace, name, "2.2.0")
    await lab.until(lambda: backends(lab.world, namespace, front))
    await publish(lab, namespace, front)
    lab.reserve(namespace, name, front)
    lab.alert_lacking(namespace, name)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)

    async def release() -> None:
        await asyncio.sleep(lab.rng.uniform(0.5, 2))
        await lab.edit(team, "ConfigMap", "shop", "catalog", {"data": {"TIMEOUT_MS": "750"}})

    yield
    await lab.pause(lab.rng.uniform(1, 4))
    away = lab.rng.choice(others[:2])
    body = {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "egress"}}
    fine = only_to(tuple(others), with_names=True)
    fine["podSelector"] = {"matchLabels": {"app.kubernetes.io/part-of": "previews"}}
    await lab.who[by].must("POST", path("NetworkPolicy", away), {**body, "spec": fine})
    await lab.pause(lab.rng.uniform(2, 4))
    await lab.roll("ci", namespace, name, "2.2.1")
    await rolled(lab, namespace, name, "2.2.1")
    await lab.pause(lab.rng.uniform(3, 7))
    shut = only_to((called, "monitoring"), with_names=False)
    await lab.culprit(by, "create", "NetworkPolicy", namespace, "egress", {**body, "spec": shut})
    lab.start(release())


MESH, PROXY = ("istio-system", "istiod"), "registry.corp.example/istio-system/proxyv2:1.24.2"
INJECTION = "istio-injection"
USUAL_SECONDS = 3.0
"""For how long the Job below works."""


async def inject(request: Json) -> list[Json]:
    """A proxy beside what a pod is for."""
    proxy: Json = {"name": "istio-proxy", "image": PROXY, "args": ["proxy", "sidecar"]}
    proxy |= {"resources": {"requests": {"cpu": "50m", "memory": "64Mi"}}}
    listed = request["object"]["spec"]["containers"]
    return [] if len(listed) > 1 else [{"op": "add", "path": "/spec/containers/-", "value": proxy}]


@family(
    "Sidecars are switched on for a namespace. What migrates old entries there, a Job at a time, starts the next one as"
    " ever: its work is done, the proxy beside it goes on, so the Job never ends and no other is begun.",
    joined=71,
)
async def migration_and_proxy(lab: Lab) -> AsyncIterator[None]:
    """As very many tell of Jobs in a mesh."""
    namespace, keeper, job, placed = lab.rng.choice(
        (
            ("payments", "account-mover", "move-accounts", "accounts_migrated_total"),
            ("shop", "order-mover", "move-orders", "orders_migrated_total"),
            ("media", "album-mover", "move-albums", "albums_migrated_total"),
        )
    )
    by, team = lab.rng.choice(("carol", "alice", "flux", "argocd")), lab.rng.choice(("ci", "bob"))
    image, others = f"registry.corp.example/{namespace}/{job}", [one for one in ("search", "media") if one != namespace]

    async def begin(process: Process) -> None:
        """The next Job, once none is there that goes on."""
        listed = await process.api.call("GET", path("Job", namespace))
        mine = [one for one in listed.body.get("items", ()) if one["metadata"]["name"].startswith(f"{job}-")]
        if not listed.ok or any("completionTime" not in one.get("status", {}) for one in mine):
            return
        work = {"name": job, "image": f"{image}:3.0.2", "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}}}
        spec: Json = {"backoffLimit": 1, "ttlSecondsAfterFinished": 20}
        spec |= {"template": {"spec": {"restartPolicy": "Never", "containers": [work]}}}
        name = f"{job}-{int(now().timestamp()) % 100000}"
        await process.api.call("POST", path("Job", namespace), {"metadata": {"name": name}, "spec": spec})

    def done() -> float:
        """A Job at work sends some a second."""
        there = [one.container for one in lab.kubelets.running() if one.app.image == image]
        return sum(6.0 for one in there if one.seconds <= USUAL_SECONDS)

    def goes_on() -> bool:
        """A Job was begun long ago and has not ended."""
        return any(
            (now() - datetime.fromisoformat(one["status"]["startTime"])).total_seconds() > 5 * USUAL_SECONDS
            for (where, _), one in lab.world["Job"].items()
            if where == namespace and "startTime" in one.get("status", {}) and "completionTime" not in one["status"]
        )

    async def answered(request: Json) -> list[Json]:
        if not backends(lab.world, *MESH):
            raise ConnectionError("no pod is behind it")
        return await inject(request)

    await lab.namespace(MESH[0])
    await lab.app(*MESH, like=App("", serves=False), tag="1.24.2")
    await lab.until(lambda: backends(lab.world, *MESH))
    webhook = Webhook(answered, service=MESH)
    await webhook.start()
    lab.servers.append(webhook)
    manifest = configuration("sidecar-injector", webhook, only=INJECTION)
    await lab.apply({**manifest, "kind": "MutatingWebhookConfiguration"})
    await lab.edit("admin", "Namespace", "", others[0], {"metadata": {"labels": {INJECTION: "enabled"}}})
    lab.apps[image] = App(image, serves=False, ends_after=USUAL_SECONDS)
    await lab.controller(namespace, keeper, every(8, begin), ("batch", "jobs", "get,list,create"), replicas=1)
    lab.measure(placed, lab.adding_up(done), "counter", namespace=namespace, service=keeper)
    labels = {"namespace": namespace, "job_name": job}
    lab.alert("KubeJobNotCompleted", goes_on, f"a Job of {namespace}/{keeper} takes longer than it should", 4, **labels)
    await lab.until(lambda: any(where == namespace for where, _ in lab.world["Job"]))
    await lab.until(lab.is_well)
    lab.reserve(namespace, keeper)
    yield
    await lab.pause(lab.rng.uniform(1, 4))
    await lab.edit("bob", "ConfigMap", "shop", "cart", {"data": {"TIMEOUT_MS": "640"}})
    await lab.pause(lab.rng.uniform(1, 5))
    label = {"metadata": {"labels": {INJECTION: "enabled"}}}
    await lab.culprit(by, "update", "Namespace", "", namespace, label)
    await lab.pause(lab.rng.uniform(2, 5))
    await lab.roll(team, namespace, keeper, "1.0.1")


ZONE = "topology.kubernetes.io/zone"


@family(
    "No culprit. The network of one of the provider's zones is disturbed: nothing is heard of the nodes there, whoever"
    " calls the pods that are on them gets no answer, and the other zones are well.",
    culprit=False,
    joined=71,
)
async def disturbed_zone(lab: Lab) -> AsyncIterator[None]:
    """As those tell whose provider wrote of increased packet loss in a single zone."""
    namespace, name, front = lab.rng.choice(
        (("shop", "stock", "product-page"), ("payments", "balances", "wallet-page"), ("search", "facets", "find-page"))
    )
    zones = [f"eu-west-1{letter}" for letter in "abc"]
    for number, node in enumerate(NODES):
        await lab.edit("admin", "Node", "", node, {"metadata": {"labels": {ZONE: zones[number % 3]}}})
    spread = {
        "maxSkew": 1,
        "topologyKey": ZONE,
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": {"app.kubernetes.io/name": name}},
    }
    like = App("", asked=lambda: 30.0)
    await lab.app(namespace, name, like=like, replicas=6, tag="3.1.0", topologySpreadConstraints=[spread])
    await lab.app(namespace, front, like=App("", upstreams=((namespace, name),)), replicas=3, tag="8.2.0")
    await rolled(lab, namespace, name, "3.1.0")
    await lab.until(lambda: backends(lab.world, namespace, front))
    await publish(lab, namespace, front)
    lab.reserve(namespace, name, front)
    lost = lab.rng.choice(zones)
    hit = {node for number, node in enumerate(NODES) if zones[number % 3] == lost}
    lab.alert_errors(namespace, front)
    lab.alert_ingress_errors(namespace, namespace)
    for node in NODES:
        holds = lambda node=node: is_lost(lab.world, node)  # noqa: E731
        lab.alert("KubeNodeNotReady", holds, f"{node} has not been ready for a while", 4, node=node)
    await lab.until(lab.is_well)
    yield
    await lab.pause(lab.rng.uniform(1, 4))
    await lab.edit("alice", "ConfigMap", "shop", "cart", {"data": {"LOG_LEVEL": lab.rng.choice(("warn", "debug"))}})
    await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, front, "8.2.1")
    await rolled(lab, namespace, front, "8.2.1")
    await lab.pause(lab.rng.uniform(4, 10))
    lab.outside.cut_off |= hit
    lab.outside.silent_nodes |= hit


EACH_STANDS = 8.0
"""Requests a second for which one process more is started."""


@family(
    "No culprit. More is asked of all apps by and by, and who scales them starts more pods, as it does each evening. By"
    " now the company has grown so much that the subnet has no address left: new pods wait for one.",
    culprit=False,
    joined=71,
)
async def subnet_used_up(lab: Lab) -> AsyncIterator[None]:
    """As those tell whose pods failed to be assigned an IP address at the busiest hour of a year."""
    scaled = lab.rng.sample(
        [("shop", "basket"), ("payments", "quotes"), ("media", "player"), ("search", "nearby"), ("shop", "reviews")], 3
    )
    begun: list[datetime] = []
    slope = lab.rng.uniform(0.5, 0.8)
    most = [1000]

    def asked() -> float:
        """It grows from the evening on."""
        seconds = (now() - begun[0]).total_seconds() if begun else 0.0
        return 20.0 + slope * min(seconds, 100)

    async def scale(process: Process) -> None:
        for namespace, name in scaled:
            where, wanted = path("Deployment", namespace, name), math.ceil(asked() / EACH_STANDS)
            found = await process.api.call("GET", where)
            if found.ok and found.body["spec"]["replicas"] < wanted:
                await process.api.call("PATCH", where, {"spec": {"replicas": wanted}})

    def unplugged(_: str, pod: Json) -> str:
        """Who has no address yet, and all that there are have been given."""
        if "podIP" in pod.get("status", {}) or pod["spec"].get("hostNetwork"):
            return ""
        held = sum(
            "podIP" in one.get("status", {}) and one["status"].get("phase") not in ("Succeeded", "Failed")
            for one in lab.world["Pod"].values()
        )
        return "" if held < most[0] else "add cmd: failed to assign an IP address to container"

    def turned_away(place: tuple[str, str]) -> float:
        return max(0.0, 1 - 1.1 * EACH_STANDS * len(backends(lab.world, *place)) / asked())

    for place in scaled:
        failing = lambda _, place=place: turned_away(place)  # noqa: E731
        like = App("", asked=asked, failing=failing, fails_with=lambda _: "503")
        await lab.app(*place, like=like, replicas=3, tag="1.6.0")
        lab.alert_lacking(*place, seconds=10)
        lab.alert_errors(*place)
        lab.reserve(*place)
    rules = ("apps", "deployments", "get,list,patch")
    await lab.controller("platform", "request-scaler", every(3, scale), rules, replicas=1)
    for place in scaled:
        await rolled(lab, *place, "1.6.0")
    lab.outside.unplugged = unplugged
    await lab.until(lab.is_well)
    yield
    most[0] = len(lab.world["Pod"]) + lab.rng.randrange(5, 9)
    begun.append(now())
    await lab.pause(lab.rng.uniform(2, 6))
    await lab.edit("bob", "ConfigMap", "search", "query", {"data": {"TIMEOUT_MS": "1200"}})
    await lab.roll(lab.rng.choice(("ci", "argocd")), *scaled[0], "1.6.1")
    await lab.pause(lab.rng.uniform(6, 12))
    body = objects.config_map("media", "thumbnails-sizes", SMALL="120", LARGE="1024")
    await lab.apply(body, "alice")
