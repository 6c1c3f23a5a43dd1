"""Addresses of Services in complaints: by whom they are, and that what stands behind them is looked at."""

from __future__ import annotations

import pytest

from app.core.model import Object
from app.core.signals.addressed import with_names
from tests.core.company import first, ranked
from tests.core.factories import a_change, a_resource, a_state, a_symptom, a_workload, after, an_alert, an_incident

WEB = a_resource("Deployment", "web", "shop")
LEDGER = a_resource("StatefulSet", "ledger-db", "bank")
PLACE = ("spec", "template", "spec", "containers", (("name", "web"),))


def service(*addresses: str, name: str = "ledger-db") -> Object:
    return {"spec": {"clusterIPs": list(addresses), "selector": {"app": name}, "ports": [{"port": 5432}]}}


STATES = [
    a_state(a_resource("Service", "ledger-db", "bank"), service("10.96.14.3", "fd00::1a")),
    a_state(a_resource("Service", "kube-dns", "kube-system"), service("10.96.0.10", name="kube-dns")),
    a_state(a_resource("Service", "headless", "bank"), service("None")),
]


@pytest.mark.parametrize(
    ("message", "told"),
    [
        ("dial tcp 10.96.14.3:5432: refused", "dial tcp 10.96.14.3:5432 (ledger-db.bank.svc:5432): refused"),
        ("connect ECONNREFUSED 10.96.14.3:5432", "connect ECONNREFUSED 10.96.14.3:5432 (ledger-db.bank.svc:5432)"),
        ("connect to [fd00::1a]:5432 failed", "connect to [fd00::1a]:5432 (ledger-db.bank.svc:5432) failed"),
        (
            "10.96.14.3 is silent, as 10.96.14.3.",
            "10.96.14.3 (ledger-db.bank.svc) is silent, as 10.96.14.3 (ledger-db.bank.svc).",
        ),
        ("dial tcp 10.96.14.35:5432: refused", "dial tcp 10.96.14.35:5432: refused"),
        ("version 10.96.14.3.1 is not known", "version 10.96.14.3.1 is not known"),
        ("lookup x on 10.96.0.10:53: no such host", "lookup x on 10.96.0.10:53: no such host"),
        ("None of them answered", "None of them answered"),
    ],
)
def test_an_address_of_a_service_is_told_by_its_name(message: str, told: str) -> None:
    (symptom,) = with_names((a_symptom(WEB, "Error", message=message),), STATES)
    assert symptom.message == told


def test_complaints_stay_as_they_are_where_no_service_has_an_address() -> None:
    complaints = (a_symptom(WEB, "Error", message="dial tcp 10.96.14.3:5432: refused"),)
    assert with_names(complaints, STATES[2:]) == complaints


def test_who_is_called_by_an_address_alone_is_looked_at() -> None:
    """As Go, Node.js and many a driver say it: of whom they were told by a name they say only where that led."""
    release = a_change(WEB, at=after(-14), path=(*PLACE, "image"), old="web:1", new="web:2")
    fewer = a_change(LEDGER, at=after(-3), path=(*PLACE, "args"), old=["-p", "5432"], new=["-p", "5433"])
    complaint = a_symptom(WEB, "Error", at=after(0), message="dial tcp 10.96.14.3:5432: connect: connection refused")
    states = [a_workload(WEB), a_workload(LEDGER)]
    incident = an_incident(an_alert(after(5), namespace="shop", deployment="web"))
    told = {"incident": incident, "symptoms": [complaint], "load": []}
    assert first(ranked(release, fewer, states=states, **told)) == ("Deployment", "web")
    assert first(ranked(release, fewer, states=[*states, *STATES], **told)) == ("StatefulSet", "ledger-db")
