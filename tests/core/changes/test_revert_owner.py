"""Who would write an object again, and the commands that keep them from it until Git says the same."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from app.core.changes.recipe import Known, Recipe
from app.core.changes.revert import bearing, revert_recipe
from app.core.model import Actor, ActorSource, Change, Object, ObjectState, Resource
from app.core.objects.owners import ARGO_CD, FLUX, HELM, Owner, owner_of
from tests.core.factories import a_change, a_resource, a_state, after

WEB = a_resource()
ALICE = Actor("alice", ActorSource.AUDIT)
ARGO = Actor("system:serviceaccount:argocd:argocd-application-controller", ActorSource.AUDIT)
TRACKED = "argocd.argoproj.io/tracking-id"
OF_SHOP: Object = {"annotations": {TRACKED: "shop:apps/Deployment:shop/web"}}
KUSTOMIZED: Object = {
    "labels": {"kustomize.toolkit.fluxcd.io/name": "apps", "kustomize.toolkit.fluxcd.io/namespace": "flux-system"}
}
SCALED = a_change(WEB, path=("spec", "replicas"), old=2, new=9, actor=ALICE)
APPLICATION = Resource("lab", "argoproj.io", "Application", "argocd", "shop")
KUSTOMIZATION = Resource("lab", "kustomize.toolkit.fluxcd.io", "Kustomization", "flux-system", "apps")


@pytest.mark.parametrize(
    ("metadata", "actor", "found"),
    [
        (OF_SHOP, ALICE, Owner(ARGO_CD, "Application", "shop")),
        (
            {"annotations": {TRACKED: "teams_shop:apps/Deployment:shop/web"}},
            ALICE,
            Owner(ARGO_CD, "Application", "shop", "teams"),
        ),
        ({"annotations": {TRACKED: "shop:apps/Deployment:shop/other"}}, ALICE, None),
        ({"annotations": {TRACKED: "shop:/ConfigMap:shop/web"}}, ALICE, None),
        ({"labels": {"argocd.argoproj.io/instance": "shop"}}, ALICE, Owner(ARGO_CD, "Application", "shop")),
        ({"annotations": {"argocd.argoproj.io/sync-wave": "1"}}, ALICE, Owner(ARGO_CD)),
        ({"labels": {"app.kubernetes.io/instance": "shop"}}, ALICE, None),
        ({"labels": {"app.kubernetes.io/instance": "shop"}}, ARGO, Owner(ARGO_CD, "Application", "shop")),
        ({}, ARGO, Owner(ARGO_CD)),
        (KUSTOMIZED, ALICE, Owner(FLUX, "Kustomization", "apps", "flux-system")),
        (
            {"labels": {"helm.toolkit.fluxcd.io/name": "shop", "helm.toolkit.fluxcd.io/namespace": "apps"}}
            | {"annotations": {"meta.helm.sh/release-name": "shop"}},
            ALICE,
            Owner(FLUX, "HelmRelease", "shop", "apps"),
        ),
        ({}, Actor("kustomize-controller", ActorSource.MANAGED_FIELDS), Owner(FLUX)),
        (
            {"annotations": {"meta.helm.sh/release-name": "shop", "meta.helm.sh/release-namespace": "shop"}},
            ALICE,
            Owner(HELM, "release", "shop", "shop"),
        ),
        ({}, Actor("ci", ActorSource.AUDIT, user_agent="helm"), Owner(HELM)),
        ({"labels": {"app": "web"}}, ALICE, None),
    ],
)
def test_whose_an_object_is(metadata: Object, actor: Actor, found: Owner | None) -> None:
    assert owner_of(WEB, {"metadata": metadata}, actor) == found


def test_an_object_that_was_copied_from_one_is_not_tracked() -> None:
    """A Deployment's annotations are copied to its ReplicaSets."""
    assert owner_of(a_resource("ReplicaSet", "web"), {"metadata": OF_SHOP}, ALICE) is None


def recipe(metadata: Object, change: Change = SCALED, others: tuple[ObjectState, ...] = ()) -> Recipe:
    state: Object = {"metadata": metadata, "spec": {"replicas": 9}}
    known = Known(a_state(WEB, state), others={one.resource: one for one in others})
    assert {one.resource for one in others} <= set(bearing(change, known))
    return revert_recipe(change, known)


def commands(told: Recipe) -> list[str]:
    """Of all steps but the first, which says where they act."""
    return [step.command for step in told.steps[1:]]


def an_application(**sync: Any) -> ObjectState:
    source: Object = {"repoURL": "https://git.example/shop", "path": "deploy"}
    policy: Object = {"syncPolicy": {"automated": sync}} if sync else {}
    return a_state(APPLICATION, {"spec": {"source": source, **policy}})


def test_argo_cd_is_kept_from_syncing_and_let_go_on_in_the_end() -> None:
    told = recipe(OF_SHOP)
    assert commands(told) == [
        "argocd app set shop --sync-policy none",
        "kubectl scale deployments.apps/web -n shop --replicas=2 --dry-run=server",
        "kubectl scale deployments.apps/web -n shop --replicas=2",
        "",
        "argocd app set shop --sync-policy automated",
    ]
    assert "git revert" in told.steps[4].purpose
    assert "--self-heal where it had them" in told.steps[5].purpose
    assert "by its application shop" in told.warning


def test_the_application_says_how_it_was_synced_and_where_its_git_is() -> None:
    told = recipe(OF_SHOP, others=(an_application(prune=True, selfHeal=True),))
    assert commands(told)[-1] == "argocd app set shop --sync-policy automated --auto-prune --self-heal"
    assert "where it had them" not in told.steps[-1].purpose
    assert "in https://git.example/shop at deploy" in told.steps[4].purpose


@pytest.mark.parametrize("sync", [{}, {"enabled": False, "selfHeal": True}])
def test_an_application_that_is_not_synced_by_itself_need_not_be_paused(sync: dict[str, Any]) -> None:
    told = recipe(OF_SHOP, others=(an_application(**sync),))
    assert not any("argocd" in command for command in commands(told))
    assert "until somebody syncs" in told.warning


def test_an_application_set_would_set_the_policy_again() -> None:
    app = replace(an_application(selfHeal=True), owner_kind="ApplicationSet", owner_name="teams")
    told = recipe(OF_SHOP, others=(app,))
    assert not any("argocd" in command for command in commands(told))
    assert "out of the template of the ApplicationSet teams" in told.steps[1].purpose
    assert told.steps[-1].purpose.endswith("put that back")


def test_what_argo_cd_applied_is_rolled_back_by_it() -> None:
    applied = replace(SCALED, actor=ARGO)
    told = recipe(OF_SHOP, applied)
    assert told.command == "argocd app rollback shop"
    assert told.dry_run == ""
    assert told.placed == "in the cluster lab (see first: argocd context)"
    assert commands(told)[:3] == [
        "argocd app set shop --sync-policy none", "argocd app history shop", "argocd app rollback shop"
    ]  # fmt: skip
    again = a_change(WEB, at=after(60), path=("spec", "paused"), old=None, new=True, actor=ARGO)
    state: Object = {"metadata": OF_SHOP, "spec": {"replicas": 9}}
    later = revert_recipe(applied, Known(a_state(WEB, state), (again,)))
    assert later.command.startswith("kubectl scale"), "the last version but one is another one by now"


def test_an_application_elsewhere_is_named_with_its_namespace() -> None:
    told = recipe({"annotations": {TRACKED: "teams_shop:apps/Deployment:shop/web"}})
    assert commands(told)[0] == "argocd app set shop -N teams --sync-policy none"


def test_flux_is_suspended_and_resumed() -> None:
    source: Object = {"sourceRef": {"kind": "GitRepository", "name": "fleet"}, "path": "./apps"}
    told = recipe(KUSTOMIZED, others=(a_state(KUSTOMIZATION, {"spec": source}),))
    assert commands(told) == [
        "flux suspend kustomization apps -n flux-system",
        "kubectl scale deployments.apps/web -n shop --replicas=2 --dry-run=server",
        "kubectl scale deployments.apps/web -n shop --replicas=2",
        "",
        "flux resume kustomization apps -n flux-system",
    ]
    assert "in GitRepository fleet at ./apps" in told.steps[4].purpose
    suspended = recipe(KUSTOMIZED, others=(a_state(KUSTOMIZATION, {"spec": {"suspend": True}}),))
    assert not any("flux" in command for command in commands(suspended))
    assert "until it is resumed" in suspended.warning


def test_an_application_that_is_not_recorded_is_to_be_found_first() -> None:
    told = recipe({}, replace(SCALED, actor=ARGO))
    columns = "NAMESPACE:.metadata.namespace,APP:.metadata.name,OF:.status.resources[*].name"
    assert commands(told) == [
        f"kubectl get applications.argoproj.io -A -o custom-columns='{columns}' | grep -Fw -- web",
        "argocd app set APP --sync-policy none",
        "kubectl scale deployments.apps/web -n shop --replicas=2 --dry-run=server",
        "kubectl scale deployments.apps/web -n shop --replicas=2",
        "",
        "argocd app set APP --sync-policy automated",
    ]
    assert told.steps[1].purpose == "Find the Application that has it, which is not recorded"
    assert told.warning == (
        "Argo CD owns it, by an Application that is not recorded: revert it in Git, or find that and pause it first"
        " (`argocd app set APP --sync-policy none`), else it is written again."
    )


@pytest.mark.parametrize("kind", ["kustomization", "helmrelease"])
def test_what_flux_keeps_it_by_is_to_be_found_first(kind: str) -> None:
    who = "kustomize-controller" if kind == "kustomization" else "helm-controller"
    told = recipe({}, replace(SCALED, actor=replace(ARGO, name=who, user_agent=who)))
    first, second, *_, last = commands(told)
    assert first == "flux trace -n shop deployments.apps/web"
    assert second == f"flux suspend {kind} NAME -n NAMESPACE"
    assert last == f"flux resume {kind} NAME -n NAMESPACE"
    assert "that is not recorded: revert it in Git, or find that and pause it first (`flux suspend" in told.warning


def test_a_sync_is_undone_by_going_back_in_its_own_application() -> None:
    """What asked for it is taken away with its end; to put that back would begin the sync once more."""
    asked: Object = {"sync": {"revision": "bbb"}, "initiatedBy": {"username": "alice"}}
    sync = a_change(APPLICATION, path=("operation",), old=None, new=asked, actor=ARGO)
    tracked: Object = {"annotations": {TRACKED: "root:argoproj.io/Application:argocd/shop"}}
    app = a_state(APPLICATION, {"metadata": tracked, "spec": {"syncPolicy": {"automated": {"selfHeal": True}}}})
    over = a_change(APPLICATION, at=after(9), path=("operation",), old=asked, new=None, actor=ARGO)
    for since in ((), (over,)):
        told = revert_recipe(sync, Known(app, since, others={APPLICATION: app}))
        assert told.command == "argocd app rollback shop"
        assert commands(told)[1] == "argocd app set shop --sync-policy none", "after what would set it again"
    later = a_change(APPLICATION, at=after(60), path=("operation",), old=None, new=asked, actor=ARGO)
    assert revert_recipe(sync, Known(app, (later,), others={APPLICATION: app})).command == ""
    assert "argocd app history lists" in revert_recipe(sync, Known(app, (later,))).warning


@pytest.mark.parametrize("heals", [True, False, None])
def test_an_app_of_apps_that_would_set_the_policy_again_is_stopped_first(heals: bool | None) -> None:
    above = Resource("lab", "argoproj.io", "Application", "argocd", "root")
    tracked: Object = {"annotations": {TRACKED: "root:argoproj.io/Application:argocd/shop"}}
    app = a_state(APPLICATION, {"metadata": tracked, "spec": {"syncPolicy": {"automated": {}}}})
    root = a_state(above, {"spec": {"syncPolicy": {"automated": {"selfHeal": heals}}}})
    others = {APPLICATION: app} if heals is None else {APPLICATION: app, above: root}
    known = Known(a_state(WEB, {"metadata": OF_SHOP, "spec": {"replicas": 9}}), others=others)
    assert above in bearing(SCALED, known)
    told = commands(revert_recipe(SCALED, known))
    stops = [one for one in told if one.endswith("--sync-policy none")]
    own = "argocd app set shop --sync-policy none"
    assert stops == ([own] if heals is False else ["argocd app set root --sync-policy none", own])
    assert told[-1].startswith(f"argocd app set {'shop' if heals is False else 'root'} --sync-policy automated")


def test_an_application_that_flux_keeps_is_stopped_after_flux() -> None:
    app = a_state(APPLICATION, {"metadata": KUSTOMIZED, "spec": {"syncPolicy": {"automated": {}}}})
    told = commands(recipe(OF_SHOP, others=(app,)))
    assert told[:2] == ["flux suspend kustomization apps -n flux-system", "argocd app set shop --sync-policy none"]
    assert told[-1] == "flux resume kustomization apps -n flux-system"
