"""Alertmanager's webhook payload (version 4; Grafana sends the same) -> alerts as symptoms.

Format: https://prometheus.io/docs/alerting/latest/configuration/#webhook_config
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import msgspec

from app.core.model import Symptom, SymptomSource
from app.core.redact import Redactor, clean

NOT_ENDED_YEAR = 1
"""endsAt 0001-01-01 is Go's zero time: the alert still fires."""


Instant = Annotated[datetime, msgspec.Meta(tz=True)]


class RawAlert(msgspec.Struct):
    startsAt: Instant  # noqa: N815 - the wire's name
    status: str = "firing"
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    endsAt: Instant | None = None  # noqa: N815
    fingerprint: str = ""


class RawPayload(msgspec.Struct):
    alerts: list[RawAlert]
    version: str = "4"


class PayloadError(ValueError):
    """The body is not an Alertmanager webhook payload; the message says what is wrong."""


def parse(body: bytes, redactor: Redactor) -> list[Symptom]:
    """The alerts of one payload, redacted. Raises PayloadError."""
    try:
        payload = msgspec.json.decode(body, type=RawPayload)
    except msgspec.MsgspecError as error:
        raise PayloadError(f"not an Alertmanager webhook payload (version 4): {error}") from None
    if payload.version != "4":
        raise PayloadError('the version is not "4"')
    return [_symptom(alert, redactor) for alert in payload.alerts]


def _symptom(alert: RawAlert, redactor: Redactor) -> Symptom:
    known = {clean(name): redactor.label(name, value) for name, value in alert.labels.items()}
    labels = tuple(sorted(known.items()))
    said = alert.annotations.get("summary") or alert.annotations.get("description") or alert.annotations.get("message")
    ended = alert.endsAt if alert.status == "resolved" and alert.endsAt and alert.endsAt.year > NOT_ENDED_YEAR else None
    return Symptom(
        source=SymptomSource.ALERT,
        reason=known.get("alertname", "Alert"),
        at=alert.startsAt,
        fingerprint=redactor.text(alert.fingerprint) or "|".join(f"{n}={v}" for n, v in labels),
        message=redactor.text(said or ""),
        severity=known.get("severity", ""),
        ended_at=ended,
        labels=labels,
    )
