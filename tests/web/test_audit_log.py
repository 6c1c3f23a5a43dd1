"""What is done in Foreshock itself is noted, whoever does it; what is refused is counted; admins read it."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import httpx2
import pytest
from fastapi.routing import iter_route_contexts
from sqlalchemy import insert

from app.correlate import ByHand
from app.store import audit, tables
from app.store.audit import Action, Entry, Wanted
from app.store.tokens import Purpose
from app.web.routes import create_app
from tests.web import world
from tests.web.conftest import HOST, Site, deps

INCIDENT, CULPRIT = world.incident().id, world.CULPRIT.id
LEFT_EMPTY = dict.fromkeys(("since", "namespaces", "workloads", "nodes", "severity"), "")
"""What the form of an incident has besides."""
DONE: tuple[tuple[str, str, dict[str, Any], Action, str], ...] = (
    (
        "POST /api/v1/incidents",
        "/api/v1/incidents",
        {"json": {"cluster": world.CLUSTER, "title": "By REST"}},
        Action.INCIDENT_OPENED,
        "[0-9a-f]{12}",
    ),
    (
        "POST /incidents",
        "/incidents",
        {"data": {"cluster": world.CLUSTER, "title": "By a form", "once": "1" * 32} | LEFT_EMPTY},
        Action.INCIDENT_OPENED,
        "[0-9a-f]{12}",
    ),
    (
        "PATCH /api/v1/incidents/{incident_id}",
        f"/api/v1/incidents/{INCIDENT}",
        {"json": {"title": "Changed"}},
        Action.INCIDENT_CHANGED,
        INCIDENT,
    ),
    (
        "POST /incidents/{incident_id}/status",
        f"/incidents/{INCIDENT}/status",
        {"data": {"status": "resolved"}},
        Action.INCIDENT_CHANGED,
        INCIDENT,
    ),
    (
        "POST /incidents/{incident_id}/correct",
        f"/incidents/{INCIDENT}/correct",
        {
            "data": {
                "since": "2026-11-20 14:02:00",
                "namespaces": "",
                "workloads": "",
                "nodes": "",
                "control_plane": "",
                "known": '{"since": "2026-11-20 14:01:00", "namespaces": "known", "workloads": "", "nodes": ""}',
            }
        },
        Action.INCIDENT_CHANGED,
        INCIDENT,
    ),
    (
        "PUT /api/v1/incidents/{incident_id}/verdicts/{change_id}",
        f"/api/v1/incidents/{INCIDENT}/verdicts/{CULPRIT}",
        {"json": {"opinion": "it"}},
        Action.VERDICT_SAID,
        f"{INCIDENT}: it, {CULPRIT}",
    ),
    (
        "DELETE /api/v1/incidents/{incident_id}/verdicts/{change_id}",
        f"/api/v1/incidents/{INCIDENT}/verdicts/{CULPRIT}",
        {},
        Action.VERDICT_TAKEN_BACK,
        f"{INCIDENT}: {CULPRIT}",
    ),
    (
        "POST /incidents/{incident_id}/verdicts",
        f"/incidents/{INCIDENT}/verdicts",
        {"data": {"change": "none", "opinion": "not it"}},
        Action.VERDICT_SAID,
        f"{INCIDENT}: not it, none",
    ),
    (
        "POST /views",
        "/views",
        {"data": {"name": "mine", "query": "of=calls&by=user"}},
        Action.VIEW_SAVED,
        r"\d+: mine",
    ),
    (
        "POST /views/{view_id}/rename",
        "/views/VIEW/rename",
        {"data": {"name": "ours"}},
        Action.VIEW_RENAMED,
        r"\d+: ours",
    ),
    ("POST /views/{view_id}/delete", "/views/VIEW/delete", {}, Action.VIEW_DELETED, r"\d+: ours"),
    ("POST /slack/again", "/slack/again", {}, Action.SENT_AGAIN, "all"),
    ("POST /demo", "/demo", {}, Action.DEMO_REPLAYED, "/incidents/x"),
    ("POST /api/v1/incidents/{incident_id}/merge", "/api/v1/incidents/A/merge", {}, Action.INCIDENT_MERGED, "A into B"),
    ("POST /incidents/{incident_id}/merge", "/incidents/A/merge", {}, Action.INCIDENT_MERGED, "A into B"),
)
"""Each route that changes something: a request to it, what is noted, and of what."""
NOTED_OTHERWISE = {
    "POST /login",  # test_a_login_a_refused_one_and_its_end_are_noted
    "POST /logout",  # when the session ends (tests/store/test_audit.py)
    "POST /api/v1/changes",  # is recorded itself, with who told of it
    "POST /changes/{change_id}/dry-run",  # takes a person whom somebody named (tests/web/test_undoing.py)
    "POST /changes/{change_id}/undo",
    "POST /slack/forget",  # takes a message that was given up (tests/web/test_slack.py)
}


@pytest.fixture
def app(site: Site) -> Any:
    async def replay() -> str:
        return "/incidents/x"

    hands = ByHand(site.database.write)
    return create_app(replace(deps(site.database), by_hand=hands, replay_demo=replay))


def client(app: Any, site: Site, role: str | None = "admin", address: str = "192.0.2.7") -> httpx2.AsyncClient:
    transport = httpx2.ASGITransport(app=app, raise_app_exceptions=False, client=(address, 1))
    headers = {"Authorization": f"Bearer {site.bearer[role]}"} if role else {}
    return httpx2.AsyncClient(transport=transport, base_url=HOST, headers=headers)


async def noted(site: Site, **wanted: Any) -> list[Entry]:
    async with site.database.read.connect() as conn:
        return list(await audit.read(conn, Wanted(**wanted), before=None, limit=1000))


def test_every_route_that_changes_something_is_looked_at(app: Any) -> None:
    unsafe = {
        f"{method} {route.path}"
        for route in iter_route_contexts(app.routes)
        for method in (route.methods or ())
        if method not in ("GET", "HEAD", "OPTIONS") and not str(route.path).startswith("/intake/")
    }
    assert unsafe - NOTED_OTHERWISE == {route for route, *_ in DONE}


async def test_what_changes_something_is_noted_with_who_and_from_where(app: Any, site: Site) -> None:
    async with client(app, site) as admin:
        for route, path, body, action, about in DONE:
            whole, cut = "", ""
            if "merge" in path:
                made = [await _opened(admin, n) for n in ("part", "whole")]
                cut, whole = made
                told = {"into": whole}
                body = {"json": told} if path.startswith("/api/") else {"data": told}  # noqa: PLW2901
            if "VIEW" in path:
                async with site.database.read.connect() as conn:
                    path = path.replace("VIEW", str(await conn.scalar(tables.views.select())))  # noqa: PLW2901
            before = await noted(site)
            method = route.partition(" ")[0]
            answer = await admin.request(method, path.replace("/A/", f"/{cut}/"), **body)
            assert answer.status_code < 400, (route, answer.text)
            last, *rest = await noted(site)
            assert rest == before, route
            assert last.action == action
            assert re.fullmatch(about.replace("A into B", f"{cut} into {whole}"), last.about), last
            assert (last.who, last.address, last.times) == ("an admin", "192.0.2.7", 1)
            assert last.token is not None


async def _opened(admin: httpx2.AsyncClient, title: str) -> str:
    answer = await admin.post("/api/v1/incidents", json={"cluster": world.CLUSTER, "title": title})
    return str(answer.json()["incident"]["id"])


async def test_what_changes_nothing_is_not_noted(app: Any, site: Site) -> None:
    before = await noted(site)
    async with client(app, site) as admin:
        assert (await admin.get("/api/v1/changes")).status_code == 200
        assert (await admin.get("/")).status_code == 200
        assert (await admin.post("/views", data={"name": "", "query": ""})).status_code == 422
        assert (await admin.post("/views/999999/delete")).status_code == 404
        assert (await admin.patch("/api/v1/incidents/000000000000", json={"title": "x"})).status_code == 404
    assert await noted(site) == before


async def test_a_login_a_refused_one_and_its_end_are_noted(app: Any, site: Site) -> None:
    async with client(app, site, None, "192.0.2.8") as browser:
        await browser.post("/login", data={"token": await site.token(Purpose.LOGIN)})
        session = browser.cookies
        assert (await browser.post("/login", data={"token": "fs_secret-of-nobody"})).status_code == 401
        await browser.post("/logout", headers={"Sec-Fetch-Site": "same-origin"})
    assert session is not None
    found = [one for one in await noted(site) if one.address == "192.0.2.8"]
    assert [one.action for one in found] == [Action.SIGNED_OUT, Action.LOGIN_REFUSED, Action.SIGNED_IN]
    assert [one.who for one in found] == ["a viewer", "", "a viewer"]
    assert "secret-of-nobody" not in repr(found)


async def test_what_is_taken_away_as_a_file_is_noted_with_its_address(app: Any, site: Site) -> None:
    path = f"/api/v1/changes/{CULPRIT}/manifest"
    async with client(app, site, "viewer") as viewer:
        assert (await viewer.get(path)).status_code == 200
        csv = await viewer.get(f"/explore?cluster={world.CLUSTER}&of=calls&by=user&format=csv")
        assert csv.headers["content-disposition"].startswith("attachment")
    assert {one.about for one in await noted(site, action="downloaded")} == {path, "/explore"}


async def test_what_is_taken_away_in_lines_or_page_by_page_is_noted_as_well(app: Any, site: Site) -> None:
    async with client(app, site, "viewer", "192.0.2.13") as viewer:
        first = (await viewer.get("/api/v1/changes?limit=1")).json()
        assert await taken_away(site, "192.0.2.13") == []
        page = await viewer.get(f"/api/v1/changes?limit=1&after={first['next']}")
        assert page.status_code == 200
        await viewer.get("/api/v1/incidents", headers={"Accept": "application/x-ndjson"})
        await viewer.get("/api/v1/gaps?after=nothing")
    assert await taken_away(site, "192.0.2.13") == ["/api/v1/incidents", "/api/v1/changes"]


async def taken_away(site: Site, address: str) -> list[str]:
    return [one.about for one in await noted(site, action="downloaded") if one.address == address]


@pytest.mark.parametrize(
    ("path", "action"), [("/api/v1/changes", Action.FOLLOWED), ("/api/v1/incidents", Action.INCIDENTS_FOLLOWED)]
)
async def test_who_follows_is_noted_once(app: Any, site: Site, path: str, action: Action) -> None:
    app.state.followers.stopping = lambda: True
    address = "192.0.2.12" if action is Action.FOLLOWED else "192.0.2.14"
    async with client(app, site, "viewer", address) as viewer:
        answer = await viewer.get(f"{path}?follow=1")
        assert answer.headers["content-type"].startswith("application/x-ndjson")
    found = [one for one in await noted(site) if one.address == address]
    assert [(one.action, one.about) for one in found] == [(action, path)]


async def test_a_denial_names_the_route_and_nothing_that_was_written_into_its_address(app: Any, site: Site) -> None:
    async with client(app, site, "viewer", "192.0.2.9") as viewer:
        assert (await viewer.post("/incidents/secret-of-nobody/status")).status_code == 403
        assert (await viewer.get("/api/v1/audit")).status_code == 403
        assert (await viewer.get("/audit")).status_code == 403
        assert (await viewer.post("/views", headers={"Origin": "https://evil.example"})).status_code == 403
        bad = {"Authorization": "Bearer fs_secret-of-nobody"}
        assert (await viewer.get("/changes/secret-of-nobody?x=secret-of-nobody", headers=bad)).status_code == 401
        assert (await viewer.get("/", headers={"Authorization": ""})).status_code == 401
    found = [one for one in await noted(site) if one.address == "192.0.2.9"]
    assert sorted((one.action, one.who, one.about) for one in found) == [
        (Action.CREDENTIAL_REFUSED, "", ""),
        (Action.DENIED, "", ""),
        (Action.DENIED, "a viewer", "GET /api/v1/audit"),
        (Action.DENIED, "a viewer", "GET /audit"),
        (Action.DENIED, "a viewer", "POST /incidents/{incident_id}/status"),
    ]
    assert "secret-of-nobody" not in repr(found)


async def test_a_flood_is_counted_and_not_stored_one_by_one(app: Any, site: Site) -> None:
    async with client(app, site, None, "192.0.2.10") as stranger:
        for number in range(40):
            await stranger.get("/api/v1/changes", headers={"Authorization": f"Bearer fs_{number}"})
    (first,) = [one for one in await noted(site) if one.address == "192.0.2.10"]
    assert first.times == 1
    await app.state.tally.flush()
    found = [one for one in await noted(site) if one.address == "192.0.2.10"]
    assert [one.times for one in found] == [39, 1]


async def test_a_flood_from_everywhere_makes_a_bounded_number_of_rows(
    app: Any, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.web.audited.MOST", 5)
    for number in range(12):
        async with client(app, site, None, f"198.51.100.{number}") as stranger:
            await stranger.get("/", headers={"Authorization": "Bearer fs_x"})
    found = [one.address for one in await noted(site, action="credential refused")]
    assert found.count("elsewhere") == 1
    assert len([one for one in found if one.startswith("198.51.100.")]) <= 5


async def test_admins_read_it_as_a_page_json_a_table_and_lines(app: Any, site: Site) -> None:
    async with client(app, site, "viewer") as viewer:
        assert (await viewer.post("/incidents/x/status")).status_code == 403
    await noted(site)
    async with client(app, site) as admin:
        page = await admin.get("/audit", params={"action": "denied"})
        assert page.status_code == 200
        assert "POST /incidents/{incident_id}/status" in page.text
        assert "the command line" in (await admin.get("/audit")).text
        assert "Nothing matches" in (await admin.get("/audit?who=nobody")).text
        assert 'href="/audit"' in (await admin.get("/clusters")).text
        first = (await admin.get("/api/v1/audit", params={"limit": 2})).json()
        rest = (await admin.get("/api/v1/audit", params={"after": first["next"], "limit": 1000})).json()
        table = (await admin.get("/api/v1/audit", headers={"Accept": "text/plain"})).text
        lines = (await admin.get("/api/v1/audit", headers={"Accept": "application/x-ndjson"})).text
        empty = await admin.get("/api/v1/audit?from=2026-01-02T00:00:00Z&to=2026-01-01T00:00:00Z")
    assert len(first["items"]) == 2
    assert not {json.dumps(one) for one in first["items"]} & {json.dumps(one) for one in rest["items"]}
    assert rest["next"] is None
    assert "ACTION" in table
    assert all(len(line) <= 80 for line in table.splitlines())
    assert json.loads(lines.splitlines()[0])["action"] in set(Action)
    assert empty.status_code == 422
    async with client(app, site, "viewer") as viewer:
        assert 'href="/audit"' not in (await viewer.get("/clusters")).text


async def test_what_a_newer_version_noted_is_told_as_it_stands(app: Any, site: Site) -> None:
    newer = {"at": world.END, "action": "moved", "who": "x", "address": "", "about": "it", "times": 1}
    async with site.database.write.begin() as conn:
        await conn.execute(insert(tables.audit_log).values(**newer))
    async with client(app, site) as admin:
        assert "moved" in (await admin.get("/audit")).text
        assert (await admin.get("/api/v1/audit")).json()["items"][0]["action"] == "moved"


async def test_what_was_counted_is_written_when_the_process_stops(app: Any, site: Site) -> None:
    async with client(app, site, None, "192.0.2.11") as stranger:
        for _ in range(3):
            await stranger.get("/", headers={"Authorization": "Bearer fs_x"})
    async with app.router.lifespan_context(app):
        pass
    async with site.database.read.connect() as conn:
        found = await audit.read(conn, Wanted(action="credential refused"), before=None, limit=10)
    assert [one.times for one in found if one.address == "192.0.2.11"] == [2, 1]
