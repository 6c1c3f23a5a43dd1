"""Workloads that fail together and call the same server outside."""

from __future__ import annotations

import pytest

from app.core.edges.indexing import topology
from app.core.findings import Ranking
from app.core.model import Json, ObjectState
from app.core.signals.complaints import symptom_signals
from app.core.signals.fellows import with_fellows
from tests.core.company import ranked
from tests.core.factories import a_change, a_resource, a_state, a_symptom, a_workload, after, an_alert, an_incident

DISPATCH, LABELS, MAILER = (a_resource("Deployment", name, "parcels") for name in ("dispatch", "labels", "mailer"))
PARTNER = "https://wms.carrier.example/api"


def told(*homes: str, server: str = PARTNER) -> list[ObjectState]:
    """Three workloads, of which those named are told where the partner's server is."""
    return [
        a_workload(
            home,
            containers=[{"name": "a", "env": [{"name": "PARTNER", "value": server}] if home.name in homes else []}],
        )
        for home in (DISPATCH, LABELS, MAILER)
    ]


def failing(*, apart: float = 1.0, message: str = "Readiness probe failed: HTTP 503") -> dict[str, set[str]]:
    """By who complains: the fellows, where dispatch and labels are told of one server and complain so far apart."""
    complaints = [
        a_symptom(DISPATCH, "Unhealthy", at=after(0), message=message, count=9),
        a_symptom(LABELS, "Unhealthy", at=after(apart), message=message, count=9),
    ]
    signals = symptom_signals(complaints, start=after(-60), end=after(200))
    found = with_fellows(signals, topology(told("dispatch", "labels")))
    return {home[-1]: {f[-1] for f in one.fellows} for one in found for home in one.about if home[0] == "workload"}


def test_who_is_told_of_the_same_server_and_fails_at_once_is_a_fellow() -> None:
    assert failing() == {"dispatch": {"labels"}, "labels": {"dispatch"}}
    assert failing(apart=120) == {"dispatch": set(), "labels": set()}


def test_nearly_all_are_told_where_traces_go() -> None:
    others = [
        a_workload(
            a_resource("Deployment", f"app-{n}", "shop"),
            containers=[{"name": "a", "env": [{"name": "PARTNER", "value": PARTNER}]}],
        )
        for n in range(3)
    ]
    complaints = [a_symptom(home, "Unhealthy", at=after(0), count=9) for home in (DISPATCH, LABELS)]
    signals = symptom_signals(complaints, start=after(-60), end=after(60))
    found = with_fellows(signals, topology([*told("dispatch", "labels"), *others]))
    assert not any(one.fellows for one in found)


def test_whoever_calls_it_is_no_fellow() -> None:
    service = a_state(a_resource("Service", "labels", "parcels"), {"spec": {"selector": {"app": "labels"}}})
    server = a_workload(
        LABELS, labels={"app": "labels"}, containers=[{"name": "a", "env": [{"name": "PARTNER", "value": PARTNER}]}]
    )
    env: Json = [{"name": "PARTNER", "value": PARTNER}, {"name": "LABELS", "value": "http://labels.parcels.svc:8080"}]
    caller = a_workload(DISPATCH, containers=[{"name": "a", "env": env}])
    complaints = [a_symptom(home, "Unhealthy", at=after(0), count=9) for home in (DISPATCH, LABELS)]
    signals = symptom_signals(complaints, start=after(-60), end=after(60))
    assert not any(one.fellows for one in with_fellows(signals, topology([service, server, caller])))


def after_a_release(*others: str) -> Ranking:
    """Dispatch is released and fails, as do those others that are told of the same server."""
    failed = [one for one in (DISPATCH, LABELS) if one.name in ("dispatch", *others)]
    return ranked(
        a_change(DISPATCH, at=after(-20), old="dispatch:1", new="dispatch:2"),
        incident=an_incident(an_alert(after(30), name="Unready", namespace="parcels", deployment="dispatch")),
        symptoms=[a_symptom(one, "Unhealthy", at=after(0), message="HTTP 503", count=9) for one in failed],
        states=told("dispatch", "labels"),
    )


def test_a_release_is_less_likely_where_a_fellow_fails_too() -> None:
    assert after_a_release("labels").none_of_these > 1.3 * after_a_release().none_of_these


@pytest.mark.parametrize(
    ("message", "fellows"),
    [
        ('connection to server at "10.0.90.14", port 5432 failed: Connection refused', True),
        ("dial tcp 10.0.90.14:5432: connect: connection refused", True),
        ("POST https://api.carrier.example/v1: 503 Service Unavailable", True),
        ("panic: nil map", False),
    ],
)
def test_who_names_the_same_server_is_a_fellow(message: str, fellows: bool) -> None:
    complaints = [a_symptom(home, "Error", at=after(0), message=message, count=9) for home in (DISPATCH, MAILER)]
    signals = symptom_signals(complaints, start=after(-60), end=after(60))
    found = with_fellows(signals, topology(told()))
    assert any(one.fellows for one in found) is fellows


def said(*texts: str, kinds: tuple[str, ...] = ("Deployment", "Deployment"), reason: str = "Error") -> list[set[str]]:
    """Whom two that complain at once have beside them, by what each says."""
    homes = [a_resource(kind, name, name) for kind, name in zip(kinds, ("desk", "hotels"), strict=True)]
    complaints = [a_symptom(home, reason, at=after(0), message=text) for home, text in zip(homes, texts, strict=True)]
    found = with_fellows(symptom_signals(complaints, start=after(-60), end=after(60)), topology([]))
    return [{fellow[-1] for fellow in one.fellows} for one in sorted(found, key=lambda s: str(s.about))]


@pytest.mark.parametrize(
    ("texts", "together"),
    [
        (
            (
                "translate: 402 the subscription of account 4711 is suspended, request 81",
                "translate: 402 the subscription of account 4711 is suspended, request 9b3c",
            ),
            True,
        ),
        (("operation error S3: GetObject, 503", "An error occurred (500) when calling the GetObject operation"), True),
        (("operation error S3: GetObject, 503", "Internal error (Service: Amazon S3; Status Code: 500)"), True),
        (("operation error S3: GetObject, 503", "operation error SQS: SendMessage, 503"), False),
        (("context deadline exceeded", "context deadline exceeded"), False),
    ],
)
def test_who_says_the_same_or_asks_the_same_of_a_cloud_is_a_fellow(texts: tuple[str, str], together: bool) -> None:
    assert said(*texts) == ([{"hotels"}, {"desk"}] if together else [set(), set()])


def test_who_is_no_workload_may_be_one() -> None:
    lines = ("unable to list https://git.host.example/a: 401", "cannot read https://git.host.example/b: 401")
    assert said(*lines, kinds=("GitRepository", "Deployment")) in ([{"hotels"}, {"desk"}], [{"desk"}, {"hotels"}])


def test_five_words_alike_are_enough_but_not_of_the_kubelet() -> None:
    sealed = (
        "login: Code: 503. Errors: * Vault is sealed",
        "could not read kv/tax, err: Code: 503. Errors: * Vault is sealed",
    )
    assert said(*sealed) == [{"hotels"}, {"desk"}]
    assert said("Vault is sealed", "Vault is sealed") == [set(), set()]
    no_room = ("0/9 nodes are available: 9 Insufficient cpu",) * 2
    assert said(*no_room, reason="FailedScheduling") == [set(), set()]


@pytest.mark.parametrize(("other", "together"), [("external", True), ("resource", False)])
def test_whoever_gets_nothing_of_another_api_is_no_fellow_by_the_words_of_autoscalers(
    other: str, *, together: bool
) -> None:
    says = "invalid metrics, first error is: failed to get it: unable to fetch metrics from {} metrics API"
    scalers = [a_resource("HorizontalPodAutoscaler", name, "parcels") for name in ("dispatch", "labels")]
    complaints = [
        a_symptom(one, "FailedComputeMetricsReplicas", at=after(0), message=says.format(api), count=9)
        for one, api in zip(scalers, ("external", other), strict=True)
    ]
    signals = symptom_signals(complaints, start=after(-60), end=after(60))
    found = with_fellows(signals, topology([]))
    assert all(bool(one.fellows) is together for one in found)
