"""Symptoms: what Warning events, pods and nodes say hurts, since when, and when it stopped."""

from __future__ import annotations

from datetime import datetime

import orjson
import pytest
from msgspec.structs import replace

from app.core.changes.symptoms import UNSCHEDULED_AFTER, Symptoms
from app.core.edges.causes import VOLUMES, cause_of
from app.core.model import Json, Object, Resource, Symptom, SymptomSource
from app.core.objects.body import Body, read_body
from app.core.objects.pod_states import CUT, EVICTED, PENDING_AFTER, PREEMPTED
from tests.core.factories import NOON, a_resource, after

POD = a_resource("Pod", "web-1")
WEB = a_resource()


def of_web(resource: Resource) -> Resource | None:
    return WEB if resource == POD else None


def symptoms() -> Symptoms:
    return Symptoms(of_web, lambda text: text.replace("hunter2", "***"))


def time(at: datetime) -> str:
    return at.isoformat()


def event(
    *,
    uid: str = "e1",
    count: int = 1,
    at: datetime = NOON,
    reason: str = "BackOff",
    message: str = "m",
    kind: str = "Warning",
) -> bytes:
    about: Object = {"apiVersion": "v1", "kind": "Pod", "namespace": "shop", "name": "web-1"}
    return orjson.dumps(
        {
            "metadata": {"uid": uid, "name": "web-1.17"},
            "type": kind, "reason": reason, "message": message, "count": count, "lastTimestamp": time(at),
            "involvedObject": about,
        }
    )  # fmt: skip


def body(status: Object, **metadata: Json) -> Body:
    found = read_body(orjson.dumps({"metadata": {"name": "web-1", **metadata}, "status": status}))
    assert found is not None
    return found


def reasons(found: tuple[Symptom, ...]) -> list[str]:
    return [symptom.reason for symptom in found]


ENDED: Object = {"terminated": {"reason": "Error", "exitCode": 2, "finishedAt": NOON.isoformat()}}


def container(state: Object, **more: Json) -> Object:
    return {"phase": "Running", "containerStatuses": [{"name": "app", "state": state, **more}]}


def condition(kind: str, status: str, at: datetime = NOON, **more: Json) -> Object:
    return {"type": kind, "status": status, "lastTransitionTime": time(at), **more}


# -- events


def test_a_warning_event_is_a_symptom_of_its_workload() -> None:
    (found,) = symptoms().event("lab", event(message="password hunter2"), at=after(3), told=after(3))
    assert found == Symptom(
        SymptomSource.EVENT, "BackOff", NOON, found.fingerprint, POD, WEB, "password ***", "warning", 1,
        ended_at=NOON, told_at=after(3),
    )  # fmt: skip


def test_normal_events_teach_nothing() -> None:
    assert symptoms().event("lab", event(kind="Normal"), at=NOON) == ()


def test_why_a_pod_gets_no_node_hurts_though_it_is_told_as_normal() -> None:
    raw = event(kind="Normal").replace(b'"BackOff"', b'"NotTriggerScaleUp"')
    (found,) = symptoms().event("lab", raw, at=NOON)
    assert found.reason == "NotTriggerScaleUp"


@pytest.mark.parametrize(
    "raw", [b"", b"{", b"[]", b"{}", b'{"type":"Warning"}', b'{"type":5}', b'{"type":"Warning","regarding":{}}']
)
def test_odd_events_teach_nothing(raw: bytes) -> None:
    assert symptoms().event("lab", raw, at=NOON) == ()


def test_one_minute_of_one_reason_is_one_symptom_that_grows() -> None:
    seen = symptoms()
    first, second, third = (
        seen.event("lab", event(count=count, at=after(s)), at=after(s))[0] for count, s in ((1, 5), (4, 20), (5, 70))
    )
    assert (first.at, first.count) == (after(5), 1)
    assert (second.at, second.count, second.fingerprint) == (after(5), 4, first.fingerprint)
    assert (third.at, third.count, third.fingerprint) == (after(70), 1, first.fingerprint)


def test_a_warning_that_rested_is_another_symptom_and_one_told_a_little_late_is_not() -> None:
    seen = symptoms()
    told = [(after(5), 5), (after(19), 5), (after(35), 35), (after(30), 35), (after(-90), -90)]
    for count, (at, began) in enumerate(told, 1):
        (found,) = seen.event("lab", event(count=count, at=at), at=after(100))
        assert found.at == after(began)


def test_events_of_other_names_about_the_same_add_up() -> None:
    seen = symptoms()
    seen.event("lab", event(uid="e1", message="pod a"), at=NOON)
    (found,) = seen.event("lab", event(uid="e2", message="pod b", at=after(1)), at=after(1))
    assert (found.at, found.count) == (NOON, 2)


def test_the_same_event_told_twice_counts_once() -> None:
    seen = symptoms()
    seen.event("lab", event(count=2), at=NOON)
    assert seen.event("lab", event(count=2), at=after(1)) == ()


def test_an_old_event_seen_first_is_not_all_its_past() -> None:
    (found,) = symptoms().event("lab", event(count=900), at=NOON)
    assert found.count == 1


def test_events_of_the_new_api() -> None:
    raw: Object = {
        "metadata": {"uid": "n"}, "type": "Warning", "reason": "FailedScheduling", "note": "0/3 nodes",
        "eventTime": "2026-11-20T12:00:00.250000Z", "regarding": {"kind": "Pod", "namespace": "shop", "name": "web-1"},
    }  # fmt: skip
    (found,) = symptoms().event("lab", orjson.dumps(raw), at=after(9))
    assert (found.at, found.message, found.resource) == (after(0.25), "0/3 nodes", POD)


# -- pods


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (container({"waiting": {"reason": "CrashLoopBackOff"}}), "CrashLoopBackOff"),
        (container({"waiting": {"reason": "ImagePullBackOff"}}), "ImagePullBackOff"),
        (container({"waiting": {"reason": "ErrImagePull"}}), "ImagePullBackOff"),
        (container({"waiting": {"reason": "CreateContainerConfigError"}}), "CreateContainerConfigError"),
        (container({"terminated": {"reason": "OOMKilled", "exitCode": 137, "finishedAt": time(NOON)}}), "OOMKilled"),
        (container({"terminated": {"reason": "Error", "exitCode": 1, "finishedAt": time(NOON)}}), "Error"),
        (container({"running": {}}, lastState=ENDED), "Error"),
        ({"phase": "Failed", "reason": "Evicted"}, "Evicted"),
        ({"phase": "Failed"}, "Failed"),
        (
            {"phase": "Pending", "conditions": [condition("PodScheduled", "False", reason="Unschedulable")]},
            "Unschedulable",
        ),
        (
            {"phase": "Pending", "initContainerStatuses": [{"state": {"waiting": {"reason": "CrashLoopBackOff"}}}]},
            "CrashLoopBackOff",
        ),
    ],
)  # fmt: skip
def test_what_hurts_a_pod(status: Object, reason: str) -> None:
    found = symptoms().pod(POD, body(status), at=after(1))
    assert reasons(found) == [reason]
    assert (found[0].source, found[0].resource, found[0].workload) == (SymptomSource.POD, POD, WEB)


@pytest.mark.parametrize(
    ("message", "told"),
    [
        ("", "app ended with exit code 2"),
        ("login hunter2 failed\n", "app ended with exit code 2: login *** failed"),
        (f"ter2 {'x' * 30}\n{'y' * CUT}", f"app ended with exit code 2: {'y' * 220} … {'y' * 248}"),
        ("z" * CUT, "app ended with exit code 2"),
    ],
)
def test_what_a_container_says_as_it_ends(message: str, told: str) -> None:
    ended: Object = {"reason": "Error", "exitCode": 2, "finishedAt": time(NOON), "message": message}
    [found] = symptoms().pod(POD, body(container({"terminated": ended})), at=after(1))
    assert found.message == told


@pytest.mark.parametrize(
    "status",
    [
        {},
        {"phase": "Running", "conditions": [condition("Ready", "True")]},
        {"phase": "Running", "conditions": [condition("Ready", "False")]},
        {"phase": "Succeeded", "conditions": [condition("Ready", "False")]},
        container({"waiting": {"reason": "ContainerCreating"}}),
        container({"waiting": {"reason": "PodInitializing"}}),
        container({"terminated": {"reason": "Completed", "exitCode": 0, "finishedAt": time(NOON)}}),
        {"phase": 5},
    ],
)
def test_what_does_not(status: Object) -> None:
    assert symptoms().pod(POD, body(status, creationTimestamp=time(NOON)), at=after(1)) == ()


def test_a_lasting_state_is_one_symptom_and_has_an_end() -> None:
    seen = symptoms()
    crash = body(container({"waiting": {"reason": "CrashLoopBackOff"}}))
    (began,) = seen.pod(POD, crash, at=after(1))
    assert seen.pod(POD, crash, at=after(2)) == ()
    (ended,) = seen.pod(POD, body(container({"running": {}})), at=after(60))
    assert ended == replace(began, ended_at=after(60))


def test_unready_counts_only_after_having_been_ready() -> None:
    seen = symptoms()
    seen.pod(POD, body({"phase": "Running", "conditions": [condition("Ready", "True")]}), at=NOON)
    unready = body({"phase": "Running", "conditions": [condition("Ready", "False", after(30))]})
    (found,) = seen.pod(POD, unready, at=after(31))
    assert (found.reason, found.at) == ("Unready", after(30))


def test_a_pod_that_is_being_deleted_is_not_unready() -> None:
    seen = symptoms()
    seen.pod(POD, body({"phase": "Running", "conditions": [condition("Ready", "True")]}), at=NOON)
    leaving = body({"phase": "Running", "conditions": [condition("Ready", "False")]}, deletionTimestamp=time(NOON))
    assert seen.pod(POD, leaving, at=after(31)) == ()


def test_pending_hurts_after_a_while() -> None:
    seen = symptoms()
    pending = body({"phase": "Pending"}, creationTimestamp=time(NOON))
    assert seen.pod(POD, pending, at=NOON + PENDING_AFTER) == ()
    (found,) = seen.pod(POD, pending, at=NOON + PENDING_AFTER * 2)
    assert (found.reason, found.at) == ("Pending", NOON)


def test_a_pod_that_no_scheduler_looks_at_hurts_though_nothing_is_written_to_it() -> None:
    seen = symptoms()
    made = body({"phase": "Pending"}, creationTimestamp=time(NOON))
    seen.await_node(POD, made)
    seen.pod(POD, made, at=NOON)
    assert seen.overdue(NOON + UNSCHEDULED_AFTER) == ()
    (found,) = seen.overdue(NOON + UNSCHEDULED_AFTER * 2)
    assert (found.reason, found.at, found.workload) == ("Pending", NOON, WEB)
    assert seen.overdue(NOON + UNSCHEDULED_AFTER * 3) == ()
    scheduled = body({"phase": "Pending", "conditions": [condition("PodScheduled", "True")]})
    (ended,) = seen.pod(POD, scheduled, at=after(60))
    assert ended == replace(found, ended_at=after(60))


def test_it_hurts_whoever_told_of_the_pod_first() -> None:
    seen = symptoms()
    made = body({"phase": "Pending"}, creationTimestamp=time(NOON))
    seen.pod(POD, made, at=NOON)  # its creation, in an audit log
    seen.await_node(POD, made)
    seen.pod(POD, made, at=after(0.1))
    (found,) = seen.overdue(NOON + UNSCHEDULED_AFTER * 2)
    assert (found.reason, found.at, found.message) == ("Pending", NOON, "no scheduler has looked at it")


def test_a_pod_whose_node_is_chosen_waits_for_what_is_to_be_there() -> None:
    seen = symptoms()
    made = body({"phase": "Pending"}, creationTimestamp=time(NOON))
    chosen = body({"phase": "Pending", "nominatedNodeName": "node-7"}, creationTimestamp=time(NOON))
    for one in (made, chosen):
        seen.await_node(POD, one)
        seen.pod(POD, one, at=NOON)
    (found,) = seen.overdue(NOON + UNSCHEDULED_AFTER * 2)
    assert found.message == "a node was chosen, and it waits for volumes or devices there"
    assert cause_of([found.message]) is VOLUMES


def test_a_pod_that_found_its_node_in_time_does_not() -> None:
    seen = symptoms()
    made = body({"phase": "Pending"}, creationTimestamp=time(NOON))
    seen.await_node(POD, made)
    seen.pod(POD, made, at=NOON)
    seen.pod(POD, body({"phase": "Pending", "conditions": [condition("PodScheduled", "True")]}), at=after(1))
    assert seen.overdue(after(600)) == ()


def test_a_pod_that_is_gone_hurts_no_more() -> None:
    seen = symptoms()
    seen.pod(POD, body(container({"waiting": {"reason": "CrashLoopBackOff"}})), at=after(1))
    (ended,) = seen.forget(POD, after(9))
    assert ended.ended_at == after(9)
    assert seen.forget(POD, after(10)) == ()


# -- nodes


def test_a_nodes_conditions() -> None:
    node = a_resource("Node", "node-7", None)
    seen = symptoms()
    ok: Object = {"conditions": [condition("Ready", "True"), condition("MemoryPressure", "False")]}
    bad: Object = {
        "conditions": [
            condition("Ready", "Unknown", after(5), message="stopped"),
            condition("DiskPressure", "True", after(6)),
        ]
    }
    assert seen.node(node, body(ok), at=after(1)) == ()
    found = seen.node(node, body(bad), at=after(7))
    assert [(s.reason, s.at) for s in found] == [("NodeNotReady", after(5)), ("DiskPressure", after(6))]
    assert found[0].source is SymptomSource.NODE
    assert {(s.reason, s.ended_at) for s in seen.node(node, body(ok), at=after(50))} == {
        ("NodeNotReady", after(50)), ("DiskPressure", after(50)),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("status", "reason", "told"),
    [
        ("True", EVICTED, [EVICTED]),
        ("False", EVICTED, []),
        ("True", PREEMPTED, [PREEMPTED]),
        ("True", "TerminationByKubelet", []),  # the pod's own status tells of that
    ],
)
def test_that_a_pod_is_evicted_is_told(status: str, reason: str, told: list[str]) -> None:
    target = condition("DisruptionTarget", status, after(5), reason=reason, message="Eviction API: evicting")
    found = symptoms().pod(POD, body({"phase": "Running", "conditions": [target]}), at=after(5.2))
    assert reasons(found) == told
    assert {(one.at, one.workload, one.message) for one in found} <= {(after(5), WEB, "Eviction API: evicting")}
