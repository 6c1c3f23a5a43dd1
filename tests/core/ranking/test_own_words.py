"""What merely follows from what is said beside it: by the same workload, of an object by kind and name, by a webhook
that answers."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from app.core.edges.indexing import topology
from app.core.edges.served import FAILS, SLOW
from app.core.entities import Entity
from app.core.findings import Scope
from app.core.model import Object, Resource, Symptom
from app.core.objects.pod_states import EVICTED, PREEMPTED
from app.core.ranking.downstream import roots
from app.core.ranking.relevance import Near, weigh
from app.core.signals.blamed import with_blamed
from app.core.signals.complaints import symptom_signals
from app.core.signals.signal import Signal, SignalKind
from tests.core.factories import a_resource, a_state, a_symptom, a_workload, after
from tests.core.ranking.test_downstream import CLIENTS, STORE, behind, company

BASKET, SEARCH, _ = CLIENTS
REFUSED = "dial tcp ledger.pay:80: connection refused"
HOOK = "check.gate.example"
ASKED = f'failed calling webhook "{HOOK}": connection refused'
DENIED = f'admission webhook "{HOOK}" denied the request: no owner'


def serves(reason: str = FAILS, **about: float) -> Signal:
    home: dict[Entity, float] = {("workload", "web", "basket"): 1.0}
    home |= {("agent", sort): weight for sort, weight in about.items()}
    return Signal(SignalKind.SYMPTOM, after(0), after(2), 0.9, home, "503", facts={"reason": reason})


@pytest.mark.parametrize(
    ("who", "message", "at", "found"),
    [
        (BASKET, REFUSED, 1, True),
        (BASKET, "lookup api.bank.example: no such host", 1, True),
        (BASKET, "panic: nil map", 1, False),
        (SEARCH, REFUSED, 1, False),
        (BASKET, REFUSED, 20, False),
    ],
    ids=["blames a server", "gets no name", "its own end", "somebody else", "later"],
)
def test_who_fails_its_clients_suffers_from_whom_its_pods_say_not_to_reach(
    who: Resource, message: str, at: float, *, found: bool
) -> None:
    told = symptom_signals([a_symptom(who, "Error", at=after(at), message=message)], start=after(-300), end=after(60))
    signals = with_blamed([serves(), *told], company())
    assert dict(roots(signals, company())) == ({0: [1]} if found else {})


def test_who_is_slow_as_well_says_no_more_by_that() -> None:
    assert dict(roots([serves(), serves(SLOW, cni=0.5)], company())) == {}


@pytest.mark.parametrize("taken", [EVICTED, PREEMPTED])
@pytest.mark.parametrize(
    ("who", "reason", "at", "found"),
    [
        (STORE, "FailedCreate", 1, True),
        (STORE, "FailedScheduling", 1, False),
        (BASKET, "FailedCreate", 1, False),
        (STORE, "FailedCreate", 20, False),
    ],
)
def test_pods_that_are_taken_away_and_not_let_in_again_suffer_from_that(
    taken: str, who: Resource, reason: str, at: float, *, found: bool
) -> None:
    refused = a_symptom(who, reason, at=after(at), message="exceeded quota: compute")
    told = behind(a_symptom(STORE, taken, message="taken away"), refused)
    assert told.get(f"{taken} ledger") == ({f"{reason} ledger"} if found else None)


def test_what_refuses_them_gets_the_weight() -> None:
    told = [
        a_symptom(STORE, EVICTED, message="evicting", count=60),
        a_symptom(STORE, "FailedCreate", at=after(1), count=1),
    ]
    near = Near(upstream={}, words=frozenset(), newborn={}, said="", at=after(0))
    signals = symptom_signals(told, start=after(-300), end=after(60))
    weighed = {
        one.facts["reason"]: weight
        for one, weight in weigh(signals, Scope(workloads=("pay/ledger",)), near=near, top=company())
    }
    assert weighed["FailedCreate"] > 2 * weighed[EVICTED]


@pytest.mark.parametrize(
    ("messages", "found"),
    [
        ([ASKED], True),
        ([DENIED], False),
        ([ASKED, DENIED], True),
    ],
)
def test_a_webhook_that_answered_is_not_the_reason_that_it_refused(messages: list[str], found: bool) -> None:
    gate = a_resource("Deployment", "gate", "policy")
    hook: Object = {"name": HOOK, "clientConfig": {"service": {"namespace": "policy", "name": "gate"}}}
    states = [
        a_workload(gate),
        a_workload(BASKET),
        a_state(a_resource("Service", "gate", "policy"), {"spec": {"selector": {"app": "gate"}}}),
        a_state(a_resource("ValidatingWebhookConfiguration", "gate", None), {"webhooks": [hook]}),
    ]
    symptoms = [
        a_symptom(gate, "OOMKilled", at=after(-3), message="gate ended with exit code 137"),
        *(a_symptom(BASKET, "FailedCreate", at=after(3 * n), message=one) for n, one in enumerate(messages)),
    ]
    assert bool(behind(*symptoms, top=topology(states))) is found
    (crash,) = symptom_signals(symptoms[:1], start=after(-300), end=after(60))
    failing = Signal(SignalKind.ERROR, after(0), after(5), 0.9, {}, "500 on CREATE pods", text=" | ".join(messages))
    assert dict(roots([failing, crash], topology(states))) == ({0: [1]} if found else {})


def of_object(resource: Resource, at: float, message: str) -> Symptom:
    return replace(a_symptom(resource, "NotReady", at=after(at), message=message), workload=None)


def flux(kind: str, name: str, namespace: str = "flux-system") -> Resource:
    group = "kustomize" if kind == "Kustomization" else "source"
    return Resource("lab", f"{group}.toolkit.fluxcd.io", kind, namespace, name)


@pytest.mark.parametrize(
    ("source", "at", "found"),
    [
        (flux("GitRepository", "apps"), -20, True),
        (flux("GitRepository", "apps", "other"), -20, False),
        (flux("OCIRepository", "apps"), -20, False),
        (flux("GitRepository", "app"), -20, False),
        (flux("GitRepository", "apps"), 20, False),
    ],
    ids=["it", "of another namespace", "of another kind", "another name", "later"],
)
@pytest.mark.parametrize("name", ["apps", "web"])
def test_an_object_that_is_named_with_its_kind_is_behind_who_names_it(
    name: str, source: Resource, at: float, *, found: bool
) -> None:
    unread = of_object(source, at, "failed to check out")
    waits = of_object(flux("Kustomization", name), 0, "GitRepository/flux-system/apps is not ready")
    signals = symptom_signals([unread, waits], start=after(-300), end=after(60))
    (first,) = (n for n, one in enumerate(signals) if one.text == "failed to check out")
    assert dict(roots(signals, topology([]))) == ({1 - first: [first]} if found else {})


FEEDS = a_resource("Deployment", "feeds", "media")
FIGURES = a_resource("Deployment", "app-metrics", "monitoring")
SCALER = Resource("lab", "keda.sh", "ScaledObject", "media", "feeds-by-rate")
UNREAD = "Get http://app-metrics.monitoring.svc:9090/api/v1/query: connection refused"


@pytest.mark.parametrize(
    ("target", "told", "origin"),
    [
        ("feeds", UNREAD, "OOMKilled"),  # what scales it does not reach who is killed
        ("feeds", "unknown trigger type", "NotReady"),
        ("other", UNREAD, "RequestsFail"),
    ],
)
def test_who_fails_its_clients_suffers_from_what_scales_it_and_from_whom_that_does_not_reach(
    target: str, told: str, origin: str
) -> None:
    top = topology(
        [
            *map(a_workload, (FEEDS, FIGURES)),
            a_state(a_resource("Service", "app-metrics", "monitoring"), {"spec": {"selector": {"app": "app-metrics"}}}),
            a_state(SCALER, {"spec": {"scaleTargetRef": {"name": target}}}),
        ]
    )
    killed = a_symptom(FIGURES, "OOMKilled", at=after(-9), message="ended with exit code 137", count=3)
    complaints = symptom_signals([killed, of_object(SCALER, -5, told)], start=after(-300), end=after(60))
    feeds = ("workload", "media", "feeds")
    fails = Signal(SignalKind.SYMPTOM, after(0), after(2), 0.9, {feeds: 1.0}, "503", facts={"reason": FAILS})
    near = Near(upstream={}, words=frozenset(), newborn={}, said="", at=after(0))
    weighed = weigh([fails, *complaints], Scope(workloads=("media/feeds",)), near=near, top=top)
    assert max(weighed, key=lambda one: one[1])[0].facts["reason"] == origin


@pytest.mark.parametrize(
    ("target", "told", "origin"),
    [
        ("feeds", "unable to fetch metrics from external metrics API: the server could not find it", "NotMeasured"),
        ("feeds", "did not receive metrics for targeted pods (pods might be unready)", FAILS),
        ("other", "unable to fetch metrics from external metrics API: the server could not find it", FAILS),
    ],
)
def test_who_fails_its_clients_suffers_from_its_autoscaler_that_gets_no_figures(
    target: str, told: str, origin: str
) -> None:
    scaler = Resource("lab", "autoscaling", "HorizontalPodAutoscaler", "media", "feeds")
    top = topology(
        [
            a_workload(FEEDS),
            a_state(scaler, {"spec": {"scaleTargetRef": {"kind": "Deployment", "name": target}}}),
        ]
    )
    blind = a_symptom(scaler, "NotMeasured", at=after(-9), message=told, count=9)
    complaints = symptom_signals([blind], start=after(-300), end=after(60))
    feeds = ("workload", "media", "feeds")
    fails = Signal(SignalKind.SYMPTOM, after(0), after(2), 0.9, {feeds: 1.0}, "503", facts={"reason": FAILS})
    near = Near(upstream={}, words=frozenset(), newborn={}, said="", at=after(0))
    weighed = weigh([fails, *complaints], Scope(workloads=("media/feeds",)), near=near, top=top)
    assert max(weighed, key=lambda one: one[1])[0].facts["reason"] == origin
