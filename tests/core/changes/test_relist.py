"""A watch that begins anew lists everything again: what nobody saw is told with the interval in which it happened."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from app.core.changes.sightings import Sighting
from app.core.model import ActorSource, Change, Object, Outcome, Verb
from tests.core.learning import ALICE, BOB, a_deployment, an_object, at, audited, changes, learn, managed, seen, told


def listed(obj: Any, seconds: float) -> Sighting:
    return seen(obj, seconds, verb=None)


def born(obj: Any, seconds: float) -> Any:
    obj["metadata"]["creationTimestamp"] = at(seconds).strftime("%Y-%m-%dT%H:%M:%SZ")
    return obj


def lines(found: list[Change]) -> list[str]:
    return [change.summary for change in found]


def test_what_differs_in_a_list_after_a_break_is_a_change_of_the_interval() -> None:
    other = a_deployment("other", version=6, image="r/other:v2")
    fields: Object = {"f:spec": {"f:template": {"f:spec": {"f:containers": {'k:{"name":"web"}': {"f:image": {}}}}}}}
    entries = [managed("argocd", seconds=30, fields=fields)]
    new = a_deployment(version=8, image="r/web:v2", meta={"managedFields": entries})
    found = changes(
        learn(
            listed(a_deployment(version=5), 0),
            listed(a_deployment("other", version=4, image="r/other:v1"), 0),
            seen(other, 3),
            listed(other, 65),
            listed(new, 65.1),
            seen(a_deployment(version=9, image="r/web:v3"), 80),
        )
    )
    assert lines(found) == [
        "image of other: v1 → v2",
        "image of web: v1 → v2 (between 05:00:03 and 05:01:05)",
        "image of web: v2 → v3",
    ]
    assert found[1].at == at(65.1)
    assert found[1].sources == {"watch"}
    assert (found[1].actor.name, found[1].actor.source) == ("argocd", ActorSource.MANAGED_FIELDS)


def test_a_rollout_begun_unseen_follows_from_that_change() -> None:
    old = a_deployment(version=5, status={"observedGeneration": 1, "replicas": 2, "updatedReplicas": 2})
    new = a_deployment(version=8, image="r/web:v2", meta={"generation": 2})
    learned = learn(listed(old, 0), listed(new, 65))
    (change,) = changes(learned)
    assert [rollout.change_id for rollout in learned[-1].rollouts] == [change.id]


@pytest.mark.parametrize(("available", "outcome"), [(2, Outcome.COMPLETE), (1, Outcome.RUNNING)])
def test_the_rollout_of_a_workload_created_unseen_began_with_it(available: int, outcome: Outcome) -> None:
    status: Object = {"observedGeneration": 1, "replicas": 2, "updatedReplicas": 2, "availableReplicas": available}
    if outcome is Outcome.COMPLETE:
        through = {"type": "Progressing", "status": "True", "reason": "NewReplicaSetAvailable"}
        status["conditions"] = [{**through, "lastUpdateTime": at(41).isoformat()}]
    fresh = born(a_deployment("fresh", version=7, status=status, meta={"generation": 1}), 30)
    learned = learn(listed(a_deployment(version=5), 0), listed(fresh, 65))
    (made,) = changes(learned)
    (rollout,) = learned[-1].rollouts
    assert (rollout.change_id, rollout.started_at, rollout.outcome) == (made.id, at(30), outcome)
    assert rollout.ended_at == (at(41) if outcome is Outcome.COMPLETE else None)


def test_a_rollout_that_failed_unseen_failed_though_that_was_before_it_was_seen_to_begin() -> None:
    counts: Object = {"replicas": 2, "updatedReplicas": 2, "availableReplicas": 2}
    failed = {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}
    status: Object = {**counts, "observedGeneration": 2, "replicas": 3, "updatedReplicas": 1}
    status["conditions"] = [{**failed, "lastTransitionTime": at(640).isoformat()}]
    new = a_deployment(version=8, image="r/web:v2", meta={"generation": 2}, status=status)
    old = a_deployment(version=5, status={**counts, "observedGeneration": 1})
    learned = learn(listed(old, 0), listed(new, 3600))
    assert [rollout.outcome for rollout in learned[-1].rollouts] == [Outcome.FAILED]


def test_the_list_that_a_watch_begins_with_tells_no_changes() -> None:
    objects = (born(a_deployment(name, version=number + 5), -3600) for number, name in enumerate(("a", "b", "c")))
    assert changes(learn(*(listed(obj, 0.1 * number) for number, obj in enumerate(objects)))) == []


def test_a_list_without_news_tells_nothing_and_is_the_last_time_that_it_was_so() -> None:
    same = a_deployment(version=5)
    found = changes(learn(listed(same, 0), listed(same, 65), listed(a_deployment(version=6, replicas=3), 90)))
    assert lines(found) == ["replicas of web: 2 → 3 (between 05:01:05 and 05:01:30)"]


def test_what_a_request_was_thought_to_make_is_no_news_when_a_list_knows_better() -> None:
    patched = told("Deployment", "web", 5, patch={"spec": {"replicas": 7}}, group="apps")
    found = changes(learn(listed(a_deployment(version=5), 0), patched, listed(a_deployment(version=6, replicas=8), 65)))
    assert lines(found) == ["replicas of web: 2 → 7"]


def test_a_write_that_the_audit_log_told_is_not_told_again_by_the_list() -> None:
    new = a_deployment(version=6, replicas=3)
    (change,) = changes(learn(listed(a_deployment(version=5), 0), audited(new, 30), listed(new, 65)))
    assert change.actor == ALICE
    (change,) = changes(learn(listed(a_deployment(version=5), 0), listed(new, 65), audited(new, 66)))
    assert change.actor == ALICE


def test_an_object_created_in_the_interval_was_created_when_it_says() -> None:
    fresh = born(a_deployment("fresh", version=7), 30)
    fresh["metadata"]["managedFields"] = [
        managed("webhook-injector", seconds=55, fields={"f:metadata": {}}),
        managed("kubectl-create", seconds=30, fields={"f:spec": {}}),
    ]
    (change,) = changes(learn(listed(a_deployment(version=5), 0), listed(fresh, 65)))
    assert (change.verb, change.at, change.actor.name) == (Verb.CREATE, at(30), "kubectl-create")
    assert learn(listed(a_deployment(version=5), 0), listed(fresh, 65))[1].states[0].seen_at == at(65)


def test_a_creation_that_the_audit_log_told_is_told_once() -> None:
    first = listed(an_object("ConfigMap", "a", version=3), 0)
    fresh = born(an_object("ConfigMap", "settings", version=7, data={"a": "1"}), 30)
    without_body = told("ConfigMap", "settings", 30.2, verb=Verb.CREATE)
    (change,) = changes(learn(first, without_body, listed(fresh, 65)))
    assert change.actor == ALICE
    assert change.sources == {"audit", "watch"}
    requested = structs.replace(
        told("ConfigMap", "settings", 30.2, verb=Verb.CREATE, patch={"data": {"a": "1"}}),
        uid=fresh["metadata"]["uid"],
        resource_version="6",
    )
    (change,) = changes(learn(first, requested, listed(fresh, 65)))
    assert change.actor == ALICE


def test_what_was_deleted_and_made_anew_in_the_interval_is_both_and_says_what_was_deleted() -> None:
    def settings(version: int, uid: str, value: str) -> Any:
        return an_object("ConfigMap", "settings", version=version, meta={"uid": uid}, data={"a": value})

    first, second = settings(5, "uid-1", "1"), born(settings(9, "uid-2", "2"), 30)
    heard = seen(an_object("ConfigMap", "other", version=6), 10)
    shown = listed(second, 60)
    missing = structs.replace(shown, verb=Verb.DELETE, body=None, uid="uid-1", resource_version="")
    made, gone = changes(learn(listed(first, 0), heard, shown, missing))
    assert (made.verb, made.uid, made.at) == (Verb.CREATE, "uid-2", at(30))
    assert (gone.verb, gone.uid) == (Verb.DELETE, "uid-1")
    assert gone.summary == "ConfigMap settings deleted (between 05:00:10 and 05:01:00)"
    state: Any = gone.diffs[0].old
    assert state["data"] == {"a": "1"}


def test_a_write_that_the_audit_log_dates_is_told_without_the_interval() -> None:
    """At level Metadata: the list says what, and managedFields when."""
    entries = [managed("kubectl-edit", seconds=30, fields={"f:spec": {"f:replicas": {}}})]
    shown = listed(a_deployment(version=8, replicas=5, meta={"managedFields": entries}), 60)
    asked = told("Deployment", "web", 30.4, group="apps")
    [change] = changes(learn(listed(a_deployment(version=5), 0), asked, shown))
    assert (change.summary, change.at, change.actor) == ("replicas of web: 2 → 5", at(30.4), ALICE)


def test_pods_created_in_the_interval_are_state() -> None:
    pod = born(an_object("Pod", "web-1", version=9, spec={"containers": []}), 30)
    assert changes(learn(listed(an_object("Pod", "web-0", version=3, spec={}), 0), listed(pod, 65))) == []


def test_a_removal_by_whoever_is_not_blamed_on_the_owner() -> None:
    """A label is set by one and removed by another, who owns nothing afterwards."""
    helm = managed("helm", seconds=-100, fields={"f:data": {}})
    setter = managed("labeler", seconds=5, fields={"f:metadata": {"f:labels": {"f:x": {}}}})

    def settings(version: int, labels: Any, *entries: Any) -> Any:
        meta = {"labels": labels, "managedFields": list(entries)}
        return an_object("ConfigMap", "settings", version=version, data={"a": "1"}, meta=meta)

    found = changes(
        learn(
            listed(settings(5, {}, helm), 0),
            seen(settings(6, {"x": "v"}, helm, setter), 5),
            seen(settings(7, {}, helm), 6),
            seen(settings(8, {"x": "v"}, helm, setter | {"time": "2026-11-21T05:00:07Z"}), 7),
        )
    )
    assert [change.actor.name for change in found] == ["labeler", "", "labeler"]


def test_a_status_written_without_a_subresource_does_not_make_its_writer_the_remover() -> None:
    def custom(version: int, spec: Any, seconds: float) -> Any:
        entries = [managed("operator", seconds=seconds, fields={"f:status": {}})]
        return an_object("Widget", "w", version=version, api="acme.io/v1", spec=spec, meta={"managedFields": entries})

    learned = learn(
        listed(custom(5, {"a": 1, "b": 2}, 0), 0),
        seen(custom(6, {"a": 1, "b": 2}, 5), 5),
        seen(custom(7, {"a": 1}, 5), 9),
    )
    (change,) = changes(learned)
    assert (change.summary, change.actor.name) == ("b of Widget w removed (was 2)", "")


def test_writes_that_no_watch_saw_are_told_by_the_audit_log_when_it_comes_later() -> None:
    """The watch was away; the LIST shows what the last of them made, and the audit log says what each did."""
    first, last = a_deployment(version=7, image="r/web:v2"), a_deployment(version=9, image="r/web:v3")
    listed_anew = listed(a_deployment(version=5), 0), seen(a_deployment(version=6), 1), listed(last, 60)
    found = changes(learn(*listed_anew, audited(last, 30, actor=BOB), audited(first, 20)))
    assert sorted((change.actor.name, change.summary) for change in found) == [
        ("alice", "image of web: v1 → v2"),
        ("bob", "image of web: v2 → v3 (between 05:00:20 and 05:01:00)"),
    ]


@pytest.mark.parametrize("in_order", [True, False])
def test_so_is_what_was_taken_back_meanwhile(in_order: bool) -> None:
    """The LIST shows nothing new: there and back, and nobody saw it."""
    first, last = a_deployment(version=7, image="r/web:v2"), a_deployment(version=9)
    there, back = audited(first, 20), audited(last, 30, actor=BOB)
    listed_anew = listed(a_deployment(version=5), 0), listed(last, 60)
    found = changes(learn(*listed_anew, *((there, back) if in_order else (back, there))))
    when = " (between 05:00:20 and 05:01:00)" if in_order else ""
    assert sorted((change.actor.name, change.summary) for change in found) == [
        ("alice", "image of web: v1 → v2"),
        ("bob", f"image of web: v2 → v1{when}"),
    ]


def test_a_list_that_shows_a_status_after_the_write_leaves_it_to_its_writer() -> None:
    """What a LIST shows has the version of the last write, which is mostly a controller's of the status."""
    first, second = a_deployment(version=7, image="r/web:v2"), a_deployment(version=8, image="r/web:v3")
    shown = listed(a_deployment(version=11, image="r/web:v3"), 60)
    found = changes(learn(listed(a_deployment(version=5), 0), shown, audited(second, 30, actor=BOB)))
    assert [(one.actor.name, one.resource_version) for one in found] == [("bob", "11")]
    assert found[0].sources == {"audit", "watch"}
    found = changes(
        learn(listed(a_deployment(version=5), 0), shown, audited(first, 20), audited(second, 30, actor=BOB))
    )
    assert sorted((one.actor.name, one.summary) for one in found) == [
        ("alice", "image of web: v1 → v2"),
        ("bob", "image of web: v2 → v3 (between 05:00:20 and 05:01:00)"),
    ]
