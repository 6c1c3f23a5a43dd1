"""Callers whose single calls became dear: found by the API server's time, not by how often they call."""

from __future__ import annotations

from msgspec.structs import replace

from app.core.counted import Calls
from app.core.model import CallCount
from app.core.signals.calls import axis, loads
from app.core.signals.costs import cost_signals
from app.core.signals.signal import Signal
from tests.core.company import background
from tests.core.factories import after, calls

EXPORTER = "system:serviceaccount:monitoring:exporter"


def dear(counts: list[CallCount], times: float) -> list[CallCount]:
    return [replace(count, latency_us=round(count.latency_us * times)) for count in counts]


def exporter(times: float) -> list[CallCount]:
    """It lists as often as ever; from noon on each LIST takes so many times as long."""
    return calls(EXPORTER, "list", "pods", rate=4) if times == 1 else (
        calls(EXPORTER, "list", "pods", rate=4, end=0) + dear(calls(EXPORTER, "list", "pods", rate=4, start=0), times)
    )  # fmt: skip


def found(counts: list[CallCount]) -> list[Signal]:
    together = Calls.of(counts)
    slots = axis(together, until=after(60).timestamp())
    assert slots is not None
    return cost_signals(together, slots, loads(together, slots))


def test_who_lists_as_often_but_all_at_once_is_found_by_what_that_costs() -> None:
    (signal,) = found(background() + exporter(20))
    assert signal.users == (EXPORTER,)
    assert abs(signal.low - after(0)).total_seconds() <= 5
    assert "exporter's LIST pods went from 8 ms to 160 ms of the API server's time a second" in signal.sentence
    assert "each call 20 times as dear" in signal.sentence
    assert signal.active


def test_calls_that_cost_what_they_did_are_no_news() -> None:
    assert found(background() + exporter(1)) == []


def test_a_server_that_is_slow_for_all_is_nobodys_doing() -> None:
    slow = [count for count in background() if count.slot < after(0).timestamp()]
    slow += dear([count for count in background() if count.slot >= after(0).timestamp()], 20)
    assert found(slow + exporter(20)) == []


def test_the_work_of_kubernetes_own_controllers_is_left_out() -> None:
    user = "system:serviceaccount:kube-system:replicaset-controller"
    own = [replace(count, key=replace(count.key, user=user)) for count in exporter(20)]
    assert found(background() + own) == []


def test_who_never_called_before_is_not_dearer_than_before() -> None:
    assert found(background() + dear(calls(EXPORTER, "list", "pods", rate=4, start=0), 20)) == []


def test_a_store_that_is_slow_makes_all_writes_dear_and_no_read() -> None:
    def writing(user: str) -> list[CallCount]:
        early = calls(user, "patch", "configmaps", rate=4, end=0)
        return early + dear(calls(user, "patch", "configmaps", rate=4, start=0), 20)

    assert found(background() + writing(EXPORTER) + writing("system:serviceaccount:ops:other")) == []
    assert [signal.users for signal in found(background() + writing(EXPORTER))] == [(EXPORTER,)]
