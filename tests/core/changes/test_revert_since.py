"""Where an undoing would not hold, or take back too much: what was stored since says so."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from msgspec.structs import replace

from app.core.changes.recipe import Definition, Known
from app.core.changes.revert import is_of_revisions, revert_recipe
from app.core.model import NOBODY, Actor, ActorSource, Change, DiffSource, Json, Object, ObjectState, Verb
from tests.core.changes.test_revert import WEB, changed, patch_of
from tests.core.factories import a_change, a_resource, a_state, after

IMAGE = ("spec", "template", "spec", "containers", (("name", "web"),), "image")
ALICE = Actor("alice@shop.example", ActorSource.AUDIT)
ROLLED = a_change(WEB)


def running(image: str = "web:2", **spec: Json) -> Object:
    template: Object = {"spec": {"containers": [{"name": "web", "image": image}]}}
    return {"spec": {"template": template, **spec}}


def known(state: Object, *since: Change, **more: Any) -> Known:
    return Known(a_state(WEB, state), since, **more)


def later(seconds: float = 60, **more: Any) -> Change:
    fields: dict[str, Any] = {"path": IMAGE, "old": "web:2", "new": "web:3", "actor": ALICE} | more
    return a_change(WEB, at=after(seconds), **fields)


def a_replica_set(image: str, name: str) -> ObjectState:
    template = running(image)["spec"]
    return a_state(a_resource("ReplicaSet", name), {"spec": template}, owner=WEB)


def test_going_back_a_revision_is_told_without_a_doubt_where_nothing_newer_is_known() -> None:
    recipe = revert_recipe(ROLLED, known(running()))
    assert recipe.command == "kubectl rollout undo deployments.apps/web -n shop"
    assert recipe.warning == ""


@pytest.mark.parametrize(
    ("what", "reason"),
    [
        (known(running(revisionHistoryLimit=0)), "keeps no revisions"),
        (known(running(paused=True)), "paused"),
        (known(running(), revisions=(a_replica_set("web:2", "web-2"),)), "No ReplicaSet with the template before"),
        (known(running(), later(path=(*IMAGE[:-1], "command"), old=None, new=["a"])), "newer template"),
    ],
)
def test_where_no_revision_leads_back_the_values_are_set_again(what: Known, reason: str) -> None:
    recipe = revert_recipe(ROLLED, what)
    assert reason in recipe.warning
    how, patch = patch_of(recipe.command)
    assert how == "strategic"
    assert patch == {"spec": {"template": {"spec": {"containers": [{"name": "web", "image": "web:1"}]}}}}


def test_a_replica_set_of_before_leads_back() -> None:
    kept = (a_replica_set("web:2", "web-2"), a_replica_set("web:1", "web-1"))
    assert "rollout undo" in revert_recipe(ROLLED, known(running(), revisions=kept)).command
    assert is_of_revisions(ROLLED)
    assert not is_of_revisions(a_change(WEB, path=("spec", "replicas"), old=1, new=2))


def test_who_changed_the_same_since_is_told_with_when_and_which() -> None:
    change = a_change(WEB, path=("spec", "replicas"), old=2, new=9)
    again = later(path=("spec", "replicas"), old=9, new=12)
    other = later(path=("metadata", "labels", "team"), old=None, new="a")
    recipe = revert_recipe(change, Known(a_state(WEB, {"spec": {"replicas": 12}}), (again, other)))
    (caution,) = recipe.cautions
    assert caution.change_id == again.id
    assert "alice@shop.example" not in caution.text
    assert caution.text.startswith("alice changed the same fields at 2026-11-20 12:01:00 UTC")


def test_many_who_changed_the_same_are_counted() -> None:
    change = a_change(WEB, path=("spec", "replicas"), old=2, new=9)
    since = tuple(later(60 + n, path=("spec", "replicas"), old=8 + n, new=9 + n) for n in range(1, 6))
    cautions = revert_recipe(change, Known(a_state(WEB, {"spec": {"replicas": 14}}), since, is_cut=True)).cautions
    assert [one.change_id for one in cautions[:3]] == [one.id for one in reversed(since[2:])]
    assert "2 more writes" in cautions[3].text
    assert "only the newest 5 writes" in cautions[4].text


def test_a_field_within_or_around_the_changed_one_is_the_same() -> None:
    change = a_change(WEB, path=("spec", "strategy"), old={"type": "Recreate"}, new={"type": "RollingUpdate"})
    inside = later(path=("spec", "strategy", "type"), old="a", new="b")
    around = later(path=("spec",), old={"a": 1}, new={"b": 1})
    for one in (inside, around):
        assert "changed the same fields" in revert_recipe(change, Known(None, (one,))).warning


def test_a_write_of_which_no_field_is_known_may_have_been_to_the_same() -> None:
    blind = replace(later(actor=NOBODY), diffs=(), diff_source=DiffSource.NONE)
    recipe = revert_recipe(a_change(WEB, path=("spec", "replicas"), old=2, new=9), Known(None, (blind,)))
    assert "Someone unknown wrote it at" in recipe.warning


def test_what_is_undone_already_takes_no_command() -> None:
    back = later(new="web:1")
    recipe = revert_recipe(ROLLED, known(running("web:1"), back))
    assert (recipe.command, recipe.steps) == ("", ())
    assert "nothing is left to undo" in recipe.warning
    assert recipe.cautions[0].change_id == back.id
    added = a_change(WEB, path=("spec", "paused"), old=None, new=True)
    assert revert_recipe(added, known(running())).command == ""
    assert revert_recipe(added, known(running(paused=True))).command != ""


@pytest.mark.parametrize("change", [ROLLED, changed("Deployment", None, running())])
def test_an_object_that_is_gone_leaves_nothing_to_undo(change: Change) -> None:
    deleted = later(verb=Verb.DELETE)
    gone = Known(replace(a_state(WEB, running()), deleted_at=after(60)), (deleted,))
    recipe = revert_recipe(change, gone)
    assert recipe.command == ""
    assert "gone since 2026-11-20 12:01:00 UTC, by alice" in recipe.warning
    assert ("manifest" in recipe.warning) is (change is ROLLED)


def test_what_is_being_deleted_is_not_told_to_be_there_again() -> None:
    state = a_state(a_resource("Namespace"), {"spec": {"finalizers": ["kubernetes"]}})
    deleted = replace(changed("Namespace", state.state, None), uid=state.uid)
    recipe = revert_recipe(deleted, Known(state))
    assert recipe.command == ""
    assert "It is being deleted, and still there while finalizers keep it" in recipe.warning
    assert "there again" not in recipe.warning
    another = revert_recipe(deleted, Known(replace(state, uid="another")))
    assert "there again as it was" in another.warning


def test_an_object_that_was_made_anew_is_another_one() -> None:
    made = later(verb=Verb.CREATE)
    deleted = changed("ConfigMap", {"data": {"a": "1"}}, None)
    assert "alice made the object anew" in revert_recipe(deleted, Known(None, (made,))).warning
    assert "overwrite" in revert_recipe(deleted, Known(None, (made,))).warning
    same = Known(a_state(a_resource("ConfigMap"), {"data": {"a": "1"}}), (made,))
    assert "made the object anew" in revert_recipe(deleted, same).warning
    there = replace(deleted, diffs=(replace(deleted.diffs[0], old=same.state),))
    assert revert_recipe(there, same).command == ""
    assert "there again as it was" in revert_recipe(there, same).warning
    another = replace(ROLLED, uid="uid-1")
    assert "made anew" in revert_recipe(another, known(running())).warning
    assert "made anew" not in revert_recipe(ROLLED, known(running())).warning


def test_what_was_changed_since_it_was_made_goes_with_it() -> None:
    made = changed("Deployment", None, running())
    warning = revert_recipe(made, known(running("web:3"), later())).warning
    assert "alice changed it at" in warning


def crd(*served: str, unserved: tuple[str, ...] = ()) -> Object:
    versions: list[Json] = [{"name": name, "served": True} for name in served]
    versions += [{"name": name, "served": False} for name in unserved]
    names: Object = {"kind": "Widget", "plural": "widgetry"}
    return {"spec": {"group": "shop.example", "names": names, "versions": versions}}


WIDGET = replace(a_resource("Widget"), api_group="shop.example")
RESIZED = a_change(WIDGET, path=("spec", "size"), old=1, new=2)


def of_widgets(then: Object | None, now: Object | None) -> Known:
    return Known(definition=Definition("Widget", "widgetry.shop.example", then, now))


def test_a_version_that_is_served_no_more_is_told() -> None:
    warning = revert_recipe(RESIZED, of_widgets(crd("v1beta1"), crd("v1", unserved=("v1beta1",)))).warning
    assert "version v1beta1 of its API, which widgetry.shop.example serves no more; it serves v1" in warning
    assert revert_recipe(RESIZED, of_widgets(crd("v1beta1", "v1"), crd("v1"))).warning == ""
    assert revert_recipe(RESIZED, of_widgets(None, crd("v1"))).warning == ""
    assert "knows no such kind" in revert_recipe(RESIZED, of_widgets(crd("v1"), None)).warning


def test_the_definition_says_how_kubectl_calls_it_and_in_which_version_it_comes_back() -> None:
    assert "kubectl patch widgetry.shop.example/web" in revert_recipe(RESIZED, of_widgets(crd("v1"), crd("v1"))).command
    deleted = replace(changed("Widget", {"spec": {"size": 1}}, None), resource=WIDGET)
    command = revert_recipe(deleted, of_widgets(crd("v1alpha1", "v2"), crd("v2"))).command
    assert orjson.loads(command.split("'END'\n")[1].removesuffix("\nEND"))["apiVersion"] == "shop.example/v2"
