"""Aggregated APIs: what stands behind an APIService's Service is what answers for its group."""

from __future__ import annotations

import pytest

from app.core.entities import Entity
from app.core.findings import Ranking
from app.core.model import CallCount, ObjectState, Verb
from app.core.signals.failed_calls import failed_calls
from tests.core.company import background, first, ranked
from tests.core.factories import (
    a_change,
    a_resource,
    a_state,
    a_symptom,
    a_workload,
    after,
    an_alert,
    an_incident,
    calls,
)

GROUP = "metrics.k8s.io"
SERVER = a_resource("Deployment", "metrics-server", "kube-system")
WEB = a_resource("Deployment", "checkout-web", "checkout")
HPA = a_resource("HorizontalPodAutoscaler", "checkout-web", "checkout")
ARGUMENTS = ("spec", "template", "spec", "containers", (("name", "metrics-server"),), "args")
UNABLE = (
    "failed to get cpu utilization: unable to get metrics for resource cpu: unable to fetch metrics from resource"
    " metrics API: the server is currently unable to handle the request (get pods.metrics.k8s.io)"
)


def known() -> list[ObjectState]:
    service = a_resource("Service", "metrics-server", "kube-system")
    api = a_resource("APIService", f"v1beta1.{GROUP}", None)
    return [
        a_workload(SERVER),
        a_workload(WEB),
        a_state(service, {"spec": {"selector": {"app": "metrics-server"}}}),
        a_state(api, {"spec": {"service": {"namespace": "kube-system", "name": "metrics-server"}}}),
        a_state(HPA, {"spec": {"scaleTargetRef": {"kind": "Deployment", "name": "checkout-web"}}}),
    ]


def fails() -> list[CallCount]:
    caller = "system:serviceaccount:kube-system:horizontal-pod-autoscaler"
    fine = calls(caller, "list", "pods", group=GROUP, rate=2, end=-15)
    broken = calls(caller, "list", "pods", group=GROUP, rate=2, start=-15, code=503, error="service unavailable")
    return [*background(), *fine, *broken]


def test_a_rollout_of_what_serves_an_api_is_to_blame_for_its_errors() -> None:
    beside = a_resource("Deployment", "node-problems", "kube-system")
    ranking = ranked(
        a_change(beside, at=after(-17), path=("spec", "template", "spec", "priorityClassName"), old=None, new="low"),
        a_change(SERVER, at=after(-18), path=ARGUMENTS, old=["--secure-port=4443"], new=["--secure-port=10250"]),
        incident=an_incident(an_alert(after(40), name="KubeAggregatedAPIErrors")),
        load=fails(),
        states=[*known(), a_workload(beside)],
    )
    assert first(ranking) == ("Deployment", "metrics-server")


def told(*, load: list[CallCount] | None = None) -> Ranking:
    """An autoscaler has no metrics, just after what it scales was rolled out."""
    policy = a_resource("NetworkPolicy", "only-prometheus", "kube-system")
    return ranked(
        a_change(policy, at=after(-26), verb=Verb.CREATE),
        a_change(WEB, at=after(-22), path=("spec", "template", "spec", "priorityClassName"), old=None, new="web"),
        incident=an_incident(an_alert(after(120), name="KubeHpaMaxedOut", namespace="checkout")),
        symptoms=[a_symptom(HPA, "FailedGetResourceMetric", at=after(-15), message=UNABLE, count=4)],
        load=load,
        states=[
            *known(),
            a_state(policy, {"spec": {"podSelector": {"matchLabels": {"app": "metrics-server"}}, "ingress": [{}]}}),
        ],
    )


@pytest.mark.parametrize("load", [None, fails()], ids=["events", "events and audit log"])
def test_what_cuts_off_an_api_is_to_blame_for_who_cannot_read_it(load: list[CallCount] | None) -> None:
    assert first(told(load=load)) == ("NetworkPolicy", "only-prometheus")


@pytest.mark.parametrize(
    ("message", "found"),
    [
        (UNABLE, {("api", GROUP, "pods", "*")}),
        (
            "the server could not find the requested resource (post backups.corp.example)",
            {("api", "corp.example", "backups", "create")},
        ),
        (
            (
                "unable to get metrics for resource cpu: unable to fetch metrics from resource metrics API:"
                " Get https://10.96.4.2:443/apis/metrics.k8s.io/v1beta1/pods: context deadline exceeded"
            ),
            {("api", GROUP, "pods", "*")},
        ),
        (
            "unable to get external metric shop/s0-jobs/nil: unable to fetch metrics from external metrics API: EOF",
            {("api", "external.metrics.k8s.io", "*", "*")},
        ),
        ("unable to get metrics for resource cpu: no metrics returned from resource metrics API", set()),
        ("the server is currently unable to handle the request (get pods)", set()),
        ("the server has asked for the client to provide credentials", set()),
    ],
)
def test_a_message_says_which_call_failed(message: str, found: set[Entity]) -> None:
    assert failed_calls(message) == found
