"""What the evidence says, word for word, and what it weighs a change's fields by."""

from __future__ import annotations

import pytest

from app.core.model import Change, Json, Path
from app.core.phrases import excerpt
from tests.core.company import background, ranked
from tests.core.factories import a_change, a_resource, a_symptom, a_workload, after, an_alert, an_incident, calls

HOME = a_resource("Deployment", "account-api", "accounts")
ALERT = an_alert(after(40), name="PodsPending", namespace="accounts", deployment="account-api")


def said(change: Change, rule: str, **given: object) -> str:
    ranking = ranked(change, incident=an_incident(ALERT), **given)
    suspect = next(one for one in ranking.suspects if one.change is change)
    return next((one.sentence for one in suspect.evidence if one.rule == rule), "")


def test_why_a_pod_finds_no_room_is_told() -> None:
    message = "0/12 nodes are available: 12 Insufficient cpu."
    change = a_change(HOME, at=after(-10), path=("spec", "template", "spec", "containers", "resources"))
    sentence = said(
        change,
        "symptoms",
        symptoms=[a_symptom(HOME, "FailedScheduling", at=after(-8), message=message, count=6)],
        states=[a_workload(HOME)],
    )
    assert sentence == f'FailedScheduling ×6 on account-api, 1 s after this change: "{message}".'


def test_a_message_that_says_no_more_than_the_reason_is_left_out() -> None:
    sentence = said(
        a_change(HOME, at=after(-10)),
        "symptoms",
        symptoms=[a_symptom(HOME, "BackOff", at=after(-8), message="Back-off restarting container", count=6)],
        states=[a_workload(HOME)],
    )
    assert sentence == "BackOff ×6 on account-api, 1 s after this change."


def test_names_are_written_as_they_are() -> None:
    secret = a_change(a_resource("Secret", "account-tls", "accounts"), at=after(-10), path=("data", "key"))
    symptom = a_symptom(HOME, "FailedMount", at=after(-8), message="", count=6)
    mounts = a_workload(HOME, volumes=[{"name": "t", "secret": {"secretName": "account-tls"}}])
    assert said(secret, "symptoms", symptoms=[symptom], states=[mounts]).startswith("account-api depends on it:")
    user = "system:serviceaccount:accounts:account-api"
    load = [*background(), *calls(user, "list", "pods", rate=40, start=-8)]
    own = a_workload(HOME, serviceAccountName="account-api")
    assert said(a_change(HOME, at=after(-10)), "load", load=load, states=[own]).startswith("account-api went from 0")


@pytest.mark.parametrize(
    ("kind", "path", "ties"),
    [
        ("Service", ("spec", "selector", "app"), True),
        ("Ingress", ("spec", "rules", "http", "backend", "service", "name"), True),
        ("RoleBinding", ("roleRef", "name"), False),  # what it allows is told instead
        ("Component", ("spec", "secretStoreRef", "name"), True),
        ("Component", ("metadata", "labels", "helm.sh/chart"), False),
        ("Component", ("spec", "owner"), False),
    ],
)
def test_fields_that_tie_objects_together(kind: str, path: Path, ties: bool) -> None:
    change = a_change(a_resource(kind, "one", "accounts"), at=after(-10), path=path, old="a", new="b")
    assert said(change, "kind of change").startswith("It changes a field that ties objects together") is ties


@pytest.mark.parametrize(
    ("old", "new", "slight"),
    [
        *(
            ("800", "1200", True),
            ("30s", "20s", True),
            (4, 5, True),
            ("1.5", "1.0", True),
            ("30", "60", True),
            ("30", "61", False),
        ),
        *(("800", "80", False), ("30s", "30m", False), ("5", "-5", False), ("5", "0", False), ("a", "b", False)),
        *((None, "5", False), (True, False, False), ("9" * 400, "9" * 399, False)),
        ("max_connections = 200\nwork_mem = 16MB\n", "max_connections = 200\nwork_mem = 24MB\n", True),
        ("max_connections = 200\nwork_mem = 16MB\n", "max_connections = 50\nwork_mem = 24MB\n", False),
        *(("app:1.2.3", "app:1.2.2", False), ("db:5432", "db:5433", False), ("10.0.0.8", "10.0.0.9", False)),
        *(("hidden", "hidden", False), ("mode: a 4", "mode: b 4", False)),
    ],
)
def test_a_setting_that_is_tuned_a_little(old: Json, new: Json, *, slight: bool) -> None:
    change = a_change(a_resource("ConfigMap", "one", "accounts"), at=after(-10), path=("data", "n"), old=old, new=new)
    assert said(change, "kind of change") == ("It only changes numbers, by a factor of two at most." if slight else "")


@pytest.mark.parametrize(
    ("old", "new", "first"),
    [
        (None, "40", True),
        (None, {"name": "POOL", "value": "40"}, True),
        (None, [{"name": "POOL", "value": "40"}, {"name": "TTL", "value": "30s"}], True),
        (None, [{"name": "POOL", "value": "40"}, {"name": "MODE", "value": "session"}], False),
        (None, {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "a", "key": "b"}}}, False),
        ("20", "40", False),
    ],
)
def test_an_amount_that_is_told_for_the_first_time_is_no_news(old: Json, new: Json, *, first: bool) -> None:
    path: Path = ("spec", "template", "spec", "containers", (("name", "a"),), "env", (("name", "POOL"),), "value")
    change = a_change(a_resource("Deployment", "one", "accounts"), at=after(-10), path=path, old=old, new=new)
    told = said(change, "kind of change")
    assert (told == "It only says how much, of what nothing was said before.") is first
    assert (said(change, "novelty") == "") is first


@pytest.mark.parametrize(
    ("name", "old", "new", "more"),
    [("maxReplicas", 8, 12, True), ("maxReplicas", 12, 8, False), ("minReplicas", 2, 4, False)],
)
def test_a_higher_ceiling_of_an_autoscaler_is_no_news(name: str, old: int, new: int, *, more: bool) -> None:
    scaler = a_resource("HorizontalPodAutoscaler", "one", "accounts")
    change = a_change(scaler, at=after(-10), path=("spec", name), old=old, new=new)
    assert (said(change, "kind of change") == "It only lets an autoscaler make more pods.") is more


def test_another_port_is_no_tuned_number() -> None:
    settings = a_resource("ConfigMap", "one", "accounts")
    for key, slight in (("SMTP_PORT", False), ("smtp.port", False), ("EXPORT", True)):
        assert (
            bool(said(a_change(settings, at=after(-10), path=("data", key), old="587", new="465"), "kind of change"))
            is slight
        )


@pytest.mark.parametrize(
    ("key", "old", "new", "less"),
    [
        ("LOG_LEVEL", "info", "warn", True),
        ("log.level", "DEBUG", "INFO", True),
        ("LOG_LEVEL", "info", "debug", False),
        ("LEVEL_OF_CARE", "info", "warn", False),
        ("LOG_LEVEL", "info", "quiet", False),
    ],
)
def test_a_program_that_logs_less(key: str, old: str, new: str, *, less: bool) -> None:
    change = a_change(a_resource("ConfigMap", "one", "accounts"), at=after(-10), path=("data", key), old=old, new=new)
    assert said(change, "kind of change") == ("It only has a program log less." if less else "")


def test_an_excerpt_is_one_line_cut_at_a_word() -> None:
    assert excerpt("a\n  b") == "a b"
    assert excerpt("word " * 40) == "word " * 27 + "word …"
