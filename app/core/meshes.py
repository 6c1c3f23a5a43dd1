"""What meshes and network plugins know as policies: custom resources that act on pods, or on the calls to a Service.

One that may choose pods and chooses none applies to all of its namespace, as a NetworkPolicy with an empty selector
does: https://istio.io/latest/docs/reference/config/security/peer_authentication/ ,
https://istio.io/latest/docs/reference/config/networking/sidecar/ ,
https://docs.cilium.io/en/stable/security/policy/ ,
https://docs.tigera.io/calico/latest/reference/resources/networkpolicy .
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from app.core.entities import READ, Add, workload
from app.core.model import Change, Resource
from app.core.topology import Named, State, Topology, behind, selects, touched_clients, touched_workloads

_CHOOSE = {
    ("security.istio.io", "AuthorizationPolicy"): "selector",
    ("security.istio.io", "PeerAuthentication"): "selector",
    ("security.istio.io", "RequestAuthentication"): "selector",
    ("networking.istio.io", "EnvoyFilter"): "workloadSelector",
    ("networking.istio.io", "Sidecar"): "workloadSelector",
    ("telemetry.istio.io", "Telemetry"): "selector",
    ("extensions.istio.io", "WasmPlugin"): "selector",
    ("cilium.io", "CiliumNetworkPolicy"): "endpointSelector",
    ("projectcalico.org", "NetworkPolicy"): "selector",
    ("crd.projectcalico.org", "NetworkPolicy"): "selector",
}
"""By (api group, kind): the field in which it says which pods it is for."""
_SPEAK = frozenset({("networking.istio.io", "DestinationRule"), ("networking.istio.io", "VirtualService")})
"""Kinds that speak of hosts: of how these are called."""
_TARGETS = ("targetRef", "targetRefs")
"""Where these are given, they say what it is for, and operators.custom reads them."""
_EQUALS = re.compile(r"""\A\s*([\w./-]+)\s*==\s*['"]([^'"]*)['"]\s*\Z""")


def is_policy(resource: Resource) -> bool:
    """Whether a mesh or a network plugin acts on pods or calls by it."""
    kind = resource.api_group, resource.kind
    return kind in _CHOOSE or kind in _SPEAK


def policy(change: Change, states: list[State], top: Topology, add: Add) -> None:
    """It reaches the workloads that it chooses, and who calls them; or those behind the hosts that it speaks of."""
    namespace, kind = change.resource.namespace or "", (change.resource.api_group, change.resource.kind)
    for state in states:
        spec = state.get("spec")
        if not isinstance(spec, dict):
            continue
        if kind in _SPEAK:
            for service in filter(None, (_service(host, namespace) for host in _hosts(spec))):
                add(("named", service[1]), READ)
                touched_clients(top, service, add, READ)
                known = Resource(change.resource.cluster, "", "Service", *service)
                touched_workloads(top, behind(top.states.get(known, {}), service[0], top), add, 1)
        elif not any(target in spec for target in _TARGETS):
            for key in _chosen(spec.get(_CHOOSE[kind]), namespace, top):
                add(workload(*key), 1)
                for service in top.fronts.get(key, ()):
                    touched_clients(top, service, add, 1)


def _chosen(selector: Any, namespace: str, top: Topology) -> list[Named]:
    """The workloads of the namespace that a policy chooses: all of them where it does not say which."""
    if isinstance(selector, str):  # Calico's; of its language only what most say: key == 'value' && ...
        terms = [_EQUALS.match(term) for term in selector.split("&&") if term.strip() not in ("", "all()")]
        if not all(terms):
            return []
        selector = {term[1]: term[2] for term in terms if term}
    if isinstance(selector, dict):
        selector = selector.get("labels", selector)
    return [key for key in top.in_namespace.get(namespace, ()) if not selector or selects(selector, top.labels[key])]


def _hosts(value: Any) -> Iterator[str]:
    """What stands under "host" and "hosts", at any depth."""
    for inner in value if isinstance(value, list) else value.values() if isinstance(value, dict) else ():
        yield from _hosts(inner)
    for name in ("host", "hosts") if isinstance(value, dict) else ():
        found = value.get(name)
        yield from (host for host in (found if isinstance(found, list) else [found]) if isinstance(host, str))


def _service(host: str, namespace: str) -> Named | None:
    """The Service that a host is: NAME, NAME.NAMESPACE or NAME.NAMESPACE.svc..., and none from outside."""
    name, _, rest = host.rpartition("/")[2].partition(".")
    where, _, further = rest.partition(".")
    inside = name not in ("", "*") and (not further or further.partition(".")[0] == "svc")
    return (where or namespace, name) if inside else None
