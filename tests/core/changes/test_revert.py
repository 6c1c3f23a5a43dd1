"""Revert recipes: the command a person may run, and what to mind."""

from __future__ import annotations

import shlex
from dataclasses import replace as replace_known
from typing import Any

import orjson
import pytest
from msgspec.structs import replace

from app.core.changes.recipe import Known
from app.core.changes.revert import bearing, revert_recipe
from app.core.model import Actor, ActorSource, Change, DiffSource, FieldDiff, Json, Object, Resource, Verb
from app.core.objects.diff import diff
from tests.core.factories import a_change, a_resource, a_state, after

WEB = a_resource()


def changed(kind: str, old: Object | None, new: Object | None, **more: Any) -> Change:
    verb = Verb.CREATE if old is None else Verb.DELETE if new is None else Verb.UPDATE
    change = replace(a_change(a_resource(kind), verb=verb), diffs=diff(old, new))
    return replace(change, **more)


def now(state: Object, resource: Resource = WEB) -> Known:
    """The object as it is now is known, and that nothing was written to it since."""
    return Known(a_state(resource, state))


def merged(target: Json, patch: Json) -> Json:
    """RFC 7386, section 2."""
    if not isinstance(patch, dict):
        return patch
    out = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            out.pop(key, None)
        else:
            out[key] = merged(out.get(key), value)
    return out


def patch_of(command: str) -> tuple[str, Object]:
    words = shlex.split(command)
    return words[words.index("--type") + 1], orjson.loads(words[words.index("-p") + 1])


def test_a_rollout_is_undone() -> None:
    recipe = revert_recipe(a_change(WEB))
    assert recipe.command == "kubectl rollout undo deployments.apps/web -n shop"
    assert "one revision" in recipe.warning


def test_scaling_is_scaled_back() -> None:
    recipe = revert_recipe(a_change(WEB, path=("spec", "replicas"), old=2, new=500))
    assert recipe.command == "kubectl scale deployments.apps/web -n shop --replicas=2"


@pytest.mark.parametrize(("old", "new", "verb"), [(None, True, "uncordon"), (True, None, "cordon")])
def test_a_cordon(old: Json, new: Json, verb: str) -> None:
    node = a_resource("Node", "node-7", None)
    assert (
        revert_recipe(a_change(node, path=("spec", "unschedulable"), old=old, new=new)).command
        == f"kubectl {verb} node-7"
    )


KEEP: Json = {"key": "keep", "effect": "NoSchedule"}
GPU: Json = {"key": "gpu", "value": "a", "effect": "NoExecute"}


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ([KEEP], [GPU, KEEP], "gpu:NoExecute-"),
        ([KEEP, GPU], [KEEP], "gpu=a:NoExecute"),
        ([KEEP], None, "keep:NoSchedule"),
        (None, [GPU], "gpu:NoExecute-"),
        ([GPU], [{**GPU, "value": "b"}], "gpu=a:NoExecute"),  # type: ignore[dict-item]
        ([KEEP], [GPU], "gpu:NoExecute- keep:NoSchedule"),
    ],
)
def test_a_taint_is_put_back_alone_for_the_list_holds_others_that_are_not_recorded(
    old: Json, new: Json, words: str
) -> None:
    sides: list[Object] = [{"spec": {"taints": taints}} if taints else {"spec": {}} for taints in (old, new)]
    told = revert_recipe(changed("Node", *sides), now(sides[1], a_resource("Node")))
    assert told.command == f"kubectl taint nodes web {words} --overwrite"
    assert told.dry_run == f"{told.command} --dry-run=server"


def test_finalizers_are_put_back_by_hand_for_others_may_stand_beside_them() -> None:
    old: Object = {"metadata": {"finalizers": ["a/b"]}}
    new: Object = {"metadata": {"finalizers": ["a/b", "c/d"]}}
    told = revert_recipe(changed("Pod", old, new), now(new, a_resource("Pod")))
    assert told.command == "kubectl edit pods/web -n shop"
    assert "not all is recorded" in told.warning


def test_what_is_immutable_is_made_anew() -> None:
    config = a_resource("ConfigMap")
    one: Object = {"data": {"a": "1"}}
    sealed: Object = {"data": {"a": "1"}, "immutable": True}
    other: Object = {"data": {"a": "2"}, "immutable": True}
    for old, new in ((one, sealed), (sealed, other)):
        told = revert_recipe(changed("ConfigMap", old, new), now(new, config))
        assert told.command == ""
        assert "immutable, which the API server never takes back: delete it and make it anew" in told.warning
    labelled: Object = {**sealed, "metadata": {"labels": {"a": "b"}}}
    told = revert_recipe(changed("ConfigMap", sealed, labelled), now(labelled, config))
    assert told.command.startswith("kubectl patch configmaps/web")


@pytest.mark.parametrize(
    ("kind", "old", "new"),
    [
        ("ConfigMap", {"data": {"a": "it's", "b": "2"}}, {"data": {"a": "1", "c": "3"}}),
        (
            "ServiceAccount",
            {"metadata": {"annotations": {"x/owner": "a"}}},
            {"metadata": {"annotations": {"x/owner": "b"}}},
        ),
        ("Role", {"rules": [{"verbs": ["get", "list"]}]}, {"rules": [{"verbs": ["get"]}]}),
        (
            "NetworkPolicy",
            {"spec": {"ingress": [{"from": [1]}, {"from": [2]}]}},
            {"spec": {"ingress": [{"from": [1]}]}},
        ),
        (
            "Widget",
            {"spec": {"steps": [{"name": "a", "n": 1}], "on": True}},
            {"spec": {"steps": [{"name": "a", "n": 2}]}},
        ),
    ],
)
def test_a_merge_patch_brings_the_values_before_back(kind: str, old: Object, new: Object) -> None:
    recipe = revert_recipe(changed(kind, old, new), now(new))
    how, patch = patch_of(recipe.command)
    assert how == "merge"
    assert merged(new, patch) == old


def test_items_of_named_lists_take_a_strategic_patch() -> None:
    hooks: Object = {"webhooks": [{"name": "a.b", "failurePolicy": "Ignore"}]}
    worse: Object = {"webhooks": [{"name": "a.b", "failurePolicy": "Fail"}, {"name": "c.d", "failurePolicy": "Fail"}]}
    how, patch = patch_of(revert_recipe(changed("ValidatingWebhookConfiguration", hooks, worse)).command)
    assert how == "strategic"
    assert patch == {
        "webhooks": [{"name": "a.b", "failurePolicy": "Ignore"}, {"name": "c.d", "$patch": "delete"}],
    }


def test_custom_resources_take_no_strategic_patch() -> None:
    rollout = replace(a_resource("Rollout"), api_group="argoproj.io")
    path = ("spec", "template", "spec", "containers", (("name", "web"),), "image")
    assert revert_recipe(a_change(rollout, path=path)).command.startswith("kubectl edit rollouts.argoproj.io/web")
    pods: Object = {"spec": {"template": {"spec": {"containers": [{"name": "web", "image": "web:2"}, {"name": "b"}]}}}}
    how, patch = patch_of(revert_recipe(a_change(rollout, path=path), now(pods, rollout)).command)
    assert how == "merge"
    assert patch["spec"]["template"]["spec"]["containers"] == [{"name": "web", "image": "web:1"}, {"name": "b"}]  # type: ignore[call-overload, index]


ARGO = replace(a_resource("Rollout"), api_group="argoproj.io")


def a_rollout(*env: Json, **spec: Json) -> Object:
    container: Object = {"name": "web", "image": "web:2", "env": [*env]}
    return {"spec": {"template": {"spec": {"containers": [container]}}, **spec}}


def test_an_argo_rollout_is_patched_and_its_abort_is_no_undoing() -> None:
    recipe = revert_recipe(a_change(ARGO), now(a_rollout(), ARGO))
    assert recipe.command.startswith("kubectl patch rollouts.argoproj.io/web -n shop --type merge")
    assert recipe.dry_run.endswith("--dry-run=server")
    (stop,) = recipe.before
    assert stop.command == "kubectl argo rollouts abort web -n shop"
    assert "does not hold" in stop.purpose


def test_where_a_secret_is_beside_it_argo_has_the_template_before_in_a_replica_set() -> None:
    secret: Object = {"name": "PASSWORD", "value": "<redacted:0123abcd>"}
    recipe = revert_recipe(a_change(ARGO), now(a_rollout(secret), ARGO))
    assert (recipe.command, recipe.dry_run) == ("kubectl argo rollouts undo web -n shop", "")
    assert [step.command for step in recipe.before] == ["kubectl argo rollouts abort web -n shop"]
    kept = now(a_rollout(secret, revisionHistoryLimit=0), ARGO)
    assert revert_recipe(a_change(ARGO), kept).command == "kubectl edit rollouts.argoproj.io/web -n shop"
    newer = replace_known(now(a_rollout(secret), ARGO), since=(a_change(ARGO, at=after(9), old="web:2", new="web:3"),))
    assert "argo rollouts undo" not in revert_recipe(a_change(ARGO), newer).command
    scaled = a_change(ARGO, path=("spec", "replicas"), old=3, new=1)
    assert revert_recipe(scaled, now(a_rollout(), ARGO)).before == ()


def test_lists_without_names_and_without_the_state_are_edited_by_hand() -> None:
    recipe = revert_recipe(changed("Role", {"rules": [{"verbs": ["get", "list"]}]}, {"rules": [{"verbs": ["get"]}]}))
    assert recipe.command.startswith("kubectl edit roles.rbac.authorization.k8s.io/web")
    assert "by hand" in recipe.warning


def test_a_created_object_is_deleted_and_what_it_holds_is_said() -> None:
    assert revert_recipe(changed("ConfigMap", None, {"data": {}})).command == "kubectl delete configmaps/web -n shop"
    crd = revert_recipe(changed("CustomResourceDefinition", None, {"spec": {}}))
    assert "every object of this kind" in crd.warning


def test_what_was_made_in_one_go_is_deleted_in_one_go() -> None:
    """A line for each namespace: kubectl takes one at a time."""
    made = changed("Deployment", None, {"spec": {}})
    beside = [
        a_resource("Service", "web"),
        a_resource("ClusterRole", "web", None),
        a_resource("Namespace", "new", None),
    ]
    recipe = revert_recipe(made, also=beside)
    assert recipe.command == (
        "kubectl delete deployments.apps/web services/web -n shop\n"
        "kubectl delete clusterroles.rbac.authorization.k8s.io/web namespaces/new"
    )
    assert recipe.warning == "This deletes everything in the namespace."


def test_of_the_same_edit_of_many_the_others_are_told() -> None:
    recipe = revert_recipe(a_change(path=("spec", "replicas"), old=2, new=9), also=[a_resource(name="cart")])
    assert recipe.command == "kubectl scale deployments.apps/web -n shop --replicas=2"
    assert recipe.warning == "The same edit was made to one other: undo each, by its name."
    release = replace(a_change(a_resource("Secret", "sh.helm.release.v1.shop.v7")), verb=Verb.CREATE)
    assert revert_recipe(release, also=[a_resource()]).command == "helm rollback shop 6 -n shop"


def test_a_deleted_object_is_applied_again_whole() -> None:
    recipe = revert_recipe(changed("ClusterRole", {"metadata": {"name": "web"}, "rules": []}, None))
    manifest = orjson.loads(recipe.command.split("'END'\n")[1].removesuffix("\nEND"))
    assert manifest == {
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "web"}, "rules": [],
    }  # fmt: skip


@pytest.mark.parametrize(("manual", "kept"), [({}, False), ({"manualSelector": True}, True)])
def test_a_job_is_made_again_without_the_selector_that_named_its_uid(manual: Object, kept: bool) -> None:
    labels: Object = {"batch.kubernetes.io/controller-uid": "u-1"}
    spec: Object = {"parallelism": 1, "selector": {"matchLabels": labels}, **manual}
    recipe = revert_recipe(changed("Job", {"metadata": {"name": "web"}, "spec": spec}, None))
    again = orjson.loads(recipe.command.split("'END'\n")[1].removesuffix("\nEND"))
    assert ("selector" in again["spec"]) is kept
    assert again["spec"]["parallelism"] == 1


@pytest.mark.parametrize(
    ("kind", "lost"),
    [
        ("Namespace", "What was in it does not come back"),
        ("CustomResourceDefinition", "Its objects do not come back"),
        ("PersistentVolumeClaim", "Its data does not come back"),
    ],
)
def test_what_does_not_come_back_with_a_deleted_object_is_told(kind: str, lost: str) -> None:
    recipe = revert_recipe(changed(kind, {"metadata": {"name": "web"}, "spec": {"a": "b"}}, None))
    assert recipe.command.startswith("kubectl apply")
    assert lost in recipe.warning


def test_that_a_claim_is_not_made_smaller_than_its_volume_is_told() -> None:
    def asks(size: str) -> Object:
        return {"spec": {"resources": {"requests": {"storage": size}}}}

    told = "No claim is made smaller than its volume"
    assert told in revert_recipe(changed("PersistentVolumeClaim", asks("1Gi"), asks("2Gi"))).warning
    assert told not in revert_recipe(changed("Pod", asks("1Gi"), asks("2Gi"))).warning


@pytest.mark.parametrize(
    "change",
    [
        changed("Secret", {"data": {"k": "<redacted:00000000>"}}, None),
        changed("Widget", {"metadata": {"name": "web"}}, None),
        replace(changed("ConfigMap", {"data": {}}, None), diffs=(), diff_source=DiffSource.NONE),
    ],
)
def test_what_is_not_known_is_not_invented(change: Change) -> None:
    recipe = revert_recipe(change)
    assert recipe.command == ""
    assert "declared" in recipe.warning


@pytest.mark.parametrize(
    ("kind", "state", "words"),
    [
        ("Secret", {"data": {"k": "<redacted:00000000>"}}, "secret values are not kept here"),
        ("ConfigMap", {"binaryData": {"k": "<redacted:00000000>"}}, "secret values (all of binaryData counts as such)"),
        ("ConfigMap", {"data": {"k": "x" * 20_000}}, "too long for a command"),
    ],
)
def test_where_no_command_is_shown_of_a_deletion_the_manifest_is_named(kind: str, state: Object, words: str) -> None:
    change = changed(kind, state, None)
    recipe = revert_recipe(change)
    assert recipe.command == ""
    assert words in recipe.warning
    assert f"foreshock revert {change.id} --manifest" in recipe.warning


def test_a_secret_value_is_never_put_into_a_command() -> None:
    recipe = revert_recipe(
        changed("Secret", {"data": {"k": "<redacted:00000000>"}}, {"data": {"k": "<redacted:11111111>"}})
    )
    assert recipe.command == "kubectl edit secrets/web -n shop"
    assert "secret value" in recipe.warning


def test_an_unrecorded_body_is_edited_by_hand() -> None:
    change = replace(a_change(WEB), diffs=(), diff_source=DiffSource.NONE)
    assert "not recorded" in revert_recipe(change).warning


@pytest.mark.parametrize(
    ("actor", "metadata", "word"),
    [
        ("system:serviceaccount:argocd:argocd-application-controller", {}, "Argo CD"),
        ("alice", {"annotations": {"argocd.argoproj.io/tracking-id": "shop:apps/Deployment:shop/web"}}, "Argo CD"),
        ("kustomize-controller", {}, "Flux"),
        ("alice", {"labels": {"helm.toolkit.fluxcd.io/name": "x"}}, "Flux"),
        ("alice", {"annotations": {"meta.helm.sh/release-name": "shop"}}, "Helm release shop"),
    ],
)
def test_who_would_write_it_again(actor: str, metadata: Object, word: str) -> None:
    change = a_change(WEB, actor=Actor(actor, ActorSource.AUDIT))
    assert word in revert_recipe(change, now({"metadata": metadata})).warning


def test_alice_alone_is_warned_of_nobody() -> None:
    change = a_change(WEB, path=("spec", "replicas"), old=2, new=3, actor=Actor("alice", ActorSource.AUDIT))
    assert revert_recipe(change, now({"metadata": {"labels": {"app": "web"}}})).warning == ""


def test_a_derived_change_points_at_its_root() -> None:
    assert "another change" in revert_recipe(replace(a_change(WEB), begun_by="0" * 28)).warning


def test_a_helm_release_is_rolled_back_by_helm() -> None:
    secret = a_resource("Secret", "sh.helm.release.v1.shop.v7")
    change = replace(a_change(secret, verb=Verb.CREATE), diffs=(FieldDiff((), "add", None, {}),))
    recipe = revert_recipe(change)
    assert recipe.command == "helm rollback shop 6 -n shop"
    assert recipe.dry_run == "helm rollback shop 6 -n shop --dry-run"
    first = replace(change, resource=a_resource("Secret", "sh.helm.release.v1.shop.v1"))
    assert revert_recipe(first).command == "helm uninstall shop -n shop"
    assert revert_recipe(replace(change, verb=Verb.DELETE)).command == ""


def test_where_helm_keeps_the_revision_before_no_more_there_is_no_going_back_to_it() -> None:
    change = a_change(a_resource("Secret", "sh.helm.release.v1.shop.v17"), verb=Verb.CREATE)
    before = a_resource("Secret", "sh.helm.release.v1.shop.v16")
    assert before in bearing(change, Known())
    kept = a_state(before, {})
    assert revert_recipe(change, Known(others={before: kept})).command.startswith("helm rollback shop 16")
    recipe = revert_recipe(change, Known(others={before: replace(kept, deleted_at=change.at)}))
    assert recipe.command == ""
    assert "Helm keeps revision 16 of shop no more" in recipe.warning


@pytest.mark.parametrize("version", ["v8", "v9"])
def test_a_newer_helm_release_is_told(version: str) -> None:
    change = a_change(a_resource("Secret", "sh.helm.release.v1.shop.v7"), verb=Verb.CREATE)
    newer = a_resource("Secret", f"sh.helm.release.v1.shop.{version}")
    recipe = revert_recipe(change, Known(others={newer: a_state(newer, {})}))
    assert ("Revision 8 was released since" in recipe.warning) is (version == "v8")
    uninstalled = replace(a_state(newer, {}), deleted_at=change.at)
    assert "since" not in revert_recipe(change, Known(others={newer: uninstalled})).warning


@pytest.mark.parametrize(
    ("change", "dry_run"),
    [
        (a_change(WEB), "kubectl rollout undo deployments.apps/web -n shop --dry-run=server"),
        (
            a_change(WEB, path=("spec", "replicas"), old=2, new=9),
            "kubectl scale deployments.apps/web -n shop --replicas=2 --dry-run=server",
        ),
        (
            a_change(a_resource("Node", "n7", None), path=("spec", "unschedulable"), old=None, new=True),
            "kubectl uncordon n7 --dry-run=server",
        ),
        (changed("ConfigMap", None, {"data": {}}), "kubectl delete configmaps/web -n shop --dry-run=server"),
        (
            changed("ConfigMap", {"data": {"a": "1"}}, {"data": {"a": "2"}}),
            'kubectl patch configmaps/web -n shop --type merge -p \'{"data":{"a":"1"}}\' --dry-run=server',
        ),
        (
            changed("ConfigMap", {"data": {"a": "<redacted:0>"}}, {"data": {"a": "2"}}),
            "",
        ),
    ],
)
def test_a_dry_run_is_the_same_command_made_harmless(change: Change, dry_run: str) -> None:
    recipe = revert_recipe(change)
    assert recipe.dry_run == dry_run
    assert recipe.command == dry_run.removesuffix(" --dry-run=server") or not dry_run
    assert [step.command for step in recipe.steps] == [
        one for one in (recipe.command and "kubectl config current-context", dry_run, recipe.command) if one
    ]


def test_it_is_said_first_where_the_commands_act() -> None:
    recipe = revert_recipe(a_change(WEB))
    assert recipe.steps[0].purpose == "See where the commands act: this must be the cluster lab"
    assert recipe.placed == "in the cluster lab (see first: kubectl config current-context)"
    sealed: Object = {"data": {"a": "1"}, "immutable": True}
    without = revert_recipe(changed("ConfigMap", {"data": {"a": "1"}}, sealed), now(sealed, a_resource("ConfigMap")))
    assert (without.command, without.steps) == ("", ())


@pytest.mark.parametrize(("length", "is_argument"), [((1 << 17) - 20, True), (1 << 17, False)])
def test_a_patch_that_no_program_takes_as_an_argument_is_its_input(length: int, *, is_argument: bool) -> None:
    recipe = revert_recipe(changed("ConfigMap", {"data": {"a": "é" * (length // 2)}}, {"data": {"a": "2"}}))
    start, patch, *end = recipe.command.replace(" -p ", "\n").split("\n")
    assert start.startswith("kubectl patch configmaps/web -n shop --type merge")
    assert ("<<'END'" in start, end) == ((False, []) if is_argument else (True, ["END"]))
    assert len(patch.strip("'").encode()) == 2 * (length // 2) + len('{"data":{"a":""}}')
    assert recipe.dry_run.replace(" --dry-run=server", "", 1) == recipe.command != recipe.dry_run


def test_each_line_and_what_is_applied_have_a_dry_run_too() -> None:
    made = revert_recipe(changed("ConfigMap", None, {"data": {}}), also=[a_resource("Namespace", "new", None)])
    assert [line.endswith(" --dry-run=server") for line in made.dry_run.splitlines()] == [True, True]
    applied = revert_recipe(changed("ConfigMap", {"data": {"a": "1"}}, None))
    assert applied.dry_run.replace(" --dry-run=server", "", 1) == applied.command
    assert applied.dry_run.startswith("kubectl apply --dry-run=server -f - <<'END'\n{")


def test_the_order_of_a_list_is_no_field() -> None:
    """Containers start one by one: that their order changed is undone by the whole list, or by hand."""
    pods: list[Json] = [{"name": "a"}, {"name": "b"}]
    old: Object = {"spec": {"steps": pods}}
    new: Object = {"spec": {"steps": pods[::-1]}}
    change = changed("Widget", old, new)
    assert revert_recipe(change).command.startswith("kubectl edit")
    assert merged(new, patch_of(revert_recipe(change, now(new)).command)[1]) == old


def test_what_steers_a_terminal_is_spelled_otherwise() -> None:
    change = changed("ConfigMap", {"data": {"a": "x\u202ey\u009b"}}, {"data": {"a": "1"}})
    command = revert_recipe(change).command
    assert "\u202e" not in command
    assert patch_of(command)[1] == {"data": {"a": "x\u202ey\u009b"}}


def test_names_are_quoted_for_the_shell() -> None:
    role = a_resource("ClusterRole", "system:a b;rm", None)
    assert revert_recipe(changed("ClusterRole", None, {"rules": []}, resource=role)).command == (
        "kubectl delete 'clusterroles.rbac.authorization.k8s.io/system:a b;rm'"
    )


def test_what_was_written_with_it_is_told_and_left_alone() -> None:
    recipe = revert_recipe(a_change(path=("spec", "replicas"), old=2, new=9), beside=3)
    assert recipe.command == "kubectl scale deployments.apps/web -n shop --replicas=2"
    assert recipe.warning == "Written in one go with 3 others, which this does not undo."
