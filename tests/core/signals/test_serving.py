"""What is counted of the requests that apps serve says which workload began to fail, or to be slow, and when."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from app.core.edges.indexing import topology
from app.core.edges.mechanism import UNLIKELY
from app.core.edges.reach import reach
from app.core.edges.served import FAILS, REFUSES, SLOW, Outcome, outcome, server
from app.core.edges.topology import Topology
from app.core.findings import Scope
from app.core.model import FieldDiff, MetricSeries, Object, Verb
from app.core.ranking import suspects
from app.core.ranking.candidates import candidates
from app.core.ranking.explain import explain
from app.core.signals.serving import answering, rises, serving_signals, serving_sparks
from app.core.signals.signal import Signal
from tests.core.company import ranked
from tests.core.factories import a_change, a_resource, a_state, a_workload, after, an_incident
from tests.core.signals.test_series import SIZE, START, STEP, a_series, told

ORDERS = a_resource("Deployment", "orders", "shop")
OLD, NEW = "orders-6f7c9d4b8-x7k2p", "orders-5d8f7b6c9-qw2rt"
PER_BIN = 50.0


def company() -> Topology:
    service = a_state(a_resource("Service", "orders", "shop"), {"spec": {"selector": {"app": "orders"}}})
    return topology([a_workload(ORDERS), service])


def counted(
    per_bin: float,
    *,
    since: int = 0,
    before: float = 0.0,
    name: str = "http_requests_total",
    **labels: str,
) -> MetricSeries:
    """A counter that rises by so much a bin from a bin on, and by ``before`` until then."""
    steps = [before if bin_ < since else per_bin for bin_ in range(SIZE)]
    labels = {"job": "shop/orders", "namespace": "shop", "pod": OLD, **labels}
    return a_series(name, labels, [sum(steps[: bin_ + 1]) for bin_ in range(SIZE)])


def found(*series: MetricSeries, top: Topology | None = None) -> list[Signal]:
    return serving_signals(rises(told(*series), top or company()))


def test_a_workload_whose_answers_begin_to_fail_says_so_from_then_on() -> None:
    (signal,) = found(counted(PER_BIN, code="200"), counted(20, since=40, code="503"))
    assert signal.sentence == "requests to orders fail (503): 29 % of them, 0 % before"
    assert signal.facts["reason"] == FAILS
    assert signal.about["workload", "shop", "orders"] == 1.0
    assert signal.low.timestamp() < START + 40 * STEP <= signal.high.timestamp()


def test_who_answers_is_known_of_what_counts_it_lately() -> None:
    orders = ("workload", "shop", "orders")
    assert answering(told(counted(PER_BIN, code="200")), company()) == {orders}
    assert answering(told(counted(0, before=PER_BIN, since=40, code="200")), company()) == set()
    assert answering(None, company()) == set()


@pytest.mark.parametrize(("failed", "seen"), [(20, True), (3, False)])
def test_what_began_in_the_last_bin_is_seen_where_it_is_plain(failed: float, seen: bool) -> None:
    signals = found(counted(PER_BIN, code="200"), counted(failed, since=SIZE - 1, code="503"))
    assert [one.facts["reason"] for one in signals] == ([FAILS] if seen else [])


@pytest.mark.parametrize(
    "series",
    [
        [counted(PER_BIN, code="200"), counted(1, code="500")],
        [counted(PER_BIN, code="200"), counted(20, code="500")],
        [counted(PER_BIN, code="200"), counted(PER_BIN, since=40, code="404")],
        [counted(0.4, code="200"), counted(0.4, since=40, code="500")],
        [counted(20, since=40, code="500", reporter="source", name="istio_requests_total")],
    ],
    ids=["background", "ever", "not-found", "few", "told-by-the-client"],
)
def test_what_fails_as_ever_or_is_no_failure_is_none(series: list[MetricSeries]) -> None:
    assert found(*series) == []


def test_the_pods_that_fail_are_told() -> None:
    (signal,) = found(
        counted(PER_BIN, code="200"),
        counted(PER_BIN, since=40, code="200", pod=NEW),
        counted(2, since=40, code="500"),
        counted(38, since=40, code="500", pod=NEW),
    )
    assert signal.by_pod == pytest.approx({("shop", NEW): 0.95, ("shop", OLD): 0.05})


def test_what_an_ingress_controller_counts_is_of_the_workload_behind_the_service() -> None:
    labels: dict[str, Any] = {
        "job": "ingress-nginx",
        "pod": "ingress-nginx-controller-7d5b9c8f6-abcde",
        "namespace": "ingress-nginx",
    }
    behind: dict[str, Any] = {"exported_namespace": "shop", "exported_service": "orders", "ingress": "orders"}
    name = "nginx_ingress_controller_requests"
    (signal,) = found(
        counted(PER_BIN, name=name, status="200", **labels, **behind),
        counted(PER_BIN, name=name, status="502", since=50, **labels, **behind),
    )
    assert ("workload", "shop", "orders") in signal.about
    assert signal.by_pod == {}, "its pod is the controller's"


def test_answers_that_take_longer_are_slow() -> None:
    def took(seconds: float, **labels: Any) -> MetricSeries:
        return counted(seconds * PER_BIN, since=40, before=0.02 * PER_BIN, name=f"{base}_sum", **labels)

    base = "http_request_duration_seconds"
    count = counted(PER_BIN, name=f"{base}_count")
    (signal,) = found(took(0.3), count)
    assert signal.facts["reason"] == SLOW
    assert signal.sentence == "orders is slow to answer: 300 ms, 20 ms before"
    assert found(took(0.03), count) == [], "not twice as long"
    assert found(took(0.06), count) == [], "a blink"


def test_what_is_refused_is_told_apart_from_what_fails() -> None:
    (signal,) = found(counted(PER_BIN, code="200"), counted(PER_BIN, since=40, code="401"))
    assert signal.facts["reason"] == REFUSES
    assert signal.sentence == "requests to orders are refused (401): 50 % of them, 0 % before"


def test_those_that_begin_together_know_of_each_other() -> None:
    other: dict[str, Any] = {"pod": "basket-6f7c9d4b8-x7k2p", "job": "shop/basket"}
    signals = found(
        counted(PER_BIN, code="200"),
        counted(20, since=40, code="503"),
        counted(PER_BIN, code="200", **other),
        counted(20, since=41, code="503", **other),
    )
    told_of = {next(iter(one.about))[2]: {home[2] for home in one.others} for one in signals}
    assert told_of == {"orders": {"basket"}, "basket": {"orders"}}


def test_lines_are_shown_of_what_the_alert_is_about_first() -> None:
    other: dict[str, Any] = {"pod": "basket-6f7c9d4b8-x7k2p", "job": "shop/basket"}
    lines = told(
        counted(PER_BIN, code="200", **other),
        counted(PER_BIN, since=41, code="503", **other),
        counted(PER_BIN, code="200"),
        counted(20, since=40, code="503"),
    )
    found = rises(lines, company())
    shown = serving_sparks(found, Scope(workloads=("shop/orders",)), lines.axis)
    assert [one.title for one in shown] == ["Failing: orders", "Failing: basket"]
    assert shown[0].bad_from == START + 40 * STEP
    assert shown[0].values[-1] == pytest.approx(100 * 20 / 70)
    assert [one.title for one in serving_sparks(found, Scope(), lines.axis, most=1)] == ["Failing: basket"]


def test_apps_count_also_where_nothing_is_measured_of_the_control_plane() -> None:
    late = after(-240).timestamp() - START
    series = [
        replace(one, times=tuple(time + late for time in one.times))
        for one in (counted(PER_BIN, code="200"), counted(20, since=40, code="503"))
    ]
    ranking = ranked(incident=an_incident(), series=series, states=[a_workload(ORDERS)])
    assert [one.title for one in ranking.sparks] == ["Failing: orders"]
    assert any(one.sentence.startswith("requests to orders fail (503)") for one in ranking.findings)


def test_where_series_are_left_out_the_ranking_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suspects, "MOST_SERVED", 1)
    ranking = ranked(incident=an_incident(), series=[counted(PER_BIN, code="200")])
    assert "Requests of all apps: 1 series of them were read, of its namespaces first." in ranking.not_measured


@pytest.mark.parametrize(
    ("name", "labels", "who"),
    [
        ("http_requests_total", {"namespace": "shop", "pod": OLD}, ("workload", "shop", "orders")),
        ("http_requests_total", {"namespace": "shop", "service": "orders"}, ("service", "shop", "orders")),
        (
            "istio_requests_total",
            {"destination_workload": "orders", "destination_workload_namespace": "shop", "pod": "gateway-0"},
            ("workload", "shop", "orders"),
        ),
        ("response_total", {"namespace": "shop", "deployment": "orders", "pod": OLD}, ("workload", "shop", "orders")),
        ("http_requests_total", {"job": "orders"}, None),
    ],
)
def test_who_serves_is_named_in_several_ways(name: str, labels: dict[str, str], who: tuple[str, ...] | None) -> None:
    assert server(name, labels) == who


@pytest.mark.parametrize(
    ("name", "labels", "ended"),
    [
        ("http_requests_total", {"status": "5xx"}, Outcome.FAILED),
        ("http_server_request_duration_seconds_count", {"http_response_status_code": "429"}, Outcome.REFUSED),
        ("grpc_server_handled_total", {"grpc_code": "Unavailable"}, Outcome.FAILED),
        ("grpc_server_handled_total", {"grpc_code": "NotFound"}, Outcome.ANSWERED),
        ("rpc_server_duration_milliseconds_count", {"rpc_grpc_status_code": "14"}, Outcome.FAILED),
        ("http_requests_total", {}, Outcome.ANSWERED),
    ],
)
def test_codes_say_how_a_request_ended(name: str, labels: dict[str, str], ended: Outcome) -> None:
    assert outcome(name, labels)[0] is ended


@pytest.mark.parametrize(
    ("namespaces", "code", "network"),
    [
        (("shop", "pay", "web"), "504", 0.5),
        (("shop", "pay", "pay"), "504", 0.4),
        (("shop", "pay", "web"), "503", 0.5),
        (("shop", "pay", "pay"), "503", None),
        (("shop", "pay", "web"), "500", None),
    ],
)
def test_calls_that_get_no_answer_all_over_the_place_are_of_the_network(
    namespaces: tuple[str, ...], code: str, network: float | None
) -> None:
    apps = [a_resource("Deployment", f"app-{n}", namespace) for n, namespace in enumerate(namespaces)]
    series = [
        counted(rate, since=since, code=status, namespace=app.namespace or "", pod=f"{app.name}-6f7c9d4b8-x7k2p")
        for app in apps
        for rate, since, status in ((PER_BIN, 0, "200"), (20, 40, code))
    ]
    signals = found(*series, top=topology([a_workload(app) for app in apps]))
    assert len(signals) == 3
    assert all(one.about.get(("agent", "cni")) == network for one in signals)


@pytest.mark.parametrize(
    ("told_by_door", "told_by_app", "about"),
    [
        ("403", "200", (0.5, 0.9)),
        ("503", "200", (1.0, 0.4)),
        ("403", "403", (1.0, 0.0)),
        ("403", "", (1.0, 0.4)),
    ],
    ids=["refused", "not reached", "both", "the app counts nothing"],
)
def test_what_only_the_door_tells_may_be_its_own(
    told_by_door: str, told_by_app: str, about: tuple[float, float]
) -> None:
    door: dict[str, Any] = {"name": "nginx_ingress_controller_requests", "job": "ingress-nginx", "service": "orders"}
    (signal,) = found(
        *([counted(PER_BIN, code="200")] if told_by_app else []),
        counted(PER_BIN, status="200", **door),
        counted(20, since=40, status=told_by_door, **door),
        *([counted(20, since=40, code=told_by_app)] if told_by_app else []),
    )
    assert (signal.about["workload", "shop", "orders"], signal.about.get(("agent", "doors"), 0.0)) == about


def test_what_serves_ingresses_is_known_by_its_name() -> None:
    controller = a_change(a_resource("Deployment", "ingress-nginx-controller", "ingress-nginx"), at=after(0))
    assert ("agent", "doors") in reach(controller, company())
    assert ("agent", "doors") not in reach(a_change(ORDERS, at=after(0)), company())


@pytest.mark.parametrize(("seconds", "suspected"), [(5, True), (60, False)])
def test_an_ingress_by_which_requests_were_answered_well_is_not_to_blame(seconds: float, suspected: bool) -> None:
    bad = datetime.fromtimestamp(START + 40 * STEP, UTC)
    state: Object = {"spec": {"defaultBackend": {"service": {"name": "orders"}}}}
    door = a_change(a_resource("Ingress", "orders", "shop"), at=bad - timedelta(seconds=seconds), path=())
    made = replace(door, verb=Verb.CREATE, diffs=(FieldDiff((), "add", None, state),))
    (signal,) = found(counted(PER_BIN, code="200"), counted(20, since=40, code="503"))
    (candidate,) = candidates([made], (), (), topology=company(), until=bad + timedelta(minutes=5))
    match = explain(candidate, signal, churn_share=0.0)
    assert match is not None
    assert (match.possible > UNLIKELY) is suspected


@pytest.mark.parametrize(("failed", "seen"), [(20, True), (1.5, False)])
def test_what_failed_for_a_while_and_is_over_is_remembered(failed: float, seen: bool) -> None:
    steps = [failed if 40 <= bin_ < 43 else 0.0 for bin_ in range(SIZE)]
    labels = {"job": "shop/orders", "namespace": "shop", "pod": OLD, "code": "502"}
    over = a_series("http_requests_total", labels, [sum(steps[: bin_ + 1]) for bin_ in range(SIZE)])
    signals = found(counted(20, code="200"), over)
    assert [one.sentence for one in signals] == (
        ["requests to orders fail (502): 50 % of them, 0 % before"] if seen else []
    )
    assert all(one.low.timestamp() < START + 40 * STEP <= one.high.timestamp() for one in signals)
