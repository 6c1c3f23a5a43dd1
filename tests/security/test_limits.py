"""What is sent to hurt is refused early, in words, and nobody else waits for it."""

from __future__ import annotations

import asyncio
import gzip
import json
import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
import pytest

from app.store.tokens import Purpose
from app.web import requests
from app.web.intake import ALERTS_LIMIT
from app.web.requests import KIB, MIB
from tests.serving import program
from tests.test_canaries import run
from tests.web import world
from tests.web.conftest import Site, site

__all__ = ["site"]
REST = "/api/v1/incidents"
CHANGES = "/api/v1/changes"
ALERTS = "/intake/alertmanager/shop"
DEEP = b"[" * 20_000 + b"]" * 20_000
NESTED = b'{"a":' * 9_000 + b"1" + b"}" * 9_000
AS_JSON = {"Content-Type": "application/json"}


def telling(value: str) -> bytes:
    told = {
        "source": "x",
        "kind": "y",
        "name": "z",
        "cluster": world.CLUSTER,
        "fields": [{"path": "a", "new": "VALUE"}],
    }
    return json.dumps(told).replace('"VALUE"', value).encode()


@pytest.mark.parametrize(
    ("path", "body", "headers", "status"),
    [
        (REST, b" " * (64 * KIB + 1), {}, 413),
        (ALERTS, b" " * (ALERTS_LIMIT + 1), {}, 413),
        ("/incidents", b" " * (16 * KIB + 1), {}, 413),
        ("/views", b" " * (16 * KIB + 1), {}, 413),
        (REST, gzip.compress(b"0" * 10_000_000, 1, mtime=0), {"Content-Encoding": "gzip"}, 415),
        (ALERTS, gzip.compress(b"{}", mtime=0), {"Content-Encoding": "gzip"}, 415),
        ("/incidents", b"a=b", {"Content-Encoding": "br"}, 415),
        (REST, DEEP, {}, 400),
        (REST, NESTED, {}, 400),
        (ALERTS, DEEP, {}, 400),
        (ALERTS, NESTED, {}, 400),
        (CHANGES, DEEP, {}, 400),
        (CHANGES, telling("[" * 900 + "]" * 900), {}, 201),
        (CHANGES, telling("1e100000"), {}, 201),
        (CHANGES, telling("NaN"), {}, 201),
        (CHANGES, telling("1" * 5000), {}, 400),
        (CHANGES, telling('"\\ud800\\u0000"'), {}, 201),
        (CHANGES, telling("[" + "{}," * 9_000 + "{}]"), {}, 201),
        (REST, b'{"title":"\xff"}', {}, 400),
        (REST, b"", {}, 400),
        (REST, b"null", {}, 422),
        ("/incidents", b"&".join(b"a%d=b" % n for n in range(2000)), {}, 400),
    ],
)
async def test_a_body_that_is_too_much_is_refused_in_words(
    site: Site, path: str, body: bytes, headers: dict[str, str], status: int
) -> None:
    async with site.client("responder") as client:
        answer = await client.post(path, content=body, headers=AS_JSON | headers)
    assert answer.status_code == status, answer.text[:300]
    if status >= 400 and not path.startswith(("/incidents", "/views")):
        assert answer.headers["content-type"] == "application/problem+json"
        assert len(answer.json()["detail"]) > 10


@pytest.mark.parametrize(
    "sent",
    [
        {},
        {"Content-Type": ""},
        {"Content-Type": "application/x-www-form-urlencoded"},
        {"Content-Type": "multipart/form-data; boundary=application/json"},
        {"Content-Type": "text/plain;charset=UTF-8"},
        {"Content-Type": "application/jsonp"},
        {"Content-Type": "text/plain, application/json"},
    ],
)
async def test_a_body_that_another_sites_page_could_send_is_not_taken_for_json(
    site: Site, sent: dict[str, str]
) -> None:
    paths = site.app.openapi()["paths"]
    taking = [(how, path) for path in paths for how, what in paths[path].items() if "requestBody" in what]
    named = {"incident_id": world.incident().id, "change_id": "none"}
    taking = [(how, path.format(**named)) for how, path in taking if not path.startswith("/intake/")]
    assert len(taking) == 5
    async with site.client("responder") as client:
        for how, path in taking:
            answer = await client.request(how, path, content=b"[]", headers=sent)
            assert (answer.status_code, answer.headers["content-type"]) == (415, "application/problem+json"), (
                how,
                path,
            )
            assert answer.json()["detail"] == "send Content-Type: application/json"
            for good in ("application/json", "Application/JSON ; charset=utf-8"):
                taken = await client.request(how, path, content=b"[]", headers={"Content-Type": good})
                assert taken.status_code == 422, (how, path, taken.text)


async def test_of_a_body_that_says_how_large_it_is_nothing_is_read_and_of_another_no_more_than_may_be(
    site: Site,
) -> None:
    read = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal read
        while True:
            read += 16 * KIB
            yield b" " * 16 * KIB

    async with site.client("responder") as client:
        for path, most in ((REST, 64 * KIB), (ALERTS, ALERTS_LIMIT)):
            read = 0
            assert (await client.post(path, content=endless(), headers=AS_JSON)).status_code == 413
            assert read <= most + 32 * KIB
            read = 0
            declared = {**AS_JSON, "Content-Length": str(most + 1)}
            assert (await client.post(path, content=endless(), headers=declared)).status_code == 413
            assert read <= 16 * KIB


@pytest.mark.parametrize("credential", [{}, {"Authorization": "Bearer fs_nothing"}])
async def test_of_a_stranger_no_body_is_read(site: Site, credential: dict[str, str]) -> None:
    async def body() -> AsyncIterator[bytes]:
        raise AssertionError("it was read")
        yield b""

    async with site.client(None) as stranger:
        for path in (REST, ALERTS, CHANGES, "/incidents", "/intake/opsgenie/shop", "/intake/flux", "/intake/slack"):
            answer = await stranger.post(path, content=body(), headers=credential)
            assert answer.status_code == 401, path


@pytest.mark.parametrize(("path", "status"), [(REST, 408), ("/incidents", 408), (ALERTS, 503)])
async def test_a_body_that_does_not_come_is_waited_for_so_long(
    site: Site, monkeypatch: pytest.MonkeyPatch, path: str, status: int
) -> None:
    monkeypatch.setattr(requests, "WITHIN_SECONDS", 0.1)

    async def slow() -> AsyncIterator[bytes]:
        yield b"{"
        await asyncio.sleep(5)
        yield b"}"

    async with site.client("responder") as client:
        began = time.monotonic()
        answer = await client.post(path, content=slow(), headers=AS_JSON)
    assert answer.status_code == status
    assert "within" in answer.text
    assert time.monotonic() - began < 2


@pytest.mark.parametrize(
    "query",
    [
        "&".join(f"a{n}=b" for n in range(7_000)),
        "limit=" + "9" * 5000,
        "text=" + "(a%2B)%2B" * 20,
        "from=9999999999-01-01T00:00:00Z",
        "after=" + "f" * 10_000,
        "cluster=" + "%00",
        "limit=1&limit=1",
    ],
)
async def test_parameters_that_are_too_much_are_refused(site: Site, query: str) -> None:
    async with site.client() as client:
        began = time.monotonic()
        answer = await client.get(f"{CHANGES}?{query}")
    assert answer.status_code in (200, 400, 404, 422)
    assert answer.status_code != 200 or query.startswith("text=")
    assert time.monotonic() - began < 2


EVIL = ("(a+)+$", "(a|a)*b", "^(([a-z])+.)+[A-Z]([a-z])+$", "(.*a){25}", "a" * 4000, "(?P<x>" * 40)


@pytest.mark.parametrize("pattern", EVIL)
async def test_a_pattern_that_never_ends_is_answered_soon(site: Site, pattern: str) -> None:
    async with site.client("responder") as client:
        began = time.monotonic()
        for path in ("/api/v1/calls/rates", "/api/v1/series"):
            params = {"cluster": world.CLUSTER, "where": f'user=~"{pattern}"', "metric": "apiserver_request_total"}
            if path.endswith("rates"):
                del params["metric"]
            answer = await client.get(path, params=params)
            assert answer.status_code in (200, 422), answer.text
    assert time.monotonic() - began < 3


@pytest.mark.security
def test_a_hundred_who_never_finish_their_requests_keep_nobody_waiting(
    dsn: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    token = run("token", "create", "--role", "viewer", dsn=dsn).split()[-1]
    with program(dsn, tmp_path, "--port", "0") as (process, address), ExitStack() as stack:
        where = (urlsplit(address).hostname, urlsplit(address).port)
        slow = [stack.enter_context(socket.create_connection(where)) for _ in range(200)]
        for number, one in enumerate(slow):
            head = b"POST /api/v1/incidents HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n" % token.encode()
            one.sendall(head if number % 2 else head + b"Content-Length: 60000\r\n\r\n{")
        before, took = _resident(process.pid), []
        with httpx2.Client(base_url=address, headers={"Authorization": f"Bearer {token}"}) as client:
            for _ in range(200):
                began = time.monotonic()
                assert client.get("/api/v1/gaps").status_code == 200
                took.append(time.monotonic() - began)
        assert sorted(took)[-2] < 1
        assert _resident(process.pid) - before < 64 * MIB
    record_property("connections that never finish, beside which answers come", len(slow))


def _resident(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * 4096


async def test_a_token_is_good_for_what_it_is_for_alone(site: Site) -> None:
    """The matrix of purposes: a link signs in and reads nothing, a session is no token, a token no session."""
    for purpose in (Purpose.LOGIN, Purpose.SESSION, Purpose.API):
        token = await site.token(purpose)
        async with site.client(None) as client:
            bearer = await client.get(CHANGES, headers={"Authorization": f"Bearer {token}"})
            cookie = await client.get(CHANGES, headers={"Cookie": f"foreshock_session={token}"})
        assert (bearer.status_code == 200) is (purpose is Purpose.API)
        assert (cookie.status_code == 200) is (purpose is Purpose.SESSION)
