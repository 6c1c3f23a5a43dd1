"""What a machine does whose memory is full: it answers nobody for long, until the kernel ends whoever has most.

Where nobody has much, and all containers of a node need more than there is, ending one of them helps nobody.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from datetime import datetime, timedelta

from tests.lab.api import World, now
from tests.lab.apps import App, Outside
from tests.lab.manifests import images

ROOM_MIB = 64 * 1024.0
"""Of a node."""
FREE_MIB = ROOM_MIB - 8 * 1024.0
"""Of it, beside what is usual there."""


class Memory:
    """That of every node."""

    def __init__(self, world: World, apps: Mapping[str, App], outside: Outside) -> None:
        self._world, self._apps, self._outside = world, apps, outside
        self._full: dict[str, datetime] = {}  # nodes, and when the kernel has ended somebody

    def look(self) -> None:
        """See which nodes have none left since the last time."""
        taken: dict[str, float] = defaultdict(float, self._outside.kept)
        for pod in self._world["Pod"].values():
            taken[pod["spec"].get("nodeName", "")] += self._outside.taken.get(pod["metadata"]["uid"], 0.0)
        for node in [one for one, much in taken.items() if much > FREE_MIB]:
            self._full.setdefault(node, now() + timedelta(seconds=self._outside.thrashing_seconds))

    def thrashing(self) -> set[str]:
        """Nodes that do nothing but look for memory: nothing of them answers."""
        return {node for node, until in self._full.items() if now() < until}

    def victim(self, node: str) -> str:
        """The uid of the pod that the kernel has ended for the memory of its node; once, and otherwise ""."""
        if node not in self._full or now() < self._full[node]:
            return ""
        del self._full[node]
        here = [pod["metadata"]["uid"] for pod in self._world["Pod"].values() if pod["spec"].get("nodeName") == node]
        victim = max(here, key=lambda uid: self._outside.taken.get(uid, 0.0), default="")
        self._outside.taken.pop(victim, None)
        return victim

    def is_overcommitted(self, node: str) -> bool:
        """Whether what runs there needs more than there is, though no container has more than is usual for it."""
        return self.needed(node) > ROOM_MIB

    def needed(self, node: str) -> float:
        """MiB of all containers that run there."""
        here = (pod for pod in self._world["Pod"].values() if pod["spec"].get("nodeName") == node)
        running = [pod for pod in here if pod.get("status", {}).get("phase") == "Running"]
        found = (self._apps.get(image.rsplit(":", 1)[0]) for pod in running for image in images(pod))
        return sum(app.memory_mi for app in found if app)
