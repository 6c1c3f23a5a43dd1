"""Labels by which an object says to which custom resource it belongs: ``karpenter.sh/nodepool: workers`` on a Node,
``strimzi.io/cluster: main`` on a topic.

By convention the key is the domain of the resource's API group, or of what that ends with, and its kind; "cluster"
stands for whatever kind of thing that is: https://karpenter.sh/docs/concepts/nodepools/ ,
https://strimzi.io/docs/operators/latest/deploying#con-configuring-topics-str .
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from app.core.edges.references import is_custom
from app.core.edges.topology import State, Topology
from app.core.model import Resource

_CLUSTERS = frozenset({"cluster", "cluster-name"})


def members(resource: Resource, top: Topology) -> Iterator[Resource]:
    """The Nodes and the custom resources whose labels say that they belong to a custom resource."""
    for kind in (resource.kind.lower(), *_CLUSTERS):
        for domain, member in top.labelled.get((kind, resource.name), ()):
            if _is_of(domain, resource) and member.namespace in (None, resource.namespace):
                yield member


def owners(resource: Resource, state: State, top: Topology) -> Iterator[Resource]:
    """The custom resources to which an object says to belong, beside it."""
    for key, value in _labels(state).items():
        domain, _, kind = key.partition("/")
        for other in top.customs_named.get((resource.namespace or "", str(value)), ()):
            if other != resource and kind in (other.kind.lower(), *_CLUSTERS) and _is_of(domain, other):
                yield other


def _is_of(domain: str, resource: Resource) -> bool:
    group = resource.api_group
    return is_custom(resource) and (group == domain or group.endswith(f".{domain}") or domain.endswith(f".{group}"))


def _labels(state: State) -> dict[str, Any]:
    metadata = state.get("metadata")
    labels = metadata.get("labels") if isinstance(metadata, dict) else None
    return labels if isinstance(labels, dict) else {}
