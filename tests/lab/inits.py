"""Init containers: each has to be done before the next one starts, and all of them before what the pod is for."""

from __future__ import annotations

import re
from datetime import timedelta

from tests.lab.api import Json, World, now
from tests.lab.network import unreachable
from tests.lab.sandboxes import Sandbox
from tests.lab.statuses import Statuses, done, second, waiting

LOOKS_UP = re.compile(r"until nslookup ([\w-]+)(?:\.([\w-]+))?[\w.-]*;")
"""What a shell does that waits for a name of the cluster; an init container that does nothing of the kind is done."""
SLEEPS_SECONDS = 2.0


async def are_done(world: World, statuses: Statuses, node: str, pod: Json, sandbox: Sandbox) -> bool:
    """Whether all init containers of a pod are; where one is not, its kubelet tells so, and looks again later."""
    listed = pod["spec"].get("initContainers", ())
    first = next((number for number, one in enumerate(listed) if awaits(world, pod, one)), len(listed))
    if sandbox.said != (said := f"{first} of {len(listed)} done") and listed:
        sandbox.said = said
        await statuses.tell(node, pod, _status(pod, first))
    if first < len(listed):
        sandbox.again = now() + timedelta(seconds=SLEEPS_SECONDS)
    return first == len(listed)


def awaits(world: World, pod: Json, container: Json) -> str:
    """What a container waits for that is not found, as it would be told; or ""."""
    found = LOOKS_UP.search(" ".join([*container.get("command", ()), *container.get("args", ())]))
    if found is None:
        return ""
    trouble = unreachable(world, pod, found[2] or pod["metadata"]["namespace"], found[1])
    return trouble if trouble.startswith("lookup ") else ""


def _status(pod: Json, first: int) -> Json:
    """So many init containers are done, and the next one runs."""
    listed = pod["spec"]["initContainers"]
    running = {"state": {"running": {"startedAt": second()}}, "ready": False, "started": True}
    later = waiting("PodInitializing", "")
    told = [
        {"name": one["name"], "image": one["image"], "imageID": "", "restartCount": 0, "ready": False}
        | (done() | {"ready": True} if number < first else running if number == first else later)
        for number, one in enumerate(listed)
    ]
    left = " ".join(one["name"] for one in listed[first:])
    why = {"reason": "ContainersNotInitialized", "message": f"containers with incomplete status: [{left}]"}
    is_through = {"type": "Initialized", "status": "False" if left else "True", **(why if left else {})}
    conditions = [is_through, *({"type": kind, "status": "False"} for kind in ("ContainersReady", "Ready"))]
    scheduled = {"type": "PodScheduled", "status": "True"}
    return {
        "phase": "Pending",
        "conditions": [{**one, "lastTransitionTime": second()} for one in (scheduled, *conditions)],
        "initContainerStatuses": told,
        "containerStatuses": [
            {"name": one["name"], "image": one["image"], "imageID": "", "restartCount": 0, "ready": False, **later}
            for one in pod["spec"]["containers"]
        ],
        "startTime": second(),
    }
