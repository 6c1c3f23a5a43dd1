"""Incidents without a culprit among the changes: what grows until the network of a node, or the DNS, has no more."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

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
DROPPED = "probe failed: dial tcp :8080: i/o timeout (Client.Timeout exceeded while awaiting headers)"


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
