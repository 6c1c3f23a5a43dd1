"""Alertmanager's webhook payload (version 4) and Grafana's (1: the same and more) -> alerts as symptoms.

Alertmanager: https://prometheus.io/docs/alerting/latest/configuration/#webhook_config
Grafana: https://grafana.com/docs/grafana/latest/alerting/configure-notifications/manage-contact-points/integrations/webhook-notifier/
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from hashlib import blake2b
from typing import Annotated, Literal
from urllib.parse import quote

import msgspec
from msgspec import structs

from app.collect.outbound import Endpoint, EndpointError, Outbound, OutboundError
from app.core.alerted import RUNBOOK, TRUNCATED, WEB, LeftOut
from app.core.changes.external import AHEAD
from app.core.model import Symptom, SymptomSource
from app.core.objects.redact import Redactor
from app.core.objects.redact_text import clean

NOT_ENDED_YEAR = 1
"""endsAt 0001-01-01 is Go's zero time: it is not said."""


VERSIONS = ("4", "1")
LONGEST = 2000
"""Characters of what an annotation says, or a label, that are kept: a page of text. Alertmanager itself has no limit.
What is cut off before it is redacted is far behind that: of a secret no half is left that nobody knows for one."""
LONGEST_NAME = 200
"""Of the name of an alert, which is a title, or of a label."""
MOST_LABELS = 100
NOT_EVALUATED = {"DatasourceNoData": "has no data", "DatasourceError": "cannot be evaluated"}
"""Alerts that Grafana sends in the place of a rule, which their label ``rulename`` names:
https://grafana.com/docs/grafana/latest/alerting/fundamentals/alert-rule-evaluation/stale-alert-instances/ ."""

A_TEST = "Grafana's test of a contact point"
TEST = {"alertname": "TestAlert", "instance": "Grafana"}
"""What Grafana sends to show that a contact point works. It never ends:
https://github.com/grafana/grafana/blob/v9.0.0/pkg/services/ngalert/notifier/receivers.go (newTestAlert)."""

Instant = Annotated[datetime, msgspec.Meta(tz=True)]


class RawAlert(msgspec.Struct):
    startsAt: Instant  # noqa: N815 - the wire's name
    status: Literal["firing", "resolved"] = "firing"
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    endsAt: Instant | None = None  # noqa: N815
    fingerprint: str = ""


_alert = msgspec.json.Decoder(RawAlert)


class RawPayload(msgspec.Struct):
    alerts: list[msgspec.Raw]
    version: str = "4"
    groupLabels: dict[str, str] | None = None  # noqa: N815
    truncatedAlerts: int = 0  # noqa: N815 - those beyond the receiver's max_alerts


class PayloadError(ValueError):
    """The body is not a webhook payload of Alertmanager's or Grafana's; the message says what is wrong."""


def parse(
    body: bytes, redactor: Redactor, *, received: datetime, now: datetime | None = None
) -> tuple[list[Symptom], list[LeftOut]]:
    """The alerts of one payload, redacted, and why each of the others cannot be used. Raises PayloadError.

    An alert that is resolved and does not say since when ended by ``received`` at the latest, and one whose sender's
    clock is further ahead of ``now`` than AHEAD began then: ``received``, but for a file, whose own time says when it
    was copied and not when its alerts are from. None ends later than ``now``, but for one that begins later. What the
    payload is grouped by (``group_by`` of its route) is the group of its alerts; without that, all are sent together
    and it says nothing.
    """
    try:
        payload = msgspec.json.decode(body, type=RawPayload)
    except msgspec.MsgspecError as error:
        raise PayloadError(f"not an Alertmanager webhook payload (version 4): {error}") from None
    if payload.version not in VERSIONS:
        raise PayloadError('the version is neither "4" (Alertmanager) nor "1" (Grafana)')
    group = "|".join(f"{name}={value}" for name, value in _labels(payload.groupLabels, redactor))
    found: list[Symptom] = []
    unusable: list[LeftOut] = []
    for number, raw in enumerate(payload.alerts):
        try:
            alert = _alert.decode(raw)
        except msgspec.MsgspecError as error:
            unusable.append(LeftOut(f"alert {number + 1} of {len(payload.alerts)}: {error}"))
            continue
        if TEST.items() <= (alert.labels or {}).items():
            unusable.append(LeftOut(A_TEST, ""))
        else:
            found.append(_symptom(alert, redactor, group=group, received=received, now=now or received))
    if (many := payload.truncatedAlerts) > 0:
        unusable.append(LeftOut(f"{many:,} alerts more that were not sent: set max_alerts: 0", TRUNCATED, many))
    return found, unusable


class RawStanding(msgspec.Struct):
    """How Alertmanager holds an alert: active, or suppressed by a silence or another alert."""

    state: str = "active"


class RawListed(msgspec.Struct):
    """An alert as Alertmanager lists it."""

    startsAt: Instant  # noqa: N815
    fingerprint: str
    status: RawStanding
    updatedAt: Instant | None = None  # noqa: N815 - when it was last told of it
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


_listed = msgspec.json.Decoder(list[RawListed])


@dataclass(frozen=True, slots=True)
class Firing:
    """What fires at an Alertmanager: the alerts that it tells of, and the fingerprints of all, also of those that it
    holds back; None where it may not know of all yet.
    """

    alerts: tuple[Symptom, ...]
    fingerprints: frozenset[str] | None

    def and_also(self, other: Firing) -> Firing:
        """What fires by either of two answers."""
        by_age = sorted((*other.alerts, *self.alerts), key=lambda alert: alert.active_at or alert.at)
        alerts = {alert.fingerprint: alert for alert in by_age}  # the last counts: one may not be told of it any more
        if self.fingerprints is None or other.fingerprints is None:
            return Firing(tuple(alerts.values()), None)
        return Firing(tuple(alerts.values()), self.fingerprints | other.fingerprints)


class Alertmanager(Endpoint, frozen=True, forbid_unknown_fields=True):
    """Where a cluster's alerts are listed. ``matchers`` tell them from those of others: ``cluster="shop"``."""

    matchers: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Raises EndpointError. Alertmanager takes '...' for a part of the value: it would list nothing, and all that
        is known to fire would have ended."""
        super().__post_init__()
        for one in self.matchers:
            if not _MATCHER.fullmatch(one.strip()):
                raise EndpointError(f'matchers: {one!r} is none: write label="value", each in a line of its own')


_MATCHER = re.compile(r"""(?:"(?:[^"\\]|\\.)+"|[^\s"'{}=!~,]+)\s*(?:=~|!~|!=|=)\s*(?:"(?:[^"\\]|\\.)*"|[^\s"'{},]+)""")
"""As Alertmanager reads one: https://prometheus.io/docs/alerting/latest/configuration/#matcher"""


async def list_firing(
    source: Alertmanager, redactor: Redactor, *, now: datetime, held: AbstractSet[str] = frozenset()
) -> Firing:
    """What fires at an Alertmanager. Raises OutboundError.

    ``held`` are the fingerprints of what fires as far as is known: where one is not listed, further answers are asked
    for, and what any of them lists fires. One of these that does not come tells nothing.
    """
    async with Outbound.to(source) as outbound:
        firing = await _list(outbound, source, redactor, now)
        started = await _started(outbound)  # asked last: it may start anew in between
    if started is not None and now - started < SETTLES:
        firing = replace(firing, fingerprints=None)
    for _ in range(ANSWERS - 1):
        if firing.fingerprints is None or held <= firing.fingerprints:
            break
        with suppress(OutboundError):
            async with Outbound.to(source) as outbound:  # a connection of its own: by these a Service balances
                firing = firing.and_also(await _list(outbound, source, redactor, now))
    return firing


async def _list(outbound: Outbound, source: Alertmanager, redactor: Redactor, now: datetime) -> Firing:
    body = await outbound.get(LISTING + "".join(f"&filter={quote(one, safe='')}" for one in source.matchers))
    try:
        return parse_listing(body, redactor, received=now)
    except PayloadError as error:
        raise OutboundError(f"{source.url}: {error}") from None


ANSWERS = 10
"""In so many answers an alert must be missing before it has ended. Of several replicas behind one address any may
answer, and each lists only what it was told itself: they share silences and what they notified of, and no alerts
(https://github.com/prometheus/alertmanager#high-availability). Of two that are asked at random, all of these come from
the same one once in a thousand times."""
SETTLES = timedelta(minutes=5)
"""An Alertmanager keeps no alerts when it starts anew: what fires is told to it again, by each Prometheus within an
evaluation and a minute. Until then it lists too few (https://github.com/prometheus/alertmanager/issues/889)."""


class RawStatus(msgspec.Struct):
    """What an Alertmanager says of itself; ``uptime`` is when it started."""

    uptime: Instant


_status = msgspec.json.Decoder(RawStatus)


async def _started(outbound: Outbound) -> datetime | None:
    """When it started; None where it does not say, as what stands before it may let only alerts be asked for."""
    try:
        return _status.decode(await outbound.get("/api/v2/status")).uptime
    except (OutboundError, msgspec.MsgspecError):
        return None


LISTING = "/api/v2/alerts?active=true&silenced=true&inhibited=true&unprocessed=true"
"""What to GET of an Alertmanager for ``parse_listing``. What is silenced fires on: it would seem to have ended."""


def parse_listing(body: bytes, redactor: Redactor, *, received: datetime) -> Firing:
    """What an Alertmanager answers to LISTING; its alerts are as its webhook tells them, with ``active_at``. Raises
    PayloadError.

    Format: https://github.com/prometheus/alertmanager/blob/main/api/v2/openapi.yaml (gettableAlerts).
    """
    try:
        listed = _listed.decode(body)
    except msgspec.MsgspecError as error:
        raise PayloadError(f"not a list of Alertmanager's alerts (API version 2): {error}") from None
    alerts = [
        structs.replace(
            _symptom(
                RawAlert(one.startsAt, labels=one.labels, annotations=one.annotations, fingerprint=one.fingerprint),
                redactor,
                group="",
                received=received,
                now=received,
            ),
            active_at=one.updatedAt,
        )
        for one in listed
        if one.status.state == "active"
    ]
    return Firing(tuple(alerts), frozenset(_fingerprint(one.fingerprint, redactor) for one in listed))


def _labels(labels: dict[str, str] | None, redactor: Redactor) -> tuple[tuple[str, str], ...]:
    """What is kept of them: of each its beginning, and of very many the first."""
    kept = sorted((labels or {}).items())[:MOST_LABELS]
    found = {clean(name)[:LONGEST_NAME]: redactor.label(name, value[: 10 * LONGEST])[:LONGEST] for name, value in kept}
    return tuple(sorted(found.items()))


def _fingerprint(told: str, redactor: Redactor) -> str:
    """Of one that is longer than any is, a digest: two that differ at their ends stay apart."""
    return redactor.text(told) if len(told) <= LONGEST else blake2b(told.encode(), digest_size=16).hexdigest()


def _symptom(alert: RawAlert, redactor: Redactor, *, group: str, received: datetime, now: datetime) -> Symptom:
    labels = _labels(alert.labels, redactor)
    known = dict(labels)
    annotations = alert.annotations or {}
    said = annotations.get("summary") or annotations.get("description") or annotations.get("message")
    began = alert.startsAt if alert.startsAt <= now + AHEAD else now
    ended = None
    if alert.status == "resolved":
        told = alert.endsAt if alert.endsAt and alert.endsAt.year > NOT_ENDED_YEAR else received
        ended = max(min(told, now), began)
    return Symptom(
        source=SymptomSource.ALERT,
        reason=_name(known),
        at=began.replace(microsecond=began.microsecond // 1000 * 1000),  # no list is more exact
        fingerprint=_fingerprint(alert.fingerprint, redactor)
        or _fingerprint("|".join(f"{n}={v}" for n, v in labels), redactor),
        message=_text(said or "", redactor),
        severity=known.get("severity", ""),
        ended_at=ended,
        labels=labels,
        group=group,
        annotations=tuple(_beside(annotations, redactor, message=said)),
    )


def _beside(annotations: dict[str, str], redactor: Redactor, *, message: str | None) -> Iterator[tuple[str, str]]:
    """What people are told beside ``message``: a text that is longer mostly, and where it stands what to do."""
    for name in ("description", "message"):
        if (said := annotations.get(name)) and said != message:
            yield name, _text(said, redactor)
    url = annotations.get(RUNBOOK, "").strip()
    if url.startswith(WEB) and len(url) <= LONGEST and url.isprintable():
        yield RUNBOOK, redactor.uri(url)


def _text(said: str, redactor: Redactor) -> str:
    """Its beginning, in characters that can be shown."""
    shown = redactor.text(said[: 10 * LONGEST])[:LONGEST]
    return "".join(one if one.isprintable() or one == "\n" else " " for one in shown)


def _name(labels: dict[str, str]) -> str:
    name = labels.get("alertname", "").strip() or "Alert"
    rule = labels.get("rulename", "").strip()
    if rule and name in NOT_EVALUATED:
        return f"{_short(rule)} {NOT_EVALUATED[name]}"
    return _short(name)


def _short(name: str) -> str:
    return name if len(name) <= LONGEST_NAME else name[: LONGEST_NAME - 1] + "…"
