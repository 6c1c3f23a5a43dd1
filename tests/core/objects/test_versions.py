"""Versions rebuilt by undoing: exact where it can be told, unknown where it cannot, never guessed."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from app.core.model import Change, DiffSource, Json, Object, Resource, Verb
from app.core.objects.diff import diff
from app.core.objects.versions import Write, versions

AT = datetime(2026, 11, 20, 14, 0, tzinfo=UTC)


def history(states: Sequence[Object | None]) -> list[Change]:
    """The changes between states, newest first; None is a deleted object."""
    made = []
    for number, (old, new) in enumerate(pairwise([None, *states])):
        verb = Verb.CREATE if old is None else Verb.DELETE if new is None else Verb.UPDATE
        made.append(
            Change(
                Resource("c", "apps", "Deployment", "ns", "api"),
                AT + timedelta(minutes=number),
                verb,
                number,
                diffs=diff(old, new),
            )
        )
    return made[::-1]


values: st.SearchStrategy[Json] = st.recursive(
    st.integers(0, 9) | st.text("abc", max_size=3) | st.booleans(),
    lambda inner: st.dictionaries(st.sampled_from("abcd"), inner, max_size=3) | st.lists(inner, max_size=3),
    max_leaves=8,
)


def pruned(whole: Object) -> Object:
    """As normalise leaves it: without empty maps and lists."""
    kept = {name: _pruned(item) for name, item in whole.items()}
    return {name: item for name, item in kept.items() if item not in ({}, [])}


def _pruned(json: Json) -> Json:
    if isinstance(json, dict):
        return pruned(json)
    if isinstance(json, list):
        return [item for item in map(_pruned, json) if item not in ({}, [])]
    return json


objects = st.dictionaries(st.sampled_from(["spec", "data", "metadata"]), values, max_size=3).map(pruned)


@given(st.lists(objects, min_size=1, max_size=6))
def test_every_version_comes_back_as_it_was(states: list[Object]) -> None:
    found = versions(states[-1], history(states))
    assert [version.state for version in found] == states[::-1]
    assert all(version.known for version in found)


@given(st.lists(objects | st.none(), min_size=1, max_size=8), st.integers(0, 8))
def test_an_older_page_goes_on_where_the_newer_one_ends(states: list[Object | None], place: int) -> None:
    lives = [state for number, state in enumerate(states) if number == 0 or state is not None or states[number - 1]]
    changes = history([state for state in lives if state is not None] if lives[0] is None else lives)
    last = next((state for state in reversed(lives) if state is not None), None)
    newer = [Write(change.verb, change.diffs, change.diff_source) for change in changes[:place]]
    assert versions(last, changes[place:], newer) == versions(last, changes)[place:]


def test_behind_more_than_can_be_undone_nothing_is_known_until_a_deletion_tells() -> None:
    newest, gone, older, first = history([{"a": 1}, {"a": 2}, None, {"a": 3}])
    found = versions({"a": 3}, [gone, older, first], None)
    assert [(version.state, version.known) for version in found] == [(None, True), ({"a": 2}, True), ({"a": 1}, True)]
    assert [version.known for version in versions({"a": 3}, [newest], None)] == [False]


def test_a_deleted_object_has_had_its_state() -> None:
    states: list[Object | None] = [{"a": 1}, {"a": 2}, None]
    gone, last, first = versions({"a": 2}, history(states))
    assert (gone.state, gone.known) == (None, True)
    assert (last.state, first.state) == ({"a": 2}, {"a": 1})


def test_before_a_change_told_by_its_request_only_nothing_is_known() -> None:
    newest, *older = history([{"a": 1}, {"a": 2}, {"a": 3}])
    found = versions({"a": 3}, [replace(newest, diff_source=DiffSource.PATCH), *older])
    assert [(version.state, version.known) for version in found] == [({"a": 3}, True), (None, False), (None, False)]


def test_differences_that_do_not_fit_end_it() -> None:
    changes = history([{"a": {"b": 1}}, {"a": {"b": 2}}])
    found = versions({"a": "not a map"}, changes)
    assert [version.known for version in found] == [True, False]


def test_without_a_state_nothing_is_known() -> None:
    assert [version.known for version in versions(None, history([{"a": 1}, {"a": 2}]))] == [False, False]
