"""Incidents without a culprit among the changes: what grows until the network of a node, or the DNS, has no more."""

from __future__ import annotations

import asyncio
import math
import random
from collections import Counter
from collections.abc import AsyncIterator

from tests.lab.alerts import pods
from tests.lab.api import Json
from tests.lab.apps import LATE, App, Container, Problem
from tests.lab.lab import Lab
from tests.lab.network import DNS, backends
from tests.lab.scenario import family

STEP_SECONDS, STEP_SHARE = 0.5, 0.1
"""How fast load becomes what is asked for: callers find out one by one that they have to try again."""
QUERIES = 10.0
"""For each name outside of the cluster: with every domain of the search list, for both kinds of address."""
TRIES = 6.0
"""How often somebody asks for a page that is not whole."""
FAILURES = 3
"""In a row, before a kubelet calls a container unready."""
TRIED_AGAIN_SECONDS = 1.0
"""After which a connection whose first packet was dropped is tried again."""
DROPPED = "probe failed: dial tcp :8080: i/o timeout (Client.Timeout exceeded while awaiting headers)"


class Flaky:
    """Probes of which a share fails: now and then enough of them in a row."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._failed: Counter[str] = Counter()

    def probe(self, container: Container, share: float, message: str) -> Problem | None:
        uid = container.pod["metadata"]["uid"]
        self._failed[uid] = self._failed[uid] + 1 if self._rng.random() < share else 0
        return Problem("unready", message) if self._failed[uid] >= FAILURES else None


@family(
    "A partner outside of the cluster that hardly matters answers no more, and pages are asked for again and again:"
    " each asks for names, the DNS runs out of memory, and is killed anew as soon as it is back.",
    culprit=False,
    joined=10,
)
async def dns_memory(lab: Lab) -> AsyncIterator[None]:
    """As Zalando tells of January 2019."""
    name, partner = lab.rng.choice(
        (
            ("pages", "ratings.partner.example"),
            ("home", "weather.partner.example"),
            ("outfits", "sizes.partner.example"),
        )
    )
    usual = lab.rng.choice((24.0, 28.0, 32.0))
    asked = [usual]
    servers = lab.apps["registry.corp.example/kube-system/kube-dns"]

    def check(container: Container) -> Problem | None:
        """What is asked at a time is kept until it is answered; who is not ready is asked nothing."""
        ready = [pod["metadata"]["name"] for pod in backends(lab.world, *DNS)]
        if container.pod["metadata"]["name"] not in ready:
            return None
        needed = 40 + 0.15 * QUERIES * asked[0] / len(ready)
        return Problem("oom", f"needs {needed:.0f}Mi, may have 100Mi") if needed > 100 else None

    async def traffic() -> None:
        while True:
            fails = partner in lab.outside.broken or not backends(lab.world, *DNS)
            asked[0] += STEP_SHARE * (usual * (TRIES if fails else 1) - asked[0])
            await asyncio.sleep(STEP_SECONDS)

    containers = lab.world["Deployment"][DNS]["spec"]["template"]["spec"]["containers"]
    small = {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"memory": "100Mi"}}
    body: Json = {"spec": {"template": {"spec": {"containers": [{**containers[0], "resources": small}]}}}}
    await lab.edit("admin", "Deployment", *DNS, body)
    servers.check = check
    lab.reserve("shop", "cart", "catalog")
    await lab.app("shop", name, like=App("", upstreams=(("shop", "catalog"), ("shop", "cart"))), replicas=3)
    lab.start(traffic())
    lab.alert_lacking("shop", name)
    yield
    lab.outside.broken[partner] = "i/o timeout"


@family(
    "The calls of an app to one address outside of the cluster grow: the kernel of a node gives two of them the same"
    " port at once and drops what belongs to one, which is tried again a second later.",
    culprit=False,
    joined=10,
)
async def source_port(lab: Lab) -> AsyncIterator[None]:
    """As Xing tells of its move, and of a race in the kernel's translation of addresses."""
    namespace, name, host = lab.rng.choice(
        (
            ("shop", "stock", "warehouse.legacy.example"),
            ("payments", "statements", "mainframe.legacy.example"),
            ("media", "rights", "catalogue.legacy.example"),
        )
    )
    flaky, calls = Flaky(lab.kubelets.rng), [60.0]

    def collide(node: str) -> float:
        """The share of the calls of a node that get a port which another one is getting."""
        nodes = [pod["spec"].get("nodeName") for pod in pods(lab.world, namespace, name)]
        here = calls[0] * nodes.count(node) / max(len(nodes), 1)
        return 1 - math.exp(-here * here / 8100)

    def late() -> float:
        """The share of all calls."""
        nodes = [str(pod["spec"].get("nodeName")) for pod in pods(lab.world, namespace, name)]
        return sum(map(collide, nodes)) / max(len(nodes), 1)

    def check(container: Container) -> Problem | None:
        """A probe is answered once the app has asked out there."""
        return flaky.probe(container, collide(container.pod["spec"]["nodeName"]), LATE)

    async def grow() -> None:
        while calls[0] < most:
            calls[0] += 20
            await asyncio.sleep(1)

    most = lab.rng.choice((320.0, 360.0, 400.0))
    tries = lambda container: collide(container.pod["spec"]["nodeName"]) * TRIED_AGAIN_SECONDS  # noqa: E731
    await lab.app(namespace, name, like=App("", abroad=(host,), check=check, latency=tries), replicas=5)
    summary = f"one of ten answers of {namespace}/{name} takes more than a second"
    lab.alert("HTTPRequestLatencyHigh", lambda: late() > 0.1, summary, 6, namespace=namespace, deployment=name)
    yield
    lab.start(grow())


@family(
    "At the height of the season proxies hold more connections than ever: where two of them share a node, the kernel's"
    " table of connections is full, and new ones of whatever runs there are dropped.",
    culprit=False,
    joined=10,
)
async def conntrack_full(lab: Lab) -> AsyncIterator[None]:
    """As loveholidays tells of its proxies."""
    name = lab.rng.choice(("haproxy", "edge-proxy", "offers-proxy"))
    flaky, table, usual = Flaky(lab.kubelets.rng), 65_536.0, 400.0
    held = [12_000.0]  # by each of the proxies

    def dropped(node: str) -> float:
        """The share of the connections of a node that find no place in its table."""
        here = [one for one in lab.world["Pod"].values() if one["spec"].get("nodeName") == node]
        proxies: int = sum(one["metadata"].get("labels", {}).get("app.kubernetes.io/name") == name for one in here)
        return max(0.0, 1 - table / (proxies * held[0] + usual * len(here) + 1))

    def failing() -> float:
        """The share of all connections of the proxies."""
        nodes = [str(pod["spec"].get("nodeName")) for pod in pods(lab.world, "platform", name)]
        return sum(map(dropped, nodes)) / max(len(nodes), 1)

    def check(container: Container) -> Problem | None:
        """A probe is a connection as well."""
        return flaky.probe(container, dropped(container.pod["spec"]["nodeName"]), DROPPED)

    async def grow() -> None:
        while held[0] < most:
            held[0] += 3_000
            await asyncio.sleep(1)

    most, upstreams = lab.rng.choice((50_000.0, 56_000.0, 60_000.0)), (("shop", "catalog"), ("search", "query"))
    lab.reserve("shop", "catalog")
    lab.reserve("search", "query")
    await lab.app("platform", name, like=App("", upstreams=upstreams), replicas=8)
    for app in lab.apps.values():
        if not app.program:  # a controller has a connection that lasts
            app.check = check
            app.failing = lambda container: dropped(container.pod["spec"]["nodeName"])
    summary = f"more than a tenth of the calls through platform/{name} fail"
    lab.alert("HTTPErrorRateHigh", lambda: failing() > 0.1, summary, 6, namespace="platform", deployment=name)
    yield
    lab.start(grow())
