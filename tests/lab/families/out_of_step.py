"""Controllers out of step with what is beside them: with what changes, with another of theirs, with labels of old."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable

import httpx2

from tests.lab.api import Json, path
from tests.lab.apps import Process
from tests.lab.families.load import alert_on_load
from tests.lab.lab import Lab
from tests.lab.programs import informer, lagging
from tests.lab.scenario import family

QUERIES = 20.0
"""How often a second the client of a controller lets it ask, as most are built."""
OWNERS = ("Pod", "ReplicaSet", "Deployment", "StatefulSet", "DaemonSet", "Job", "CronJob")
"""What is listed to find who is at the top of all that runs in a namespace."""
PUBLIC, PRIVATE = "198.51.100.7", "10.20.0.40"
"""The addresses of two load balancers: one is reached from everywhere, one from inside of the company."""
PROBED_SECONDS, MISSED = 12.0, 0.25
"""For how long a probe from outside looks back, and the share of its looks that may fail."""


async def _changes(process: Process, where: str, told: Callable[[Json], None]) -> None:
    """LIST once, then what a WATCH tells, without end."""
    while True:
        listed = await process.api.call("GET", where)
        if listed.ok:
            query = f"watch=1&resourceVersion={listed.body['metadata']['resourceVersion']}&timeoutSeconds=600"
            try:
                async with process.api.client.stream(
                    "GET", f"{where}?{query}", headers=process.api.headers, timeout=None
                ) as lines:
                    async for line in lines.aiter_lines():
                        event = json.loads(line)
                        if event["type"] in ("ADDED", "MODIFIED", "DELETED"):
                            told(event["object"])
            except httpx2.TransportError:
                pass
        await asyncio.sleep(1)


@family(
    "A new version of what advises on requests looks at all of a namespace for each change of a pod in it, to know who"
    " is at the top: a rollout, of which each pod changes many times, makes it list everything there again and again.",
    joined=20,
)
async def lists_on_change(lab: Lab) -> AsyncIterator[None]:
    """As a user of Goldilocks tells of all versions since 4.0.0 (January 2024, goldilocks 689)."""
    name = lab.rng.choice(("request-advisor", "sizing-report", "limits-advisor"))
    namespace, large = lab.rng.choice((("media", "tiles"), ("search", "shards"), ("shop", "offers")))
    watching = informer(path("Deployment"))

    async def program(process: Process) -> None:
        if process.tag.startswith("3."):
            await watching(process)
        await lagging(process)
        waiting: dict[tuple[str, str], None] = {}  # in the order in which they came, each once

        def told(pod: Json) -> None:
            waiting[pod["metadata"]["namespace"], pod["metadata"]["name"]] = None

        async def look() -> None:
            while True:
                if not waiting:
                    await asyncio.sleep(0.1)
                    continue
                home, _ = first = next(iter(waiting))
                del waiting[first]
                for kind in OWNERS:
                    await process.api.call("GET", path(kind, home))
                    await asyncio.sleep(1 / QUERIES)

        async with asyncio.TaskGroup() as group:
            group.create_task(look())
            group.create_task(_changes(process, path("Pod"), told))

    rules = (
        ("", "pods", "get,list,watch"),
        ("apps", "replicasets,deployments,statefulsets,daemonsets", "get,list,watch"),
        ("batch", "jobs,cronjobs", "get,list"),
    )
    await lab.controller("platform", name, program, *rules, replicas=1, tag="3.9.0")
    await lab.app(namespace, large, replicas=10)
    lab.reserve(namespace, large)
    alert_on_load(lab)

    async def release() -> None:
        """Of an app that has many pods, as on any day."""
        await asyncio.sleep(lab.rng.uniform(9, 15))
        await lab.roll(by, namespace, large, "1.1.0")

    yield
    by = lab.rng.choice(("ci", "argocd"))
    await lab.roll(lab.rng.choice(("argocd", "flux", "bob")), "platform", name, "4.2.0", culprit=True)
    lab.start(release())
