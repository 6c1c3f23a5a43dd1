"""Secrets in all that is sent to a running Foreshock beside files: by each sender, in its own form."""

from __future__ import annotations

import hmac
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote, urlencode

from tests.canaries import Field, payloads
from tests.collect.test_remote_write import packed
from tests.core.changes.test_senders import an_entry, an_event
from tests.notify.double import CHANNEL

CLUSTER = "live"
FILTERS = ("?cluster={", "promql={", "metric={", "D{", "query={")
AT_ONCE = 200
"""Events of one body, of which an API server sends 400."""
REMOTE_WRITE = {
    "Content-Type": "application/x-protobuf",
    "Content-Encoding": "snappy",
    "X-Prometheus-Remote-Write-Version": "0.1.0",
}


@dataclass
class Sent:
    """One request. ``whose`` is the token that it is sent with, "" for none; ``expected`` what it is answered."""

    path: str
    body: bytes = b""
    whose: str = "responder"
    headers: dict[str, str] = field(default_factory=dict)
    expected: tuple[int, ...] = (200,)
    method: str = "POST"
    shown_back: bool = False
    """Whether it is a filter, which the page of who asked shows as they wrote it; nobody else may see it."""


def one_line(sown: Field, where: str) -> str:
    """A secret that is known by its look, of one line."""
    while "\n" in (made := sown.canary(where, shaped=True)):
        del sown.canaries[made]
    return made


def audit(sown: Field) -> Iterator[Sent]:
    """What an API server sends: all events that can be parsed, and bodies that cannot."""
    events, broken = list[Any](), list[str]()
    for line in sown.audit:
        try:
            events.append(json.loads(line))
        except ValueError:
            broken.append(line)
    for first in range(0, len(events), AT_ONCE):
        told = {"kind": "EventList", "apiVersion": "audit.k8s.io/v1", "items": events[first : first + AT_ONCE]}
        yield Sent(f"/intake/audit/{CLUSTER}", json.dumps(told).encode(), "audit")
    for line in broken:
        cut = f'{{"kind":"EventList","apiVersion":"audit.k8s.io/v1","items":[{line}'
        yield Sent(f"/intake/audit/{CLUSTER}", cut.encode(), "audit")


def alerts(sown: Field) -> Iterator[Sent]:
    """Alertmanager."""
    for payload in payloads(sown.alerts):
        yield Sent(f"/intake/alertmanager/{CLUSTER}", payload.encode())


def pages(sown: Field, secret: str) -> Iterator[Sent]:
    """PagerDuty, which signs with ``secret``, and Opsgenie."""
    say, now = sown.canary, datetime.now(UTC)
    for number in range(3):
        incident = {
            "id": f"Q{number}",
            "html_url": f"https://shop.pagerduty.com/incidents/Q{number}?token={say('a page, its url')}",
            "created_at": (now - timedelta(minutes=9)).isoformat(),
            "title": f"Down: password={say('a page, its title')} and {say('a page, its title', shaped=True)}",
            "service": {"summary": f"db {say('a page, its service', shaped=True)}"},
            "priority": {"summary": say("a page, its priority", shaped=True)},
            "urgency": "high",
            "body": {"details": {"password": say("a page, what is not read of it")}},
        }
        kind = "incident.triggered" if number else f"incident.{say('a page, its event', shaped=True)}"
        told = {"id": f"e{number}", "event_type": kind, "occurred_at": now.isoformat(), "data": incident}
        body = json.dumps({"event": told}).encode()
        signed = "v1=" + hmac.digest(secret.encode(), body, "sha256").hex()
        yield Sent(f"/intake/pagerduty/{CLUSTER}", body, "", {"X-PagerDuty-Signature": signed})
        yield Sent(
            f"/intake/pagerduty/{CLUSTER}",
            body,
            "",
            {"X-PagerDuty-Signature": f"v1={say('a wrong signature')}"},
            expected=(401,),
        )
        alert = {
            "alertId": f"a{number}",
            "message": f"Slow: {say('an alert of Opsgenie', shaped=True)}",
            "alias": "payments",
            "createdAt": int((now - timedelta(minutes=9)).timestamp() * 1000),
            "username": "alice@shop.example",
            "priority": "P1",
            "details": {"password": say("a detail by its name"), "note": say("a detail by its look", shaped=True)},
        }
        yield Sent(f"/intake/opsgenie/{CLUSTER}", json.dumps({"action": "Create", "alert": alert}).encode())


def told(sown: Field, secret: str) -> Iterator[Sent]:
    """External changes, over REST, of Flux, and of LaunchDarkly, which signs with ``secret``."""
    say = sown.canary
    for number in range(8):
        change = {
            "source": "terraform",
            "kind": "workspace",
            "name": f"eu-{number} {one_line(sown, 'the name of an external change')}",
            "cluster": CLUSTER,
            "actor": f"ci {one_line(sown, 'who made it')}",
            "summary": f"applied with password={say('its summary')} {say('its summary', shaped=True)}",
            "url": f"https://ci:{say('its url, userinfo')}@ci.example/run?token={say('its url, query')}",
            "fields": [
                {"path": "db.password", "old": say("a field before"), "new": say("a field after")},
                {"path": "note", "old": None, "new": say("a field by its look", shaped=True)},
                {"path": "env", "new": {"API_KEY": say("within a field"), "b": [{"token": say("deep in a field")}]}},
            ],
        }
        yield Sent("/api/v1/changes", json.dumps(change).encode(), "changes", expected=(201,))
        bad = {"source": "x", "kind": "y", "name": "z", "secret": say("a field that there is not"), "at": say("a time")}
        yield Sent("/api/v1/changes", json.dumps(bad).encode(), "changes", expected=(422,))
        message = f"Helm upgrade succeeded with token={say('a message of Flux')} {say('the same', shaped=True)}"
        revision = {"helm.toolkit.fluxcd.io/revision": f"1.0+{say('a revision', shaped=True)}"}
        flux = an_event(message=message, metadata=revision, timestamp=datetime.now(UTC).isoformat())
        yield Sent(f"/intake/flux?cluster={CLUSTER}", flux, "changes")
        entry = an_entry(
            _id=f"e{number}",
            date=int(datetime.now(UTC).timestamp() * 1000),
            titleVerb=f"set password={say('a title of LaunchDarkly')} of",
            previousVersion={"apiKey": say("a flag before"), "rules": [{"clientSecret": say("a rule before")}]},
            currentVersion={"apiKey": say("a flag after"), "note": say("a flag by its look", shaped=True)},
        )
        signed = hmac.digest(secret.encode(), entry, "sha256").hex()
        yield Sent(f"/intake/launchdarkly?cluster={CLUSTER}", entry, "", {"X-LD-Signature": signed})


def samples(sown: Field) -> Iterator[Sent]:
    """Prometheus: labels by their names and by their looks."""
    say = sown.canary
    at = int(datetime.now(UTC).timestamp() * 1000)
    labels = [
        {"client": f"Bearer {say('a label, bearer')}"},
        {"url": f"https://robot:{say('a label, userinfo')}@etcd:2379/?token={say('a label, query')}"},
        {"password": say("a label by its name")},
        *({"client": say("a label by its look", shaped=True)} for _ in range(21)),
    ]
    series = [{"__name__": "apiserver_request_total", "job": "apiserver", **one} for one in labels]
    body = packed(*((one, [(at - 15_000, 1.0), (at, 9.0)]) for one in series))
    yield Sent(f"/intake/prometheus/{CLUSTER}", body, "metrics", REMOTE_WRITE, expected=(204,))
    broken = body[: len(body) // 2] + say("a broken body").encode()
    yield Sent(f"/intake/prometheus/{CLUSTER}", broken, "metrics", REMOTE_WRITE, expected=(400,))


def said(sown: Field) -> Iterator[Sent]:
    """What people write: incidents by hand, over REST and by a form."""
    for number in range(3):
        title = f"Down {number}: password={sown.canary('a title')} {one_line(sown, 'a title')}"
        body = json.dumps({"cluster": CLUSTER, "title": title}).encode()
        keyed = {"Idempotency-Key": sown.canary("a key of a request")}
        yield Sent("/api/v1/incidents", body, headers=keyed, expected=(201,))
        form = urlencode({"cluster": CLUSTER, "title": f"By a form: {title}", "once": f"{number:032x}"})
        yield Sent("/incidents", form.encode(), expected=(303,))
    wrong = urlencode({"token": sown.canary("a login link that is none")})
    yield Sent("/login", wrong.encode(), "", expected=(401,))


def of_slack(sown: Field, secret: str) -> Iterator[Sent]:
    """Commands, clicks and events, with the token of old and the address to answer at, by which anybody could."""
    for number in range(6):
        form = {
            "token": sown.canary("Slack's token of old"),
            "command": "/foreshock",
            "text": ("what-changed 1h", "incident", f"who-calls 5m cluster={CLUSTER}")[number % 3],
            "channel_id": CHANNEL,
            "user_name": "alice",
            "response_url": f"https://hooks.slack.com/commands/T1/1/{sown.canary('where to answer')}",
            "trigger_id": f"1.2.{sown.canary('a trigger')}",
        }
        yield _of_slack(urlencode(form).encode(), secret)
        click = {
            "type": "block_actions",
            "token": sown.canary("a click's token of old"),
            "team": {"id": "T1"},
            "user": {"id": "U1", "username": "alice", "team_id": "T1"},
            "channel": {"id": CHANNEL},
            "response_url": f"https://hooks.slack.com/actions/{sown.canary('where to answer a click')}",
            "actions": [{"value": f"it/{number:012x}/none", "action_id": "a"}],
        }
        yield _of_slack(urlencode({"payload": json.dumps(click)}).encode(), secret)
        link = {"domain": "foreshock", "url": f"https://x/incidents/{number:012x}?token={sown.canary('a shared link')}"}
        event = {"type": "link_shared", "channel": CHANNEL, "message_ts": "1.0", "links": [link]}
        body = {"type": "event_callback", "token": sown.canary("an event's token of old"), "event": event}
        yield _of_slack(json.dumps(body).encode(), secret, kind="application/json")


def _of_slack(body: bytes, secret: str, *, kind: str = "application/x-www-form-urlencoded") -> Sent:
    now = f"{datetime.now(UTC).timestamp():.0f}"
    signed = "v0=" + hmac.digest(secret.encode(), f"v0:{now}:".encode() + body, "sha256").hex()
    headers = {"X-Slack-Request-Timestamp": now, "X-Slack-Signature": signed, "Content-Type": kind}
    return Sent("/intake/slack", body, "", headers)


def asked(sown: Field) -> Iterator[Sent]:
    """Addresses, parameters and headers of who reads, with and without a credential, most of them wrong."""
    paths = (
        "/?token={}",
        "/login?token={}",
        "/changes?token={}",
        "/changes?cluster={}",
        "/changes?after={}",
        "/changes/{}",
        "/incidents/{}",
        "/objects/live/core/Secret/shop/{}",
        "/explore?of=promql&cluster=live&promql={}",
        "/explore?metric={}&cluster=live",
        "/explore?metric=up&cluster=live&where=password%3D{}",
        "/api/v1/changes?access_token={}",
        "/api/v1/changes?from={}",
        "/api/v1/changes?follow=1&since={}",
        "/api/v1/changes/{}",
        "/api/v1/changes/{}/manifest",
        "/api/v1/objects/live/core/Secret/shop/{}",
        "/api/v1/promql?cluster=live&query={}",
        "/api/v1/series?cluster=live&metric={}",
        "/api/v1/incidents/{}/suspects",
        "/static/{}",
        "/{}",
    )
    known = (200, 400, 401, 404, 422, 503)
    for path in paths:
        for whose in ("responder", ""):
            address = path.format(quote(sown.canary(f"an address: {path}")))
            shown_back = any(name in path for name in FILTERS)
            yield Sent(address, whose=whose, expected=known, method="GET", shown_back=shown_back)
    for header in ("Authorization", "Cookie", "User-Agent", "Referer", "X-Forwarded-For", "Idempotency-Key"):
        value = {"Authorization": "Bearer {}", "Cookie": "foreshock_session={}"}.get(header, "{}")
        for path in ("/", "/api/v1/changes", "/intake/audit/live", "/intake/slack"):
            sent = {header: value.format(sown.canary(f"a header: {header}"))}
            method = "POST" if path.startswith("/intake") else "GET"
            yield Sent(path, whose="", headers=sent, expected=(401,), method=method)
