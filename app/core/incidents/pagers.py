"""What pagers send of their incidents and alerts -> our alerts, as symptoms.

PagerDuty: https://developer.pagerduty.com/docs/webhooks-overview (version 3 of its webhooks).
Opsgenie: https://support.atlassian.com/opsgenie/docs/opsgenie-edge-connector-alert-action-data/ (its webhooks send the
same).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from app.core.findings import Incident
from app.core.model import Symptom, SymptomSource
from app.core.objects.redact import Redactor, decode
from app.core.objects.redact_text import clean

LATE = timedelta(days=7)
"""What is told so long after it occurred says so (its label ``told_late``): a sender's queue was emptied."""
LONGEST = 200
"""Characters of a name that are kept."""
Instant = Annotated[datetime, msgspec.Meta(tz=True)]


@dataclass(frozen=True, slots=True)
class Paged:
    """What was sent: an alert, known again by the ``event`` that told of it; or why it tells of none, in words.

    ``unknown``: it is of a kind that we do not know, which is counted. ``since`` is when the pager first called for it,
    where the alert began anew after that. Without ``dated`` it was not told when the alert was made, which then is as
    of when it was told.
    """

    alert: Symptom | None
    event: str = ""
    since: datetime | None = None
    left_out: str = ""
    unknown: bool = False
    dated: bool = True


class RawReference(Struct):
    """Something else that an incident names."""

    summary: str | None = None


class RawIncident(Struct):
    """An incident of PagerDuty."""

    id: str
    created_at: Instant
    title: str = ""
    html_url: str | None = None
    urgency: str | None = None
    priority: RawReference | None = None
    service: RawReference | None = None


class RawEvent(Struct):
    """An event of PagerDuty; ``data`` is what its ``event_type`` says."""

    id: str
    event_type: str
    occurred_at: Instant | None = None
    data: Any = None


class RawPagerDuty(Struct):
    """The body of a webhook."""

    event: RawEvent


_FIRING = frozenset({"incident.triggered", "incident.acknowledged", "incident.priority_updated"})
_PRIORITIES = {"P1": "critical", "P2": "error", "P3": "warning", "P4": "warning", "P5": "info"}
"""Opsgenie's, and what PagerDuty's are called unless an account names its own."""


def pagerduty(body: bytes, redactor: Redactor, *, received: datetime) -> Paged:
    """An event of PagerDuty: one alert for each of its incidents. Raises ValueError, in words, for what is none."""
    event = msgspec.convert(decode(body), RawPagerDuty).event
    if event.event_type == "pagey.ping":
        return Paged(None, left_out="a ping")
    if event.event_type not in _FIRING | {"incident.resolved", "incident.reopened"}:
        return Paged(None, left_out=f"{redactor.text(event.event_type)[:LONGEST]}: nothing is made of it", unknown=True)
    incident = msgspec.convert(event.data, RawIncident)
    occurred = event.occurred_at or received
    name = redactor.text(incident.title)[:LONGEST].strip() or "PagerDuty incident"
    told = {
        "alertname": name,
        "severity": _severity(incident),
        "pagerduty_service": (incident.service.summary if incident.service else None) or "",
        "pagerduty_url": incident.html_url or "",
    }
    alert = _alert(
        name,
        told,
        redactor,
        at=occurred if event.event_type == "incident.reopened" else incident.created_at,
        fingerprint=f"pagerduty:{incident.id}",
    )
    if event.event_type == "incident.resolved":
        alert = replace(alert, ended_at=max(min(occurred, received), alert.at))
    if received - occurred > LATE:
        late = ("told_late", f"{(received - occurred).days} days")
        alert = replace(alert, labels=tuple(sorted((*alert.labels, late))))
    return Paged(alert, f"pagerduty {event.id}", incident.created_at.astimezone(UTC))


def _severity(incident: RawIncident) -> str:
    """By its priority, where that has one of the usual names; else by how urgent it is."""
    priority = (incident.priority.summary if incident.priority else None) or ""
    return _PRIORITIES.get(priority) or {"high": "critical", "low": "warning"}.get(incident.urgency or "", "")


class RawOpsgenieAlert(Struct):
    """An alert of Opsgenie; ``createdAt`` is milliseconds since 1970, ``details`` what its sender said."""

    alertId: str  # noqa: N815 - the wire's names
    message: str | None = None
    createdAt: int | str | None = None  # noqa: N815
    description: str | None = None
    entity: str | None = None
    priority: str | None = None
    details: dict[str, Any] | None = None


class RawOpsgenie(Struct):
    """What an action did to an alert."""

    action: str
    alert: RawOpsgenieAlert


_OPENING = frozenset(
    {"Create", "Acknowledge", "UnAcknowledge", "Snooze", "SnoozeEnded", "Escalate", "EscalateNext", "UpdatePriority"}
)
_CLOSING = frozenset({"Close", "Delete"})


def opsgenie(body: bytes, redactor: Redactor, *, received: datetime) -> Paged:
    """An action of Opsgenie: one alert for each of its alerts. Raises ValueError, in words, for what is none.

    When it was done is not told: a close is as of ``received``.
    """
    told = msgspec.convert(decode(body), RawOpsgenie)
    raw = told.alert
    if told.action not in _OPENING | _CLOSING:
        return Paged(None, left_out=f"{redactor.text(told.action)[:LONGEST]}: nothing is made of it", unknown=True)
    name = redactor.text(raw.message or "")[:LONGEST].strip() or "Opsgenie alert"
    details = {key: _text(value) for key, value in (raw.details or {}).items() if value is not None}
    labels = details | {"severity": _PRIORITIES.get(raw.priority or "", ""), "opsgenie_entity": raw.entity or ""}
    alert = _alert(
        name,
        {"alertname": name} | labels,
        redactor,
        at=received if raw.createdAt is None else _moment(raw.createdAt),
        fingerprint=f"opsgenie:{raw.alertId}",
        message=raw.description or "",
    )
    if told.action in _CLOSING:
        alert = replace(alert, ended_at=max(received, alert.at))
    return Paged(alert, dated=raw.createdAt is not None)


def _text(value: Any) -> str:
    """Texts, as it is documented; what else an integration puts there is no reason to lose a page."""
    return msgspec.json.encode(value).decode() if isinstance(value, dict | list) else str(value)


def _alert(
    name: str, labels: dict[str, str], redactor: Redactor, *, at: datetime, fingerprint: str, message: str = ""
) -> Symptom:
    kept = {clean(key): redactor.label(key, value) for key, value in labels.items() if value}
    return Symptom(
        SymptomSource.ALERT,
        name,
        at.astimezone(UTC),
        clean(fingerprint)[:LONGEST],
        message=redactor.text(message),
        severity=kept.get("severity", ""),
        labels=tuple(sorted(kept.items())),
    )


def _moment(milliseconds: int | str) -> datetime:
    try:
        return datetime.fromtimestamp(int(milliseconds) / 1000, UTC)
    except (OverflowError, OSError, ValueError):
        raise ValueError("createdAt is no number of milliseconds since 1970") from None


def as_known(paged: Paged, incidents: Iterable[Incident]) -> Symptom | None:
    """The alert with what was told of it before: Opsgenie tells details and priority of an alert that is made, and not
    of one that somebody acknowledges or closes. What is told is told of the last time that it fired, and an end that
    was told before its firing is that one's: pagers do not say which, and keep no order. None for the end of what
    nobody told of and of which nobody says when it began.
    """
    alert = paged.alert
    if alert is None:
        return None
    firings = [one for each in incidents for one in each.alerts if one.fingerprint == alert.fingerprint]
    last = max(firings, key=lambda one: one.at, default=None)
    if last is None:
        return alert if paged.dated or alert.ended_at is None else None
    alert = replace(
        alert,
        message=alert.message or last.message,
        severity=alert.severity or last.severity,
        labels=tuple(sorted((dict(last.labels) | dict(alert.labels)).items())),
    )
    if not paged.dated:
        return replace(alert, at=last.at)
    if alert.ended_at is None and alert.at > last.at:
        told = [end for one in firings for end in (one.ended_at, *one.later_ends) if end is not None and end > alert.at]
        return replace(alert, ended_at=min(told, default=None))
    is_of_last = last.ended_at is None if alert.ended_at is None else alert.at <= last.at <= alert.ended_at
    return replace(alert, at=last.at) if is_of_last else alert
