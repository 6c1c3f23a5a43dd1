"""Signing in with a one-time link, signing out, and what a route demands of the asker."""

from __future__ import annotations

import hmac
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, Field
from sqlalchemy.ext.asyncio import AsyncConnection
from starlette.responses import RedirectResponse, Response

from app.core.roles import Role
from app.store import tokens
from app.store.tokens import Bearer, Purpose
from app.web import guard, headers, onward, templates
from app.web.deps import Deps, deps_of
from app.web.problems import Problem
from app.web.requests import read_body, read_form

ROLES = tuple(Role)
router = APIRouter(include_in_schema=False)


def has(request: Request, least: Role) -> bool:
    """Whether who asks may do what the role ``least`` may."""
    role: Role = request.state.role
    return ROLES.index(role) >= ROLES.index(least)


@dataclass(frozen=True, slots=True)
class Needs:
    """A route's policy, as a dependency: the least role that may use it. ``limited``: who is limited to a scope may,
    too, since the route shows and changes nothing beyond it; without that a route is closed to them."""

    role: Role
    limited: bool = False

    async def __call__(self, request: Request) -> None:
        if not has(request, self.role):
            role: Role = request.state.role
            raise Problem(403, f"this takes the role {self.role.value}; yours is {role.value}")
        if not self.limited and request.state.scope is not None:
            raise Problem(403, "this takes a token that is not limited to clusters or namespaces")


@dataclass(frozen=True, slots=True)
class NeedsCluster:
    """A route's policy, as a dependency: who sends for the cluster that its path names, and nobody else."""

    async def __call__(self, request: Request, cluster: str) -> None:
        bearer: str = request.state.cluster
        if bearer != cluster:
            raise Problem(403, f"this token belongs to the cluster {bearer}, not to {cluster}")


@dataclass(frozen=True, slots=True)
class NeedsTeller:
    """A route's policy, as a dependency: who has a token to tell of external changes, or the role responder."""

    async def __call__(self, request: Request) -> None:
        if not hasattr(request.state, "tells_of"):
            await Needs(Role.RESPONDER, limited=True)(request)


@dataclass(frozen=True, slots=True)
class NeedsScraper:
    """A route's policy, as a dependency: who has a token to scrape our own metrics with, or the role viewer."""

    async def __call__(self, request: Request) -> None:
        if not hasattr(request.state, "scrapes"):
            await Needs(Role.VIEWER)(request)


@dataclass(frozen=True, slots=True)
class Signing:
    """How a sender signs: ``header`` holds ``before`` and the HMAC-SHA256 of the body in hex, several with commas.

    ``secrets`` are those it may be signed with, which ``setting`` gives; none: nothing of the sender is taken.
    """

    sender: str
    header: str
    setting: str
    secrets: Callable[[Deps], tuple[str, ...]]
    before: str = ""


LAUNCHDARKLY = Signing(
    "LaunchDarkly",
    "X-LD-Signature",
    "FORESHOCK_LAUNCHDARKLY_SECRET",
    lambda deps: (deps.launchdarkly_secret,) if deps.launchdarkly_secret else (),
)
"""https://launchdarkly.com/docs/home/infrastructure/webhooks"""
PAGERDUTY = Signing(
    "PagerDuty", "X-PagerDuty-Signature", "FORESHOCK_PAGERDUTY_SECRETS", lambda deps: deps.pagerduty_secrets, "v1="
)
"""https://developer.pagerduty.com/docs/verifying-webhook-signatures"""
MOST_SIGNATURES = 10


@dataclass(frozen=True, slots=True)
class NeedsSignature:
    """A route's policy, as a dependency: a body that its sender signed, left as ``state.body``."""

    most: int
    signing: Signing

    async def __call__(self, request: Request) -> None:
        signing = self.signing
        secrets = signing.secrets(deps_of(request))
        if not secrets:
            raise Problem(401, f"nothing of {signing.sender} is taken here: {signing.setting} is not set")
        sent = [one.strip().encode() for one in request.headers.get(signing.header, "").split(",")[:MOST_SIGNATURES]]
        body = await read_body(request, most=self.most) if any(sent) else b""
        right = [(signing.before + hmac.digest(one.encode(), body, "sha256").hex()).encode() for one in secrets]
        if not any(hmac.compare_digest(one, other) for one in right for other in sent):
            raise Problem(401, f"{signing.header} is not that of this body: is it signed with this {signing.setting}?")
        request.state.body = body


SLACK_WITHIN = 300
"""Seconds for which what Slack signed is taken (https://docs.slack.dev/authentication/verifying-requests-from-slack)."""


@dataclass(frozen=True, slots=True)
class NeedsSlack:
    """A route's policy, as a dependency: a body that Slack signed just now, left as ``state.body``.

    Slack's own verifier fails on signatures and bodies that are no ASCII.
    """

    most: int

    async def __call__(self, request: Request) -> None:
        secret = deps_of(request).slack.signing_secret
        if not secret:
            raise Problem(401, "nothing of Slack is taken here: FORESHOCK_SLACK_SIGNING_SECRET is not set")
        sent = request.headers.get("X-Slack-Request-Timestamp", "")
        if not re.fullmatch("[0-9]{1,12}", sent):
            raise Problem(401, "X-Slack-Request-Timestamp is no time in seconds")
        if abs(deps_of(request).clock().timestamp() - int(sent)) > SLACK_WITHIN:
            raise Problem(401, "X-Slack-Request-Timestamp is more than five minutes off: are both clocks right?")
        signature = request.headers.get("X-Slack-Signature", "").encode()
        body = await read_body(request, most=self.most) if signature else b""
        signed = hmac.digest(secret.encode(), f"v0:{sent}:".encode() + body, "sha256").hex()
        if not hmac.compare_digest(f"v0={signed}".encode(), signature):
            raise Problem(
                401, "X-Slack-Signature is not that of this body: is FORESHOCK_SLACK_SIGNING_SECRET the app's?"
            )
        request.state.body = body


Policy = Needs | NeedsCluster | NeedsTeller | NeedsScraper | NeedsSignature | NeedsSlack


def policy_of(dependencies: list[Callable[..., object]]) -> Policy | None:
    """What a route's dependencies demand of the asker; None when they declare nothing."""
    return next((found for found in dependencies if isinstance(found, Policy)), None)


class LoginAsked(BaseModel):
    """What a login link says: its token, and the page to go on to."""

    token: Annotated[str, Field(max_length=200)] = ""
    to: Annotated[str, Field(max_length=2000)] = ""


@router.get("/login")
async def show_login(request: Request, asked: Annotated[LoginAsked, Query()]) -> Response:
    """The form that signs in: by the link that led here, without one by a pasted token, with where links come from.

    Looking at a link uses up nothing: chats and mail programs look at every link that people send each other.
    """
    return sign_in(request, by_link=bool(asked.token))


@router.post("/login")
async def login(request: Request, asked: Annotated[LoginAsked, Query()]) -> Response:
    """Uses up the token that was pasted, or the one of the address, and starts a session.

    A link that does not say where to leads back to the page that asked for signing in.
    """
    pasted = (await read_form(request)).get("token", "")
    deps = deps_of(request)
    async with deps.write.begin() as conn:
        bearer = await tokens.use_login(conn, pasted.strip() or asked.token, now=deps.clock())
        session = None if bearer is None else await begin_session(conn, request, bearer)
    if session is None:
        return sign_in(request, 401, detail="This link was used before, or it is older than 15 minutes.")
    return signed_in(request, session, asked.to)


def sign_in(request: Request, status: int = 200, *, detail: str = "", by_link: bool = False) -> Response:
    """The page that signs in, with what came of it so far. ``by_link``: it is at the address of a login link."""
    oidc = deps_of(request).oidc
    provider = oidc.name if oidc else ""
    return templates.page("login.html", status, detail=detail, provider=provider, by_link=by_link)


async def begin_session(conn: AsyncConnection, request: Request, bearer: Bearer) -> str:
    """The token of a new session; the one that this browser had, if any, ends. Raises scope.NoViewsError."""
    deps = deps_of(request)
    now = deps.clock()
    before = guard.session_of(request.headers, deps.public_url)
    if before is not None:
        await tokens.revoke(conn, before, purpose=Purpose.SESSION, now=now)
    return await tokens.create(
        conn, bearer.role, purpose=Purpose.SESSION, now=now, note=bearer.note, scope=bearer.scope, groups=bearer.groups
    )


def signed_in(request: Request, session: str, to: str = "") -> Response:
    """Gives the browser its session, and leads it on: where it is told, else to the page that was last refused."""
    url = deps_of(request).public_url
    request.scope.setdefault("state", {})[guard.BEGUN] = tokens.digest(session)
    response = RedirectResponse(onward.local(to) if to else onward.recall(request), 303)
    if onward.COOKIE in request.cookies:
        onward.forget(response, url)
    response.set_cookie(
        guard.cookie_name(url),
        session,
        max_age=int(tokens.LIFETIME[Purpose.SESSION].total_seconds()),
        httponly=True,
        samesite="lax",
        secure=headers.is_secure(url),
    )
    return response


@router.post("/logout")
async def logout(request: Request) -> Response:
    """Ends the session, here and in the database."""
    deps = deps_of(request)
    session = guard.session_of(request.headers, deps.public_url)
    if session is not None:
        async with deps.write.begin() as conn:
            await tokens.revoke(conn, session, purpose=Purpose.SESSION, now=deps.clock())
    response = RedirectResponse("/login", 303)
    response.delete_cookie(guard.cookie_name(deps.public_url), secure=headers.is_secure(deps.public_url), httponly=True)
    return response
