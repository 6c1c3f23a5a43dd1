"""What is put together of many parts: one schema of all services, one number of all that is counted."""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass

from tests.lab import objects
from tests.lab.api import Json, Kind, now, path
from tests.lab.apps import App, Container, Process
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.families.databases import ANY
from tests.lab.lab import Lab
from tests.lab.manifests import images
from tests.lab.network import backends
from tests.lab.programs import every
from tests.lab.scenario import family

COMPOSES_EVERY = 4.0


@dataclass
class _Gateway:
    """It reads again and again what each service says of itself, and makes one schema of it, or none at all."""

    lab: Lab
    parts: tuple[tuple[str, str], ...]
    unreadable: str
    """The image with tag whose description of its API refers to a type that it does not have."""
    since: float | None = None
    """When it had no schema for the first time."""

    async def compose(self) -> None:
        while True:
            there = [backends(self.lab.world, *place) for place in self.parts]
            asked = [self.lab.kubelets.rng.choice(found) for found in there if found]
            is_broken = any(images(pod)[0] == self.unreadable for pod in asked)
            self.since = (self.since or now().timestamp()) if is_broken else None
            await asyncio.sleep(COMPOSES_EVERY)

    def failing(self, _: Container) -> float:
        return 1.0 if self.since and now().timestamp() - self.since >= self.lab.lag else 0.0


@family(
    "A gateway makes one GraphQL schema of what all services say of their APIs, again and again. A release of one of"
    " them describes its own in a way that refers to a type it does not have: that service is well, and the gateway has"
    " no schema at all any more, and answers each request with 500.",
    joined=50,
)
async def whole_graph(lab: Lab) -> AsyncIterator[None]:
    """As an issue tells of organizations that were missing (datum-cloud/graphql-gateway 14, March 2026)."""
    namespace, gateway, page, part, others = lab.rng.choice(
        (
            ("shop", "graphql-gateway", "account-page", "addresses", ("cart", "catalog")),
            ("search", "graph-router", "explore-page", "suggestions", ("query", "indexer")),
            ("media", "supergraph", "studio-page", "albums", ("thumbnails", "uploads")),
        )
    )
    by, team = lab.rng.choice(("ci", "argocd")), lab.rng.choice(("alice", "bob", "carol"))
    number = lab.rng.randrange(4, 30)
    parts = tuple((namespace, one) for one in (*others, part))
    graph = _Gateway(lab, parts, f"registry.corp.example/{namespace}/{part}:2.{number}.0")
    await lab.app(namespace, part, replicas=3, tag=f"2.{number - 1}.3")
    await lab.apply(objects.config_map(namespace, gateway, LOG_LEVEL="info", MAX_DEPTH="10"))
    like = App("", upstreams=parts, failing=graph.failing, asked=lambda: 45.0)
    await lab.app(namespace, gateway, like=like, replicas=3, tag="1.17.2", config=gateway)
    await lab.app(namespace, page, like=App("", upstreams=((namespace, gateway),)), replicas=2, tag="9.4.0")
    await rolled(lab, namespace, part, f"2.{number - 1}.3")
    await rolled(lab, namespace, gateway, "1.17.2")
    await publish(lab, namespace, page)
    lab.reserve(namespace, gateway, part)
    lab.alert_errors(namespace, gateway)
    lab.alert_errors(namespace, page)
    lab.alert_ingress_errors(namespace, namespace)
    lab.start(graph.compose())
    await lab.until(lab.is_well)
    yield
    depth = lab.rng.choice(("8", "12", "15"))
    await lab.edit(team, "ConfigMap", namespace, gateway, {"data": {"MAX_DEPTH": depth}})
    await lab.pause(lab.rng.uniform(4, 10))
    await lab.roll(by, namespace, part, f"2.{number}.0", culprit=True)


GROUP = "keda.sh"
EACH_STANDS, FEWEST, MOST, ONE_FOR = 30.0, 2, 20, 20.0
"""Requests a second that a pod stands, how many pods there may be, and for how many requests a second one is wanted."""
STATUS = re.compile(r'status(=~|!~|=|!=)"([^"]*)"')
WINDOW_SECONDS, COOLDOWN_SECONDS = 8.0, 9.0
"""Over which the rate is taken, and for how long fewer have to do before any goes."""


@dataclass
class _Scaler:
    """By what a query over the requests of an Ingress finds; what it finds nothing for is nought to it."""

    lab: Lab
    kind: Kind
    namespace: str
    name: str
    found: float = 0.0
    fewer: float | None = None
    """Since when fewer than there are would do."""

    async def scale(self, process: Process) -> None:
        declared = await process.api.call("GET", self.kind.path(self.namespace, self.name))
        where = f"{path('Deployment', self.namespace, self.name)}/scale"
        scale = await process.api.call("GET", where)
        if not (declared.ok and scale.ok):
            return
        spec, there = declared.body["spec"], int(scale.body["spec"]["replicas"])
        self.found = self._rate(spec["triggers"][0]["metadata"]["query"])
        most, least = int(spec["maxReplicaCount"]), int(spec["minReplicaCount"])
        wanted = min(most, max(least, math.ceil(self.found / ONE_FOR)))
        self.fewer = (self.fewer or now().timestamp()) if wanted < there else None
        may_go = self.fewer is not None and now().timestamp() - self.fewer >= COOLDOWN_SECONDS
        if wanted > there or may_go:
            await process.api.call("PATCH", where, {"spec": {"replicas": wanted}})

    def _rate(self, query: str) -> float:
        """As Prometheus has it, of the statuses that the query is about."""
        answers = self.lab.traffic.of_ingress(self.namespace, self.namespace, WINDOW_SECONDS).answers
        asked = STATUS.search(query)
        how, what = (asked[1], asked[2]) if asked else ("=~", ".*")
        return sum(n for code, n in answers.items() if _matches(code, how, what)) / WINDOW_SECONDS


def _matches(code: str, how: str, what: str) -> bool:
    """A label that is compared with a text, or with a regular expression that has to match all of it."""
    is_it = bool(re.fullmatch(what, code)) if "~" in how else code == what
    return is_it is not how.startswith("!")


def _trigger(namespace: str, statuses: str = "") -> Json:
    labels = f'namespace="{namespace}",ingress="{namespace}"{statuses}'
    query = f"sum(rate(nginx_ingress_controller_requests{{{labels}}}[2m]))"
    server = "http://prometheus.monitoring.svc:9090"
    metadata = {"serverAddress": server, "query": query, "threshold": f"{ONE_FOR:.0f}"}
    return {"triggers": [{"type": "prometheus", "metadata": metadata}]}


@family(
    "An app is scaled by how many requests come to its Ingress. So that errors are not counted, somebody adds to that"
    " query that the status be 2xx, as other tools have it: here a status is a number, nothing matches, and what scales"
    " the app takes nothing for no requests, and ends all but the fewest pods there may be.",
    joined=50,
)
async def matches_nothing(lab: Lab) -> AsyncIterator[None]:
    """Of what is told of autoscalers that take a metric which is not found for nought (stackengine.dev)."""
    namespace, name, store = lab.rng.choice(
        (
            ("shop", "deals-page", "deals-db"),
            ("media", "live-page", "live-db"),
            ("search", "jobs-page", "jobs-db"),
        )
    )
    by, asked = lab.rng.choice(("alice", "carol", "flux", "argocd")), lab.rng.uniform(130.0, 170.0)
    kind = await lab.custom("ScaledObject", GROUP, ANY)
    scaler = _Scaler(lab, kind, namespace, name)

    def beyond(_: Container) -> float:
        """The share of it that those who are there do not stand."""
        return max(0.0, 1 - EACH_STANDS * len(backends(lab.world, namespace, name)) / asked)

    late = lambda container: 1.1 if beyond(container) else 0.0  # noqa: E731
    await lab.app(namespace, store, like=App("", serves=False), kind="StatefulSet", replicas=1, tag="8.4.3")
    like = App("", upstreams=((namespace, store),), asked=lambda: asked, failing=beyond, latency=late)
    like.fails_with, like.capacity = (lambda _: "503"), 4 * EACH_STANDS
    await lab.app(namespace, name, like=like, replicas=8, tag="4.11.0")
    await lab.served(kind)
    await lab.until(lambda: len(backends(lab.world, namespace, name)) == 8)
    await publish(lab, namespace, name)
    await lab.pause(WINDOW_SECONDS + 1)
    target = {"scaleTargetRef": {"name": name}, "minReplicaCount": FEWEST, "maxReplicaCount": MOST}
    meta = {"namespace": namespace, "name": name}
    spec = {**target, **_trigger(namespace)}
    await lab.apply({"apiVersion": f"{GROUP}/v1", "kind": kind.name, "metadata": meta, "spec": spec})
    rules = (GROUP, kind.plural, "get,list,watch"), ("apps", "deployments/scale", "get,patch")
    await lab.controller("platform", "keda-operator", every(1.0, scaler.scale), *rules, replicas=1, tag="2.17.1")
    await lab.until(lambda: scaler.found > 0)
    lab.reserve(namespace, name)
    lab.measure("keda_scaler_metrics_value", lambda: scaler.found, namespace="platform", service="keda-operator")
    lab.alert_errors(namespace, name)
    lab.alert_slow(namespace, name)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)
    yield
    body = {"spec": _trigger(namespace, ',status=~"2xx"')}
    await lab.culprit(by, "update", kind.name, namespace, name, body)
