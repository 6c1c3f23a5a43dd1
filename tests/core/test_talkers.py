"""Who talks to the API server, now against before."""

from __future__ import annotations

import pytest

from app.core.model import CallCount, CallKey
from app.core.talkers import talkers


def calls(user: str, slot: int, count: int, *, code: int = 200, latency_us: int = 0) -> CallCount:
    return CallCount(CallKey(user, "pod", "agent", "list", "", "pods", "ns", code), slot, count, latency_us)


def test_rates_of_both_sides_and_the_failed_ones() -> None:
    counts = [
        calls("a", 95, 10, latency_us=999),
        calls("a", 100, 20, latency_us=40_000),
        calls("a", 105, 5, code=429, latency_us=10_000),
    ]
    (one,) = talkers(counts, boundary=100, seconds=10, most=5)
    assert (one.user, one.verb, one.resource) == ("a", "list", "pods")
    assert (one.before_per_second, one.per_second, one.errors_per_second) == (1.0, 2.5, 0.5)
    assert one.mean_latency_ms == pytest.approx(2.0)


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
    found = talkers(counts, boundary=100, seconds=10, most=10)
    assert [one.user for one in found] == ["rose", "steady", "quiet", "fell"]
    assert found[-1].mean_latency_ms == 0.0
    assert [one.user for one in talkers(counts, boundary=100, seconds=10, most=1)] == ["rose"]


def test_no_calls_no_talkers() -> None:
    assert talkers([], boundary=0, seconds=1, most=5) == []
