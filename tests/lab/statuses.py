"""What kubelets tell: the words of statuses and events, and how often they ask the API server to take a status."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from datetime import datetime

from tests.lab.api import Caller, Json, now, path, stamp
from tests.lab.apps import Outside
from tests.lab.manifests import gates, is_let_through, place

LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"


class Statuses:
    """Where kubelets may ask only so often, the newest status of each pod waits for its turn."""

    def __init__(self, callers: Mapping[str, Caller], outside: Outside) -> None:
        self._callers, self._outside = callers, outside
        self._waiting: dict[str, dict[str, Json]] = defaultdict(dict)  # by node and the pod's path
        self._left: dict[str, tuple[float, datetime]] = {}  # what a kubelet may still ask for, and as of when

    async def tell(self, node: str, pod: Json, status: Json) -> bool:
        """Write it now, or as soon as it may; whether it was taken, as far as is known."""
        if self._outside.kubelet_qps is None:
            told = await self._callers[node].call("PATCH", f"{place(pod)}/status", {"status": status})
            return told.ok
        self._waiting[node][place(pod)] = {"metadata": {"uid": pod["metadata"]["uid"]}, "status": status}
        return True

    async def drain(self, node: str) -> None:
        """Write what waits, the longest waiting first, as far as its turn has come."""
        waiting = self._waiting[node]
        while waiting and self.may_ask(node):
            where = next(iter(waiting))
            await self._callers[node].call("PATCH", f"{where}/status", waiting.pop(where))

    def may_ask(self, node: str) -> bool:
        """Whether a kubelet may ask for something just now; it counts as asked."""
        limit = self._outside.kubelet_qps
        if limit is None:
            return True
        left, since = self._left.get(node, (limit, now()))
        left = min(limit, left + limit * (now() - since).total_seconds())
        self._left[node] = left - (left >= 1), now()
        return left >= 1

    async def reject(self, node: str, pod: Json, reason: str, message: str) -> None:
        """A pod that is not taken on has failed, for ever."""
        status = {"phase": "Failed", "reason": reason, "message": f"Pod was rejected: {message}"}
        await self._callers[node].call("PATCH", f"{place(pod)}/status", {"status": status})
        about = {"kind": "Pod", **{key: pod["metadata"][key] for key in ("namespace", "name", "uid")}}
        await self.warn(node, about, reason, message)

    async def evict(self, node: str, pod: Json, message: str) -> None:
        """A pod has failed whose node's disk it has to leave."""
        not_ready = [{"type": "Ready", "status": "False", "reason": "PodFailed", "lastTransitionTime": second()}]
        status = {"phase": "Failed", "reason": "Evicted", "message": message, "conditions": not_ready}
        await self._callers[node].call("PATCH", f"{place(pod)}/status", {"status": status})
        about = {"kind": "Pod", **{key: pod["metadata"][key] for key in ("namespace", "name", "uid")}}
        await self.warn(node, about, "Evicted", message)

    async def tell_node(self, node: str, conditions: list[Json]) -> bool:
        """How a node is; whether it was taken."""
        where = f"{path('Node', None, node)}/status"
        told = await self._callers[node].call("PATCH", where, {"status": {"conditions": conditions}})
        return told.ok

    async def renew(self, node: str) -> None:
        """Its lease, by which it is known to be there."""
        renewed = now().strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        spec = {"holderIdentity": node, "leaseDurationSeconds": 40, "renewTime": renewed}
        told = await self._callers[node].call("PATCH", f"{LEASES}/{node}", {"spec": spec})
        if told.status == 404:
            await self._callers[node].call("POST", LEASES, {"metadata": {"name": node}, "spec": spec})

    async def warn(self, node: str, about: Json, reason: str, message: str) -> None:
        """An event of a kubelet; of what has no namespace in that of the cluster's own."""
        namespace = about.get("namespace", "default")
        event = {
            "metadata": {"generateName": f"{about['name']}."},
            "involvedObject": {"apiVersion": "v1", **about},
            "type": "Warning",
            "reason": reason,
            "message": message,
            "count": 1,
            "firstTimestamp": second(),
            "lastTimestamp": second(),
            "source": {"component": "kubelet", "host": node},
        }
        await self._callers[node].call("POST", path("Event", namespace), event)

    async def tell_out_of_memory(self, node: str, process: str, pid: int) -> None:
        """What the kernel of a node said of whom it ended."""
        await self.warn_of_node(node, "SystemOOM", f"System OOM encountered, victim process: {process}, pid: {pid}")

    async def warn_of_node(self, node: str, reason: str, message: str) -> None:
        """An event of a kubelet on its own node."""
        await self.warn(node, {"kind": "Node", "name": node, "uid": node}, reason, message)


def node_conditions(*, disk_is_full: bool = False, stalled: str = "") -> list[Json]:
    """What a kubelet says of its node; ``stalled`` is why it is not ready."""
    ready = ("False", "KubeletNotReady") if stalled else ("True", "KubeletReady")
    disk = ("True", "KubeletHasDiskPressure") if disk_is_full else ("False", "KubeletHasNoDiskPressure")
    return [
        {
            "type": kind,
            "status": value,
            "reason": reason,
            **({"message": stalled} if stalled and kind == "Ready" else {}),
            "lastTransitionTime": second(),
            "lastHeartbeatTime": second(),
        }
        for kind, value, reason in (
            ("Ready", *ready),
            ("MemoryPressure", "False", "KubeletHasSufficientMemory"),
            ("DiskPressure", *disk),
        )
    ]


def pod_status(
    pod: Json, container: Json, index: int, restarts: Mapping[int, int], *, phase: str, address: str
) -> Json:
    """What a kubelet says of a pod; ``container`` is that one of its containers, the others are well once it runs."""
    is_up = "True" if container.get("ready") else "False"
    is_ready = is_up if is_let_through(pod) else "False"
    conditions = (("PodScheduled", "True"), ("Initialized", "True"), ("ContainersReady", is_up), ("Ready", is_ready))
    beside = {"state": {"running": {"startedAt": second()}}, "ready": True, "started": True}
    others = beside if phase == "Running" else container
    told = [
        {
            "name": one["name"],
            "image": one["image"],
            "imageID": "",
            "restartCount": restarts[number],
            "ready": False,
            **(container if number == index else others),
        }
        for number, one in enumerate(pod["spec"]["containers"])
    ]
    return {
        "phase": phase,
        "conditions": [
            *({"type": kind, "status": value, "lastTransitionTime": second()} for kind, value in conditions),
            *(one for one in gates(pod) if "lastTransitionTime" in one),  # what others have said stays
        ],
        "containerStatuses": told,
        "podIP": address,
        "podIPs": [{"ip": address}],
        "startTime": second(),
    }


def waiting(reason: str, message: str) -> Json:
    """Of a container that is not started."""
    return {"state": {"waiting": {"reason": reason, "message": message}}}


def done() -> Json:
    """Of a container whose work is done."""
    ended = {"exitCode": 0, "reason": "Completed", "startedAt": second(), "finishedAt": second()}
    return {"state": {"terminated": ended}, "ready": False}


def second() -> str:
    return stamp(now())[:19] + "Z"
