"""Alerts from Alertmanager over HTTP: incidents opened, ranked, resolved; bad payloads refused in words."""

from __future__ import annotations

import html
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import httpx2
import pytest
import structlog
from msgspec.structs import replace

from app import correlate
from app.core.clusters import About
from app.core.model import Batch
from app.core.roles import Role
from app.main import alert_taker
from app.store import remarks, tokens
from app.store.database import Database
from app.store.incidents import list_incidents, read_incident
from app.store.record import record
from app.store.tokens import Purpose
from app.web.deps import Deps
from app.web.routes import create_app
from tests.core.factories import a_change, an_incident

NOW = datetime.now(UTC)


def payload(status: str = "firing", **alert: object) -> dict[str, object]:
    fired = {
        "status": status,
        "labels": {"alertname": "KubePodCrashLooping", "namespace": "shop", "severity": "critical"},
        "annotations": {"summary": "pods crash"},
        "startsAt": (NOW - timedelta(minutes=1)).isoformat(),
        "endsAt": "0001-01-01T00:00:00Z" if status == "firing" else NOW.isoformat(),
        "fingerprint": "f1",
    }
    return {"version": "4", "groupKey": "{}", "status": status, "alerts": [fired | alert]}


@pytest.fixture
async def client(database: Database) -> AsyncIterator[httpx2.AsyncClient]:
    app = create_app(
        Deps(
            read=database.read,
            write=database.write,
            public_url="http://foreshock.test",
            clock=lambda: NOW,
            take_alerts=alert_taker(database),
        )
    )
    async with database.write.begin() as conn:
        token = await tokens.create(conn, Role.RESPONDER, purpose=Purpose.API, now=NOW)
    async with httpx2.AsyncClient(
        transport=httpx2.ASGITransport(app=app),
        base_url="http://foreshock.test",
        headers={"Authorization": f"Bearer {token}"},
    ) as opened:
        yield opened


async def test_an_alert_opens_an_incident_once_and_its_end_resolves_it(
    client: httpx2.AsyncClient, database: Database
) -> None:
    change = replace(a_change(at=NOW - timedelta(minutes=2)), sources=frozenset({"watch"}))
    async with database.write.begin() as conn:
        await record(conn, Batch("lab", changes=(change,)))
    first = await client.post("/intake/alertmanager/lab", json=payload())
    again = await client.post("/intake/alertmanager/lab", json=payload())
    assert first.status_code == again.status_code == 200
    assert first.json() == again.json()
    (incident_id,) = first.json()["incidents"]
    async with database.read.connect() as conn:
        found = await read_incident(conn, incident_id)
    assert found is not None
    assert found[1] is not None
    assert found[1].suspects[0].change.resource == change.resource
    await client.post("/intake/alertmanager/lab", json=payload("resolved"))
    async with database.read.connect() as conn:
        (incident,) = await list_incidents(conn, cluster="lab")
    assert (incident.status, len(incident.alerts)) == ("resolved", 1)


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        (b"{}", 400, "alerts"),
        (b"nonsense", 400, "not an Alertmanager"),
        (json.dumps(payload() | {"version": "3"}).encode(), 400, "version"),
        (b"x" * ((12 << 20) + 1), 413, "12 MiB"),
    ],
)
async def test_what_cannot_be_taken_is_said(client: httpx2.AsyncClient, body: bytes, status: int, said: str) -> None:
    answer = await client.post("/intake/alertmanager/lab", content=body)
    assert answer.status_code == status
    assert said in answer.json()["detail"]


async def test_an_alert_of_an_impossible_time_is_left_out_in_words_and_the_others_are_taken(
    client: httpx2.AsyncClient, database: Database
) -> None:
    odd = payload(labels={"alertname": "Ancient"}, startsAt="0492-01-01T00:00:00Z", fingerprint="f2")["alerts"]
    good = payload()["alerts"]
    assert isinstance(odd, list)
    assert isinstance(good, list)
    with structlog.testing.capture_logs() as logged:
        answer = await client.post("/intake/alertmanager/lab", json={"version": "4", "alerts": [*odd, *good]})
    assert answer.status_code == 200
    (said,) = answer.json()["left_out"]
    assert said.startswith("Ancient: startsAt 0492-01-01T00:00:00+00:00 is more than 400 days ago")
    (line,) = [one for one in logged if one["event"] == "alerts are left out"]
    assert (line["cluster"], line["why"], line["alerts"]) == ("lab", [said], 1)
    async with database.read.connect() as conn:
        (incident,) = await list_incidents(conn, cluster="lab")
    assert [alert.reason for alert in incident.alerts] == ["KubePodCrashLooping"]


async def test_a_cluster_that_is_mistyped_in_the_address_is_told_once_and_no_alert_is_lost(
    client: httpx2.AsyncClient, database: Database
) -> None:
    async with database.write.begin() as conn:
        await record(conn, Batch("checkout-eu", changes=(a_change(at=NOW),)))
    with structlog.testing.capture_logs() as logged:
        for _ in range(2):
            answer = await client.post("/intake/alertmanager/chekout-eu", json=payload())
            assert (answer.status_code, len(answer.json()["incidents"])) == (200, 1)
    told = [one for one in logged if one["event"] == "alerts have made a cluster"]
    assert [(one["cluster"], "is checkout-eu meant" in one["why"]) for one in told] == [("chekout-eu", True)]
    found = {one["name"]: one["remarks"] for one in (await client.get("/api/v1/clusters")).json()["items"]}
    assert found["checkout-eu"] == []
    assert found["chekout-eu"] == [
        "only alerts were ever told of it: is checkout-eu meant, in the address that they are sent to?"
    ]
    assert "only alerts were ever told of it: is checkout-eu meant" in (await client.get("/clusters")).text
    async with database.write.begin() as conn:
        await record(conn, Batch("chekout-eu", changes=(replace(a_change(at=NOW), sources=frozenset({"external"})),)))
    found = {one["name"]: one["remarks"] for one in (await client.get("/api/v1/clusters")).json()["items"]}
    assert len(found["chekout-eu"]) == 1, "what is told of all clusters is told of a mistyped one, too"


async def remarks_of(client: httpx2.AsyncClient, cluster: str) -> list[str] | None:
    found = {one["name"]: one["remarks"] for one in (await client.get("/api/v1/clusters")).json()["items"]}
    return found.get(cluster)


@pytest.mark.parametrize(
    ("beside", "alert", "reason", "many", "why"),
    [
        ({"truncatedAlerts": 2}, {}, "truncated", 2, "2 alerts more that were not sent: set max_alerts: 0"),
        ({}, {"startsAt": "1970-01-01T00:00:00Z"}, "time", 1, "more than 400 days ago"),
        ({}, {"startsAt": "2026-11-30T10:00:00"}, "not understood", 1, "alert 1 of 1"),
        ({}, {"labels": {"alertname": "Down", "shard": 3}}, "not understood", 1, "alert 1 of 1"),
    ],
)
async def test_an_alert_that_is_left_out_is_remarked_and_counted(
    client: httpx2.AsyncClient, beside: dict[str, object], alert: dict[str, Any], *, reason: str, many: int, why: str
) -> None:
    cluster = f"lost-{uuid4().hex[:8]}"
    answer = await client.post(f"/intake/alertmanager/{cluster}", json=payload(**alert) | beside)
    assert (answer.status_code, why in answer.json()["left_out"][0]) == (200, True)
    found = await remarks_of(client, cluster)
    assert found is not None
    alone, said = found
    assert alone.startswith("only alerts were ever told of it")
    assert said.startswith("alerts that were sent are not taken, since 20")
    assert why in said
    page = html.unescape((await client.get("/clusters")).text)
    assert said in page
    counted = client._transport.app.state.answers.left_out.labels("alertmanager", reason)  # type: ignore[attr-defined]
    assert counted._value.get() == many


async def test_a_remark_on_alerts_that_are_lost_says_since_when_and_goes_after_a_day(
    client: httpx2.AsyncClient, database: Database
) -> None:
    cluster, now = f"lost-{uuid4().hex[:8]}", datetime.now(UTC)
    for hours, why in ((50, "a"), (20, "b"), (10, "c")):
        async with database.write.begin() as conn:
            await remarks.note(conn, cluster, About.ALERTS, why, now=now - timedelta(hours=hours))
    since, last = (f"{now - timedelta(hours=hours):%Y-%m-%d %H:%M}" for hours in (20, 10))
    assert f"alerts that were sent are not taken, since {since}, last {last} (UTC): c" in (
        await remarks_of(client, cluster) or ()
    )
    async with database.write.begin() as conn:
        await remarks.note(conn, cluster, About.ALERTS, "d", now=now - timedelta(hours=25))
    assert await remarks_of(client, cluster) == []


async def test_a_body_without_an_alert_makes_no_cluster(client: httpx2.AsyncClient) -> None:
    cluster = f"none-{uuid4().hex[:8]}"
    answer = await client.post(f"/intake/alertmanager/{cluster}", json={"version": "4", "alerts": []})
    assert (answer.status_code, answer.json()) == (200, {"incidents": [], "left_out": []})
    assert await remarks_of(client, cluster) is None


async def test_a_viewer_and_a_stranger_send_no_alerts(client: httpx2.AsyncClient, database: Database) -> None:
    async with database.write.begin() as conn:
        viewer = await tokens.create(conn, Role.VIEWER, purpose=Purpose.API, now=NOW)
    refused = await client.post(
        "/intake/alertmanager/lab", json=payload(), headers={"Authorization": f"Bearer {viewer}"}
    )
    stranger = await client.post(
        "/intake/alertmanager/lab", json=payload(), headers={"Authorization": "Bearer nothing"}
    )
    assert (refused.status_code, stranger.status_code) == (403, 401)


def test_a_ranking_is_due_again_after_three_and_ten_minutes() -> None:
    incident = an_incident()
    began = incident.started_at

    def due(ranked: float | None, minutes: float) -> bool:
        at = None if ranked is None else began + timedelta(minutes=ranked)
        return correlate.is_due(replace(incident, ranked_at=at), began + timedelta(minutes=minutes))

    assert due(None, 0)
    assert not due(0.5, 2)
    assert due(0.5, 3)
    assert not due(3.2, 9)
    assert due(3.2, 10)
    assert not due(10.1, 50)
    assert not due(0.5, 90)


def test_an_incident_that_is_told_late_is_ranked_again_as_often_since_then() -> None:
    incident = an_incident()
    told = incident.started_at + timedelta(minutes=14)

    def due(ranked: float, minutes: float) -> bool:
        one = replace(incident, ranked_at=told + timedelta(minutes=ranked))
        return correlate.is_due(one, told + timedelta(minutes=minutes), told=told)

    assert not due(0, 2)
    assert due(0, 3)
    assert not due(3.2, 9)
    assert due(3.2, 10)
    assert not due(10.1, 40)
