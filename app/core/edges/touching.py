"""What a change of workloads, or of a Service, is felt by: who runs as them, calls them, reads what they keep up."""

from __future__ import annotations

from collections.abc import Iterable

from app.core.edges.front_doors import backends
from app.core.edges.leads import lists_mirrors, sets_room, tunes_kernel
from app.core.edges.topology import Named, State, Topology, servers_of
from app.core.entities import NODES, Add, workload
from app.core.model import Change


def touched_workloads(top: Topology, keys: Iterable[Named], add: Add, hops: float) -> None:
    """Add workloads, the users they run as one hop further, who calls them, and who reads what they keep up."""
    for key in keys:
        add(workload(*key), hops)
        for reader in top.keeps_up.get(key, ()):
            add(("reads", *reader), hops + 1)
        for service in top.fronts.get(key, ()):
            touched_clients(top, service, add, hops + 1)
        for user in top.users_of(key):
            add(user, hops + 1)
        if key in top.daemon_sets:
            add(NODES, hops + 1)


def touched_nodes(change: Change, add: Add) -> None:
    """Add what all nodes let pods have: of the kernel, of room, and of images."""
    if tunes_kernel(change):
        add(("agent", "kernel"), 0)
    if sets_room(change):
        add(("scheduling",), 0)
    if lists_mirrors(change):
        add(("agent", "registry"), 0)


def touched_entrances(top: Topology, namespace: str, doors: Iterable[State], add: Add, hops: float) -> None:
    """Add how workloads are got at from outside, by what Ingresses or routes of a namespace lead to them."""
    names = {name for door in doors for name in backends(door)}
    for service in top.beside.get((namespace, "Service"), ()):
        if service.name in names:
            for key in servers_of(top.states[service], namespace, top):
                add(("entrance", *key), hops)


def touched_clients(top: Topology, service: Named, add: Add, hops: float) -> None:
    """Add the clients of a Service, one hop further theirs, and the API that it serves, which is the Service's own."""
    for group in top.groups.get(service, ()):
        add(("api", group, "*", "*"), max(hops - 1, 0))
        add(("named", group), max(hops - 1, 0))
    for client in top.clients.get(service, ()):
        add(("calls", *client), hops)
        for front in top.fronts.get(client, ()):
            for further in top.clients.get(front, ()):
                add(("calls", *further), hops + 1)
