"""What slow calls waited for, as the API server says, and who made it slow."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from app.core.changes import audit
from app.core.changes.annotations import RawAnnotations, seconds, waited_for
from app.core.counted import Calls
from app.core.model import CallCount, Json
from app.core.signals.calls import axis
from app.core.signals.signal import Signal
from app.core.signals.waits import PARTS, wait_signals
from tests.core.changes.test_audit import REDACTOR, event
from tests.core.company import background, first, ranked
from tests.core.factories import a_change, a_resource, a_state, after, an_alert, an_incident, calls


@pytest.mark.parametrize(
    ("duration", "expected"),
    [("812.5ms", 0.8125), ("1m2.5s", 62.5), ("1h0m1s", 3601.0), ("15µs", 15e-6), ("2us", 2e-6), ("", 0.0), ("x", 0.0)],
)
def test_durations_are_read_as_go_writes_them(duration: str, expected: float) -> None:
    assert seconds(duration) == pytest.approx(expected)


def test_a_slow_call_waited_for_what_took_half_of_it() -> None:
    assert waited_for(RawAnnotations(total="2s", validating="1.2s", etcd="300ms")) == "validating-webhook"
    assert waited_for(RawAnnotations(total="2s", validating="0.9s", etcd="800ms")) == ""
    assert waited_for(RawAnnotations(total="2s")) == ""
    assert waited_for(RawAnnotations(etcd="2s")) == ""


def test_an_audit_event_tells_it() -> None:
    took = {"apiserver.latency.k8s.io/total": "1.5s", "apiserver.latency.k8s.io/apf-queue-wait": "1.4s"}
    assert audit.call_key(event(annotations=took), REDACTOR).waited_for == "apf-queue-wait"
    other = {"authorization.k8s.io/decision": "allow"}
    assert audit.call_key(event(annotations=other), REDACTOR).waited_for == ""
    assert audit.call_key(event(), REDACTOR).waited_for == ""


def slow(part: str, verb: str, resource: str, *, start: float, rate: float = 4) -> list[CallCount]:
    counts = calls("deployer", verb, resource, rate=rate, start=start)
    return [replace(count, key=replace(count.key, waited_for=part)) for count in counts]


def waits(counts: list[CallCount]) -> list[Signal]:
    together = Calls.of(counts)
    slots = axis(together, until=after(60).timestamp())
    assert slots is not None
    return wait_signals(together, slots)


@pytest.mark.parametrize("part", PARTS)
def test_calls_that_begin_to_wait_are_one_signal(part: str) -> None:
    counts = [*background(), *slow(part, "create", "pods", start=-30), *slow(part, "patch", "nodes", start=-30)]
    (signal,) = waits(counts)
    assert signal.sentence.startswith("7")  # 2 * 4/s * 90 s
    assert signal.sentence.endswith(f"most of it waiting for {PARTS[part]}, never before")
    assert abs((signal.low - after(-30)).total_seconds()) <= 5


def test_a_sort_of_calls_that_only_the_last_unfinished_slot_has_is_left_out() -> None:
    before = [*background(), *slow("etcd", "create", "pods", start=-30)]
    (signal,) = waits(
        [*before, *(replace(one, slot=one.slot + 5) for one in slow("etcd", "update", "leases", start=55))]
    )
    (alone,) = waits(before)
    assert signal.strength == alone.strength


def test_calls_that_always_waited_are_none() -> None:
    assert waits([*background(), *slow("etcd", "create", "pods", start=-120)]) == []


def a_webhook(kind: str, name: str, *resources: str) -> dict[str, Json]:
    rule: Json = {"apiGroups": ["*"], "resources": list(resources), "operations": ["CREATE", "UPDATE"]}
    return {"webhooks": [{"name": f"{name}.example", "rules": [rule]}]}


@pytest.mark.parametrize("kind", ["ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"])
def test_of_webhooks_that_changed_the_one_that_is_asked_about_what_waits_is_to_blame(kind: str) -> None:
    wide, narrow = a_resource(kind, "policy", None), a_resource(kind, "certificates", None)
    part = "validating-webhook" if kind.startswith("V") else "mutating-webhook"
    path = ("webhooks", (("name", "policy.example"),), "timeoutSeconds")
    ranking = ranked(
        a_change(wide, at=after(-36), path=path, old=1, new=30),
        a_change(narrow, at=after(-33), path=path, old=10, new=30),
        incident=an_incident(an_alert(after(40), name="KubeAPILatencyHigh", job="apiserver")),
        load=[*background(), *slow(part, "create", "pods", start=-30), *slow(part, "patch", "deployments", start=-30)],
        states=[
            a_state(wide, a_webhook(kind, "policy", "*")),
            a_state(narrow, a_webhook(kind, "certificates", "certificates")),
        ],
    )
    assert first(ranking) == (kind, "policy")
    said = next(one.sentence for one in ranking.suspects[0].evidence if one.rule == "errors")
    assert said.startswith("It is asked about all 2 sorts of writes that wait: 720 calls took over half a second")
    assert ranking.suspects[0].probability > 0.5


def test_a_webhook_of_the_other_sort_does_not_explain_it() -> None:
    wide = a_resource("MutatingWebhookConfiguration", "policy", None)
    ranking = ranked(
        a_change(wide, at=after(-33), path=("webhooks", (("name", "p"),), "timeoutSeconds"), old=1, new=30),
        incident=an_incident(an_alert(after(40), name="KubeAPILatencyHigh", job="apiserver")),
        load=[*background(), *slow("validating-webhook", "create", "pods", start=-30)],
        states=[a_state(wide, a_webhook("", "policy", "*"))],
    )
    assert "errors" not in {one.rule for one in ranking.suspects[0].evidence}
