"""Incidents without a culprit among the changes: a clock that drifts, and a partner that takes its time."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime

from tests.lab.alerts import pods, restarts
from tests.lab.api import Json, now
from tests.lab.apps import App, Container, Problem
from tests.lab.lab import NODES, Lab
from tests.lab.scenario import family

WORKERS_FILL_SECONDS = 6.0
"""After its start, until each of a process's workers waits for somebody who does not answer."""


@family(
    "The clocks of a rack drift, since its time server is gone: what its pods sign is too old for the object store"
    " outside of the cluster.",
    culprit=False,
    joined=8,
)
async def clock_drift(lab: Lab) -> AsyncIterator[None]:
    drifted: set[str] = set()

    def check(container: Container) -> Problem | None:
        if container.pod["spec"].get("nodeName") not in drifted:
            return None
        return Problem("unready", "probe failed: HTTP probe failed with statuscode: 503 (403 RequestTimeTooSkewed)")

    callers = (("media", "originals"), ("payments", "statements"), ("search", "snapshots"))
    for namespace, name in callers:
        await lab.app(namespace, name, like=App("", check=check), replicas=3)
        lab.alert_lacking(namespace, name)
    yield
    pod = lab.rng.choice(pods(lab.world, *lab.rng.choice(callers)))
    racks = NODES[:2], NODES[2:4], NODES[4:]
    [rack] = [one for one in racks if pod["spec"]["nodeName"] in one]
    drifted.update(rack)


@family(
    "A partner outside of the cluster answers in minutes where it took milliseconds: all workers of an app wait for it,"
    " nobody answers the liveness probe, and it is killed again and again.",
    culprit=False,
    joined=8,
)
async def slow_partner(lab: Lab) -> AsyncIterator[None]:
    namespace, name, partner = lab.rng.choice(
        (
            ("shop", "shipping-rates", "rates.carrier.example"),
            ("payments", "credit-check", "scores.bureau.example"),
            ("media", "geolocation", "lookup.maps.example"),
        )
    )
    began: list[datetime] = []

    def check(container: Container) -> Problem | None:
        if partner not in lab.outside.broken or "livenessProbe" not in container.spec:
            return None
        waited = min(container.seconds, (now() - began[0]).total_seconds())
        share = int(container.pod["metadata"]["uid"][:2], 16) / 255  # some get more of the calls than others
        message = "probe failed: context deadline exceeded (Client.Timeout exceeded while awaiting headers)"
        return Problem("killed", message) if waited > WORKERS_FILL_SECONDS * (1 + share) else None

    alive: Json = {"httpGet": {"path": "/healthz", "port": 8080}, "periodSeconds": 1}
    await lab.app(namespace, name, like=App("", check=check), replicas=3, liveness=alive)
    holds = lambda: restarts(lab.world, namespace, name) >= 3  # noqa: E731
    lab.alert("KubePodRestarting", holds, f"pods of {name} restart", 3, namespace=namespace, deployment=name)
    yield
    began.append(now())
    lab.outside.broken[partner] = "answers after 90s"
