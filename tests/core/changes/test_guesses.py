"""What a request was thought to make of an object is held against what a watch shows of it."""

from __future__ import annotations

from typing import Any

import pytest

from app.core.changes.tracker import Tracker
from app.core.model import Change, DiffSource, FieldDiff, ObjectState
from app.core.objects.redact import Redactor
from app.store.merge import merge_changes
from tests.core.learning import ALICE, BOB, KEY, a_deployment, at, audited, changes, learn, listed, seen, told

BEFORE = listed(a_deployment(version=5))
SCALED = told("Deployment", "web", 1, patch={"spec": {"replicas": 7}}, group="apps")
PAUSED = told("Deployment", "web", 1.1, patch={"spec": {"paused": True}}, group="apps", actor=BOB)


def paused(version: int) -> Any:
    shown = a_deployment(version=version, replicas=7)
    shown["spec"]["paused"] = True
    return shown


def by_whom(found: list[Change]) -> list[tuple[str, str]]:
    return [(change.actor.name, change.summary) for change in found]


def test_what_admission_adds_to_a_request_does_not_stand_in_its_place() -> None:
    shown = a_deployment(version=6, replicas=7, meta={"annotations": {"x/injected": "yes"}})
    [change] = changes(learn(BEFORE, SCALED, seen(shown, 1.2)))
    assert FieldDiff(("spec", "replicas"), "replace", 2, 7) in change.diffs
    assert len(change.diffs) == 2
    assert (change.actor, change.diff_source) == (ALICE, DiffSource.STATES)
    assert change.sources == {"audit", "watch"}


def test_two_requests_told_before_a_watch_shows_them_keep_their_writers() -> None:
    shown = seen(a_deployment(version=6, replicas=7), 1.2), seen(paused(7), 1.3)
    found = changes(learn(BEFORE, SCALED, PAUSED, *shown))
    assert by_whom(found) == [("alice", "replicas of web: 2 → 7"), ("bob", "web paused")]
    assert [change.resource_version for change in found] == ["6", "7"]


@pytest.mark.parametrize("late", [0.2, 60])
def test_a_request_that_a_watch_has_shown_is_not_taken_for_the_next_write(late: float) -> None:
    """However late it shows it: another's write of which the audit log tells later is another change."""
    shown = seen(a_deployment(version=6, replicas=7), 1 + late), seen(paused(7), 1.5 + late)
    found = changes(learn(BEFORE, SCALED, *shown))
    assert by_whom(found) == [("alice", "replicas of web: 2 → 7"), ("", "web paused")]


def test_what_lists_show_after_a_request_was_done_is_news() -> None:
    done = seen(a_deployment(version=6, replicas=7), 1.2)
    found = changes(learn(BEFORE, SCALED, done, seen(a_deployment(version=9), 60, verb=None)))
    assert by_whom(found) == [
        ("alice", "replicas of web: 2 → 7"),
        ("", "replicas of web: 7 → 2 (between 05:00:01 and 05:01:00)"),
    ]


def test_a_whole_object_of_the_audit_log_tells_its_own_write_alone() -> None:
    found = changes(learn(BEFORE, SCALED, audited(paused(7), 2, actor=BOB)))
    assert by_whom(found) == [("alice", "replicas of web: 2 → 7"), ("bob", "web paused")]
    assert found[1].at == at(2)


def test_more_requests_than_are_remembered_are_told_all_the_same() -> None:
    many = [
        told("Deployment", "web", 1 + n, patch={"spec": {"replicas": 10 + n}}, group="apps", actor=BOB)
        for n in range(9)
    ]
    found = changes(learn(BEFORE, *many, seen(a_deployment(version=30, replicas=18), 40)))
    assert [change.summary for change in found][-1] == "replicas of web: 17 → 18"
    assert len(found) == 9


def test_what_an_earlier_run_was_told_was_asked_for_stays_what_a_write_did() -> None:
    """The audit log tells of it again after a restart, with the object as it is stored."""
    (stored,) = changes(learn(BEFORE, SCALED))
    assert stored.diff_source is DiffSource.PATCH
    shown = a_deployment(version=6, replicas=7)
    known = ObjectState(stored.resource, shown["metadata"]["uid"], "6", at(1), shown)
    tracker = Tracker("c", Redactor(KEY), lambda _resource, _uid: known)
    (again,) = tracker.observe(audited(shown, 1)).improvements
    assert merge_changes(stored, again).diffs == stored.diffs


def test_a_request_that_is_told_after_a_later_one_is_held_against_nothing() -> None:
    """Each of several API servers sends its events for itself."""
    last = told("Deployment", "web", 1.4, patch={"spec": {"replicas": 9}}, group="apps", actor=BOB)
    after = told("Deployment", "web", 5, patch={"spec": {"replicas": 3}}, group="apps", actor=BOB)
    found = changes(learn(BEFORE, last, SCALED, after))
    assert by_whom(found) == [
        ("bob", "replicas of web: 2 → 9"),
        ("alice", "replicas of web set to 7"),
        ("bob", "replicas of web: 9 → 3"),
    ]


def test_a_watch_shows_each_of_two_requests_that_were_told_in_the_wrong_order() -> None:
    last = told("Deployment", "web", 1.4, patch={"spec": {"replicas": 9}}, group="apps", actor=BOB)
    shown = seen(a_deployment(version=6, replicas=7), 1.2), seen(a_deployment(version=7, replicas=9), 1.5)
    found = changes(learn(BEFORE, last, SCALED, *shown))
    assert sorted(by_whom(found)) == [("alice", "replicas of web: 2 → 7"), ("bob", "replicas of web: 7 → 9")]
    assert all(one.sources == {"audit", "watch"} for one in found)
