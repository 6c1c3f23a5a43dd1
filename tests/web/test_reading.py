"""No route takes a connection by itself; who is limited to nothing pays nothing; a session is limited as its link."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from starlette.requests import Request

from app.core.roles import Role, Scope
from app.store import tokens
from app.store.timeline import ChangeFilter
from app.store.tokens import Purpose
from app.web import reading
from app.web.routes import create_app
from tests.web import world
from tests.web.conftest import NOW, Site, deps

WEB = Path(reading.__file__).parent
BY_ITSELF = {
    "reading.py": "gives it to the others",
    "guard.py": "asks who it is",
    "health.py": "asks whether the database answers",
    "metrics.py": "is closed to limited tokens",
}
"""Who takes a connection to read with by itself, and why."""
WRITES = {
    "auth.py",  # begins and ends sessions
    "oidc.py",  # begins sessions
    "verdicts.py",  # asks check_judging before
    "external.py",  # asks check_sending before
    "saved_views.py",  # is closed to limited tokens
    "undoing.py",  # reads the change before, and notes what is done to it
    "slack.py",  # is closed to limited tokens
    "known_tokens.py",  # knows tokens
    "audited.py",  # notes what was done
    "cluster_pages.py",  # notes that the demo was replayed, which is closed to limited tokens
}
"""Who takes a connection to write with."""


def users(pattern: str) -> set[str]:
    return {path.name for path in WEB.glob("*.py") if re.search(pattern, path.read_text())}


def test_no_route_takes_a_connection_by_itself() -> None:
    assert users(r"\.(read|scoped)\b(?!\()") - {"deps.py"} == set(BY_ITSELF)
    assert users(r"\b_?write\.(begin|connect)\(") == WRITES


async def test_who_is_limited_to_nothing_never_meets_a_view(site: Site) -> None:
    async with site.client() as client:
        for path in ("/api/v1/changes", "/", f"/incidents/{world.incident().id}", "/clusters", "/explore"):
            assert (await client.get(path)).status_code == 200
    assert site.database.scoped.pool.checkedin() == 0  # type: ignore[attr-defined]


async def test_a_process_without_views_answers_nobody_who_is_limited(site: Site) -> None:
    async with site.database.write.begin() as conn:
        token = await tokens.create(conn, Role.VIEWER, purpose=Purpose.API, now=NOW, scope=Scope.parse(["shop"]))
    async with site.client(None) as client:
        answer = await client.get("/api/v1/changes", headers={"Authorization": f"Bearer {token}"})
    assert answer.status_code == 503
    assert "limited" in answer.json()["detail"]


@pytest.fixture(scope="module")
def limited(site: Site) -> Site:
    """The same site where who is limited is answered."""
    app = create_app(replace(deps(site.database), scoped=site.database.scoped))
    return Site(app, site.database, site.bearer)


async def test_a_session_is_limited_as_its_link_is(limited: Site) -> None:
    scope = Scope.parse(["shop/growth"])
    async with limited.database.write.begin() as conn:
        link = await tokens.create(conn, Role.RESPONDER, purpose=Purpose.LOGIN, now=NOW, scope=scope)
    async with limited.client(None) as browser:
        assert (await browser.post("/login", data={"token": link})).status_code == 303
        found = (await browser.get("/api/v1/changes")).json()["items"]
        page = (await browser.get("/")).text
        assert (await browser.get("/slack")).status_code == 403
    assert {one["resource"]["namespace"] for one in found} == {"growth"}
    assert world.incident().title not in page


async def test_who_reaches_an_incidents_namespaces_is_shown_the_suspects_in_them(limited: Site) -> None:
    async with limited.database.write.begin() as conn:
        scope = Scope.parse(["shop/payments"])
        token = await tokens.create(conn, Role.VIEWER, purpose=Purpose.API, now=NOW, scope=scope)
    async with limited.client(None) as client:
        signed = {"Authorization": f"Bearer {token}"}
        listed = (await client.get("/", headers=signed)).text
        page = (await client.get(f"/incidents/{world.incident().id}", headers=signed)).text
        told = (await client.get(f"/api/v1/incidents/{world.incident().id}/suspects", headers=signed)).json()
    whole = world.ranking()
    own = [one for one in whole.suspects if one.change.resource.namespace == "payments"]
    assert 0 < len(own) < len(whole.suspects)
    assert [(one["rank"], one["probability"]) for one in told["items"]] == [
        (rank, one.probability) for rank, one in enumerate(own, start=1)
    ]
    assert {one["change"]["resource"]["namespace"] for one in told["items"]} == {"payments"}
    assert told["none_of_these"] == pytest.approx(1 - sum(one.probability for one in own))
    assert told["candidates"] == len(own)
    assert not any(one["evidence"] or one["derived"] for one in told["items"])
    parts = [part["resource"]["namespace"] for one in told["items"] for part in (*one["also"], *one["beside"])]
    assert set(parts) <= {"payments"}
    assert "only changes in your namespaces are suspects here" in page
    assert whole.suspects[0].evidence[0].sentence not in page
    assert whole.onset.found_in not in page
    assert "This was it" not in page
    assert "93 %" in listed


@pytest.mark.parametrize(
    ("scope", "wanted", "narrow"),
    [
        (None, ChangeFilter(), ChangeFilter()),
        (["shop"], ChangeFilter(), ChangeFilter()),
        (["shop/growth"], ChangeFilter(), ChangeFilter(namespace="growth")),
        (["shop/-"], ChangeFilter("shop"), ChangeFilter("shop", namespace="")),
        (["shop/growth"], ChangeFilter("other"), ChangeFilter("other")),
        (["shop/growth"], ChangeFilter(namespace="payments"), ChangeFilter(namespace="payments")),
        (["shop/growth", "shop/payments"], ChangeFilter(), ChangeFilter()),
    ],
)
def test_a_scope_of_one_namespace_goes_into_the_filter(
    scope: list[str] | None, wanted: ChangeFilter, narrow: ChangeFilter
) -> None:
    request = Request({"type": "http", "state": {"scope": scope and Scope.parse(scope)}})
    assert reading.narrowed(request, wanted) == narrow
