"""Who writes an object again when somebody else has changed it: a GitOps controller, or a package manager.

Argo CD: https://argo-cd.readthedocs.io/en/stable/user-guide/resource_tracking/ . The annotation
argocd.argoproj.io/tracking-id is APPLICATION:GROUP/KIND:NAMESPACE/NAME; an Application outside of Argo CD's own
namespace is NAMESPACE_APPLICATION there. It counts only where it names the object itself: it is copied to what a
controller makes of one.
Flux: labels of its controllers' API groups, https://fluxcd.io/flux/components/kustomize/kustomizations/ and
https://fluxcd.io/flux/components/helm/helmreleases/ .
Helm: annotations meta.helm.sh/release-name and release-namespace, by which it knows its own objects
(https://github.com/helm/helm/blob/main/pkg/action/validate.go ).
"""

from __future__ import annotations

from dataclasses import dataclass

from app.core.model import Actor, Change, Json, Object, ObjectState, Resource, Verb

ARGO_CD, FLUX, HELM = "Argo CD", "Flux", "Helm"
ARGO_CD_NAMESPACE = "argocd"
"""Where Argo CD and its Applications live unless somebody installs it elsewhere."""
APPLICATION = ("argoproj.io", "Application")
HELM_RELEASE = ("helm.toolkit.fluxcd.io", "HelmRelease")
_ARGO = "argocd.argoproj.io/"
_INSTANCE = "app.kubernetes.io/instance"
_FLUX = {"helm.toolkit.fluxcd.io": "HelmRelease", "kustomize.toolkit.fluxcd.io": "Kustomization"}


@dataclass(frozen=True, slots=True)
class Owner:
    """Who owns an object: ``controller`` is Argo CD, Flux or Helm.

    ``kind`` and ``name`` are of the Application, Kustomization, HelmRelease or Helm release, "" where that is not told;
    so is ``namespace``, which of an Application is "" also where it is Argo CD's own.
    """

    controller: str
    kind: str = ""
    name: str = ""
    namespace: str = ""

    def resource(self, cluster: str) -> Resource | None:
        """The object that tells how the controller goes about it; None where it is not known, or there is none."""
        if not self.name or self.controller == HELM:
            return None
        if self.controller == ARGO_CD:
            return Resource(cluster, "argoproj.io", self.kind, self.namespace or ARGO_CD_NAMESPACE, self.name)
        group = next(group for group, kind in _FLUX.items() if kind == self.kind)
        return Resource(cluster, group, self.kind, self.namespace, self.name)


def owner_of(resource: Resource, state: Json, actor: Actor) -> Owner | None:
    """The owner of an object in this state, else who wrote it where that is one of them; None where it is nobody.

    app.kubernetes.io/instance names an Application only of what Argo CD wrote: charts set it too.
    """
    labels, annotations = _marks(state, "labels"), _marks(state, "annotations")
    marks, wrote = labels | annotations, f"{actor.name} {actor.user_agent}".lower()
    for group, kind in _FLUX.items():
        if name := marks.get(f"{group}/name"):
            return Owner(FLUX, kind, name, marks.get(f"{group}/namespace") or resource.namespace or "")
    if found := _argo_cd(resource, labels, annotations, wrote=is_argo_cd(actor)):
        return found
    if any(name in wrote for name in ("kustomize-controller", "helm-controller", "flux")):
        return Owner(FLUX)
    if name := annotations.get("meta.helm.sh/release-name"):
        return Owner(HELM, "release", name, annotations.get("meta.helm.sh/release-namespace") or "")
    if labels.get("app.kubernetes.io/managed-by") == "Helm" or actor.user_agent.lower() == "helm":
        return Owner(HELM)
    return None


def is_argo_cd(actor: Actor) -> bool:
    """Whether Argo CD wrote it."""
    wrote = f"{actor.name} {actor.user_agent}".lower()
    return "argocd" in wrote or "argo-cd" in wrote


def releases(tender: ObjectState, release: str, namespace: str | None) -> bool:
    """Whether this is the HelmRelease by which Flux releases what Helm calls ``release`` and keeps in a namespace
    (https://fluxcd.io/flux/components/helm/helmreleases/#release-name ). One of more than 53
    characters Flux cuts."""
    if (tender.resource.api_group, tender.resource.kind) != HELM_RELEASE or tender.deleted_at is not None:
        return False
    spec = spec_of(tender.state)
    target = spec.get("targetNamespace")
    name = spec.get("releaseName") or (f"{target}-{tender.resource.name}" if target else tender.resource.name)
    return (name, spec.get("storageNamespace") or tender.resource.namespace) == (release, namespace)


def is_sync(change: Change) -> bool:
    """Whether it is that somebody asked Argo CD to sync an Application, or that this was over: ``operation`` is what
    asks, and goes with its end."""
    is_update = change.verb is Verb.UPDATE and (change.resource.api_group, change.resource.kind) == APPLICATION
    return is_update and {found.path[:1] for found in change.diffs} == {("operation",)}


def is_synced(change: Change) -> bool:
    """Whether it is the end of a sync."""
    return is_sync(change) and all(found.op == "remove" for found in change.diffs)


def _argo_cd(resource: Resource, labels: dict[str, str], annotations: dict[str, str], *, wrote: bool) -> Owner | None:
    tracked, _, what = annotations.get(f"{_ARGO}tracking-id", "").partition(":")
    if tracked and what and _is_of(resource, what):
        namespace, _, name = tracked.rpartition("_")
        return Owner(ARGO_CD, "Application", name, namespace)
    if instance := labels.get(f"{_ARGO}instance") or (labels.get(_INSTANCE) if wrote else None):
        return Owner(ARGO_CD, "Application", instance)
    marked = any(mark.startswith(_ARGO) and mark != f"{_ARGO}tracking-id" for mark in labels | annotations)
    return Owner(ARGO_CD) if wrote or marked else None


def _is_of(resource: Resource, what: str) -> bool:
    """Whether the end of a tracking id, GROUP/KIND:NAMESPACE/NAME, is of this object; whatever its namespace, which is
    the Application's where the object has none."""
    sort, _, where = what.partition(":")
    return sort == f"{resource.api_group}/{resource.kind}" and where.partition("/")[2] == resource.name


def _marks(state: Json, field: str) -> dict[str, str]:
    metadata = state.get("metadata") if isinstance(state, dict) else None
    found = metadata.get(field) if isinstance(metadata, dict) else None
    return {name: value for name, value in found.items() if isinstance(value, str)} if isinstance(found, dict) else {}


def spec_of(state: Object | None) -> Object:
    """The ``spec`` of an object, {} where it has none."""
    spec = (state or {}).get("spec")
    return spec if isinstance(spec, dict) else {}
