"""Who was kept from a page is led back to it by the next login link, and nowhere else."""

from __future__ import annotations

from http.cookies import Morsel, SimpleCookie

import httpx2
import pytest

from app.store.tokens import Purpose
from app.web import guard, onward
from app.web.routes import create_app
from tests.web.conftest import Site, deps

BROWSER = {"accept": "text/html,application/xhtml+xml,*/*;q=0.8", "sec-fetch-dest": "document"}
PAGE = "/incidents/5f0a1c22d3e4?from=2026-11-20T14:01Z&change=a%2Fb"


def kept(answer: httpx2.Response) -> Morsel[str] | None:
    """The cookie that an answer asks a browser to keep for the login page."""
    found: SimpleCookie = SimpleCookie()
    for one in answer.headers.get_list("set-cookie"):
        found.load(one)
    return found.get(onward.COOKIE)


async def test_a_link_leads_back_to_the_page_that_was_asked_for(site: Site) -> None:
    token = await site.token(Purpose.LOGIN)
    async with site.client(None) as browser:
        refused = await browser.get(PAGE, headers=BROWSER)
        assert refused.status_code == 401
        wrong = await browser.post("/login", data={"token": "fs_wrong"})
        assert (wrong.status_code, kept(wrong)) == (401, None)
        entered = await browser.post("/login", data={"token": token})
        assert (entered.status_code, entered.headers["location"]) == (303, PAGE)
        used = kept(entered)
        assert used is not None
        assert (used.value, used["max-age"]) == ("", "0"), "once"
        assert (await browser.post("/login", data={"token": await site.token(Purpose.LOGIN)})).headers[
            "location"
        ] == "/"


async def test_what_is_kept_is_for_the_login_page_alone(site: Site) -> None:
    secure = create_app(deps(site.database, public_url="https://foreshock.test"))
    for app, host in ((site.app, "http://foreshock.test"), (secure, "https://foreshock.test")):
        async with Site(app, site.database).client(None, host=host) as browser:
            cookie = kept(await browser.get("/changes?kind=Pod", headers=BROWSER))
        assert cookie is not None
        assert (cookie["path"], cookie["httponly"], cookie["samesite"]) == ("/login", True, "lax")
        assert bool(cookie["secure"]) == host.startswith("https")
        assert int(cookie["max-age"]) == 3600


async def test_a_session_that_ran_out_leads_back_too(site: Site) -> None:
    async with site.client(None) as browser:
        answer = await browser.get("/changes", headers={**BROWSER, "cookie": f"{guard.COOKIE}=fs_old"})
    assert kept(answer) is not None


async def test_a_link_that_says_where_to_leads_there(site: Site) -> None:
    async with site.client(None) as browser:
        await browser.get(PAGE, headers=BROWSER)
        entered = await browser.post("/login", params={"token": await site.token(Purpose.LOGIN), "to": "/changes"})
    assert entered.headers["location"] == "/changes"
    assert kept(entered) is not None, "and the page is forgotten"


@pytest.mark.parametrize(
    ("method", "path", "headers"),
    [
        ("GET", "/incidents/x", {**BROWSER, "hx-request": "true"}),
        ("GET", "/incidents/x", {**BROWSER, "sec-fetch-dest": "empty"}),
        ("GET", "/favicon.ico", {"accept": "image/avif,image/webp,*/*;q=0.8", "sec-fetch-dest": "image"}),
        ("GET", "/changes", {"accept": "*/*"}),
        ("GET", "/changes", {**BROWSER, "authorization": "Bearer wrong"}),
        ("GET", "/api/v1/changes", BROWSER),
        ("POST", "/logout", BROWSER),
        ("GET", "/logout", BROWSER),
        ("GET", "/changes?token=fs_secret", BROWSER),
        ("GET", "/changes?a=1&tok%65n=fs_secret", BROWSER),
        ("GET", "//evil.example/x", BROWSER),
        ("GET", "/changes?text=" + "x" * 3000, BROWSER),
    ],
)
async def test_what_no_person_opened_is_no_place_to_go_back_to(
    site: Site, method: str, path: str, headers: dict[str, str]
) -> None:
    async with site.client(None) as client:
        answer = await client.request(method, f"http://foreshock.test{path}", headers=headers)
    assert (answer.status_code, kept(answer)) == (401, None)


@pytest.mark.parametrize(
    "planted",
    ["//evil.example", "%2F%2Fevil.example", "https://evil.example", "/%5Cevil.example", "/%0d%0aset-cookie:x", ""],
)
async def test_a_cookie_that_somebody_planted_leads_nowhere_else(site: Site, planted: str) -> None:
    token = await site.token(Purpose.LOGIN)
    async with site.client(None) as browser:
        sent = {"cookie": f"{onward.COOKIE}={planted}"}
        entered = await browser.post("/login", data={"token": token}, headers=sent)
    assert (entered.status_code, entered.headers["location"]) == (303, "/")
