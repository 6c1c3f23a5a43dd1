"""Signing in at an identity provider: the way there, the way back, and between them a cookie of this browser alone.

The cookie is SameSite=Lax: it comes along as the provider sends the browser back.
"""

from __future__ import annotations

import hmac
import secrets
from datetime import timedelta

from fastapi import APIRouter, Request
from starlette.responses import RedirectResponse, Response

from app.core.oidc import SignInError, proofs
from app.store.tokens import Bearer
from app.web import headers
from app.web.auth import begin_session, sign_in, signed_in
from app.web.deps import Deps, SignsIn, deps_of
from app.web.problems import Problem
from app.web.proxied import nobody

KEPT = timedelta(minutes=10)
"""So long somebody may take at the provider."""
MOST_AT_ONCE = 4
"""Sign-ins that one browser may have begun and not ended, as in several tabs; the oldest is forgotten first."""
BETWEEN = "."
"""Between their secrets, in which it does not stand."""
COOKIE = "foreshock_signing_in"
router = APIRouter(include_in_schema=False)


def _cookie(public_url: str) -> str:
    return f"__Host-{COOKIE}" if headers.is_secure(public_url) else COOKIE


@router.get("/login/oidc")
async def begin(request: Request) -> Response:
    """Sends the browser to the provider."""
    deps, secret = deps_of(request), secrets.token_urlsafe(32)
    provider = _provider(deps)
    kept = [secret, *_kept(request)][:MOST_AT_ONCE]
    try:
        to = await provider.begin(secret)
    except SignInError as error:
        return _refused(request, error)
    response = RedirectResponse(to, 303)
    _keep(response, deps, kept)
    return response


@router.get("/login/oidc/back")
async def finish(request: Request) -> Response:
    """Takes the browser back from the provider, and starts its session. The secret of this sign-in is used up; those of
    others that began in this browser, as in another tab, are kept."""
    deps = deps_of(request)
    provider, kept = _provider(deps), _kept(request)
    state = request.query_params.get("state", "").encode()
    ended = [one for one in kept if hmac.compare_digest(proofs(one).state.encode(), state)]
    try:
        bearer = await _bearer(request, provider, (ended or kept or [""])[0])
    except SignInError as error:
        response = _refused(request, error)
    else:
        async with deps.write.begin() as conn:
            session = await begin_session(conn, request, bearer)
        response = signed_in(request, session)
    _keep(response, deps, [one for one in kept if one not in ended])
    return response


def _kept(request: Request) -> list[str]:
    """The secrets of the sign-ins that began in this browser, the newest first."""
    kept = request.cookies.get(_cookie(deps_of(request).public_url), "")
    return kept.split(BETWEEN)[:MOST_AT_ONCE] if kept else []


def _keep(response: Response, deps: Deps, kept: list[str]) -> None:
    name, secure = _cookie(deps.public_url), headers.is_secure(deps.public_url)
    if not kept:
        response.delete_cookie(name, httponly=True, samesite="lax", secure=secure)
        return
    age = int(KEPT.total_seconds())
    response.set_cookie(name, BETWEEN.join(kept), max_age=age, httponly=True, samesite="lax", secure=secure)


async def _bearer(request: Request, provider: SignsIn, secret: str) -> Bearer:
    """Who came back, and what they may do. Raises SignInError."""
    if not secret:
        raise SignInError("this sign-in did not begin here, or more than ten minutes ago: begin again", status=400)
    identity = await provider.finish(secret, dict(request.query_params))
    request.state.who = identity.name
    granted = deps_of(request).access().of(identity.name, identity.groups)
    if granted is None:
        raise SignInError(nobody(identity).detail, status=403)
    return Bearer(granted.role, identity.name, granted.scope, identity.groups)


def _provider(deps: Deps) -> SignsIn:
    if deps.oidc is None:
        raise Problem(404, "there is nothing at this address")
    return deps.oidc


def _refused(request: Request, error: SignInError) -> Response:
    return sign_in(request, error.status, detail=f"{str(error)[:1].upper()}{str(error)[1:]}.")
