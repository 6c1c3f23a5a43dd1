"""All orders in which a watch and the audit log may tell of an object's life: each write is one change, by its writer.

A watch tells in the order of the writes; so does the audit log, but where an API server has to send its events again,
each batch for itself. Both reach the tracker at times of their own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from itertools import combinations, permutations
from typing import Any

import pytest
from msgspec import structs

from app.core.changes.sightings import Sighting
from app.core.changes.tracker import Tracker
from app.core.model import Actor, Change, ObjectState, Resource, Verb
from app.core.objects.actors import actor_from_audit
from app.core.objects.redact import Redactor
from tests.core.learning import ALICE, KEY, an_object, at, audited, changes, learn, listed, managed, seen, told

NAMES = ("alice", "bob", "carol", "dave")
WRITERS = [actor_from_audit({"username": name}, user_agent="kubectl/v1.36.3 (linux/amd64)") for name in NAMES]
VERBS = (Verb.CREATE, Verb.UPDATE, Verb.UPDATE, Verb.DELETE)
Told = tuple[Verb, str, str]
"""Verb, writer, and the first letters of who told it."""


def version(number: int, value: int, uid: str = "uid-a") -> Any:
    return an_object("ConfigMap", "a", version=number, data={"x": str(value)}, meta={"uid": uid})


def watch_of(gap: float) -> list[Sighting]:
    """What a watch tells: made with 0, set to 1, set to 2, deleted, ``gap`` seconds apart."""
    return [seen(version(6 + n, min(n, 2)), 0.05 + n * gap, verb=verb) for n, verb in enumerate(VERBS)]


def audit_of(gap: float, *, level: str, uid: str) -> list[Sighting]:
    """The same as an audit log tells it; ``uid`` is what it says of the object that was deleted."""
    return [_audited(verb, n, n * gap, level, uid, WRITERS[n]) for n, verb in enumerate(VERBS)]


def _audited(verb: Verb, number: int, seconds: float, level: str, uid: str, actor: Actor) -> Sighting:
    value = {"x": str(number)}
    if verb is Verb.DELETE:
        if uid == "whole":
            return audited(version(8, 2), seconds, verb=verb, actor=actor)
        return told("ConfigMap", "a", seconds, verb=verb, actor=actor, uid=uid)
    patch: Any = {"data": value}
    if verb is Verb.CREATE:
        patch = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": value}
    if level == "RequestResponse":
        asked = patch if verb is Verb.UPDATE else None
        return audited(version(6 + number, number), seconds, verb=verb, actor=actor, patch=asked)
    return told("ConfigMap", "a", seconds, verb=verb, actor=actor, patch=patch if level == "Request" else None)


def merged(one: Sequence[Sighting], other: Sequence[Sighting]) -> Iterator[list[Sighting]]:
    """All orders of both that keep the order of each."""
    for places in combinations(range(len(one) + len(other)), len(one)):
        first, second = iter(one), iter(other)
        yield [next(first if place in places else second) for place in range(len(one) + len(other))]


def summed(found: Iterable[Change]) -> Counter[Told]:
    return Counter((one.verb, one.actor.name, "".join(sorted(source[0] for source in one.sources))) for one in found)


def named(orders: Iterable[list[Sighting]], expected: Counter[Told]) -> dict[str, Counter[Told]]:
    """The orders of which something else was learned than expected, each as W6 A7 …, with what was."""
    wrong = {}
    for order in orders:
        got = summed(changes(learn(*order)))
        if got != expected:
            wrong[" ".join(f"{one.source[0]}{one.verb or 'list'}{one.resource_version}" for one in order)] = got
    return wrong


LIFE = Counter(zip(VERBS, NAMES, ["aw"] * 4, strict=True))
LEVELS = [("RequestResponse", "uid-a"), ("RequestResponse", "whole"), ("RequestResponse", "")]
LEVELS += [(level, uid) for level in ("Request", "Metadata") for uid in ("uid-a", "")]


@pytest.mark.parametrize("gap", [10, 0.1])
@pytest.mark.parametrize(("level", "uid"), LEVELS)
def test_each_write_is_one_change_of_both_and_by_its_writer(level: str, uid: str, gap: float) -> None:
    orders = [*merged(watch_of(gap), audit_of(gap, level=level, uid=uid))]
    assert len(orders) == 70
    assert named(orders, LIFE) == {}
    for order in orders:
        words = {one.actor.name: one.summary for one in changes(learn(*order))}
        assert (words["bob"], words["carol"]) == ("x of ConfigMap a: 0 → 1", "x of ConfigMap a: 1 → 2")


@pytest.mark.parametrize(("level", "uid"), LEVELS)
def test_also_where_the_audit_log_is_out_of_order_none_is_lost_or_told_twice(level: str, uid: str) -> None:
    """Which of two requests without a version a watch shows, their order alone tells (level Request): it may be taken
    for the other's, and is told beside it. An update that is told before all that was before it takes with it what the
    watch says of the one before; that the watch has told of that too is not known then."""
    watch, audit = watch_of(10), audit_of(10, level=level, uid=uid)
    wrong = named((order for again in permutations(audit) for order in merged(watch, again)), LIFE)
    alike = LIFE - Counter([(Verb.UPDATE, "bob", "aw")]) + Counter([(Verb.UPDATE, "bob", "a")])
    most = {"RequestResponse": 105, "Request": 60, "Metadata": 0}[level]
    assert len(wrong) <= most
    assert [order for order, got in wrong.items() if got != alike] == []


@pytest.mark.parametrize(("level", "uid"), LEVELS)
def test_two_objects_of_one_name_keep_their_writers(level: str, uid: str) -> None:
    """Made, changed and deleted, and made anew. Where the audit log tells that without uids before the watch has told
    of the end of the first, it is not known which of both a deletion, or a request, is of."""
    watch, audit = ([one[place] for place in (0, 1, 3)] for one in (watch_of(10), audit_of(10, level=level, uid=uid)))
    twice = [anew(part) for part in (watch, audit)]
    wrong = named(merged(*twice), Counter({told: 2 * number for told, number in LIFE.items() if told[1] != "carol"}))
    most = {"RequestResponse": 0, "Request": 7 if uid else 28, "Metadata": 0 if uid else 9}[level]
    assert len(wrong) <= most, wrong


def anew(part: list[Sighting]) -> list[Sighting]:
    """The same once more, of another object of that name."""
    again = []
    for one in part:
        number = str(int(one.resource_version) + 10) if one.resource_version else ""
        body = one.body.replace(b"uid-a", b"uid-b") if one.body else None
        if body and number:
            body = body.replace(f'"{one.resource_version}"'.encode(), f'"{number}"'.encode())
        uid = one.uid.replace("uid-a", "uid-b")
        at_then = one.at + timedelta(seconds=40)
        other = structs.replace(one, at=at_then, body=body, uid=uid, resource_version=number)
        again.append(structs.replace(other, audit_id=f"{one.audit_id}-b" if one.audit_id else ""))
    return [*part, *again]


def listed_at(number: int, value: int, *, written: float) -> Sighting:
    """What a LIST shows half a minute after it all, of an object that was last written then."""
    shown = version(number, value)
    shown["metadata"]["managedFields"] = [managed("kubectl-edit", seconds=written, fields={"f:data": {"f:x": {}}})]
    return seen(shown, 50, verb=None)


@pytest.mark.parametrize("in_order", [True, False])
@pytest.mark.parametrize(("level", "uid"), LEVELS)
def test_what_a_watch_missed_is_told_by_a_list_and_the_audit_log_as_one(level: str, uid: str, in_order: bool) -> None:
    """Each is one change, by its writer, whether one write was missed or two."""
    watch, audit = watch_of(10), audit_of(10, level=level, uid=uid)
    for last, shown in ((1, listed_at(7, 1, written=10)), (2, listed_at(8, 2, written=20))):
        told_so = audit[: last + 1]
        for again in [told_so] if in_order else permutations(told_so):
            for order in merged([watch[0], shown], again):
                found = [(one.verb, one.actor.name) for one in changes(learn(*order))]
                assert sorted(found) == sorted(zip(VERBS[: last + 1], NAMES, strict=False)), order


@pytest.mark.parametrize(("level", "uid"), LEVELS)
def test_what_was_missed_up_to_the_end_is_told_by_the_audit_log(level: str, uid: str) -> None:
    watch, audit = watch_of(10), audit_of(10, level=level, uid=uid)
    missing = structs.replace(watch[-1], at=at(50), body=None, resource_version="")
    for order in merged([watch[0], missing], audit):
        found = [(one.verb, one.actor.name) for one in changes(learn(*order))]
        is_unknown = not uid and order[-2:] == [watch[0], missing]  # which of that name was deleted
        assert is_unknown or sorted(found) == sorted(zip(VERBS, NAMES, strict=True)), order


def again_after(order: Sequence[Sighting], cut: int) -> list[Change]:
    """What is learned where the program ends, and is started again, after so many tellings."""
    found: dict[int, Change] = {}
    states: dict[tuple[Resource, str], ObjectState] = {}

    def known(resource: Resource, _uid: str) -> ObjectState | None:
        return max((one for one in states.values() if one.resource == resource), key=lambda one: one.uid, default=None)

    for part in (order[:cut], order[cut:]):
        tracker = Tracker("c", Redactor(KEY), known)
        tracker.recall_lately(sorted(found.values(), key=lambda one: one.at), ())
        for sighting in part:
            learned = tracker.observe(sighting)
            found.update((change.key, change) for change in learned.changes)
            for state in (*learned.ended, *learned.states):
                key = state.resource, state.uid
                last = states.get(key, state)
                gone = last.deleted_at or state.deleted_at
                states[key] = structs.replace(state, state=state.state or last.state, deleted_at=gone)
    return list(found.values())


@pytest.mark.parametrize(("level", "uid"), [("RequestResponse", "uid-a"), ("Request", "uid-a"), ("Metadata", "")])
def test_a_restart_anywhere_changes_nothing_of_that(level: str, uid: str) -> None:
    watch, audit = watch_of(10), audit_of(10, level=level, uid=uid)
    cuts = [(order, cut) for order in merged(watch, audit) for cut in range(1, 8)]
    assert [(order, cut) for order, cut in cuts if summed(again_after(order, cut)) != LIFE] == []


def test_of_two_requests_that_fit_it_is_that_of_the_program_whose_fields_these_are() -> None:
    """A controller writes a moment after each rollout, what is no desired state; at level Metadata nobody says so."""
    controller = actor_from_audit({"username": "system:serviceaccount:x:y"}, user_agent="controller-manager/v1.36.3")
    fields = [managed("kubectl-edit", seconds=1, fields={"f:data": {"f:x": {}}})]
    meta = {"uid": "uid-a", "managedFields": fields}
    shown = seen(an_object("ConfigMap", "a", version=8, data={"x": "2"}, meta=meta), 1.6)
    for first in (1.0, 1.2):
        hers = told("ConfigMap", "a", first, actor=ALICE)
        its = told("ConfigMap", "a", 2.2 - first, actor=controller)
        for order in ((its, hers, shown), (hers, its, shown), (hers, shown, its), (shown, hers, its)):
            found = changes(learn(listed(version(5, 1)), *order))
            shown_by = {one.actor.name: one.sources for one in found if "watch" in one.sources}
            assert shown_by == {"alice": {"audit", "watch"}}
            assert len(found) == 2


def test_what_a_watch_tells_after_the_audit_log_told_of_the_end_is_no_object_that_is_there() -> None:
    watch, audit = watch_of(10), audit_of(10, level="Metadata", uid="uid-a")
    learned = learn(watch[0], *audit, *watch[1:])
    after = [state for one in learned[5:] for state in one.states]
    assert {state.deleted_at for state in after} == {audit[-1].at}
    shown: Any = after[-1].state
    assert shown["data"] == {"x": "2"}
