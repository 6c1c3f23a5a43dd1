"""Who asks too much waits, and nobody else: in words, with when to try again."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from datetime import timedelta
from ipaddress import ip_network
from typing import Any, cast

import httpx2
import pytest
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from app.core.access import Access, Grant, Proxy
from app.core.roles import Role
from app.store import tokens
from app.store.tokens import Purpose
from app.web import guard, headers
from app.web.known_tokens import KnownTokens
from app.web.proxied import Peered
from app.web.rates import Buckets, Limits, Rate
from app.web.routes import create_app
from tests.web.conftest import HOST, NOW, Site, deps


class Clock:
    """A monotonic clock that a test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def asking(site: Site, limits: Limits, *, at: str = "192.0.2.1", bearer: str = "", **more: Any) -> httpx2.AsyncClient:
    """A client at an address, of a site with these limits; with several of one ``app`` they share it."""
    app = more.get("app") or create_app(replace(deps(site.database), **more), limits=limits)
    transport = httpx2.ASGITransport(app=app, raise_app_exceptions=False, client=(at, 1))
    sent = {"Authorization": f"Bearer {bearer}"} if bearer else {}
    return httpx2.AsyncClient(transport=transport, base_url=HOST, headers=sent)


@dataclass
class Server:
    """A database that comes back."""

    now: AsyncEngine

    def connect(self) -> AsyncConnection:
        return self.now.connect()


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_a_bucket_is_full_at_first_and_fills_as_time_goes_on() -> None:
    buckets = Buckets(Rate(burst=3, per_second=2))
    for _ in range(3):
        assert buckets.wait("a", 0) == 0
        buckets.take("a", 0)
    assert buckets.wait("a", 0) == pytest.approx(0.5)
    assert buckets.wait("a", 0.25) == pytest.approx(0.25)
    assert buckets.wait("a", 0.5) == 0
    assert buckets.wait("b", 0) == 0
    buckets.take("a", 100)
    assert [buckets.wait("a", 100 + n) for n in range(2)] == [0, 0], "it holds no more than its burst"


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.web.rates.MOST", 10)
    buckets = Buckets(Rate(burst=1, per_second=1))
    for number in range(50):
        buckets.take(number, 0)
    assert len(buckets._levels) == 10
    assert buckets.wait(49, 0) > 0
    assert buckets.wait(1, 0) == 0


async def test_a_credential_that_asks_too_much_waits_and_another_does_not(site: Site, clock: Clock) -> None:
    limits = Limits(credential=Rate(burst=5, per_second=0.25), clock=clock)
    app = create_app(deps(site.database), limits=limits)
    async with (
        asking(site, limits, bearer=site.bearer["viewer"], app=app) as loud,
        asking(site, limits, bearer=site.bearer["responder"], app=app) as quiet,
    ):
        answers = [await loud.get("/api/v1/gaps") for _ in range(7)]
        assert [one.status_code for one in answers] == [200] * 6 + [429], "the first one made it known"
        refused = answers[-1]
        assert refused.headers["content-type"] == "application/problem+json"
        assert refused.headers["retry-after"] == "4"
        assert "try again in 4 s" in refused.json()["detail"]
        assert refused.headers.items() >= headers.of(HOST).items()
        assert (await loud.get("/static/icon.svg")).status_code == 200
        assert "Too much at once" in (await loud.get("/changes")).text
        asked = (await loud.get("/changes?kind=Node")).text
        assert '<a class="button primary" href="">Try again</a> <span class="muted">in 4 s, or later</span>' in asked
        sent = (await loud.post("/views", data={"name": "x", "query": "of=calls"})).text
        assert "Try again" not in sent
        assert "Load this page again in 4 s, or later: that sends it once more." in sent
        assert (await quiet.get("/api/v1/gaps")).status_code == 200
        clock.now += 4
        assert (await loud.get("/api/v1/gaps")).status_code == 200


async def test_who_guesses_is_shut_out_at_its_address_and_nobody_who_is_signed_in_there(
    site: Site, clock: Clock
) -> None:
    limits = Limits(stranger=Rate(burst=5, per_second=0.5), clock=clock)
    app = create_app(deps(site.database), limits=limits)
    async with (
        asking(site, limits, app=app) as guessing,
        asking(site, limits, app=app, bearer=site.bearer["viewer"]) as known,
        asking(site, limits, app=app, at="192.0.2.2") as elsewhere,
    ):
        assert (await known.get("/api/v1/gaps")).status_code == 200
        for number in range(6):
            answer = await guessing.get("/api/v1/gaps", headers={"Authorization": f"Bearer fs_{number}"})
        assert answer.status_code == 429
        assert (answer.headers["retry-after"], answer.json()["status"]) == ("2", 429)
        assert (await known.get("/api/v1/gaps")).status_code == 200
        assert (await elsewhere.get("/api/v1/gaps")).status_code == 401
        clock.now += 2
        assert (await guessing.get("/api/v1/gaps")).status_code == 401


async def test_logins_are_tried_so_often_and_a_good_one_costs_nothing(site: Site, clock: Clock) -> None:
    limits = Limits(stranger=Rate(burst=3, per_second=0.1), clock=clock)
    app = create_app(deps(site.database), limits=limits)
    async with asking(site, limits, app=app) as person:
        for _ in range(5):
            link = await site.token(Purpose.LOGIN)
            assert (await person.post("/login", data={"token": link})).status_code == 303
            person.cookies.clear()
        tries = [(await person.post("/login", data={"token": f"fs_{n}"})).status_code for n in range(4)]
        assert tries == [401, 401, 401, 429]
        refused = await person.post("/login", data={"token": await site.token(Purpose.LOGIN)})
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "10")
        assert "Too much at once" in refused.text
        assert (await person.get("/api/v1/gaps")).status_code == 401, "another door has a bucket of its own"


async def test_what_is_signed_wrongly_is_refused_with_what_a_sender_repeats(site: Site, clock: Clock) -> None:
    limits = Limits(stranger=Rate(burst=2, per_second=1), clock=clock)
    async with asking(site, limits, pagerduty_secrets=("a secret of some length",)) as sender:
        paths = [f"/intake/pagerduty/shop{n}" for n in range(3)]
        answers = [await sender.post(path, headers={"X-PagerDuty-Signature": "v1=0"}) for path in paths]
    assert [one.status_code for one in answers] == [401, 401, 503]
    assert answers[-1].headers["retry-after"] == "1"


async def test_alertmanager_is_told_503_and_who_sends_audit_events_is_not_counted(site: Site, clock: Clock) -> None:
    async with site.database.write.begin() as conn:
        token = await tokens.create(conn, Role.RESPONDER, purpose=Purpose.API, now=NOW)
    limits = Limits(credential=Rate(burst=1, per_second=1), stranger=Rate(burst=1, per_second=1), clock=clock)
    async with asking(site, limits, bearer=token) as sender:
        statuses = [(await sender.post("/intake/alertmanager/shop", content=b"{}")).status_code for _ in range(3)]
        assert statuses == [400, 400, 503]
        assert {(await sender.post("/intake/audit/shop")).status_code for _ in range(5)} == {401}


async def test_a_token_that_is_revoked_is_a_strangers_from_then_on(site: Site, clock: Clock) -> None:
    token = await site.token(Purpose.API)
    limits = Limits(stranger=Rate(burst=2, per_second=1), clock=clock)
    async with asking(site, limits, bearer=token) as client:
        assert (await client.get("/api/v1/gaps")).status_code == 200
        async with site.database.write.begin() as conn:
            await tokens.revoke(conn, token, now=NOW)
        assert [(await client.get("/api/v1/gaps")).status_code for _ in range(4)] == [401, 401, 401, 429]


async def test_of_one_credential_so_many_are_worked_on_at_once(site: Site) -> None:
    at_work, most, full, end = 0, 0, asyncio.Event(), asyncio.Event()

    async def replay() -> str:
        nonlocal at_work, most
        at_work += 1
        most = max(most, at_work)
        if at_work == 2:
            full.set()
        await end.wait()
        at_work -= 1
        return "/"

    limits = Limits(at_once=2, within=0.2)
    app = create_app(replace(deps(site.database), replay_demo=replay), limits=limits)
    async with (
        asking(site, limits, app=app, bearer=site.bearer["admin"]) as one,
        asking(site, limits, app=app, bearer=site.bearer["viewer"]) as other,
    ):
        assert (await one.get("/api/v1/gaps")).status_code == 200
        waiting = [asyncio.create_task(one.post("/demo")) for _ in range(2)]
        async with asyncio.timeout(20):
            await full.wait()
        assert (await one.post("/demo")).status_code == 429
        assert most == 2
        assert (await other.get("/api/v1/gaps")).status_code == 200
        end.set()
        assert [(await task).status_code for task in waiting] == [303, 303]
        assert (await one.get("/api/v1/gaps")).status_code == 200


async def test_who_signs_in_is_let_in_however_much_was_refused_at_the_address(site: Site, clock: Clock) -> None:
    """As behind a proxy, where all are one address."""
    limits = Limits(stranger=Rate(burst=3, per_second=0.001), clock=clock)
    app = create_app(deps(site.database), limits=limits)
    async with asking(site, limits, app=app) as guessing, asking(site, limits, app=app) as person:
        for number in range(6):
            answer = await guessing.get("/api/v1/gaps", headers={"Authorization": f"Bearer fs_{number}"})
        assert answer.status_code == 429
        for _ in range(2):  # the second time as somebody who is signed in already
            link = await site.token(Purpose.LOGIN)
            assert (await person.post("/login", data={"token": link})).status_code == 303
            assert (await person.get("/api/v1/gaps")).status_code == 200


@pytest.mark.parametrize("purpose", [Purpose.API, Purpose.SESSION, Purpose.CHANGES])
async def test_made_up_credentials_shut_out_nobody_who_has_a_good_one_though_the_process_has_just_begun(
    site: Site, clock: Clock, purpose: Purpose
) -> None:
    token, known = await site.token(purpose, role=Role.RESPONDER), KnownTokens(site.database.write, lambda: NOW)
    await known.refresh()
    limits = Limits(stranger=Rate(burst=3, per_second=0.001), clock=clock)
    app = create_app(replace(deps(site.database), is_good=known.is_good), limits=limits)
    sent = {"Authorization": f"Bearer {token}"}
    if purpose is Purpose.SESSION:
        sent = {"Cookie": f"{guard.COOKIE}={token}", "Sec-Fetch-Site": "same-origin"}
    async with asking(site, limits, app=app) as one, asking(site, limits, app=app) as other:
        tries = [
            (await one.get("/api/v1/gaps", headers={"Authorization": f"Bearer fs_{number}"})).status_code
            for number in range(6)
        ]
        assert tries == [401, 401, 401, 429, 429, 429]
        told = await other.post("/api/v1/changes", json={}, headers=sent)
        assert told.status_code == 422, "it was let in, and told what it left out"
        async with site.database.write.begin() as conn:
            await tokens.revoke(conn, token, now=NOW)
        ended = [(await other.get("/api/v1/gaps", headers=sent)).status_code for _ in range(5)]
        assert ended == [401, 401, 401, 401, 429], "a stranger's since it was refused, by what is counted apart"


async def test_made_up_credentials_shut_out_nobody_whom_a_proxy_signs_in(site: Site, clock: Clock) -> None:
    limits = Limits(stranger=Rate(burst=3, per_second=0.001), clock=clock)
    proxy = Proxy("X-Forwarded-User", None, (ip_network("192.0.2.1"),))
    access = Access(users={"alice": Grant(Role.VIEWER)})
    app = Peered(create_app(replace(deps(site.database), proxy=proxy, access=lambda: access), limits=limits))
    async with asking(site, limits, app=app) as one:
        for number in range(6):
            guess = await one.get("/api/v1/gaps", headers={"Authorization": f"Bearer fs_{number}"})
        assert guess.status_code == 429
        assert (await one.get("/api/v1/gaps", headers={"X-Forwarded-User": "alice"})).status_code == 200


async def test_of_credentials_that_are_known_those_used_last_stay_so(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.web.known_tokens.MOST", 2)
    known, later = KnownTokens(site.database.write, lambda: NOW), NOW + timedelta(minutes=1)
    first, second, third = [await site.token(Purpose.API, now=later) for _ in range(3)]
    async with site.database.write.begin() as conn:
        for one in (third, first):
            found = await tokens.bearer(conn, one, purpose=Purpose.API, now=later)
            assert found is not None
            assert found.token_id is not None
            await tokens.note_used(conn, {found.token_id: later + timedelta(minutes=1)})
    await known.refresh()
    assert [known.is_good(tokens.digest(one)) for one in (first, second, third)] == [True, False, True]


@pytest.mark.parametrize("sent", [{}, {"Authorization": "Bearer fs_of-last-year"}])
async def test_what_is_refused_again_and_again_shuts_out_nobody_else(
    site: Site, clock: Clock, sent: dict[str, str]
) -> None:
    """A page that stays open when its session ended, and a program whose token did, go on asking; and the process has
    just begun, so that it knows nobody."""
    limits = Limits(stranger=Rate(burst=3, per_second=0.001), clock=clock)
    app = create_app(deps(site.database), limits=limits)
    async with (
        asking(site, limits, app=app) as gone,
        asking(site, limits, app=app, bearer=site.bearer["viewer"]) as other,
    ):
        statuses = [(await gone.get("/api/v1/gaps", headers=sent)).status_code for _ in range(6)]
        assert (statuses[0], statuses[-1]) == (401, 429)
        assert (await other.get("/api/v1/gaps")).status_code == 200


@pytest.mark.parametrize("away", [False, True])
async def test_a_credential_that_nobody_looked_at_is_not_taken_for_a_good_one(
    site: Site, clock: Clock, away: bool
) -> None:
    """What another site sends is refused before, and while the database is away nobody knows."""
    limits = Limits(stranger=Rate(burst=3, per_second=0.001), clock=clock)
    nowhere = create_async_engine("postgresql+psycopg://nobody@127.0.0.1:1/none")
    server = Server(nowhere if away else site.database.read)
    app = create_app(replace(deps(site.database), read=cast("AsyncEngine", server)), limits=limits)
    foreign = {} if away else {"Sec-Fetch-Site": "cross-site"}
    async with asking(site, limits, app=app) as guessing:
        for number in range(6):
            sent = {"Authorization": f"Bearer fs_{number}"}
            asked = await guessing.post("/api/v1/incidents", headers=sent | foreign)
            assert asked.status_code == (503 if away else 403)
        server.now = site.database.read
        tries = []
        for number in range(6):
            answer = await guessing.get("/api/v1/gaps", headers={"Authorization": f"Bearer fs_{number}"})
            tries.append(answer.status_code)
    assert tries == [401, 401, 401, 429, 429, 429]


async def test_of_who_is_known_those_who_ask_stay_so(site: Site, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.web.rates.MOST", 3)
    limits = Limits(stranger=Rate(burst=1, per_second=0.001), clock=clock)
    app = create_app(deps(site.database), limits=limits)
    async with asking(site, limits, app=app, bearer=site.bearer["viewer"]) as known:
        for _ in range(6):
            assert (await known.get("/api/v1/gaps")).status_code == 200
            async with asking(site, limits, app=app, bearer=await site.token(Purpose.API)) as another:
                assert (await another.get("/api/v1/gaps")).status_code == 200
        async with asking(site, limits, app=app, bearer="fs_wrong") as wrong:
            assert (await wrong.get("/api/v1/gaps")).status_code == 401
        assert (await known.get("/api/v1/gaps")).status_code == 200


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("2001:db8:1:2::1", "2001:db8:1:2:ffff::9", True),
        ("2001:db8:1:2::1", "2001:db8:1:3::1", False),
        ("192.0.2.1", "192.0.2.2", False),
        ("::ffff:192.0.2.1", "::ffff:192.0.2.2", False),
        ("::ffff:192.0.2.1", "192.0.2.1", True),
        ("fe80::1%eth0", "fe80::2%eth0", True),
    ],
)
async def test_a_customer_of_ipv6_is_one_address(site: Site, clock: Clock, one: str, other: str, same: bool) -> None:
    limits = Limits(stranger=Rate(burst=1, per_second=1), clock=clock)
    app = create_app(deps(site.database), limits=limits)
    async with asking(site, limits, app=app, at=one) as first, asking(site, limits, app=app, at=other) as second:
        assert (await first.get("/")).status_code == 401
        assert (await second.get("/")).status_code == (429 if same else 401)
