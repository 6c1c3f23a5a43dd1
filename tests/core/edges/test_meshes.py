"""Policies of meshes and network plugins, and other custom resources, reach the pods that they choose."""

from __future__ import annotations

import pytest

from app.core.edges.indexing import topology
from app.core.edges.mechanism import is_inert
from app.core.edges.reach import reach
from app.core.model import Change, Json, Object, ObjectState, Resource, Verb
from tests.core.company import first, ranked
from tests.core.factories import a_change, a_resource, a_state, a_symptom, a_workload, after, an_alert, an_incident

API: Object = {"labelSelector": {"matchLabels": {"app": "api"}}}
CALLER = ("calls", "field", "orders")


def a_policy(kind: str, group: str = "security.istio.io", namespace: str | None = "meters") -> Resource:
    return Resource("lab", group, kind, namespace, "default")


def company(policy: Resource, spec: Object) -> list[ObjectState]:
    variable: Json = {"name": "API_URL", "value": "http://api.meters.svc:8080"}
    service: Object = {"spec": {"selector": {"app": "api"}}}
    return [
        a_workload(a_resource("Deployment", "api", "meters")),
        a_workload(a_resource("Deployment", "batch", "meters")),
        a_workload(a_resource("Deployment", "orders", "field"), containers=[{"name": "c", "env": [variable]}]),
        a_state(a_resource("Service", "api", "meters"), service),
        a_state(policy, {"spec": spec}),
    ]


@pytest.mark.parametrize(
    ("kind", "group", "spec", "reached", "callers"),
    [
        ("PeerAuthentication", "security.istio.io", {"mtls": {"mode": "STRICT"}}, {"api", "batch"}, True),
        ("AuthorizationPolicy", "security.istio.io", {"selector": {"matchLabels": {"app": "batch"}}}, {"batch"}, False),
        ("Sidecar", "networking.istio.io", {"workloadSelector": {"labels": {"app": "api"}}}, {"api"}, True),
        ("CiliumNetworkPolicy", "cilium.io", {"endpointSelector": {"matchLabels": {"app": "api"}}}, {"api"}, True),
        ("DestinationRule", "networking.istio.io", {"host": "api.meters.svc.cluster.local"}, {"api"}, True),
        (
            "VirtualService",
            "networking.istio.io",
            {"http": [{"route": [{"destination": {"host": "api"}}]}]},
            {"api"},
            True,
        ),
        ("VirtualService", "networking.istio.io", {"hosts": ["api.partner.example"]}, set(), False),
        ("ServiceEntry", "networking.istio.io", {"hosts": ["api.partner.example"]}, set(), False),
        ("AuthorizationPolicy", "security.istio.io", {"targetRefs": [{"kind": "Service", "name": "x"}]}, set(), False),
        ("NetworkPolicy", "crd.projectcalico.org", {"selector": "app == 'batch'"}, {"batch"}, False),
        ("NetworkPolicy", "crd.projectcalico.org", {"selector": "all()"}, {"api", "batch"}, True),
        ("NetworkPolicy", "crd.projectcalico.org", {"selector": "has(app)"}, set(), False),
        ("CiliumEndpoint", "cilium.io", {}, set(), False),
        ("Schedule", "velero.io", {"ttl": "1h"}, set(), False),
        ("Schedule", "velero.io", {"a": [{"labelSelector": {"matchLabels": {"app": "batch"}}}]}, {"batch"}, False),
        ("Schedule", "velero.io", {"includedNamespaces": ["meters"], **API}, {"api"}, True),
        ("Schedule", "velero.io", {"includedNamespaces": ["*"], **API}, {"api"}, True),
        ("Schedule", "velero.io", {"includedNamespaces": ["field"], **API}, set(), False),
        ("Schedule", "velero.io", {"labelSelector": {"matchLabels": {}}}, set(), False),
        ("Schedule", "velero.io", {"labelSelector": None, "namespaces": 3}, set(), False),
    ],
)
def test_whom_a_policy_reaches(kind: str, group: str, spec: Object, reached: set[str], callers: bool) -> None:
    policy = a_policy(kind, group)
    found = reach(a_change(policy, path=("spec", "x")), topology(company(policy, spec)))
    assert {entity[2] for entity in found if entity[:2] == ("workload", "meters")} == reached
    assert (CALLER in found) is callers


ODD: tuple[Json, ...] = (
    ["a"],
    "abc",
    {"selector": {"matchLabels": "a"}},
    {"selector": {"matchLabels": {"app": ["api"]}}},
    {"selector": {"matchExpressions": ["a"]}},
    {"selector": {"matchExpressions": {"a": 1}}},
    {"selector": {"matchExpressions": [{"key": "app", "operator": "In", "values": 5}]}},
    {"selector": {"labels": None}},
    {"selector": 5},
    {"namespaceSelector": {"matchExpressions": ["a"]}},
    {"hosts": [1, 2.0, None]},
)


@pytest.mark.parametrize("spec", ODD, ids=str)
@pytest.mark.parametrize("kind", ["PeerAuthentication", "VirtualService"])
def test_odd_policies_are_taken_as_they_come(kind: str, spec: Object) -> None:
    policy = a_policy(kind, "networking.istio.io" if kind == "VirtualService" else "security.istio.io")
    assert reach(a_change(policy, path=("spec", "x")), topology(company(policy, spec)))


def test_labels_of_a_policy_do_nothing() -> None:
    assert is_inert(a_change(a_policy("PeerAuthentication"), path=("metadata", "labels", "rev")))
    assert not is_inert(a_change(a_policy("PeerAuthentication"), path=("spec", "mtls", "mode")))


def test_a_route_that_is_shifted_is_to_blame_where_the_pods_behind_it_do_not_stand_it() -> None:
    route = Resource("lab", "networking.istio.io", "VirtualService", "shop", "pricing")
    front, canary = a_resource("Deployment", "storefront"), a_resource("Deployment", "pricing-v2")
    weights: Object = {"http": [{"route": [{"destination": {"host": f"pricing-v{n}"}} for n in (1, 2)]}]}
    said = "Readiness probe failed: HTTP probe failed with statuscode: 503 (pricing-v2: no healthy upstream)"
    ranking = ranked(
        a_change(canary, at=after(-60), verb=Verb.CREATE),
        a_change(route, at=after(-22), path=("spec", "http"), old=[], new=[{"weight": 100}]),
        incident=an_incident(an_alert(after(40), name="KubePodNotReady", namespace="shop", deployment="storefront")),
        symptoms=[
            a_symptom(front, "Unhealthy", at=after(-20), message=said, count=9),
            a_symptom(canary, "Unhealthy", at=after(-20), message="context deadline exceeded", count=4),
        ],
        states=[
            *map(a_workload, (front, canary)),
            a_state(a_resource("Service", "pricing-v2"), {"spec": {"selector": {"app": "pricing-v2"}}}),
            a_state(route, {"spec": weights}),
        ],
    )
    assert first(ranking) == ("VirtualService", "pricing")
    assert ranking.suspects[0].probability > 0.5


@pytest.mark.parametrize(
    ("kind", "group", "namespace", "spec", "reached"),
    [
        ("GlobalNetworkPolicy", "projectcalico.org", None, {"selector": "all()"}, {"api", "batch", "orders"}),
        ("GlobalNetworkPolicy", "projectcalico.org", None, {"selector": "app == 'batch'"}, {"batch"}),
        (
            *("GlobalNetworkPolicy", "projectcalico.org", None),
            {"selector": "projectcalico.org/namespace == 'field'"},
            {"orders"},
        ),
        (
            *("CiliumClusterwideNetworkPolicy", "cilium.io", None),
            {"endpointSelector": {"matchLabels": {"k8s:io.kubernetes.pod.namespace": "meters"}}},
            {"api", "batch"},
        ),
        (
            *("AdminNetworkPolicy", "policy.networking.k8s.io", None),
            {"subject": {"pods": {}, "podSelector": {"matchLabels": {"app": "api"}}}},
            {"api"},
        ),
        ("EnvoyFilter", "networking.istio.io", "istio-system", {"configPatches": []}, {"api", "batch", "orders"}),
        ("EnvoyFilter", "networking.istio.io", "meters", {"configPatches": []}, {"api", "batch"}),
    ],
)
def test_what_holds_for_all_namespaces(
    kind: str, group: str, namespace: str | None, spec: Object, reached: set[str]
) -> None:
    policy = a_policy(kind, group, namespace)
    found = reach(a_change(policy, path=("spec", "x")), topology(company(policy, spec)))
    assert {entity[2] for entity in found if entity[0] == "workload"} == reached


@pytest.mark.parametrize(
    ("verb", "hosts", "felt"),
    [
        (Verb.CREATE, ["admin.meters.example"], False),
        (Verb.CREATE, ["api"], True),
        (Verb.UPDATE, ["admin.meters.example"], True),
    ],
)
def test_a_new_way_to_a_service_is_not_felt_by_who_calls_it_already(verb: Verb, hosts: list[Json], felt: bool) -> None:
    spec: Object = {"hosts": hosts, "http": [{"route": [{"destination": {"host": "api"}}]}]}
    route = a_policy("VirtualService", "networking.istio.io")
    found = reach(a_change(route, path=("spec", "x"), verb=verb), topology(company(route, spec)))
    assert any(entity[0] == "calls" for entity in found) is felt
    assert any(entity[0] == "workload" for entity in found)


@pytest.mark.parametrize(
    "change",
    [
        a_change(a_resource("ConfigMap", "istio", "istio-system"), at=after(-40), path=("data", "mesh")),
        a_change(a_policy("ServiceEntry", "networking.istio.io"), at=after(-40), path=("spec", "hosts")),
    ],
)
def test_who_may_call_nobody_that_the_mesh_does_not_know_leads_to_the_mesh(change: Change) -> None:
    batch = a_resource("Deployment", "batch", "meters")
    other = a_change(a_resource("ConfigMap", "tariffs", "meters"), at=after(-20), path=("data", "x"))
    ranking = ranked(
        change,
        other,
        incident=an_incident(an_alert(after(60), name="ErrorRate", namespace="meters", deployment="batch")),
        symptoms=[a_symptom(batch, "Error", at=after(0), message="BlackHoleCluster - 52.18.4.11:443", count=9)],
        states=[a_workload(batch)],
    )
    assert ranking.suspects[0].change.resource == change.resource
