"""What shows only once its hour has come: pods for the evening that a maximum refuses, mail that is sent at night."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from tests.lab import objects
from tests.lab.alerts import pods
from tests.lab.api import path
from tests.lab.apps import App, Container, Process
from tests.lab.lab import Lab
from tests.lab.manifests import is_ready
from tests.lab.programs import every
from tests.lab.scenario import family

STEP_SECONDS, STEP_SHARE = 0.5, 0.12
"""How fast the evening comes."""


@family(
    "The most memory that a container may have in a namespace is cut below what an app asks for, to have nobody ask for"
    " too much: what runs goes on, and none of the further pods that it gets each evening is let in.",
    joined=20,
)
async def memory_maximum(lab: Lab) -> AsyncIterator[None]:
    """Nobody told this one: it is the plainest that there is."""
    namespace, name = lab.rng.choice((("shop", "offers"), ("media", "livestream"), ("search", "trending")))
    scaler, schedule = "schedule-scaler", f"{name}-schedule"
    by_day, by_night, each = 3, lab.rng.choice((7, 8)), 60.0
    calm, busy = 100.0, lab.rng.choice((300.0, 330.0, 360.0))
    asked, is_evening = [calm], asyncio.Event()

    def overload(_: Container) -> float:
        ready = sum(is_ready(pod) for pod in pods(lab.world, namespace, name))
        return max(0.0, 1 - each * max(1, ready) / asked[0])

    async def users() -> None:
        while True:
            await asyncio.sleep(STEP_SECONDS)
            asked[0] += STEP_SHARE * ((busy if is_evening.is_set() else calm) - asked[0])

    async def scale(process: Process) -> None:
        """By the clock: so many in the evening, so many else."""
        told = (await process.api.call("GET", path("ConfigMap", namespace, schedule))).body.get("data", {})
        where = f"{path('Deployment', namespace, name)}/scale"
        found = await process.api.call("GET", where)
        wanted = int(told["evening" if is_evening.is_set() else "else"]) if told else 0
        if found.ok and wanted and found.body["spec"]["replicas"] != wanted:
            await process.api.call("PATCH", where, {"spec": {"replicas": wanted}})

    def most(memory: str) -> list[dict[str, object]]:
        return [{"type": "Container", "max": {"memory": memory}}]

    meta = {"namespace": namespace, "name": "containers"}
    await lab.apply({"kind": "LimitRange", "metadata": meta, "spec": {"limits": most("2Gi")}})
    data = {"else": f"{by_day}", "evening": f"{by_night}"}
    await lab.apply(objects.config_map(namespace, schedule, **data))
    like = App("", capacity=2 * each, asked=lambda: asked[0], failing=overload, fails_with=lambda _: "503")
    await lab.app(namespace, name, like=like, replicas=by_day, memory="1Gi")
    rules = (("", "configmaps", "get"), ("apps", "deployments/scale", "get,patch"))
    await lab.controller("platform", scaler, every(2, scale), *rules, replicas=1)
    await lab.until(lambda: sum(is_ready(pod) for pod in pods(lab.world, namespace, name)) == by_day)
    lab.alert_errors(namespace, name)
    lab.start(users())
    yield
    by = lab.rng.choice(("carol", "flux", "alice"))
    body = {"spec": {"limits": most(lab.rng.choice(("512Mi", "768Mi")))}}
    await lab.culprit(by, "update", "LimitRange", namespace, "containers", body)
    await lab.pause(lab.rng.uniform(8, 14))
    is_evening.set()
