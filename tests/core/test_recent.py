"""The changes told lately: those of long ago cost little and say as much."""

from __future__ import annotations

import msgspec
import orjson
import pytest

from app.core import recent as module
from app.core.model import Change, DiffSource, FieldDiff, Object, Resource, Verb
from app.core.packed import Packing
from app.core.recent import Recent
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


def test_an_update_is_kept_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_FRESH", 0)
    recent = Recent(9, Packing())
    update = msgspec.structs.replace(whole(1, Verb.CREATE), verb=Verb.UPDATE)
    recent.add(update)
    assert recent.by_key(1) is update
