"""What was told of fleets: members that each know of all others, who tells them all, and who restarts them all."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from tests.lab.alerts import pods
from tests.lab.apps import App, Container
from tests.lab.lab import Lab
from tests.lab.manifests import is_ready
from tests.lab.scenario import family

MEMBERS, MORE = 12, 2
OWN_THREADS, THREADS_EACH, MOST_THREADS = 220, 64, 1024
"""What a member has for itself and for each other one, and what a process may have."""
NOTICED, USELESS = 0.12, 0.8
"""How often a member looks who the others are: a share of the seconds; what fails of it without a map of all shards."""
EDGE, EDGE_CONFIG = ("platform", "edge"), "edge-config"
LEASE_SECONDS, LOOK_SECONDS = 6, 1.5
GARBAGE_EVERY, GARBAGE_SECONDS, DROPPED = 22.0, 4.0, 0.2
"""How often a proxy with a table of old does nothing but collect garbage, for how long, and what it drops besides."""
JAVA, JAVA_SECONDS = ("login", "accounts", "sessions"), 20.0
"""Apps that take long to start."""
AT_ONCE = 100
"""On how many machines a command runs at the same time where nobody says."""


@family(
    "Each member of a fleet has a thread for every other one: a few more are added, and all of them, the old ones too,"
    " need more threads than a process may have, as soon as they notice. They do not know any more who has what.",
    joined=17,
)
async def thread_limit(lab: Lab) -> AsyncIterator[None]:
    """As Amazon tells of Kinesis (November 2020, post-mortems 149)."""
    namespace, name, callers = lab.rng.choice(
        (
            ("search", "front", (("shop", "suggest"), ("media", "related"))),
            ("media", "streams", (("shop", "activity"), ("payments", "audit"))),
            ("payments", "events", (("shop", "receipts"), ("search", "freshness"))),
        )
    )
    known: dict[str, int] = {}  # of how many members one knows, itself among them, by uid

    async def meet() -> None:
        while True:
            await asyncio.sleep(1)
            there = [pod["metadata"]["uid"] for pod in pods(lab.world, namespace, name) if is_ready(pod)]
            for uid in there:
                if uid not in known or lab.kubelets.rng.random() < NOTICED:
                    known[uid] = len(there)

    def failing(container: Container) -> float:
        """Without a thread for each other one there is no whole map, and a call goes nowhere."""
        others = known.get(container.pod["metadata"]["uid"], 1) - 1
        return USELESS if OWN_THREADS + THREADS_EACH * others > MOST_THREADS else 0.0

    await lab.app(namespace, name, like=App("", failing=failing), replicas=MEMBERS)
    lab.alert_errors(namespace, name)
    for caller in callers:
        await lab.app(*caller, like=App("", upstreams=((namespace, name),)), replicas=3)
        lab.alert_errors(*caller)
    lab.start(meet())
    yield
    by = lab.rng.choice(("alice", "ci", "flux"))
    await lab.culprit(by, "update", "Deployment", namespace, name, {"spec": {"replicas": MEMBERS + MORE}})
