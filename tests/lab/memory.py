"""What a machine does whose memory is full: it answers nobody for long, until the kernel ends whoever has most."""

from __future__ import annotations

from collections import defaultdict
from datetime import datetime, timedelta

from tests.lab.api import World, now
from tests.lab.apps import Outside

FREE_MIB = 56 * 1024.0
"""Of a node, beside what is usual on it."""
THRASHING_SECONDS = 24.0


class Memory:
    """That of every node."""

    def __init__(self, world: World, outside: Outside) -> None:
        self._world, self._outside = world, outside
        self._full: dict[str, datetime] = {}  # nodes, and when the kernel has ended somebody

    def look(self) -> None:
        """See which nodes have none left since the last time."""
        taken: dict[str, float] = defaultdict(float)
        for pod in self._world["Pod"].values():
            taken[pod["spec"].get("nodeName", "")] += self._outside.taken.get(pod["metadata"]["uid"], 0.0)
        for node in [one for one, much in taken.items() if much > FREE_MIB]:
            self._full.setdefault(node, now() + timedelta(seconds=THRASHING_SECONDS))

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
