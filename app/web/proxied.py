"""Who asks, as a proxy in front of us says in headers: one that is trusted, by the address that it connects from.

The address is that of the connection itself. What X-Forwarded-For says of it (uvicorn, FORWARDED_ALLOW_IPS) was said by
somebody, and stands in the log alone.
"""

from __future__ import annotations

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from app.core.access import Identity, Proxy
from app.web.problems import Problem

PEER = "foreshock.peer"
"""In the scope: the host that the connection is from."""
LONGEST = 200
"""Characters of a name."""
MOST_GROUPS = 1000


class Peered:
    """Notes where a connection is from; to stand before whatever else may say so."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope.get("client"):
            scope[PEER] = scope["client"][0]
        await self._app(scope, receive, send)


def identity_of(scope: Scope, proxy: Proxy | None) -> Identity | None:
    """Who asks; None where no proxy says so. Raises Problem 403 for headers that are not a trusted proxy's: they are
    refused and not passed over, so that a proxy that was forgotten in the settings is told; 400 for what is no name."""
    if proxy is None:
        return None
    sent = Headers(scope=scope)
    told = [name for name in (proxy.user, proxy.groups) if name is not None and name in sent]
    if not told:
        return None
    if not proxy.is_trusted(scope.get(PEER)):
        peer = scope.get(PEER) or "an unknown address"
        raise Problem(403, f"{told[0]} came from {peer}, which is none of FORESHOCK_TRUSTED_PROXIES")
    name = _one(sent, proxy.user)
    if not name:
        return None
    groups = _one(sent, proxy.groups) if proxy.groups else ""
    found = tuple(dict.fromkeys(one.strip() for one in groups.split(",") if one.strip()))
    if len(name) > LONGEST or len(found) > MOST_GROUPS:
        raise Problem(400, f"{proxy.user} or {proxy.groups} is longer than is read")
    return Identity(name, found)


def _one(sent: Headers, name: str) -> str:
    """The only value of a header, "" without one. Raises Problem 400 where it came twice: who added the other?"""
    values = sent.getlist(name)
    if len(values) > 1:
        raise Problem(400, f"{name} came {len(values)} times: let the proxy remove what it was sent, and send it once")
    try:
        value = "".join(values).encode("latin-1").decode().strip()
    except UnicodeDecodeError:
        raise Problem(400, f"{name} is no UTF-8") from None
    if not value.isprintable():
        raise Problem(400, f"{name} is not printable")
    return value


def nobody(identity: Identity, access_file: str = "access.yaml") -> Problem:
    """What somebody is told who is known, and may do nothing."""
    shown = ", ".join(identity.groups[:20]) + (", …" if len(identity.groups) > 20 else "")
    groups = f"of your groups ({shown})" if identity.groups else "(you are in no group that we were told of)"
    return Problem(
        403,
        f"you are {identity.name}, whom nobody gave access to Foreshock, nor to any {groups}:"
        f" ask who runs it to name one of these in {access_file}",
    )
