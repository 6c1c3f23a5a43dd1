"""Meshes count who calls whom: their labels are edges, and an edge is worth what a name in configuration is."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from app.core.edges.indexing import topology
from app.core.edges.mesh_calls import called, edges
from app.core.edges.reach import reach
from app.core.findings import Ranking
from app.core.model import CallEdge, MetricSeries
from app.core.objects.dependencies import Named
from tests.core.company import first, ranked
from tests.core.factories import a_change, a_resource, a_symptom, after, an_alert, an_incident
from tests.core.objects.test_dependencies import a_server

CART, LEDGER = ("shop", "cart"), ("pay", "ledger")
ISTIO = {
    "reporter": "source",
    "source_workload": "cart",
    "source_workload_namespace": "shop",
    "destination_workload": "ledger-v2",
    "destination_workload_namespace": "pay",
    "destination_service_name": "ledger",
    "destination_service_namespace": "pay",
    "response_code": "200",
}
ITSELF = {"destination_workload": "cart", "destination_workload_namespace": "shop"}
LINKERD = {
    "direction": "outbound",
    "namespace": "shop",
    "deployment": "cart",
    "dst_namespace": "pay",
    "dst_statefulset": "ledger",
    "dst_service": "ledger",
}
SERVED, RUN = (CART, "Service", LEDGER), (CART, "Workload", ("pay", "ledger-v2"))


@pytest.mark.parametrize(
    ("name", "labels", "found"),
    [
        ("istio_requests_total", ISTIO, [SERVED, RUN]),
        ("istio_tcp_connections_opened_total", ISTIO, [SERVED, RUN]),
        ("istio_requests_total", ISTIO | {"reporter": "waypoint"}, [SERVED, RUN]),
        ("istio_requests_total", ISTIO | {"reporter": "destination"}, []),
        ("istio_requests_total", ISTIO | {"source_workload": "unknown"}, []),
        ("istio_requests_total", ISTIO | {"destination_workload": "unknown"}, [SERVED]),
        ("istio_requests_total", ISTIO | {"destination_service_name": "PassthroughCluster"}, [RUN]),
        ("istio_requests_total", ISTIO | {"destination_service_name": "api.bank.example"}, [RUN]),
        ("istio_requests_total", ISTIO | {"destination_service_name": ""}, [RUN]),
        ("istio_requests_total", ISTIO | ITSELF, [SERVED]),
        ("request_total", LINKERD, [SERVED, (CART, "Workload", LEDGER)]),
        ("request_total", LINKERD | {"direction": "inbound"}, []),
        ("request_total", {"direction": "outbound", "namespace": "shop", "pod": "cart-1", "dst_namespace": "pay"}, []),
        ("request_total", {"method": "GET", "code": "200"}, []),
    ],
)  # fmt: skip
def test_labels_say_who_calls_whom(name: str, labels: dict[str, str], found: list[tuple[Named, str, Named]]) -> None:
    assert list(called(name, labels)) == found


def counted(name: str, labels: dict[str, str], *points: tuple[float, float]) -> MetricSeries:
    times, values = zip(*points, strict=True)
    return MetricSeries(name, tuple(sorted(labels.items())), "counter", times, values)


def test_an_edge_was_seen_from_the_first_call_to_the_last_that_any_series_tells() -> None:
    gone = float("nan")
    found = edges(
        [
            counted("istio_requests_total", ISTIO, (100, 0), (130, 2), (160, 5), (190, gone)),
            counted("istio_requests_total", ISTIO | {"response_code": "503"}, (115, 1), (130, 1)),
            counted("http_requests_total", ISTIO, (10, 1)),
            counted("request_total", LINKERD, (500, 0)),
        ]
    )
    seen = datetime.fromtimestamp(115, UTC), datetime.fromtimestamp(160, UTC)
    assert found == [CallEdge(*key, *seen) for key in (SERVED, RUN)]


def an_edge(caller: Named, kind: str, callee: Named) -> CallEdge:
    return CallEdge(caller, kind, callee, after(-3600), after(-60))


@pytest.mark.parametrize("kind", ["Service", "Workload"])
def test_who_is_seen_to_call_is_a_client(kind: str) -> None:
    states = [*a_server("cart", "shop"), *a_server("ledger", "pay")]
    seen = [an_edge(CART, kind, LEDGER), an_edge(("shop", "gone"), kind, LEDGER)]
    assert topology(states, edges=seen).upstream == {CART: {LEDGER}}
    assert topology(states).upstream == {}


def test_the_client_of_a_service_is_reached_by_what_changes_there() -> None:
    states = [*a_server("cart", "shop"), *a_server("ledger", "pay")]
    change = a_change(a_resource("Service", "ledger", "pay"), path=("spec", "selector"))
    client = ("calls", *CART)
    assert client in reach(change, topology(states, edges=[an_edge(CART, "Service", LEDGER)]))
    assert client not in reach(change, topology(states))


@pytest.mark.parametrize("kind", ["Service", "Workload"])
def test_what_a_client_suffers_from_is_handed_to_what_it_is_seen_to_call(kind: str) -> None:
    """Nothing in the client's configuration says so."""
    crash = a_change(a_resource("Deployment", "ledger", "pay"), at=after(-20))
    own = a_change(a_resource("Deployment", "cart", "shop"), at=after(-12), old="c:1", new="c:2")

    def told(*seen: CallEdge) -> Ranking:
        return ranked(
            crash,
            own,
            incident=an_incident(an_alert(after(30), name="HighErrorRate", namespace="shop", service="cart")),
            symptoms=[
                a_symptom(crash.resource, "CrashLoopBackOff", at=after(-17), count=10),
                a_symptom(own.resource, "Unhealthy", at=after(-5), count=10),
            ],
            states=[*a_server("cart", "shop"), *a_server("ledger", "pay")],
            edges=seen,
        )

    assert first(told()) == ("Deployment", "cart")
    assert first(told(an_edge(CART, kind, LEDGER))) == ("Deployment", "ledger")
