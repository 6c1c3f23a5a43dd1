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

from app.core.edges.topology import Named, State, Topology, servers_of
from app.core.edges.touching import touched_clients, touched_workloads
from app.core.entities import READ, Add, workload
from app.core.model import Change, Resource, Verb
from app.core.objects.selectors import selects

_CHOOSE = {
    ("security.istio.io", "AuthorizationPolicy"): "selector",
    ("security.istio.io", "PeerAuthentication"): "selector",
    ("security.istio.io", "RequestAuthentication"): "selector",
    ("networking.istio.io", "EnvoyFilter"): "workloadSelector",
    ("networking.istio.io", "Sidecar"): "workloadSelector",
    ("telemetry.istio.io", "Telemetry"): "selector",
    ("extensions.istio.io", "WasmPlugin"): "selector",
    ("cilium.io", "CiliumNetworkPolicy"): "endpointSelector",
    ("cilium.io", "CiliumClusterwideNetworkPolicy"): "endpointSelector",
    ("projectcalico.org", "GlobalNetworkPolicy"): "selector",
    ("crd.projectcalico.org", "GlobalNetworkPolicy"): "selector",
    ("policy.networking.k8s.io", "AdminNetworkPolicy"): "subject",
    ("policy.networking.k8s.io", "BaselineAdminNetworkPolicy"): "subject",
    ("projectcalico.org", "NetworkPolicy"): "selector",
    ("crd.projectcalico.org", "NetworkPolicy"): "selector",
}
"""By (api group, kind): the field in which it says which pods it is for."""
_SPEAK = frozenset({("networking.istio.io", "DestinationRule"), ("networking.istio.io", "VirtualService")})
"""Kinds that speak of hosts: of how these are called."""
_ROOT = "istio-system"
"""Where what chooses no pods holds for all namespaces, unless the mesh says another:
https://istio.io/latest/docs/reference/config/istio.mesh.v1alpha1/#MeshConfig ."""
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
            told = {name: spec.get(name) for name in ("host", "hosts")}
            spoken_of = {_service(host, namespace) for host in _hosts(told)}
            for service in filter(None, (_service(host, namespace) for host in _hosts(spec))):
                known = Resource(change.resource.cluster, "", "Service", *service)
                served = servers_of(top.states.get(known, {}), service[0], top)
                if change.verb is Verb.CREATE and service not in spoken_of:  # by a new way, which nobody takes yet
                    for key in served:
                        add(workload(*key), 1)
                    continue
                add(("named", service[1]), READ)
                touched_clients(top, service, add, READ)
                touched_workloads(top, served, add, 1)
        elif not any(target in spec for target in _TARGETS):
            everywhere = change.resource.namespace == _ROOT and not spec.get(_CHOOSE[kind])
            for key in _chosen(spec.get(_CHOOSE[kind]), None if everywhere else change.resource.namespace, top):
                add(workload(*key), 1)
                for service in top.fronts.get(key, ()):
                    touched_clients(top, service, add, 1)


def _chosen(selector: Any, namespace: str | None, top: Topology) -> list[Named]:
    """The workloads that a policy chooses, of its namespace or, where it has none, of all; every one where it does not
    say which."""
    if isinstance(selector, str):  # Calico's; of its language only what most say: key == 'value' && ...
        terms = [_EQUALS.match(term) for term in selector.split("&&") if term.strip() not in ("", "all()")]
        if not all(terms):
            return []
        selector = {term[1]: term[2] for term in terms if term}
    if isinstance(selector, dict):
        selector = selector.get("podSelector", selector)  # of a subject: namespaces and pods
    if isinstance(selector, dict):
        selector = selector.get("labels", selector)
    where = top.in_namespace if namespace is None else (namespace,)
    return [
        key
        for here in where
        for key in top.in_namespace.get(here, ())
        if not selector or selects(selector, _labels(key, top))
    ]


def _labels(key: Named, top: Topology) -> dict[str, str]:
    """A workload's labels with those that network plugins give each pod for its namespace."""
    return {"projectcalico.org/namespace": key[0], "k8s:io.kubernetes.pod.namespace": key[0], **top.labels[key]}


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
