"""New versions: one that asks for each object alone, one of three that undoes the others, one of a refused API."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from tests.lab.api import path
from tests.lab.apps import Process
from tests.lab.families.load import alert_on_load
from tests.lab.lab import Lab
from tests.lab.programs import both, every, informer, lagging
from tests.lab.scenario import family

OWNERS = ("ReplicaSet", "StatefulSet", "DaemonSet", "Job")
QUERIES = 20.0
"""How often a second the client of a controller lets it ask, as most are built."""
ENTRIES = {"ca.crt": "corp-root-2024", "allowed-names": "front-proxy", "username-headers": "X-Remote-User"}
MORE = {"uid-headers": "X-Remote-Uid"}
RELOAD_SECONDS, DROPPED = 5.0, 0.08
"""For how long a reload is felt, and the share of the requests that each costs meanwhile."""


@family(
    "A new version of what reports costs does without its caches, to save memory: for each pod it asks for its owner"
    " and its namespace, one by one and again at each look, and the API server gets many times the requests.",
    joined=19,
)
async def owner_lookups(lab: Lab) -> AsyncIterator[None]:
    """Nobody told this one: it is the plainest that there is."""
    name = lab.rng.choice(("cost-reporter", "usage-exporter", "chargeback"))
    watching = both(informer(path("Pod")), informer(path("ReplicaSet")), informer(path("Namespace")))

    async def look(process: Process) -> None:
        listed = await process.api.call("GET", path("Pod"))
        for pod in listed.body.get("items", []):
            namespace, owners = pod["metadata"]["namespace"], pod["metadata"].get("ownerReferences", ())
            places = [path(one["kind"], namespace, one["name"]) for one in owners if one["kind"] in OWNERS]
            for place in (*places, path("Namespace", None, namespace)):
                await process.api.call("GET", place)
                await asyncio.sleep(1 / QUERIES)

    async def program(process: Process) -> None:
        if process.tag.startswith("1."):
            await watching(process)
        await lagging(process)
        await every(1, look)(process)

    rules = (
        ("", "pods,namespaces", "get,list,watch"),
        ("apps", "replicasets,statefulsets,daemonsets", "get,list,watch"),
        ("batch", "jobs", "get"),
    )
    await lab.controller("platform", name, program, *rules, tag="1.7.2")
    alert_on_load(lab)
    yield
    await lab.roll(lab.rng.choice(("argocd", "ci", "bob")), "platform", name, "2.0.0", culprit=True)
