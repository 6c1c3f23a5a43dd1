"""Who a proxy says that asks: believed of a trusted one alone, and for what access.yaml gives them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest
from fastapi import FastAPI
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from app.core.access import Access, Proxy
from app.core.roles import Role
from app.store import audit
from app.store.audit import Action, Wanted
from app.store.tokens import Purpose
from app.web import guard
from app.web.follow import Followers
from app.web.proxied import Peered
from app.web.routes import create_app
from tests.serving import program
from tests.web import world
from tests.web.conftest import HOST, UNLIMITED, Site, deps

PROXY, ELSEWHERE = "10.0.3.7", "192.0.2.66"
ACCESS = msgspec.convert(
    {
        "groups": {"sre": {"role": "admin"}, "shop": {"role": "viewer", "scopes": [f"{world.CLUSTER}/payments"]}},
        "users": {"carol@example.com": {"role": "viewer"}},
    },
    Access,
)
ALICE = {"X-Forwarded-User": "alice@example.com", "X-Forwarded-Groups": "staff, sre"}


@pytest.fixture
def app(site: Site) -> FastAPI:
    proxy = Proxy("X-Forwarded-User", "X-Forwarded-Groups", (ip_network("10.0.3.0/24"),))
    ours = replace(deps(site.database), proxy=proxy, access=lambda: ACCESS, scoped=site.database.scoped)
    return create_app(ours, limits=UNLIMITED)


def client(app: Any, peer: str = PROXY, **more: Any) -> httpx2.AsyncClient:
    transport = httpx2.ASGITransport(app=Peered(app), raise_app_exceptions=False, client=(peer, 1))
    return httpx2.AsyncClient(transport=transport, base_url=HOST, **more)


async def newest(site: Site, **wanted: Any) -> audit.Entry:
    async with site.database.read.connect() as conn:
        return (await audit.read(conn, Wanted(**wanted), before=None, limit=1))[0]


async def test_a_trusted_proxy_says_who_it_is_and_their_groups_what_they_may(app: FastAPI, site: Site) -> None:
    async with client(app) as browser:
        assert (await browser.get("/", headers=ALICE)).status_code == 200
        assert (await browser.get("/audit", headers=ALICE)).status_code == 200
        carol = {"X-Forwarded-User": "carol@example.com"}
        assert (await browser.get("/api/v1/changes", headers=carol)).status_code == 200
        assert (await browser.get("/api/v1/audit", headers=carol)).status_code == 403
        saved = await browser.post("/views", headers=ALICE, data={"name": "proxied", "query": "of=calls&by=user"})
        assert saved.status_code == 303
    noted = await newest(site, action=Action.VIEW_SAVED)
    assert (noted.who, noted.token, noted.address) == ("alice@example.com", None, PROXY)
    assert (await newest(site, action=Action.DENIED)).who == "carol@example.com"


async def test_who_is_limited_to_a_namespace_is(app: FastAPI) -> None:
    async with client(app, headers={"X-Forwarded-User": "bob", "X-Forwarded-Groups": "shop"}) as browser:
        shown = (await browser.get("/api/v1/changes?limit=1000")).json()["items"]
        assert {one["resource"]["namespace"] for one in shown} == {"payments"}
        assert (await browser.get("/views")).status_code in (403, 405)


async def test_who_has_no_group_is_told_which_were_seen(app: FastAPI, site: Site) -> None:
    async with client(app) as browser:
        told = await browser.get("/", headers={"X-Forwarded-User": "eve", "X-Forwarded-Groups": "staff,<b>sales"})
        assert told.status_code == 403
        assert "you are eve" in told.text.lower()
        assert "staff, &lt;b&gt;sales" in told.text
        assert "access.yaml" in told.text
        none = await browser.get("/api/v1/changes", headers={"X-Forwarded-User": "eve"})
        assert "in no group" in none.json()["detail"]
    assert (await newest(site, action=Action.DENIED)).who == "eve"


@pytest.mark.parametrize("peer", [ELSEWHERE, "10.0.30.7", "127.0.0.1", "::1", "x"])
@pytest.mark.parametrize("sent", [ALICE, {"x-forwarded-user": "alice"}, {"X-Forwarded-Groups": "sre"}])
async def test_from_anybody_else_the_headers_are_refused(app: FastAPI, peer: str, sent: dict[str, str]) -> None:
    async with client(app, peer) as other:
        told = await other.get("/api/v1/changes", headers=sent)
        assert told.status_code == 403
        assert f"came from {peer}, which is none of FORESHOCK_TRUSTED_PROXIES" in told.json()["detail"]


async def test_what_x_forwarded_for_says_makes_nobody_a_proxy(app: FastAPI) -> None:
    """The first is told by who asks, through a proxy that is trusted for that; the second is not one."""
    for peer, status in ((ELSEWHERE, 403), (PROXY, 200)):
        around = ProxyHeadersMiddleware(app, trusted_hosts="*")  # type: ignore[arg-type]
        async with client(around, peer) as other:
            for said in (PROXY, ELSEWHERE):
                told = await other.get("/api/v1/changes", headers={**ALICE, "X-Forwarded-For": said})
                assert told.status_code == status, (peer, said)


async def test_where_the_connection_is_from_must_be_known(app: FastAPI) -> None:
    transport = httpx2.ASGITransport(app=app, client=(PROXY, 1))
    async with httpx2.AsyncClient(transport=transport, base_url=HOST, headers=ALICE) as other:
        assert (await other.get("/api/v1/changes")).status_code == 403


@pytest.mark.parametrize(
    "sent",
    [
        [("X-Forwarded-User", "alice"), ("x-forwarded-user", "root")],
        [("X-Forwarded-User", "alice"), ("X-Forwarded-Groups", "staff"), ("X-Forwarded-Groups", "sre")],
        [("X-Forwarded-User", b"al\xffice")],
        [("X-Forwarded-User", "al\x1bice")],
        [("X-Forwarded-User", "a" * 201)],
    ],
)
async def test_a_header_that_came_twice_or_is_no_name_is_refused(app: FastAPI, sent: Any) -> None:
    async with client(app) as browser:
        assert (await browser.get("/api/v1/changes", headers=sent)).status_code == 400


async def test_a_proxy_that_names_nobody_lets_nobody_in(app: FastAPI) -> None:
    async with client(app) as browser:
        for sent in ({}, {"X-Forwarded-User": ""}, {"X-Forwarded-User": " "}, {"X-Forwarded-Groups": "sre"}):
            assert (await browser.get("/api/v1/changes", headers=sent)).status_code == 401


async def test_without_the_setting_the_headers_say_nothing(site: Site) -> None:
    async with client(site.app, headers=ALICE) as browser:
        assert (await browser.get("/api/v1/changes")).status_code == 401


async def test_a_token_counts_before_the_proxy_and_the_proxy_before_a_session(app: FastAPI, site: Site) -> None:
    async with client(app) as browser:
        program = {"Authorization": f"Bearer {site.bearer['viewer']}"}
        assert (await browser.get("/api/v1/changes", headers=program)).status_code == 200
        assert (await browser.get("/api/v1/audit", headers={**ALICE, **program})).status_code == 403
        wrong = {"Authorization": "Bearer fs_wrong"}
        assert (await browser.get("/api/v1/changes", headers={**ALICE, **wrong})).status_code == 401
        session = {"Cookie": f"{guard.COOKIE}={await site.token(Purpose.SESSION, role=Role.ADMIN)}"}
        assert (await browser.get("/api/v1/audit", headers=session)).status_code == 200
        carol = {"X-Forwarded-User": "carol@example.com"}
        assert (await browser.get("/api/v1/audit", headers={**session, **carol})).status_code == 403


async def test_another_site_cannot_act_for_who_is_behind_a_proxy(app: FastAPI) -> None:
    async with client(app, headers=ALICE) as browser:
        for sent in ({"Sec-Fetch-Site": "cross-site"}, {"Origin": "https://evil.example"}):
            assert (await browser.post("/views", headers=sent, data={"name": "x", "query": ""})).status_code == 403


async def test_a_person_sends_nothing_for_a_cluster(app: FastAPI) -> None:
    async with client(app, headers=ALICE) as browser:
        for path in ("/intake/audit/shop", "/intake/prometheus/shop"):
            assert (await browser.post(path, content=b"{}")).status_code == 401


async def test_people_behind_one_proxy_have_limits_of_their_own(app: FastAPI) -> None:
    def key(peer: str, **sent: str) -> bytes | None:
        headers = [(name.replace("_", "-").lower().encode(), value.encode()) for name, value in sent.items()]
        return guard.key_of({"type": "http", "headers": headers, "foreshock.peer": peer}, app.state.deps)[0]

    alice, bob = key(PROXY, X_Forwarded_User="alice"), key(PROXY, X_Forwarded_User="bob")
    assert alice == key(PROXY, X_Forwarded_User="alice")
    assert None not in (alice, bob)
    assert alice != bob
    assert key(ELSEWHERE, X_Forwarded_User="alice") is None
    assert key(PROXY, Authorization="Bearer alice") != alice


async def test_who_follows_is_asked_for_again_within_a_minute(app: FastAPI) -> None:
    assert Followers().proxied_for + Followers().told_every < timedelta(minutes=1)
    every = timedelta(milliseconds=20)
    app.state.followers = Followers(every=every, told_every=every, proxied_for=5 * every)
    async with asyncio.timeout(20), client(app, headers=ALICE) as browser:
        told = (await browser.get("/api/v1/changes?follow=1&limit=1")).text.splitlines()
    assert '"status":503' in told[-1]
    assert "go on from the last after" in told[-1]
    assert '"freshness"' in told[-2]


@asynccontextmanager
async def served(dsn: str, folder: Path, trusted: str) -> AsyncIterator[httpx2.AsyncClient]:
    (folder / "access.yaml").write_text("groups: {sre: {role: admin}}")
    named = {"PROXY_USER_HEADER": "X-Forwarded-User", "PROXY_GROUPS_HEADER": "X-Forwarded-Groups"}
    environment = {f"FORESHOCK_{name}": value for name, value in {**named, "TRUSTED_PROXIES": trusted}.items()}
    with program(dsn, folder, "--port", "0", **environment) as (_, address):
        async with httpx2.AsyncClient(base_url=address, headers=ALICE) as found:
            yield found


async def test_the_program_looks_at_the_connection_and_not_at_what_is_forwarded(dsn: str, tmp_path: Path) -> None:
    """uvicorn believes X-Forwarded-For of 127.0.0.1 unless told otherwise."""
    async with served(dsn, tmp_path, "127.0.0.1") as trusted:
        for said in ({}, {"X-Forwarded-For": ELSEWHERE}):
            assert (await trusted.get("/api/v1/audit", headers=said)).status_code == 200
    async with served(dsn, tmp_path, "10.0.3.0/24") as untrusted:
        for said in ({}, {"X-Forwarded-For": PROXY}):
            told = await untrusted.get("/api/v1/audit", headers=said)
            assert (told.status_code, "came from 127.0.0.1" in told.text) == (403, True)
