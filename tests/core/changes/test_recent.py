"""The changes told lately: those of long ago cost little and say as much."""

from __future__ import annotations

import msgspec
import orjson
import pytest

from app.core.changes import recent as module
from app.core.changes.recent import Recent
from app.core.model import Change, DiffSource, FieldDiff, Object, Resource, Verb
from app.core.objects.packed import Packing
from tests.core.factories import NOON

STATE: Object = {
    "metadata": {"name": "n"},
    "spec": {"replicas": 3, "big": 1 << 60, "ratio": 0.5, "text": "ü\u0000", "none": None},
}


def whole(key: int, verb: Verb) -> Change:
    made = verb is Verb.CREATE
    found = FieldDiff((), "add" if made else "remove", None if made else STATE, STATE if made else None)
    resource = Resource("c", "", "ConfigMap", "n", f"name-{key}")
    return Change(
        resource, NOON, verb, key, diffs=(found,), diff_source=DiffSource.STATES, sources=frozenset({"audit"})
    )


def test_a_packed_state_is_the_same_when_it_is_unpacked() -> None:
    packing = Packing()
    states: list[Object] = [{}, STATE, {"data": {str(n): "x" * n for n in range(200)}}]
    assert [packing.unpack(packing.pack(state)) for state in states] == states


def test_what_objects_have_in_common_is_not_stored_with_each() -> None:
    labels: Object = {"app.kubernetes.io/name": "a", "app.kubernetes.io/managed-by": "Helm"}
    state: Object = {"metadata": {"labels": labels}, "spec": {"schedulerName": "default-scheduler"}}
    assert len(Packing().pack(state)) < len(orjson.dumps(state)) / 2


@pytest.mark.parametrize("verb", [Verb.CREATE, Verb.DELETE])
def test_a_change_of_long_ago_is_found_whole(verb: Verb, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_FRESH", 2)
    recent = Recent(4, Packing())
    told = [whole(key, verb) for key in range(6)]
    for change in told:
        recent.add(change)
    assert [recent.by_key(key) for key in range(6)] == [None, None, *told[2:]]
    [brief] = recent.of(told[2].resource)
    assert (brief.verb, brief.diffs[0].path) == (verb, ())
    assert msgspec.structs.replace(brief, diffs=told[2].diffs) == told[2]
    better = msgspec.structs.replace(told[2], audit_id="a")
    recent.update(better)
    assert recent.by_key(2) == better
    for change in told[3:]:
        recent.update(change)
    assert [recent.by_key(key) for key in range(2, 6)] == [better, *told[3:]]


def large(key: int, *, size: int) -> Change:
    """An update of two fields, one of them large."""
    path = ("spec", "containers", (("name", "a"),), "image")
    found = (FieldDiff(path, "replace", "old", key), FieldDiff(("data", "a.json"), "add", None, f"{key % 10}" * size))
    resource = Resource("c", "", "ConfigMap", "n", f"name-{key}")
    return Change(resource, NOON, Verb.UPDATE, key, diffs=found, diff_source=DiffSource.STATES)


def test_large_values_are_packed_and_found_whole() -> None:
    recent = Recent(9, Packing())
    told = [large(key, size=20_000) for key in (1, 2)]
    for change in told:
        recent.add(change)
    assert [recent.by_key(key) for key in (1, 2)] == told
    [brief] = recent.of(told[0].resource)
    assert brief.diffs == tuple(FieldDiff(found.path, found.op) for found in told[0].diffs)
    better = msgspec.structs.replace(told[0], audit_id="a")
    recent.update(better)
    assert recent.by_key(1) == better


def test_what_is_kept_is_bounded_in_bytes() -> None:
    recent = Recent(1000, Packing(), limit_bytes=50_000)
    told = [large(key, size=4_000) for key in range(1, 41)]
    for change in told:
        recent.add(change)
    kept = [change for change in told if recent.by_key(change.key)]
    assert kept == told[-12:], "the last ones, of 4 kB each"
    assert all(not list(recent.of(change.resource)) for change in told[:-12])
    for change in kept:
        recent.update(change)
    recent.add(large(99, size=200_000))
    assert recent.by_key(99), "the last one is kept, whatever its size"
    small = [large(key, size=1) for key in range(200, 400)]
    for change in small:
        recent.add(change)
    assert all(recent.by_key(change.key) for change in small), "small ones are bounded by their number"


def test_an_update_is_kept_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_FRESH", 0)
    recent = Recent(9, Packing())
    update = msgspec.structs.replace(whole(1, Verb.CREATE), verb=Verb.UPDATE)
    recent.add(update)
    assert recent.by_key(1) is update
