"""Signing in at an identity provider: who comes back is who it says, and nobody else gets in."""

from __future__ import annotations

import base64
import hmac
import json
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx2
import pytest
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.hashes import SHA256
from fastapi import FastAPI
from joserfc.jwk import ECKey, OctKey, RSAKey

from app.core.access import Access, Grant, Identity
from app.core.oidc import SignInError, identity_of
from app.core.roles import Role
from app.oidc import Oidc
from app.store import audit, tokens
from app.store.audit import Wanted
from app.store.database import Database
from app.store.tokens import Bearer, Purpose
from app.web import guard
from app.web.rates import Limits, Rate
from app.web.routes import create_app
from tests.listening import listening
from tests.provider import CLIENT, SECRET, Provider, provider
from tests.test_tls import certificate
from tests.web.conftest import HOST, NOW, UNLIMITED, deps

SRE = {"email": "alice@example.com", "email_verified": True, "groups": ["sre", "staff"]}
ACCESS = Access(
    groups={"sre": Grant(Role.ADMIN), "shop": Grant(Role.RESPONDER, ("prod/shop",))},
    users={"bob@example.com": Grant(Role.VIEWER)},
)


@dataclass
class Signing:
    """A site where people sign in at a provider, and a browser that does."""

    app: FastAPI
    there: Provider
    browser: httpx2.AsyncClient

    async def leaves(self) -> str:
        """The way there: where the provider sends the browser back to."""
        answer = await self.browser.get("/login/oidc")
        assert answer.status_code == 303, answer.text
        async with httpx2.AsyncClient() as elsewhere:
            back = await elsewhere.get(answer.headers["location"])
        assert back.status_code == 302, back.text
        return str(back.headers["location"])

    async def signs_in(self, **claims: object) -> httpx2.Response:
        self.there.claims = dict(claims)
        return await self.browser.get(await self.leaves())


def browser(app: FastAPI) -> httpx2.AsyncClient:
    transport = httpx2.ASGITransport(app=app, raise_app_exceptions=False)
    return httpx2.AsyncClient(transport=transport, base_url=HOST, headers={"Accept": "text/html"})


@pytest.fixture
async def signing(database: Database) -> AsyncIterator[Signing]:
    async with provider(f"{HOST}/login/oidc/back", lambda: NOW) as there:
        oidc = Oidc(there.issuer, CLIENT, SECRET, HOST, lambda: NOW)
        app = create_app(
            replace(deps(database), oidc=oidc, access=lambda: ACCESS, scoped=database.scoped), limits=UNLIMITED
        )
        async with browser(app) as client:
            yield Signing(app, there, client)


async def test_who_signs_in_is_let_in_with_what_their_groups_may(signing: Signing, database: Database) -> None:
    refused = await signing.browser.get("/audit?who=x")
    assert refused.status_code == 401
    assert "Sign in at 127.0.0.1" in (await signing.browser.get("/login")).text
    answer = await signing.signs_in(**SRE)
    assert (answer.status_code, answer.headers["location"]) == (303, "/audit?who=x")
    assert (await signing.browser.get("/audit")).status_code == 200
    async with database.read.connect() as conn:
        first = (await audit.read(conn, Wanted(action="signed in"), before=None, limit=1))[0]
    assert first.who == "alice@example.com"
    session = signing.browser.cookies[guard.COOKIE]
    async with database.write.begin() as conn:
        known = await tokens.bearer(conn, session, purpose=Purpose.SESSION, now=NOW)
    assert known == Bearer(Role.ADMIN, "alice@example.com", None, ("sre", "staff")), (
        "so they are known in their clusters, too"
    )
    await signing.browser.post("/logout", headers={"Sec-Fetch-Site": "same-origin"})
    assert (await signing.browser.get("/audit")).status_code == 401


@pytest.mark.parametrize(
    ("claims", "lets_in"),
    [
        ({"groups": ["shop"]}, True),
        ({"groups": "shop"}, True),
        ({"groups": []}, False),
        ({"groups": None}, False),
        ({"groups": ["SRE"]}, False),
        ({"groups": {"sre": True}}, False),
        ({"groups": ["", "shop"]}, True),
        ({"groups": [""]}, False),
        ({"email": "bob@example.com", "email_verified": True}, True),
        ({"email": "bob@example.com", "email_verified": False}, False),
        ({"email": "bob@example.com", "email_verified": "true"}, False),
        ({"email": "bob@example.com"}, False),
        ({"preferred_username": "bob@example.com", "name": "bob@example.com"}, False),
    ],
)
async def test_groups_and_people_count_to_the_letter(signing: Signing, claims: dict[str, Any], lets_in: bool) -> None:
    answer = await signing.signs_in(**claims)
    assert answer.status_code == (303 if lets_in else 403), answer.text
    inside = await signing.browser.get("/changes")
    assert inside.status_code == (200 if lets_in else 401)


async def test_who_has_no_access_is_told_which_groups_were_seen(signing: Signing, database: Database) -> None:
    answer = await signing.signs_in(groups=["<b>sales"], email="eve@example.com", email_verified=True)
    assert "eve@example.com" in answer.text
    assert "&lt;b&gt;sales" in answer.text
    async with database.read.connect() as conn:
        denied = await audit.read(conn, Wanted(action="denied"), before=None, limit=5)
    assert not denied or denied[0].who in ("", "eve@example.com")


async def test_groups_that_are_kept_elsewhere_are_not_none(signing: Signing) -> None:
    """As Entra ID has them of who is in more than 200."""
    sources = {"src1": {"endpoint": "https://graph.example/getMemberObjects"}}
    answer = await signing.signs_in(_claim_names={"groups": "src1"}, _claim_sources=sources)
    assert answer.status_code == 403
    assert "in more groups than the provider tells" in answer.text


def test_a_claim_may_stand_in_another_and_its_name_hold_dots() -> None:
    claims = {"sub": "x", "realm_access": {"roles": ["sre"]}, "https://x.example/groups": ["shop"], "flat": "one"}
    for claim, groups in (
        ("realm_access.roles", ("sre",)),
        ("https://x.example/groups", ("shop",)),
        ("realm_access.groups", ()),
        ("flat.roles", ()),
    ):
        assert identity_of(claims, client_id="us", groups_claim=claim) == Identity("x", groups)
    with pytest.raises(SignInError, match="realm_access is no list"):
        identity_of(claims, client_id="us", groups_claim="realm_access")


OTHERS = RSAKey.generate_key(2048, {"kid": "first", "use": "sig"})


@pytest.mark.parametrize(
    "claims",
    [
        {"iss": "https://evil.example"},
        {"iss": None},
        {"aud": "another"},
        {"aud": ["another", "third"]},
        {"aud": [CLIENT, "another"]},
        {"azp": "another"},
        {"nonce": "another"},
        {"nonce": None},
        {"exp": int((NOW - timedelta(minutes=2)).timestamp())},
        {"exp": None},
        {"iat": int((NOW + timedelta(minutes=10)).timestamp())},
        {"iat": None},
        {"sub": None},
        {"sub": "u\x1b", "email": None},
        {"sub": "u" * 201, "email": None},
        {"nbf": int((NOW + timedelta(minutes=10)).timestamp())},
    ],
)
async def test_a_token_that_is_not_for_us_now_lets_nobody_in(signing: Signing, claims: dict[str, Any]) -> None:
    answer = await signing.signs_in(**(SRE | claims))
    assert answer.status_code == 403, claims
    assert (await signing.browser.get("/changes")).status_code == 401


async def test_clocks_may_differ_by_a_minute(signing: Signing) -> None:
    now = int(NOW.timestamp())
    late = {"exp": now - 30, "iat": now + 30}
    assert (await signing.signs_in(**(SRE | late))).status_code == 303


async def test_signatures_of_anybody_else_count_for_nothing(signing: Signing) -> None:
    own = signing.there.key
    assert isinstance(own, RSAKey)
    signing.there.shown = [own]
    for key, header in (
        (OTHERS, {}),
        (OctKey.import_key(SECRET * 4), {"alg": "HS256", "kid": "first"}),
        (OTHERS, {"kid": "made-up"}),
        (OTHERS, {"jwk": OTHERS.as_dict(private=False)}),
    ):
        signing.there.key, signing.there.header = key, header
        answer = await signing.signs_in(**SRE)
        assert answer.status_code == 403, header
        assert "cannot be believed" in answer.text
    public = own.as_pem(private=False)

    def unsigned(claims: dict[str, Any], alg: str = "none") -> str:
        return ".".join(_encoded(json.dumps(one).encode()) for one in ({"alg": alg, "kid": "first"}, claims))

    def shared(claims: dict[str, Any]) -> str:
        """By the public key, as if it were a secret."""
        signed = unsigned(claims, "HS256")
        return f"{signed}.{_encoded(hmac.digest(public, signed.encode(), 'sha256'))}"

    for forged in (shared, lambda claims: unsigned(claims) + ".", unsigned, lambda _: "", lambda _: "a.b.c"):
        signing.there.forged = forged
        assert "cannot be believed" in (await signing.signs_in(**SRE)).text
    assert signing.there.asked.count("keys") <= 2, "made-up keys do not make us ask again and again"


def _encoded(part: bytes) -> str:
    return base64.urlsafe_b64encode(part).rstrip(b"=").decode()


async def test_a_new_key_is_asked_for(signing: Signing, monkeypatch: pytest.MonkeyPatch) -> None:
    assert (await signing.signs_in(**SRE)).status_code == 303
    signing.there.key = ECKey.generate_key("P-256", {"kid": "second", "use": "sig"})
    signing.there.header = {"alg": "ES256"}
    monkeypatch.setattr("app.oidc.ASKED_EVERY", 0.0)
    assert (await signing.signs_in(**SRE)).status_code == 303


@pytest.mark.parametrize(
    "odd",
    [
        {"kty": "EC", "crv": "BP-256", "kid": "brainpool", "x": "AAAA", "y": "AAAA"},
        {"kty": "EC", "crv": "P-256", "kid": "off the curve", "x": "AAAA", "y": "AAAA"},
        {"kty": "RSA", "kid": "half", "n": "AAAA"},
        {"kty": "NEW", "kid": "of a kind to come"},
        {"kid": "of no kind"},
        {"kty": "OKP", "crv": "X448", "kid": "short", "x": "AAAA"},
    ],
)
async def test_a_key_that_cannot_be_read_keeps_nobody_out(signing: Signing, odd: dict[str, Any]) -> None:
    signing.there.beside = [odd]
    assert (await signing.signs_in(**SRE)).status_code == 303


async def test_where_no_key_can_be_read_that_is_said(signing: Signing) -> None:
    signing.there.beside, signing.there.shown = [{"kty": "EC", "crv": "BP-256", "x": "AAAA", "y": "AAAA"}], []
    answer = await signing.signs_in(**SRE)
    assert answer.status_code == 503
    assert "keys of 127.0.0.1 cannot be read: KeyError" in answer.text


@pytest.mark.parametrize("group", ["a\0b", "a\nb"])
async def test_a_group_that_is_no_text_is_refused_in_words(signing: Signing, group: str) -> None:
    answer = await signing.signs_in(**(SRE | {"groups": ["sre", group]}))
    assert answer.status_code == 403
    assert "not printable" in answer.text


@pytest.mark.parametrize(
    ("header", "payload"),
    [
        ({}, b'{"a":' * 3000),
        ({}, b"[]"),
        ({}, b"\xff"),
        ({"crit": 5}, b"{}"),
        ({"kid": []}, b"{}"),
        ({"alg": 5}, b"{}"),
    ],
)
async def test_what_is_no_token_is_refused_in_words(
    signing: Signing, header: dict[str, object], payload: bytes
) -> None:
    key = signing.there.key
    assert isinstance(key, RSAKey)
    head = json.dumps({"alg": "RS256", "kid": "first"} | header).encode()
    signed = f"{_encoded(head)}.{_encoded(payload)}"
    proof = key.private_key.sign(signed.encode(), PKCS1v15(), SHA256())  # type: ignore[union-attr]
    signing.there.forged = lambda _: f"{signed}.{_encoded(proof)}"
    answer = await signing.signs_in(**SRE)
    assert answer.status_code == 403
    assert "cannot be believed" in answer.text


async def test_both_ways_of_giving_our_secret_are_known(signing: Signing) -> None:
    signing.there.methods = ["client_secret_post"]
    assert (await signing.signs_in(**SRE)).status_code == 303


async def test_what_did_not_begin_in_this_browser_does_not_end_in_it(signing: Signing) -> None:
    signing.there.claims = SRE
    back = await signing.leaves()
    async with browser(signing.app) as another:
        assert (await another.get(back)).status_code == 400
        await another.get("/login/oidc")
        assert (await another.get(back)).status_code == 400
        assert (await another.get("/changes")).status_code == 401
    assert (await signing.browser.get(back)).status_code == 303
    again = await signing.browser.get(back)
    assert again.status_code == 400, "what was kept is used up"


async def test_two_tabs_sign_in_at_once(signing: Signing) -> None:
    signing.there.claims = SRE
    first, second = await signing.leaves(), await signing.leaves()
    assert (await signing.browser.get("/login/oidc/back?code=x&state=made-up")).status_code == 400, "it ends neither"
    assert (await signing.browser.get(first)).status_code == 303
    assert (await signing.browser.get("/audit")).status_code == 200
    assert (await signing.browser.get(first)).status_code == 400, "its secret is used up"
    assert (await signing.browser.get(second)).status_code == 303
    assert (await signing.browser.get("/audit")).status_code == 200
    assert not [name for name in signing.browser.cookies if "signing_in" in name]


async def test_of_many_tabs_those_that_began_last_may_end(signing: Signing) -> None:
    signing.there.claims = SRE
    backs = [await signing.leaves() for _ in range(6)]
    assert [(await signing.browser.get(back)).status_code for back in backs] == [400, 400, 303, 303, 303, 303]


async def test_a_code_is_good_once(signing: Signing) -> None:
    signing.there.claims = SRE
    back = await signing.leaves()
    kept = dict(signing.browser.cookies)
    assert (await signing.browser.get(back)).status_code == 303
    async with browser(signing.app) as thief:
        thief.cookies.update({name: value for name, value in kept.items() if "signing_in" in name})
        answer = await thief.get(back)
        assert answer.status_code == 503
        assert "invalid_grant" in answer.text


@pytest.mark.parametrize(
    ("sent", "status", "said"),
    [
        ({"error": "access_denied"}, 403, "did not sign you in: access_denied"),
        ({"error": "<script>alert(1)</script>"}, 403, "did not sign you in: an error"),
        ({"error": "x", "error_description": "call +1 555"}, 403, "did not sign you in: x"),
        ({"code": ""}, 400, "sent no code"),
        ({"code": "made-up"}, 503, "invalid_grant"),
        ({"code": "x", "iss": "https://evil.example"}, 400, "was not sent by"),
        ({"code": "x", "state": ""}, 400, "another sign-in"),
        ({"code": "x", "state": "\u00fc"}, 400, "another sign-in"),
    ],
)
async def test_what_the_provider_sends_back_is_looked_at(
    signing: Signing, sent: dict[str, str], status: int, said: str
) -> None:
    state = httpx2.URL(await signing.leaves()).params["state"]
    answer = await signing.browser.get("/login/oidc/back", params={"state": state} | sent)
    assert answer.status_code == status
    assert said in answer.text
    assert "555" not in answer.text


async def test_a_provider_that_is_down_or_not_itself_is_said_and_links_still_work(signing: Signing) -> None:
    signing.there.answers = 502
    answer = await signing.browser.get("/login/oidc")
    assert answer.status_code == 503
    assert "cannot be asked now: 127.0.0.1 answers 502" in answer.text
    assert "foreshock login" in answer.text
    signing.there.answers, signing.there.says_issuer = 200, "https://evil.example"
    assert "calls itself https://evil.example" in (await signing.browser.get("/login/oidc")).text


async def test_what_to_set_against_a_certificate_is_said_as_settings_call_it(tmp_path: Path) -> None:
    cert, key = certificate(tmp_path, names="DNS:elsewhere")
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(cert, key)
    async with listening(web.Application(), tls) as url:
        for file, why in (
            ("", "into a file, as FORESHOCK_OIDC_CA_FILE$"),
            (str(cert), r"not valid for '127\.0\.0\.1'$"),
        ):
            oidc = Oidc(url, CLIENT, SECRET, HOST, lambda: NOW, ca_file=file)
            with pytest.raises(SignInError, match=why):
                await oidc.begin("a secret of a browser")


@pytest.mark.parametrize("part", ["authorization_endpoint", "token_endpoint", "jwks_uri"])
async def test_no_part_of_the_provider_is_reached_otherwise_than_itself(signing: Signing, part: str) -> None:
    signing.there.more = {part: "ftp://127.0.0.1/x"}
    answer = await signing.browser.get("/login/oidc")
    assert answer.status_code == 503
    assert "names an address that is not http" in answer.text


async def test_our_secret_is_repeated_to_nobody(signing: Signing, caplog: pytest.LogCaptureFixture) -> None:
    signing.there.claims = SRE
    back = await signing.leaves()
    signing.there.methods = ["client_secret_post"]  # so that it refuses ours, and repeats it
    answer = await signing.browser.get(back)
    assert answer.status_code == 503
    assert SECRET not in answer.text + caplog.text


async def test_who_guesses_codes_waits_and_the_provider_is_left_alone(signing: Signing, database: Database) -> None:
    oidc = Oidc(signing.there.issuer, CLIENT, SECRET, HOST, lambda: NOW)
    limits = Limits(stranger=Rate(burst=3, per_second=0.001))
    app = create_app(replace(deps(database), oidc=oidc, access=lambda: ACCESS), limits=limits)
    async with browser(app) as guesser:
        begun = await guesser.get("/login/oidc")
        state = httpx2.URL(begun.headers["location"]).params["state"]
        kept = dict(guesser.cookies)
        tries = []
        for number in range(6):
            guesser.cookies.update(kept)
            answer = await guesser.get("/login/oidc/back", params={"state": state, "code": f"made-up-{number}"})
            tries.append(answer.status_code)
    assert tries == [503, 503, 503, 429, 429, 429]
    assert signing.there.asked.count("token") == 3


async def test_links_to_the_way_back_keep_nobody_at_their_address_from_signing_in(
    signing: Signing, database: Database
) -> None:
    """As an image of another site would have it asked for, by whoever looks at that; the provider is not asked."""
    oidc = Oidc(signing.there.issuer, CLIENT, SECRET, HOST, lambda: NOW)
    limits = Limits(stranger=Rate(burst=3, per_second=0.001))
    app = create_app(replace(deps(database), oidc=oidc, access=lambda: ACCESS), limits=limits)
    async with browser(app) as misled, browser(app) as person:
        tries = [(await misled.get("/login/oidc/back?state=x&code=y")).status_code for _ in range(6)]
        assert tries == [400] * 6
        assert "token" not in signing.there.asked
        assert (await Signing(app, signing.there, person).signs_in(**SRE)).status_code == 303


async def test_where_no_provider_is_set_there_is_nothing(database: Database) -> None:
    app = create_app(deps(database), limits=UNLIMITED)
    async with browser(app) as client:
        assert (await client.get("/login/oidc")).status_code == 404
        assert (await client.get("/login/oidc/back?code=x&state=y")).status_code == 404
        assert "/login/oidc" not in (await client.get("/login")).text
