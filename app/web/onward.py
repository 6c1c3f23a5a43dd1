"""The page that somebody who was not signed in asked for: a login link that does not say where to leads back to it.

It is kept in a cookie of its own that is sent to /login alone, and used up there. Nobody but the browser is believed,
and even that only as far as a page of ours.
"""

from __future__ import annotations

from datetime import timedelta
from urllib.parse import parse_qs, quote, unquote

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope

from app.web import headers, problems

COOKIE = "foreshock_onward"
LOGIN = "/login"
LOGOUT = "/logout"
"""It is no page: whoever came back to it would have signed in for nothing."""
KEPT = timedelta(hours=1)
"""Longer than a login link lives: somebody may have to be asked for one."""
LONGEST = 2000
"""Characters of an address that is gone back to; a browser keeps cookies of 4,096 bytes."""


def local(path: str) -> str:
    """``path`` when it leads to a page of ours, else the front page: nobody is sent to another site."""
    return path if path.startswith("/") and not path.startswith(("//", "/\\")) and path.isprintable() else "/"


def _asked(scope: Scope) -> str | None:
    """The address of a page that a person asked a browser for; None for programs, and for parts of pages."""
    sent = Headers(scope=scope)
    if scope["method"] != "GET" or problems.wants_json(scope) or "authorization" in sent:
        return None
    if "hx-request" in sent or sent.get("sec-fetch-dest", "document") != "document":
        return None
    if "text/html" not in sent.get("accept", "") or scope["path"] == LOGOUT:
        return None
    path, query = scope["raw_path"].decode("latin-1"), scope["query_string"].decode("latin-1")
    if "token" in parse_qs(query, keep_blank_values=True):
        return None
    address = f"{path}?{query}" if query else path
    return address if len(quote(address)) <= LONGEST and local(address) == address else None


def remember(response: Response, scope: Scope, public_url: str) -> None:
    """Keep the page that was asked for and refused, where one was."""
    asked = _asked(scope)
    if asked is not None:
        response.set_cookie(
            COOKIE,
            quote(asked),
            max_age=int(KEPT.total_seconds()),
            path=LOGIN,
            httponly=True,
            samesite="lax",
            secure=headers.is_secure(public_url),
        )


def recall(request: Request) -> str:
    """The page that this browser was kept from, else the front page."""
    return local(unquote(request.cookies.get(COOKIE, "/")))


def forget(response: Response, public_url: str) -> None:
    """Use up what was kept."""
    response.delete_cookie(COOKIE, path=LOGIN, httponly=True, secure=headers.is_secure(public_url))
