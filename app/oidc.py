"""The identity provider at which people sign in: asked where its parts are, for its keys, and who somebody is."""

from __future__ import annotations

import base64
import hmac
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from time import monotonic
from typing import Any, ClassVar, TypeVar
from urllib.parse import quote_plus, urlsplit

import msgspec
import structlog
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import JWKRegistry, Key, KeySet

from app.collect.outbound import Endpoint, EndpointError, Outbound, OutboundError
from app.core.access import Identity
from app.core.oidc import SignInError, authorization_url, identity_of, proofs
from app.settings import Settings

T = TypeVar("T")
ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
"""Signatures with a key that only the provider has: never none, and none by a secret that we share with it."""
LEEWAY = 60
"""Seconds by which clocks may differ."""
KNOWN_FOR = 3600.0
"""Seconds after which the provider is asked anew where its parts are, and for its keys."""
_UNREADABLE = (ValueError, TypeError, RecursionError)
"""What the library raises besides its own of a token that is none, or is nested too deep."""
ASKED_EVERY = 10.0
"""Seconds between two looks for a key that is not known: tokens of made-up keys cost the provider no more."""


log = structlog.get_logger()


class _Provider(msgspec.Struct, frozen=True):
    """Of its discovery document, what is needed (OpenID Connect Discovery 1.0, section 3)."""

    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    jwks_uri: str
    token_endpoint_auth_methods_supported: tuple[str, ...] = ("client_secret_basic",)


class _Keys(msgspec.Struct, frozen=True):
    keys: tuple[dict[str, Any], ...]


class _Answer(msgspec.Struct, frozen=True):
    id_token: str


class _Place(Endpoint, frozen=True):
    """Where the provider is, as settings say it."""

    trusts: ClassVar[str] = "FORESHOCK_OIDC_CA_FILE"
    shows: ClassVar[str] = ""
    names: ClassVar[str] = ""


@dataclass(slots=True)
class Oidc:
    """One provider. ``url`` is where people reach us, ``clock`` gives aware UTC."""

    issuer: str
    client_id: str
    client_secret: str
    url: str
    clock: Callable[[], datetime]
    scopes: str = "openid email profile"
    groups_claim: str = "groups"
    ca_file: str = ""
    _provider: tuple[float, _Provider] | None = field(default=None, repr=False)
    _keys: tuple[float, KeySet] | None = field(default=None, repr=False)

    @property
    def name(self) -> str:
        """What people know it by: its host."""
        return urlsplit(self.issuer).hostname or self.issuer

    @property
    def redirect_uri(self) -> str:
        """Where it sends people back to; it has to be told before."""
        return f"{self.url}/login/oidc/back"

    async def begin(self, secret: str) -> str:
        """Where a browser that keeps ``secret`` is to go. Raises SignInError."""
        provider = await self._discovered()
        return authorization_url(
            provider.authorization_endpoint,
            client_id=self.client_id,
            redirect_uri=self.redirect_uri,
            scopes=self.scopes,
            secret=secret,
        )

    async def finish(self, secret: str, sent: Mapping[str, str]) -> Identity:
        """Who came back with this query, to a browser that kept ``secret``. Raises SignInError."""
        expected = proofs(secret)
        if not hmac.compare_digest(sent.get("state", "").encode(), expected.state.encode()):
            raise SignInError("this is the end of another sign-in: begin again", status=400)
        if "error" in sent:
            code = sent["error"] if sent["error"].replace("_", "").isalnum() else "an error"
            raise SignInError(f"{self.name} did not sign you in: {code[:60]}", status=403)
        if sent.get("iss", self.issuer) != self.issuer:  # RFC 9207
            raise SignInError(f"this was not sent by {self.name}", status=400)
        if not sent.get("code"):
            raise SignInError(f"{self.name} sent no code: begin again", status=400)
        token = await self._exchanged(sent["code"], expected.verifier)
        claims = await self._verified(token, expected.nonce)
        return identity_of(claims, client_id=self.client_id, groups_claim=self.groups_claim)

    async def _exchanged(self, code: str, verifier: str) -> str:
        """The ID token for a code."""
        provider = await self._discovered()
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self.redirect_uri,
            "code_verifier": verifier,
        }
        authorization = ""
        if "client_secret_basic" in provider.token_endpoint_auth_methods_supported:
            pair = f"{quote_plus(self.client_id)}:{quote_plus(self.client_secret)}"  # RFC 6749, 2.3.1
            authorization = f"Basic {base64.b64encode(pair.encode()).decode()}"
        else:
            form |= {"client_id": self.client_id, "client_secret": self.client_secret}
        body = await self._asked(provider.token_endpoint, form=form, authorization=authorization)
        return self._understood(body, _Answer).id_token

    async def _verified(self, token: str, nonce: str) -> dict[str, Any]:
        """The claims of an ID token that the provider signed for us, now, and for this sign-in."""
        wanted = jwt.JWTClaimsRegistry(
            now=int(self.clock().timestamp()),
            leeway=LEEWAY,
            iss={"essential": True, "value": self.issuer},
            aud={"essential": True, "value": self.client_id},
            sub={"essential": True},
            exp={"essential": True},
            iat={"essential": True},
            nonce={"essential": True, "value": nonce},
        )
        try:
            claims = await self._decoded(token)
            wanted.validate(claims)
        except (*_UNREADABLE, JoseError) as error:
            raise SignInError(f"what {self.name} says of you cannot be believed: {error}", status=403) from None
        return claims

    async def _decoded(self, token: str) -> dict[str, Any]:
        """By the keys that are known, or, where those do not fit, by those of now. Raises JoseError, _UNREADABLE."""
        try:
            return jwt.decode(token, await self._known_keys(KNOWN_FOR), algorithms=ALGORITHMS).claims
        except (*_UNREADABLE, JoseError):
            return jwt.decode(token, await self._known_keys(ASKED_EVERY), algorithms=ALGORITHMS).claims

    async def _known_keys(self, oldest: float) -> KeySet:
        if self._keys is None or monotonic() - self._keys[0] > oldest:
            provider = await self._discovered()
            body = await self._asked(provider.jwks_uri)
            self._keys = (monotonic(), KeySet(self._read_keys(body)))
        return self._keys[1]

    def _read_keys(self, body: bytes) -> list[Key]:
        """Those of a set that can be read: one of a kind that is not known here is passed over (RFC 7517, section 5),
        and the others are as good as before."""
        found, why = list[Key](), "there is none"
        for one in self._understood(body, _Keys).keys:
            try:
                found.append(JWKRegistry.import_key(one))
            except (JoseError, ValueError, TypeError, KeyError) as error:
                why = f"{type(error).__name__}: {error}"
        if not found:
            raise SignInError(f"the keys of {self.name} cannot be read: {why}", status=503)
        return found

    async def _discovered(self) -> _Provider:
        if self._provider is None or monotonic() - self._provider[0] > KNOWN_FOR:
            body = await self._asked(f"{self.issuer.rstrip('/')}/.well-known/openid-configuration")
            found = self._understood(body, _Provider)
            if found.issuer != self.issuer:
                raise SignInError(
                    f"{self.name} calls itself {found.issuer}: set FORESHOCK_OIDC_ISSUER to that, to the letter",
                    status=503,
                )
            scheme = urlsplit(self.issuer).scheme
            for one in (found.authorization_endpoint, found.token_endpoint, found.jwks_uri):
                if urlsplit(one).scheme != scheme:
                    raise SignInError(f"{self.name} names an address that is not {scheme}: {one}", status=503)
            self._provider = (monotonic(), found)
        return self._provider[1]

    async def _asked(self, url: str, *, form: Mapping[str, str] | None = None, authorization: str = "") -> bytes:
        """What is at one of its addresses; with a form, what answers that. Raises SignInError."""
        parts = urlsplit(url)
        path = f"{parts.path}?{parts.query}" if parts.query else parts.path
        try:
            async with Outbound.to(_Place(f"{parts.scheme}://{parts.netloc}", ca_file=self.ca_file)) as outbound:
                if form is None:
                    return await outbound.get(path)
                return await outbound.post(path, form, authorization=authorization)
        except (OutboundError, EndpointError) as error:
            said = str(error).replace(self.client_secret, "<redacted:secret>")
            log.warning("the identity provider does not answer as it should", why=said)
            raise SignInError(f"{self.name} cannot be asked now: {said}", status=503) from None

    def _understood(self, body: bytes, kind: type[T]) -> T:
        try:
            return msgspec.json.decode(body, type=kind)
        except msgspec.MsgspecError as error:
            raise SignInError(f"what {self.name} answers cannot be read: {error}", status=503) from None


def oidc_of(settings: Settings, *, url: str, clock: Callable[[], datetime]) -> Oidc | None:
    """The provider of the settings; None where there is none."""
    if settings.oidc_issuer is None or settings.oidc_client_id is None or settings.oidc_client_secret is None:
        return None
    return Oidc(
        settings.oidc_issuer,
        settings.oidc_client_id,
        settings.oidc_client_secret.get_secret_value(),
        url,
        clock,
        scopes=settings.oidc_scopes,
        groups_claim=settings.oidc_groups_claim,
        ca_file=str(settings.oidc_ca_file or ""),
    )
