"""Which pods are of the version before a change and which of that after: what a dump of objects has of a rollout."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from app.core.model import Resource

Owners = Mapping[tuple[str | None, str], Resource]
"""By the namespace and name of a ReplicaSet, or of a pod that no ReplicaSet owns: the workload that it is of."""


def manifest(owner: Resource, name: str, whole: dict[str, Any]) -> dict[str, Any]:
    """A ReplicaSet of a Deployment with the pod template of ``whole``, else a pod made of that template."""
    template = whole["spec"]["template"]
    metadata = {"namespace": owner.namespace, "name": name}
    if owner.kind == "Deployment":
        return {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": metadata, "spec": {"template": template}}
    return {**template, "apiVersion": "v1", "kind": "Pod", "metadata": {**template.get("metadata", {}), **metadata}}


def workload(of: Resource, owners: Owners) -> Resource:
    """Whose a pod or a ReplicaSet is; itself where nobody said. A pod is named after its ReplicaSet."""
    named = owners.get((of.namespace, of.name))
    if named is None and of.kind == "Pod":
        named = owners.get((of.namespace, of.name.rpartition("-")[0]))
    return named or of
