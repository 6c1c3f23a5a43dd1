"""Whom a change acts on: the callers of the API server and the workloads whose lines are looked at after it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from app.core.edges.indexing import topology
from app.core.edges.reach import reach
from app.core.edges.topology import Topology
from app.core.entities import Entity, only_reacts
from app.core.model import ActorSource, Change, ObjectState

SERVES = (
    ("apps", "DaemonSet"),
    ("apps", "Deployment"),
    ("apps", "StatefulSet"),
    ("argoproj.io", "Rollout"),
    ("", "Service"),
)
"""(api_group, kind) of what has to be known around an object to tell which apps a change of it acts on."""


@dataclass(frozen=True, slots=True)
class Touched:
    """Whom a change acts on: callers of the API server, and workloads with the hops to each, over these edges."""

    users: tuple[str, ...] = ()
    workloads: Mapping[Entity, float] = field(default_factory=dict)
    edges: Topology = field(default_factory=Topology)

    @property
    def namespaces(self) -> tuple[str, ...]:
        """Those of the workloads."""
        return tuple(sorted({namespace for _, namespace, _ in self.workloads}))


NOBODY = Touched()


def touched(change: Change, states: Iterable[ObjectState]) -> Touched:
    """The callers and the workloads that belong to a change: what it acts on, and who made it if that is known for
    sure.

    ``states`` are the last known ones of the object and of what is around it. A controller that only reacts is left
    out: others make it call.
    """
    top = topology(states)
    found = reach(change, top)
    users = {entity[1] for entity in found if entity[0] == "user"}
    if change.actor.source is ActorSource.AUDIT and not only_reacts(change.actor.name):
        users.add(change.actor.name)
    workloads = {entity: hops for entity, hops in found.items() if entity[0] == "workload"}
    return Touched(tuple(sorted(users - {""})), workloads, top)
