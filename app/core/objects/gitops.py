"""Which resource of a GitOps controller an object says that it is tended by.

Flux: labels GROUP/name and GROUP/namespace with the API group of its controller
(https://fluxcd.io/flux/components/kustomize/kustomizations/ , https://fluxcd.io/flux/components/helm/helmreleases/ ).
Argo CD: the annotation argocd.argoproj.io/tracking-id, APPLICATION:GROUP/KIND:NAMESPACE/NAME with the Application's
namespace and a _ before it where that is not Argo CD's own, or the label argocd.argoproj.io/instance, or, as it was
by default before version 3, app.kubernetes.io/instance
(https://argo-cd.readthedocs.io/en/stable/user-guide/resource_tracking/ ).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from app.core.model import Resource

_FLUX = {"kustomize.toolkit.fluxcd.io": "Kustomization", "helm.toolkit.fluxcd.io": "HelmRelease"}
_ARGO = "argocd.argoproj.io"


def tenders(
    resource: Resource, labels: Mapping[str, object], annotations: Mapping[str, object], *, known: Iterable[Resource]
) -> Iterator[Resource]:
    """The Kustomization, HelmRelease or Application of an object with these labels and annotations. Where the
    Application is, an object need not say: it is looked for among the ``known`` ones."""
    for group, kind in _FLUX.items():
        if name := labels.get(f"{group}/name"):
            namespace = str(labels.get(f"{group}/namespace") or resource.namespace or "")
            yield Resource(resource.cluster, group, kind, namespace, str(name))
    tracked = str(annotations.get(f"{_ARGO}/tracking-id") or "").partition(":")[0].rpartition("_")[2]
    app = tracked or labels.get(f"{_ARGO}/instance") or labels.get("app.kubernetes.io/instance")
    yield from (
        one for one in known if one.kind == "Application" and one.api_group == "argoproj.io" and one.name == app
    )
