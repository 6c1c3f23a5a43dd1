"""What is only shown by another change: policies by their parameters, nodes that are emptied, pods that are added."""

from __future__ import annotations

import pytest

from app.core.edges.indexing import topology
from app.core.edges.mechanism import plausible, refuser
from app.core.edges.reach import reach
from app.core.model import Verb
from app.core.ranking.latent import acts_at, started
from tests.core.factories import a_change, a_resource, a_state, a_workload, after

POLICY = a_state(
    a_resource("ValidatingAdmissionPolicy", "registries", None), {"spec": {"paramKind": {"kind": "ConfigMap"}}}
)
BINDING = a_state(
    a_resource("ValidatingAdmissionPolicyBinding", "registries", None),
    {"spec": {"policyName": "registries", "paramRef": {"name": "prefixes", "namespace": "platform"}}},
)


@pytest.mark.parametrize(
    ("name", "namespace", "refuses"),
    [("prefixes", "platform", True), ("prefixes", "shop", False), ("x", "platform", False)],
)
def test_what_a_policy_goes_by_refuses_pods_everywhere(name: str, namespace: str, *, refuses: bool) -> None:
    top = topology([POLICY, BINDING, a_workload(a_resource())])
    change = a_change(a_resource("ConfigMap", name, namespace), path=("data", "allowed"), old="a/,b/", new="a/")
    assert (refuser("ValidatingAdmissionPolicy", "shop") in reach(change, top)) is refuses


@pytest.mark.parametrize(
    ("reason", "likely"), [("CrashLoopBackOff", False), ("OOMKilled", False), ("Unhealthy", True), ("Pending", True)]
)
def test_a_node_that_is_cordoned_only_shows_what_pods_start_with(reason: str, *, likely: bool) -> None:
    cordon = a_change(a_resource("Node", "a-1", None), path=("spec", "unschedulable"), old=None, new=True)
    assert (plausible(cordon, reason, refused="") == 1.0) is likely


@pytest.mark.parametrize(("selector", "joins"), [({"team": "shop"}, True), ({"app": "web"}, False)])
def test_a_new_workload_may_stand_behind_the_service_of_another(selector: dict[str, str], *, joins: bool) -> None:
    web, worker = a_resource(), a_resource("Deployment", "worker")
    service = a_state(a_resource("Service", "web"), {"spec": {"selector": dict(selector)}})
    top = topology([service, *(a_workload(one, labels={"app": one.name, "team": "shop"}) for one in (web, worker))])
    made = a_change(worker, path=(), old=None, new={"spec": {}}, verb=Verb.CREATE)
    assert (("joins",) in reach(made, top)) is joins


@pytest.mark.parametrize(("old", "new", "waited"), [(4, 6, True), (6, 4, False)])
def test_pods_that_are_added_start_with_what_is_new(old: int, new: int, *, waited: bool) -> None:
    web = a_resource()
    top = topology([a_workload(web, containers=[{"name": "web", "envFrom": [{"secretRef": {"name": "keys"}}]}])])
    secret = a_change(a_resource("Secret", "keys"), at=after(-20), path=("data", "KEY"), old="a", new="b")
    scaled = a_change(web, at=after(-5), path=("spec", "replicas"), old=old, new=new)
    assert acts_at(secret, reach(secret, top), started([], [scaled], top=top)) == (scaled.at if waited else None)
