"""What is shown to who comes from outside: the hosts of Ingresses and routes, and the certificates that these show.

A Certificate fills the Secret that an Ingress or a Gateway shows, and refers to what issues it:
https://cert-manager.io/docs/usage/ingress/ , https://cert-manager.io/docs/usage/gateway/ .
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from collections.abc import Set as AbstractSet

from app.core.edges import operators
from app.core.edges.front_doors import DOORS, PROXIES, certificates, served
from app.core.edges.references import secret_made
from app.core.edges.topology import State, Topology
from app.core.edges.touching import touched_entrances
from app.core.entities import READ, Add
from app.core.model import Resource


def touched_doors(top: Topology, namespace: str, doors: Iterable[State], add: Add, hops: float) -> None:
    """Add who calls the hosts that Ingresses or routes of a namespace serve, and who comes to them from outside."""
    doors = list(doors)
    for host in {host for door in doors for host in served(door)}:
        for client in top.callers.get(host, ()):
            add(("calls", *client), hops)
    touched_entrances(top, namespace, doors, add, hops)


def touched_routes(top: Topology, gateways: Iterable[Resource], add: Add, hops: float) -> None:
    """Add the same of the routes that Gateways serve (https://gateway-api.sigs.k8s.io/concepts/api-overview/)."""
    routes: dict[str, list[State]] = defaultdict(list)
    for route in {route for gateway in gateways for route in operators.referers(gateway, top) if route.kind in DOORS}:
        routes[route.namespace or ""].append(top.states[route])
    for namespace, there in routes.items():
        touched_doors(top, namespace, there, add, hops)


def touched_showing(top: Topology, secrets: Iterable[Resource], add: Add, hops: float) -> None:
    """Add the same of what shows the certificates in Secrets."""
    named: dict[str, set[str]] = defaultdict(set)
    gateways: set[Resource] = set()
    for secret in secrets:
        named[secret.namespace or ""].add(secret.name)
        gateways |= operators.referers(secret, top)
    for namespace, names in named.items():
        doors = (top.states[door] for kind in DOORS for door in top.beside.get((namespace, kind), ()))
        touched_doors(top, namespace, [door for door in doors if certificates(door) & names], add, hops)
    touched_routes(top, gateways, add, hops)


def touched_certified(top: Topology, resource: Resource, states: Iterable[State], add: Add) -> None:
    """Add what shows the Secrets that a custom resource fills, as a Certificate does; one hop further, those that
    others fill which refer to it, as to their issuer."""
    _filled(top, _secrets(resource, states), add, READ)
    others = operators.referers(resource, top)
    _filled(top, {one for other in others for one in _secrets(other, [top.states[other]])}, add, 1 + READ)


def _filled(top: Topology, secrets: AbstractSet[Resource], add: Add, hops: float) -> None:
    touched_showing(top, secrets, add, hops)
    # A certificate beside what serves Ingresses is what that shows for all that have none of their own.
    if any(_serves_doors(namespace, top) for namespace in {one.namespace for one in secrets}):
        add(("agent", "doors"), hops)


def _secrets(resource: Resource, states: Iterable[State]) -> set[Resource]:
    """The Secrets that a custom resource says to fill."""
    names = (secret_made(resource, state) for state in states)
    return {Resource(resource.cluster, "", "Secret", resource.namespace, name) for name in names if name}


def _serves_doors(namespace: str | None, top: Topology) -> bool:
    return any(PROXIES.search(name) for _, name in top.in_namespace.get(namespace or "", ()))
