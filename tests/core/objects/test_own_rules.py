"""Names and kinds that whoever runs Foreshock calls secret: hidden wherever they stand, and nothing else is."""

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.model import Json, Object, Resource
from app.core.objects.body import read_body
from app.core.objects.own_rules import OwnRules
from app.core.objects.parts import Parts
from app.core.objects.redact import LAST_APPLIED, Redactor

KEY = b"k" * 32
OWN = OwnRules(names=("pepper", "*_pin", "shop.iban"), kinds=("vault.example.com/*", "acme.io/Cache", "ConfigMap"))
redactor = Redactor(KEY, OWN)
usual = Redactor(KEY)


def spec(value: Object, kind: str = "Widget", group: str = "acme.io") -> Json:
    return redactor.object(group, kind, {"spec": value})["spec"]


@pytest.mark.parametrize("name", ["pepper", "PEPPER", "shop.example/pepper", "x.pepper", "door_pin", "shop.iban"])
@pytest.mark.parametrize("value", ["salz", 7, 7.5, ["salz"], {"left": "salz"}])
def test_all_that_stands_under_a_name_is_hidden(name: str, value: Json) -> None:
    assert spec({name: value, "beside": 7}) == {name: redactor.fingerprint(value), "beside": 7}


@pytest.mark.parametrize("name", ["peppermint", "saltpepper", "pin", "iban", "a_pinboard", "pepper/of"])
def test_no_other_name_is_meant(name: str) -> None:
    assert spec({name: "salz"}) == {name: "salz"}


@pytest.mark.parametrize("value", [None, True, False, ""])
def test_that_there_is_nothing_tells_nothing(value: Json) -> None:
    assert spec({"pepper": value}) == {"pepper": value}


@pytest.mark.parametrize(
    "text",
    [
        "pepper=salz",
        'said "door_pin": "salz" and went',
        "app.pepper = salz\nother = 1",
        "a: 1\npepper: |\n  salz\nb: 2",
        "a: 1\napp.pepper: |\n  salz\nb: 2",
        '{"name":"PEPPER","value":"salz"}',
        "https://x.example/?PEPPER=salz",
    ],
)
def test_a_text_gives_it_to_nobody(text: str) -> None:
    assert "salz" in usual.text(text)
    hidden = redactor.text(text)
    assert "salz" not in hidden
    assert redactor.text(hidden) == hidden
    assert "salz" not in str(spec({"note": text}))


def test_of_a_text_the_rest_is_kept() -> None:
    assert redactor.text("peppermint=salz saltpepper=salz x-pepper=salz") == (
        "peppermint=salz saltpepper=salz x-pepper=salz"
    )


def test_arguments_addresses_labels_and_variables() -> None:
    container: Object = {"args": ["--pepper", "salz", "-door_pin=salz"], "env": [{"name": "PEPPER", "value": "salz"}]}
    assert "salz" not in str(spec({"containers": [container]}))
    assert "salz" not in redactor.uri("/x?door_pin=salz&y=1")
    assert "salz" not in redactor.label("pepper", "salz")
    patch = redactor.patch("acme.io", "widgets", [{"op": "add", "path": "/spec/pepper/left", "value": "salz"}])
    assert "salz" not in str(patch)


def test_a_schema_names_it_and_holds_none() -> None:
    schema: Object = {"properties": {"pepper": {"type": "string"}}}
    made = redactor.object("apiextensions.k8s.io", "CustomResourceDefinition", {"spec": schema})
    assert made == {"spec": schema}


@pytest.mark.parametrize(
    ("group", "kind"),
    [("vault.example.com", "Anything"), ("acme.io", "Cache"), ("acme.io", "cache"), ("", "ConfigMap")],
)
def test_a_kind_is_cut_to_its_metadata(group: str, kind: str) -> None:
    applied = orjson.dumps({"spec": {"left": "salz"}, "data": {"left": "salz"}}).decode()
    whole: Object = {
        "kind": kind,
        "metadata": {"name": "a", "labels": {"x": "y"}, "annotations": {LAST_APPLIED: applied, "note": "kept"}},
        "spec": {"left": "salz"},
        "data": {"left": "salz"},
    }
    cut = redactor.object(group, kind, whole)
    assert "salz" not in str(cut)
    assert cut["spec"] == redactor.fingerprint({"left": "salz"}), "a change still shows"
    assert "'note': 'kept'" in str(cut)
    listed = redactor.object(group, f"{kind}List", {"items": [whole]})
    assert "salz" not in str(listed)


def test_a_kind_that_is_only_known_by_its_plural_is_cut() -> None:
    assert "salz" not in str(redactor.patch("acme.io", "caches", {"spec": {"left": "salz"}}))
    assert "salz" not in str(redactor.patch("vault.example.com", "mice", {"spec": {"left": "salz"}}))


def test_its_parts_are_one() -> None:
    raw = orjson.dumps({"kind": "Cache", "metadata": {"name": "a"}, "spec": {"left": "salz", "right": "salz"}})
    body = read_body(raw)
    assert body is not None
    state = Parts(redactor).state(Resource("lab", "acme.io", "Cache", "", "a"), body)
    assert state["spec"] == redactor.fingerprint({"left": "salz", "right": "salz"})


@given(
    st.recursive(
        st.none() | st.integers() | st.text(),
        lambda inner: (
            st.dictionaries(st.sampled_from(["pepper", "door_pin", "x", "password", "value", "name"]), inner)
            | st.lists(inner)
        ),
    )
)
def test_twice_is_once(value: Json) -> None:
    once = redactor.object("acme.io", "Widget", {"spec": value})
    assert redactor.object("acme.io", "Widget", once) == once


@given(
    st.recursive(
        st.none() | st.integers() | st.text(), lambda inner: st.dictionaries(st.text(), inner) | st.lists(inner)
    )
)
def test_rules_that_name_nothing_here_change_nothing(value: Json) -> None:
    other = Redactor(KEY, OwnRules(names=("nothing_of_this",), kinds=("nobody.example/*",)))
    assert other.object("acme.io", "Widget", {"spec": value}) == usual.object("acme.io", "Widget", {"spec": value})


@pytest.mark.parametrize(
    ("names", "says"),
    [
        (("*",), "would hide nearly everything"),
        (("*a*",), "would hide nearly everything"),
        (("a b",), "is no name"),
        (("",), "is no name"),
        (("name",), "would hide name"),
        (("*amespac*",), "would hide namespace"),
        (("SPEC",), "would hide spec"),
    ],
)
def test_a_name_that_cannot_be_meant(names: tuple[str, ...], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        OwnRules(names=names)


@pytest.mark.parametrize("kind", ["", "*", "a b", "acme.io/", "/Widget", "acme.io/Wid*", "Acme.io/Widget", "a/b/c"])
def test_a_kind_that_cannot_be_meant(kind: str) -> None:
    with pytest.raises(ValueError, match="kinds: "):
        OwnRules(kinds=(kind,))
