from __future__ import annotations

import json
from datetime import UTC, datetime
from io import BytesIO

import pytest

from app.collect.alerts import PayloadError, parse
from app.collect.files import lines
from app.collect.openmetrics import parse as parse_metrics
from app.collect.shift import shift_times
from app.core.model import MetricSeries, Symptom
from app.core.objects.redact import Redactor

REDACTOR = Redactor(b"a key that only the tests know..")
RECEIVED = datetime(2026, 11, 20, 13, tzinfo=UTC)
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


def alerts_of(body: bytes) -> list[Symptom]:
    found, unusable = parse(body, REDACTOR, received=RECEIVED)
    assert unusable == []
    return found


def test_an_alert_still_fires_at_the_zero_time() -> None:
    (symptom,) = alerts_of(payload())
    assert symptom.ended_at is None
    assert (symptom.reason, symptom.severity, symptom.fingerprint) == ("KubeAPIDown", "critical", "abc")


def test_a_resolved_alert_has_ended() -> None:
    (symptom,) = alerts_of(payload(status="resolved", endsAt="2026-11-20T12:05:00Z"))
    assert symptom.ended_at is not None


def test_what_an_alert_says_is_redacted() -> None:
    labels = {"alertname": "Down", "token": "hunter2", "severity": "https://bob:hunter2@x/", "secret": "db"}
    (symptom,) = alerts_of(payload(labels=labels, fingerprint="password=hunter2"))
    assert "hunter2" not in repr(symptom)
    assert dict(symptom.labels)["secret"] == "db", "a label that names a Secret"


def test_the_labels_of_series_are_redacted() -> None:
    line = b'apiserver_request_total{verb="LIST",token="hunter2",client="Bearer hunter2hunter2"} 5 1795238501.5'
    (series,), _ = metrics(b"# TYPE apiserver_request counter\n" + line)
    assert "hunter2" not in repr(series)
    assert dict(series.labels)["verb"] == "LIST"


def test_an_alert_without_a_zone_is_refused() -> None:
    found, [unusable] = parse(payload(startsAt="2026-11-20T12:00:00"), REDACTOR, received=RECEIVED)
    assert found == []
    assert "timezone" in unusable.why


@pytest.mark.parametrize("body", [b"{}", b"[]", b"nonsense", b'{"version":"3","alerts":[]}'])
def test_what_is_no_payload_is_refused_in_words(body: bytes) -> None:
    with pytest.raises(PayloadError):
        parse(body, REDACTOR, received=RECEIVED)


METRICS = b"""# TYPE apiserver_request counter
apiserver_request_total{verb="LIST",code="200"} 5 1795238501.5
apiserver_request_total{verb="LIST",code="200"} 9 1795238506.5
# TYPE nobody_looks_at_this gauge
nobody_looks_at_this 1 1795238501.5
# EOF
"""


def metrics(body: bytes) -> tuple[list[MetricSeries], list[tuple[int, str]]]:
    """The series in a text, and the lines that were refused with their reason."""
    refused: list[tuple[int, str]] = []
    found = parse_metrics(
        lines(BytesIO(body)),
        REDACTOR,
        refuse=lambda line, reason: refused.append((line.number, reason)),
        between=(1.7e9, 1.9e9),
    )
    return list(found), refused


def test_only_families_that_are_read_are_kept() -> None:
    (series,), refused = metrics(METRICS)
    assert refused == []
    assert series.name == "apiserver_request_total"
    assert series.values == (5.0, 9.0)
    assert series.times == (1795238501.5, 1795238506.5)


BAD = {
    "no timestamp": (b"apiserver_request_total 5", 1, "no timestamp"),
    "a label without its end": (b'apiserver_request_total{verb="x} 5 1', 3, "neither OpenMetrics nor"),
    "no number": (b"apiserver_request_total five 1795238501.5", 3, "neither OpenMetrics nor"),
    "another age": (b"apiserver_request_total 5 95238501", 1, "in seconds since 1970?"),
    "no time at all": (b"apiserver_request_total 5 NaN", 3, "neither OpenMetrics nor"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_sample_is_refused_where_it_stands_and_other_families_stay(name: str) -> None:
    line, number, said = BAD[name]
    body = b"# TYPE apiserver_request counter\n"
    good = b"# TYPE process_start_time_seconds gauge\nprocess_start_time_seconds 7 1795238501.5\n"
    body += b'apiserver_request_total{verb="LIST"} 5 1795238501.5\n' + line + b"\n" + good
    series, refused = metrics(body)
    ((at, reason),) = refused
    assert said in reason
    assert at == number
    assert series[-1].values == (7.0,)


PROMETHEUS = """# HELP apiserver_request_total Counter of requests.
# TYPE apiserver_request_total counter
apiserver_request_total{verb="LIST"} 5 1795238501500
apiserver_request_total{verb="LIST"} 9 1795238506500
# TYPE process_start_time_seconds gauge
process_start_time_seconds 7 1795238501500
# TYPE apiserver_request_duration_seconds histogram
apiserver_request_duration_seconds_bucket{le="+Inf"} 4 1795238501500
apiserver_request_duration_seconds_sum 3 1795238501500
apiserver_request_duration_seconds_count 4 1795238501500
"""


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("unit", ["milliseconds", "seconds"])
def test_what_the_control_plane_exposes_is_read(end: str, unit: str) -> None:
    text = PROMETHEUS.replace("500\n", "500\n" if unit == "milliseconds" else ".5\n").replace("\n", end)
    text = text if unit == "milliseconds" else text.replace("1.5", "1").replace("6.5", "6")
    found, refused = metrics(text.encode())
    assert refused == []
    assert {(one.name, one.values) for one in found} == {
        ("apiserver_request_total", (5.0, 9.0)),
        ("process_start_time_seconds", (7.0,)),
        ("apiserver_request_duration_seconds_sum", (3.0,)),
        ("apiserver_request_duration_seconds_count", (4.0,)),
    }
    half = 0.5 if unit == "milliseconds" else 0.0
    assert {time for one in found for time in one.times} == {1795238501 + half, 1795238506 + half}
    assert {one.kind for one in found} == {"counter", "gauge", "histogram"}


def test_openmetrics_with_the_line_ends_of_windows_is_read() -> None:
    found, refused = metrics(METRICS.replace(b"\n", b"\r\n"))
    assert refused == []
    assert found == metrics(METRICS)[0] != []


def test_a_bad_line_of_prometheus_text_is_refused_alone() -> None:
    lines = PROMETHEUS.splitlines()
    lines[3] = 'apiserver_request_total{verb="LIST} 9 1795238506500'
    found, refused = metrics("\n".join(lines).encode())
    assert [number for number, _ in refused] == [4]
    assert [one.values for one in found if one.name == "apiserver_request_total"] == [(5.0,)]


def test_a_family_of_bad_lines_is_given_up() -> None:
    body = b"# TYPE apiserver_request counter\n" + b"apiserver_request_total x y\n" * 500
    series, refused = metrics(body + b"# EOF\n")
    assert series == []
    assert len(refused) == 21
    assert "left out" in refused[-1][1]


def test_times_move_and_zero_stays() -> None:
    moved = shift_times(b'{"at":"2026-11-20T12:00:00.5Z","end":"0001-01-01T00:00:00Z","x":"2026"}', seconds=3600)
    assert moved == b'{"at":"2026-11-20T13:00:00.5Z","end":"0001-01-01T00:00:00Z","x":"2026"}'


@pytest.mark.parametrize(
    ("family", "name"),
    [("apiserver_admission_webhook_rejection_count",) * 2, ("http_requests", "http_requests_total")],
    ids=["prometheus", "openmetrics"],
)
def test_a_counter_is_called_as_its_samples_are(family: str, name: str) -> None:
    (series,), refused = metrics(f'# TYPE {family} counter\n{name}{{name="a"}} 3 1795238501\n'.encode())
    assert (series.name, series.kind, series.values) == (name, "counter", (3.0,))
    assert not refused
