"""Who wrote, how that is known, and what to call them."""

from __future__ import annotations

from typing import Any

import pytest

from app.core.model import NOBODY, Actor, ActorSource, FieldDiff, Json
from app.core.objects.actors import (
    POD_NAME,
    actor_from_audit,
    actor_from_managed_fields,
    is_controller,
    short,
    user_agent_family,
)


@pytest.mark.parametrize(
    ("user_agent", "family"),
    [
        ("kubectl/v1.36.2 (linux/amd64) kubernetes/3a3b1f2", "kubectl"),
        (
            "kube-controller-manager/v1.36.0 (linux/amd64) x/system:serviceaccount:kube-system:job-controller",
            "kube-controller-manager",
        ),
        ("archetype-controller/v0.0.0 (linux/amd64) kubernetes/$Format", "archetype-controller"),
        ("Go-http-client/2.0", "Go-http-client"),
        ("Helm/3.19.0", "Helm"),
        ("Mozilla/5.0 (X11; Linux x86_64)", "browser"),
        ("", ""),
    ],
)
def test_user_agent_families(user_agent: str, family: str) -> None:
    assert user_agent_family(user_agent) == family


def test_a_bound_token_carries_its_pod() -> None:
    user = {"username": "system:serviceaccount:ops:agent", "extra": {POD_NAME: ["agent-7"]}}
    actor = actor_from_audit(user, user_agent="agent/v1")
    assert actor == Actor("system:serviceaccount:ops:agent", ActorSource.AUDIT, "agent", "agent-7")


@pytest.mark.parametrize("user", [{}, {"username": ""}, {"username": None}, {"extra": {POD_NAME: "odd"}}])
def test_a_request_without_a_user_is_anonymous(user: dict[str, Any]) -> None:
    assert actor_from_audit(user) == Actor("system:anonymous", ActorSource.AUDIT)


def test_an_impersonated_user_acts_and_the_real_one_is_kept() -> None:
    impersonated = {"username": "deployer", "extra": {POD_NAME: ["theirs"]}}
    actor = actor_from_audit({"username": "alice", "extra": {POD_NAME: ["hers"]}}, impersonated=impersonated)
    assert (actor.name, actor.impersonator, actor.pod) == ("deployer", "alice", "theirs")
    assert short(actor) == "alice as deployer"


def entry(manager: str, time: str, *fields: str, **more: Json) -> dict[str, Json]:
    tree: dict[str, Json] = {}
    for path in fields:
        here: Any = tree
        for step in path.split("/"):
            here = here.setdefault(step, {})
    return {"manager": manager, "operation": "Update", "apiVersion": "v1", "time": time, "fieldsV1": tree, **more}


IMAGE = FieldDiff(("spec", "containers", (("name", "app"),), "image"), "replace", "a:1", "a:2")
OWNS_IMAGE = 'f:spec/f:containers/k:{"name":"app"}/f:image'
APPLY: dict[str, Json] = {"operation": "Apply"}


def who(*managed: Json, diff: FieldDiff = IMAGE, before: str = "") -> str:
    return actor_from_managed_fields(managed, [diff], before=before).name


def test_the_manager_that_owns_the_changed_field_wrote_it() -> None:
    ci = entry("ci", "2026-11-20T12:00:00Z", OWNS_IMAGE)
    later = entry("kube-controller-manager", "2026-11-20T12:00:00Z", "f:metadata/f:annotations")
    found = actor_from_managed_fields([ci, later], [IMAGE], before="")
    assert found == Actor("ci", ActorSource.MANAGED_FIELDS, "ci")


def test_of_two_owners_the_later_one_wrote_it() -> None:
    old = entry("helm", "2026-11-20T11:00:00Z", OWNS_IMAGE)
    new = entry("kubectl-edit", "2026-11-20T12:00:00Z", OWNS_IMAGE)
    assert who(old, new) == who(new, old) == "kubectl-edit"


def test_two_writes_of_one_second_are_told_apart_by_what_they_own() -> None:
    ci = entry("ci", "2026-11-20T12:00:00Z", OWNS_IMAGE)
    scaler = entry("scaler", "2026-11-20T12:00:00Z", "f:spec/f:replicas")
    replicas = FieldDiff(("spec", "replicas"), "replace", 2, 9)
    assert who(ci, scaler, diff=replicas, before="2026-11-20T12:00:00Z") == "scaler"


def test_whoever_scaled_owns_the_replicas_without_a_time() -> None:
    """As an API server 1.36 writes it after a write to the subresource scale."""
    scale = entry("keda-operator", "", "f:spec/f:replicas", subresource="scale")
    ci = entry("ci", "2026-11-20T12:00:00Z", OWNS_IMAGE)
    replicas = FieldDiff(("spec", "replicas"), "replace", 2, 9)
    for entries in ([scale, ci], [{k: v for k, v in scale.items() if k != "time"}, ci]):
        assert actor_from_managed_fields(entries, [replicas], before="2026-11-20T12:00:00Z").name == "keda-operator"
    assert who(scale, ci, diff=FieldDiff((), "add", None, {})) == "ci"


def test_two_operations_of_one_manager_are_two_entries() -> None:
    update = entry("argocd", "2026-11-20T11:00:00Z", "f:metadata")
    apply = entry("argocd", "2026-11-20T12:00:00Z", OWNS_IMAGE, **APPLY)
    assert who(update, apply) == "argocd"


def test_status_writers_did_not_write_the_spec() -> None:
    status = entry("kubelet", "2026-11-20T12:30:00Z", "f:status", subresource="status")
    ci = entry("ci", "2026-11-20T12:00:00Z", OWNS_IMAGE)
    assert who(ci, status) == "ci"
    assert who(status, diff=GONE, before="2026-11-20T12:00:00Z") == ""


@pytest.mark.parametrize("managed", [[], ["odd"], [{"manager": 5}]])
def test_nothing_is_known_without_managed_fields(managed: list[Json]) -> None:
    assert actor_from_managed_fields(managed, [IMAGE], before="") == NOBODY


GONE = FieldDiff(("metadata", "labels", "team"), "remove", "shop", None)


def test_an_apply_that_removes_a_field_leaves_its_time() -> None:
    helm = entry("helm", "2026-11-20T12:30:00Z", "f:metadata/f:labels", **APPLY)
    kubectl = entry("kubectl", "2026-11-20T11:00:00Z", "f:metadata/f:labels")
    assert who(helm, kubectl, diff=GONE, before="2026-11-20T11:30:00Z") == "helm"


@pytest.mark.parametrize("before", ["2026-11-20T12:30:00Z", ""])
def test_a_removal_that_left_no_trace_is_by_nobody_known(before: str) -> None:
    """The owners of what was removed lose it, and keep their time."""
    helm = entry("helm", "2026-11-20T12:30:00Z", "f:metadata/f:labels")
    kubectl = entry("kubectl", "2026-11-20T11:00:00Z", "f:metadata/f:labels")
    assert actor_from_managed_fields([helm, kubectl], [GONE], before=before) == NOBODY


@pytest.mark.parametrize("manager", ["before-first-apply", "ancient-changes"])
def test_what_the_api_server_keeps_for_others_is_held_by_nobody(manager: str) -> None:
    before = entry(manager, "2026-11-20T12:00:00Z", OWNS_IMAGE)
    apply = entry("kubectl", "2026-11-20T12:00:00Z", OWNS_IMAGE, **APPLY)
    assert who(before, apply) == "kubectl"
    assert who(before) == ""


def test_the_oldest_entry_made_the_object() -> None:
    creation = FieldDiff((), "add", None, {})
    webhook = entry("operator", "2026-11-20T12:00:05Z", "f:metadata/f:finalizers")
    maker = entry("kubectl-create", "2026-11-20T12:00:00Z", OWNS_IMAGE)
    assert who(webhook, maker, diff=creation) == "kubectl-create"


@pytest.mark.parametrize(
    ("name", "source", "controller"),
    [
        ("system:serviceaccount:kube-system:deployment-controller", ActorSource.AUDIT, True),
        ("system:serviceaccount:kube-system:horizontal-pod-autoscaler", ActorSource.AUDIT, True),
        ("system:serviceaccount:kube-system:generic-garbage-collector", ActorSource.AUDIT, True),
        ("system:kube-scheduler", ActorSource.AUDIT, True),
        ("system:node:node-7", ActorSource.AUDIT, True),
        ("system:serviceaccount:kube-system:aws-load-balancer-controller", ActorSource.AUDIT, False),
        ("system:serviceaccount:shop:deployment-controller", ActorSource.AUDIT, False),
        ("system:serviceaccount:argocd:argocd-application-controller", ActorSource.AUDIT, False),
        ("alice", ActorSource.AUDIT, False),
        ("kubelet", ActorSource.AUDIT, False),
        ("kubelet", ActorSource.MANAGED_FIELDS, True),
        ("kube-controller-manager", ActorSource.MANAGED_FIELDS, True),
        ("kubectl-edit", ActorSource.MANAGED_FIELDS, False),
        ("", ActorSource.UNKNOWN, False),
    ],
)
def test_who_is_one_of_kubernetes_own_controllers(name: str, source: ActorSource, controller: bool) -> None:
    assert is_controller(Actor(name, source)) is controller


@pytest.mark.parametrize(
    ("name", "spoken"),
    [
        ("system:serviceaccount:argocd:argocd-application-controller", "argocd"),
        ("system:serviceaccount:flux-system:kustomize-controller", "kustomize-controller"),
        ("system:serviceaccount:shop:default", "shop/default"),
        ("system:serviceaccount:kube-system:deployment-controller", "deployment-controller"),
        ("system:node:node-7", "kubelet node-7"),
        ("system:kube-scheduler", "kube-scheduler"),
        ("alice@example.com", "alice"),
        ("alice", "alice"),
        ("", "someone unknown"),
    ],
)
def test_what_people_call_them(name: str, spoken: str) -> None:
    assert short(Actor(name, ActorSource.AUDIT)) == spoken
