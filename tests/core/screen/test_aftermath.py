"""What moved after a change: rises and falls at the right moment, of the right callers; silence where nothing moved."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from msgspec import structs

from app.core.counted import NO_CALLS, Calls
from app.core.edges.touched import touched
from app.core.model import SLOT_SECONDS, Actor, ActorSource, CallCount, CallKey, MetricSeries, Object, ObjectState
from app.core.screen.aftermath import MOST, Measured, moved
from tests.web import world

AT = datetime(2026, 11, 20, 14, 0, 2, tzinfo=UTC)
START = int((AT - timedelta(minutes=5)).timestamp()) // SLOT_SECONDS * SLOT_SECONDS
END = START + 600
USER = "system:serviceaccount:payments:checkout"


def calls(
    rate: Callable[[float], float], *, code: int = 200, verb: str = "patch", resource: str = "secrets", seed: int = 1
) -> list[CallCount]:
    """Counts of one caller; ``rate`` gives the calls per second so many seconds after the change."""
    dice = random.Random(seed)
    key = CallKey(USER, "", "", verb, "", resource, "", code)
    found = []
    for slot in range(START, END, SLOT_SECONDS):
        count = round(rate(slot - AT.timestamp()) * SLOT_SECONDS + dice.uniform(-1, 1))
        if count > 0:
            found.append(CallCount(key, slot, count, 1000))
    return found


def measured(*some: list[CallCount], series: tuple[MetricSeries, ...] = ()) -> Measured:
    return Measured((START, END - SLOT_SECONDS), Calls.of(count for one in some for count in one), series)


def gauge(name: str, value: Callable[[float], float], *, step: float = 15.0) -> MetricSeries:
    times = tuple(START + number * step for number in range(int(600 // step)))
    return MetricSeries(name, (), "gauge", times, tuple(value(time - AT.timestamp()) for time in times))


def step_at(seconds: float, before: float, after: float) -> Callable[[float], float]:
    return lambda away: before if away < seconds else after


@pytest.mark.parametrize(("before", "after"), [(0.2, 41.0), (41.0, 0.0), (0.0, 3.0), (20.0, 35.0)])
@pytest.mark.parametrize("later", [0, 90])
def test_a_caller_that_rose_or_fell_is_shown_with_its_rates(before: float, after: float, later: int) -> None:
    (found,) = moved(AT, measured(calls(step_at(later, before, after))))
    assert (found.who, found.line.title) == ("checkout", "PATCH secrets")
    assert found.before == pytest.approx(before, abs=0.6)
    assert found.after == pytest.approx(after, abs=1.2)
    assert abs((found.at - AT).total_seconds() - later) <= SLOT_SECONDS
    assert not found.harm


@pytest.mark.parametrize(
    "rate",
    [
        step_at(-60, 1, 30),  # before the change
        lambda away: 10.0,  # never
        step_at(0, 10, 10.3),  # too little to see
    ],
)
def test_what_moved_before_or_hardly_is_not_shown(rate: Callable[[float], float]) -> None:
    assert moved(AT, measured(calls(rate))) == ()


def test_a_record_that_begins_after_the_change_says_nothing_of_before() -> None:
    whole = measured(calls(step_at(90, 0.2, 41)))
    late = int(AT.timestamp())
    cut = replace(whole, slots=(late, END), calls=whole.calls.during(late))
    assert moved(AT, whole)
    assert moved(AT, cut) == ()


def test_calls_that_begin_to_fail_are_shown_as_failing_and_not_as_calls() -> None:
    worked = calls(step_at(0, 10, 0))
    failing = calls(step_at(0, 0, 10), code=403, seed=2)
    (found,) = moved(AT, measured(worked, failing))
    assert found.line.title == "PATCH secrets answered 403"
    assert found.harm
    (mended,) = moved(AT, measured(calls(step_at(0, 0, 10)), calls(step_at(0, 10, 0), code=403, seed=2)))
    assert not mended.harm


def test_watches_do_not_count() -> None:
    assert moved(AT, measured(calls(step_at(0, 0, 30), verb="watch"))) == ()


def test_the_control_plane_is_shown_where_it_turned() -> None:
    depth = gauge("workqueue_depth", step_at(30, 2, 80))
    flat = gauge("go_goroutines", lambda away: 900 + away % 7)
    (found,) = moved(AT, measured(series=(depth, flat)))
    assert (found.who, found.line.title) == ("", "Queue depth")
    assert (found.before, found.after) == pytest.approx((2, 80))
    assert found.harm
    assert abs((found.at - AT).total_seconds() - 30) <= 15
    (fell,) = moved(AT, measured(series=(gauge("workqueue_depth", step_at(30, 80, 2)),)))
    assert (fell.before > fell.after, fell.harm) == (True, False)


def test_at_most_four_lines_and_the_callers_come_first() -> None:
    loud = [calls(step_at(0, 0, 10 + n), resource=f"r{n}", seed=n) for n in range(5)]
    series = tuple(
        gauge(name, step_at(30, 2, 9e8))
        for name in ("workqueue_depth", "process_resident_memory_bytes", "apiserver_current_inflight_requests")
    )
    found = moved(AT, measured(*loud, series=series))
    assert [one.who for one in found] == ["checkout", "checkout", "", ""]
    assert [one.line.title for one in found[:2]] == ["PATCH r4", "PATCH r3"]
    assert len(moved(AT, measured(*loud))) == MOST


def test_nothing_measured_is_nothing_moved() -> None:
    assert moved(AT, Measured(None, NO_CALLS, ())) == ()
    assert moved(AT, Measured((START, START), NO_CALLS, ())) == ()


def state(spec: Object) -> ObjectState:
    resource = world.CULPRIT.resource
    return ObjectState(resource, "u", "1", AT, {"spec": {"template": {"spec": spec, "metadata": {}}}})


def test_a_workloads_callers_are_its_account_and_who_changed_it() -> None:
    assert touched(world.CULPRIT, [state({"serviceAccountName": "checkout"})]).users == (world.ARGOCD, USER)
    assert touched(world.CULPRIT, []).users == (world.ARGOCD,)


@pytest.mark.parametrize(
    "actor",
    [
        Actor("argocd-controller", ActorSource.MANAGED_FIELDS),
        Actor("system:serviceaccount:kube-system:deployment-controller", ActorSource.AUDIT),
        Actor(""),
    ],
)
def test_a_field_manager_is_no_caller_and_a_controller_calls_for_others(actor: Actor) -> None:
    assert touched(structs.replace(world.CULPRIT, actor=actor), []).users == ()


def test_a_bindings_callers_are_its_subjects() -> None:
    resource = structs.replace(
        world.CULPRIT.resource, api_group="rbac.authorization.k8s.io", kind="RoleBinding", name="readers"
    )
    subjects: Object = {"subjects": [{"kind": "ServiceAccount", "name": "checkout"}], "roleRef": {"kind": "Role"}}
    change = structs.replace(world.CULPRIT, resource=resource, diffs=())
    assert USER in touched(change, [ObjectState(resource, "u", "1", AT, subjects)]).users
