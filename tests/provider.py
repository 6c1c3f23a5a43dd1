"""An identity provider (OpenID Connect) for tests, with keys of its own, that refuses what a real one refuses."""

from __future__ import annotations

import base64
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from typing import Any
from urllib.parse import unquote_plus, urlencode

from aiohttp import web
from joserfc import jwt
from joserfc.jwk import ECKey, KeySet, OctKey, OKPKey, RSAKey

from tests.listening import listening

CLIENT, SECRET = "foreshock", "geheim+/=?"
Key = RSAKey | ECKey | OctKey | OKPKey


@dataclass
class Provider:
    """``claims`` says of a person what stands in their token, beside what stands in each; ``asked`` is what was asked
    of it, path by path; ``shown`` are the keys that it tells, None: its own; ``beside`` is told beside them; ``forged``
    makes a token without its key. ``redirect_uri`` is the only one it knows."""

    redirect_uri: str
    clock: Callable[[], datetime]
    claims: dict[str, Any] = field(default_factory=dict)
    key: Key = field(default_factory=lambda: RSAKey.generate_key(2048, {"kid": "first", "use": "sig"}))
    shown: list[Key] | None = None
    beside: list[dict[str, Any]] = field(default_factory=list)
    header: dict[str, Any] = field(default_factory=dict)
    forged: Callable[[dict[str, Any]], str] | None = None
    methods: list[str] | None = None
    issuer: str = ""
    says_issuer: str = ""
    more: dict[str, Any] = field(default_factory=dict)
    answers: int = 200
    asked: list[str] = field(default_factory=list)
    _codes: dict[str, dict[str, str]] = field(default_factory=dict)

    async def discover(self, _: web.Request) -> web.Response:
        self.asked.append("discovery")
        if self.answers != 200:
            return web.Response(status=self.answers, text="down")
        found: dict[str, Any] = {
            "issuer": self.says_issuer or self.issuer,
            "authorization_endpoint": f"{self.issuer}/authorize",
            "token_endpoint": f"{self.issuer}/token/",
            "jwks_uri": f"{self.issuer}/keys?of=all",
        }
        if self.methods is not None:
            found["token_endpoint_auth_methods_supported"] = self.methods
        return web.json_response(found | self.more)

    async def keys(self, _: web.Request) -> web.Response:
        self.asked.append("keys")
        shown = KeySet([self.key] if self.shown is None else self.shown).as_dict(private=False)
        return web.json_response({"keys": [*self.beside, *shown["keys"]]})

    async def authorize(self, request: web.Request) -> web.Response:
        """Signs in whoever comes."""
        asked = dict(request.query)
        good = (
            asked.get("client_id") == CLIENT
            and asked.get("redirect_uri") == self.redirect_uri
            and asked.get("response_type") == "code"
            and "openid" in asked.get("scope", "").split()
            and asked.get("code_challenge_method") == "S256"
            and len(asked.get("code_challenge", "")) == 43
        )
        if not good:
            return web.Response(status=400, text=f"invalid_request: {asked}")
        code = secrets.token_urlsafe(16)
        self._codes[code] = asked
        back = {"code": code, "state": asked["state"], "iss": self.issuer}
        raise web.HTTPFound(f"{self.redirect_uri}?{urlencode(back)}")

    async def token(self, request: web.Request) -> web.Response:
        self.asked.append("token")
        form = {name: str(value) for name, value in (await request.post()).items()}
        if not self._knows(request.headers.get("Authorization", ""), form):
            return web.json_response({"error": "invalid_client", "error_description": SECRET}, status=401)
        asked = self._codes.pop(form.get("code", ""), None)
        challenge = base64.urlsafe_b64encode(sha256(form.get("code_verifier", "").encode()).digest()).rstrip(b"=")
        if (
            asked is None
            or form.get("grant_type") != "authorization_code"
            or form.get("redirect_uri") != self.redirect_uri
            or challenge.decode() != asked["code_challenge"]
        ):
            return web.json_response({"error": "invalid_grant"}, status=400)
        now = int(self.clock().timestamp())
        usual = {"iss": self.issuer, "aud": CLIENT, "sub": "u-1", "iat": now, "exp": now + 300, "nonce": asked["nonce"]}
        claims = {name: value for name, value in (usual | self.claims).items() if value is not None}
        header = {"alg": "RS256", "kid": self.key.kid} | self.header
        if self.forged:
            return web.json_response({"id_token": self.forged(claims)})
        signed = jwt.encode(header, claims, self.key, algorithms=["RS256", "ES256", "HS256", "none"])
        return web.json_response({"access_token": "x", "token_type": "Bearer", "id_token": signed})

    def _knows(self, authorization: str, form: dict[str, str]) -> bool:
        if self.methods == ["client_secret_post"]:
            return not authorization and (form.get("client_id"), form.get("client_secret")) == (CLIENT, SECRET)
        pair = base64.b64decode(authorization.removeprefix("Basic ")).decode().partition(":")
        return (unquote_plus(pair[0]), unquote_plus(pair[2])) == (CLIENT, SECRET) and "client_secret" not in form


@asynccontextmanager
async def provider(redirect_uri: str, clock: Callable[[], datetime]) -> AsyncIterator[Provider]:
    made = Provider(redirect_uri, clock)
    app = web.Application()
    app.router.add_get("/.well-known/openid-configuration", made.discover)
    app.router.add_get("/keys", made.keys)
    app.router.add_get("/authorize", made.authorize)
    app.router.add_post("/token/", made.token)
    async with listening(app) as url:
        made.issuer = url
        yield made
