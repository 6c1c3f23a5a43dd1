"""Lists in changes: which item is which, what their order means, and empty ones."""

from __future__ import annotations

from typing import Any

from tests.core.learning import a_deployment, an_object, audited, changes, learn, listed, seen, told


def test_a_patch_that_empties_a_list_removes_what_is_in_it() -> None:
    full = a_deployment(version=5)
    full["spec"]["template"]["spec"]["tolerations"] = [{"key": "a", "operator": "Exists"}]
    patch: Any = {"spec": {"template": {"spec": {"tolerations": []}}}}
    (change,) = changes(learn(listed(full), told("Deployment", "web", 1, patch=patch, group="apps")))
    assert [(found.path[-1], found.new) for found in change.diffs] == [("tolerations", [])]


def test_a_new_order_of_env_is_the_change_that_began_the_rollout() -> None:
    old, new = a_deployment(version=5), a_deployment(version=6, meta={"generation": 2})
    first, second = {"name": "A", "value": "1"}, {"name": "B", "value": "$(A)"}
    for obj, env in ((old, [first, second]), (new, [second, first])):
        obj["spec"]["template"]["spec"]["containers"][0]["env"] = env
    learned = learn(listed(old), seen(new, 5))
    (change,) = changes(learned)
    assert change.summary == "order of env of web: A, B → B, A"
    assert [rollout.change_id for rollout in learned[-1].rollouts] == [change.id]


def test_a_new_order_of_routes_is_a_change() -> None:
    routes = [{"name": "canary", "match": [{"uri": {"prefix": "/v2"}}]}, {"name": "catchall"}]
    api = "networking.istio.io/v1"
    old = an_object("VirtualService", "shop", version=5, api=api, spec={"http": routes})
    new = an_object("VirtualService", "shop", version=6, api=api, spec={"http": routes[::-1]})
    (change,) = changes(learn(listed(old), audited(new, 5)))
    assert change.summary == "order of http of VirtualService shop: canary, catchall → catchall, canary"


def test_the_order_of_what_a_request_was_thought_to_make_is_not_known() -> None:
    def with_env(version: int, *names: str) -> Any:
        obj = a_deployment(version=version)
        obj["spec"]["template"]["spec"]["containers"][0]["env"] = [{"name": name, "value": "1"} for name in names]
        return obj

    containers = [{"name": "web", "env": [{"name": "B", "value": "1"}]}]
    patch = {"spec": {"template": {"spec": {"containers": containers}}}}
    found = changes(
        learn(
            listed(with_env(5, "A")),
            told("Deployment", "web", 1, patch=patch, group="apps"),
            seen(with_env(9, "B", "A"), 60),
        )
    )
    assert [change.summary for change in found] == ["env B of web set to 1"]
