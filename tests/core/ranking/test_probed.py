"""A host that is not answered from outside, while the app behind it answers: it is on the way there."""

from __future__ import annotations

import pytest

from app.core.edges.causes import RECORDS
from app.core.edges.indexing import topology
from app.core.edges.program_causes import NAMES
from app.core.edges.reach import reach
from app.core.entities import Entity
from app.core.model import Json, Path
from app.core.ranking.probed import BEFORE_ALL, ON_THE_WAY, with_probed
from app.core.signals.complaints import symptom_signals
from app.core.signals.signal import Signal, SignalKind
from tests.core.edges.test_front_doors import company
from tests.core.factories import NOON, a_change, a_resource, a_symptom, after, an_alert, an_incident

WALLET: Entity = ("workload", "pay", "wallet")
ENTRANCE: Entity = ("entrance", "pay", "wallet")


def found(*signals: Signal, answering: set[Entity], host: str = "wallet.corp.example") -> list[Signal]:
    incident = an_incident(an_alert(NOON, name="ProbeFailed", instance=f"https://{host}"))
    return with_probed(signals, incident, topology(company()), answering=lambda: answering, is_held=False)


def test_what_answers_behind_a_host_is_not_what_keeps_it_from_being_answered() -> None:
    (signal,) = found(answering={WALLET})
    assert signal.sentence == "from outside one host is not answered, while what is behind answers"
    assert signal.about[ENTRANCE] == ON_THE_WAY
    assert WALLET not in signal.about


def test_of_what_counts_no_answers_it_is_not_known() -> None:
    assert found(answering=set()) == []
    assert found(answering={WALLET}, host="other.corp.example") == []


def test_what_complains_behind_it_says_enough() -> None:
    complaint = Signal(
        kind=SignalKind.SYMPTOM, low=NOON, high=NOON, strength=0.5, about={WALLET: 1.0}, sentence="fails"
    )
    assert found(complaint, answering={WALLET}) == [complaint]


@pytest.mark.parametrize(("kind", "name"), [("Ingress", "wallet"), ("Secret", "wallet-tls")])
def test_what_a_host_is_shown_by_is_its_entrance(kind: str, name: str) -> None:
    assert ENTRANCE in reach(a_change(a_resource(kind, name, "pay"), path=("spec", "x")), topology(company()))


@pytest.mark.parametrize(
    ("host", "keeps"), [("wallet.corp.example", True), ("elsewhere.example", False), ("wallet.pay", False)]
)
def test_a_host_that_the_cluster_serves_and_programs_do_not_find_is_of_who_keeps_its_record(
    host: str, *, keeps: bool
) -> None:
    told = a_symptom(
        a_resource("Deployment", "bff", "mobile"), "Error", at=NOON, message=f"getaddrinfo ENOTFOUND {host}"
    )
    [signal] = symptom_signals([told], start=after(-60), end=after(30))
    assert signal.cause is NAMES
    [found] = found_of(signal)
    assert (found.cause is RECORDS) is keeps
    assert (found.about.get(("agent", "records")) == ON_THE_WAY) is keeps


def found_of(signal: Signal) -> list[Signal]:
    incident = an_incident(an_alert(NOON, name="Failing", namespace="mobile"))
    return with_probed([signal], incident, topology(company()), answering=set, is_held=False)


@pytest.mark.parametrize(
    ("kind", "path", "new", "leads"),
    [
        ("Ingress", ("spec", "rules", 0, "host"), "a.example", True),
        ("Ingress", ("metadata", "annotations", "external-dns.alpha.kubernetes.io/hostname"), "a.example", True),
        ("Ingress", ("metadata", "annotations", "nginx.ingress.kubernetes.io/proxy-body-size"), "2m", False),
        ("Ingress", ("metadata", "annotations", "nginx.ingress.kubernetes.io/upstream-vhost"), "a.example", False),
        ("Ingress", ("spec", "rules", (("host", "a.example"),), "http", "paths"), [], False),
        ("Ingress", ("spec", "tls", 0), {"hosts": ["a.example"], "secretName": "a"}, True),
        ("Deployment", ("spec", "replicas"), 3, False),
    ],
)
def test_what_names_no_hosts_takes_no_record_away(kind: str, path: Path, new: Json, *, leads: bool) -> None:
    assert RECORDS.leads(a_change(a_resource(kind, "wallet", "pay"), path=path, new=new)) is leads


@pytest.mark.parametrize(
    ("message", "keeps"),
    [
        ("dial tcp: lookup wallet.corp.example: no such host", True),
        ("https://wallet.corp.example cannot be reached, dns failed", True),
        ("https://wallet.corp.example: 502 Bad Gateway", False),
    ],
)
def test_a_host_that_is_not_found_by_its_name_is_of_who_keeps_that(message: str, *, keeps: bool) -> None:
    incident = an_incident(an_alert(NOON, name="ProbeFailed", message=message))
    told = with_probed([], incident, topology(company()), answering=set, is_held=False)
    assert [one.about for one in told] == (
        [{("agent", "records"): ON_THE_WAY, ("agent", "dns"): BEFORE_ALL}] if keeps else []
    )
