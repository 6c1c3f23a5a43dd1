"""What a mesh does between apps: how often it tries again, to which version it sends, where it puts its proxy."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator

from tests.lab.alerts import pods
from tests.lab.api import Json
from tests.lab.apps import App
from tests.lab.families.loops import LOOSE
from tests.lab.lab import Lab
from tests.lab.scenario import family

FAILING_SHARE = 0.25
"""Of its calls that may fail before an app gives up."""
RUN_SECONDS = 12.0
"""Longer than any run of a Job takes."""
STEP_SECONDS, STEP_SHARE = 0.5, 0.4
"""How fast load becomes what is asked for: callers find out one by one that they have to try again."""
FULL = 0.03
"""The least share of its capacity that counts as free, so that nobody waits for ever."""


def tries(late: float, retries: int) -> float:
    """How often a call is made in the mean, where so large a share of the answers is late."""
    return sum(late**number for number in range(retries + 1))


def too_late(load: float, capacity: float, takes: float, timeout: float) -> float:
    """The share of the answers that take longer than a try may; ``takes`` are seconds of an answer of an idle app."""
    return math.exp(-timeout * max(1 - load / capacity, FULL) / takes)


@family(
    "A policy of retries has each try end sooner and makes more of them, to be rid of the few slow answers: every late"
    " one is asked for again, which makes the next ones late, until the app that is called has many times its load.",
    joined=9,
)
async def retry_policy(lab: Lab) -> AsyncIterator[None]:
    namespace, called, caller = lab.rng.choice(
        (("shop", "stock", "basket"), ("payments", "fraud", "authorisation"), ("search", "ranking", "results"))
    )
    group, name = "gateway.envoyproxy.io", f"{called}-resilience"
    policy = await lab.custom("BackendTrafficPolicy", group, LOOSE)
    app = await lab.app(namespace, called, like=App("", load=150), replicas=3)
    await lab.app(namespace, caller, like=App("", upstreams=((namespace, called),)), replicas=3)
    calls = app.load

    async def traffic() -> None:
        while True:
            await asyncio.sleep(STEP_SECONDS)
            found = lab.world["BackendTrafficPolicy"].get((namespace, name))
            running = [one for one in pods(lab.world, namespace, called) if one["status"].get("phase") == "Running"]
            if not found or not running:
                continue
            retry = found["spec"]["retry"]
            timeout = int(retry["perRetry"]["timeout"].removesuffix("ms")) / 1000
            late = too_late(app.load, app.capacity * len(running), 0.06, timeout)
            app.load += STEP_SHARE * (calls * tries(late, retry["numRetries"]) - app.load)

    await lab.served(policy)
    target = {"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "name": called}
    spec: Json = {"targetRefs": [target], "retry": {"numRetries": 2, "perRetry": {"timeout": "800ms"}}}
    meta = {"namespace": namespace, "name": name}
    await lab.apply({"apiVersion": f"{group}/v1", "kind": "BackendTrafficPolicy", "metadata": meta, "spec": spec})
    lab.start(traffic())
    lab.alert_lacking(namespace, called)
    yield
    retry = {"numRetries": lab.rng.choice((5, 6, 8)), "perRetry": {"timeout": lab.rng.choice(("100ms", "150ms"))}}
    by = lab.rng.choice(("alice", "argocd"))
    await lab.culprit(by, "update", "BackendTrafficPolicy", namespace, name, {"spec": {"retry": retry}})
