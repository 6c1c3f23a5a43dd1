"""What meshes and network plugins know as policies: custom resources that act on pods, or on the calls to a Service.

One that chooses no pods applies to all of its namespace, as a NetworkPolicy with an empty selector does:
https://istio.io/latest/docs/reference/config/security/peer_authentication/ ,
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
from app.core.topology import Named, State, Topology, selects, touched_clients

_GROUPS = re.compile(r"(?:\A|\.)(?:istio\.io|cilium\.io|projectcalico\.org|linkerd\.io|kuma\.io|antrea\.io)\Z")
_SELECTORS = ("selector", "podSelector", "endpointSelector", "workloadSelector")
_HOSTS = ("host", "hosts")


def is_policy(resource: Resource) -> bool:
    """Whether a mesh or a network plugin acts on pods or calls by it."""
    return resource.namespace is not None and bool(_GROUPS.search(resource.api_group))


def policy(change: Change, states: list[State], top: Topology, add: Add) -> None:
    """It reaches the workloads that it chooses, and who calls them; or who calls the hosts that it speaks of."""
    namespace = change.resource.namespace or ""
    for state in states:
        spec: Any = state.get("spec") or {}
        hosts = {service for host in _hosts(spec) if (service := _service(host, namespace))}
        selectors = [labels for name in _SELECTORS if isinstance(labels := spec.get(name), dict)]
        keys = [] if hosts and not selectors else _chosen(selectors, namespace, top)
        for key in keys:
            add(workload(*key), 1)
        for service in hosts | {service for key in keys for service in top.fronts.get(key, ())}:
            touched_clients(top, service, add, 1 if keys else READ)


def _chosen(selectors: list[dict[str, Any]], namespace: str, top: Topology) -> list[Named]:
    """The workloads of the namespace that a policy chooses: all of them where it does not say which."""
    plain = [selector.get("labels", selector) for selector in selectors]
    return [key for key in top.in_namespace.get(namespace, ()) if all(selects(one, top.labels[key]) for one in plain)]


def _hosts(value: Any) -> Iterator[str]:
    """What stands under "host" and "hosts", at any depth."""
    for inner in value if isinstance(value, list) else value.values() if isinstance(value, dict) else ():
        yield from _hosts(inner)
    for name in _HOSTS if isinstance(value, dict) else ():
        found = value.get(name)
        yield from (host for host in (found if isinstance(found, list) else [found]) if isinstance(host, str))


def _service(host: str, namespace: str) -> Named | None:
    """The Service that a host is: NAME, NAME.NAMESPACE or NAME.NAMESPACE.svc..., and none from outside."""
    name, _, rest = host.rpartition("/")[2].partition(".")
    where, _, further = rest.partition(".")
    inside = name not in ("", "*") and (not further or further.partition(".")[0] == "svc")
    return (where or namespace, name) if inside else None
