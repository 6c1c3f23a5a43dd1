"""Incidents without a culprit among the changes: a node that nobody reaches, and that always has room."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator

from tests.lab import objects
from tests.lab.alerts import pods
from tests.lab.api import Json, now, path
from tests.lab.apps import App, Process
from tests.lab.families.moving import spare
from tests.lab.lab import Lab
from tests.lab.manifests import is_ready
from tests.lab.scenario import family

NAMESPACE, IMAGE = "binder", "registry.corp.example/binder/singleuser"
ARRIVE_SECONDS, STAY_SECONDS, START_SECONDS = 1.8, 24.0, 5.0
"""Between two users, for how long one stays, and for how long a hub waits until it reaches the pod it started."""
FAILED = 0.3
"""The share of launches that fail from which on somebody is told."""


@family(
    "One node's network loses what goes to other nodes, on a day with many users: notebooks that start there are never"
    " reached and given up, so it is always the emptiest, and the scheduler puts the next ones there again.",
    culprit=False,
    joined=18,
)
async def emptiest_node(lab: Lab) -> AsyncIterator[None]:
    """As mybinder.org tells of 18 January 2018 (mybinder.org-deploy 291)."""
    launches: Counter[str] = Counter()
    lately: list[tuple[float, str]] = []

    async def hub(process: Process) -> None:
        async with asyncio.TaskGroup() as group:
            while True:
                await asyncio.sleep(ARRIVE_SECONDS * process.rng.uniform(0.7, 1.3))
                group.create_task(serve(process, f"jupyter-{process.rng.randrange(16**6):06x}"))

    async def serve(process: Process, name: str) -> None:
        """A user comes, and goes after a while; a pod that is not reached in time is given up."""
        where = path("Pod", NAMESPACE, name)
        if not (await process.api.call("POST", path("Pod", NAMESPACE), _notebook(name))).ok:
            return
        outcome, began = "failure", now()
        while outcome == "failure" and (now() - began).total_seconds() < START_SECONDS:
            await asyncio.sleep(0.5)
            found = await process.api.call("GET", where)
            outcome = "success" if found.ok and is_ready(found.body) else outcome
        launches[outcome] += 1
        lately.append((now().timestamp(), outcome))
        if outcome == "success":
            await asyncio.sleep(STAY_SECONDS * process.rng.uniform(0.6, 1.4))
        await process.api.call("DELETE", where)

    def fail() -> bool:
        """Of those of the last while, too many."""
        told = [outcome for at, outcome in lately if at > now().timestamp() - 12]
        return told.count("failure") > FAILED * max(6, len(told))

    nodes = spare(lab, 4)
    hubs, users = nodes[0], nodes[1:]
    await lab.edit("admin", "Node", "", hubs, {"metadata": {"labels": {"pool": "core"}}})
    for node in users:
        await lab.edit("admin", "Node", "", node, {"metadata": {"labels": {"pool": "users"}}})
    await lab.namespace(NAMESPACE)
    lab.apps[IMAGE] = App(IMAGE, upstreams=((NAMESPACE, "hub"),), serves=False)
    rule = ("", "pods", "get,list,watch,create,delete")
    await lab.controller(NAMESPACE, "hub", hub, rule, replicas=1, nodeSelector={"pool": "core"})
    for outcome in ("success", "failure"):
        count = lambda outcome=outcome: float(launches[outcome])  # noqa: E731
        lab.measure("launches_total", count, "counter", namespace=NAMESPACE, service="hub", status=outcome)
    lab.alert("LaunchesFailing", fail, f"more than {FAILED:.0%} of all launches fail", 4, namespace=NAMESPACE)
    await lab.until(lambda: any(map(is_ready, pods(lab.world, NAMESPACE, "hub"))))
    await lab.until(lambda: launches["success"] > 8)
    yield
    lab.outside.cut_off.add(lab.rng.choice(users))


def _notebook(name: str) -> Json:
    made: Json = objects.deployment(NAMESPACE, name, f"{IMAGE}:2.0.0", nodeSelector={"pool": "users"})
    pod: Json = {"metadata": {"name": name, "labels": {"component": "singleuser-server"}}}
    pod["spec"] = made["spec"]["template"]["spec"]
    container = pod["spec"]["containers"][0]
    container["name"] = "notebook"
    container["resources"] = {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"memory": "2Gi"}}
    return pod
