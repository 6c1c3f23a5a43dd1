"""What a kubelet does whose container runtime does not answer: it says so, and starts and ends nothing.

Its words: pkg/kubelet/kubelet.go and pkg/kubelet/nodestatus/setters.go of Kubernetes 1.36.
"""

from __future__ import annotations

from tests.lab.apps import Outside
from tests.lab.statuses import Statuses, node_conditions

PLEG = "PLEG is not healthy: pleg was last seen active 3m4.7s ago; threshold is 3m0s"


class Stalls:
    """Those of every node."""

    def __init__(self, statuses: Statuses, outside: Outside) -> None:
        self._statuses, self._outside = statuses, outside
        self._told: set[str] = set()

    async def hold(self, node: str) -> bool:
        """Whether a node's kubelet can do nothing just now; the beginning and the end of it are told."""
        stalled = node in self._outside.stalled
        is_news = stalled != (node in self._told)
        if is_news and await self._statuses.tell_node(node, node_conditions(stalled=PLEG if stalled else "")):
            self._told ^= {node}
        return stalled
