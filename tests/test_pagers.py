"""PagerDuty and Opsgenie over HTTP, in the shape of their documentation: signed or with a token, once each."""

from __future__ import annotations

import hmac
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx2
import pytest

from app.core.roles import Role
from app.main import page_taker
from app.store import tokens
from app.store.database import Database
from app.store.incidents import list_incidents
from app.store.tables import quarantine
from app.store.tokens import Purpose
from app.web.deps import Deps
from app.web.routes import create_app

NOW = datetime.now(UTC)
SECRETS = ("a first secret of some length", "another-secret-of-some-length")


def ago(minutes: float) -> str:
    return (NOW - timedelta(minutes=minutes)).isoformat().replace("+00:00", "Z")


def an_event(
    kind: str, event: str, *, at: float, began: float = 20, incident: str = "Q1TRUCK", priority: str = ""
) -> bytes:
    """As https://developer.pagerduty.com/docs/webhooks-overview has it; times in minutes ago."""
    data = {
        "id": incident,
        "type": "incident",
        "html_url": f"https://shop.pagerduty.com/incidents/{incident}",
        "number": 7,
        "status": kind,
        "created_at": ago(began),
        "title": "Checkout answers with errors, password=hunter2secret",
        "service": {"id": "PSVC", "type": "service_reference", "summary": "checkout"},
        "urgency": "high",
        "priority": {"id": "PPRIO", "type": "priority_reference", "summary": priority} if priority else None,
    }
    told = {"id": event, "event_type": kind, "resource_type": "incident", "occurred_at": ago(at), "data": data}
    return json.dumps({"event": told}).encode()


def an_action(action: str, *, alert: str = "052652ac-0001", **more: Any) -> bytes:
    """As https://support.atlassian.com/opsgenie/docs/opsgenie-edge-connector-alert-action-data/ has it."""
    told = {
        "alertId": alert,
        "tinyId": "23",
        "message": "Payments are slow",
        "alias": "payments",
        "createdAt": int((NOW - timedelta(minutes=9)).timestamp() * 1000),
        "username": "alice@shop.example",
        "priority": "P1",
        "details": {"namespace": "payments", "deployment": "checkout-api"},
    }
    return json.dumps({"action": action, "alert": told | more, "integrationType": "Webhook"}).encode()


def signature(body: bytes, secret: str = SECRETS[0]) -> str:
    return "v1=" + hmac.digest(secret.encode(), body, "sha256").hex()


class Stand:
    """The site, with the clusters that a test names after itself."""

    def __init__(self, database: Database, client: httpx2.AsyncClient, token: str) -> None:
        self.database, self.client, self.token = database, client, token

    async def page(self, cluster: str, body: bytes, header: str | None = None) -> httpx2.Response:
        sent = {b"X-PagerDuty-Signature": (signature(body) if header is None else header).encode("latin-1")}
        return await self.client.post(f"/intake/pagerduty/{cluster}", content=body, headers=sent)

    async def genie(self, cluster: str, body: bytes) -> httpx2.Response:
        sent = {"Authorization": f"Bearer {self.token}"}
        return await self.client.post(f"/intake/opsgenie/{cluster}", content=body, headers=sent)

    async def incidents(self, cluster: str) -> list[Any]:
        async with self.database.read.connect() as conn:
            return list(await list_incidents(conn, cluster=cluster))


@pytest.fixture
async def stand(database: Database) -> AsyncIterator[Stand]:
    app = create_app(
        Deps(
            read=database.read,
            write=database.write,
            public_url="http://foreshock.test",
            clock=lambda: NOW,
            take_page=page_taker(database),
            pagerduty_secrets=SECRETS,
        )
    )
    async with database.write.begin() as conn:
        token = await tokens.create(conn, Role.RESPONDER, purpose=Purpose.API, now=NOW)
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app), base_url="http://foreshock.test") as client:
        yield Stand(database, client, token)


async def test_an_incident_of_pagerduty_is_one_alert_from_trigger_to_end(stand: Stand) -> None:
    for kind, event, at in (("triggered", "e1", 20), ("acknowledged", "e2", 15), ("resolved", "e3", 10)):
        assert (await stand.page("whole", an_event(f"incident.{kind}", event, at=at))).status_code == 200
    (incident,) = await stand.incidents("whole")
    (alert,) = incident.alerts
    assert (incident.status, incident.severity) == ("resolved", "critical")
    assert (alert.fingerprint, alert.ended_at - alert.at) == ("pagerduty:Q1TRUCK", timedelta(minutes=10))
    assert "hunter2secret" not in repr(incident)


async def test_an_end_that_is_still_to_come_is_when_it_was_told(stand: Stand) -> None:
    for kind, at in (("triggered", 20), ("resolved", -3)):
        await stand.page("ahead", an_event(f"incident.{kind}", f"ahead {kind}", at=at))
    (incident,) = await stand.incidents("ahead")
    assert NOW <= incident.resolved_at <= datetime.now(UTC)


async def test_what_is_reopened_is_the_same_incident_and_ends_again(stand: Stand) -> None:
    told = (("triggered", 20), ("resolved", 15), ("reopened", 10), ("resolved", 5))
    states = []
    for number, (kind, at) in enumerate(told):
        await stand.page("again", an_event(f"incident.{kind}", f"e{number}", at=at))
        states.append([one.status for one in await stand.incidents("again")])
    assert states == [["open"], ["resolved"], ["open"], ["resolved"]]
    (incident,) = await stand.incidents("again")
    assert NOW - incident.resolved_at == timedelta(minutes=5)


@pytest.mark.parametrize("began", [30, 600])
@pytest.mark.parametrize("order", ["1243", "2143", "4123", "1423", "4321", "1324"])
async def test_it_is_over_in_whatever_order_its_ends_and_beginnings_come(
    stand: Stand, order: str, began: float
) -> None:
    cluster = f"order-{order}-{began}"
    told = {
        "1": an_event("incident.triggered", f"{cluster}1", at=began, began=began),
        "2": an_event("incident.resolved", f"{cluster}2", at=began - 5, began=began),
        "3": an_event("incident.reopened", f"{cluster}3", at=10, began=began),
        "4": an_event("incident.resolved", f"{cluster}4", at=2, began=began),
    }
    for number in order:
        assert (await stand.page(cluster, told[number])).status_code == 200
    found = await stand.incidents(cluster)
    assert {one.status for one in found} == {"resolved"}
    assert min(one.started_at for one in found) == NOW - timedelta(minutes=began)


async def test_what_is_told_after_it_was_reopened_is_told_of_that(stand: Stand) -> None:
    began = 600.0
    for kind, event, at in (("triggered", "v1", began), ("resolved", "v2", 590), ("reopened", "v3", 10)):
        await stand.page("anew", an_event(f"incident.{kind}", event, at=at, began=began))
    await stand.page("anew", an_event("incident.priority_updated", "v4", at=9, began=began, priority="P3"))
    newest, first = await stand.incidents("anew")
    assert (newest.status, newest.severity) == ("open", "warning")
    assert (first.status, first.severity) == ("resolved", "critical")


async def test_an_event_that_is_sent_again_does_nothing(stand: Stand) -> None:
    body = an_event("incident.triggered", "same", at=20)
    first, second = await stand.page("twice", body), await stand.page("twice", body)
    assert (len(first.json()["incidents"]), second.json()) == (1, {"incidents": [], "left_out": []})
    assert second.status_code == 200


@pytest.mark.parametrize(
    ("header", "status"),
    [
        ("", 401),
        ("v1=", 401),
        ("v1=" + "0" * 64, 401),
        ("RIGHT", 200),
        ("v1=" + "0" * 64 + ", RIGHT", 200),
        ("OTHER", 200),
        ("v2=00,garbage", 401),
        ("v1=\xff", 401),
    ],
)
async def test_a_body_counts_only_with_a_signature_that_is_its_own(stand: Stand, header: str, status: int) -> None:
    body = json.dumps({"event": {"id": "p", "event_type": "pagey.ping", "data": {"message": "Hello"}}}).encode()
    sent = header.replace("RIGHT", signature(body)).replace("OTHER", signature(body, SECRETS[1]))
    answer = await stand.page("signed", body, sent)
    assert answer.status_code == status
    assert await stand.incidents("signed") == []


async def test_without_a_secret_nothing_is_taken(database: Database) -> None:
    app = create_app(Deps(read=database.read, write=database.write, public_url="http://f.test", clock=lambda: NOW))
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app), base_url="http://f.test") as client:
        body = an_event("incident.triggered", "e", at=1)
        sent = {"X-PagerDuty-Signature": signature(body, "")}
        answer = await client.post("/intake/pagerduty/x", content=body, headers=sent)
    assert (answer.status_code, "FORESHOCK_PAGERDUTY_SECRETS is not set" in answer.text) == (401, True)


async def test_an_unknown_type_is_answered_and_counted(stand: Stand) -> None:
    answer = await stand.page("odd", an_event("incident.annotated", "odd", at=1))
    assert (answer.status_code, answer.json()["incidents"]) == (200, [])
    async with stand.database.read.connect() as conn:
        found = [row.reason for row in await conn.execute(quarantine.select()) if row.source == "pagerduty"]
    assert found == ["incident.annotated: nothing is made of it"]


async def test_a_ping_is_known_for_one(stand: Stand) -> None:
    body = json.dumps({"event": {"id": "p", "event_type": "pagey.ping", "data": {"message": "Hello"}}}).encode()
    answer = await stand.page("pinged", body)
    assert (answer.status_code, answer.json()["left_out"]) == (200, ["a ping"])
    async with stand.database.read.connect() as conn:
        kept = [row.reason for row in await conn.execute(quarantine.select()) if row.source == "pagerduty"]
    assert not any("pagey" in reason for reason in kept)


async def test_what_comes_a_week_late_is_kept_and_says_so(stand: Stand) -> None:
    days = 9 * 24 * 60
    await stand.page("late", an_event("incident.triggered", "late", at=days, began=days))
    (incident,) = await stand.incidents("late")
    assert dict(incident.alerts[0].labels)["told_late"] == "9 days"


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'{"event": {"id": "x", "event_type": "incident.triggered"}}'])
async def test_what_is_not_theirs_is_refused_in_words(stand: Stand, body: bytes) -> None:
    for answer in (await stand.page("bad", body), await stand.genie("bad", body)):
        assert (answer.status_code, "this is not what it sends" in answer.json()["detail"]) == (400, True)


async def test_an_alert_of_opsgenie_is_one_alert_with_what_its_details_say(stand: Stand) -> None:
    for action in ("Create", "Create", "Acknowledge"):
        assert (await stand.genie("genie", an_action(action))).status_code == 200
    (incident,) = await stand.incidents("genie")
    assert (incident.status, incident.severity, len(incident.alerts)) == ("open", "critical", 1)
    assert incident.scope.namespaces == ("payments",)
    await stand.genie("genie", an_action("Close", createdAt=None))
    (incident,) = await stand.incidents("genie")
    assert (incident.status, len(incident.alerts)) == ("resolved", 1)
    odd = await stand.genie("genie", an_action("AddNote"))
    assert odd.json() == {"incidents": [], "left_out": ["AddNote: nothing is made of it"]}


async def test_what_opsgenie_tells_only_once_is_kept(stand: Stand) -> None:
    """Its examples of Acknowledge and Close hold neither details nor a priority nor a description."""
    await stand.genie("once", an_action("Create", description="p99 is 4 s"))
    for action, status in (("Acknowledge", "open"), ("Close", "resolved")):
        await stand.genie("once", an_action(action, details=None, priority=None))
        (incident,) = await stand.incidents("once")
        (alert,) = incident.alerts
        assert (incident.status, incident.severity, alert.message) == (status, "critical", "p99 is 4 s")
        assert incident.scope.workloads == ("payments/checkout-api",)


@pytest.mark.parametrize("hours", [1, 5, 30])
async def test_what_opsgenie_tells_without_a_time_is_told_of_the_alert_that_is_known(stand: Stand, hours: int) -> None:
    cluster = f"undated-{hours}"
    made = NOW - timedelta(hours=hours)
    await stand.genie(cluster, an_action("Create", createdAt=int(made.timestamp() * 1000)))
    for action, status in (("Acknowledge", "open"), ("Close", "resolved"), ("Acknowledge", "resolved")):
        await stand.genie(cluster, an_action(action, createdAt=None))
        (incident,) = await stand.incidents(cluster)
        (alert,) = incident.alerts
        assert (incident.status, alert.at) == (status, made.replace(microsecond=made.microsecond // 1000 * 1000))
        assert (alert.ended_at is None) == (status == "open")


async def test_the_end_of_what_nobody_told_of_opens_nothing(stand: Stand) -> None:
    answer = await stand.genie("unheard", an_action("Close", createdAt=None))
    assert (answer.status_code, answer.json()["incidents"]) == (200, [])
    assert await stand.incidents("unheard") == []


async def test_no_page_of_opsgenie_is_lost_over_what_its_details_are(stand: Stand) -> None:
    """An integration may put anything there, and send no message."""
    details = {"namespace": "payments", "hosts": ["a", "b"], "more": {"tier": 1}, "count": 3, "none": None}
    await stand.genie("odd", an_action("Create", message=None, details=details))
    (incident,) = await stand.incidents("odd")
    assert incident.scope.namespaces == ("payments",)
    assert dict(incident.alerts[0].labels) | {"hosts": '["a","b"]', "more": '{"tier":1}', "count": "3"} == dict(
        incident.alerts[0].labels
    )


@pytest.mark.parametrize(
    ("priority", "severity"), [("P3", "warning"), ("P1", "critical"), ("Major", "critical"), ("", "critical")]
)
async def test_a_priority_that_pagerduty_tells_later_counts_and_opens_nothing(
    stand: Stand, priority: str, severity: str
) -> None:
    cluster = f"priority-{priority or 'none'}".lower()
    await stand.page(cluster, an_event("incident.triggered", "e1", at=20, priority="P4"))
    (incident,) = await stand.incidents(cluster)
    assert incident.alerts[0].severity == "warning"
    await stand.page(cluster, an_event("incident.priority_updated", "e2", at=15, priority=priority))
    (incident,) = await stand.incidents(cluster)
    assert incident.alerts[0].severity == severity
    await stand.page(cluster, an_event("incident.resolved", "e3", at=10, priority=priority))
    await stand.page(cluster, an_event("incident.priority_updated", "e4", at=5, priority="P2"))
    (incident,) = await stand.incidents(cluster)
    assert (incident.status, incident.alerts[0].severity) == ("resolved", "error")


async def test_a_priority_that_opsgenie_tells_later_counts(stand: Stand) -> None:
    await stand.genie("later", an_action("Create"))
    await stand.genie("later", an_action("UpdatePriority", priority="P5"))
    (incident,) = await stand.incidents("later")
    assert (incident.status, incident.alerts[0].severity) == ("open", "info")


async def test_opsgenie_needs_a_token(stand: Stand) -> None:
    assert (await stand.client.post("/intake/opsgenie/genie", content=an_action("Create"))).status_code == 401
