"""Signing in with a one-time link, signing out, and what a route demands of the asker."""

from __future__ import annotations

import hmac
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.responses import RedirectResponse, Response

from app.core.roles import Role
from app.store import tokens
from app.store.tokens import Purpose
from app.web import guard, headers, onward, templates
from app.web.deps import deps_of
from app.web.problems import Problem
from app.web.requests import read_body

ROLES = tuple(Role)
router = APIRouter(include_in_schema=False)


def has(request: Request, least: Role) -> bool:
    """Whether who asks may do what the role ``least`` may."""
    role: Role = request.state.role
    return ROLES.index(role) >= ROLES.index(least)


@dataclass(frozen=True, slots=True)
class Needs:
    """A route's policy, as a dependency: the least role that may use it."""

    role: Role

    async def __call__(self, request: Request) -> None:
        if not has(request, self.role):
            role: Role = request.state.role
            raise Problem(403, f"this takes the role {self.role.value}; yours is {role.value}")


@dataclass(frozen=True, slots=True)
class NeedsCluster:
    """A route's policy, as a dependency: the API server of the cluster that its path names, and nobody else."""

    async def __call__(self, request: Request, cluster: str) -> None:
        bearer: str = request.state.cluster
        if bearer != cluster:
            raise Problem(403, f"this token belongs to the API server of the cluster {bearer}, not of {cluster}")


@dataclass(frozen=True, slots=True)
class NeedsTeller:
    """A route's policy, as a dependency: who has a token to tell of external changes, or the role responder."""

    async def __call__(self, request: Request) -> None:
        if not hasattr(request.state, "tells_of"):
            await Needs(Role.RESPONDER)(request)


@dataclass(frozen=True, slots=True)
class NeedsSignature:
    """A route's policy, as a dependency: a body that LaunchDarkly signed (X-LD-Signature), left as ``state.body``.

    The header is the HMAC-SHA256 of the body, in hex: https://launchdarkly.com/docs/home/infrastructure/webhooks .
    """

    most: int

    async def __call__(self, request: Request) -> None:
        secret = deps_of(request).launchdarkly_secret
        if not secret:
            raise Problem(401, "nothing of LaunchDarkly is taken here: FORESHOCK_LAUNCHDARKLY_SECRET is not set")
        sent = request.headers.get("x-ld-signature", "")
        body = await read_body(request, most=self.most) if sent else b""
        if not hmac.compare_digest(hmac.digest(secret.encode(), body, "sha256").hex().encode(), sent.encode()):
            raise Problem(
                401, "X-LD-Signature is not that of this body: is it signed with this FORESHOCK_LAUNCHDARKLY_SECRET?"
            )
        request.state.body = body


Policy = Needs | NeedsCluster | NeedsTeller | NeedsSignature


def policy_of(dependencies: list[Callable[..., object]]) -> Policy | None:
    """What a route's dependencies demand of the asker; None when they declare nothing."""
    return next((found for found in dependencies if isinstance(found, Policy)), None)


@router.get("/login")
async def login(
    request: Request,
    token: Annotated[str | None, Query(max_length=200)] = None,
    to: Annotated[str | None, Query(max_length=2000)] = None,
) -> Response:
    """Uses up a one-time link and starts a session; without a token, says where links come from.

    A link that does not say where to leads back to the page that asked for signing in.
    """
    if token is None:
        return templates.page("login.html", detail="")
    deps = deps_of(request)
    now = deps.clock()
    async with deps.write.begin() as conn:
        role = await tokens.use_login(conn, token, now=now)
        session = None if role is None else await tokens.create(conn, role, purpose=Purpose.SESSION, now=now)
    if session is None:
        return templates.page("login.html", 401, detail="This link was used before, or it is older than 15 minutes.")
    response = RedirectResponse(onward.recall(request) if to is None else onward.local(to), 303)
    if onward.COOKIE in request.cookies:
        onward.forget(response, deps.public_url)
    response.set_cookie(
        guard.cookie_name(deps.public_url),
        session,
        max_age=int(tokens.LIFETIME[Purpose.SESSION].total_seconds()),
        httponly=True,
        samesite="lax",
        secure=headers.is_secure(deps.public_url),
    )
    return response


@router.post("/logout")
async def logout(request: Request) -> Response:
    """Ends the session, here and in the database."""
    deps = deps_of(request)
    found = guard.credential(request.headers, deps.public_url)
    if found is not None and found[1] is Purpose.SESSION:
        async with deps.write.begin() as conn:
            await tokens.revoke(conn, found[0], now=deps.clock())
    response = RedirectResponse("/login", 303)
    response.delete_cookie(guard.cookie_name(deps.public_url), secure=headers.is_secure(deps.public_url), httponly=True)
    return response
