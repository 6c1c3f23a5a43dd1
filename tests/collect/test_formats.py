from __future__ import annotations

import json

import pytest

from app.collect.alerts import PayloadError, parse
from app.collect.openmetrics import MetricsError
from app.collect.openmetrics import parse as parse_metrics
from app.collect.shift import shift_times
from app.core.redact import Redactor

REDACTOR = Redactor(b"a key that only the tests know..")
ALERT = {
    "status": "firing",
    "labels": {"alertname": "KubeAPIDown", "severity": "critical"},
    "annotations": {"summary": "password=hunter2 is down"},
    "startsAt": "2026-11-20T12:00:00Z",
    "endsAt": "0001-01-01T00:00:00Z",
    "fingerprint": "abc",
}


def payload(**alert: object) -> bytes:
    return json.dumps({"version": "4", "alerts": [ALERT | alert]}).encode()


def test_an_alert_still_fires_at_the_zero_time() -> None:
    (symptom,) = parse(payload(), REDACTOR)
    assert symptom.ended_at is None
    assert (symptom.reason, symptom.severity, symptom.fingerprint) == ("KubeAPIDown", "critical", "abc")


def test_a_resolved_alert_has_ended() -> None:
    (symptom,) = parse(payload(status="resolved", endsAt="2026-11-20T12:05:00Z"), REDACTOR)
    assert symptom.ended_at is not None


def test_what_an_alert_says_is_redacted() -> None:
    labels = {"alertname": "Down", "token": "hunter2", "severity": "https://bob:hunter2@x/", "secret": "db"}
    (symptom,) = parse(payload(labels=labels, fingerprint="password=hunter2"), REDACTOR)
    assert "hunter2" not in repr(symptom)
    assert dict(symptom.labels)["secret"] == "db", "a label that names a Secret"


def test_the_labels_of_series_are_redacted() -> None:
    line = b'apiserver_request_total{verb="LIST",token="hunter2",client="Bearer hunter2hunter2"} 5 1795238501.5'
    (series,) = parse_metrics([b"# TYPE apiserver_request counter", line], REDACTOR)
    assert "hunter2" not in repr(series)
    assert dict(series.labels)["verb"] == "LIST"


@pytest.mark.parametrize("body", [b"{}", b"[]", b"nonsense", b'{"version":"3","alerts":[]}'])
def test_what_is_no_payload_is_refused_in_words(body: bytes) -> None:
    with pytest.raises(PayloadError):
        parse(body, REDACTOR)


METRICS = b"""# TYPE apiserver_request counter
apiserver_request_total{verb="LIST",code="200"} 5 1795238501.5
apiserver_request_total{verb="LIST",code="200"} 9 1795238506.5
# TYPE nobody_looks_at_this gauge
nobody_looks_at_this 1 1795238501.5
# EOF
"""


def test_only_families_that_are_read_are_kept() -> None:
    (series,) = parse_metrics(METRICS.splitlines(), REDACTOR)
    assert series.name == "apiserver_request_total"
    assert series.values == (5.0, 9.0)
    assert series.times == (1795238501.5, 1795238506.5)


@pytest.mark.parametrize("line", [b"apiserver_request_total 5", b'apiserver_request_total{verb="x} 5 1'])
def test_a_bad_sample_is_refused(line: bytes) -> None:
    with pytest.raises(MetricsError):
        list(parse_metrics([b"# TYPE apiserver_request counter", line], REDACTOR))


def test_times_move_and_zero_stays() -> None:
    moved = shift_times(b'{"at":"2026-11-20T12:00:00.5Z","end":"0001-01-01T00:00:00Z","x":"2026"}', seconds=3600)
    assert moved == b'{"at":"2026-11-20T13:00:00.5Z","end":"0001-01-01T00:00:00Z","x":"2026"}'
