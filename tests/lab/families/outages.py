"""Incidents without a culprit among the changes: a token's time, a wire, a leap in work."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator

from tests.lab import objects, tokens
from tests.lab.alerts import pods
from tests.lab.api import Caller, Json, now, path
from tests.lab.apps import Process
from tests.lab.families.upgrades import CALLERS
from tests.lab.lab import NODES, Lab
from tests.lab.manifests import is_ready
from tests.lab.programs import every
from tests.lab.scenario import family

LEEWAY_SECONDS = 60
"""For which kube-apiserver takes a token that is over (jwt.DefaultLeeway of go-jose)."""


@family(
    "A token that was given to an exporter outside of the cluster a year ago is over: it is unauthorized from one"
    " minute to the next.",
    culprit=False,
    joined=4,
)
async def token_expired(lab: Lab) -> AsyncIterator[None]:
    name = lab.rng.choice(("billing-export", "inventory-export", "capacity-export"))
    [rule] = lab.rng.sample((("", "pods", "list"), ("", "services", "list"), ("apps", "deployments", "list")), 1)
    await lab.apply(objects.account("platform", name))
    await lab.apply(objects.cluster_role(name, rule))
    await lab.apply(objects.binding(name, name, "platform", name))
    found = await lab.who["admin"].must("GET", path("ServiceAccount", "platform", name))
    expires = now().timestamp() + 20
    key = lab.plane.folder / "service-accounts.key"
    token = tokens.given(key, "platform", name, found.body["metadata"]["uid"], expires=expires)
    caller = Caller(lab.client, f"system:serviceaccount:platform:{name}", token, f"{name}/3.2 (outside)")
    kind = {"pods": "Pod", "services": "Service", "deployments": "Deployment"}[rule[1]]

    async def export() -> None:
        while True:
            await caller.call("GET", f"{path(kind)}?limit=20")
            await asyncio.sleep(1)

    refused = lab.rate(lambda: caller.counts[401], 0.4)
    lab.alert("ExportFailing", refused, f"{name} has not exported anything", namespace="platform", service=name)
    lab.start(export())
    yield
    await lab.pause(expires + LEEWAY_SECONDS - now().timestamp())


@family(
    "The switch of a rack loses what goes to other racks: the kubelets of its nodes are well, their pods reach nobody.",
    culprit=False,
    joined=4,
)
async def rack_switch(lab: Lab) -> AsyncIterator[None]:
    for place in CALLERS:
        lab.reserve(*place)
        lab.alert_lacking(*place)
    yield
    pod = lab.rng.choice(pods(lab.world, *lab.rng.choice(CALLERS)))
    racks = NODES[:2], NODES[2:4], NODES[4:]
    [rack] = [one for one in racks if pod["spec"]["nodeName"] in one]
    lab.outside.cut_off.update(rack)


@family(
    "A customer sends a year's pictures at once: an autoscaler scales the workers to its maximum, and the queue still"
    " grows.",
    culprit=False,
    joined=4,
)
async def queue_backlog(lab: Lab) -> AsyncIterator[None]:
    namespace, name = lab.rng.choice((("media", "encoder"), ("search", "embedder"), ("payments", "statements")))
    where = f"{path('Deployment', namespace, name)}/scale"
    arriving, waiting = [8.0], [0.0]

    async def work() -> None:
        """Every worker that is ready takes five a second."""
        while True:
            await asyncio.sleep(1)
            ready = sum(is_ready(pod) for pod in pods(lab.world, namespace, name))
            waiting[0] = max(0.0, waiting[0] + arriving[0] - 5 * ready)

    async def scale(process: Process) -> None:
        wanted = min(6, 2 + math.ceil(waiting[0] / 60))
        found = await process.api.call("GET", where)
        if found.ok and found.body["spec"]["replicas"] != wanted:
            body: Json = {"spec": {"replicas": wanted}}
            await process.api.call("PATCH", where, body)

    await lab.app(namespace, name, replicas=2)
    await lab.controller(
        "platform", "queue-scaler", every(3, scale), ("apps", "deployments/scale", "get,patch"), replicas=1
    )
    lab.measure("queue_messages_waiting", lambda: waiting[0], namespace=namespace, service=name)
    summary = f"the queue of {namespace}/{name} grows"
    lab.alert("QueueBacklogHigh", lambda: waiting[0] > 500, summary, namespace=namespace, deployment=name)
    await lab.until(lambda: sum(is_ready(pod) for pod in pods(lab.world, namespace, name)) == 2)
    lab.start(work())
    yield
    arriving[0] = lab.rng.choice((50.0, 70.0, 90.0))
