"""Complaints about servers: outside the cluster, and inside."""

from __future__ import annotations

from dataclasses import replace

import pytest
from msgspec import structs

from app.core.edges.causes import OUTSIDE, ROOTS, THEIRS
from app.core.edges.indexing import topology
from app.core.edges.program_causes import TRUST
from app.core.edges.served import ASKED, SLOW
from app.core.model import Json, Object, ObjectState, Resource
from app.core.ranking.candidates import candidates
from app.core.ranking.explain import SUFFERS, explain
from app.core.signals.blamed import BLAMES, OVERRUN, with_blamed
from app.core.signals.complaints import symptom_signals
from app.core.signals.outside import with_outside
from app.core.signals.signal import Signal
from tests.core.company import first, ranked
from tests.core.factories import a_change, a_resource, a_state, a_symptom, a_workload, after, an_alert, an_incident

SENDER = a_resource("Deployment", "sender", "sms")
LIBPQ = 'connection to server at "{}" ({}), port 5432 failed: Connection timed out'


def company() -> list[ObjectState]:
    return [
        a_workload(SENDER, labels={"app": "sender"}),
        a_state(a_resource("Service", "sender", "sms"), {"spec": {"selector": {"app": "sender"}}}),
        a_state(a_resource("Service", "ledger", "pay"), {"spec": {"selector": {"app": "ledger"}}}),
    ]


def signal(message: str) -> Signal:
    told = symptom_signals([a_symptom(SENDER, "Error", message=message)], start=after(-60), end=after(30))
    return told[0]


@pytest.mark.parametrize(
    ("message", "outside"),
    [
        ("POST https://api.gate.example/v3: 503 Service Unavailable", True),
        ("dial tcp feed.wire.example:6514: i/o timeout", True),
        ("503 (events.queues.example: dial tcp 203.0.113.77:5671: i/o timeout)", True),
        ("dial tcp 8.8.8.8:53: connect: connection refused", True),
        ("dial tcp 10.96.0.12:5432: connect: connection refused", False),
        ("dial tcp 172.20.0.1:443: i/o timeout", False),
        ("dial tcp 172.40.0.1:443: i/o timeout", True),
        ("dial tcp 100.64.3.1:443: i/o timeout", False),
        ("HTTPSConnectionPool(host='api.gate.example', port=443): Read timed out. (read timeout=30)", True),
        ("HTTPConnectionPool(host='ledger.pay.svc', port=80): Read timed out. (read timeout=30)", False),
        ("upstream fares.gds.example answered 503 Service Unavailable", True),
        ("the server is currently unable to handle the request (get pods.metrics.k8s.io): unavailable", False),
        ("POST https://api.gate.example/v3: 401", False),
        ("POST https://api.gate.example/v3: 429 Too Many Requests", False),
        ("Post https://hook.policy.svc:443/check: connection refused", False),
        ("dial tcp db-0.db.pay:5432: connection refused", False),
        ('failed calling webhook "validation.gatekeeper.example": context deadline exceeded', False),
        ("context deadline exceeded", False),
        (LIBPQ.format("db.x1.eu-central-1.rds.example", "10.0.31.8"), True),
        (LIBPQ.format("ledger.pay.svc", "10.96.114.20"), False),
        (LIBPQ.format("db-0.db.pay", "10.0.3.8"), False),
        ('connection to server at "10.0.31.8", port 5432 failed: Connection timed out', False),
        ("SocketTimeoutException: timed out at com.corp.ledger.Client.call(Client.java)", False),
    ],
)
def test_a_server_outside_that_does_not_answer(message: str, outside: bool) -> None:
    states = [*company(), a_workload(a_resource("StatefulSet", "db", "pay"))]
    (found,) = with_outside([signal(message)], topology(states), an_incident())
    assert (found.cause is OUTSIDE) is outside


@pytest.mark.parametrize(
    ("said", "about", "outside"),
    [
        ("a tenth of the calls of sms/sender to db.corp.example fail", "sender", True),
        ("sms/sender: error rate of calls to db.corp.example over 5 %", "sender", True),
        ("sms/sender calls db.corp.example more than usual", "sender", False),
        ("a tenth of the calls of sms/sender to ledger.pay.svc fail", "sender", False),
        ("a tenth of the calls of pay/ledger to db.corp.example fail", "ledger", False),
    ],
)
def test_an_alert_that_says_which_server_outside_does_not_answer(said: str, about: str, outside: bool) -> None:
    """Of what its workloads' probes only say that they fail."""
    namespace = "sms" if about == "sender" else "pay"
    incident = an_incident(an_alert(after(20), message=said, namespace=namespace, deployment=about))
    told = a_symptom(SENDER, "Unhealthy", message="probe failed")
    (probe,) = symptom_signals([told], start=after(-60), end=after(30))
    (found,) = with_outside([probe], topology(company()), incident)
    assert (found.cause is OUTSIDE) is outside


@pytest.mark.parametrize(
    ("message", "public"),
    [
        ('Post "https://api.gate.example/v3": tls: x509: certificate signed by unknown authority', True),
        (
            "Get https://api.gate.example/jwks.json: PKIX path building failed: unable to find valid path",
            True,
        ),
        (
            "HTTPSConnectionPool(host='api.gate.example', port=443): certificate verify failed: unable to get issuer",
            True,
        ),
        (
            'Post "https://api.gate.example/v3": x509: certificate is valid for gate.example, not for api',
            False,
        ),
        ('Post "https://ledger.pay.svc/v3": tls: x509: certificate signed by unknown authority', False),
        ("HTTPSConnectionPool(host='api.gate.example', port=443): certificate verify failed: Hostname mismatch", False),
        ("invalid peer certificate: UnknownIssuer", False),
    ],
)
def test_which_public_authorities_a_program_trusts_its_image_brings(message: str, public: bool) -> None:
    (found,) = with_outside([signal(message)], topology(company()), an_incident())
    assert found.cause is (ROOTS if public else TRUST)
    assert found.cause.leads(a_change(SENDER)) is public


@pytest.mark.parametrize(
    ("message", "blamed"),
    [
        ("dial ledger.pay:80: connection refused", "ledger"),
        ("dial ledger.pay:80: no such table", ""),
        ("GET http://sender/health: connection refused", ""),
    ],
)
def test_a_server_inside_that_does_not_answer(message: str, blamed: str) -> None:
    (found,) = with_blamed([signal(message)], topology(company()))
    assert found.facts.get(BLAMES, "") == blamed


@pytest.mark.parametrize(
    ("message", "blamed"),
    [
        ("FATAL: sorry, too many clients already (SQLSTATE 53300)", True),
        ("OOM command not allowed when used memory > 'maxmemory'.", True),
        ("publisher confirm: basic.nack received", True),
        ("ERROR: canceling statement due to statement timeout (SQLSTATE 57014)", True),
        ("panic: nil pointer dereference", False),
    ],
)
def test_a_server_answers_for_what_it_says_of_itself(message: str, blamed: bool) -> None:
    told: Json = [{"name": "sms", "env": [{"name": "LEDGER", "value": "http://ledger.pay"}]}]
    ledger = a_workload(a_resource("Deployment", "ledger", "pay"))
    states = [*company()[1:], a_workload(SENDER, labels={"app": "sender"}, containers=told), ledger]
    (found,) = with_blamed([signal(message)], topology(states))
    assert (BLAMES in found.facts) is blamed
    (alone,) = with_blamed([signal(message)], topology(company()))
    assert BLAMES not in alone.facts


def test_a_server_that_a_client_calls_is_blamed_by_its_name_alone() -> None:
    ledger = a_resource("Deployment", "ledger", "pay")
    calls: Json = [{"name": "sms", "image": "sender:1", "env": [{"name": "LEDGER", "value": "http://ledger.pay"}]}]
    states = [*company()[1:], a_workload(SENDER, labels={"app": "sender"}, containers=calls), a_workload(ledger)]
    (found,) = with_blamed([signal("upstream ledger: dial tcp 10.96.114.20:80: connection refused")], topology(states))
    assert found.facts.get(BLAMES) == "ledger"


def test_a_rollout_is_not_to_blame_for_what_answers_from_outside() -> None:
    rolled_out = a_change(SENDER, at=after(-30), old="sender:1", new="sender:2")
    alert = an_incident(an_alert(after(30), name="DeliveryLow", namespace="sms", service="sender"))

    def none(message: str) -> float:
        told = a_symptom(SENDER, "Error", at=after(-5), message=message, count=40)
        return ranked(rolled_out, incident=alert, symptoms=[told], states=company()).none_of_these

    assert none("POST https://api.gate.example/v3: 503 Service Unavailable") > 2 * none("panic: no such table")
    told = a_symptom(SENDER, "Error", at=after(-5), message="panic: no such table", count=40)
    assert first(ranked(rolled_out, incident=alert, symptoms=[told], states=company())) == ("Deployment", "sender")


@pytest.mark.parametrize(
    ("message", "theirs"),
    [
        ('Post "https://ws.customs.example/a": tls: failed to verify certificate: x509: certificate has expired', True),
        ('Post "https://shop.corp.example/a": tls: failed to verify certificate: x509: certificate has expired', False),
        ('Post "https://ledger.pay.svc/a": tls: failed to verify certificate: x509: certificate has expired', False),
        ('Post "https://ws.customs.example/a": remote error: tls: expired certificate', False),
    ],
    ids=["of another", "of an Ingress", "of a Service", "the caller's own"],
)
def test_whose_certificate_ran_out(message: str, theirs: bool) -> None:
    rules: Json = [{"host": "shop.corp.example", "http": {"paths": [{"backend": {"service": {"name": "sender"}}}]}}]
    ingress = a_state(a_resource("Ingress", "shop", "sms"), {"spec": {"rules": rules}})
    (found,) = with_outside([signal(message)], topology([*company(), ingress]), an_incident())
    assert (found.cause is THEIRS) is theirs


def believed(key: str, old: str, new: str) -> float:
    """How likely a setting is, after which a server outside is slow."""
    settings = a_resource("ConfigMap", "sender-env", "sms")
    reads: Json = [{"name": "sender", "envFrom": [{"configMapRef": {"name": "sender-env"}}]}]
    ranking = ranked(
        a_change(settings, at=after(-20), path=("data", key), old=old, new=new),
        a_change(SENDER, at=after(-18), path=("spec", "template", "metadata", "annotations", "checksum"), new="2"),
        incident=an_incident(an_alert(after(30), name="Lag", namespace="sms", deployment="sender")),
        symptoms=[a_symptom(SENDER, "Error", at=after(0), message="POST https://api.gate.example: 504", count=30)],
        states=[a_workload(SENDER, containers=reads)],
    )
    return next((one.probability for one in ranking.suspects if one.change.resource == settings), 0.0)


def test_a_plain_word_says_nothing_of_whom_to_call() -> None:
    assert believed("LOG_FORMAT", "plain", "json") < 0.5 * believed("GATE", "gate-1.example", "gate-2.example")


@pytest.mark.parametrize(("facts", "overrun"), [({ASKED: "8.6"}, "ledger"), ({}, "")])
def test_who_is_blamed_may_be_asked_for_far_more(facts: dict[str, str], overrun: str) -> None:
    ledger = a_workload(a_resource("Deployment", "ledger", "pay"), labels={"app": "ledger"})
    complaint = signal("dial ledger.pay:80: connection refused")
    slow = replace(
        complaint, about={("workload", "pay", "ledger"): 1.0}, facts={"reason": SLOW, **facts}, text="is slow"
    )
    found, _ = with_blamed([complaint, slow], topology([*company(), ledger]))
    assert found.facts.get(OVERRUN, "") == overrun


def test_what_others_say_of_who_is_asked_too_much_is_less_about_its_own_release() -> None:
    ledger = a_resource("Deployment", "ledger", "pay")
    release = a_change(ledger, at=after(-10))
    complaint = signal("dial ledger.pay:80: connection refused")
    (found,) = candidates([release], [], [], topology=topology([*company(), a_workload(ledger)]), until=after(60))
    plain = explain(found, complaint, churn_share=0.0)
    overrun = explain(found, replace(complaint, facts=complaint.facts | {OVERRUN: "ledger"}), churn_share=0.0)
    assert plain is not None
    assert plain.via == ("named", "ledger")
    assert overrun is not None
    assert overrun.score == pytest.approx(SUFFERS * plain.score)


@pytest.mark.parametrize(
    ("source", "seconds", "outside"),
    [("charts", -10, True), ("others", -10, False), ("charts", 40, False)],
    ids=["its own repository", "another one", "a repository that fails later"],
)
def test_a_custom_resource_suffers_with_the_source_to_which_it_refers(
    source: str, seconds: float, *, outside: bool
) -> None:
    group = "flux.example"
    repository = replace_group(a_resource("HelmRepository", "charts", "flux"), group)
    release = replace_group(a_resource("HelmRelease", "shop", "flux"), group)
    refers: Object = {"spec": {"chart": {"spec": {"sourceRef": {"kind": "HelmRepository", "name": source}}}}}
    away = 'Get "https://charts.corp.example/index.yaml": dial tcp 203.0.113.40:443: i/o timeout'
    told = symptom_signals(
        [
            a_symptom(repository, "Failed", at=after(seconds), message=away, count=2),
            a_symptom(repository, "FetchFailed", at=after(50), message=away, count=2),
            a_symptom(release, "SourceNotReady", at=after(0), message="no artifact of version '2.8.1'", count=2),
        ],
        start=after(-60),
        end=after(60),
    )
    top = topology([a_state(repository, {"spec": {}}), a_state(release, refers)])
    found = {one.facts["reason"]: one.cause for one in with_outside(told, top, an_incident())}
    assert found["Failed"] is OUTSIDE
    assert (found["SourceNotReady"] is OUTSIDE) is outside


@pytest.mark.parametrize(
    ("name", "value", "leads"),
    [("LOG_LEVEL", "debug", False), ("GATE_URL", "https://gate.example", True), ("GATE_TIMEOUT", "5", True)],
)
def test_of_what_a_program_is_told_only_whom_to_call_and_how_leads_outside(name: str, value: str, leads: bool) -> None:
    container = ("spec", "template", "spec", "containers", (("name", "a"),))
    told: Json = {"name": name, "value": value}
    change = a_change(SENDER, path=(*container, "env", (("name", name),)), old=None, new=told)
    image = a_change(SENDER, path=(*container, "image"), old="a:1", new="a:2").diffs
    assert OUTSIDE.leads(structs.replace(change, diffs=(*change.diffs, *image))) is leads


def replace_group(resource: Resource, group: str) -> Resource:
    return structs.replace(resource, api_group=group)
