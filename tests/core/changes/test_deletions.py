"""A deletion is told once, and two are never taken for one, however little was recorded of them."""

from __future__ import annotations

from collections import Counter
from itertools import permutations
from typing import Any

import pytest

from app.core.changes.audit import decode, sightings
from app.core.changes.sightings import Sighting
from app.core.changes.tracker import Tracker
from app.core.model import NOBODY, Actor, Change, DiffSource, ObjectState, Verb
from app.core.objects.redact import Redactor
from app.core.objects.untyped import part
from app.store.merge import merge_changes
from tests.core.company import ranked
from tests.core.factories import a_change, a_resource, a_symptom, a_workload, after, an_alert, an_incident
from tests.core.learning import ALICE, KEY, REPLICASETS, an_object, at, changes, learn, listed, seen, told


def test_deletions_without_an_uid_are_told_apart() -> None:
    told_twice = [told("Secret", name, n, verb=Verb.DELETE) for n, name in enumerate(("a", "b", "a"))]
    found = changes(learn(*told_twice))
    assert [(one.resource.name, one.verb) for one in found] == [
        ("a", Verb.DELETE),
        ("b", Verb.DELETE),
        ("a", Verb.DELETE),
    ]


def test_what_was_known_by_its_name_alone_is_gone_and_may_come_again() -> None:
    """As of Secrets that nobody watches: who writes them tells no uid, who deletes them does."""
    tracker = Tracker("c", Redactor(KEY), lambda resource, _uid: ObjectState(resource, "", "", at(0), None))
    gone = tracker.observe(told("Secret", "s", 5, verb=Verb.DELETE, uid="u-1"))
    assert {(one.uid, one.deleted_at) for one in (*gone.states, *gone.ended)} == {("", at(5)), ("u-1", at(5))}
    again = tracker.observe(told("Secret", "s", 9, verb=Verb.CREATE))
    assert [(one.uid, one.deleted_at) for one in again.states] == [("", None)]
    assert [one.uid for one in again.changes] == [""]
    later = tracker.observe(told("Secret", "s", 12, verb=Verb.DELETE, uid="u-2"))
    assert sorted(one.uid for one in (*later.states, *later.ended)) == ["", "u-2"]


def test_an_audit_event_and_a_watch_event_of_one_deletion_meet() -> None:
    meta = {"name": "a", "namespace": "shop", "uid": "u-1", "resourceVersion": "7"}
    secret = {"kind": "ConfigMap", "apiVersion": "v1", "metadata": meta, "data": {"x": "1"}}
    for uid in ("", "u-1"):
        audited = told("ConfigMap", "a", 0, verb=Verb.DELETE, uid=uid)
        watched = seen(secret, 0.2, verb=Verb.DELETE)
        for order in ((audited, watched), (watched, audited)):
            [found] = changes(learn(*order))
            assert found.sources == {"audit", "watch"}


def test_what_is_deleted_was_last_as_the_watch_shows_it() -> None:
    """The audit log is ahead of the watch by the last write."""

    def of(version: int, value: str) -> Any:
        return an_object("ConfigMap", "a", version=version, data={"x": value})

    ahead = told("ConfigMap", "a", 6, verb=Verb.DELETE, uid="uid-a")
    learned = learn(listed(of(5, "1")), ahead, seen(of(7, "2"), 5.9), seen(of(8, "2"), 6, verb=Verb.DELETE))
    first, last = (one for found in learned for one in found.changes if one.verb is Verb.DELETE)
    assert [part(one.diffs[0].old, "data", "x") for one in (first, last)] == ["1", "2"]
    for one, other in ((first, last), (last, first)):
        assert merge_changes(one, other).diffs == last.diffs


def test_the_uid_stands_in_the_status_at_every_level() -> None:
    line = (
        b'{"stage":"ResponseComplete","verb":"delete","level":"Metadata","auditID":"x","user":{"username":"a"},'
        b'"requestReceivedTimestamp":"2026-11-21T12:00:00Z","stageTimestamp":"2026-11-21T12:00:00Z",'
        b'"objectRef":{"resource":"secrets","namespace":"shop","name":"s","apiVersion":"v1"},'
        b'"responseStatus":{"status":"Success","details":{"name":"s","kind":"secrets","uid":"u-9"},"code":200}}'
    )
    [found] = sightings("c", decode(line))
    assert found.uid == "u-9"


@pytest.mark.parametrize(("who", "told_of"), [(ALICE, True), (REPLICASETS, False), (NOBODY, False)])
def test_a_replica_set_that_a_person_deletes_is_a_change(who: Actor, told_of: bool) -> None:
    """Its pods go with it. Controllers delete old ones all the time."""
    one = an_object("ReplicaSet", "web-5b9548b565", version=7, api="apps/v1", spec={"replicas": 3})
    audited = seen(one, 10, verb=Verb.DELETE, source="audit", actor=who)
    watched = seen(one, 10.2, verb=Verb.DELETE)
    for order in ((audited, watched), (watched, audited)):
        found = changes(learn(seen(one, 0, verb=None), *order))
        assert [(c.resource.name, c.verb, c.actor.name) for c in found] == (
            [("web-5b9548b565", Verb.DELETE, "alice")] if told_of else []
        )


def test_what_befalls_its_deployment_leads_to_it() -> None:
    home, one = a_resource("Deployment", "web", "shop"), a_resource("ReplicaSet", "web-5b9548b565", "shop")
    gone = a_change(one, at=after(-5), verb=Verb.DELETE)
    hurt = a_symptom(home, "Unready", at=after(0), message="pods are not ready", count=9)
    ranking = ranked(
        gone,
        incident=an_incident(an_alert(after(20), name="KubeDeploymentReplicasMismatch", namespace="shop")),
        load=[],
        symptoms=[hurt],
        states=[a_workload(home)],
    )
    assert ranking.suspects[0].change.resource == one


def life(*, source: str = "audit", is_put: bool = False) -> list[Sighting]:
    """An object is made, changed twice, and deleted."""

    def version(number: int, turn: str) -> Any:
        return an_object("ConfigMap", "a", version=number, meta={"labels": {"turn": turn}}, data={"x": "1"})

    def patch(turn: str) -> dict[str, Any]:
        return {} if is_put or source == "watch" else {"patch": {"metadata": {"labels": {"turn": turn}}}}

    actor = ALICE if source == "audit" else NOBODY
    return [
        seen(version(6, "0"), 0.0, verb=Verb.CREATE, source=source, actor=actor),
        seen(version(7, "1"), 0.1, verb=Verb.UPDATE, source=source, actor=actor, **patch("1")),
        seen(version(8, "2"), 0.2, verb=Verb.UPDATE, source=source, actor=actor, **patch("2")),
        seen(version(8, "2"), 0.3, verb=Verb.DELETE, source=source, actor=actor),
    ]


WHOLE = Counter({(Verb.CREATE, "6"): 1, (Verb.UPDATE, "7"): 1, (Verb.UPDATE, "8"): 1, (Verb.DELETE, "8"): 1})


def kinds_of(found: list[Change]) -> Counter[tuple[Verb, str]]:
    return Counter((one.verb, one.resource_version) for one in found)


@pytest.mark.parametrize("order", [*permutations(range(4))])
def test_audit_events_that_are_sent_again_come_in_any_order_and_none_is_lost(order: tuple[int, ...]) -> None:
    """What an API server could not send it sends again, each batch for itself: a deletion may come first."""
    assert kinds_of(changes(learn(*(life()[number] for number in order)))) == WHOLE


def test_a_write_without_a_patch_that_comes_after_the_deletion_is_told_without_its_fields() -> None:
    made, first, second, gone = life(is_put=True)
    found = changes(learn(made, gone, first, second))
    assert kinds_of(found) == WHOLE
    assert {one.diff_source for one in found if one.verb is Verb.UPDATE} == {DiffSource.NONE}


def test_what_a_watch_told_of_a_life_is_told_better_and_not_twice() -> None:
    found = changes(learn(*life(source="watch"), *life()))
    assert kinds_of(found) == WHOLE
    assert {one.actor for one in found} == {ALICE}


def test_what_an_earlier_run_knew_to_be_gone_had_a_life_all_the_same() -> None:
    resource = life()[0].resource
    known = ObjectState(resource, "uid-a", "8", at(0.3), None, deleted_at=at(0.3))
    tracker = Tracker("c", Redactor(KEY), lambda _resource, _uid: known)
    found = changes([tracker.observe(one) for one in life()[:3]])
    assert kinds_of(found) == WHOLE - Counter({(Verb.DELETE, "8"): 1})


@pytest.mark.parametrize("watch_first", [True, False])
def test_what_waits_for_finalizers_is_there_until_a_watch_tells_its_end(watch_first: bool) -> None:
    """Of a deletion of which the audit log tells no more than that it was asked for."""

    def version(number: int, value: str, **meta: Any) -> Any:
        return an_object("ConfigMap", "a", version=number, meta={"finalizers": ["x.io/y"], **meta}, data={"k": value})

    stamp = {"deletionTimestamp": "2026-11-21T05:00:01Z"}
    asked, going = told("ConfigMap", "a", 1, verb=Verb.DELETE), seen(version(6, "1", **stamp), 1.2)
    edited, gone = seen(version(7, "2", **stamp), 30), seen(version(8, "2", **stamp), 60, verb=Verb.DELETE)
    pair = (going, asked) if watch_first else (asked, going)
    learned = learn(seen(version(5, "1"), 0, verb=None), *pair, edited, gone)
    found = changes(learned)
    assert [one.summary for one in found] == ["ConfigMap a deleted", "k of ConfigMap a: 1 → 2"]
    assert found[0].actor == ALICE
    ends = [one.deleted_at for each in learned for one in each.states if one.deleted_at]
    assert ends == [at(60)]


def test_another_that_took_the_name_of_one_known_by_its_name_alone_is_followed() -> None:
    """The audit log told of the one that it was deleted, and no more; a watch that began later shows the other."""
    gone = told("ConfigMap", "a", 1, verb=Verb.DELETE)
    other, edited = (an_object("ConfigMap", "a", version=8 + n, data={"k": str(n)}) for n in (0, 1))
    learned = learn(gone, seen(other, 20, verb=None), seen(edited, 30))
    assert [one.summary for one in changes(learned)] == ["ConfigMap a deleted", "k of ConfigMap a: 0 → 1"]
    assert [one.uid for one in learned[1].states] == ["uid-a"]


def an_ending(number: int, value: str, **meta: Any) -> Any:
    return an_object("ConfigMap", "a", version=number, meta={"finalizers": ["x.io/y"], **meta}, data={"k": value})


def test_an_edit_before_a_deletion_that_no_watch_saw_is_told_too() -> None:
    """The LIST after a break shows both; the object waits for its finalizers."""
    shown = seen(an_ending(7, "2", deletionTimestamp="2026-11-21T05:00:41Z"), 60, verb=None)
    edit, gone = changes(learn(seen(an_ending(5, "1"), 0, verb=None), shown))
    assert edit.summary == "k of ConfigMap a: 1 → 2 (between 05:00:00 and 05:00:59)"
    assert gone.summary == "ConfigMap a deleted"
    assert edit.at < gone.at == at(60)
    state: Any = gone.diffs[0].old
    assert state["data"] == {"k": "2"}


def test_an_edit_of_what_waited_for_its_finalizers_as_an_earlier_run_ended_is_told() -> None:
    stamp = {"deletionTimestamp": "2026-11-21T05:00:00Z"}
    (first,) = learn(seen(an_ending(5, "1", **stamp), 0, verb=None))
    tracker = Tracker("c", Redactor(KEY), lambda _resource, _uid: first.states[0])
    found = changes([tracker.observe(seen(an_ending(6, "2", **stamp), 60))])
    assert "k of ConfigMap a: 1 → 2" in [one.summary for one in found]
