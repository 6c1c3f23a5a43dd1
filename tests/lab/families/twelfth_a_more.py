"""Room that is counted twice, series that are counted for ever, and a version that needs more of it than the last."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import datetime

from tests.lab import objects
from tests.lab.api import Json, now, path
from tests.lab.apps import App, Process
from tests.lab.families.moving import spare
from tests.lab.lab import Lab
from tests.lab.programs import every
from tests.lab.scenario import family

WORKSPACES, IMAGE = "workspaces", "registry.corp.example/workspaces/editor"
MEMORY = "15Gi"
"""What each workspace asks for: four fit on a node."""
FEW, MANY = 4, 12
"""Workspaces that are open at once: on an ordinary day, and when all nodes of the pool are full."""
OPEN_SECONDS, COUNTED_SECONDS = 10.0, 5.0
"""For how long one is open, and a kubelet counts it afterwards."""


@dataclass
class Opened:
    """Opens so many workspaces for users as want one, and closes each after a while."""

    wanted: int = 0
    failed: int = 0

    async def work(self, process: Process) -> None:
        where = path("Pod", WORKSPACES)
        listed = await process.api.call("GET", where)
        if not listed.ok:
            return
        there = [pod for pod in listed.body["items"] if "deletionTimestamp" not in pod["metadata"]]
        over = [pod for pod in there if pod["status"]["phase"] == "Failed" or _age(pod) > OPEN_SECONDS]
        self.failed += sum(pod["status"]["phase"] == "Failed" for pod in over)
        for pod in over:
            await process.api.call("DELETE", f"{where}/{pod['metadata']['name']}")
        for _ in range(self.wanted - len(there) + len(over)):
            await process.api.call("POST", where, _workspace(f"ws-{process.rng.randrange(16**8):08x}"))


def _age(pod: Json) -> float:
    return (now() - datetime.fromisoformat(pod["metadata"]["creationTimestamp"])).total_seconds()


def _workspace(name: str) -> Json:
    made = objects.deployment(WORKSPACES, name, f"{IMAGE}:2022.2", nodeSelector={"pool": "workspaces"})
    spec: Json = made["spec"]["template"]["spec"]
    spec["containers"][0]["name"] = "workspace"
    spec["containers"][0]["resources"] = {"requests": {"cpu": "1", "memory": MEMORY}, "limits": {"memory": MEMORY}}
    return {"metadata": {"name": name, "labels": {"component": "workspace"}}, "spec": spec}


@family(
    "As many users open workspaces as their nodes have room for, and each place is taken again at once. The scheduler"
    " gives it away when a workspace has ended, and the kubelet, which counts it for a while still, refuses the next.",
    culprit=False,
    joined=14,
)
async def ended_counted(lab: Lab) -> AsyncIterator[None]:
    """As users of Gitpod tell of January to April 2022 (gitpod 8463, 8238 and 9259)."""
    for node in spare(lab, 3):
        await lab.edit("admin", "Node", "", node, {"metadata": {"labels": {"pool": "workspaces"}}})
    lab.outside.counted_seconds = COUNTED_SECONDS
    lab.apps[IMAGE] = App(IMAGE)
    await lab.namespace(WORKSPACES)
    manager, general = Opened(), {"pool": "general"}
    rule = ("", "pods", "get,list,create,delete")
    await lab.controller("platform", "ws-manager", every(0.7, manager.work), rule, replicas=1, nodeSelector=general)
    failing = lab.rate(lambda: manager.failed, 0.3, seconds=8)
    summary = "workspaces fail to start"
    lab.alert("WorkspaceFailedStarts", failing, summary, 4, namespace=WORKSPACES, service="ws-manager")

    async def open_soon() -> None:
        await lab.pause(6)
        manager.wanted = FEW

    async def come() -> None:
        """More and more users, as on every morning of a new term."""
        while manager.wanted < MANY:
            manager.wanted += 1
            await lab.pause(1.5)

    lab.start(open_soon())
    yield
    lab.start(come())


CLAIMS, HEAD_SECONDS, REPLAY_SECONDS = 36, 60.0, 2.0
"""Volumes of the company, for how long what is gone is kept in memory, and until an old state is read again."""
MIB_BY_KIND = {"Pod": 5.0, "Job": 8.0, "PersistentVolumeClaim": 10.0}
"""What the series of one object take."""
LIMIT_MIB, BASE_MIB = 2000.0, 700.0
