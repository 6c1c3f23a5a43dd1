"""Clients know their servers by name; who complains of a client looks at what the client calls."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from app.core.edges.indexing import topology
from app.core.edges.reach import reach
from app.core.model import FieldDiff, Json, Object, ObjectState, Verb
from app.core.objects.dependencies import closure, hosts
from tests.core.company import first, ranked, rules
from tests.core.factories import (
    a_change,
    a_resource,
    a_state,
    a_symptom,
    a_workload,
    after,
    an_alert,
    an_incident,
)

KNOWN = frozenset({("shop", "redis"), ("shop", "api"), ("db", "pg")})


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        ("FARES_URL", "http://fare-engine.fares.svc:8080", [("fares", "fare-engine")]),
        ("X", "fare-engine.fares.svc.cluster.local", [("fares", "fare-engine")]),
        ("REDIS_HOST", "redis", [("shop", "redis")]),
        ("MODE", "redis", []),
        ("PEERS", "redis:6379,api:80", [("shop", "redis"), ("shop", "api")]),
        ("DB", "postgres://app:<redacted:0a1b2c3d>@pg.db:5432/orders", [("db", "pg")]),
        ("DB", "postgres://app:pw@redis/1", [("shop", "redis")]),
        ("API", "http://api/v1", [("shop", "api")]),
        ("CACHE", "_redis._tcp.redis.shop.svc", [("shop", "redis")]),
        ("SITE", "https://www.corp.example/api", []),
        ("NOTE", "the api of redis and pg.db-backup", []),
        ("IMAGE", "registry.example/api:v1.2", []),
    ],
)
def test_a_service_is_known_by_its_name_in_the_dns(name: str, text: str, found: list[tuple[str, str]]) -> None:
    assert list(hosts(name, text, "shop", known=KNOWN)) == found


def test_what_is_called_by_what_is_called() -> None:
    calls = {("a", "x"): {("a", "y")}, ("a", "y"): {("b", "z"), ("a", "x")}}
    assert closure([("a", "x")], calls, depth=3) == {("a", "y"): 1, ("b", "z"): 2}
    assert closure([("a", "x")], calls, depth=1) == {("a", "y"): 1}


def a_server(name: str, namespace: str, **pod: Any) -> list[ObjectState]:
    service = a_resource("Service", name, namespace)
    return [
        a_workload(a_resource("Deployment", name, namespace), **pod),
        a_state(service, {"spec": {"selector": {"app": name}, "ports": [{"port": 8080, "targetPort": 8080}]}}),
    ]


def told(**variables: str) -> dict[str, Any]:
    return {"containers": [{"name": "c", "env": [{"name": n, "value": v} for n, v in variables.items()]}]}


def company() -> list[ObjectState]:
    config = a_resource("ConfigMap", "gateway-config", "mobile")
    reads = {"name": "c", "envFrom": [{"configMapRef": {"name": "gateway-config"}}]}
    return [
        *a_server("card-gateway", "billing", **told(SCREENING_URL="http://screening.fraud.svc:8080")),
        *a_server("screening", "fraud"),
        *a_server("gateway", "mobile", containers=[reads]),
        a_state(config, {"data": {"upstreams.yaml": "cards: http://card-gateway.billing.svc:8080"}}),
    ]


def test_environment_and_config_maps_say_who_calls_whom() -> None:
    top = topology(company())
    assert top.upstream == {
        ("billing", "card-gateway"): {("fraud", "screening")},
        ("mobile", "gateway"): {("billing", "card-gateway")},
    }


def test_a_service_that_no_longer_answers_is_found_from_its_clients_client() -> None:
    port = a_change(
        a_resource("Service", "screening", "fraud"),
        at=after(-20),
        path=("spec", "ports", (("port", "8080"),), "targetPort"),
        old=8080,
        new=8443,
    )
    restart = a_change(
        a_resource("Deployment", "gateway", "mobile"),
        at=after(-40),
        path=("spec", "template", "metadata", "annotations", "restartedAt"),
    )
    clients = (a_resource("Deployment", "card-gateway", "billing"), a_resource("Deployment", "gateway", "mobile"))
    ranking = ranked(
        port,
        restart,
        incident=an_incident(an_alert(after(30), name="HighErrorRate", namespace="mobile", service="gateway")),
        symptoms=[a_symptom(one, "Unhealthy", at=after(-14 + 9 * n), count=15) for n, one in enumerate(clients)],
        states=company(),
    )
    assert first(ranking) == ("Service", "screening")
    assert any("calls it" in evidence.sentence for evidence in ranking.suspects[0].evidence)


@pytest.mark.parametrize(
    ("parallelism", "message", "felt"),
    [(24, "FATAL: too many clients", True), (2, "FATAL: too many clients", False), (24, "no such file", False)],
)
def test_many_new_clients_of_a_server_are_felt_by_its_others(parallelism: int, message: str, felt: bool) -> None:
    job = a_resource("Job", "backfill", "fraud")
    calls_it = {"DB_URL": "postgresql://backfill@screening.fraud.svc:5432/x"}
    spec: Object = {"parallelism": parallelism, "template": {"metadata": {}, "spec": told(**calls_it)}}
    made = replace(a_change(job, at=after(-20), verb=Verb.CREATE), diffs=(FieldDiff((), "add", None, {"spec": spec}),))
    client = a_resource("Deployment", "card-gateway", "billing")
    ranking = ranked(
        made,
        incident=an_incident(an_alert(after(30), name="HighErrorRate", namespace="billing", service="card-gateway")),
        symptoms=[a_symptom(client, "Unhealthy", at=after(-12), count=15, message=message)],
        states=[*company(), a_state(job, {"spec": spec})],
    )
    sentences = [e.sentence for s in ranking.suspects if s.change.id == made.id for e in s.evidence]
    assert any("card-gateway calls screening, as 24 new pods of backfill do" in said for said in sentences) is felt
    is_believed = first(ranking) == ("Job", "backfill") and ranking.suspects[0].probability > ranking.none_of_these
    assert is_believed is (message != "no such file")


def test_a_service_that_was_deleted_is_missed_by_those_who_name_it() -> None:
    pruned = a_resource("Service", "core-bank", "billing")
    gone = replace(
        a_change(pruned, at=after(-20), verb=Verb.DELETE, path=(), old={"spec": {"externalName": "bank"}}, new=None),
    )
    ranking = ranked(
        gone,
        incident=an_incident(an_alert(after(30), name="HighErrorRate", namespace="billing", service="card-gateway")),
        symptoms=[a_symptom(a_resource("Deployment", "card-gateway", "billing"), "Unhealthy", at=after(-15), count=20)],
        states=a_server("card-gateway", "billing", **told(BANK="http://core-bank.billing.svc")),
    )
    assert first(ranking) == ("Service", "core-bank")


def test_what_a_client_suffers_from_is_handed_to_what_it_calls() -> None:
    crash = a_resource("Deployment", "screening", "fraud")
    image = a_change(crash, at=after(-20))
    own = a_change(a_resource("Deployment", "card-gateway", "billing"), at=after(-12), old="c:1", new="c:2")
    ranking = ranked(
        image,
        own,
        incident=an_incident(an_alert(after(30), name="HighErrorRate", namespace="billing", service="card-gateway")),
        symptoms=[
            a_symptom(crash, "CrashLoopBackOff", at=after(-17), count=10),
            a_symptom(own.resource, "Unhealthy", at=after(-5), count=10),
        ],
        states=company(),
    )
    assert first(ranking) == ("Deployment", "screening")
    assert "symptoms" in rules(ranking)


@pytest.mark.parametrize(("count", "most"), [(1, "card-gateway"), (25, "screening")])
def test_what_was_over_before_a_client_complained_is_not_what_it_suffers_from(count: int, most: str) -> None:
    """Once a minute earlier, as while it was rolled out; or so often that its kubelet tells it no more."""
    server, client = a_resource("Deployment", "screening", "fraud"), a_resource("Deployment", "card-gateway", "billing")
    ranking = ranked(
        incident=an_incident(an_alert(after(30), name="HighErrorRate", namespace="billing", service="card-gateway")),
        symptoms=[
            a_symptom(server, "Unhealthy", at=after(-60), count=count),
            a_symptom(client, "Unhealthy", at=after(-5), count=10),
        ],
        states=company(),
    )
    assert ranking.findings[0].sentence.partition(",")[0].endswith(f" on {most}")


def test_what_a_webhook_answers_follows_from_its_own_configuration() -> None:
    """A mutating webhook's backend reads a policy from a ConfigMap: what that spoils is made everywhere."""
    policy = a_resource("ConfigMap", "placement-policy", "platform")
    reads = {"name": "c", "envFrom": [{"configMapRef": {"name": policy.name}}]}
    rule: Json = {"apiGroups": [""], "resources": ["pods"], "operations": ["CREATE"]}
    service: Json = {"namespace": "platform", "name": "placement"}
    hooks: Json = [{"name": "place.example", "rules": [rule], "clientConfig": {"service": service}}]
    states = [
        *a_server("placement", "platform", containers=[reads]),
        a_state(a_resource("MutatingWebhookConfiguration", "placement", None), {"webhooks": hooks}),
        *a_server("baggage", "ops"),
    ]
    reached = reach(a_change(policy, path=("data", "selector")), topology(states))
    assert reached[("api", "", "pods", "create")] < 2
    assert ("pods", "ops") in reached
