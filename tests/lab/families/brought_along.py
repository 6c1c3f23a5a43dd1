"""What new versions of operators bring along: one is woken by its own notes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

from tests.lab.api import Json, Key, Kind, now, path, stamp
from tests.lab.apps import Process
from tests.lab.families.databases import ANY
from tests.lab.families.load import alert_on_load
from tests.lab.lab import Lab
from tests.lab.programs import changes, lagging
from tests.lab.scenario import family

QUERIES = 20.0
"""How often a second the client of an operator lets it ask, as most are built."""
OWNED = ("ConfigMap", "ServiceAccount")
"""What an operator keeps for each of its objects."""
RESYNC_SECONDS = 30.0
"""After how long an operator looks at all of them again, whatever happened."""


@dataclass
class _Keeper:
    """An operator that looks at an object once something has told of it, and notes in its status that it has."""

    kind: Kind
    looked: int = 0

    async def run(self, process: Process) -> None:
        """For ever: those of old leave out what is no change of what somebody wants."""
        is_old = process.tag.startswith("0.12.")
        await lagging(process)
        waiting: dict[Key, Json] = {}  # in the order in which they came, each once
        known: dict[Key, int] = {}

        def told(one: Json) -> None:
            meta = one["metadata"]
            key = meta["namespace"], meta["name"]
            if not (is_old and known.get(key) == meta["generation"]):
                known[key] = meta["generation"]
                waiting[key] = one

        async with asyncio.TaskGroup() as group:
            for work in (self._look(process, waiting), changes(process, self.kind.path(), told)):
                group.create_task(work)
            group.create_task(self._resync(process, waiting))

    async def _resync(self, process: Process, waiting: dict[Key, Json]) -> None:
        """All of them, at its start and now and then."""
        while True:
            listed = await process.api.call("GET", self.kind.path())
            for one in listed.body.get("items", []):
                waiting[one["metadata"]["namespace"], one["metadata"]["name"]] = one
            await asyncio.sleep(RESYNC_SECONDS)

    async def _look(self, process: Process, waiting: dict[Key, Json]) -> None:
        while True:
            if waiting:
                await self._reconcile(process, waiting.pop(next(iter(waiting))))
            else:
                await asyncio.sleep(0.1)

    async def _reconcile(self, process: Process, one: Json) -> None:
        """What belongs to it is written as it should be, and that it is so."""
        namespace, name = one["metadata"]["namespace"], one["metadata"]["name"]
        self.looked += 1
        for kind in OWNED:
            body = {"metadata": {"name": name, "labels": {"managed-by": process.env.get("NAME", "operator")}}}
            if (await process.api.call("PATCH", path(kind, namespace, name), body)).status == 404:
                await process.api.call("POST", path(kind, namespace), body)
            await asyncio.sleep(1 / QUERIES)
        ready = {"type": "Ready", "status": "True", "lastProbeTime": f"{stamp(now())[:19]}Z"}
        status = {"observedGeneration": one["metadata"]["generation"], "conditions": [ready]}
        await process.api.call("PATCH", f"{self.kind.path(namespace, name)}/status", {"status": status})
        await asyncio.sleep(1 / QUERIES)


@family(
    "A new version of an operator no longer leaves out changes of a status: each time that it has looked at an object"
    " it notes there when, that is a change, and it looks again, without end and at all of them.",
    joined=21,
)
async def own_status(lab: Lab) -> AsyncIterator[None]:
    """As those who make KAI Scheduler tell of its operator (March 2026, KAI-Scheduler 1273)."""
    kind, name = lab.rng.choice((("Queue", "queue-operator"), ("Tenant", "tenant-operator"), ("Pool", "pool-operator")))
    group = "scheduling.corp.example"
    made = await lab.custom(kind, group, ANY)
    one = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": ANY}}
    body = {"spec": {"versions": [{**one, "subresources": {"status": {}}}]}}
    await lab.edit("admin", "CustomResourceDefinition", "", f"{made.plural}.{group}", body)
    await lab.served(made)
    for namespace in ("shop", "payments", "search", "media"):
        for size in lab.rng.sample(("batch", "nightly", "reports", "interactive"), 3):
            meta = {"namespace": namespace, "name": f"{namespace}-{size}"}
            spec = {"weight": lab.rng.randrange(1, 5)}
            await lab.apply({"apiVersion": f"{group}/v1", "kind": kind, "metadata": meta, "spec": spec})
    keeper = _Keeper(made)
    rules = (
        (group, f"{made.plural},{made.plural}/status", "get,list,watch,patch"),
        ("", "configmaps,serviceaccounts", "get,create,patch"),
    )
    env = ({"name": "NAME", "value": name},)
    await lab.controller("platform", name, keeper.run, *rules, replicas=1, tag="0.12.4", env=env)
    looked = lambda: keeper.looked  # noqa: E731
    await lab.until(lambda: keeper.looked >= len(lab.world[kind]))
    lab.measure("controller_runtime_reconcile_total", looked, "counter", namespace="platform", service=name)
    alert_on_load(lab)
    yield
    await lab.roll(lab.rng.choice(("argocd", "ci", "bob")), "platform", name, "0.13.0", culprit=True)
