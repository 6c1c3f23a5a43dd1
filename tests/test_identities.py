"""The file of who may do what: read again when it is written, and never worse than before."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import pytest
from starlette.types import Receive, Scope, Send
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from app import identities
from app.core.access import NO_ACCESS
from app.identities import AccessError, read
from app.oidc import oidc_of
from app.settings import Settings, SettingsError, load
from app.written import Written

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def write(path: Path, text: str) -> None:
    """As an editor does: another file in its place."""
    new = path.with_suffix(".new")
    new.write_text(text)
    new.rename(path)


def test_what_is_written_counts_at_once_and_what_is_wrong_does_not(tmp_path: Path) -> None:
    path = tmp_path / "access.yaml"
    write(path, "groups: {sre: {role: admin}}")
    access = Written(path, read)
    assert access().of("bob", ["sre"])
    write(path, "groups: {ops: {role: admin}}")
    assert (access().of("bob", ["sre"]), access().of("bob", ["ops"]) is None) == (None, False)
    for wrong in ("groups: {sre: {role: root}}", "{", "[]", ""):
        write(path, wrong)
        assert access().of("bob", ["sre"]) is None
        assert access().of("bob", ["ops"])
    path.unlink()
    assert access().of("bob", ["ops"])


def test_it_must_be_there_and_good_at_the_start(tmp_path: Path) -> None:
    path = tmp_path / "access.yaml"
    with pytest.raises(AccessError, match=r"access\.yaml: .*No such file"):
        Written(path, read)
    path.write_text("groups: {sre: {role: admin, scopes: [prod/Shop]}}")
    with pytest.raises(AccessError, match="'Shop' cannot be a namespace"):
        Written(path, read)


def test_without_a_proxy_nobody_is_believed_and_no_file_is_read(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path)
    assert identities.proxy_of(settings) is None
    assert identities.access_of(settings)() is NO_ACCESS
    assert NO_ACCESS.of("alice", ["sre"]) is None


USER, GROUPS, TRUSTED = "FORESHOCK_PROXY_USER_HEADER", "FORESHOCK_PROXY_GROUPS_HEADER", "FORESHOCK_TRUSTED_PROXIES"


@pytest.mark.parametrize(
    ("told", "wrong"),
    [
        ({USER: "X-Forwarded-User"}, TRUSTED),
        ({TRUSTED: "10.0.0.0/8"}, TRUSTED),
        ({GROUPS: "X-Forwarded-Groups"}, GROUPS),
        ({USER: "X-Forwarded-User", TRUSTED: "0.0.0.0/0"}, TRUSTED),
        ({USER: "X-Forwarded-User", TRUSTED: "10.0.0.0/8 ::/0"}, TRUSTED),
        ({USER: "X-Forwarded-User", TRUSTED: "::ffff:0.0.0.0/96"}, TRUSTED),
        ({USER: "X-Forwarded-User", TRUSTED: "10.0.0.1/8"}, TRUSTED),
        ({USER: "X-Forwarded-User", TRUSTED: "proxy.example"}, TRUSTED),
        ({USER: "X-Forwarded-User", TRUSTED: " "}, TRUSTED),
        ({USER: "X-Forwarded-User: x", TRUSTED: "10.0.0.1"}, USER),
    ],
)
def test_a_proxy_is_named_with_its_addresses_or_not_at_all(
    told: dict[str, str], wrong: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [one for one in os.environ if one.startswith("FORESHOCK_")]:
        monkeypatch.delenv(name)
    for name, value in told.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SettingsError, match=rf"{wrong} \(environment\)"):
        load()
    for name, value in {
        USER: "X-Forwarded-User",
        GROUPS: "X-Forwarded-Groups",
        TRUSTED: "10.0.3.0/24 ::1 ::ffff:10.0.5.1",
    }.items():
        monkeypatch.setenv(name, value)
    proxy = identities.proxy_of(load())
    assert proxy is not None
    trusted = ("10.0.3.7", "::ffff:10.0.3.7", "::1", "10.0.5.1", "::ffff:10.0.5.1")
    assert [proxy.is_trusted(one) for one in trusted] == [True] * 5
    assert [proxy.is_trusted(one) for one in ("10.0.4.7", "127.0.0.1", "", None, "localhost")] == [False] * 5


@pytest.mark.parametrize(
    ("written", "met", "believed"),
    [
        ("", "127.0.0.1", False),
        ("*", "192.0.2.1", True),
        ("192.0.2.1", "192.0.2.1", True),
        ("192.0.2.1", "::ffff:192.0.2.1", True),
        ("::ffff:192.0.2.1", "192.0.2.1", True),
        ("::ffff:c000:201", "192.0.2.1", True),
        ("::FFFF:192.0.2.1", "::ffff:192.0.2.1", True),
        ("192.0.2.1", "::ffff:192.0.2.2", False),
        ("2001:db8::1, 192.0.2.0/24", "::ffff:192.0.2.77", True),
        ("::ffff:192.0.2.0/120", "192.0.2.77", True),
        ("::ffff:192.0.2.0/120,", "192.0.3.1", False),
        ("2001:db8::/32", "2001:db8::1", True),
        ("::/0", "192.0.2.1", False),
    ],
)
async def test_who_says_where_a_request_is_from_is_met_as_of_ipv4_or_as_of_ipv6(
    written: str, met: str, believed: bool
) -> None:
    seen: list[str] = []

    async def app(scope: Scope, _receive: Receive, _send: Send) -> None:
        seen.append(scope["client"][0])

    around = ProxyHeadersMiddleware(app, trusted_hosts=identities.forwarders(written))  # type: ignore[arg-type]
    scope: Any = {"type": "http", "client": (met, 1), "headers": [(b"x-forwarded-for", b"198.51.100.9")]}
    await around(scope, cast("Any", None), cast("Any", None))
    assert seen == ["198.51.100.9" if believed else met]


@pytest.mark.parametrize("wrong", ["10.0.0.1/8", "proxy.example", "10.0.0.1 10.0.0.2", "10.0.0.1,*"])
def test_who_is_to_be_believed_is_named_by_addresses(wrong: str) -> None:
    with pytest.raises(SettingsError, match=r"FORWARDED_ALLOW_IPS \(environment\): .*write addresses like"):
        identities.forwarders(wrong)


ISSUER, CLIENT_ID, CLIENT_SECRET = (f"FORESHOCK_OIDC_{name}" for name in ("ISSUER", "CLIENT_ID", "CLIENT_SECRET"))
WHOLE = {ISSUER: "https://sso.example/realms/main", CLIENT_ID: "foreshock", CLIENT_SECRET: "geheim"}


@pytest.mark.parametrize(
    ("told", "wrong"),
    [
        ({CLIENT_ID: ""}, CLIENT_ID),
        ({CLIENT_SECRET: ""}, CLIENT_SECRET),
        ({ISSUER: ""}, CLIENT_SECRET),
        ({ISSUER: "http://sso.example"}, ISSUER),
        ({ISSUER: "sso.example"}, ISSUER),
        ({ISSUER: "https://us@sso.example"}, ISSUER),
        ({"FORESHOCK_OIDC_SCOPES": "email profile"}, "FORESHOCK_OIDC_SCOPES"),
        ({"FORESHOCK_OIDC_CA_FILE": "ca.pem"}, "FORESHOCK_OIDC_CA_FILE"),
    ],
)
def test_a_provider_is_named_whole_or_not_at_all(
    told: dict[str, str], wrong: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [one for one in os.environ if one.startswith("FORESHOCK_")]:
        monkeypatch.delenv(name)
    for name, value in (WHOLE | told).items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SettingsError, match=rf"{wrong} \(environment\)") as refused:
        load()
    assert "geheim" not in str(refused.value)


def test_of_a_provider_nothing_is_asked_at_the_start(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert oidc_of(Settings(data_dir=tmp_path), url="https://foreshock.example", clock=lambda: NOW) is None
    for name, value in WHOLE.items():
        monkeypatch.setenv(name, value)
    found = oidc_of(load(), url="https://foreshock.example", clock=lambda: NOW)
    assert found is not None
    assert (found.name, found.redirect_uri) == ("sso.example", "https://foreshock.example/login/oidc/back")
    with pytest.raises(AccessError, match=r"access\.yaml"):
        identities.access_of(load())
