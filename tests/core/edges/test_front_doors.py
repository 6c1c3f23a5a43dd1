"""Hosts that a cluster serves, and who of its own calls them."""

from __future__ import annotations

import pytest

from app.core.edges.front_doors import backends, certificates, named, served
from app.core.edges.indexing import topology
from app.core.edges.reach import reach
from app.core.entities import READ
from app.core.model import Json, Object, ObjectState, Path, Resource, Verb
from app.core.ranking.meant import with_meant
from tests.core.company import first, ranked
from tests.core.factories import (
    NOON,
    a_change,
    a_resource,
    a_state,
    a_symptom,
    a_workload,
    after,
    an_alert,
    an_incident,
)

INGRESS: dict[str, Json] = {
    "spec": {
        "tls": [{"hosts": ["wallet.corp.example"], "secretName": "wallet-tls"}],
        "rules": [
            {"host": "wallet.corp.example", "http": {"paths": [{"backend": {"service": {"name": "wallet"}}}]}},
            {"host": "*.corp.example"},
        ],
    }
}
ROUTE: dict[str, Json] = {"spec": {"hostnames": ["site.corp.example"], "rules": [{"backendRefs": [{"name": "site"}]}]}}
GATEWAYS = "gateway.networking.k8s.io"
CALLERS = {("calls", "mobile", "bff")}
WALLET = a_resource("Deployment", "wallet", "pay")


def company() -> list[ObjectState]:
    bff = a_workload(
        a_resource("Deployment", "bff", "mobile"),
        containers=[{"name": "bff", "env": [{"name": "WALLET", "value": "https://wallet.corp.example/v1"}]}],
    )
    return [
        bff,
        a_workload(WALLET, labels={"app": "wallet"}),
        a_state(a_resource("Service", "wallet", "pay"), {"spec": {"selector": {"app": "wallet"}}}),
        a_state(a_resource("Ingress", "wallet", "pay"), INGRESS),
    ]


@pytest.mark.parametrize(
    ("state", "hosts", "leads_to"),
    [
        (INGRESS, {"wallet.corp.example"}, ["wallet"]),
        (ROUTE, {"site.corp.example"}, ["site"]),
        ({"spec": None}, set(), []),
    ],
)
def test_what_an_ingress_or_a_route_serves(state: dict[str, Json], hosts: set[str], leads_to: list[str]) -> None:
    assert served(state) == hosts
    assert list(backends(state)) == leads_to


def test_a_host_is_named_whole() -> None:
    hosts = ["pay.example", "api.pay.example"]
    assert named("https://api.pay.example/x", hosts) == {"api.pay.example"}
    assert named("mail@pay.example.org", hosts) == set()


def test_who_shows_a_certificate() -> None:
    assert certificates(INGRESS) == {"wallet-tls"}
    assert certificates({"spec": {"tls": [{"hosts": []}, "odd"]}}) == certificates({}) == set()


@pytest.mark.parametrize(
    ("kind", "name"), [("Ingress", "wallet"), ("Secret", "wallet-tls"), ("Service", "wallet"), ("Deployment", "wallet")]
)
def test_who_calls_a_host_is_reached_by_what_stands_behind_it(kind: str, name: str) -> None:
    change = a_change(a_resource(kind, name, "pay"), path=("spec", "x"), verb=Verb.UPDATE)
    assert reach(change, topology(company())).keys() >= CALLERS
    assert not CALLERS & reach(a_change(a_resource(kind, "another", "pay")), topology(company())).keys()


@pytest.mark.parametrize(("kind", "group", "name"), [("Secret", "", "wildcard"), ("Gateway", GATEWAYS, "public")])
def test_who_calls_a_route_feels_its_gateway_and_the_certificate_that_this_shows(
    kind: str, group: str, name: str
) -> None:
    ref: Json = {"kind": "Secret", "name": "wildcard"}
    gateway: dict[str, Json] = {"spec": {"listeners": [{"tls": {"certificateRefs": [ref]}}]}}
    parent: Json = [{"kind": "Gateway", "name": "public", "namespace": "edge"}]
    states = [
        company()[0],
        a_state(Resource("lab", GATEWAYS, "Gateway", "edge", "public"), gateway),
        a_state(
            Resource("lab", GATEWAYS, "HTTPRoute", "pay", "wallet"),
            {"spec": {"hostnames": ["wallet.corp.example"], "parentRefs": parent}},
        ),
    ]
    change = a_change(Resource("lab", group, kind, "edge", name), path=("spec", "x"))
    assert reach(change, topology(states)).keys() >= CALLERS


@pytest.mark.parametrize(
    ("labels", "meant"),
    [
        ({"instance": "https://wallet.corp.example/health"}, ("edge/haproxy-ingress", "pay/wallet")),
        ({"instance": "https://other.corp.example"}, ()),
        ({"instance": "https://wallet.corp.example", "namespace": "mobile"}, ()),
    ],
)
def test_an_alert_that_names_a_host_is_about_what_stands_behind_it(
    labels: dict[str, str], meant: tuple[str, ...]
) -> None:
    proxy = a_workload(a_resource("DaemonSet", "haproxy-ingress", "edge"))
    incident = an_incident(an_alert(NOON, name="ProbeFailed", **labels))
    assert with_meant(incident, topology([*company(), proxy])).scope.workloads == meant


def test_what_serves_ingresses_burdens_what_stands_behind_them() -> None:
    proxy = a_workload(
        a_resource("DaemonSet", "haproxy-ingress", "edge"), volumes=[{"name": "c", "configMap": {"name": "template"}}]
    )
    template = a_change(a_resource("ConfigMap", "template", "edge"), path=("data", "haproxy.tmpl"), old="a", new="b")
    assert ("burdens", "pay", "wallet") in reach(template, topology([*company(), proxy]))


@pytest.mark.parametrize(
    ("old", "new", "is_more"), [(10, 100, True), (None, 5, True), (60, 100, False), (90, 0, False)]
)
def test_a_route_that_sends_more_to_one_of_its_backends_burdens_that(old: Json, new: Json, *, is_more: bool) -> None:
    route = Resource("lab", GATEWAYS, "HTTPRoute", "pay", "wallet")
    path: Path = ("spec", "rules", 0, "backendRefs", (("name", "wallet"),), "weight")
    rules: Json = [{"backendRefs": [{"name": "wallet", "weight": new}]}]
    found = reach(
        a_change(route, path=path, old=old, new=new), topology([*company(), a_state(route, {"spec": {"rules": rules}})])
    )
    assert (("burdens", "pay", "wallet") in found) is is_more
    assert ("workload", "pay", "wallet") in found


@pytest.mark.parametrize(
    ("said", "weighs"),
    [
        ("https://wallet.corp.example is not answered", True),
        ("https://console.wallet.corp.example is not answered", True),
        ("https://site.corp.example is not answered", False),
    ],
)
def test_an_alert_that_quotes_a_host_leads_to_who_took_it_away_or_put_it_in(said: str, weighs: bool) -> None:
    """Nobody serves the old host any more, so that nothing stands behind it."""
    door = a_resource("Ingress", "door", "pay")
    path = ("spec", "rules", "0", "host")
    moved = a_change(door, at=after(-9), path=path, old="wallet.corp.example", new="console.wallet.corp.example")
    ranking = ranked(moved, incident=an_incident(an_alert(after(0), name="ProbeFailed", message=said)))
    sentences = [one.sentence for one in ranking.suspects[0].evidence if one.rule == "scope"]
    assert any("which this change put in or took away" in one for one in sentences) == weighs


def test_an_object_s_own_name_is_no_quotation() -> None:
    tool = a_resource("Deployment", "status-page-sync", "platform")
    path = ("spec", "template", "spec", "serviceAccountName")
    moved = a_change(tool, at=after(-9), path=path, old="platform-tools", new="status-page-sync")

    def said(message: str) -> bool:
        ranking = ranked(moved, incident=an_incident(an_alert(after(0), name="SyncStale", message=message)))
        return any("put in or took away" in one.sentence for one in ranking.suspects[0].evidence)

    assert not said("status-page-sync has not synced for a while")
    assert said("platform-tools may not list services")


PROXY = a_resource("Deployment", "ingress-nginx", "edge")
RECORDS = a_resource("Deployment", "external-dns", "platform")
CERT_MANAGER = "cert-manager.io"
CERTIFICATE = Resource("lab", CERT_MANAGER, "Certificate", "edge", "default")


@pytest.mark.parametrize("changed", [PROXY, RECORDS, CERTIFICATE], ids=["proxy", "records", "certificate"])
@pytest.mark.parametrize(("hosts", "complains"), [(2, False), (1, False), (2, True)])
def test_where_nobody_behind_several_hosts_complains_it_is_on_the_way(
    changed: Resource, hosts: int, *, complains: bool
) -> None:
    change = a_change(changed, at=after(-12))
    shown: Object = {"spec": {"secretName": "default", "dnsNames": ["*.corp.example"]}}
    also = {"also": "https://site.corp.example"} if hosts > 1 else {}
    alert = an_alert(after(0), name="ProbeFailed", instance="https://wallet.corp.example", **also)
    ranking = ranked(
        change,
        incident=an_incident(alert),
        symptoms=[a_symptom(WALLET, "OOMKilled", at=after(-10), count=5)] if complains else [],
        states=[
            *company(),
            a_state(Resource("lab", GATEWAYS, "HTTPRoute", "web", "site"), ROUTE),
            *(a_workload(one) for one in (PROXY, RECORDS)),
            a_state(CERTIFICATE, shown),
        ],
    )
    told = [e.sentence for one in ranking.suspects if one.change == change for e in one.evidence]
    is_said = any(one.startswith("From outside 2 hosts are not answered, while nothing behind") for one in told)
    assert is_said is (hosts > 1 and not complains)
    assert first(ranking) == (changed.kind, changed.name) or not is_said


@pytest.mark.parametrize(("name", "is_shown"), [("wallet-tls", True), ("other-tls", False)])
def test_the_certificate_that_a_host_shows_is_what_an_alert_on_it_names(name: str, *, is_shown: bool) -> None:
    secret = a_change(a_resource("Secret", name, "pay"), at=after(-8), path=("data", "tls.crt"))
    assert (("entrance", "pay", "wallet") in reach(secret, topology(company()))) is is_shown
    alert = an_alert(after(30), name="ProbeFailed", instance="https://wallet.corp.example")
    ranking = ranked(secret, incident=an_incident(alert), states=company())
    found = (e.weight for s in ranking.suspects if s.change == secret for e in s.evidence if e.rule == "scope")
    assert (next(found, 0.0) > 1.0) is is_shown


def issued(by: Resource, secret: str, namespace: str) -> ObjectState:
    certificate: Object = {"spec": {"secretName": secret, "issuerRef": {"kind": by.kind, "name": by.name}}}
    return a_state(Resource("lab", CERT_MANAGER, "Certificate", namespace, f"{secret}-asked"), certificate)


@pytest.mark.parametrize("of_all", [True, False])
@pytest.mark.parametrize(("secret", "is_shown"), [("wallet-tls", True), ("other-tls", False)])
def test_a_certificate_and_one_hop_further_its_issuer_reach_who_is_shown_it(
    secret: str, *, is_shown: bool, of_all: bool
) -> None:
    kind, home = ("ClusterIssuer", None) if of_all else ("Issuer", "pay")
    issuer = Resource("lab", CERT_MANAGER, kind, home, "letsencrypt")
    certificate = issued(issuer, secret, "pay")
    top = topology([*company(), certificate, a_state(issuer, {"spec": {"acme": {}}})])
    for changed, hops in ((certificate.resource, READ), (issuer, 1 + READ)):
        reached = reach(a_change(changed, path=("spec", "x")), top)
        assert {reached.get(one) for one in (("entrance", "pay", "wallet"), *CALLERS)} == {hops if is_shown else None}
    other = reach(a_change(Resource("lab", CERT_MANAGER, kind, home, "of-others"), path=("spec", "x")), top)
    assert ("entrance", "pay", "wallet") not in other


def test_an_issuer_is_felt_by_who_comes_to_the_routes_of_a_gateway_and_by_all_who_come_to_a_proxy() -> None:
    issuer = Resource("lab", CERT_MANAGER, "ClusterIssuer", None, "letsencrypt")
    gateway = Resource("lab", GATEWAYS, "Gateway", "edge", "public")
    listeners: Json = [{"tls": {"certificateRefs": [{"kind": "Secret", "name": "wildcard"}]}}]
    parent: Json = [{"kind": "Gateway", "name": "public", "namespace": "edge"}]
    rules: Json = [{"backendRefs": [{"name": "wallet"}]}]
    route: Object = {"spec": {"hostnames": ["wallet.corp.example"], "parentRefs": parent, "rules": rules}}
    states = [
        *company()[:3],
        issued(issuer, "wildcard", "edge"),
        a_state(gateway, {"spec": {"listeners": listeners}}),
        a_state(Resource("lab", GATEWAYS, "HTTPRoute", "pay", "wallet"), route),
        a_workload(PROXY),
    ]
    reached = reach(a_change(issuer, path=("spec", "x")), topology(states))
    felt = {("entrance", "pay", "wallet"), ("agent", "doors"), *CALLERS}
    assert {one: reached.get(one) for one in felt} == dict.fromkeys(felt, 1 + READ)


@pytest.mark.parametrize(("app", "leads"), [("ingress-nginx", True), ("wallet", False)])
def test_the_service_of_what_serves_ingresses_is_a_door(app: str, *, leads: bool) -> None:
    home = a_workload(a_resource("Deployment", app, "edge"), labels={"app": app})
    service = a_state(a_resource("Service", "balancer", "edge"), {"spec": {"selector": {"app": app}}})
    annotated = a_change(service.resource, path=("metadata", "annotations", "aws-load-balancer-scheme"), new="internal")
    assert (("agent", "doors") in reach(annotated, topology([home, service]))) is leads


def test_an_issuer_is_said_to_lead_to_the_host_that_an_alert_names() -> None:
    issuer = Resource("lab", CERT_MANAGER, "ClusterIssuer", None, "letsencrypt")
    edited = a_change(issuer, at=after(-8), path=("spec", "acme", "server"), old="a", new="b")
    alert = an_alert(after(30), name="ProbeFailed", instance="https://wallet.corp.example")
    states = [*company(), issued(issuer, "wallet-tls", "pay"), a_state(issuer, {"spec": {"acme": {}}})]
    ranking = ranked(edited, incident=an_incident(alert), states=states)
    told = [e.sentence for one in ranking.suspects if one.change == edited for e in one.evidence]
    assert "What comes of it is shown to who comes from outside to wallet, which the alert names." in told
