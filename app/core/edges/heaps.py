"""How much a program is let take for its heap, where that is told beside how much its container may take in all: what
takes more is killed (https://kubernetes.io/docs/concepts/configuration/manage-resources-containers/#how-pods-with-resource-limits-are-run).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import inf
from typing import Any

from app.core.edges.topology import Named, State, Topology, pod_spec, readers
from app.core.entities import WORKLOADS
from app.core.model import Change, Resource
from app.core.objects.normalise import amount_of
from app.core.objects.untyped import objects, part
from app.core.phrases import measure

_HEAP = re.compile(
    r"-Xmx(?P<size>\d{1,15})(?P<unit>[kmgtKMGT]?)\b|--max[-_]old[-_]space[-_]size[= ](?P<mebibytes>\d{1,9})\b"
)
"""Of Java's machine, in bytes or with a unit
(https://docs.oracle.com/en/java/javase/21/docs/specs/man/java.html#extra-options-for-java), and of Node.js', in MiB
(https://nodejs.org/api/cli.html#--max-old-space-sizesize-in-mib). Go's GOMEMLIMIT is no such bound: it is exceeded
where the program holds on to more."""
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_LONGEST = 20_000
"""Characters of a value that are looked through."""


def outgrows(change: Change, top: Topology) -> str:
    """That a change lets a heap take more than its container may in all, for a person, without a full stop; "" where it
    does not, or did before."""
    heap = max((_heap(diff.new) for diff in change.diffs), default=0)
    if not heap or heap <= max(_heap(diff.old) for diff in change.diffs):
        return ""
    here = change.resource.namespace or ""
    is_own = change.resource.kind in WORKLOADS
    homes = {(here, change.resource.name)} if is_own else readers(change.resource, top)
    states = (state for it, state in top.states.items() if it.kind in WORKLOADS and _named(it) in homes)
    most = max((limit for state in states for limit in _limits(state)), default=inf)
    if heap <= most:
        return ""
    return f"It lets a heap take {measure(heap, 'B')}, of {measure(most, 'B')} that its container may take in all"


def _named(resource: Resource) -> Named:
    return resource.namespace or "", resource.name


def _heap(value: Any) -> int:
    """The most that a heap may take by what a value says, in bytes; 0 where it says nothing of that."""
    if isinstance(value, str):
        found = _HEAP.finditer(value[:_LONGEST]) if "-Xmx" in value or "--max" in value else ()
        return max(map(_bytes, found), default=0)
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return max(map(_heap, inner), default=0)


def _bytes(found: re.Match[str]) -> int:
    return int(found["mebibytes"]) << 20 if found["mebibytes"] else int(found["size"]) * _UNITS[found["unit"].lower()]


def _limits(state: State) -> Iterator[float]:
    """What each container of a workload may take of memory, in bytes."""
    for container in objects(pod_spec(state).get("containers")):
        told = part(container, "resources", "limits", "memory")
        amount = amount_of(str(told))
        yield inf if amount is None else float(amount)
