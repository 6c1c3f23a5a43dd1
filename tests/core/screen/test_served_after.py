"""What moved of the requests of the workloads that a change acts on: of those alone, at the right moment, in words."""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate
from typing import Any

import pytest

from app.core.counted import NO_CALLS
from app.core.edges.touched import Touched, touched
from app.core.metrics.turning import Moved
from app.core.model import Change, Json, MetricSeries, Object, ObjectState, Resource
from app.core.screen import served_after
from app.core.screen.aftermath import Measured, moved
from tests.core.factories import NOON, a_change, a_resource, a_state, a_workload, after

STEP = 15.0
START = after(-600).timestamp()
SIZE = 80
ORDERS, BASKET = a_resource("Deployment", "orders"), a_resource("Deployment", "basket")
SERVICE = a_state(a_resource("Service", "orders"), {"spec": {"selector": {"app": "orders"}}})
POD = "orders-6f7c9d4b8-x7k2p"
Rate = Callable[[float], float]


def counted(rate: Rate | float, *, name: str = "http_requests_total", until: int = SIZE, **labels: str) -> MetricSeries:
    """A counter that rises by so much a second; ``rate`` is asked for the seconds after the change."""
    each = rate if callable(rate) else lambda _: rate
    rises = [STEP * each(STEP * slot - 600) for slot in range(1, until)]
    told = {"namespace": "shop", "job": "shop/pods", "pod": POD, **labels}
    told.setdefault("instance", told["pod"])
    times = tuple(START + STEP * slot for slot in range(until))
    return MetricSeries(name, tuple(sorted(told.items())), "counter", times, tuple(accumulate(rises, initial=0.0)))


def turned(before: float, later: float, *, at: float = 0.0) -> Rate:
    return lambda away: before if away <= at else later


def who(change: Change | None = None, *around: ObjectState) -> Touched:
    return touched(change or a_change(ORDERS), around or (a_workload(ORDERS), SERVICE))


def found(*series: MetricSeries, of: Touched | None = None) -> list[tuple[str, str, bool]]:
    return [told(one) for one in served_after.moved(NOON, series, of or who())]


def told(one: Moved) -> tuple[str, str, bool]:
    return f"{one.who}: {one.line.title}", f"{one.before:.3g} → {one.after:.3g} {one.line.unit}", one.harm


@pytest.mark.parametrize(
    ("code", "share", "expected"),
    [
        ("503", turned(0, 5), ("Requests failed", "0 → 50 %", True)),
        ("503", turned(5, 0), ("Requests failed", "50 → 0 %", False)),
        ("401", turned(0, 5), ("Requests refused", "0 → 50 %", True)),
    ],
)
def test_a_share_that_rose_or_fell_is_shown(code: str, share: Rate, expected: tuple[str, str, bool]) -> None:
    title, turn, harm = expected
    series = counted(lambda away: 10 - share(away), code="200"), counted(share, code=code)
    assert found(*series) == [(f"orders: {title}", turn, harm)]
    (line,) = served_after.moved(NOON, series, who())
    assert abs((line.at - NOON).total_seconds()) <= STEP


@pytest.mark.parametrize(
    ("failed", "at"),
    [(5.0, -120), (0.1, 0), (0.0, 0)],
    ids=["before", "hardly", "never"],
)
def test_what_failed_before_or_hardly_fails_is_not_shown(failed: float, at: float) -> None:
    assert found(counted(10, code="200"), counted(turned(0, failed, at=at), code="500")) == []


@pytest.mark.parametrize(
    ("before", "later", "expected"),
    [
        (0.02, 0.4, [("orders: Mean time to answer", "0.02 → 0.4 s", True)]),
        (0.4, 0.02, [("orders: Mean time to answer", "0.4 → 0.02 s", False)]),
        (0.02, 0.03, []),
        (0.4, 0.6, []),
    ],
    ids=["slower", "faster", "a blink", "not twice"],
)
def test_answers_that_take_longer_or_less_are_shown(
    before: float, later: float, expected: list[tuple[str, str, bool]]
) -> None:
    took = counted(turned(10 * before, 10 * later), name="http_request_duration_seconds_sum")
    assert found(took, counted(10, name="http_request_duration_seconds_count")) == expected


@pytest.mark.parametrize(
    ("later", "expected"),
    [
        (0.0, [("orders: Requests answered", "20 → 0 /s", True)]),
        (8.0, [("orders: Requests answered", "20 → 8 /s", False)]),
        (60.0, [("orders: Requests answered", "20 → 60 /s", False)]),
        (15.0, []),
    ],
)
def test_traffic_that_comes_or_goes_is_shown(later: float, expected: list[tuple[str, str, bool]]) -> None:
    assert found(counted(turned(20, later), code="200")) == expected


OTHER = counted(5, pod="basket-6f7c9d4b8-x7k2p")


@pytest.mark.parametrize(
    ("series", "expected"),
    [
        ([counted(20, until=44), OTHER], [("orders: Requests answered", "20 → 0 /s", True)]),
        ([counted(20, until=44)], []),
        ([counted(20, until=77), OTHER], []),
        ([counted(20, until=44), counted(turned(0, 20), name="http_server_requests_seconds_count"), OTHER], []),
    ],
    ids=["gone", "nothing is told", "told of late", "counted under another name"],
)
def test_what_is_not_told_of_any_more_while_others_are_gets_no_requests(
    series: list[MetricSeries], expected: list[tuple[str, str, bool]]
) -> None:
    assert [one for one in found(*series) if one[1].endswith("→ 0 /s")] == expected


def reader() -> tuple[ObjectState, ...]:
    source: Json = {"envFrom": [{"configMapRef": {"name": "settings"}}, {"secretRef": {"name": "password"}}]}
    return a_workload(ORDERS, containers=[source]), SERVICE


def an_ingress() -> ObjectState:
    backend: Json = {"backend": {"service": {"name": "orders"}}}
    rules: Json = [{"host": "orders.example", "http": {"paths": [backend]}}]
    return a_state(Resource("lab", "networking.k8s.io", "Ingress", "shop", "front"), {"spec": {"rules": rules}})


def an_autoscaler() -> ObjectState:
    target: Object = {"scaleTargetRef": {"kind": "Deployment", "name": "orders", "apiVersion": "apps/v1"}}
    return a_state(Resource("lab", "autoscaling", "HorizontalPodAutoscaler", "shop", "any"), {"spec": target})


@pytest.mark.parametrize(
    ("resource", "acts"),
    [
        (ORDERS, True),
        (a_resource("ConfigMap", "settings"), True),
        (a_resource("Secret", "password"), True),
        (SERVICE.resource, True),
        (an_ingress().resource, True),
        (an_autoscaler().resource, True),
        (BASKET, False),
        (a_resource("ConfigMap", "else"), False),
        (a_resource("Deployment", "orders", "another"), False),
    ],
    ids=str,
)
def test_of_whatever_acts_on_a_workload_its_requests_are_shown(resource: Resource, acts: bool) -> None:
    of = who(a_change(resource), *reader(), a_workload(BASKET), an_ingress(), an_autoscaler())
    failing = counted(turned(10, 0), code="200"), counted(turned(0, 10), code="500")
    assert found(*failing, of=of) == ([("orders: Requests failed", "0 → 100 %", True)] if acts else [])
    assert ("shop" in of.namespaces) is (resource.namespace == "shop" and resource.name != "else")


def test_what_an_ingress_controller_counts_is_of_the_workload_behind_the_service() -> None:
    labels: dict[str, Any] = {
        "pod": "ingress-nginx-7d5b9c8f6-abcde",
        "namespace": "ingress-nginx",
        "exported_namespace": "shop",
    }
    name = "nginx_ingress_controller_requests"
    series = [
        counted(rate, name=name, status=status, exported_service="orders", **labels)
        for rate, status in ((turned(10, 0), "200"), (turned(0, 10), "502"))
    ]
    assert found(*series) == [("orders: Requests failed", "0 → 100 %", True)]


def test_of_what_is_counted_twice_the_clearest_is_shown_once() -> None:
    twice = counted(turned(20, 0)), counted(turned(5, 0), name="http_server_requests_seconds_count")
    assert found(*twice) == [("orders: Requests answered", "20 → 0 /s", True)]


def test_at_most_four_lines_of_two_workloads_the_nearest_first_and_what_does_harm() -> None:
    names = ["cart", "basket", "orders"]
    series = []
    for name in names:
        pod = f"{name}-6f7c9d4b8-x7k2p"
        series += [
            counted(turned(10, 10), code="200", pod=pod),
            counted(turned(0, 20), code="500", pod=pod),
            counted(turned(10, 0), code="403", pod=pod),
        ]
    hops = {"cart": 2.0, "basket": 1.0, "orders": 0.3}
    of = Touched(workloads={("workload", "shop", name): hops[name] for name in names})
    lines = [line for line, *_ in found(*series, of=of)]
    assert lines == [
        "orders: Requests failed",
        "basket: Requests failed",
        "orders: Requests refused",
        "basket: Requests refused",
    ]


def test_what_fails_is_shown_before_what_is_refused_or_slow() -> None:
    ended = [counted(rate, code=code) for code, rate in (("401", turned(0, 10)), ("503", turned(0, 10)), ("200", 10))]
    took = counted(turned(1, 20), name="http_request_duration_seconds_sum")
    lines = found(took, counted(10, name="http_request_duration_seconds_count"), *ended)
    assert [line for line, *_ in lines] == [f"orders: {title}" for title in served_after.TITLES]


def test_apps_come_first_and_do_not_change_what_is_shown_of_the_control_plane() -> None:
    times = tuple(START + 5 * slot for slot in range(240))
    depth = MetricSeries("workqueue_depth", (), "gauge", times, tuple(2.0 if t < START + 640 else 80.0 for t in times))
    series = counted(turned(20, 0), code="200"), depth
    both = moved(NOON, Measured(None, NO_CALLS, series), who())
    assert [one.line.title for one in both] == ["Requests answered", "Queue depth"]
    assert both[1:] == moved(NOON, Measured(None, NO_CALLS, (depth,)))


@pytest.mark.parametrize(("seconds", "shown"), [(60, True), (0, False)])
def test_a_failure_that_is_over_again_is_shown_as_it_was(seconds: float, shown: bool) -> None:
    failed: Rate = lambda away: 5.0 if 0 < away <= seconds else 0.0  # noqa: E731
    series = counted(lambda away: 10 - failed(away), code="200"), counted(failed, code="502")
    assert found(*series) == ([("orders: Requests failed", "0 → 50 %", True)] if shown else [])
