"""Where else somebody reads of a change's object: its application in Argo CD, its component in Backstage.

Argo CD: its pages are /applications/NAMESPACE/NAME, or /applications/NAME where it is in Argo CD's own namespace.
Backstage: objects carry the label backstage.io/kubernetes-id, whose value a component has in an annotation
(https://backstage.io/docs/features/kubernetes/configuration/ );
that it is also the component's name is usual, and not said by anybody.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple
from urllib.parse import quote

from app.core.changes.recipe import Known
from app.core.changes.revert_owner import owner
from app.core.model import Change, Json
from app.core.objects.owners import ARGO_CD

BACKSTAGE_ID = "backstage.io/kubernetes-id"


class Neighbours(NamedTuple):
    """Addresses of what stands beside us, "" where nothing does."""

    argocd: str = ""
    backstage: str = ""


NO_NEIGHBOURS = Neighbours()


class Link(NamedTuple):
    """A page elsewhere, and what it is called."""

    words: str
    url: str


def elsewhere(change: Change, known: Known, neighbours: Neighbours) -> Iterator[Link]:
    """The pages of other programs on the object of a change, by what is known of it."""
    found = owner(change, known)
    if neighbours.argocd and found and found.controller == ARGO_CD and found.name:
        steps = [quote(step, safe="") for step in (found.namespace, found.name) if step]
        yield Link(ARGO_CD, f"{neighbours.argocd}/applications/{'/'.join(steps)}")
    component = _marked(known.last.state if known.last else None)
    if neighbours.backstage and component:
        yield Link("Backstage", f"{neighbours.backstage}/catalog/default/component/{quote(component, safe='')}")


def _marked(state: Json) -> str:
    metadata = state.get("metadata") if isinstance(state, dict) else None
    if not isinstance(metadata, dict):
        return ""
    for field in ("labels", "annotations"):
        marks = metadata.get(field)
        if isinstance(marks, dict) and isinstance(named := marks.get(BACKSTAGE_ID), str) and named:
            return named
    return ""
