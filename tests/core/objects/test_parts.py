"""A state made part by part is the state made at once, and nothing of one object's parts leaks into another's."""

import copy

import orjson
from hypothesis import given, settings
from hypothesis import strategies as st

from app.core.model import Object, Resource
from app.core.objects.body import read_body
from app.core.objects.normalise import normalise
from app.core.objects.parts import Parts
from app.core.objects.redact import Redactor

KEY = b"k" * 32
_keys = st.sampled_from(
    [
        *("spec", "data", "rules", "type", "template", "replicas", "name", "value", "env", "password", "args"),
        *("limits", "metadata", "labels", "annotations", "x.y/z", "", "é", "\0"),
    ]
)
_leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**40), 2**40),
    st.sampled_from(["0.5", "a", "--password", "s3cret-Value-91x"]),
)
_json = st.recursive(
    _leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_keys, inner, max_size=4), max_leaves=12
)
_kinds = st.sampled_from(
    [
        *(("", "Secret"), ("", "ConfigMap"), ("", "Node"), ("", "Pod"), ("", "LimitRange"), ("apps", "Deployment")),
        *(
            ("x.io", "Widget"),
            ("x.io", "SealedSecret"),
            ("external-secrets.io", "SecretStore"),
            ("apiextensions.k8s.io", "CustomResourceDefinition"),
        ),
    ]
)
_objects = st.fixed_dictionaries(
    {"metadata": st.fixed_dictionaries({"name": st.just("x")}, optional={"labels": _json, "annotations": _json})},
    optional={"spec": _json, "data": _json, "rules": _json, "type": _json},
)


def at_once(group: str, kind: str, raw: bytes) -> Object:
    body = read_body(raw)
    assert body is not None
    return normalise(Redactor(KEY).object(group, kind, body.desired()), group, kind=kind)


@settings(max_examples=300)
@given(_kinds, st.lists(_objects, min_size=1, max_size=3))
def test_part_by_part_is_at_once(named: tuple[str, str], objects: list[Object]) -> None:
    group, kind = named
    parts = Parts(Redactor(KEY))
    for obj in (*objects, *reversed(objects)):
        raw = orjson.dumps({"kind": kind, **obj})
        body = read_body(raw)
        assert body is not None
        assert parts.state(Resource("c", group, kind, None, "x"), body) == at_once(group, kind, raw)


def test_a_key_that_cannot_be_stored_is_cleaned_however_often_its_value_was_seen() -> None:
    redactor = Redactor(KEY)
    one: Object = {"data": {"\0": "plain"}}
    for made in (one, one | {"spec": {"\0": "plain"}}):
        found: Object = redactor.object("", "ConfigMap", made)
        assert [list(part) for part in found.values() if isinstance(part, dict)] == [["\ufffd"]] * len(made)


def test_a_state_is_not_altered_by_the_next_one_of_its_kind() -> None:
    parts = Parts(Redactor(KEY))
    first: Object = {"kind": "Deployment", "metadata": {"name": "a", "labels": {"app": "a"}}, "spec": {"replicas": 1}}
    second: Object = {"kind": "Deployment", "metadata": {"name": "b", "labels": {"app": "a"}}, "spec": {"paused": True}}
    resource = Resource("c", "apps", "Deployment", "n", "a")
    one, two = read_body(orjson.dumps(first)), read_body(orjson.dumps(second))
    assert one is not None
    assert two is not None
    state = parts.state(resource, one)
    before = copy.deepcopy(state)
    assert parts.state(resource, two)["spec"] == {"paused": True}
    assert state == before == {"metadata": {"name": "a", "labels": {"app": "a"}}, "spec": {"replicas": 1}}


def test_a_secret_beside_its_name_is_still_seen() -> None:
    raw = orjson.dumps(
        {"kind": "Widget", "metadata": {"name": "a"}, "spec": {"name": "DB_PASSWORD", "value": "hunter22"}}
    )
    body = read_body(raw)
    assert body is not None
    assert "hunter22" not in str(Parts(Redactor(KEY)).state(Resource("c", "x.io", "Widget", None, "a"), body))


def test_what_is_remembered_is_bounded() -> None:
    parts = Parts(Redactor(KEY))
    for number in range(200):
        body = read_body(
            orjson.dumps({"kind": "W", "metadata": {"name": "a"}, "spec": {"text": f"{number}" + "x " * 25_000}})
        )
        assert body is not None
        state = parts.state(Resource("c", "x.io", "W", None, "a"), body)
        assert str(state["spec"]).count("x ") == 25_000
    assert parts.remembered <= 4 << 20
