"""What an update takes away beside what it brings: the name of a tenant from a query, an agent's place on its node."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass

from tests.lab.alerts import lacking, pods
from tests.lab.api import Json, Kind, path
from tests.lab.apps import App, Container, Process
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.families.databases import ANY
from tests.lab.families.upgrades import CALLERS
from tests.lab.lab import NODES, Lab
from tests.lab.manifests import is_ready
from tests.lab.network import backends
from tests.lab.programs import every, informer, tell
from tests.lab.scenario import family

GROUP, OPERATOR = "keda.sh", ("platform", "keda-operator")
OLD, NEW = "2.14.1", "2.16.0"
TENANT = "cortexOrgID"
"""By which the old version says for whom it asks; the new one knows a header of any name alone."""
STORE = ("monitoring", "mimir-query")
EACH_STANDS, EACH_GETS, LEAST = 40.0, 28.0, 2
"""Requests a second that a pod stands, and those for which there is one more; the fewest pods there may be."""


@dataclass
class _Scaler:
    """By what the store of metrics answers for one tenant; without an answer all stays as it is."""

    lab: Lab
    kind: Kind
    namespace: str
    name: str
    asked: float
    refused: int = 0

    def _answer(self, process: Process, trigger: Json) -> tuple[float, str]:
        """Requests a second, or why that is not known."""
        if not backends(self.lab.world, *STORE):
            host = f"{STORE[1]}.{STORE[0]}"
            return 0.0, f'Get "http://{host}/prometheus/api/v1/query": dial tcp: lookup {host}: no such host'
        if process.tag == NEW or TENANT not in trigger["metadata"]:
            return 0.0, "prometheus query api returned error. status: 401 response: no org id"
        return self.asked, ""

    async def scale(self, process: Process) -> None:
        declared = await process.api.call("GET", self.kind.path(self.namespace, self.name))
        where = f"{path('Deployment', self.namespace, self.name)}/scale"
        found = await process.api.call("GET", where)
        if not (declared.ok and found.ok):
            return
        spec = declared.body["spec"]
        number, why = self._answer(process, spec["triggers"][0])
        condition = {"type": "Active", "status": "Unknown" if why else "True", "message": why}
        if declared.body.get("status", {}).get("conditions") != [condition]:
            mine = self.kind.path(self.namespace, self.name)
            await process.api.call("PATCH", mine, {"status": {"conditions": [condition]}})
        if why:
            self.refused += 1
            if self.refused % 4 == 1:
                about = {"kind": self.kind.name, **declared.body}
                await tell(process, about, "Warning", "KEDAScalerFailed", why, by="keda-operator")
            return
        replicas = min(spec["maxReplicaCount"], max(LEAST, math.ceil(number / EACH_GETS)))
        if found.body["spec"]["replicas"] != replicas:
            await process.api.call("PATCH", where, {"spec": {"replicas": replicas}})

    async def grow(self, most: float) -> None:
        """As users come home."""
        while self.asked < most:
            self.asked = min(most, self.asked * 1.06)
            await asyncio.sleep(1)


@family(
    "What scales apps gets a new version, which no longer reads a field by which the tenant was named for whom metrics"
    " are asked: the store of metrics answers 401. Nothing is scaled any more, neither up nor down, which shows as the"
    " evening's users come and an app has the pods of the afternoon.",
    joined=62,
)
async def evening_metric(lab: Lab) -> AsyncIterator[None]:
    """As told of adapters that have no metric any more, and of a field that is gone (kedacore/keda 5538 and 5990)."""
    namespace, name = lab.rng.choice((("media", "live-page"), ("shop", "evening-deals"), ("search", "listings")))
    by, team = lab.rng.choice(("argocd", "flux", "bob")), lab.rng.choice(("ci", "alice"))
    kind = await lab.custom("ScaledObject", GROUP, ANY)
    scaler = _Scaler(lab, kind, namespace, name, asked=lab.rng.uniform(95, 110))
    first = math.ceil(scaler.asked / EACH_GETS)

    def short(_: Container) -> float:
        """All of it comes to those that are there."""
        there = len(backends(lab.world, namespace, name))
        return max(0.0, 1 - EACH_STANDS * there / scaler.asked) if there else 0.0

    await lab.app(*STORE, like=App("", asked=lambda: 12.0), replicas=2, tag="2.13.0")
    like = App("", asked=lambda: scaler.asked, failing=short, fails_with=lambda _: "503", capacity=3 * EACH_STANDS)
    like.latency, number = (lambda one: 1.5 * short(one)), lab.rng.randrange(3, 40)
    await lab.app(namespace, name, like=like, replicas=first, tag=f"7.{number}.0")
    await lab.served(kind)
    query = f'sum(rate(http_requests_total{{namespace="{namespace}",service="{name}"}}[1m]))'
    asks = {"serverAddress": "http://mimir-query.monitoring/prometheus", "query": query, TENANT: namespace}
    trigger = {"type": "prometheus", "metadata": {**asks, "threshold": f"{EACH_GETS:.0f}"}}
    spec = {"scaleTargetRef": {"name": name}, "minReplicaCount": LEAST, "maxReplicaCount": 16, "triggers": [trigger]}
    meta = {"namespace": namespace, "name": name}
    await lab.apply({"apiVersion": f"{GROUP}/v1", "kind": kind.name, "metadata": meta, "spec": spec})
    await lab.until(lambda: len(backends(lab.world, namespace, name)) == first and backends(lab.world, *STORE))
    rules = (
        (GROUP, "scaledobjects", "get,list,watch,patch"),
        ("apps", "deployments/scale", "get,patch"),
        ("", "events", "create"),
    )
    await lab.controller(*OPERATOR, every(2, scaler.scale), *rules, upstreams=(STORE,), replicas=1, tag=OLD)
    await rolled(lab, *OPERATOR, OLD)
    await publish(lab, namespace, name)
    failed = lambda: float(scaler.refused)  # noqa: E731
    lab.measure("keda_scaler_detail_errors_total", failed, "counter", namespace=OPERATOR[0], service=OPERATOR[1])
    lab.alert_errors(namespace, name)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)
    yield
    await lab.roll(by, *OPERATOR, NEW, culprit=True)
    await lab.until(lambda: scaler.refused)
    await lab.pause(lab.rng.uniform(4, 9))
    await lab.roll(team, namespace, name, f"7.{number}.1")
    await rolled(lab, namespace, name, f"7.{number}.1")
    await lab.pause(lab.rng.uniform(2, 6))
    lab.start(scaler.grow(lab.rng.uniform(300, 360)))


NETWORK, LOGS = ("kube-system", "network-agent"), ("monitoring", "node-logger")
FORWARDER = "registry.corp.example/platform/log-forwarder"
LOG_PORT, STAYS_SECONDS = 2020, 3
"""Where what hands on logs tells of itself, and for how many seconds routes stay without who keeps them."""


async def _withdraw(lab: Lab) -> None:
    """Others drop the routes to a node whose agent has been gone for a while."""
    gone = Counter[str]()
    while True:
        there = {pod["spec"].get("nodeName") for pod in pods(lab.world, *NETWORK) if is_ready(pod)}
        for node in NODES:
            gone[node] = 0 if node in there else gone[node] + 1
        lab.outside.cut_off = {node for node in NODES if gone[node] >= STAYS_SECONDS}
        await asyncio.sleep(1)


@family(
    "The network's agent gets a container beside it which hands on its logs, and is on its node's network: there that"
    " one listens at a port which what reads all logs has on each node. The old agents end, as many as may at a time,"
    " the new ones find no free port there, and their nodes' pods reach nobody.",
    joined=62,
)
async def agent_beside(lab: Lab) -> AsyncIterator[None]:
    """As one tells of Calico's agents on every node and a logger at the same port (kubernetes 48362, June 2017)."""
    by, most = lab.rng.choice(("alice", "argocd", "flux")), lab.rng.choice((1, 2))
    on_node: Json = {"hostNetwork": True, "dnsPolicy": "ClusterFirstWithHostNet", "kind": "DaemonSet"}
    on_node["priorityClassName"] = "system-node-critical"
    lab.apps[FORWARDER] = App(FORWARDER, serves=False)
    lab.outside.cut_off = set()
    program, rules = informer(path("Node")), (("", "nodes", "list,watch"),)
    await lab.controller(*LOGS, informer(path("Pod")), ("", "pods", "list,watch"), tag="3.1.9", **on_node)
    await lab.controller(*NETWORK, program, *rules, tag="3.28.1", **on_node)
    for place, port in ((LOGS, LOG_PORT), (NETWORK, 9099)):
        spec = lab.world["DaemonSet"][place]["spec"]["template"]["spec"]
        one = {**spec["containers"][0], "ports": [{"name": "metrics", "containerPort": port, "hostPort": port}]}
        body: Json = {"spec": {"template": {"spec": {"containers": [one]}}}}
        body["spec"]["updateStrategy"] = {"rollingUpdate": {"maxUnavailable": len(NODES)}}
        await lab.edit("admin", "DaemonSet", *place, body)
    await lab.until(lambda: all(_is_through(lab, place) for place in (LOGS, NETWORK)))
    few = {"spec": {"updateStrategy": {"rollingUpdate": {"maxUnavailable": most}}}}
    await lab.edit("admin", "DaemonSet", *NETWORK, few)
    lab.start(_withdraw(lab))
    summary = f"the rollout of {NETWORK[0]}/{NETWORK[1]} is not progressing"
    holds = lambda: lacking(lab.world, *NETWORK)  # noqa: E731
    told = dict(zip(("namespace", "daemonset"), NETWORK, strict=True))
    lab.alert("KubeDaemonSetRolloutStuck", holds, summary, 20, **told)
    for place in CALLERS:
        lab.reserve(*place)
        lab.alert_lacking(*place)
    await lab.until(lab.is_well)
    yield
    await lab.pause(lab.rng.uniform(3, 8))
    [agent] = lab.world["DaemonSet"][NETWORK]["spec"]["template"]["spec"]["containers"]
    ports = [{"name": "http", "containerPort": LOG_PORT, "hostPort": LOG_PORT}]
    resources = {"requests": {"cpu": "20m", "memory": "32Mi"}, "limits": {"memory": "128Mi"}}
    beside = {"name": "log-forwarder", "image": f"{FORWARDER}:3.1.9", "ports": ports, "resources": resources}
    body = {"spec": {"template": {"spec": {"containers": [agent, beside]}}}}
    await lab.culprit(by, "update", "DaemonSet", *NETWORK, body)


def _is_through(lab: Lab, place: tuple[str, str]) -> bool:
    """Whether all pods of a DaemonSet have their port on the node, and are ready."""
    found = pods(lab.world, *place)
    return len(found) == len(NODES) and all(is_ready(pod) and "ports" in pod["spec"]["containers"][0] for pod in found)
