"""What an operator names is asked, and nothing else: no redirect, no address of a cloud's credentials, no secret."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
from base64 import b64decode
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
from aiohttp import web
from aiohttp.resolver import ThreadedResolver

from app.collect.outbound import SAID, Endpoint, EndpointError, Outbound, OutboundError, TooMuchError, refuse
from tests.listening import listening, stop
from tests.test_tls import certificate

FORM = web.RequestKey("form", dict)
"""What was posted."""
TOKEN = "s3cr3t-t0k3n-of-nobody"


@asynccontextmanager
async def answering(
    answer: Callable[[web.Request], web.StreamResponse], tls: ssl.SSLContext | None = None
) -> AsyncIterator[str]:
    """Where a server is that answers so."""

    async def answered(request: web.Request) -> web.StreamResponse:
        request[FORM] = dict(await request.post())
        return answer(request)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answered)
    async with listening(app, tls) as url:
        yield url


async def asked(endpoint: Endpoint, path: str = "/x", *, most: int = 1000) -> bytes:
    async with Outbound.to(endpoint) as outbound:
        return await outbound.get(path, most=most)


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("prometheus:9090", "http:// or https://"),
        ("ftp://prometheus", "http:// or https://"),
        ("http://", "url: "),
        ("http://allowed@evil.example", "no user"),
        ("http://prometheus:secret@shop.example", "no password"),
        ("http://prometheus/?query=up", "no query"),
        ("http://prometheus/#x", "no fragment"),
        ("http://prometheus:99999", "url: "),
        ("http://169.254.169.254/latest", "credentials of clouds"),
        ("http://[fe80::1]:9090", "credentials of clouds"),
        ("http://[fd00:ec2::254]", "credentials of clouds"),
        ("http://[::ffff:169.254.169.254]", "credentials of clouds"),
        ("http://0.0.0.0:9090", "credentials of clouds"),
        ("http://[64:ff9b::a9fe:a9fe]", "credentials of clouds"),
        ("http://[2002:a9fe:a9fe::]", "credentials of clouds"),
        ("http://[fd20:ce::254]", "credentials of clouds"),
        ("http://100.100.100.200", "credentials of clouds"),
        ("http://[::ffff:100.100.100.200]", "credentials of clouds"),
        ("http://168.63.129.16", "credentials of clouds"),
        ("http://192.0.0.192", "credentials of clouds"),
    ],
)
def test_a_url_that_is_not_asked_is_said_when_it_is_read(url: str, why: str) -> None:
    with pytest.raises(EndpointError, match=why):
        Endpoint(url)
    with pytest.raises(msgspec.ValidationError, match=why):
        msgspec.convert({"url": url}, Endpoint)


@pytest.mark.parametrize("headers", [{"X-A\r\nX-B": "1"}, {"X-A": "1\r\nX-B: 2"}, {"": "1"}])
def test_a_header_is_one_line(headers: dict[str, str]) -> None:
    with pytest.raises(EndpointError, match="headers"):
        Endpoint("http://prometheus:9090", headers=headers)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "::1"])
def test_this_machine_is_asked_where_it_is_named(host: str) -> None:
    refuse(host, "127.0.0.1")


@pytest.mark.parametrize("address", ["127.0.0.1", "::1", "169.254.169.254", "fd00:ec2::254", "::ffff:127.0.0.1"])
async def test_a_name_that_leads_to_this_machine_or_to_credentials_is_not_asked(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def resolve(*_args: object, **_more: object) -> list[dict[str, object]]:
        return [
            {"hostname": "p.example", "host": address, "port": 80, "family": socket.AF_INET, "proto": 0, "flags": 0}
        ]

    monkeypatch.setattr(ThreadedResolver, "resolve", resolve)
    with pytest.raises(OutboundError, match=r"p\.example is at"):
        await asked(Endpoint("http://p.example"))


async def test_odd_numbers_are_names_whose_address_is_looked_at() -> None:
    async with answering(lambda _: web.Response(text="yes")) as url:
        port = url.rpartition(":")[2]
        with pytest.raises(OutboundError, match=r"0x7f\.1 is at 127\.0\.0\.1: write localhost"):
            await asked(Endpoint(f"http://0x7f.1:{port}"))


async def test_what_is_sent_is_the_path_behind_the_url_the_headers_and_the_token_of_the_file(tmp_path: Path) -> None:
    seen = []

    def answer(request: web.Request) -> web.Response:
        seen.append((request.method, request.path, request.headers["X-Scope-OrgID"], request.headers["Authorization"]))
        return web.Response(text="yes")

    file = tmp_path / "token"
    async with answering(answer) as url:
        endpoint = Endpoint(f"{url}/prometheus/", token_file=str(file), headers={"X-Scope-OrgID": "shop"})
        async with Outbound.to(endpoint) as outbound:
            with pytest.raises(OutboundError, match="No such file"):
                await outbound.get("/api")
            for token, mark in (("one", "\ufeff"), ("two", "")):  # a token that is renewed counts at once
                file.write_text(f"{mark}{token}\n", encoding="utf-8")
                assert await outbound.post("/api", {"query": "up"}) == b"yes"
    assert seen == [("POST", "/prometheus/api", "shop", f"Bearer {token}") for token in ("one", "two")]


async def test_who_has_a_password_is_sent_basic_authentication_and_no_error_repeats_it(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("p@ss:wörd\n")

    def answer(request: web.Request) -> web.Response:
        header = request.headers["Authorization"]
        user, _, password = b64decode(header.removeprefix("Basic ")).decode().partition(":")
        if request.path == "/x":
            return web.Response(text=f"{user} {password}")
        return web.Response(status=401, text=f"{header} is {password}")

    async with answering(answer) as url:
        endpoint = Endpoint(url, username="foreshock", password_file=str(file))
        assert (await asked(endpoint)).decode() == "foreshock p@ss:wörd"
        with pytest.raises(OutboundError, match=r"401 Unauthorized: Basic <redacted:token> is <redacted:token>$"):
            await asked(endpoint, "/no")


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"username": "foreshock"}, "a password_file belongs to it"),
        ({"password_file": "/p"}, "to that a username"),
        ({"username": "a:b", "password_file": "/p"}, "without a colon"),
        ({"username": "a", "password_file": "/p", "token_file": "/t"}, "token_file beside it"),
        ({"server_name": "prometheus"}, "https:// alone"),
    ],
)
def test_who_we_are_is_said_in_one_way(more: dict[str, str], why: str) -> None:
    with pytest.raises(EndpointError, match=why):
        Endpoint("http://prometheus:9090", **more)  # type: ignore[arg-type]


async def test_a_certificate_for_another_name_is_trusted_where_that_is_said(tmp_path: Path) -> None:
    cert, key = certificate(tmp_path, names="DNS:etcd.internal")
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(cert, key)
    (tmp_path / "other").mkdir()
    other, _ = certificate(tmp_path / "other")
    async with answering(lambda _: web.Response(text="yes"), tls) as url:
        assert await asked(Endpoint(url, ca_file=str(cert), server_name="etcd.internal")) == b"yes"
        with pytest.raises(OutboundError, match=r"not valid for '127\.0\.0\.1'; write whom it is for as server_name$"):
            await asked(Endpoint(url, ca_file=str(cert)))
        with pytest.raises(OutboundError, match=r"; write the certificate of who signed it into a file, as ca_file$"):
            await asked(Endpoint(url, server_name="etcd.internal"))
        with pytest.raises(OutboundError, match=f"; nobody of {other} \\(ca_file\\) signed it$"):
            await asked(Endpoint(url, ca_file=str(other), server_name="etcd.internal"))
        with pytest.raises(OutboundError, match=f"^ca_file {key}: no certificate or crl found$"):
            await asked(Endpoint(url, ca_file=str(key)))


async def test_a_redirect_is_not_followed_and_a_refusal_is_told_without_the_token(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(TOKEN)
    hits = []

    def answer(request: web.Request) -> web.Response:
        hits.append(request.path)
        if request.path == "/away":
            return web.Response(status=302, headers={"Location": "http://169.254.169.254/latest/meta-data"})
        return web.Response(status=400, text="parse error:\n  unexpected end of input")

    async with answering(answer) as url:
        endpoint = Endpoint(url, token_file=str(file))
        with pytest.raises(OutboundError, match="redirect") as away:
            await asked(endpoint, "/away")
        with pytest.raises(OutboundError, match="parse error: unexpected end of input") as wrong:
            await asked(endpoint, "/wrong")
    assert hits == ["/away", "/wrong"]
    assert (away.value.status, wrong.value.status) == (302, 400)
    assert TOKEN not in f"{away.value}{wrong.value}"


async def test_who_repeats_our_token_in_a_refusal_is_told_on_without_it(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(TOKEN)

    def answer(request: web.Request) -> web.Response:
        said = f"unknown credential: {request.headers['Authorization']}"
        return (
            web.json_response({"error": said}, status=401)
            if request.path == "/json"
            else web.Response(status=401, text=said)
        )

    async with answering(answer) as url:
        for path in ("/json", "/text"):
            with pytest.raises(OutboundError, match="unknown credential: Bearer <redacted:token>"):
                await asked(Endpoint(url, token_file=str(file)), path)


async def test_an_answer_is_read_up_to_its_bound_unpacked() -> None:
    def answer(request: web.Request) -> web.Response:
        found = web.Response(body=b"0" * (1000 if request.path == "/fits" else 1_000_000))
        found.enable_compression(web.ContentCoding.gzip)
        return found

    async with answering(answer) as url:
        assert len(await asked(Endpoint(url), "/fits")) == 1000
        with pytest.raises(TooMuchError):
            await asked(Endpoint(url), "/too-much")


async def test_nobody_there_and_no_certificate_are_said() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        with pytest.raises(OutboundError, match=f"^127.0.0.1:{port} cannot be reached: Connection refused$"):
            await asked(Endpoint(f"http://127.0.0.1:{port}"))
    with pytest.raises(OutboundError, match=r"^nobody\.invalid:80 cannot be reached: \w"):
        await asked(Endpoint("http://nobody.invalid"))
    with pytest.raises(OutboundError, match=r"nowhere\.pem"):
        await asked(Endpoint("https://127.0.0.1", ca_file="nowhere.pem"))


async def test_why_a_connection_fails_is_said_without_the_names_of_libraries(tmp_path: Path) -> None:
    async def end(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.close()

    cert, key = certificate(tmp_path)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(cert, key)
    said = []
    for scheme, context in (("http", None), ("https", tls), ("https", None)):
        server = await asyncio.start_server(end, "127.0.0.1", 0, ssl=context)
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(OutboundError) as failed:
            await asked(Endpoint(f"{scheme}://127.0.0.1:{port}"))
        said.append(str(failed.value).replace(str(port), "PORT"))
        await stop(server)
    ended, untrusted, not_tls = said
    assert ended == "it ended the connection without an answer"
    assert untrusted == (
        "127.0.0.1:PORT shows a certificate that is not to be trusted: self-signed certificate;"
        " write the certificate of who signed it into a file, as ca_file"
    )
    assert "Error" not in not_tls


@pytest.fixture
def ours(tmp_path: Path) -> tuple[Path, Path]:
    """A certificate for us to show, and its key."""
    folder = tmp_path / "ours"
    folder.mkdir()
    return certificate(folder)


def wants_to_see(shown: Path, own: tuple[Path, Path]) -> ssl.SSLContext:
    """A server that lets nobody in but who shows this certificate."""
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(*own)
    tls.load_verify_locations(shown)
    tls.verify_mode = ssl.CERT_REQUIRED
    return tls


async def test_who_wants_to_see_a_certificate_is_shown_ours(tmp_path: Path, ours: tuple[Path, Path]) -> None:
    cert, key = ours
    theirs = certificate(tmp_path)
    both = tmp_path / "both.pem"
    both.write_text(cert.read_text() + key.read_text())
    async with answering(lambda _: web.Response(text="yes"), wants_to_see(cert, theirs)) as url:
        known = Endpoint(url, ca_file=str(theirs[0]), cert_file=str(cert), key_file=str(key))
        assert await asked(known) == b"yes"
        assert await asked(Endpoint(url, ca_file=str(theirs[0]), cert_file=str(both))) == b"yes"


@pytest.mark.parametrize("newest", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_who_ends_the_connection_may_want_to_see_a_certificate(
    tmp_path: Path, ours: tuple[Path, Path], newest: ssl.TLSVersion
) -> None:
    """This one ends it without a word: before it is made, or of TLS 1.3 after that."""
    theirs = certificate(tmp_path)
    tls = wants_to_see(ours[0], theirs)
    tls.maximum_version = newest
    async with answering(lambda _: web.Response(text="yes"), tls) as url:
        without = Endpoint(url, ca_file=str(theirs[0]))
        with pytest.raises(OutboundError, match="; it may want to see a certificate: write one as cert_file, with its"):
            await asked(without)
        async with Outbound.to(without) as outbound:
            with pytest.raises(OutboundError, match="; it may want to see a certificate: write one as cert_file, with"):
                await outbound.post("/x", {"query": "x" * 200_000})
        other = Endpoint(url, ca_file=str(theirs[0]), cert_file=str(theirs[0]), key_file=str(theirs[1]))
        with pytest.raises(OutboundError, match=r"; it may not take the certificate in .*tls\.crt \(cert_file\)$"):
            await asked(other)


async def test_a_certificate_that_cannot_be_shown_is_told_with_its_file(ours: tuple[Path, Path]) -> None:
    cert, key = ours
    with pytest.raises(OutboundError, match=r"^cert_file nowhere.crt cannot be read: No such file"):
        await asked(Endpoint("https://127.0.0.1", cert_file="nowhere.crt", key_file=str(key)))
    with pytest.raises(OutboundError, match=r"key_file .*tls\.crt cannot be used together"):
        await asked(Endpoint("https://127.0.0.1", cert_file=str(cert)))
    with pytest.raises(EndpointError, match="key_file: a cert_file belongs to it"):
        Endpoint("https://127.0.0.1", key_file=str(key))
    with pytest.raises(EndpointError, match="cert_file: a certificate is shown over https"):
        Endpoint("http://127.0.0.1", cert_file=str(cert), key_file=str(key))


async def test_no_proxy_of_the_environment_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    async with answering(lambda _request: web.Response(text="yes")) as url:
        assert await asked(Endpoint(url)) == b"yes"


def test_nothing_else_in_the_program_asks_the_world() -> None:
    """Three clients of the server: this one, the API server's, and Slack's own, which nobody but what speaks with Slack
    may use. And the one of the command line, which asks a Foreshock, and which the server does not import."""
    app = Path(__file__).parents[2] / "app"
    clients = [path.name for path in app.rglob("*.py") if "ClientSession(" in path.read_text()]
    assert clients == ["outbound.py"]
    assert {path.parent.name for path in app.rglob("*.py") if "slack_sdk" in path.read_text()} == {"notify"}
    others = ("import requests", "import httpx", "urllib.request", "http.client")
    asking = [path for path in app.rglob("*.py") if any(one in path.read_text() for one in others)]
    assert asking == [app / "client" / "http.py"]
    importing = [path for path in app.rglob("*.py") if "app.client.http" in path.read_text()]
    assert {path.parent.name for path in importing} == {"client"}


async def test_of_a_refusal_in_json_the_reason_is_told() -> None:
    told = {"status": "error", "errorType": "bad_data", "error": "1:4: parse error: unclosed left parenthesis"}
    status = {"kind": "Status", "status": "Failure", "message": "Unauthorized", "code": 401}
    odd = [(body, json.dumps(body)) for body in ({"error": 7}, {"code": 3}, ["odd"])]
    for body, said in ((told, told["error"]), (status, "Unauthorized"), *odd):
        async with answering(lambda _, body=body: web.json_response(body, status=400)) as url:  # type: ignore[misc]
            with pytest.raises(OutboundError) as refused:
                await asked(Endpoint(url))
        assert str(refused.value) == f"127.0.0.1 answers 400 Bad Request: {said}"


async def test_of_a_long_refusal_the_middle_is_left_out() -> None:
    """VictoriaMetrics says the question, of thousands of characters, before it says what is wrong with it."""
    long = f"cannot answer {'a|' * 999}: a bracket is missing"
    async with answering(lambda _: web.json_response({"error": long}, status=422)) as url:
        with pytest.raises(OutboundError, match=r"cannot answer a\|a.* … .*a bracket is missing") as refused:
            await asked(Endpoint(url), most=9999)
    assert len(str(refused.value)) < SAID + 100
