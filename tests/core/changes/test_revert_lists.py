"""Undoing what was done to a list: which items, and in which order, where that counts."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from app.core.changes.recipe import Known
from app.core.changes.revert import revert_recipe
from app.core.model import Actor, ActorSource, DiffSource, Json, Object
from tests.core.changes.test_revert import changed, now, patch_of
from tests.core.factories import a_change, a_state, after

ALICE = Actor("alice@shop.example", ActorSource.AUDIT)
OLD: Object = {"rules": [{"verbs": ["get"]}, {"verbs": ["list"]}]}
NEW: Object = {"rules": [{"verbs": ["get"]}, {"verbs": ["watch"]}]}
ROLE = changed("Role", OLD, NEW)
ELSEWHERE = replace(
    a_change(ROLE.resource, at=after(9), path=("metadata", "labels", "a"), old=None, new="b"), actor=ALICE
)
INSIDE = replace(a_change(ROLE.resource, at=after(9), path=("rules",), old=[], new=[]), actor=ALICE)
BLIND = replace(ELSEWHERE, diffs=(), diff_source=DiffSource.NONE)


def begun_by(*names: str, image: str = "") -> Object:
    """A CronJob of which these begin the pods, one after the other."""
    more: Object = {"image": image} if image else {}
    return in_pods({"initContainers": [{"name": name, **more} for name in names]})


def in_pods(pod: Object) -> Object:
    return {"spec": {"jobTemplate": {"spec": {"template": {"spec": pod}}}}}


def pods(patch: Json) -> Json:
    for step in ("spec", "jobTemplate", "spec", "template", "spec"):
        assert isinstance(patch, dict)
        patch = patch[step]
    return patch


@pytest.mark.parametrize(
    ("known", "command"),
    [
        (Known(a_state(ROLE.resource, NEW)), "kubectl patch"),
        (Known(a_state(ROLE.resource, NEW), (ELSEWHERE,)), "kubectl patch"),
        (Known(a_state(ROLE.resource, NEW), (INSIDE,)), "kubectl edit"),
        (Known(a_state(ROLE.resource, NEW), (BLIND,)), "kubectl edit"),
        (Known(a_state(ROLE.resource, NEW), is_cut=True), "kubectl edit"),
        (Known(a_state(ROLE.resource, {"rules": [{"verbs": ["watch"]}, {"verbs": ["get"]}]})), "kubectl edit"),
        (Known(a_state(ROLE.resource, {"rules": []})), "kubectl edit"),
    ],
)
def test_a_list_is_patched_whole_while_it_is_known_what_is_in_it_and_where(known: Known, command: str) -> None:
    recipe = revert_recipe(ROLE, known)
    assert recipe.command.startswith(command)
    assert ("by hand" in recipe.warning) is (command == "kubectl edit")


def test_an_item_that_was_removed_comes_back_last_and_that_is_told() -> None:
    recipe = revert_recipe(changed("CronJob", begun_by("a", "b", "c"), begun_by("a", "c")), now(begun_by("a", "c")))
    how, patch = patch_of(recipe.command)
    assert how == "strategic"
    assert pods(patch) == {
        "initContainers": [{"name": "b"}],
        "$setElementOrder/initContainers": [{"name": "a"}, {"name": "c"}, {"name": "b"}],
    }
    assert recipe.warning == (
        "Where in initContainers it stood is not recorded, and the order counts: this puts it last."
    )


def test_what_is_in_the_patch_is_in_the_order_of_the_list_as_it_is_now() -> None:
    old, new = begun_by("a", "b", "c", image="1"), begun_by("a", "b", image="2")
    how, patch = patch_of(revert_recipe(changed("CronJob", old, new), now(begun_by("b", "a", image="2"))).command)
    assert how == "strategic"
    assert pods(patch) == {
        "initContainers": [{"name": name, "image": "1"} for name in ("b", "a", "c")],
        "$setElementOrder/initContainers": [{"name": "b"}, {"name": "a"}, {"name": "c"}],
    }


def test_so_is_a_variable_within_its_container() -> None:
    def with_variables(*names: str) -> Object:
        return in_pods({"containers": [{"name": "x"}, {"name": "web", "env": [{"name": name} for name in names]}]})

    recipe = revert_recipe(changed("CronJob", with_variables("A", "B"), with_variables("B")), now(with_variables("B")))
    assert pods(patch_of(recipe.command)[1]) == {
        "containers": [{"name": "web", "env": [{"name": "A"}], "$setElementOrder/env": [{"name": "B"}, {"name": "A"}]}],
    }
    assert "Where in env it stood" in recipe.warning


def test_where_the_list_is_not_known_the_place_is_left_to_chance_and_that_is_told() -> None:
    recipe = revert_recipe(changed("CronJob", begun_by("a", "b"), begun_by("b")))
    assert pods(patch_of(recipe.command)[1]) == {"initContainers": [{"name": "a"}]}
    assert "this puts it before others, perhaps" in recipe.warning


@pytest.mark.parametrize("names", [("a", "b"), ("b", "a")])
def test_an_item_that_is_there_again_may_be_at_another_place(names: tuple[str, str]) -> None:
    recipe = revert_recipe(changed("CronJob", begun_by("a", "b"), begun_by("b")), now(begun_by(*names)))
    assert recipe.command == ""
    assert recipe.warning.endswith("Where in initContainers it stood is not recorded, so look at the order.")


def test_of_a_list_whose_order_does_not_count_nothing_is_told() -> None:
    two, one = in_pods({"volumes": [{"name": "a"}, {"name": "b"}]}), in_pods({"volumes": [{"name": "b"}]})
    removed = changed("CronJob", two, one)
    assert revert_recipe(removed, now(one)).warning == ""
    assert "order" not in revert_recipe(removed, now(two)).warning


def test_an_order_that_was_altered_is_undone_when_it_is_the_old_one_again() -> None:
    turned = changed("CronJob", begun_by("a", "b"), begun_by("b", "a"))
    assert revert_recipe(turned, now(begun_by("b", "a"))).command.startswith("kubectl patch")
    assert "nothing is left to undo" in revert_recipe(turned, now(begun_by("a", "b"))).warning


HTTP: Object = {"name": "http", "port": 80}
METRICS: Object = {"name": "metrics", "port": 9090}
DNS: Object = {"name": "dns", "port": 53}


def service(*ports: Json) -> Object:
    return {"spec": {"ports": list(ports)}}


def test_a_port_that_got_another_number_is_patched_back_where_it_stands() -> None:
    old, new = service(DNS, HTTP, METRICS), service(DNS, {**HTTP, "port": 8080}, METRICS)
    recipe = revert_recipe(changed("Service", old, new), now(new))
    assert recipe.command.startswith("kubectl patch")
    assert patch_of(recipe.command)[1] == old
    assert recipe.warning == ""


def test_ports_that_swapped_their_numbers_are_patched_back_where_they_stand() -> None:
    old = service(DNS, HTTP, METRICS)
    new = service(DNS, {**HTTP, "port": METRICS["port"]}, {**METRICS, "port": HTTP["port"]})
    recipe = revert_recipe(changed("Service", old, new), now(new))
    assert patch_of(recipe.command)[1] == old
    assert recipe.warning == ""


def test_a_port_that_was_taken_out_comes_back_last_and_that_is_told() -> None:
    new = service(METRICS)
    recipe = revert_recipe(changed("Service", service(HTTP, METRICS), new), now(new))
    assert patch_of(recipe.command)[1] == service(METRICS, HTTP)
    assert recipe.warning == "Where in ports it stood is not recorded: this puts it last."


def test_of_ports_that_share_a_name_none_is_taken_for_another() -> None:
    old, new = service(HTTP, DNS), service(DNS, {**HTTP, "port": 81}, {**HTTP, "port": 82})
    recipe = revert_recipe(changed("Service", old, new), now(new))
    assert patch_of(recipe.command)[1] == service(DNS, HTTP)
    assert recipe.warning != ""
