"""Field diffs: what a person would say changed, and that diff, apply and undo agree."""

from __future__ import annotations

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.core.model import FieldDiff, Json, Object
from app.core.objects.diff import apply, diff, undo


def told(old: Json, new: Json) -> list[tuple[str, str, Json, Json]]:
    return [(found.op, found.path_text, found.old, found.new) for found in diff(old, new)]


def containers(*items: Json) -> Object:
    return {"spec": {"containers": list(items)}}


def named(*names: str) -> Json:
    return [{"name": name} for name in names]


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ({"a": 1}, {"a": 1}, []),
        ({"a": 1}, {"a": 2}, [("replace", "a", 1, 2)]),
        ({"a": 1}, {"a": 1, "b": {"c": 2}}, [("add", "b", None, {"c": 2})]),
        ({"a": 1, "b": 2}, {"a": 1}, [("remove", "b", 2, None)]),
        ({"a": {"b": 1}}, {"a": {"b": None}}, [("replace", "a.b", 1, None)]),
        ({"a": {"x/y.z": "1"}}, {"a": {"x/y.z": "2"}}, [("replace", 'a["x/y.z"]', "1", "2")]),
        ({"a": [1, 2]}, {"a": [2, 1]}, [("replace", "a", [1, 2], [2, 1])]),
        ({"a": True}, {"a": 1}, [("replace", "a", True, 1)]),
        (None, {"a": 1}, [("add", "", None, {"a": 1})]),
        ({"a": 1}, None, [("remove", "", {"a": 1}, None)]),
        (None, None, []),
        (
            containers({"name": "app", "image": "a:1"}, {"name": "proxy"}),
            containers({"name": "proxy"}, {"name": "app", "image": "a:2"}),
            [
                ("replace", "spec.containers[app].image", "a:1", "a:2"),
                ("replace", "spec.containers.(order)", named("app", "proxy"), named("proxy", "app")),
            ],
        ),
        (
            containers({"name": "app"}),
            containers({"name": "app"}, {"name": "proxy", "image": "p"}),
            [("add", "spec.containers[proxy]", None, {"name": "proxy", "image": "p"})],
        ),
        (
            {"ports": [{"port": 80, "protocol": "TCP", "nodePort": 1}, {"port": 80, "protocol": "UDP"}]},
            {"ports": [{"port": 80, "protocol": "UDP"}, {"port": 80, "protocol": "TCP", "nodePort": 2}]},
            [("replace", "ports[80,TCP].nodePort", 1, 2)],
        ),
        (
            {"taints": [{"key": "a", "effect": "NoSchedule"}]},
            {"taints": [{"key": "a", "effect": "NoSchedule"}, {"key": "a", "effect": "NoExecute"}]},
            [("add", "taints[a,NoExecute]", None, {"key": "a", "effect": "NoExecute"})],
        ),
        (
            {"rules": [{"verbs": ["get", "list"], "resources": ["pods"]}]},
            {"rules": [{"verbs": ["get"], "resources": ["pods"]}]},
            [("replace", "rules[0].verbs", ["get", "list"], ["get"])],
        ),
        ({"rules": [{"a": 1}]}, {"rules": []}, [("replace", "rules", [{"a": 1}], [])]),
        (
            {"env": [{"name": "A"}, {"name": "A"}]},
            {"env": [{"name": "A"}]},
            [("replace", "env", [{"name": "A"}, {"name": "A"}], [{"name": "A"}])],
        ),
        ({"metadata": {}}, {"metadata": {"labels": {"a": "b"}}}, [("add", "metadata.labels.a", None, "b")]),
        (
            {"metadata": {"annotations": {"a": "b"}}},
            {"metadata": {}},
            [("remove", "metadata.annotations.a", "b", None)],
        ),
    ],
)
def test_what_a_person_would_say_changed(old: Json, new: Json, found: list[tuple[str, str, Json, Json]]) -> None:
    assert told(old, new) == found


@pytest.mark.parametrize("field", ["initContainers", "containers", "env", "volumes", "variables", "http", "stages"])
def test_the_order_of_a_list_counts(field: str) -> None:
    one: Json = {field: named("a", "b", "c")}
    two: Json = {field: named("b", "a", "c")}
    assert told(one, two) == [("replace", f"{field}.(order)", named("a", "b", "c"), named("b", "a", "c"))]
    assert apply(diff(one, two), one) == two
    assert undo(diff(one, two), two) == one


def test_what_comes_and_goes_leaves_the_order_of_the_others() -> None:
    one: Json = {"env": named("a", "b", "c")}
    two: Json = {"env": named("d", "a", "c")}
    assert [found.op for found in diff(one, two)] == ["add", "remove"]
    moved: Json = {"env": named("c", "d", "a")}
    assert apply(diff(one, moved), one) == moved
    assert undo(diff(one, moved), moved) == one


def test_the_order_of_some_lists_means_nothing_but_in_a_pod_template() -> None:
    one: Json = {"ports": [{"port": 80, "protocol": "TCP"}, {"port": 53, "protocol": "UDP"}]}
    two: Json = {"ports": [{"port": 53, "protocol": "UDP"}, {"port": 80, "protocol": "TCP"}]}
    assert diff(one, two) == ()
    assert [found.path_text for found in diff({"template": one}, {"template": two})] == ["template.ports.(order)"]


def test_the_words_of_a_rule_are_a_set() -> None:
    def rules(*verbs: str) -> Json:
        return {"rules": [{"verbs": list(verbs), "resources": ["pods"]}]}

    assert diff(rules("get", "list"), rules("list", "get")) == ()
    assert told(rules("get", "list"), rules("list")) == [("replace", "rules[0].verbs", ["get", "list"], ["list"])]
    assert len(diff({"verbs": ["a", "b"]}, {"verbs": ["b", "a"]})) == 1


def metric(name: str, target: int, kind: str = "resource") -> Json:
    return {"type": kind.title(), kind: {"name": name, "target": {"averageUtilization": target}}}


def test_metrics_of_an_autoscaler_are_known_by_what_they_measure() -> None:
    old: Json = {"metrics": [metric("cpu", 50), metric("memory", 70)]}
    new: Json = {"metrics": [metric("memory", 70), metric("cpu", 20)]}
    assert told(old, new) == [("replace", "metrics[Resource,cpu].resource.target.averageUtilization", 50, 20)]
    assert undo(diff(old, new), new) == {"metrics": [metric("memory", 70), metric("cpu", 50)]}


def test_tolerations_are_known_by_what_they_tolerate() -> None:
    a: Json = {"key": "a", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
    soon: Json = {"key": "a", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5}
    b: Json = {"key": "b", "operator": "Exists"}
    every: Json = {"operator": "Exists"}
    found = told({"tolerations": [a, b]}, {"tolerations": [every, b, soon]})
    assert found == [
        ("add", "tolerations[Exists]", None, every),
        ("replace", "tolerations[a,Exists,NoExecute].tolerationSeconds", 300, 5),
    ]
    both: list[Json] = [{"key": "a", "value": "1"}, {"key": "a", "value": "2"}]
    assert told({"tolerations": both}, {"tolerations": both[:1]}) == [
        ("remove", "tolerations[a,2]", both[1], None),
    ]


def test_a_path_that_is_not_there_is_an_error() -> None:
    found = FieldDiff(("spec", "replicas"), "replace", 1, 2)
    with pytest.raises(KeyError):
        apply([found], {"other": 1})


# -- properties

_leaves: st.SearchStrategy[Json] = st.one_of(
    st.integers(-3, 3), st.sampled_from(["", "a", "b", "500m"]), st.none(), st.just([]), st.just({})
)
_items = st.fixed_dictionaries(
    {"name": st.sampled_from("abcd")},
    optional={"image": _leaves, "port": st.integers(1, 3), "protocol": st.just("TCP")},
)
_fields = st.sampled_from(["containers", "initContainers", "env", "ports", "rules", "data", "labels", "x", "a/b"])
_values = st.recursive(
    st.one_of(_leaves, st.lists(_items, max_size=4), st.lists(st.integers(0, 2), max_size=3)),
    lambda inner: st.dictionaries(_fields, inner, max_size=4) | st.lists(inner, max_size=2),
    max_leaves=14,
)
_objects = st.dictionaries(_fields, _values, max_size=4)


def sorted_lists(value: Json) -> Json:
    """Lists in one order, and maps that mean the same empty as absent left out: what diffs do not tell apart."""
    if isinstance(value, dict):
        inner = {key: sorted_lists(item) for key, item in value.items()}
        return {
            key: item for key, item in inner.items() if not (key in ("labels", "data", "annotations") and item == {})
        }
    if isinstance(value, list):
        return sorted(
            (sorted_lists(item) for item in value), key=lambda item: orjson.dumps(item, option=orjson.OPT_SORT_KEYS)
        )
    return value


@settings(max_examples=500)
@given(_objects, _objects)
def test_apply_makes_the_new_and_undo_the_old(old: Object, new: Object) -> None:
    found = diff(old, new)
    assert sorted_lists(apply(found, old)) == sorted_lists(new)
    assert sorted_lists(undo(found, new)) == sorted_lists(old)


@settings(max_examples=200)
@given(_objects)
def test_equal_states_have_no_diff(state: Object) -> None:
    assert diff(state, orjson.loads(orjson.dumps(state))) == ()


@settings(max_examples=200)
@given(_objects, _objects)
def test_neither_state_is_altered(old: Object, new: Object) -> None:
    before = orjson.dumps([old, new])
    found = diff(old, new)
    apply(found, old)
    undo(found, new)
    assert orjson.dumps([old, new]) == before
