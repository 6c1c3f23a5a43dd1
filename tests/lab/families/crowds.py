"""Who is one too many: parallel work among those that try again, agents on every node, tokens that nobody knows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial

from tests.lab import objects
from tests.lab.alerts import pods
from tests.lab.api import path
from tests.lab.apps import App, Container
from tests.lab.company import READ
from tests.lab.families.between import publish
from tests.lab.families.load import alert_on_load
from tests.lab.families.meshes import tries
from tests.lab.lab import NODES, Lab
from tests.lab.manifests import images, is_ready
from tests.lab.network import backends
from tests.lab.programs import both, every, getting, informer
from tests.lab.scenario import family

AT_ONCE = 20
"""How many queries each server of a store runs at the same time: who is one too many is refused."""
RETRIES = 6
"""How often a client tries again that takes a refusal for a passing one."""
EXPORT_SECONDS, QUERY_SECONDS = 2.0, 0.45
"""How long a query of an export takes, and one of those that somebody waits for."""
STEP_SECONDS, STEP_SHARE = 0.5, 0.4
USUALLY_REFUSED = 0.01
"""The share of the calls of a public API that are over their limit on any day."""


@family(
    "An export may run many more of its queries at once, to be through sooner: a store that runs only so many at a time"
    " refuses all others, whose clients take that for a passing fault and try again at once.",
    joined=20,
)
async def parallel_export(lab: Lab) -> AsyncIterator[None]:
    """As LangWatch tells of its store on 31 July 2026 (langwatch 6604); what set it off there is not told."""
    namespace, store, export, others = lab.rng.choice(
        (
            ("search", "events", "warehouse-export", ("dashboards", "reports")),
            ("shop", "order-history", "ledger-feed", ("my-orders", "returns")),
            ("media", "plays", "royalty-export", ("charts", "recommendations")),
        )
    )
    few, many = lab.rng.choice((("4", "64"), ("3", "72"), ("6", "80")))
    wanted = dict(zip(others, lab.rng.sample((28.0, 34.0, 40.0), 2), strict=True))
    calls = {export: float(few) / EXPORT_SECONDS, **wanted}
    refused = [0.0]

    def running(name: str) -> int:
        return sum(is_ready(pod) for pod in pods(lab.world, namespace, name))

    async def traffic() -> None:
        """Each worker of the export waits for its answer, and goes on to the next query where it is refused."""
        while True:
            workers = float(lab.world["ConfigMap"][namespace, export]["data"]["PARALLEL_QUERIES"])
            each = EXPORT_SECONDS * max(0.25, 1 - refused[0])
            rates = {export: workers / each * bool(running(export))}
            rates |= {name: rate * tries(refused[0], RETRIES) for name, rate in wanted.items()}
            for name, rate in rates.items():
                calls[name] += STEP_SHARE * (rate - calls[name])
            takes = sum(rate * (EXPORT_SECONDS if name == export else QUERY_SECONDS) for name, rate in calls.items())
            refused[0] = max(0.0, 1 - AT_ONCE * max(1, running(store)) / takes)
            await asyncio.sleep(STEP_SECONDS)

    like = App(
        "",
        capacity=200,
        asked=lambda: sum(calls.values()),
        failing=lambda _: refused[0],
        fails_with=lambda _: "503",
    )
    await lab.app(namespace, store, like=like, replicas=3)
    settings = {"PARALLEL_QUERIES": few, "WINDOW_HOURS": "24", "TARGET": "warehouse"}
    await lab.apply(objects.config_map(namespace, export, **settings))
    upstreams = ((namespace, store),)
    await lab.app(namespace, export, like=App("", upstreams=upstreams, serves=False), replicas=1, config=export)
    for name in others:
        await lab.app(namespace, name, like=App("", upstreams=upstreams), replicas=2)
    for name in (export, *others):
        lab.reserve(namespace, name)
        counted = lab.adding_up(partial(calls.__getitem__, name))
        lab.measure("http_client_requests_total", counted, "counter", namespace=namespace, service=name, upstream=store)
    for name in (store, *others):
        lab.alert_errors(namespace, name)
    await lab.until(lambda: running(store) == 3)
    lab.start(traffic())
    yield
    by = lab.rng.choice(("bob", "argocd", "flux"))
    await lab.culprit(by, "update", "ConfigMap", namespace, export, {"data": {"PARALLEL_QUERIES": many}})


@family(
    "An agent that tells of all that the cluster has, well on the one node where it was tried, is let run on every"
    " node: each asks as often as that one did, and the API server gets many times the requests.",
    joined=20,
)
async def telemetry_everywhere(lab: Lab) -> AsyncIterator[None]:
    """As OpenAI tells of 11 December 2024."""
    namespace, name = "monitoring", lab.rng.choice(("node-telemetry", "cluster-insights", "inventory-agent"))
    trial = {f"{name}.corp.example/trial": "true"}
    node = lab.rng.choice(NODES)
    asked = [path(kind) for kind in ("Pod", "Service", "EndpointSlice")]
    program = both(every(lab.rng.choice((0.65, 0.75, 0.85)), getting(*asked)), informer(path("Node")))
    await lab.edit("admin", "Node", "", node, {"metadata": {"labels": trial}})
    await lab.controller(namespace, name, program, READ, kind="DaemonSet", nodeSelector=trial, tag="0.9.4")
    await lab.until(lambda: pods(lab.world, namespace, name))
    alert_on_load(lab)
    yield
    by = lab.rng.choice(("argocd", "alice", "ci"))
    body = {"spec": {"template": {"spec": {"nodeSelector": None}}}}
    await lab.culprit(by, "update", "DaemonSet", namespace, name, body)


@family(
    "A release of what knows all tokens no longer says of those of an older form what their owner may ask: the gateway"
    " counts their calls against the limit of nobody in particular, and refuses many of them.",
    joined=20,
)
async def token_limits(lab: Lab) -> AsyncIterator[None]:
    """As CircleCI tells of 30 June."""
    namespace, gateway, tokens = lab.rng.choice(
        (
            ("search", "public-api", "api-keys"),
            ("payments", "partner-gateway", "credentials"),
            ("media", "edge-api", "token-store"),
        )
    )
    old, new = lab.rng.choice((("3.6.2", "3.7.0"), ("1.14.0", "1.15.0"), ("0.22.1", "0.23.0")))
    older, over = lab.rng.uniform(0.35, 0.6), lab.rng.uniform(0.6, 0.85)

    def refusing(_: Container) -> float:
        """Whoever of them is asked about a token, by chance."""
        there = backends(lab.world, namespace, tokens)
        known = sum(images(pod)[0].endswith(f":{new}") for pod in there)
        return USUALLY_REFUSED + known / max(1, len(there)) * older * over

    def refused() -> bool:
        answers = lab.traffic.of_ingress(namespace, namespace, 10).answers
        return answers["429"] / max(1, answers.total()) > 0.1

    await lab.app(namespace, tokens, tag=old, replicas=3)
    like = App("", upstreams=((namespace, tokens),), failing=refusing, fails_with=lambda _: "429")
    settings = {"LIMIT_KEY": "owner", "LIMIT_DEFAULT": "60r/m", "LIMIT_PLANS": "free=600r/m,team=6000r/m"}
    await lab.apply(objects.config_map(namespace, gateway, **settings))
    await lab.app(namespace, gateway, like=like, replicas=3, config=gateway)
    await lab.until(lambda: len(backends(lab.world, namespace, gateway)) == 3)
    await publish(lab, namespace, gateway)
    summary = f"more than a tenth of the requests to Ingress {namespace}/{namespace} are answered with 429"
    lab.alert("NginxTooManyRequests", refused, summary, namespace=namespace, ingress=namespace)
    yield
    await lab.roll(lab.rng.choice(("ci", "argocd", "bob")), namespace, tokens, new, culprit=True)
