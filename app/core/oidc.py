"""OpenID Connect's authorization code flow as it is computed: what is sent with the browser, and whom claims name.

Pure. app/oidc.py asks the provider, and verifies what it signed.
https://openid.net/specs/openid-connect-core-1_0.html; PKCE is RFC 7636.
"""

from __future__ import annotations

import base64
import hmac
from collections.abc import Mapping
from hashlib import sha256
from typing import Any, NamedTuple
from urllib.parse import urlencode

from app.core.access import Identity

LONGEST = 200
"""Characters of a name."""
MOST_GROUPS = 1000


class SignInError(Exception):
    """Nobody is signed in; the message says why, without a secret. ``status`` is HTTP's: 400 for what begins anew, 403
    for what the provider does not vouch for, 503 where it cannot be asked."""

    def __init__(self, message: str, *, status: int) -> None:
        super().__init__(message)
        self.status = status


class Proofs(NamedTuple):
    """What ties both halves of a sign-in together: all of it made of one secret, which the browser that begins keeps,
    so that the server keeps nothing."""

    state: str
    nonce: str
    verifier: str


def proofs(secret: str) -> Proofs:
    """Those of a secret of at least 32 random bytes. A verifier has 43 characters, the fewest of RFC 7636."""
    return Proofs(*(_sealed(hmac.digest(secret.encode(), name.encode(), sha256)) for name in Proofs._fields))


def authorization_url(endpoint: str, *, client_id: str, redirect_uri: str, scopes: str, secret: str) -> str:
    """Where the browser is sent to sign in."""
    state, nonce, verifier = proofs(secret)
    asked = {
        "response_type": "code",
        "client_id": client_id,
        "redirect_uri": redirect_uri,
        "scope": scopes,
        "state": state,
        "nonce": nonce,
        "code_challenge": _sealed(sha256(verifier.encode()).digest()),
        "code_challenge_method": "S256",
    }
    return f"{endpoint}{'&' if '?' in endpoint else '?'}{urlencode(asked)}"


def identity_of(claims: Mapping[str, Any], *, client_id: str, groups_claim: str) -> Identity:
    """Whom verified claims name: by their e-mail address where the provider says that it is theirs, else by ``sub``.

    ``groups_claim`` may lead into others, with dots: ``realm_access.roles``. Raises SignInError.
    """
    audience = claims.get("aud")
    if claims.get("azp", client_id) != client_id or (
        isinstance(audience, list) and len(audience) > 1 and "azp" not in claims
    ):  # core, 3.1.3.7: a token for several says to whom it was given
        raise SignInError("the provider's token was given to another client", status=403)
    email = claims.get("email") if claims.get("email_verified") is True else None
    name = email if isinstance(email, str) and email else str(claims["sub"])
    elsewhere = claims.get("_claim_names")  # core, 5.6.2; Entra tells of more than 200 groups so
    if isinstance(elsewhere, Mapping) and groups_claim in elsewhere:
        raise SignInError(
            "you are in more groups than the provider tells: let it tell those alone that are assigned to Foreshock",
            status=403,
        )
    told = _claim(claims, groups_claim)
    groups = [told] if isinstance(told, str) else told
    if not isinstance(groups, list) or not all(isinstance(one, str) for one in groups):
        raise SignInError(f"the claim {groups_claim} is no list of names", status=403)
    if len(name) > LONGEST or len(groups) > MOST_GROUPS or not all(one.isprintable() for one in (name, *groups)):
        raise SignInError("the name, or the list of groups, is longer than is read, or not printable", status=403)
    return Identity(name, tuple(dict.fromkeys(filter(None, groups))))


def _claim(claims: Mapping[str, Any], name: str) -> Any:
    """A claim of that name, which may hold dots, as of a URL; else what its parts lead to; [] where nothing is."""
    if name in claims:
        return claims[name]
    found: Any = claims
    for part in name.split("."):
        found = found.get(part, []) if isinstance(found, Mapping) else []
    return found


def _sealed(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
