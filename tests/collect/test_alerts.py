"""What an Alertmanager payload says of its alerts beside themselves: what they were grouped by."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from app.collect.alerts import parse
from app.core.redact import Redactor

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


@pytest.mark.parametrize("name", ["", " "])
def test_an_alert_without_a_name_is_called_alert(name: str) -> None:
    (found,), _ = parse(body(None, alertname=name), REDACTOR, received=AT)
    assert found.reason == "Alert"
