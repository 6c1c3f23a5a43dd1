"""Who talks to the API server, now against before."""

from __future__ import annotations

from typing import Any

import pytest

from app.core.counted import NO_CALLS, Calls
from app.core.model import CallCount, CallKey, ListClass
from app.core.screen.talkers import NOTHING, WEIGHTS, Side, talkers
from app.core.screen.told_apart import BY


def calls(user: str, slot: int, count: int, *, latency_us: int = 0, **more: Any) -> CallCount:
    usual = {"pod": "pod", "user_agent": "agent", "verb": "list", "resource": "pods", "namespace": "ns", "code": 200}
    return CallCount(CallKey(user=user, api_group="", **{**usual, **more}), slot, count, latency_us)


def test_both_sides_have_counts_failures_and_summed_latency() -> None:
    counts = [
        calls("a", 95, 10, latency_us=999_000),
        calls("a", 100, 20, latency_us=40_000),
        calls("a", 105, 5, code=429, latency_us=10_000),
    ]
    (one,) = talkers(Calls.of(counts), boundary=100, seconds=10, most=5)
    assert one.of == {"user": "a", "verb": "list", "api_group": "", "resource": "pods"}
    assert one.before == Side(10, 0, 0.999)
    assert (one.now.calls, one.now.failed, one.seconds) == (25, 5, 10)
    assert one.now.latency_seconds == pytest.approx(0.05)


def test_those_that_rose_come_first_then_the_loud() -> None:
    counts = [
        calls("steady", 90, 500),
        calls("steady", 100, 500),
        calls("fell", 90, 300),
        calls("rose", 90, 10),
        calls("rose", 100, 60),
        calls("quiet", 90, 5),
        calls("quiet", 100, 5),
    ]
    found = talkers(Calls.of(counts), boundary=100, seconds=10, most=10)
    assert [one.of["user"] for one in found] == ["rose", "steady", "quiet", "fell"]
    assert found[-1].now == NOTHING
    assert [one.of["user"] for one in talkers(Calls.of(counts), boundary=100, seconds=10, most=1)] == ["rose"]


def test_one_call_that_takes_a_minute_outweighs_many_short_ones_where_time_is_asked_for() -> None:
    counts = [calls("many", 100, 900, latency_us=9_000_000), calls("heavy", 100, 1, latency_us=58_000_000)]
    found = talkers(Calls.of(counts), boundary=100, seconds=10, most=2, weight=WEIGHTS["latency"])
    assert [one.of["user"] for one in found] == ["heavy", "many"]
    assert [one.of["user"] for one in talkers(Calls.of(counts), boundary=100, seconds=10, most=2)] == ["many", "heavy"]


@pytest.mark.parametrize(
    ("by", "told"),
    [
        ("pod", {"pod": "p2"}),
        ("user_agent", {"user_agent": "kubectl"}),
        ("verb", {"verb": "get"}),
        ("resource", {"resource": "nodes"}),
        ("namespace", {"namespace": "other"}),
        ("code", {"code": 500}),
        ("list_class", {"list_class": ListClass.QUORUM}),
        ("waited_for", {"waited_for": "etcd"}),
    ],
)
def test_calls_are_told_apart_by_what_is_asked_for_alone(by: str, told: dict[str, Any]) -> None:
    counts = [calls("a", 100, 3), calls("a", 100, 2, **told)]
    found = talkers(Calls.of(counts), boundary=100, seconds=10, most=9, by=[by])
    assert [one.now.calls for one in found] == [3, 2]
    assert found[1].of.items() >= told.items()
    assert set(found[1].of) == set(BY[by])
    (together,) = talkers(Calls.of(counts), boundary=100, seconds=10, most=9, by=["user"])
    assert (together.of, together.now.calls) == ({"user": "a"}, 5)


def test_no_calls_no_talkers() -> None:
    assert talkers(NO_CALLS, boundary=0, seconds=1, most=5) == []
