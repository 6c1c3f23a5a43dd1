"""In which version of its API an object is written: what is stored of an object does not say.

Of the built-in kinds, and of well-known custom ones, the newest stable version is taken, as of Kubernetes 1.36 and the
projects' own CRDs. Of any other custom resource its CustomResourceDefinition tells: the API server prefers the first of
the versions that it serves, by their priority:
https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definition-versioning/ .
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from app.core.model import Object
from app.core.objects import kinds

_NOT_V1 = {
    ("autoscaling", "HorizontalPodAutoscaler"): "v2",
    ("certificates.k8s.io", "ClusterTrustBundle"): "v1beta1",
    ("storagemigration.k8s.io", "StorageVersionMigration"): "v1beta1",
    ("argoproj.io", "Rollout"): "v1alpha1",
    ("argoproj.io", "Application"): "v1alpha1",
    ("argoproj.io", "ApplicationSet"): "v1alpha1",
    ("argoproj.io", "AppProject"): "v1alpha1",
    ("helm.toolkit.fluxcd.io", "HelmRelease"): "v2",
    ("gateway.networking.k8s.io", "ReferenceGrant"): "v1beta1",
    ("projectcalico.org", "GlobalNetworkPolicy"): "v3",
    ("projectcalico.org", "NetworkPolicy"): "v3",
    ("projectcalico.org", "FelixConfiguration"): "v3",
    ("cilium.io", "CiliumNetworkPolicy"): "v2",
    ("cilium.io", "CiliumClusterwideNetworkPolicy"): "v2",
}
_VERSION = re.compile(r"v(\d+)(?:(alpha|beta)(\d+))?\Z")


def built_in(api_group: str, kind: str) -> str:
    """``apps/v1``, ``v1``; "" for a kind that is not in the table of kinds."""
    if (api_group, kind) not in kinds.BUILT_IN:
        return ""
    return whole(api_group, _NOT_V1.get((api_group, kind), "v1"))


def whole(api_group: str, version: str) -> str:
    """A version as an object's apiVersion."""
    return f"{api_group}/{version}" if api_group else version


def served(definition: Object) -> tuple[str, ...]:
    """The versions that a CustomResourceDefinition serves, the preferred one first."""
    spec = definition.get("spec")
    listed = spec.get("versions") if isinstance(spec, dict) else None
    found = [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
    return by_priority(str(one.get("name")) for one in found if one.get("served") is True)


def by_priority(versions: Iterable[str]) -> tuple[str, ...]:
    """Stable ones before beta before alpha, the higher first; what is no such version comes last, by name."""
    return tuple(sorted(versions, key=_place))


def _place(version: str) -> tuple[int, int, int, int, str]:
    found = _VERSION.match(version)
    if found is None:
        return (1, 0, 0, 0, version)
    major, stage, minor = found.groups()
    return (0, ("", "beta", "alpha").index(stage or ""), -int(major), -int(minor or 0), version)
