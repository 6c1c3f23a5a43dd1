"""Probes that fail before a pod is ready are no harm, once it is."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from app.core.changes.symptoms import Symptoms
from app.core.model import Object, Symptom
from app.core.objects.starting import PASSED, SOON
from app.core.signals.complaints import symptom_signals
from tests.core.changes.test_symptoms import POD, body, condition, event, reasons, symptoms
from tests.core.factories import a_symptom, after

REFUSED = "Readiness probe failed: connect: connection refused"


def is_ready(seconds: float, *, so: bool = True) -> Object:
    return {"phase": "Running", "conditions": [condition("Ready", "True" if so else "False", after(seconds))]}


def seen(found: Symptoms, seconds: float, *, so: bool = True, told: float | None = None) -> tuple[Symptom, ...]:
    when = after(seconds if told is None else told)
    return found.pod(POD, body(is_ready(seconds, so=so)), at=when)


def fails(found: Symptoms, seconds: float, *, message: str = REFUSED, count: int = 1) -> Symptom:
    raw = event(reason="Unhealthy", message=message, at=after(seconds), count=count, uid=message)
    (told,) = found.event("lab", raw, at=after(seconds))
    return told


def test_what_a_probe_said_of_a_pod_that_was_not_ready_yet_was_no_harm() -> None:
    found = symptoms()
    seen(found, 0, so=False)
    assert [fails(found, second, count=count).severity for second, count in ((2, 1), (12, 2))] == ["warning"] * 2
    (passed,) = seen(found, 14)
    assert (passed.severity, passed.at, passed.ended_at, passed.count) == (PASSED, after(2), after(12), 2)
    assert fails(found, 40, count=3).severity == "warning"  # it was ready, and is not any more


def test_it_is_told_so_too_where_the_pod_is_heard_of_first() -> None:
    found = symptoms()
    seen(found, 14, told=15)
    assert fails(found, 12).severity == PASSED
    assert fails(found, 15, message=f"{REFUSED} now").severity == "warning"


@pytest.mark.parametrize("message", ["Liveness probe failed: HTTP probe failed with statuscode: 500", "failed"])
def test_another_failure_stays_one(message: str) -> None:
    found = symptoms()
    seen(found, 0, so=False)
    fails(found, 2, message=message)
    assert seen(found, 14) == ()


def test_a_pod_that_goes_before_it_is_ready_has_failed() -> None:
    found = symptoms()
    seen(found, 0, so=False)
    fails(found, 2)
    found.forget(POD, after(9))
    assert seen(found, 14) == ()


def test_who_took_long_to_be_ready_was_missed() -> None:
    found = symptoms()
    seen(found, 0, so=False)
    fails(found, 2)
    assert reasons(seen(found, 3 + SOON.total_seconds())) == []


def test_of_a_pod_that_has_long_been_ready_nothing_is_kept() -> None:
    found = symptoms()
    seen(found, -3600, told=0)
    assert fails(found, -3601).severity == "warning"


def test_what_was_no_harm_is_no_signal() -> None:
    harm = a_symptom(POD, "Unhealthy", message=REFUSED)
    assert len(symptom_signals([harm], start=after(-60), end=after(60))) == 1
    assert symptom_signals([replace(harm, severity=PASSED)], start=after(-60), end=after(60)) == []
