"""YAML in a ConfigMap or an annotation: its secrets are replaced where they stand, and the rest stays as it was."""

from __future__ import annotations

from itertools import pairwise

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from app.core.model import Json
from app.core.objects.own_rules import OwnRules
from app.core.objects.redact import Redactor
from app.core.objects.yaml_text import judged

redactor = Redactor(b"k" * 32)
SECRET = "hunter2hunter"
TAG = redactor.fingerprint(SECRET)


def kept(text: str) -> str:
    """A text, as a value of a ConfigMap and as an annotation: the same."""
    data = redactor.object("", "ConfigMap", {"data": {"conf": text}})["data"]
    noted = redactor.object("", "ConfigMap", {"metadata": {"annotations": {"x.io/conf": text}}})["metadata"]
    assert isinstance(data, dict)
    assert noted == {"annotations": {"x.io/conf": data["conf"]}}
    return str(data["conf"])


@pytest.mark.parametrize(
    "text",
    [
        "credentials:\n  left: {}\n  right: {}\nhost: x # note\n",
        "tokens:\n- {}\n- {}\nhost: x\n",
        "host: x\ncredentials: {{left: {}, right: {}}}\n",
        "passwords: [{}, {}]\nhost: x\n",
        "env:\n- name: DB_PASSWORD\n  value: {}\n- name: HOST\n  value: x\n",
        "env:\n- value: {}\n  name: DB_PASSWORD\n",
        "# a note: ü €\napiVersion: v1\nkind: Secret\nmetadata: {{name: a}}\nstringData:\n  left: {}\n",
        "host: x\n---\nkind: Secret\napiVersion: v1\ndata:\n  left: {}\n",
        "file: |\n  env:\n  - name: DB_PASSWORD\n    value: {}\n  host: x\nother: y\n",
        "db:\n  password: |\n    {}\n  host: x\n",
        "command:\n- login\n- --password\n- {}\n",
        "one: &p\n  password: {}\ntwo: *p\n",
    ],
)
def test_only_the_secret_is_replaced(text: str) -> None:
    times = text.count("{}")
    assert kept(text.format(*[SECRET] * times)) == text.format(*[TAG] * times)


@pytest.mark.parametrize(
    "text",
    [
        "password: [a, b\ntoken: {}\n",
        "password: {}\npassword: {}\n",
        "{{{{ if .x }}}}\npassword: {}\n{{{{ end }}}}\n",
        "password = {}\n[section]\n",
        "? [a]\n: b\npassword: {}\n",
        "[" * 300_000 + "\npassword: {}\n",
        "- " * 100_000 + "\npassword: {}\n",
        "a:\n" + " [" * 100_000 + "\npassword: {}\n",
    ],
)
def test_what_is_no_yaml_is_looked_at_as_text(text: str) -> None:
    assert SECRET not in kept(text.format(*[SECRET] * text.count("{}")))


def test_what_stands_for_itself_a_thousand_times_is_looked_at_once() -> None:
    laughs = "a: &a [x, x]\n" + "".join(f"{b}: &{b} [*{a}, *{a}, *{a}]\n" for a, b in pairwise("abcdefghijk"))
    assert kept(f"{laughs}password: {SECRET}\n") == f"{laughs}password: {TAG}\n"
    assert kept(f"a: &a\n  self: *a\n  password: {SECRET}\n") == f"a: &a\n  self: *a\n  password: {TAG}\n"


def test_what_is_hidden_as_a_whole_goes_with_its_keys() -> None:
    own = Redactor(b"k" * 32, OwnRules(names=("vault",)))
    key = f"ghp_{'aB3' * 12}"
    text = f"vault:\n  {key}: left\n  other: right\nhost: x\n"
    kept = own.object("", "ConfigMap", {"data": {"conf": text}})["data"]
    hidden = own.fingerprint({key: "left", "other": "right"})
    assert kept == {"conf": f"vault:\n  {hidden}\nhost: x\n"}


def test_a_judgement_of_another_shape_is_no_judgement() -> None:
    with pytest.raises(ValueError, match="neither hidden"):
        judged("a: {b: c}\n", lambda _: {"a": ["c"]}, str)


def test_keys_that_become_one_hide_the_whole_text() -> None:
    text = f'"a\\0": 1\n"a\ufffd": 2\npassword: {SECRET}\n'
    assert kept(text) == redactor.fingerprint(text)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["password", "credentials", "env", "name", "value", "x"]), inner, max_size=4
            )
        ),
        max_leaves=12,
    ),
    st.sampled_from([True, False, None]),
)
@example({"password": [], "env": '"\0'}, True)
@example("\0\x7f", True)
@example({"password": [], "env": "#"}, True)
def test_twice_is_once_and_nothing_breaks(value: Json, flow: bool | None) -> None:
    text = yaml.safe_dump({"token": SECRET, "value": value}, default_flow_style=flow)
    once = kept(text)
    assert SECRET not in once
    assert kept(once) == once
    yaml.safe_load(once)


def test_what_is_left_of_a_quoted_value_is_quoted() -> None:
    text = f"""{{a: "\\"\\0", b: 'it''s token={SECRET}', c: "{SECRET}", password: "{SECRET}"}}\n"""
    once = kept(text)
    assert yaml.safe_load(once) == {"a": '"\ufffd', "b": f"it's token={TAG}", "c": SECRET, "password": TAG}
    assert kept(once) == once


def test_what_only_looks_like_a_comment_is_a_value() -> None:
    assert kept(f"a: '#' # password={SECRET}\n") == f"a: '#' # password={TAG}\n"
    assert kept("{a: '#', password: []}\n") == "{a: '#', password: []}\n"
    assert kept(f"a: | # password={SECRET}\n  x # y\n") == f"a: | # password={TAG}\n  x # y\n"
    assert kept(f"a: | # password={SECRET}\n  token={SECRET}\nb: c\n") == f"a: |\n  token={TAG}\nb: c\n"


def test_comments_and_keys_are_texts() -> None:
    text = f"a: x # password={SECRET}\nghp_{'aB3' * 12}: y\ntoken: z.9-q\n"
    found = kept(text)
    assert SECRET not in found
    assert "aB3aB3" not in found
    assert found.startswith("a: x # password=<redacted:")
