"""What is closed to, or decided for, whoever says nothing of it: the servers of names, and classes by default."""

from __future__ import annotations

import pytest

from app.core.edges.indexing import topology
from app.core.edges.reach import reach
from app.core.entities import READ
from app.core.model import Json, Object
from tests.core.factories import a_change, a_resource, a_state, a_workload


@pytest.mark.parametrize(
    ("name", "chosen", "types", "hops"),
    [
        ("coredns", "coredns", ["Ingress"], READ),
        ("kube-dns", "kube-dns", ["Ingress", "Egress"], READ),
        ("coredns", "coredns", ["Egress"], READ),
        ("coredns", "metrics-server", ["Ingress"], None),
        ("metrics-server", "metrics-server", ["Ingress"], None),
    ],
)
def test_a_policy_that_closes_the_servers_of_names_is_felt_by_who_asks_for_a_name(
    name: str, chosen: str, types: list[Json], hops: float | None
) -> None:
    policy = a_resource("NetworkPolicy", "closed", "kube-system")
    spec: Object = {"podSelector": {"matchLabels": {"app": chosen}}, "policyTypes": types}
    top = topology([a_workload(a_resource("Deployment", name, "kube-system")), a_state(policy, {"spec": spec})])
    assert reach(a_change(policy, path=("spec", "ingress")), top).get(("agent", "dns")) == hops


@pytest.mark.parametrize(
    ("kind", "state", "hops"),
    [
        ("PriorityClass", {"value": 1000, "globalDefault": True}, 0),
        ("PriorityClass", {"value": 1000, "globalDefault": False}, 1),
        ("PriorityClass", {"value": 1000}, 1),
        ("StorageClass", {"metadata": {"annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}}, 0),
        ("StorageClass", {"metadata": {"annotations": {"storageclass.kubernetes.io/is-default-class": "false"}}}, 1),
    ],
)
def test_a_class_that_is_everybodys_who_names_none_decides_where_pods_may_run(
    kind: str, state: Object, hops: float
) -> None:
    named = a_resource(kind, "batch", None)
    found = reach(a_change(named, path=("value",), old=1, new=2), topology([a_state(named, state)]))
    assert found["scheduling",] == hops
