"""Nothing is served to a stranger; a login link works once; another site cannot act for a person."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest
from fastapi import FastAPI
from fastapi.routing import iter_route_contexts

from app.core.roles import Role
from app.store.tokens import Purpose
from app.web import assets, guard, headers
from app.web.auth import NeedsCluster, NeedsSignature, NeedsSlack, Policy, policy_of
from app.web.routes import create_app
from tests.web.conftest import Site, deps

OPENED = guard.OPEN | {"/static"}
WITHOUT_A_ROLE = {"/healthz", "/readyz", "/login", "/login/oidc", "/login/oidc/back", "/logout", "/static"}


def policies(app: FastAPI) -> dict[str, Policy | None]:
    """Every path and what its route demands; None where it declares nothing."""
    found: dict[str, Policy | None] = {}
    for route in iter_route_contexts(app.routes):
        demands = [] if route.methods is None else [one.call for one in route.dependant.dependencies if one.call]
        assert route.path is not None
        found[route.path] = policy_of(demands)
    return found


async def test_every_route_declares_who_may_use_it(site: Site, record_property: Callable[[str, object], None]) -> None:
    found = policies(site.app)
    record_property("routes with a declared policy (the others are open on purpose)", len(found) - len(WITHOUT_A_ROLE))
    assert len(found) > 12
    assert {path for path, policy in found.items() if policy is None} == WITHOUT_A_ROLE
    of_clusters = [path for path, policy in found.items() if isinstance(policy, NeedsCluster)]
    assert of_clusters == ["/intake/audit/{cluster}", "/intake/prometheus/{cluster}"]
    assert {path for path, policy in found.items() if isinstance(policy, (NeedsSignature, NeedsSlack))} == (
        guard.SIGNED | {f"{path}{{cluster}}" for path in guard.SIGNED_UNDER}
    )


@pytest.mark.parametrize("path", ["/api/v1/gaps", "/", "/intake/audit/shop", "/metrics"])
async def test_of_several_authorization_headers_none_is_taken(site: Site, path: str) -> None:
    good = ("Authorization", f"Bearer {site.bearer['admin']}")
    async with site.client(None) as client:
        for sent in ([good, good], [good, ("authorization", "Bearer fs_x")], [("Authorization", "Basic eDp5"), good]):
            told = await client.get(path, headers=sent)
            assert told.status_code == 400
            assert "Authorization came 2 times: send it once" in told.text


METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
HOST = "http://foreshock.test"


def plain(path: str) -> str:
    """The path of a route with a word in the place of each parameter."""
    return re.sub(r"[{}]|:\w+(?=})", "", path)


def odd(path: str) -> Iterator[str]:
    """Other ways to write the address of a route, as what takes an address apart otherwise might."""
    real = plain(path)
    if real != path:
        yield path
        yield re.sub(r"{(\w+)[^}]*}", r":\1", path)
    yield from (
        f"{real}/",
        f"{real}//",
        f"/{real}",
        f"//{real}",
        f"/.{real}",
        f"/%2e{real}",
        f"{real}/%2e",
        f"{real}/.",
    )
    yield from (f"{real}%2f", f"{real}/%2e%2e/x", f"{real};x", f"{real}%00", f"/x/%2e%2e{real}", f"/x/..{real}")
    yield from (f"/static/%2e%2e{real}", f"/login/..{real}", f"/healthz/%2e%2e{real}", f"/intake/pagerduty/..{real}")
    yield from (real.upper(), f"/%{ord(real[1]):x}{real[2:]}") if real != "/" else ()


async def test_a_stranger_gets_nothing_from_any_route(site: Site) -> None:
    async with site.client(None) as stranger:
        for path in policies(site.app):
            for method in METHODS:
                answer = await stranger.request(method, HOST + plain(path))
                assert guard.is_open(plain(path)) or answer.status_code == 401, (method, path)


async def test_a_stranger_gets_nothing_from_any_route_however_its_address_is_written(
    site: Site, record_property: Callable[[str, object], None]
) -> None:
    """What is open under a prefix answers there that there is nothing, or that it is not signed."""
    asked = 0
    async with site.client(None) as stranger:
        for path in policies(site.app):
            for address in odd(path):
                for method in ("GET", "POST", "OPTIONS"):
                    answer = await stranger.request(method, HOST + address)
                    seen = answer.request.url.path
                    opened = plain(path) in OPENED and seen == plain(path)
                    allowed = {401, 404, 405} if guard.is_open(seen) else {401}
                    assert opened or answer.status_code in allowed, (method, address, answer.status_code)
                    asked += 1
    assert asked > 4_000
    record_property("odd addresses of routes, asked without a credential", asked)


@pytest.mark.parametrize(
    "sent",
    [
        {"Authorization": "Bearer nothing"},
        {"Authorization": f"Bearer fs_{'A' * 43}"},
        {"Authorization": "Basic YWRtaW46YWRtaW4="},
        {"Cookie": f"{guard.COOKIE}=fs_{'A' * 43}"},
    ],
)
async def test_who_has_a_wrong_credential_gets_nothing_from_any_route(site: Site, sent: dict[str, str]) -> None:
    async with site.client(None) as stranger:
        for path in policies(site.app):
            for method in METHODS:
                answer = await stranger.request(method, plain(path), headers=sent)
                assert guard.is_open(plain(path)) or answer.status_code == 401, (method, path)


@pytest.mark.parametrize(
    "path",
    [
        "/nothing-here",
        "/api/v1/",
        "/api/v1/changes/",
        "/openapi.json",
        "/login/",
        "/loginx",
        "/static",
        "//login",
        "/healthz/x",
    ],
)
async def test_what_no_route_answers_is_closed_too(site: Site, path: str) -> None:
    async with site.client(None) as stranger:
        assert (await stranger.get(f"http://foreshock.test{path}")).status_code == 401


async def test_nothing_is_at_an_address_with_a_character_that_no_text_of_the_database_has(site: Site) -> None:
    """PostgreSQL refuses U+0000, which is not the database that is away."""
    async with site.client() as viewer:
        for path, policy in policies(site.app).items():
            if policy is not None and "{" in path and not path.startswith("/intake/"):
                answer = await viewer.get(HOST + re.sub(r"{[^}]*}", "%00", path))
                assert answer.status_code == 404, (path, answer.text)
        assert (await viewer.get(f"{HOST}/static/%00")).status_code == 404


@pytest.mark.parametrize(
    "path",
    [
        "/static/../app/web/guard.py",
        "/static/..%2f..%2fpyproject.toml",
        "/static/%2e%2e/pyproject.toml",
        "/static//etc/passwd",
    ],
)
async def test_static_serves_its_own_folder_only(site: Site, path: str) -> None:
    async with site.client(None) as stranger:
        answer = await stranger.get(f"http://foreshock.test{path}")
        assert answer.status_code in {401, 404}


@pytest.mark.parametrize(
    "authorization",
    ["Bearer", "Bearer ", "Bearer fs_wrong", "Basic dTpw", "bearer\tx", "Bearer " + "x" * 5000, "Bearer \xff\xfe"],
)
async def test_a_wrong_credential_is_refused(site: Site, authorization: str) -> None:
    async with site.client(None) as stranger:
        answer = await stranger.get("/api/v1/incidents", headers={b"Authorization": authorization.encode("latin-1")})
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == "Bearer"
    assert answer.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize("role", [role.value for role in Role])
async def test_every_role_may_look(site: Site, role: str) -> None:
    async with site.client(role) as client:
        assert (await client.get("/api/v1/incidents")).status_code == 200


@pytest.mark.parametrize("purpose", [Purpose.LOGIN, Purpose.SESSION])
async def test_a_token_is_good_for_its_own_purpose_only(site: Site, purpose: Purpose) -> None:
    token = await site.token(purpose)
    async with site.client(None) as client:
        answer = await client.get("/api/v1/incidents", headers={"Authorization": f"Bearer {token}"})
    assert answer.status_code == 401


async def test_a_login_link_works_once_and_starts_a_session(site: Site) -> None:
    token = await site.token(Purpose.LOGIN)
    async with site.client(None) as browser:
        first = await browser.post("/login", params={"token": token, "to": "/incidents/5f0a1c22d3e4?from=x"})
        assert first.status_code == 303
        assert first.headers["location"] == "/incidents/5f0a1c22d3e4?from=x"
        cookie = first.headers["set-cookie"].lower()
        assert "httponly" in cookie
        assert "samesite=lax" in cookie
        assert (await browser.get("/api/v1/incidents")).status_code == 200

        ours = {"Sec-Fetch-Site": "same-origin"}
        assert (await browser.post("/logout", headers=ours)).status_code == 303
        assert (await browser.get("/api/v1/incidents")).status_code == 401
    async with site.client(None) as another:
        again = await another.post("/login", data={"token": token})
        assert again.status_code == 401
        assert "used before" in again.text
        assert "set-cookie" not in again.headers


@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_to_look_at_a_login_link_uses_up_nothing_and_repeats_none_of_it(site: Site, method: str) -> None:
    """As chats and mail programs look at links that people send each other."""
    token = await site.token(Purpose.LOGIN)
    link = f"/login?token={token}&to=/changes"
    async with site.client(None) as chat:
        looked = await chat.request(method, link)
        assert (looked.status_code, looked.headers.get("set-cookie"), token in looked.text) == (200, None, False)
    async with site.client(None) as browser:
        entered = await browser.post(link)  # as the form of that page sends it
        assert (entered.status_code, entered.headers["location"]) == (303, "/changes")


async def test_the_token_of_a_link_may_be_pasted(site: Site) -> None:
    async with site.client(None) as browser:
        entered = await browser.post("/login", data={"token": f" {await site.token(Purpose.LOGIN)}\n"})
        assert (entered.status_code, entered.headers["location"]) == (303, "/")
        assert (await browser.post("/login")).status_code == 401
        assert (await browser.post("/login", data={"token": ["a", "b"]})).status_code == 422
        assert (await browser.post("/login", content=b"token=\xff")).status_code == 400


async def test_nobody_is_signed_in_by_another_site(site: Site) -> None:
    token = await site.token(Purpose.LOGIN)
    async with site.client(None) as browser:
        answer = await browser.post("/login", data={"token": token}, headers={"Sec-Fetch-Site": "cross-site"})
        assert (answer.status_code, "set-cookie" in answer.headers) == (403, False)


async def test_signing_out_ends_the_session_in_the_database(site: Site) -> None:
    session = await site.token(Purpose.SESSION)
    kept = {"Cookie": f"{guard.COOKIE}={session}"}
    async with site.client(None) as browser:
        assert (await browser.get("/api/v1/incidents", headers=kept)).status_code == 200
        await browser.post("/logout", headers={**kept, "Sec-Fetch-Site": "same-origin"})
        assert (await browser.get("/api/v1/incidents", headers=kept)).status_code == 401


@pytest.mark.parametrize(
    "others",
    [
        ('prefs={"a":1,"b":2}', ""),
        ("", 'prefs={"a":1,"b":2}'),
        ("name=Bob Smith", "flag"),
        ("list[0]=x", "path=/x"),
        ("a/b=1", "expires=never"),
        ("=x", "secure"),
        ("city=K\u00f6ln", ""),
        ('open="', 'x="'),
    ],
)
async def test_what_other_programs_keep_in_the_browser_signs_nobody_out(site: Site, others: tuple[str, str]) -> None:
    """Cookies of one host are sent to each of its ports: a notebook's on 127.0.0.1, say."""
    session = await site.token(Purpose.SESSION)
    before, behind = others
    kept = "; ".join(one for one in (before, f"{guard.COOKIE}={session}", behind) if one)
    async with site.client(None) as browser:
        answer = await browser.get("/api/v1/incidents", headers={b"Cookie": kept.encode()})
        assert answer.status_code == 200
        lines = [(b"Cookie", before.encode()), (b"Cookie", f"{guard.COOKIE}={session}".encode())]
        assert (await browser.get("/api/v1/incidents", headers=lines)).status_code == 200
        assert (await browser.get("/api/v1/incidents", headers={b"Cookie": before.encode()})).status_code == 401


async def test_signing_in_again_ends_the_session_before(site: Site) -> None:
    async with site.client(None) as browser:
        await browser.post("/login", data={"token": await site.token(Purpose.LOGIN)})
        first = browser.cookies[guard.COOKIE]
        await browser.post("/login", data={"token": await site.token(Purpose.LOGIN)})
        assert browser.cookies[guard.COOKIE] != first
        assert (await browser.get("/api/v1/incidents")).status_code == 200
    async with site.client(None) as another:
        kept = {"Cookie": f"{guard.COOKIE}={first}"}
        assert (await another.get("/api/v1/incidents", headers=kept)).status_code == 401


async def test_a_cookie_ends_no_token_that_is_no_session(site: Site) -> None:
    token = await site.token(Purpose.API)
    async with site.client(None) as browser:
        kept = {"Cookie": f"{guard.COOKIE}={token}", "Sec-Fetch-Site": "same-origin"}
        await browser.post("/logout", headers=kept)
        kept = {"Authorization": f"Bearer {token}"}
        assert (await browser.get("/api/v1/incidents", headers=kept)).status_code == 200


@pytest.mark.parametrize(
    "to", ["//evil.example", "https://evil.example", "/\\evil.example", "javascript:alert(1)", "/\n/x", "evil"]
)
async def test_a_login_link_leads_nowhere_else(site: Site, to: str) -> None:
    token = await site.token(Purpose.LOGIN)
    async with site.client(None) as browser:
        answer = await browser.post("/login", params={"token": token, "to": to})
    assert answer.headers["location"] == "/"


async def test_over_tls_the_cookie_is_bound_to_the_host(site: Site) -> None:
    site_over_tls = Site(create_app(deps(site.database, public_url="https://foreshock.test")), site.database)
    token = await site.token(Purpose.LOGIN)
    async with site_over_tls.client(None, host="https://foreshock.test") as browser:
        answer = await browser.post("/login", data={"token": token})
        cookie = answer.headers["set-cookie"]
        assert cookie.startswith("__Host-")
        assert "Secure" in cookie
        assert answer.headers["strict-transport-security"]
        assert (await browser.get("/api/v1/incidents")).status_code == 200


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "same-origin"}, 303),
        ({"Origin": "http://foreshock.test"}, 303),
        ({}, 403),
    ],
)
async def test_another_site_cannot_act_for_a_person(site: Site, headers: dict[str, str], status: int) -> None:
    session = await site.token(Purpose.SESSION)
    async with site.client(None) as browser:
        answer = await browser.post("/logout", headers={"Cookie": f"{guard.COOKIE}={session}", **headers})
    assert answer.status_code == status


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Origin": "http://foreshock.test"}, 303),
        ({"Origin": "http://upstream:8000"}, 303),
        ({"Origin": "https://foreshock.test"}, 403),
        ({"Origin": "http://foreshock.test:8000"}, 403),
        ({"Origin": "http://foreshock.test.evil.example"}, 403),
        ({"Origin": "http://foreshock.test", "Sec-Fetch-Site": "cross-site"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": ""}, 403),
    ],
)
async def test_a_form_of_ours_counts_as_such_where_a_proxy_says_another_host(
    site: Site, headers: dict[str, str], status: int
) -> None:
    """As nginx says the name of its upstream; over plain HTTP there is no Sec-Fetch-Site."""
    session = await site.token(Purpose.SESSION)
    sent = {"Cookie": f"{guard.COOKIE}={session}", "Host": "upstream:8000", **headers}
    async with site.client(None) as browser:
        assert (await browser.post("/logout", headers=sent)).status_code == status


async def test_every_answer_carries_the_headers(site: Site) -> None:
    async with site.client() as client, site.client(None) as stranger:
        answers = [
            await client.get("/api/v1/incidents"),
            await client.get("/nothing"),
            await client.get("/api/v1/incidents?limit=0"),
            await stranger.get("/"),
            await stranger.get("/login"),
            await stranger.get("/healthz"),
            await stranger.get(assets.address("icon.svg")),
            await stranger.get("/static/icon.svg"),
            await stranger.get("/static/icon.svg?v=000000000000"),
            await stranger.get(assets.address("icon.svg").replace("icon.svg", "nothing.svg")),
            await stranger.get("/static/vendor"),
        ]
    for answer in answers:
        for name, value in headers.ALWAYS.items():
            assert answer.headers[name] == value
        is_named = str(answer.url).endswith(assets.address("icon.svg"))
        assert ("immutable" if is_named else "no-store") in answer.headers["cache-control"], answer.url
        assert "unsafe" not in answer.headers["content-security-policy"]


async def test_probes_answer_without_a_credential(site: Site) -> None:
    async with site.client(None) as probe:
        assert (await probe.get("/healthz")).json() == {"status": "ok"}
        assert (await probe.get("/readyz")).json() == {"status": "ready", "reasons": []}


async def test_readiness_says_what_is_in_the_way(site: Site) -> None:
    wanting = deps(site.database)
    wanting = type(wanting)(wanting.read, wanting.write, wanting.public_url, wanting.clock, lambda: ["migrating"])
    async with Site(create_app(wanting), site.database).client(None) as probe:
        answer = await probe.get("/readyz")
    assert (answer.status_code, answer.json()["reasons"]) == (503, ["migrating"])
