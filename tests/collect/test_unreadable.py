"""Which object a line is of, where no decoder can tell."""

from __future__ import annotations

import json

import pytest

from app.collect.unreadable import place_of
from tests.collect.test_watched import a_deep_object


def test_the_place_of_what_is_too_deep_to_be_decoded() -> None:
    deep = a_deep_object("b")
    with pytest.raises(RecursionError):
        json.loads(deep)
    assert place_of(deep) == ("shop", "b", "uid-b")
    assert place_of(b'{"type":"ADDED","object":' + deep + b"}") == ("shop", "b", "uid-b")


def test_what_is_in_no_namespace_has_a_place_too() -> None:
    assert place_of(b'{"metadata":{"name":"n\\u00e9","uid":"7"},"spec":') == ("", "né", "7")


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"<html>",
        b'{"spec":{"name":"x","uid":"7"}}',
        b'{"metadata":{"name":"x"},"spec":{"uid":"7"}}',
        b'{"metadata":{"labels":{"name":"x","uid":"7"}}}',
        b'{"metadata":"x","name":"x","uid":"7"}',
        b'{"metadata":{"name":7,"uid":"7"}}',
        b'{"metadata":{"name":"\\ud800","uid":"7"}}',
        b'{"metadata":{"name":"x","uid":"7',
    ],
)
def test_what_does_not_say_it_has_no_place(line: bytes) -> None:
    assert place_of(line) is None
