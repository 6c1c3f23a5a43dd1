"""What a kubelet looks at before it takes a pod on: what it asks for, what runs there, and for a while what has ended.

The scheduler counts the last no more, so it places pods that a kubelet refuses. Its words:
pkg/kubelet/lifecycle/predicate.go and pkg/kubelet/kubelet.go of Kubernetes 1.36.
"""

from __future__ import annotations

from collections import defaultdict
from datetime import datetime, timedelta

from tests.lab.api import Json, World, now
from tests.lab.apps import Outside, mebibytes
from tests.lab.statuses import Statuses
from tests.lab.sysctls import FORBIDDEN, forbidden


class Rooms:
    """The memory that pods asked for, on every node."""

    def __init__(self, world: World, outside: Outside, statuses: Statuses) -> None:
        self._world, self._outside, self._statuses = world, outside, statuses
        self._left: dict[str, list[tuple[datetime, int]]] = defaultdict(list)  # until when what is counted

    def leave(self, node: str, pod: Json) -> None:
        """A pod has ended."""
        until = now() + timedelta(seconds=self._outside.counted_seconds)
        self._left[node].append((until, _asked(pod)))

    async def admit(self, node: str, pod: Json) -> bool:
        """Whether a node's kubelet takes a pod on as it sees it first; one that is refused has failed."""
        for reason, refusal in (("OutOfmemory", self._refusal(node, pod)), (FORBIDDEN, forbidden(pod))):
            if refusal:
                await self._statuses.reject(node, pod, reason, refusal)
                return False
        return True

    def _refusal(self, node: str, pod: Json) -> str:
        """Why there is no room; or ""."""
        if not self._outside.counted_seconds:
            return ""
        self._left[node] = [one for one in self._left[node] if one[0] > now()]
        used = sum(much for _, much in self._left[node]) + sum(
            _asked(other)
            for other in self._world["Pod"].values()
            if other["spec"].get("nodeName") == node
            and other["metadata"]["uid"] != pod["metadata"]["uid"]
            and "startTime" in other.get("status", {})
            and other["status"].get("phase") not in ("Succeeded", "Failed")
        )
        capacity = _bytes(self._world["Node"]["", node]["status"]["allocatable"]["memory"])
        if used + _asked(pod) <= capacity:
            return ""
        sums = f"requested: {_asked(pod)}, used: {used}, capacity: {capacity}"
        return f"Node didn't have enough resource: memory, {sums}"


def _asked(pod: Json) -> int:
    """Bytes, by all of its containers."""
    asking = (one.get("resources", {}).get("requests", {}) for one in pod["spec"]["containers"])
    return sum(_bytes(one["memory"]) for one in asking if "memory" in one)


def _bytes(quantity: str) -> int:
    return int(mebibytes(quantity) * 2**20)
