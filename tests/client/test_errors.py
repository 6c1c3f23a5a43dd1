"""What a tired person is told when it does not work; and that the token goes to the URL that was given alone."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from time import monotonic

import pytest

from app.client.http import AddressError, Http, token_of
from app.client.server import BusyError, DeniedError, RefusedError, Server
from app.client.transport import UnreachableError
from app.failures import Exit
from tests.client.conftest import Asked, run
from tests.programs import free_address
from tests.serving import program
from tests.test_cli import FORESHOCK
from tests.test_tls import certificate
from tests.web import world

SECRET = "fs_s3cr3t-t0k3n-of-nobody"


def test_a_server_that_is_not_there(site: Asked) -> None:
    url = f"http://{free_address()}"
    done = site.run("what-changed", FORESHOCK_URL=url)
    assert done.returncode == Exit.NOT_NOW
    assert done.stderr.startswith(f"foreshock: {url} cannot be reached: Connection refused. Is FORESHOCK_URL right")
    assert done.stdout == ""
    nowhere = site.run("what-changed", "--url", "https://nobody.invalid")
    assert nowhere.returncode == Exit.NOT_NOW
    assert "https://nobody.invalid cannot be reached: " in nowhere.stderr


def test_a_token_that_is_not_known_or_not_enough(site: Asked, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(SECRET)
    (tmp_path / "token").chmod(0o600)
    unknown = site.run("what-changed", FORESHOCK_TOKEN_FILE=str(tmp_path / "token"))
    assert unknown.returncode == Exit.DENIED
    assert f"{site.url} does not know the token" in unknown.stderr
    assert "foreshock token create --role viewer" in unknown.stderr
    assert SECRET not in unknown.stderr
    little = site.run("incident", "close", world.incident().id)
    assert little.returncode == Exit.DENIED
    assert "this takes the role responder; yours is viewer" in little.stderr


@pytest.mark.parametrize("asked", [("what-changed",), ("changes",), ("export", "changes")])
def test_a_namespace_that_was_never_seen_is_a_mistake(site: Asked, asked: tuple[str, ...]) -> None:
    done = site.run(*asked, "-n", "payment")
    assert (done.returncode, done.stdout) == (2, "")
    assert "no namespace 'payment' is recorded; the nearest: payments" in done.stderr


def test_who_is_asked_is_said_before_anything_is_sent(site: Asked, tmp_path: Path) -> None:
    none = run(FORESHOCK, "what-changed", FORESHOCK_URL=site.url)
    assert (none.returncode, "FORESHOCK_TOKEN_FILE names a file" in none.stderr) == (2, True)
    both = site.run("what-changed", FORESHOCK_TOKEN=SECRET)
    assert both.returncode == 2
    assert "FORESHOCK_TOKEN and FORESHOCK_TOKEN_FILE are both set" in both.stderr
    assert SECRET not in both.stderr
    lost = site.run("what-changed", "--token-file", str(tmp_path / "none"))
    assert (lost.returncode, "No such file or directory" in lost.stderr) == (2, True)
    url = site.run("what-changed", "--url", f"https://me:{SECRET}@foreshock.example")
    assert (url.returncode, "holds a user or a password" in url.stderr) == (2, True)
    assert SECRET not in url.stderr


def test_a_token_that_others_can_read_is_used_with_a_warning(site: Asked, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(site.tokens["viewer"].read_text())
    file.chmod(0o644)
    done = site.run("what-changed", "--token-file", str(file))
    assert done.returncode == 0
    assert done.stderr == f"foreshock: others on this machine can read {file}: chmod 600 {file}\n"
    token = site.tokens["viewer"].read_text().strip()
    assert run(FORESHOCK, "what-changed", FORESHOCK_URL=site.url, FORESHOCK_TOKEN=token).returncode == 0


def test_a_certificate_of_an_authority_of_your_own(site: Asked, tmp_path: Path) -> None:
    cert, key = certificate(tmp_path)
    options = ("--port", "0", "--tls-cert", str(cert), "--tls-key", str(key))
    with program(site.dsn, tmp_path / "data", *options) as (_, url):
        unknown = site.run("what-changed", FORESHOCK_URL=url)
        assert unknown.returncode == 2
        assert f"{url} shows a certificate that is not trusted: self-signed certificate" in unknown.stderr
        assert "FORESHOCK_CA_FILE" in unknown.stderr
        assert site.said("changes", "--limit", "1", FORESHOCK_URL=url, FORESHOCK_CA_FILE=str(cert)).startswith("1 ")
        plain = site.run("what-changed", FORESHOCK_URL=url.replace("https", "http"))
        assert plain.returncode == Exit.NOT_NOW
    (tmp_path / "none.pem").write_text("nothing")
    bad = site.run("what-changed", "--ca-file", str(tmp_path / "none.pem"))
    assert (bad.returncode, "holds no certificate in PEM" in bad.stderr) == (2, True)


class Heard(ThreadingHTTPServer):
    """Another server: a proxy, a page that wants a login, one that breaks off. ``heard`` is what it was asked."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answering)
        self.heard: list[tuple[str, str | None]] = []
        self.elsewhere = ""
        self.let_go = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


_ANSWERS = {
    "list": ("application/json", b'{"items": [], "next": null, "freshness": [], "gaps": []}'),
    "deep": ("application/json", b"[" * 100_000),
    "latin": ("text/plain", b"caf\xe9"),
    "manifest": ("application/yaml", b"data: {a: caf\xe9}"),
    "array": ("application/json", b"[]"),
    "another": ("application/json", b"{}"),
    "half": ("application/json", b'{"freshness": [], "gaps": []}'),
    "odd-items": ("application/json", b'{"items": ["a"], "next": null, "freshness": [], "gaps": []}'),
    "no-list": ("application/json", b'{"items": 3, "next": null, "freshness": [], "gaps": []}'),
    "bare": ("application/json", b'{"items": [{"id": "5f0a1c22d3e4"}], "next": null, "freshness": [], "gaps": []}'),
    "lines": ("application/x-ndjson", b'{"after": "1.1"}\n<p>Sign in</p>\n[]\n'),
}


class _Answering(BaseHTTPRequestHandler):
    server: Heard

    def do_GET(self) -> None:
        self.server.heard.append((self.path, self.headers.get("Authorization")))
        how = self.path.removeprefix("/").split("/")[0]
        if how == "redirect":
            self._answer(307, "text/html", b"", Location=f"{self.server.elsewhere}/there")
        elif how == "login":
            self._answer(200, "text/html; charset=utf-8", b"<p>Sign in</p>")
        elif how == "gateway":
            self._answer(502, "text/html", b"<h1>Bad gateway</h1>", Retry_After="7")
        elif how == "often":
            detail = b'{"detail": "too much at once", "status": 429}'
            self._answer(429, "application/problem+json", detail, Retry_After="3")
        elif how in ("long", "odd"):
            self._answer(503, "text/plain", b"", Retry_After={"long": "9" * 5000, "odd": "\xb2"}[how])
        elif how == "short":
            self._answer(200, "application/json", b'{"items": [', length=1000)
        elif how == "silent":
            self.server.let_go.wait(20)
        elif how == "slow":
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            while not self.server.let_go.wait(0.1):
                self.wfile.write(b" ")
        else:
            self._answer(200, *_ANSWERS.get(how, _ANSWERS["list"]))

    def _answer(self, status: int, kind: str, body: bytes, *, length: int | None = None, **headers: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Nothing is logged."""


@contextmanager
def other() -> Iterator[Heard]:
    server = Heard()
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.let_go.set()
        server.shutdown()
        server.server_close()
        thread.join()


def asking(url: str, token: str = SECRET, /, *, silent: float = 5.0, in_all: float = 10.0) -> Server:
    return Server(Http(url, token), silent=silent, in_all=in_all)


def test_a_redirect_is_told_and_gets_no_token() -> None:
    with other() as first, other() as second:
        first.elsewhere = second.url
        with pytest.raises(
            RefusedError, match=r"redirects to http://127\.0\.0\.1:.*/there, and no token is sent there"
        ):
            asking(f"{first.url}/redirect").json("changes")
        first.elsewhere = first.url  # not of its own either: the setting is to be right
        with pytest.raises(RefusedError, match="redirects to"):
            asking(f"{first.url}/redirect").json("changes")
        assert [path for path, _ in first.heard] == ["/redirect/api/v1/changes"] * 2
        assert second.heard == []


def test_what_stands_before_it_is_told_from_it() -> None:
    with other() as server:
        with pytest.raises(RefusedError, match=r"is no Foreshock, or something before it .*: 200, text/html"):
            asking(f"{server.url}/login").json("changes")
        with pytest.raises(BusyError, match=r"cannot answer now \(502\)") as busy:
            asking(f"{server.url}/gateway").json("changes")
        assert (busy.value.retry_after, busy.value.code) == (7, Exit.NOT_NOW)
        with pytest.raises(BusyError, match=r"cannot answer now \(429\): too much at once") as busy:
            asking(f"{server.url}/often").json("changes")
        assert (busy.value.retry_after, busy.value.code) == (3, Exit.NOT_NOW)
        with pytest.raises(UnreachableError, match="in the middle of an answer"):
            asking(f"{server.url}/short").json("changes")
        with pytest.raises(UnreachableError, match="no JSON object"):
            asking(f"{server.url}/array").json("changes")
        lines = asking(f"{server.url}/lines").lines("changes", silent=5.0)
        assert next(lines) == {"after": "1.1"}
        for _ in range(2):
            with pytest.raises(UnreachableError, match="no JSON object"):
                next(lines)
        assert list(lines) == []


@pytest.mark.parametrize(
    "asked",
    [
        ("changes", "-o", "json"),
        ("changes", "-o", "yaml"),
        ("changes", "-o", "wide"),
        ("who-calls", "pods"),
        ("export", "incidents"),
        ("incident", "open", "Checkout fails"),
    ],
)
def test_json_of_another_program_is_told_from_an_answer(site: Asked, asked: tuple[str, ...]) -> None:
    with other() as server:
        done = site.run(*asked, FORESHOCK_URL=f"{server.url}/another")
        assert (done.returncode, done.stdout) == (Exit.WRONG_USE, "")
        assert done.stderr.startswith(f"foreshock: what is at {server.url}/another is no Foreshock")


@pytest.mark.parametrize(
    ("how", "asked", "what"),
    [
        ("half", ("who-calls", "pods"), "JSON without 'items'"),
        ("half", ("export", "incidents"), "JSON without 'items'"),
        ("odd-items", ("export", "changes"), "no list of objects"),
        ("no-list", ("changes", "-o", "json"), "no list of objects"),
        ("bare", ("export", "incidents"), "JSON without 'started_at'"),
    ],
)
def test_an_answer_that_lacks_what_is_read_of_it_is_told_in_words(
    site: Asked, how: str, asked: tuple[str, ...], what: str
) -> None:
    with other() as server:
        done = site.run(*asked, FORESHOCK_URL=f"{server.url}/{how}")
        assert (done.returncode, done.stdout) == (Exit.WRONG_USE, "")
        assert done.stderr.startswith(f"foreshock: what is at {server.url}/{how} is no Foreshock"), done.stderr
        assert what in done.stderr


def test_whatever_is_answered_is_told_in_words() -> None:
    with other() as server:
        for how, seconds in (("long", 60), ("odd", 5)):
            with pytest.raises(BusyError) as busy:
                asking(f"{server.url}/{how}").json("changes")
            assert busy.value.retry_after == seconds
        with pytest.raises(UnreachableError, match="no JSON object"):
            asking(f"{server.url}/deep").json("changes")
        for read in (asking(f"{server.url}/latin").text, asking(f"{server.url}/manifest").yaml):
            with pytest.raises(UnreachableError, match="no UTF-8"):
                read("changes")


@pytest.mark.parametrize("host", ["a..example", "x" * 64 + ".example"])
def test_what_is_no_host_is_said(host: str) -> None:
    with pytest.raises(AddressError, match=r"FORESHOCK_URL is .* is no host's name"):
        asking(f"http://{host}").json("changes")


def test_nobody_waits_for_ever() -> None:
    with other() as server:
        for how, limits in (("silent", {"silent": 0.3}), ("slow", {"in_all": 0.5})):
            began = monotonic()
            with pytest.raises(UnreachableError, match="it does not answer in time"):
                asking(f"{server.url}/{how}", **limits).json("changes")
            assert monotonic() - began < 5, how


def test_the_proxy_of_the_environment_is_asked_but_not_for_this_machine(site: Asked) -> None:
    with other() as proxy:
        away = site.run("changes", "-o", "json", FORESHOCK_URL="http://foreshock.invalid", http_proxy=proxy.url)
        assert (away.returncode, away.stdout.startswith("{")) == (0, True)
        assert [path for path, _ in proxy.heard] == ["http://foreshock.invalid/api/v1/changes"]
        assert "the token goes to foreshock.invalid in the clear" in away.stderr
        site.said("changes", "--limit", "1", http_proxy=proxy.url, HTTP_PROXY=proxy.url)
        assert len(proxy.heard) == 1


def test_a_proxy_that_is_away_is_told_from_the_server(site: Asked) -> None:
    proxy = f"http://me:{SECRET}@{free_address()}"
    done = site.run("changes", FORESHOCK_URL="https://foreshock.invalid", HTTPS_PROXY=proxy)
    assert done.returncode == Exit.NOT_NOW
    where = proxy.rpartition("@")[2]
    assert f"https://foreshock.invalid cannot be reached by way of the proxy {where}: Connection refused" in done.stderr
    assert "Is https_proxy right" in done.stderr
    assert SECRET not in done.stderr
    past = site.run("changes", FORESHOCK_URL="https://foreshock.invalid", HTTPS_PROXY=proxy, NO_PROXY=".invalid")
    assert "by way of the proxy" not in past.stderr


def test_a_url_that_names_rest_itself_is_said() -> None:
    for url in ("https://x/api/v1", "https://x/there/api/v1/"):
        with pytest.raises(AddressError, match="leave out /api/v1 at its end"):
            Http(url, SECRET)


@pytest.mark.parametrize(
    "url",
    ["foreshock.example", "ftp://foreshock.example", "https://", "http://x:99999", "https://x/?a=1", "http://a b"],
)
def test_what_is_no_url_is_said(url: str) -> None:
    with pytest.raises(AddressError, match="FORESHOCK_URL"):
        Http(url, SECRET)


@pytest.mark.parametrize("text", ["", "two words", "two\nlines", "\x00", "ä"])
def test_what_is_no_token_is_said_without_it(tmp_path: Path, text: str) -> None:
    file = tmp_path / "token"
    file.write_text(text)
    with pytest.raises(AddressError, match="holds no token of one line") as refused:
        token_of(file, "")
    assert len(text) < 2 or text not in str(refused.value)
    assert token_of(None, " fs_x\n") == "fs_x"


def test_a_token_may_be_written_by_what_marks_its_files(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_bytes(b"\xef\xbb\xbffs_x\r\n")
    assert token_of(file, "") == "fs_x"
    file.write_bytes("fs_x\r\n".encode("utf-16"))
    with pytest.raises(AddressError, match="holds no token of one line"):
        token_of(file, "")


def test_errors_end_with_codes_of_their_own() -> None:
    assert (RefusedError.code, DeniedError.code, BusyError.code, UnreachableError.code) == (2, 77, 75, 75)
