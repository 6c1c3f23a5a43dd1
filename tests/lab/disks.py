"""What a kubelet does for its node's disk: who has more there than it may goes, and once it is full who used most.

Each is told how much that was. Its words: pkg/kubelet/eviction of Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from zlib import crc32

from tests.lab.api import Json, World, now
from tests.lab.apps import Outside, mebibytes
from tests.lab.manifests import uid_of
from tests.lab.sandboxes import Sandbox
from tests.lab.statuses import Statuses, node_conditions

FULL = "The node was low on resource: ephemeral-storage. Threshold quantity: 10Gi, available: 9Gi. "
EVICT_SECONDS = 3.0
"""Between two evictions of a node whose disk is full."""


class Disks:
    """Those of every node."""

    def __init__(self, world: World, pods: Mapping[str, Sandbox], statuses: Statuses, outside: Outside) -> None:
        self._world, self._pods, self._statuses, self._outside = world, pods, statuses, outside
        self._next: dict[str, datetime] = {}  # when a node without room evicts the next pod

    async def look(self, node: str) -> None:
        """Evict whoever has more than it may, and one pod after another of a node whose disk is full."""
        here = [one for one in self._world["Pod"].values() if one["spec"].get("nodeName") == node]
        for pod in here:
            if (why := excess(pod, self._outside.written)) and self._may_go(pod):
                await self._evict(node, pod, why)
        if node in self._outside.full_disks:
            await self._relieve(node, here)

    async def _relieve(self, node: str, here: Iterable[Json]) -> None:
        """That it is full is told once; pods of DaemonSets stay."""
        if node not in self._next:
            if not await self._statuses.tell_node(node, node_conditions(disk_is_full=True)):
                return
        elif now() < self._next[node]:
            return
        self._next[node] = now() + timedelta(seconds=EVICT_SECONDS)
        for pod in by_use(here, self._outside.written):
            kept = any(owner["kind"] == "DaemonSet" for owner in pod["metadata"].get("ownerReferences", ()))
            if not kept and self._may_go(pod):
                await self._evict(node, pod, words(pod, self._outside.written))
                return

    def _may_go(self, pod: Json) -> bool:
        sandbox = self._pods.get(uid_of(pod))
        return sandbox is not None and sandbox.phase != "gone" and "deletionTimestamp" not in pod["metadata"]

    async def _evict(self, node: str, pod: Json, why: str) -> None:
        """As a kubelet does for room of its own: the pod has failed, whoever owns it makes another one."""
        sandbox = self._pods[uid_of(pod)]
        if sandbox.task:
            sandbox.task.cancel()
        await self._statuses.evict(node, pod, why)
        sandbox.phase = "gone"


def kibibytes(pod: Json, written: Mapping[str, float]) -> int:
    """What a pod has on its node's disk: what it wrote, in MiB by uid, beside the few files that each has."""
    uid = pod["metadata"]["uid"]
    return int(written.get(uid, 0) * 1024) + 40 + crc32(uid.encode()) % 900


def by_use(pods: Iterable[Json], written: Mapping[str, float]) -> list[Json]:
    """The order in which pods that ask for no room of their own are evicted."""
    return sorted(pods, key=lambda pod: -kibibytes(pod, written))


def words(pod: Json, written: Mapping[str, float]) -> str:
    """Why a pod is evicted."""
    name = pod["spec"]["containers"][0]["name"]
    used = f"was using {kibibytes(pod, written)}Ki, request is 0, has larger consumption of ephemeral-storage"
    return f"{FULL}Container {name} {used}. "


def excess(pod: Json, written: Mapping[str, float]) -> str:
    """Why a pod may not go on that has written more than one of its limits says; "" where it has not.

    What it wrote is taken to be in the one volume of its own that has a size.
    """
    used = written.get(uid_of(pod), 0)
    for volume in pod["spec"].get("volumes", ()):
        most = (volume.get("emptyDir") or {}).get("sizeLimit")
        if most and used > mebibytes(most):
            return f'Usage of EmptyDir volume "{volume["name"]}" exceeds the limit "{most}". '
    for container in pod["spec"]["containers"][:1]:
        most = container.get("resources", {}).get("limits", {}).get("ephemeral-storage")
        if most and used > mebibytes(most):
            return f'Container {container["name"]} exceeded its local ephemeral storage limit "{most}". '
    return ""
