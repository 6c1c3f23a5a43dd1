"""To which revision a Helm release goes back: `helm rollback` brings back even one that failed."""

from __future__ import annotations

import pytest

from app.core.changes.recipe import SIMULATED, Known
from app.core.changes.revert import bearing, revert_recipe
from app.core.model import Object, ObjectState, Resource, Verb
from tests.core.factories import a_change, a_resource, a_state

UPGRADE = a_change(a_resource("Secret", "sh.helm.release.v1.shop.v7"), verb=Verb.CREATE)


def known(**went: str) -> Known:
    """How revisions went, by their labels as Helm writes them: ``v6="failed"``; told at all where it is asked for."""
    found: list[ObjectState] = []
    for revision, status in went.items():
        resource = a_resource("Secret", f"sh.helm.release.v1.shop.{revision}")
        found.append(a_state(resource, {"metadata": {"labels": {"owner": "helm", "status": status}}}))
    assert {one.resource for one in found} <= set(bearing(UPGRADE, Known()))
    return Known(others={one.resource: one for one in found})


@pytest.mark.parametrize("status", ["failed", "pending-upgrade", "pending-rollback"])
def test_it_goes_back_past_what_did_not_go_well(status: str) -> None:
    told = revert_recipe(UPGRADE, known(v6=status, v5=status, v4="superseded"))
    assert told.command == "helm rollback shop 4 -n shop"
    assert "Revision 6 did not go well: this goes back to 4, the last that did." in told.warning
    assert revert_recipe(UPGRADE, known(v6="superseded", v5=status)).command == "helm rollback shop 6 -n shop"


def test_where_none_went_well_there_is_none_to_go_back_to() -> None:
    told = revert_recipe(UPGRADE, known(**{f"v{number}": "failed" for number in range(1, 7)}))
    assert told.command == ""
    assert "No revision of shop before this one went well" in told.warning


def test_what_it_would_bring_is_to_be_looked_at_first() -> None:
    """Helm's own dry run of a rollback says that it succeeded, and no more."""
    told = revert_recipe(UPGRADE)
    assert [step.command for step in told.steps] == [
        "kubectl config current-context",
        "helm history shop -n shop",
        "helm get manifest shop --revision 6 -n shop | kubectl diff -n shop -f -",
        "helm rollback shop 6 -n shop --dry-run",
        "helm rollback shop 6 -n shop",
    ]
    assert told.steps[3].purpose == SIMULATED
    assert told.warning == "", "nobody else owns it"


@pytest.mark.parametrize(
    ("spec", "is_its"),
    [
        ({"releaseName": "shop", "storageNamespace": "shop"}, True),
        ({"targetNamespace": "shop", "storageNamespace": "shop"}, False),
        ({"releaseName": "shop"}, False),
        ({"storageNamespace": "shop"}, True),
    ],
)
def test_what_flux_releases_is_suspended_first(spec: Object, is_its: bool) -> None:
    """Whoever released it last: helm-controller 1.6.3 upgrades again within its interval."""
    tender = Resource("lab", "helm.toolkit.fluxcd.io", "HelmRelease", "flux-system", "shop")
    told = revert_recipe(UPGRADE, Known(others={tender: a_state(tender, {"spec": spec})}))
    first, last = told.steps[1].command, told.steps[-1].command
    assert (first == "flux suspend helmrelease shop -n flux-system") is is_its
    assert (last == "flux resume helmrelease shop -n flux-system") is is_its
    assert ("by the HelmRelease flux-system/shop" in told.warning) is is_its
    assert told.command == "helm rollback shop 6 -n shop"


def test_who_undoes_by_kubectl_is_told_that_helm_4_is_refused_afterwards() -> None:
    """Helm 4.3.2: "conflict occurred while applying object", of its upgrade and its rollback."""
    marks: Object = {"meta.helm.sh/release-name": "pay", "meta.helm.sh/release-namespace": "shop"}
    web = a_state(a_resource(), {"metadata": {"annotations": marks}, "spec": {}})
    edited = a_change(a_resource(), path=("spec", "replicas"), old=2, new=9)
    assert "--force-conflicts" in revert_recipe(edited, Known(web)).warning
    assert "`helm rollback pay -n shop` goes back from its newest" in revert_recipe(edited, Known(web)).warning
    made = a_change(a_resource(), verb=Verb.CREATE)
    assert "--force-conflicts" not in revert_recipe(made, Known(web)).warning
