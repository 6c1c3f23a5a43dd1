"""Incidents without a culprit among the changes: a hub of notebooks that sees no pods any more."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from tests.lab import objects
from tests.lab.alerts import pending
from tests.lab.api import Json, now, path
from tests.lab.apps import App, Process
from tests.lab.families.moving import spare
from tests.lab.lab import Lab
from tests.lab.manifests import is_ready
from tests.lab.scenario import family

NAMESPACE, IMAGE = "notebooks", "registry.corp.example/notebooks/singleuser"
ARRIVE_SECONDS, STAY_SECONDS, START_SECONDS = 1.4, 7.0, 5.0
"""Between two users, for how long one stays, and for how long a hub waits until a pod is ready."""
CPU = "2"
"""What each user's pod asks for."""


@dataclass
class Hub:
    """Makes a pod for each user, and deletes it: what pods there are, it knows from its reflector alone."""

    is_reflected: bool = True
    """Whether events still come in; where they do not, its picture of the pods stays as it is."""
    seen: dict[str, bool] = field(default_factory=dict)
    """Pods by their name, and whether they are ready."""

    async def run(self, process: Process) -> None:
        self.is_reflected = True
        async with asyncio.TaskGroup() as group:
            group.create_task(self._reflect(process))
            while True:
                await asyncio.sleep(ARRIVE_SECONDS * process.rng.uniform(0.7, 1.3))
                name = f"jupyter-{process.rng.randrange(16**6):06x}"
                group.create_task(self._serve(process, name))

    async def _reflect(self, process: Process) -> None:
        while True:
            if self.is_reflected:
                listed = await process.api.call("GET", path("Pod", NAMESPACE))
                if listed.ok:
                    self.seen = {pod["metadata"]["name"]: is_ready(pod) for pod in listed.body["items"]}
            await asyncio.sleep(0.5)

    async def _serve(self, process: Process, name: str) -> None:
        """A user comes, and goes once the pod was there for a while, or did not start in time."""
        made = objects.deployment(NAMESPACE, name, f"{IMAGE}:2.0.0", nodeSelector={"pool": "users"})
        pod: Json = {"metadata": {"name": name, "labels": {"component": "singleuser-server"}}}
        pod["spec"] = made["spec"]["template"]["spec"]
        container = pod["spec"]["containers"][0]
        container["name"] = "notebook"
        container["resources"] = {"requests": {"cpu": CPU, "memory": "256Mi"}, "limits": {"memory": "512Mi"}}
        if (await process.api.call("POST", path("Pod", NAMESPACE), pod)).ok and await self._starts(name):
            await asyncio.sleep(STAY_SECONDS * process.rng.uniform(0.6, 1.4))
        if name in self.seen:  # otherwise it is taken for deleted already
            await process.api.call("DELETE", path("Pod", NAMESPACE, name))

    async def _starts(self, name: str) -> bool:
        began = now()
        while (now() - began).total_seconds() < START_SECONDS:
            if self.seen.get(name):
                return True
            await asyncio.sleep(0.3)
        return False


@family(
    "The reflector of a hub of notebooks gets no events any more: it believes that no pod starts, gives each launch up,"
    " and takes the pods that it does not see for deleted. They fill their nodes, and further ones find no room.",
    culprit=False,
    joined=13,
)
async def reflector_stops(lab: Lab) -> AsyncIterator[None]:
    """As mybinder.org tells of 8 July 2018 (mybinder.org-deploy 656)."""
    for node in spare(lab, 3):
        await lab.edit("admin", "Node", "", node, {"metadata": {"labels": {"pool": "users"}}})
    await lab.namespace(NAMESPACE)
    lab.apps[IMAGE] = App(IMAGE)
    hub, general = Hub(), {"pool": "general"}
    rule = ("", "pods", "get,list,watch,create,delete")
    await lab.controller("platform", "hub", hub.run, rule, replicas=1, nodeSelector=general)
    holds = lambda: pending(lab.world, NAMESPACE)  # noqa: E731
    lab.alert("KubePodPending", holds, f"a pod of {NAMESPACE} has had no node for a while", 8, namespace=NAMESPACE)
    await lab.until(lambda: any(hub.seen.values()))
    yield
    hub.is_reflected = False
