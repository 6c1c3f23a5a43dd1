"""From a change to where other programs show its object: by what the object says, and to nowhere else."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from app.core.changes.recipe import Known
from app.core.model import Actor, ActorSource, ObjectState
from app.core.screen.elsewhere import Neighbours, elsewhere
from tests.web import world

BOTH = Neighbours("https://argocd.example/ui", "https://backstage.example")
ALICE = Actor("alice", ActorSource.AUDIT)
CHANGE = replace(world.CULPRIT, actor=ALICE)


def links(neighbours: Neighbours = BOTH, *, by: Actor = ALICE, **metadata: Any) -> dict[str, str]:
    last = ObjectState(CHANGE.resource, "u", "1", CHANGE.at, {"metadata": metadata})
    return dict(elsewhere(replace(CHANGE, actor=by), Known(last), neighbours))


def test_an_application_is_known_by_its_marks() -> None:
    of = f"{CHANGE.resource.api_group}/{CHANGE.resource.kind}:{CHANGE.resource.namespace}/{CHANGE.resource.name}"
    told = {"argocd.argoproj.io/tracking-id": f"shop:{of}"}
    assert links(annotations=told) == {"Argo CD": "https://argocd.example/ui/applications/shop"}
    told = {"argocd.argoproj.io/tracking-id": f"team-a_shop:{of}"}
    assert links(annotations=told) == {"Argo CD": "https://argocd.example/ui/applications/team-a/shop"}
    copied = {"argocd.argoproj.io/tracking-id": "shop:apps/StatefulSet:payments/another"}
    assert links(annotations=copied) == {}
    chart = {"app.kubernetes.io/instance": "shop"}
    assert links(labels=chart) == {}
    assert links(labels=chart, by=world.CULPRIT.actor) == {"Argo CD": "https://argocd.example/ui/applications/shop"}


def test_a_component_is_known_by_its_label_or_annotation() -> None:
    wanted = {"Backstage": "https://backstage.example/catalog/default/component/checkout"}
    assert links(labels={"backstage.io/kubernetes-id": "checkout"}) == wanted
    assert links(annotations={"backstage.io/kubernetes-id": "checkout"}) == wanted


def test_what_is_written_there_stays_one_step_of_an_address() -> None:
    for odd in ("../../evil", "//evil.example", "a?b#c", "javascript:alert(1)"):
        found = links(
            labels={"backstage.io/kubernetes-id": odd, "argocd.argoproj.io/instance": odd},
        )
        assert found["Backstage"].startswith("https://backstage.example/catalog/default/component/")
        assert found["Argo CD"].startswith("https://argocd.example/ui/applications/")
        assert all(part not in "".join(found.values()).replace("https://", "") for part in ("//", "?", "#", "/../"))


def test_where_nothing_is_set_or_known_there_is_none() -> None:
    marks = {"backstage.io/kubernetes-id": "checkout", "argocd.argoproj.io/instance": "shop"}
    assert links(Neighbours(), labels=marks) == {}
    assert list(elsewhere(CHANGE, Known(), BOTH)) == []
    broken: Any
    for broken in (None, [], "x", {"backstage.io/kubernetes-id": 7}, {"backstage.io/kubernetes-id": ""}):
        assert links(labels=broken) == {}
