"""Scopes as people write them."""

from __future__ import annotations

import pytest

from app.core.roles import Scope


def test_a_scope_is_read_and_written() -> None:
    scope = Scope.parse(["prod/shop", "stage", "prod/-", "prod/shop"])
    assert scope.texts == ["prod/-", "prod/shop", "stage"]
    assert scope.clusters == {"prod", "stage"}
    assert (scope.is_whole("stage"), scope.is_whole("prod")) == (True, False)
    assert [scope.is_partial(name) for name in ("prod", "stage", "other")] == [True, False, False]
    assert [scope.holds("prod", name) for name in ("shop", "cart")] == [True, False]
    assert scope.holds("stage", "anything")


def test_a_whole_cluster_is_not_less_for_a_namespace_of_it() -> None:
    scope = Scope.parse(["prod/shop", "prod"])
    assert scope.is_whole("prod")
    assert not scope.is_partial("prod")


def test_no_place_is_no_place() -> None:
    assert Scope.parse([]).clusters == frozenset()


@pytest.mark.parametrize(
    "text", ["", " ", "/shop", "prod/", "prod/Shop", "prod/a/b", "prod/*", "prod/-a", "prod/" + "a" * 64]
)
def test_what_is_no_scope_is_refused_in_words(text: str) -> None:
    with pytest.raises(ValueError, match=r"cannot be a namespace|needs a name"):
        Scope.parse([text])
