"""Who keeps an object as it is: the GitOps controller or package manager that would undo, or must make, an edit.

Marks are the projects' own: Argo CD's tracking annotation and label, Flux's kustomize and helm labels, Helm's
release annotations (https://helm.sh/docs/chart_best_practices/labels/).
"""

from __future__ import annotations

from dataclasses import dataclass

from app.core.model import Change, Object


@dataclass(frozen=True, slots=True)
class Keeper:
    """``tool`` is argocd, flux or helm; ``name`` its application, kustomization or release where it is known."""

    tool: str
    name: str = ""


_ARGO = ("argocd.argoproj.io/tracking-id", "argocd.argoproj.io/instance", "app.kubernetes.io/instance")
_FLUX = ("kustomize.toolkit.fluxcd.io/name", "helm.toolkit.fluxcd.io/name")
_WRITERS = {
    "argocd-application-controller": "argocd",
    "argocd-controller": "argocd",
    "kustomize-controller": "flux",
    "helm-controller": "flux",
    "helm": "helm",
    "Helm": "helm",
}


def keeper_of(state: Object | None, change: Change | None = None) -> Keeper | None:
    """What owns an object, by its own marks, else by who wrote the change; None where nobody is known to."""
    metadata = state.get("metadata") if state else None
    metadata = metadata if isinstance(metadata, dict) else {}
    annotations, labels = _texts(metadata.get("annotations")), _texts(metadata.get("labels"))
    for mark in _ARGO[:2]:
        name = annotations.get(mark) or labels.get(mark)
        if name:
            return Keeper("argocd", name.partition(":")[0])
    for mark in _FLUX:
        if mark in labels:
            return Keeper("flux", labels[mark])
    if "meta.helm.sh/release-name" in annotations:
        return Keeper("helm", annotations["meta.helm.sh/release-name"])
    if labels.get("app.kubernetes.io/managed-by") == "Helm":
        return Keeper("helm", labels.get(_ARGO[2], ""))
    if change is not None:
        tool = _WRITERS.get(change.actor.user_agent) or _WRITERS.get(change.actor.name.rpartition(":")[2])
        return Keeper(tool) if tool else None
    return None


def _texts(value: object) -> dict[str, str]:
    return {k: v for k, v in value.items() if isinstance(v, str)} if isinstance(value, dict) else {}
