"""Incidents without a culprit among the changes: what was long in coming, and what stays when its cause has gone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from tests.lab.alerts import pods
from tests.lab.apps import App
from tests.lab.lab import NODES, Lab
from tests.lab.manifests import is_ready
from tests.lab.scenario import family

CALLERS = (("shop", "frontend"), ("shop", "cart"), ("payments", "checkout"), ("search", "query"))
USUAL, RETRY_SECONDS = 20.0, 2.0


@family(
    "The certificates of the kubelets of two nodes, made on the same day a year ago and never renewed, are over: what"
    " they run goes on, but they are unauthorized, and their nodes are called lost.",
    culprit=False,
    joined=6,
)
async def kubelet_certificate(lab: Lab) -> AsyncIterator[None]:
    for place in CALLERS:
        lab.reserve(*place)
        lab.alert_lacking(*place)
    yield
    pod = lab.rng.choice(pods(lab.world, *lab.rng.choice(CALLERS)))
    first = NODES.index(pod["spec"]["nodeName"]) // 2 * 2
    for node in NODES[first : first + 2]:
        lab.kubelets.expire(node)


@family(
    "A carrier loses a line for some seconds, and all devices that were connected try again at once, and go on trying:"
    " the line is back, but what takes their sessions does not get up any more.",
    culprit=False,
    joined=6,
)
async def reconnect_storm(lab: Lab) -> AsyncIterator[None]:
    namespace, name = lab.rng.choice((("media", "live"), ("shop", "notifications"), ("payments", "terminals")))
    app = await lab.app(namespace, name, like=App("", capacity=50, load=USUAL), replicas=4)
    devices, waiting, line_is_up = lab.rng.choice((1500, 2000, 3000)), [0], [True]

    async def connect() -> None:
        """Who waits tries now and then. More than can be served at once get no answer in time, and wait on."""
        while True:
            await asyncio.sleep(1)
            trying = waiting[0] / RETRY_SECONDS
            app.load = USUAL + trying if line_is_up[0] else 0.0
            ready = sum(is_ready(pod) for pod in pods(lab.world, namespace, name))
            if line_is_up[0] and app.load <= ready * app.capacity:
                waiting[0] = max(0, waiting[0] - int(trying) - 1)

    lab.alert_lacking(namespace, name)
    lab.start(connect())
    yield
    waiting[0], line_is_up[0] = devices, False
    await lab.pause(4)
    line_is_up[0] = True
