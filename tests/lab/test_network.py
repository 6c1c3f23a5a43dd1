"""Who reaches whom in the laboratory."""

from __future__ import annotations

import httpx2
import pytest

from tests.lab.api import Caller, Json, Key, World
from tests.lab.company import COREFILE
from tests.lab.families.from_the_next_on import leads_to
from tests.lab.network import (
    RESOLVER,
    are_shut_in,
    goes_round,
    is_lacked,
    lacks_address,
    shadowing,
    unreachable,
    unserved,
)


def calling(**spec: object) -> Json:
    """A pod of shop, with no node."""
    return {"metadata": {"namespace": "shop", "name": "a-1"}, "spec": spec}


def reachable_world() -> World:
    """Where cart, DNS and the controller of Ingresses have a pod each, on a node of its own."""
    world = World(Caller(httpx2.AsyncClient(), "nobody", "", "test"))
    slices: dict[Key, Json] = {}
    found: dict[Key, Json] = {}
    for namespace, name in (("shop", "cart"), ("kube-system", "kube-dns"), ("ingress-nginx", "ingress-nginx")):
        meta = {"namespace": namespace, "name": name}
        found[namespace, name] = {"kind": "Pod", "metadata": meta, "spec": {"nodeName": f"node-of-{name}"}}
        backend = {"conditions": {"ready": True}, "targetRef": {"name": name}}
        labels = {"kubernetes.io/service-name": name}
        ports = [{"port": 8080}]
        slices[namespace, name] = {"metadata": {**meta, "labels": labels}, "endpoints": [backend], "ports": ports}
    corefile = {"data": {"Corefile": "kubernetes cluster.local"}}
    world._objects = {"EndpointSlice": slices, "Pod": found, "ConfigMap": {("kube-system", "coredns"): corefile}}
    world._objects["Service"] = {place: {"spec": {}} for place in slices}
    return world


def reached(*, dns: bool, cut_off: frozenset[str] = frozenset(), apart: frozenset[str] = frozenset()) -> str:
    """What frontend, which has no node, is told when it calls cart under a policy that lets it out to DNS or not."""
    world = reachable_world()
    servers = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}}}
    egress = [{"to": [{"podSelector": {}}]}, *([{"to": [servers], "ports": [{"port": 53}]}] if dns else [])]
    policy = {"metadata": {"namespace": "shop"}, "spec": {"policyTypes": ["Egress"], "egress": egress}}
    world._objects["NetworkPolicy"] = {("shop", "egress"): policy}
    return unreachable(world, calling(), "shop", "cart", cut_off=cut_off, apart=apart)


def test_a_policy_on_the_way_out_needs_dns() -> None:
    assert reached(dns=True) == ""
    assert reached(dns=False) == "lookup cart.shop.svc.cluster.local: i/o timeout"


def test_a_service_for_its_own_node_is_not_reached_from_another() -> None:
    world = reachable_world()
    world._objects["Service"] = {("shop", "cart"): {"spec": {"internalTrafficPolicy": "Local"}}}
    assert unreachable(world, calling(nodeName="node-of-cart"), "shop", "cart") == ""
    assert unreachable(world, calling(nodeName="another"), "shop", "cart") == "dial tcp cart.shop: i/o timeout"


def test_who_has_no_backend_is_told_why() -> None:
    world = reachable_world()
    del world._objects["Pod"]["shop", "cart"]
    assert unreachable(world, calling(), "shop", "cart") == "dial tcp cart.shop: no route to host"
    world._objects["EndpointSlice"]["shop", "cart"]["endpoints"] = []
    assert unreachable(world, calling(), "shop", "cart") == "dial tcp cart.shop: connection refused"
    del world._objects["Service"]["shop", "cart"]
    assert unreachable(world, calling(), "shop", "cart") == "lookup cart.shop.svc.cluster.local: no such host"


@pytest.mark.parametrize(
    ("node", "message"),
    [
        ("node-of-kube-dns", "lookup cart.shop.svc.cluster.local: i/o timeout"),
        ("node-of-cart", "dial tcp cart.shop: i/o timeout"),
        ("another", ""),
    ],
)
def test_who_is_on_a_node_without_routes_is_not_reached(node: str, message: str) -> None:
    assert reached(dns=True, cut_off=frozenset({node})) == message


@pytest.mark.parametrize(
    ("node", "message"), [("node-of-kube-dns", "lookup cart.shop.svc.cluster.local: i/o timeout"), ("node-of-cart", "")]
)
def test_an_agent_that_keeps_namespaces_apart_lets_in_who_is_of_the_same(node: str, message: str) -> None:
    assert reached(dns=True, apart=frozenset({node})) == message


@pytest.mark.parametrize(
    ("spec", "resolved"),
    [
        ({"hostNetwork": True, "dnsPolicy": "ClusterFirst"}, False),
        ({"hostNetwork": True, "dnsPolicy": "ClusterFirstWithHostNet"}, True),
        ({"dnsPolicy": "Default"}, False),
        ({"dnsPolicy": "ClusterFirst"}, True),
    ],
)
def test_who_asks_as_its_node_does_knows_no_service(spec: Json, *, resolved: bool) -> None:
    world = reachable_world()
    assert unreachable(world, calling(**spec), "shop", "cart") == (
        "" if resolved else "lookup cart.shop.svc.cluster.local: no such host"
    )


@pytest.mark.parametrize(("labels", "lets_in"), [({"tier": "customer"}, True), ({}, False)])
def test_a_policy_selects_namespaces_by_their_labels(labels: Json, *, lets_in: bool) -> None:
    world = reachable_world()
    callers = [{"namespaceSelector": {"matchLabels": {"tier": "customer"}}}]
    spec = {"policyTypes": ["Ingress"], "ingress": [{"from": callers}]}
    world._objects["NetworkPolicy"] = {("shop", "cart"): {"metadata": {"namespace": "shop"}, "spec": spec}}
    world._objects["Namespace"] = {("", "media"): {"metadata": {"name": "media", "labels": labels}}}
    caller: Json = {"metadata": {"namespace": "media", "name": "a-1"}, "spec": {}}
    assert unreachable(world, caller, "shop", "cart") == ("" if lets_in else "dial tcp cart.shop: i/o timeout")


@pytest.mark.parametrize(
    ("ingress_class", "service", "answer"),
    [("nginx", "cart", ""), ("gateway", "cart", "404"), ("nginx", "gone", "503")],
)
def test_a_public_name_is_served_by_an_ingress_of_the_class_that_has_a_controller(
    ingress_class: str, service: str, answer: str
) -> None:
    world = reachable_world()
    paths = [{"path": "/", "backend": {"service": {"name": service, "port": {"number": 80}}}}]
    spec = {"ingressClassName": ingress_class, "rules": [{"host": "shop.example", "http": {"paths": paths}}]}
    world._objects["Ingress"] = {("shop", "shop"): {"spec": spec}}
    assert unserved(world, "shop.example")[:3] == answer


@pytest.mark.parametrize("ports", [None, []])
def test_who_is_ready_without_the_port_that_its_service_names_is_not_reached(ports: list[Json] | None) -> None:
    world = reachable_world()
    world._objects["EndpointSlice"]["shop", "cart"]["ports"] = ports
    assert unreachable(world, calling(), "shop", "cart") == "dial tcp cart.shop: connection refused"


@pytest.mark.parametrize(("named", "reached"), [("db", True), ("tcp-db", False), ("", False)])
def test_a_port_of_a_slice_that_is_called_otherwise_leads_nowhere(named: str, *, reached: bool) -> None:
    world = reachable_world()
    world._objects["Service"]["shop", "cart"] = {
        "spec": {"ports": [{"port": 80, **({"name": named} if named else {})}]}
    }
    world._objects["EndpointSlice"]["shop", "cart"]["ports"] = [{"name": "db", "port": 8080}]
    told = unreachable(world, calling(), "shop", "cart")
    assert told == ("" if reached else "dial tcp cart.shop: connection refused")


@pytest.mark.parametrize(
    ("phase", "on_host", "lacks"),
    [("Running", False, True), ("Pending", False, True), ("Succeeded", False, False), ("Running", True, False)],
)
def test_a_pod_gets_no_address_when_others_of_its_node_have_them_all(phase: str, on_host: bool, lacks: bool) -> None:
    def pod(name: str, node: str, **status: str) -> Json:
        spec = {"nodeName": node, "hostNetwork": on_host and bool(status)}
        return {"metadata": {"namespace": "shop", "name": name, "uid": name}, "spec": spec, "status": status}

    world = World(Caller(httpx2.AsyncClient(), "nobody", "", "test"))
    new = pod("new", "a")
    there = [
        new,
        pod("old", "a", phase=phase, podIP="10.244.0.1"),
        pod("far", "b", phase="Running", podIP="10.244.0.2"),
    ]
    world._objects = {"Pod": {("shop", one["metadata"]["name"]): one for one in there}}
    assert lacks_address(world, new, 1) is lacks
    assert not lacks_address(world, new, 2)
    new["spec"]["hostNetwork"] = True
    assert not lacks_address(world, new, 1)


def test_a_service_hides_a_name_outside_that_reads_like_its_own() -> None:
    world = reachable_world()
    world._objects["Service"] = {("shop", "cart"): {"spec": {"clusterIP": "10.96.0.7"}}}
    found = [shadowing(world, calling(), host) for host in ("cart.shop", "www.cart.shop", "cart.example", "shop")]
    assert found == ["10.96.0.7", "", "", ""]
    assert shadowing(world, calling(dnsPolicy="Default"), "cart.shop") == ""


@pytest.mark.parametrize(("node", "message"), [("node-of-cart", ""), ("another", "dial tcp cart.shop: i/o timeout")])
def test_a_pod_of_another_range_is_reached_from_its_own_node_only(node: str, message: str) -> None:
    world = reachable_world()
    world._objects["Pod"]["shop", "cart"]["status"] = {"podIP": "10.60.1.7"}
    assert unreachable(world, calling(nodeName=node), "shop", "cart") == message


@pytest.mark.parametrize(
    ("zone", "lacked"),
    [
        ("", []),
        ("corp.example:53 {\n    hosts {\n        10.20.0.11 wiki.corp.example\n    }\n}\n", ["accounts.corp.example"]),
        ("corp.example:53 {\n    forward . 10.20.0.2\n}\n", []),
    ],
)
def test_a_name_that_a_zone_of_the_cluster_lacks_is_not_asked_for_elsewhere(zone: str, lacked: list[str]) -> None:
    world = reachable_world()
    world._objects["ConfigMap"] = {("kube-system", "coredns"): {"data": {"Corefile": f"{zone}{COREFILE}"}}}
    names = "accounts.corp.example", "wiki.corp.example", "accounts.example", "cart.shop"
    assert [name for name in names if is_lacked(world, calling(), name)] == lacked
    assert not any(is_lacked(world, calling(dnsPolicy="Default"), name) for name in names)


@pytest.mark.parametrize("port", ["", ":53"])
def test_a_zone_for_which_the_dns_asks_itself_is_resolved_by_nobody(port: str) -> None:
    world = reachable_world()
    zone = f"inside.example:53 {{\n    errors\n    forward . 10.96.0.10{port}\n}}\n"
    world._objects["ConfigMap"] = {("kube-system", "coredns"): {"data": {"Corefile": f"{COREFILE}{zone}"}}}
    world._objects["Service"] = {("kube-system", "kube-dns"): {"spec": {"clusterIP": "10.96.0.10"}}}
    names = "wiki.inside.example", "inside.example", "wiki.example"
    assert [name for name in names if goes_round(world, calling(), name)] == ["wiki.inside.example"]
    assert not goes_round(world, calling(dnsPolicy="Default"), "wiki.inside.example")
    world._objects["Service"] = {("kube-system", "kube-dns"): {"spec": {"clusterIP": "10.96.0.1"}}}
    assert not goes_round(world, calling(), "wiki.inside.example")


@pytest.mark.parametrize(
    ("egress", "is_shut"),
    [
        ([], True),
        ([{"to": [{"namespaceSelector": {}}]}], True),
        ([{"to": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]}], True),
        ([{"to": [{"ipBlock": {"cidr": f"{RESOLVER}/32"}}], "ports": [{"port": 443}]}], True),
        ([{"to": [{"ipBlock": {"cidr": "0.0.0.0/0", "except": [f"{RESOLVER}/32"]}}]}], True),
        ([{"to": [{"ipBlock": {"cidr": f"{RESOLVER}/32"}}], "ports": [{"port": 53}]}], False),
        ([{}], False),
    ],
)
def test_servers_of_names_may_be_kept_from_the_resolver_outside(egress: list[Json], *, is_shut: bool) -> None:
    world = reachable_world()
    assert not are_shut_in(world, calling())
    spec = {"policyTypes": ["Egress"], "egress": egress}
    policy = {"metadata": {"namespace": "kube-system"}, "spec": spec}
    world._objects["NetworkPolicy"] = {("kube-system", "baseline"): policy}
    assert are_shut_in(world, calling()) is is_shut
    assert not are_shut_in(world, calling(dnsPolicy="Default"))
    assert unreachable(world, calling(), "shop", "cart") == ""


@pytest.mark.parametrize(
    ("where", "kind", "asked", "service"),
    [
        ("/saved", "Prefix", "/saved/overview", "part"),
        ("/saved/", "Prefix", "/saved", "part"),
        ("/saved", "Prefix", "/saved-too", "site"),
        ("/saved", "Exact", "/saved/overview", "site"),
        ("/saved", "Exact", "/saved", "part"),
        ("/saved/v2", "Prefix", "/saved/overview", "site"),
    ],
)
def test_the_longest_path_of_an_ingress_that_matches_is_taken(where: str, kind: str, asked: str, service: str) -> None:
    listed = [(where, kind, "part"), ("/", "Prefix", "site")]
    paths = [{"path": at, "pathType": how, "backend": {"service": {"name": one}}} for at, how, one in listed]
    assert leads_to({"spec": {"rules": [{"http": {"paths": paths}}]}}, asked) == service
