"""Who asks, and of whom it is too much: a caller among others that try again, servers by the dozen, one address."""

from __future__ import annotations

import asyncio
import ipaddress
import json
import math
from collections.abc import AsyncIterator
from functools import partial

from tests.lab import objects
from tests.lab.alerts import pods
from tests.lab.api import path
from tests.lab.apps import App, Container, Process
from tests.lab.families.between import publish
from tests.lab.families.load import alert_on_load
from tests.lab.families.meshes import tries
from tests.lab.lab import Lab
from tests.lab.manifests import is_ready
from tests.lab.programs import every, getting
from tests.lab.scenario import family

RETRIES = 4
"""How often a client that tries again does so."""
LOST = 0.5
"""The share of its work that an app does in vain where it refuses all: who is refused costs, too."""
STEP_SECONDS, STEP_SHARE = 0.5, 0.4
CORES = 16
"""Of each node."""
BALANCER = "10.8.0.14"
"""From where a load balancer sends on what users ask."""


@family(
    "A release of one caller asks for each entry of a list where it asked for the list: what it calls refuses what it"
    " does not stand, all other callers try again at once, and soon they are most of what it gets.",
    joined=19,
)
async def entry_by_entry(lab: Lab) -> AsyncIterator[None]:
    namespace, called, first, others = lab.rng.choice(
        (
            ("shop", "stock", "sitemap", ("basket", "offers")),
            ("payments", "rates", "statements", ("authorisation", "refunds")),
            ("search", "profiles", "digest", ("results", "suggest")),
        )
    )
    old, new = lab.rng.choice((("1.8.4", "1.9.0"), ("3.2.0", "3.3.0"), ("2.11.1", "2.12.0")))
    calls = {first: 12.0, **dict.fromkeys(others, 50.0)}
    refused, each = [0.0], 65.0

    def running(name: str, tag: str = "") -> list[str]:
        found = (pod for pod in pods(lab.world, namespace, name) if is_ready(pod))
        return [image for pod in found if (image := pod["spec"]["containers"][0]["image"]).endswith(tag)]

    async def traffic() -> None:
        """Clients find out one by one that they have to try again; the first caller leaves out what it is refused."""
        while True:
            there = max(1, len(running(called)))
            share = len(running(first, f":{new}")) / max(1, len(running(first)))
            wanted = {first: 12.0 + 110.0 * share, **dict.fromkeys(others, 50.0 * tries(refused[0], RETRIES))}
            for name, rate in wanted.items():
                calls[name] += STEP_SHARE * (rate - calls[name])
            stands = each * there * (1 - LOST * refused[0])
            refused[0] = max(0.0, 1 - stands / sum(calls.values()))
            await asyncio.sleep(STEP_SECONDS)

    like = App(
        "",
        capacity=each,
        asked=lambda: sum(calls.values()),
        failing=lambda _: refused[0],
        fails_with=lambda _: "503",
    )
    await lab.app(namespace, called, like=like, replicas=3)
    for name in (first, *others):
        tag = old if name == first else "1.0.0"
        await lab.app(namespace, name, tag=tag, like=App("", upstreams=((namespace, called),)), replicas=2)
        lab.reserve(namespace, name)
        counted = lab.adding_up(partial(calls.__getitem__, name))
        lab.measure(
            "http_client_requests_total", counted, "counter", namespace=namespace, service=name, upstream=called
        )
    for name in (called, *others):
        lab.alert_errors(namespace, name)
    await lab.until(lambda: len(running(called)) == 3)
    lab.start(traffic())
    yield
    await lab.roll(lab.rng.choice(("ci", "argocd", "alice")), namespace, first, new, culprit=True)


@family(
    "The autoscaler of the servers of names inside is told that one of them stands few cores, to have them everywhere:"
    " there are many times as many, and each asks the API server as often as one ever did.",
    joined=19,
)
async def many_resolvers(lab: Lab) -> AsyncIterator[None]:
    """As the testers of Kubernetes tell of their largest cluster (November 2017, kubernetes 55779)."""
    namespace, name = "kube-system", lab.rng.choice(("internal-dns", "node-dns", "zone-dns"))
    config = f"{name}-autoscaler"

    def linear(cores: int, nodes: int) -> dict[str, str]:
        return {"linear": json.dumps({"coresPerReplica": cores, "nodesPerReplica": nodes, "min": 2})}

    async def scale(process: Process) -> None:
        """As the autoscaler that goes by the size of the cluster."""
        nodes = (await process.api.call("GET", path("Node"))).body.get("items", [])
        told = (await process.api.call("GET", path("ConfigMap", namespace, config))).body.get("data", {})
        where = f"{path('Deployment', namespace, name)}/scale"
        found = await process.api.call("GET", where)
        if not (nodes and told and found.ok):
            return
        by = json.loads(told["linear"])
        per_core = math.ceil(CORES * len(nodes) / by["coresPerReplica"])
        wanted = max(by["min"], per_core, math.ceil(len(nodes) / by["nodesPerReplica"]))
        if found.body["spec"]["replicas"] != wanted:
            await process.api.call("PATCH", where, {"spec": {"replicas": wanted}})

    await lab.apply(objects.config_map(namespace, config, **linear(256, 16)))
    resync = every(1.2, getting(f"{path('Service')}?limit=50", f"{path('EndpointSlice')}?limit=50"))
    rules = (("", "services", "list"), ("discovery.k8s.io", "endpointslices", "list"))
    await lab.controller(namespace, name, resync, *rules, replicas=2)
    may = (("", "nodes", "list"), ("", "configmaps", "get"), ("apps", "deployments/scale", "get,patch"))
    await lab.controller(namespace, config, every(3, scale), *may, replicas=1)
    alert_on_load(lab)
    yield
    by, cores = lab.rng.choice(("alice", "carol", "flux")), lab.rng.choice((3, 4))
    await lab.culprit(by, "update", "ConfigMap", namespace, config, {"data": linear(cores, 16)})


@family(
    "What a proxy believes of where a request comes from is narrowed, and the load balancer is not among it: all users"
    " seem to have one address, and a limit for each address refuses most of what they ask.",
    joined=19,
)
async def one_address(lab: Lab) -> AsyncIterator[None]:
    """As Sirv tells of a location of its network (status page, 2 December)."""
    namespace, name = lab.rng.choice((("shop", "edge"), ("media", "delivery"), ("search", "front-door")))
    most, asked = lab.rng.choice((10, 15)), lab.rng.choice((110.0, 130.0, 150.0))
    old, new = lab.rng.choice((("10.0.0.0/8", "10.244.0.0/16"), ("10.0.0.0/8,192.168.0.0/16", "10.20.0.0/16")))

    def refusing(container: Container) -> float:
        """Each user asks for far less than the limit allows."""
        trusted = container.config.get("TRUSTED_PROXIES", "").split(",")
        if any(ipaddress.ip_address(BALANCER) in ipaddress.ip_network(one) for one in trusted):
            return 0.0
        return max(0.0, 1 - most / (asked / len(pods(lab.world, namespace, name))))

    def refused() -> bool:
        answers = lab.traffic.of_ingress(namespace, namespace, 10).answers
        return answers["429"] / max(1, answers.total()) > 0.1

    config = {"REAL_IP_HEADER": "X-Forwarded-For", "TRUSTED_PROXIES": old, "REQUESTS_PER_ADDRESS": f"{most}r/s"}
    await lab.apply(objects.config_map(namespace, name, **config))
    like = App("", asked=lambda: asked, failing=refusing, fails_with=lambda _: "429")
    await lab.app(namespace, name, like=like, replicas=3, config=name)
    await publish(lab, namespace, name)
    summary = f"more than a tenth of the requests to Ingress {namespace}/{namespace} are answered with 429"
    lab.alert("NginxTooManyRequests", refused, summary, namespace=namespace, ingress=namespace)
    yield
    by = lab.rng.choice(("bob", "argocd", "carol"))
    await lab.culprit(by, "update", "ConfigMap", namespace, name, {"data": {"TRUSTED_PROXIES": new}})
