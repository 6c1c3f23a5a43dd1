"""What an Alertmanager payload says of its alerts beside themselves: what they were grouped by."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

from app.collect.alerts import Alertmanager, PayloadError, parse
from app.collect.outbound import EndpointError
from app.core.alerted import LeftOut
from app.core.incidents.bundles import title
from app.core.model import Symptom
from app.core.objects.redact import Redactor

AT = datetime(2026, 11, 20, 12, tzinfo=UTC)
REDACTOR = Redactor(b"a key of at least 16 bytes")


def body(group: dict[str, str] | None, **labels: str) -> bytes:
    found = {"startsAt": AT.isoformat(), "labels": labels, "fingerprint": "f"}
    return json.dumps({"version": "4", "groupLabels": group, "alerts": [found]}).encode()


@pytest.mark.parametrize(
    ("labels", "group"),
    [
        ({"team": "payments", "alertname": "Down"}, "alertname=Down|team=payments"),
        ({}, ""),  # no group_by: everything is sent together
        (None, ""),
    ],
)
def test_an_alert_says_what_people_grouped_it_by(labels: dict[str, str] | None, group: str) -> None:
    (found,), _ = parse(body(labels, alertname="Down"), REDACTOR, received=AT)
    assert found.group == group


def test_a_group_is_redacted_as_labels_are() -> None:
    secret = "hunter2-hunter2-hunter2"
    (found,), _ = parse(body({"password": secret}, password=secret), REDACTOR, received=AT)
    assert secret not in found.group
    assert found.group == "|".join(f"{name}={value}" for name, value in found.labels)


def annotated(**annotations: str) -> Symptom:
    told = {"startsAt": AT.isoformat(), "labels": {"alertname": "Down"}, "annotations": annotations}
    (found,), _ = parse(json.dumps({"version": "4", "alerts": [told]}).encode(), REDACTOR, received=AT)
    return found


def test_what_a_rule_tells_people_beside_its_message_is_kept() -> None:
    url = "https://wiki.example/down"
    found = annotated(summary="It is down", description="All 3 of 3", message="Down!", runbook_url=url, dashboard="x")
    assert found.message == "It is down"
    assert dict(found.annotations) == {"description": "All 3 of 3", "message": "Down!", "runbook_url": url}
    assert annotated(description="All 3 of 3").annotations == (), "it is the message"


@pytest.mark.parametrize(
    "url", ["javascript:alert(1)", "//wiki.example", "https://wiki.example/\x1b[2J", "https://w.example/" + "x" * 2000]
)
def test_what_is_no_address_leads_nowhere(url: str) -> None:
    assert annotated(runbook_url=url).annotations == ()


def test_annotations_are_redacted_and_cut_and_can_be_shown() -> None:
    secret = "hunter2-hunter2-hunter2"
    long = f"\x1b[2J\u202ea\nb password={secret} " + "x" * 100_000
    found = annotated(summary=long, description=long + "!", runbook_url=f"https://bob:{secret}@wiki.example/down")
    said = dict(found.annotations)
    assert secret not in repr(found)
    assert (len(found.message), len(said["description"])) == (2000, 2000)
    assert found.message.startswith(" [2J a\nb password=<redacted:")
    assert said["runbook_url"].endswith("@wiki.example/down")


@pytest.mark.parametrize("name", ["", " "])
def test_an_alert_without_a_name_is_called_alert(name: str) -> None:
    (found,), _ = parse(body(None, alertname=name), REDACTOR, received=AT)
    assert found.reason == "Alert"


def grafana(**alert: object) -> bytes:
    """As https://grafana.com/docs/grafana/latest/alerting/configure-notifications/manage-contact-points/ has it."""
    fired: dict[str, object] = {
        "status": "firing",
        "labels": {"alertname": "Checkout is slow", "grafana_folder": "shop", "namespace": "payments"},
        "annotations": {"summary": "p99 is at 4 s"},
        "startsAt": "2026-11-20T13:00:00.5+01:00",
        "endsAt": "0001-01-01T00:00:00Z",
        "generatorURL": "https://grafana.example/alerting/grafana/fdk1/view?orgId=1",
        "fingerprint": "5fae0a0b1c2d3e4f",
        "silenceURL": "https://grafana.example/alerting/silence/new?alertmanager=grafana",
        "dashboardURL": "",
        "panelURL": "",
        "values": {"A": 4.2, "C": 1},
        "valueString": "[ var='A' labels={} value=4.2 ]",
    }
    whole = {
        "receiver": "foreshock",
        "status": "firing",
        "orgId": 1,
        "alerts": [fired | alert],
        "groupLabels": {"grafana_folder": "shop"},
        "commonLabels": {},
        "commonAnnotations": {},
        "externalURL": "https://grafana.example/",
        "version": "1",
        "groupKey": "{}:{}",
        "truncatedAlerts": 0,
        "title": "[FIRING:1] Checkout is slow",
        "state": "alerting",
        "message": "**Firing**",
    }
    return json.dumps(whole).encode()


def test_grafana_sends_the_same_and_more() -> None:
    (found,), left_out = parse(grafana(), REDACTOR, received=AT)
    assert left_out == []
    assert (found.reason, found.fingerprint, found.message) == ("Checkout is slow", "5fae0a0b1c2d3e4f", "p99 is at 4 s")
    assert found.at == AT.replace(microsecond=500_000)
    assert (found.ended_at, found.group) == (None, "grafana_folder=shop")


def test_that_a_contact_point_is_tested_is_no_alert() -> None:
    labels = {"alertname": "TestAlert", "instance": "Grafana", "team": "shop"}
    body = grafana(labels=labels, annotations={"summary": "Notification test"}, values=None)
    assert parse(body, REDACTOR, received=AT) == ([], [LeftOut("Grafana's test of a contact point", "")])
    (found,), _ = parse(grafana(labels=labels | {"alertname": "Mine"}), REDACTOR, received=AT)
    assert found.reason == "Mine"


@pytest.mark.parametrize(
    ("alertname", "reason"),
    [("DatasourceNoData", "Checkout is slow has no data"), ("DatasourceError", "Checkout is slow cannot be evaluated")],
)
def test_a_rule_that_grafana_could_not_evaluate_is_named(alertname: str, reason: str) -> None:
    labels = {"alertname": alertname, "rulename": "Checkout is slow", "datasource_uid": "prom", "ref_id": "A"}
    (found,), _ = parse(grafana(labels=labels, values=None), REDACTOR, received=AT)
    assert found.reason == reason


def test_another_version_is_refused_in_words() -> None:
    with pytest.raises(PayloadError, match="neither"):
        parse(json.dumps({"version": "5", "alerts": []}).encode(), REDACTOR, received=AT)


def test_how_many_a_receiver_did_not_send_is_said() -> None:
    told = json.loads(body(None, alertname="Down")) | {"truncatedAlerts": 31}
    (found,), left_out = parse(json.dumps(told).encode(), REDACTOR, received=AT)
    assert found.reason == "Down"
    assert left_out == [LeftOut("31 alerts more that were not sent: set max_alerts: 0", "truncated", 31)]
    assert parse(json.dumps(told | {"truncatedAlerts": -3}).encode(), REDACTOR, received=AT)[1] == []


@pytest.mark.parametrize(("ahead", "counts"), [(4, 4), (6, 0), (20 * 60, 0)])
def test_an_alert_of_a_clock_that_is_far_ahead_began_when_it_was_told(ahead: int, counts: int) -> None:
    """A few minutes are told as they are: the same alert has one start, each time that it is told."""
    told = json.loads(body(None, alertname="Down"))
    told["alerts"][0]["startsAt"] = (AT + timedelta(minutes=ahead)).isoformat()
    (firing,), _ = parse(json.dumps(told).encode(), REDACTOR, received=AT)
    assert (firing.at, firing.ended_at) == (AT + timedelta(minutes=counts), None)
    told["alerts"][0] |= {"status": "resolved", "endsAt": (AT + timedelta(minutes=ahead + 1)).isoformat()}
    (ended,), _ = parse(json.dumps(told).encode(), REDACTOR, received=AT)
    assert ended.ended_at is not None
    assert AT <= ended.at <= ended.ended_at <= AT + timedelta(minutes=5)


@pytest.mark.parametrize("ahead", [timedelta(minutes=3), timedelta(hours=2)])
def test_an_end_that_is_still_to_come_is_when_it_was_told(ahead: timedelta) -> None:
    told = json.loads(body(None, alertname="Down"))
    times = {"startsAt": (AT - timedelta(hours=1)).isoformat(), "endsAt": (AT + ahead).isoformat()}
    told["alerts"][0] |= times | {"status": "resolved"}
    (ended,), _ = parse(json.dumps(told).encode(), REDACTOR, received=AT)
    assert ended.ended_at == AT


@pytest.mark.parametrize("matcher", ["cluster='shop'", '{cluster="shop"}', 'a="b", c="d"', "cluster", "cluster=", ""])
def test_a_matcher_that_alertmanager_would_take_for_another_is_refused(matcher: str) -> None:
    with pytest.raises(EndpointError, match="matchers: "):
        Alertmanager("http://alertmanager:9093", matchers=(matcher,))


@pytest.mark.parametrize("matcher", ['cluster="shop"', "cluster=shop", ' a =~ "b|c" ', 'a=""', '"k8s.io/x" != "y\\"z"'])
def test_matchers_are_taken_as_alertmanager_reads_them(matcher: str) -> None:
    Alertmanager("http://alertmanager:9093", matchers=(matcher,))


def test_names_and_labels_are_kept_as_far_as_a_person_reads_them() -> None:
    told = {"alertname": "D" * 5000, "blob": "x y " * 750_000, "n" * 3000: "1"} | {f"z{n:03}": "1" for n in range(200)}
    (found,), _ = parse(body(None, **told), REDACTOR, received=AT)
    labels = dict(found.labels)
    assert (found.reason, len(labels["blob"])) == ("D" * 199 + "…", 2000)
    assert (len(labels), max(map(len, labels)), len(title([found]))) == (100, 200, 200)


def test_alerts_without_a_fingerprint_whose_long_labels_differ_are_two() -> None:
    first, second = (
        parse(body(None, alertname="Down", a="x y " * 500, b=end).replace(b'"f"', b'""'), REDACTOR, received=AT)[0][0]
        for end in ("1", "2")
    )
    assert (first.fingerprint == second.fingerprint, len(first.fingerprint)) == (False, 32)


def test_an_alert_that_neither_fires_nor_is_resolved_is_left_out_with_the_reason() -> None:
    told = {"startsAt": AT.isoformat(), "labels": {"alertname": "Down"}, "fingerprint": "f"}
    body = json.dumps({"version": "4", "alerts": [{**told, "status": "silly"}, {**told, "status": "firing"}]}).encode()
    found, (left,) = parse(body, REDACTOR, received=AT)
    assert len(found) == 1
    assert left.why.startswith("alert 1 of 2: ")
    assert "silly" in left.why
