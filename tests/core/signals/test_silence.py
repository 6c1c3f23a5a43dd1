"""A program that called all the time and stopped is missed; one that pauses, or a record that ends, is not."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from app.core.counted import Calls
from app.core.model import CallCount
from app.core.signals.calls import axis
from app.core.signals.silence import silence_signals
from tests.core.company import background, first, ranked
from tests.core.factories import a_change, a_resource, a_workload, after, an_alert, an_incident, calls

ISSUER = "system:serviceaccount:cert-manager:cert-manager"


def fell_silent(*load: list[CallCount]) -> list[str]:
    together = Calls.of(count for one in load for count in one)
    slots = axis(together, until=after(60).timestamp())
    assert slots
    return [signal.users[0] for signal in silence_signals(together, slots)]


@pytest.mark.parametrize(
    ("steady", "missed"),
    [
        (calls(ISSUER, "get", "certificates", rate=2, end=-10), True),
        (calls(ISSUER, "get", "certificates", rate=2), False),
        (calls(ISSUER, "get", "certificates", rate=2, end=50), False),  # too short to say
        (calls("bob", "get", "certificates", rate=2, end=-10), False),  # a person may leave
        (calls(ISSUER, "get", "certificates", rate=2, start=-20, end=-10), False),  # never was steady
        (
            calls(ISSUER, "list", "pods", rate=2, end=-80) + calls(ISSUER, "list", "pods", rate=2, start=-30, end=-10),
            False,  # it paused as long before
        ),
    ],
)
def test_who_is_missed(steady: list[CallCount], missed: bool) -> None:
    assert fell_silent(background(), steady) == ([ISSUER] if missed else [])


def test_where_the_record_ends_nobody_is_missed() -> None:
    early = calls(ISSUER, "get", "certificates", rate=2, end=-10)
    others = calls("system:node:a", "get", "pods", rate=4, end=-10)
    assert fell_silent(early, others) == []


def test_who_was_counted_without_a_call_was_not_heard() -> None:
    counted = [replace(count, count=0) for count in calls(ISSUER, "get", "certificates", rate=2)]
    assert fell_silent(background(), counted) == []
    assert fell_silent(background(), calls(ISSUER, "list", "pods", rate=2, end=-10), counted) == [ISSUER]


def test_an_operator_that_was_scaled_to_zero() -> None:
    operator = a_resource("Deployment", "cert-manager", "cert-manager")
    ranking = ranked(
        a_change(operator, at=after(-12), path=("spec", "replicas"), old=2, new=0),
        incident=an_incident(an_alert(after(30), name="CertificateNotReady", namespace="content")),
        load=background() + calls(ISSUER, "get", "certificates", rate=2, end=-5),
        states=[a_workload(operator, serviceAccountName="cert-manager")],
    )
    assert first(ranking) == ("Deployment", "cert-manager")
    assert any("fell silent" in evidence.sentence for evidence in ranking.suspects[0].evidence)


def test_who_calls_now_and_then_may_have_stopped_until_it_was_due() -> None:
    together = Calls.of([*background(), *calls(ISSUER, "update", "leases", rate=2, end=-10)])
    slots = axis(together, until=after(60).timestamp())
    assert slots
    [steady] = silence_signals(together, slots)
    rare = [count for n, count in enumerate(calls(ISSUER, "update", "leases", rate=4, end=-10)) if n % 2 == 0]
    [seldom] = silence_signals(Calls.of([*background(), *rare]), slots)
    assert seldom.high - seldom.low > steady.high - steady.low
