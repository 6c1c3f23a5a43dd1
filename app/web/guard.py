"""What stands before every route: who asks, from where, and with which headers each answer leaves.

Nothing is served without a credential but the paths of OPEN and OPEN_UNDER: a route added tomorrow is closed
until somebody opens it. A plain ASGI middleware, so that it also covers what no route answers.
"""

from __future__ import annotations

from http.cookies import CookieError, SimpleCookie
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.store import tokens
from app.web.deps import Deps
from app.web.problems import Problem, answer

OPEN = frozenset({"/healthz", "/readyz", "/login"})
OPEN_UNDER = ("/static/",)
SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
COOKIE = "foreshock_session"
SECURE_COOKIE = "__Host-foreshock_session"

CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'; object-src 'none'"
)
HEADERS = {
    "content-security-policy": CONTENT_SECURITY_POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}


def is_secure(public_url: str) -> bool:
    """Whether people reach us over TLS: decides on Secure cookies and on HSTS."""
    return urlsplit(public_url).scheme == "https"


def cookie_name(public_url: str) -> str:
    """``__Host-`` binds the cookie to this host; browsers allow that over TLS only."""
    return SECURE_COOKIE if is_secure(public_url) else COOKIE


def is_open(path: str) -> bool:
    """Whether ``path`` is served without a credential."""
    return path in OPEN or path.startswith(OPEN_UNDER)


def credential(headers: Headers, public_url: str) -> tuple[str, tokens.Purpose] | None:
    """The token of a request and what it must be good for: a Bearer header counts before the cookie."""
    scheme, _, value = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and value.strip():
        return value.strip(), tokens.Purpose.API
    try:
        morsel = SimpleCookie(headers.get("cookie", "")).get(cookie_name(public_url))
    except CookieError:
        return None
    return None if morsel is None else (morsel.value, tokens.Purpose.SESSION)


def is_foreign(method: str, headers: Headers, host: str) -> bool:
    """Whether a browser sent this unsafe request on behalf of another site (Sec-Fetch-Site, else Origin)."""
    if method in SAFE:
        return False
    site = headers.get("sec-fetch-site")
    if site is not None:
        return site not in {"same-origin", "none"}
    origin = headers.get("origin")
    return origin is not None and urlsplit(origin).netloc != host


class Guard:
    """Checks the credential and the origin, then adds the headers. The role is left in ``scope["state"]``."""

    def __init__(self, app: ASGIApp, *, deps: Deps) -> None:
        self._app = app
        self._deps = deps

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._add_headers(MutableHeaders(scope=message), scope["path"])
            await send(message)

        refusal = await self._refusal(scope)
        if refusal is None:
            await self._app(scope, receive, send_with_headers)
        else:
            await answer(refusal, scope)(scope, receive, send_with_headers)

    async def _refusal(self, scope: Scope) -> Problem | None:
        headers = Headers(scope=scope)
        if is_foreign(scope["method"], headers, headers.get("host", "")):
            return Problem(403, "this request came from another site")
        if is_open(scope["path"]):
            return None
        found = credential(headers, self._deps.public_url)
        if found is None:
            return Problem(401, "sign in with a login link, or send Authorization: Bearer TOKEN")
        token, purpose = found
        async with self._deps.read.connect() as conn:
            role = await tokens.check(conn, token, purpose=purpose, now=self._deps.clock())
        if role is None:
            return Problem(401, "this credential is unknown, expired or revoked")
        scope.setdefault("state", {})["role"] = role
        return None

    def _add_headers(self, headers: MutableHeaders, path: str) -> None:
        for name, value in HEADERS.items():
            headers[name] = value
        if is_secure(self._deps.public_url):
            headers["strict-transport-security"] = "max-age=31536000"
        headers["cache-control"] = "public, max-age=31536000, immutable" if path.startswith("/static/") else "no-store"
