"""REST tells what the pages show: problems, what moved, the control plane, verdicts, views, deliveries, routes."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from html import unescape
from typing import Any

import httpx2
import pytest
from sqlalchemy import insert

from app.core.findings import Opinion, Verdict
from app.core.model import Batch, Resource, Symptom, SymptomSource
from app.core.routes import Quiet, Route, Routes
from app.core.targets import Webhook
from app.store import notices, outbox, slack_tables, verdicts, views
from app.store.notices import Mute
from app.store.record import record
from app.web import deps as web
from app.web.routes import create_app
from tests.web import world
from tests.web.conftest import NOW, UNLIMITED, Site, deps
from tests.web.test_after import ARGOCD, counts, depth, served

ROUTES = Routes(
    (
        Route(channel="C0000000001", namespaces=("payments",)),
        Route(channel="C0000000002", quiet=Quiet("00:00", "23:59")),
        Route(channel="C0000000003"),
    )
)
POD = Resource(world.CLUSTER, "", "Pod", "payments", "checkout-api-1")


@pytest.fixture(scope="module")
async def told(site: Site) -> Site:
    """The same site, with more to tell."""
    hurting = Symptom(
        SymptomSource.POD,
        "CrashLoopBackOff",
        world.CULPRIT.at + timedelta(seconds=5),
        "hurt-1",
        resource=POD,
        workload=world.CULPRIT.resource,
        count=4,
    )
    async with site.database.write.begin() as conn:
        await record(conn, Batch(world.CLUSTER, symptoms=(hurting,)))
        await verdicts.say(conn, world.incident().id, Verdict(world.CULPRIT.id, Opinion.IT, "Alice", NOW))
        await views.add_view(conn, "who lists", "of=calls&by=user", now=NOW)
        await notices.mute(conn, Mute("C0000000003", "", "", "", NOW + timedelta(hours=1), "Bob"), now=NOW)
    slack = web.Slack(channel="C0000000001", routes=lambda: ROUTES)
    app = create_app(replace(deps(site.database), slack=slack), limits=UNLIMITED)
    return Site(app, site.database, site.bearer)


async def asked(site: Site, path: str, **more: Any) -> Any:
    async with site.client() as client:
        answer = await client.get(f"/api/v1/{path}", **more)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def table(site: Site, path: str) -> str:
    async with site.client() as client:
        answer = await client.get(f"/api/v1/{path}", headers={"Accept": "text/plain"})
    assert answer.status_code == 200, answer.text
    assert all(len(line) <= 80 for line in answer.text.splitlines())
    return answer.text


async def page(site: Site, path: str) -> str:
    async with site.client() as client:
        answer = await client.get(path)
    assert answer.status_code == 200
    return unescape(answer.text)


async def test_what_hurts_is_what_the_page_of_a_change_has(told: Site) -> None:
    until = (world.END + timedelta(minutes=1)).isoformat()
    everywhere = (await asked(told, "problems", params={"cluster": world.CLUSTER, "to": until}))["items"]
    (pods,) = [one for one in everywhere if one["reason"] == "CrashLoopBackOff" and one["count"] == 4]
    assert (pods["kind"], pods["name"], pods["namespace"]) == ("Deployment", "checkout-api", "payments")
    within = {"cluster": world.CLUSTER, "to": until, "namespace": "payments"}
    here = (await asked(told, "problems", params=within))["items"]
    assert here == [one for one in everywhere if one["namespace"] == "payments"]
    assert len(await first(told, within, limit=1)) == 1
    assert await first(told, within | {"namespace": "nobodys"}) == []
    after = await asked(told, f"changes/{world.CULPRIT.id}/after")
    assert [one for one in after["problems"] if one["count"] == 4] == [pods]
    assert "CrashLoopBackOff" in await page(told, f"/changes/{world.CULPRIT.id}")
    text = await table(told, f"problems?cluster={world.CLUSTER}&to={until.replace('+', '%2B')}")
    assert "payments         Deployment checkout-api" in text


async def first(site: Site, params: dict[str, str], **more: Any) -> list[Any]:
    found: list[Any] = (await asked(site, "problems", params=params | more))["items"]
    return found


async def test_what_moved_is_what_the_page_draws(told: Site) -> None:
    change = world.CULPRIT
    later = [served("payments", code, before=30.0, later=4.0) for code in ("200", "503")]
    async with told.database.write.begin() as conn:
        await record(conn, Batch(world.CLUSTER, calls=counts(ARGOCD, 1, 205), series=(depth(), *later)))
    after = await asked(told, f"changes/{change.id}/after")
    drawn = await page(told, f"/changes/{change.id}")
    (queue,) = [one for one in after["items"] if one["title"] == "Queue depth"]
    assert (queue["who"], queue["before"], queue["after"], queue["harm"]) == ("", 2.0, 90.0, True)
    for one in after["items"]:
        assert one["title"] in drawn
    assert after["looked_at"] == ["calls", "metrics", "requests of apps"]
    assert "looked at: calls, metrics, requests of apps" in await table(told, f"changes/{change.id}/after")
    async with told.client() as client:
        assert (await client.get(f"/api/v1/changes/{'0' * 28}/after")).status_code == 404


async def test_a_control_plane_has_the_panels_of_its_page(told: Site) -> None:
    async with told.database.write.begin() as conn:
        await record(conn, Batch(cluster=world.CLUSTER, series=world.metrics()))
    window = {"to": world.END.isoformat(), "minus": "30m"}
    answer = await asked(told, f"clusters/{world.CLUSTER}/control-plane", params=window)
    drawn = await page(told, f"/clusters/{world.CLUSTER}/control-plane?to={world.END:%Y-%m-%dT%H:%M:%SZ}&minus=30m")
    assert answer["items"]
    for panel in answer["items"]:
        assert panel["title"] in drawn
        lengths = {len(line["values"]) for line in panel["lines"]}
        assert len(lengths) == 1
        async with told.client() as client:
            explored = await client.get(f"/explore?cluster={world.CLUSTER}&{panel['query']}")
        assert explored.status_code == 200, panel["query"]
    assert not {one["title"] for one in answer["items"]} & set(answer["missing"])
    text = await table(told, f"clusters/{world.CLUSTER}/control-plane?to={world.END:%Y-%m-%dT%H:%M:%SZ}&minus=30m")
    assert all(one["title"][:29] in text for one in answer["items"])
    assert "nothing is known of: " in text
    async with told.client() as client:
        assert (await client.get("/api/v1/clusters/nowhere/control-plane")).status_code == 404
        long = {"to": world.END.isoformat(), "minus": "2d"}
        longer = (await client.get(f"/api/v1/clusters/{world.CLUSTER}/control-plane", params=long)).json()
    assert (answer["calls_left_out"], longer["calls_left_out"]) == (False, True)


async def test_what_people_said_and_what_follows_from_it(told: Site) -> None:
    answer = await asked(told, "accuracy")
    (said,) = answer["items"]
    assert (said["incident_id"], said["change_id"]) == (world.incident().id, world.CULPRIT.id)
    assert (said["opinion"], said["by"], said["place"]) == ("it", "Alice", 1)
    assert (answer["judged"], answer["without_culprit"]) == (1, 0)
    (ranked, *_) = answer["ranked"]
    assert ranked["first"]["share"] == 1.0
    assert ranked["when"] in await page(told, "/accuracy")
    assert "first in 100%" in await table(told, "accuracy")


async def test_saved_views_are_those_of_the_explorer(told: Site) -> None:
    found = (await asked(told, "views"))["items"]
    assert (found[-1]["name"], found[-1]["query"]) == ("who lists", "of=calls&by=user")
    assert {one["name"] for one in found if one["id"] is None}
    drawn = await page(told, "/explore")
    assert all(one["name"] in drawn for one in found)


async def test_what_did_not_get_through_is_told_with_why(told: Site) -> None:
    fixed: dict[str, Any] = {
        "incident_id": world.incident().id,
        "channel": "C0000000001",
        "body": "",
        "attempts": 1,
        "not_before": NOW,
    }
    rows: list[dict[str, Any]] = [
        {"part": 0, "ts": "1.0", "error": "", "attempts": 0},
        {"part": 1, "ts": None, "error": "invite it (not_in_channel)"},
    ]
    async with told.database.write.begin() as conn:
        await outbox.name_channel(conn, "C0000000001", now=NOW)
        for row in rows:
            await conn.execute(insert(slack_tables.messages).values(**fixed | row))
    answer = await asked(told, "deliveries")
    (failed,) = answer["items"]
    assert (answer["there"], failed["is_reply"], failed["posted"]) == (1, True, False)
    assert failed["error"] == "invite it (not_in_channel)"
    assert failed["error"] in await page(told, "/slack")
    assert "there: 1, waiting: 0" in await table(told, "deliveries")


async def test_where_a_change_goes_is_told_route_by_route(told: Site) -> None:
    answer = await asked(told, "routing", params={"change": world.CULPRIT.id})
    assert [(one["place"][-1], one["tells"]) for one in answer["items"]] == [("1", True), ("2", True), ("3", False)]
    assert answer["items"][1]["quiet_until"] is not None
    assert answer["items"][2]["muted_by"] == "Bob"
    assert (answer["change_id"], answer["never"]) == (world.CULPRIT.id, "")
    other = await asked(told, "routing", params={"namespace": "growth", "kind": "Deployment", "name": "mailer"})
    assert (other["items"][0]["tells"], other["change_id"]) == (False, None)
    assert other["items"][0]["why_not"]
    never = await asked(told, "routing", params={"kind": "Pod"})
    assert never["never"]
    assert [one["tells"] for one in never["items"]] == [False] * 3
    assert "muted by Bob" in await table(told, f"routing?change={world.CULPRIT.id}")
    async with told.client() as client:
        assert (await client.get("/api/v1/routing")).status_code == 422
        assert (await client.get("/api/v1/routing?change=x")).status_code == 404


async def test_routes_are_told_with_what_is_muted_and_what_is_off(told: Site) -> None:
    hook = Webhook("/etc/foreshock/secret", url="https://hooks.example.com/x")
    routes = Routes((*ROUTES.routes, Route(target="pager", labels={"team": "shop"})), {"pager": hook})
    slack = web.Slack(channel="C0000000001", routes=lambda: routes, routes_error=lambda: "routes.yaml: a < b")
    app = create_app(replace(deps(told.database), slack=slack), limits=UNLIMITED)
    site = Site(app, told.database, told.bearer)
    async with told.database.write.begin() as conn:
        await outbox.name_channel(conn, "pager", now=NOW)
        await outbox.turn_off(conn, "pager", "it answered 410 Gone")
    answer = await asked(site, "routes")
    assert [(one["place"], one["of"], one["off"]) for one in answer["items"]] == [
        ("C0000000001", "Slack", ""),
        ("C0000000002", "Slack", ""),
        ("C0000000003", "Slack", ""),
        ("pager", "a webhook", "it answered 410 Gone"),
    ]
    assert answer["items"][0]["namespaces"] == ["payments"]
    assert answer["items"][1]["quiet"] == {"begins": "00:00", "ends": "23:59", "zone": "UTC"}
    assert answer["items"][3]["labels"] == {"team": "shop"}
    assert [(one["channel"], one["name"], one["said_by"]) for one in answer["muted"]] == [("C0000000003", "", "Bob")]
    assert (answer["incidents"], answer["file_error"]) == ("C0000000001", "routes.yaml: a < b")
    lines = (await table(site, "routes")).splitlines()
    assert any("changes of namespaces payments" in line for line in lines)
    assert {"quiet in C0000000002: 00:00 to 23:59 UTC", "turned off: pager: it answered 410 Gone"} <= set(lines)
    assert any(line.startswith("muted in C0000000003: all changes, until") for line in lines)
    assert max(map(len, lines)) <= 80
    assert "hooks.example.com" not in str(answer)


async def test_it_is_told_to_no_stranger(told: Site) -> None:
    async with told.client(None) as nobody:
        for path in (
            "accuracy",
            "views",
            "deliveries",
            "routes",
            "routing?kind=Pod",
            f"problems?cluster={world.CLUSTER}",
        ):
            answer: httpx2.Response = await nobody.get(f"/api/v1/{path}")
            assert answer.status_code == 401, path
