"""Incidents without a culprit among the changes: a plugin that hangs, a line that is lost, a row of a database."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime
from zlib import crc32

from tests.lab import objects
from tests.lab.alerts import is_lost, pods
from tests.lab.api import Json, now
from tests.lab.apps import App, Container, Problem
from tests.lab.lab import NODES, Lab
from tests.lab.network import INGRESS_CLASS, backends, unreachable, unserved
from tests.lab.scenario import family

PROXY = "registry.corp.example/platform/mesh-proxy"
CONTROL = ("platform", "mesh-control")
REPLICAS, NEEDED = 4, 3
"""Of an API, and how many of its pods its calls need: fewer answer with errors."""
READ_AGAIN_SECONDS = 8
"""Between two looks of a process at the rules."""


@family(
    "The plugin of the network hangs on one node after another: pods there reach nobody, sidecars that do not reach"
    " their mesh's control end, and a little later the runtime, which waits for it, answers its kubelet no more.",
    culprit=False,
    joined=12,
)
async def plugin_hangs(lab: Lab) -> AsyncIterator[None]:
    """As AirMap tells of July 2018."""

    def check(container: Container) -> Problem | None:
        trouble = unreachable(lab.world, container.pod, *CONTROL, cut_off=lab.outside.cut_off)
        return Problem("crash", f"no routes from {CONTROL[1]}: {trouble}") if trouble else None

    async def hang(node: str) -> None:
        """What the kubelet asks its runtime for, that one asks the plugin for, and waits."""
        lab.outside.cut_off.add(node)
        await lab.pause(lab.rng.uniform(8, 12))
        lab.outside.stalled.add(node)

    async def go_on(nodes: list[str]) -> None:
        for node in nodes:
            lab.start(hang(node))
            await lab.pause(lab.rng.uniform(7, 11))

    lab.apps[PROXY] = App(PROXY, check=check)
    await lab.app(*CONTROL, replicas=3)
    apis = ("shop", "profiles"), ("search", "tiles"), ("media", "maps")
    for place in apis:
        await lab.apply(_in_mesh(lab, *place))
        await lab.apply(objects.service(*place))
        _alert_errors(lab, *place)
    for node in NODES:
        lost = lambda node=node: is_lost(lab.world, node)  # noqa: E731
        lab.alert("KubeNodeNotReady", lost, f"node {node} has been unready", 8, node=node)
    yield
    first = str(lab.rng.choice(pods(lab.world, *lab.rng.choice(apis)))["spec"]["nodeName"])
    others = [node for node in NODES if node != first]
    lab.start(go_on([first, *lab.rng.sample(others, 3)]))


def _in_mesh(lab: Lab, namespace: str, name: str) -> Json:
    """The manifest of an API whose calls go through a proxy beside it."""
    image = f"registry.corp.example/{namespace}/{name}"
    lab.apps[image] = App(image)
    made = objects.deployment(namespace, name, f"{image}:1.0.0", replicas=REPLICAS)
    resources = {"requests": {"cpu": "50m", "memory": "64Mi"}}
    made["spec"]["template"]["spec"]["containers"].append(
        {"name": "mesh-proxy", "image": f"{PROXY}:1.4.2", "resources": resources}
    )
    return made


def _alert_errors(lab: Lab, namespace: str, name: str) -> None:
    def holds() -> bool:
        """Who is on a node that is cut off is still sent calls until it is no longer ready."""
        there = backends(lab.world, namespace, name)
        return sum(pod["spec"]["nodeName"] not in lab.outside.cut_off for pod in there) < NEEDED

    summary = f"answers of {namespace}/{name} are 5xx"
    lab.alert("HTTPErrorsHigh", holds, summary, 4, namespace=namespace, service=name)


@family(
    "The line between a cluster and the world is lost: all that runs in it is well, also what a balancer asks after its"
    " health, which sends requests there as before, and none of them is answered.",
    culprit=False,
    joined=12,
)
async def line_lost(lab: Lab) -> AsyncIterator[None]:
    """As ST-One tells of February 2026."""
    namespace, name = lab.rng.choice((("platform", "ingest"), ("media", "receiver"), ("search", "collector")))
    line, host = "line", f"{name}.corp.example"
    service = {"service": {"name": name, "port": {"number": 80}}}
    rules = [{"host": host, "http": {"paths": [{"path": "/", "pathType": "Prefix", "backend": service}]}}]
    spec: Json = {"ingressClassName": INGRESS_CLASS, "rules": rules}
    await lab.app(namespace, name, replicas=4)
    await lab.apply({"kind": "Ingress", "metadata": {"namespace": namespace, "name": name}, "spec": spec})
    lab.reserve(namespace, name)
    lab.outside.reached = lambda: line not in lab.outside.broken
    url = f"https://{host}"
    holds = lambda: line in lab.outside.broken or bool(unserved(lab.world, host))  # noqa: E731
    lab.alert("ProbeFailed", holds, f"{url} is not answered", 6, job="blackbox", instance=url)
    yield
    lab.outside.broken[line] = "i/o timeout"


@family(
    "Somebody of another team writes a malformed rule into the database outside of the cluster: what evaluates rules"
    " reads it and fails on every call, and whoever asks it fails as well.",
    culprit=False,
    joined=12,
)
async def malformed_rule(lab: Lab) -> AsyncIterator[None]:
    """As AirMap tells of August 2018."""
    namespace, name, callers = lab.rng.choice(
        (
            ("search", "advisories", ("flights", "briefings")),
            ("payments", "tariffs", ("quotes", "invoices")),
            ("shop", "discounts", ("baskets", "offers")),
        )
    )
    number, written = lab.rng.randrange(200, 900), list[datetime]()

    def check(container: Container) -> Problem | None:
        """The rules are in its memory, and read again now and then: each process has its own turn."""
        seconds = (now() - written[0]).total_seconds() if written else 0.0
        turn = crc32(container.pod["metadata"]["uid"].encode()) % READ_AGAIN_SECONDS
        if seconds <= min(turn, container.seconds):
            return None
        why = f"rule {number}: unexpected end of JSON input"
        return Problem("unready", f"probe failed: HTTP probe failed with statuscode: 500 ({why})")

    await lab.app(namespace, name, like=App("", check=check), replicas=3)
    for caller in callers:
        await lab.app(namespace, caller, like=App("", upstreams=((namespace, name),)))
        lab.alert_lacking(namespace, caller)
    lab.alert_lacking(namespace, name)
    yield
    written.append(now())
