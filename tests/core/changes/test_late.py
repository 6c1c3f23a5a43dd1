"""Pods that hurt by waiting on: nothing more is written to them."""

from __future__ import annotations

from datetime import datetime, timedelta

import orjson
import pytest
from msgspec.structs import replace

from app.core.changes.symptoms import Symptoms
from app.core.model import Json, Object, Symptom
from app.core.objects.body import Body, read_body
from app.core.objects.pod_states import PENDING_AFTER, UNREADY_AFTER
from tests.core.factories import NOON, a_resource, after

POD = a_resource("Pod", "web-1")
OTHER = a_resource("Pod", "web-2")
SECOND = timedelta(seconds=1)


def symptoms() -> Symptoms:
    return Symptoms(lambda _: None, str)


def body(status: Object, **metadata: Json) -> Body:
    made: Object = {"name": "web-1", "creationTimestamp": NOON.isoformat(), **metadata}
    found = read_body(orjson.dumps({"metadata": made, "status": status}))
    assert found is not None
    return found


def ready(status: str, at: datetime = NOON, *, phase: str = "Running", **more: Json) -> Body:
    said: Object = {"type": "Ready", "status": status, "lastTransitionTime": at.isoformat(), "message": "[app]"}
    return body({"phase": phase, "conditions": [said], **more})


PENDING = body({"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "True"}]})


def told(found: tuple[Symptom, ...]) -> list[tuple[str, datetime]]:
    return [(symptom.reason, symptom.at) for symptom in found]


@pytest.mark.parametrize(
    ("waiting", "reason", "limit"),
    [(ready("False"), "Unready", UNREADY_AFTER), (PENDING, "Pending", PENDING_AFTER)],
)
def test_what_waits_for_too_long_hurts_though_nothing_is_written(waiting: Body, reason: str, limit: timedelta) -> None:
    seen = symptoms()
    assert seen.pod(POD, waiting, at=after(1)) == ()
    seen.await_status(POD)
    assert seen.overdue(NOON + limit) == ()
    (found,) = seen.overdue(NOON + limit + SECOND)
    assert told((found,)) == [(reason, NOON)]
    assert seen.overdue(NOON + 2 * limit) == ()
    assert seen.pod(POD, waiting, at=NOON + 2 * limit) == ()
    (ended,) = seen.pod(POD, ready("True", NOON + 3 * limit), at=NOON + 3 * limit)
    assert ended == replace(found, ended_at=NOON + 3 * limit)


def test_a_pod_that_was_never_ready_hurts_when_it_is_seen_so_late() -> None:
    seen = symptoms()
    assert seen.pod(POD, ready("False"), at=NOON + UNREADY_AFTER) == ()
    assert told(seen.pod(POD, ready("False"), at=NOON + UNREADY_AFTER + SECOND)) == [("Unready", NOON)]


def test_a_clock_that_is_ahead_does_not_hide_it() -> None:
    found = symptoms().pod(POD, ready("False", after(9999)), at=NOON + UNREADY_AFTER + SECOND)
    assert told(found) == [("Unready", NOON)]


@pytest.mark.parametrize(
    "then",
    [
        ready("True", after(60)),
        ready("False", phase="Succeeded"),
        body({"phase": "Running"}, deletionTimestamp=NOON.isoformat()),
    ],
)
def test_what_became_ready_ended_or_goes_in_time_does_not(then: Body) -> None:
    seen = symptoms()
    seen.pod(POD, ready("False"), at=after(1))
    seen.await_status(POD)
    seen.pod(POD, then, at=after(60))
    seen.await_status(POD)
    assert seen.overdue(after(9999)) == ()


def test_a_pod_that_is_gone_does_not() -> None:
    seen = symptoms()
    seen.pod(POD, ready("False"), at=after(1))
    seen.await_status(POD)
    seen.forget(POD, after(5))
    assert seen.overdue(after(9999)) == ()


def test_a_pod_that_runs_after_it_was_pending_has_its_time_to_get_ready() -> None:
    seen = symptoms()
    seen.pod(POD, PENDING, at=after(1))
    seen.await_status(POD)
    seen.pod(POD, ready("False", after(20)), at=after(20))
    seen.await_status(POD)
    assert seen.overdue(after(20) + UNREADY_AFTER) == ()
    assert told(seen.overdue(after(21) + UNREADY_AFTER)) == [("Unready", after(20))]


def test_a_crash_loop_is_not_told_as_unready_too() -> None:
    seen = symptoms()
    looping: Object = {"name": "app", "state": {"waiting": {"reason": "CrashLoopBackOff"}}}
    seen.pod(POD, ready("False", containerStatuses=[looping]), at=after(1))
    seen.await_status(POD)
    assert seen.overdue(after(9999)) == ()


def test_a_pod_whose_status_is_not_followed_is_not_judged() -> None:
    """An audit log may hold a pod's creation and none of its status writes."""
    seen = symptoms()
    seen.pod(POD, PENDING, at=after(1))
    assert seen.overdue(after(9999)) == ()


def test_one_that_waits_for_longer_does_not_hide_another() -> None:
    seen = symptoms()
    for pod, begun in ((POD, 100), (OTHER, 0)):
        seen.pod(pod, ready("False", after(begun)), at=after(100))
        seen.await_status(pod)
    found = seen.overdue(after(101) + UNREADY_AFTER)
    assert told(found) == [("Unready", after(100)), ("Unready", NOON)]
