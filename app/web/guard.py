"""What stands before every route: who asks, from where, and with which headers each answer leaves.

Nothing is served without a credential but the paths of OPEN and OPEN_UNDER: a route added tomorrow is closed
until somebody opens it. A plain ASGI middleware, so that it also covers what no route answers.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.core.access import Identity
from app.store import tokens
from app.store.database import UNAVAILABLE
from app.web import assets, headers, onward
from app.web.deps import Deps, NoRoomError
from app.web.problems import Problem, answer, of_database
from app.web.proxied import identity_of, nobody

OPEN = frozenset({"/healthz", "/readyz", "/login", "/login/oidc", "/login/oidc/back"})
_FILES = frozenset({200, 206, 304})
"""Answers that are a file, or say that one is known."""
OPEN_UNDER = (assets.PATH,)
SIGNED = frozenset({"/intake/launchdarkly", "/intake/slack"})
SIGNED_UNDER = ("/intake/pagerduty/",)
"""What is sent here is signed, by who cannot send a credential: the route looks at the signature."""
OF_CLUSTERS, OF_METRICS = "/intake/audit/", "/intake/prometheus/"
METRICS = "/metrics"
PURPOSE = {OF_CLUSTERS: tokens.Purpose.AUDIT, OF_METRICS: tokens.Purpose.METRICS}
"""Under these paths the API servers of clusters send, and who measures these, each with a token of its cluster."""
TELLING = frozenset({"/api/v1/changes", "/intake/flux"})
"""What is sent here with POST tells of external changes: there are tokens that are good for that alone."""
SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
COOKIE = "foreshock_session"
SECURE_COOKIE = "__Host-foreshock_session"


def cookie_name(public_url: str) -> str:
    """``__Host-`` binds the cookie to this host; browsers allow that over TLS only."""
    return SECURE_COOKIE if headers.is_secure(public_url) else COOKIE


def is_open(path: str) -> bool:
    """Whether ``path`` is served without a credential."""
    return path in OPEN or path in SIGNED or path.startswith((*OPEN_UNDER, *SIGNED_UNDER))


def credential(sent: Headers, public_url: str) -> tuple[str, tokens.Purpose] | None:
    """The token of a request and what it must be good for: a Bearer header counts before the cookie.

    Raises Problem 400 for several Authorization headers: which of them counted would be for whoever is in between."""
    given = sent.getlist("authorization")
    if len(given) > 1:
        raise Problem(400, f"Authorization came {len(given)} times: send it once, and let no proxy add another")
    scheme, _, value = "".join(given).partition(" ")
    if scheme.lower() == "bearer" and value.strip():
        return value.strip(), tokens.Purpose.API
    session = session_of(sent, public_url)
    return None if session is None else (session, tokens.Purpose.SESSION)


def session_of(sent: Headers, public_url: str) -> str | None:
    """The session that a browser says it has. Read as loosely as a browser writes: what another program set for this
    host, of whichever port, comes along, and Python's own parser gives up the whole line for one cookie of those."""
    found: dict[str, str] = {}
    for line in sent.getlist("cookie"):
        found |= cookie_parser(line)
    return found.get(cookie_name(public_url))


def is_foreign(method: str, sent: Headers, public_url: str) -> bool:
    """Whether a browser sent this unsafe request on behalf of another site (Sec-Fetch-Site, else Origin).

    Our own is where people reach us, also where a proxy says another Host, as nginx does unless it is told not to."""
    if method in SAFE:
        return False
    site = sent.get("sec-fetch-site")
    if site is not None:
        return site not in {"same-origin", "none"}
    origin = sent.get("origin")
    if origin is None:
        return False
    ours = urlsplit(public_url)
    return urlsplit(origin).netloc != sent.get("host") and origin != f"{ours.scheme}://{ours.netloc}"


def says_no_site(method: str, sent: Headers) -> bool:
    """Whether an unsafe request does not say from which site it is, as every browser does of one that it sends."""
    return method not in SAFE and "sec-fetch-site" not in sent and "origin" not in sent


Asks = tuple[str, tokens.Purpose] | Identity | None


def asks(scope: Scope, deps: Deps) -> Asks:
    """Who says that they ask: with a token and what it must be good for, or as a trusted proxy says; None: a stranger.

    A Bearer header counts first, and a proxy's word before a session. Raises Problem for several of it, and for a
    proxy's headers that are not to be believed.
    """
    sent = Headers(scope=scope)
    identity, found = identity_of(scope, deps.proxy), credential(sent, deps.public_url)
    if identity is None or (found is not None and found[1] is tokens.Purpose.API):
        return found
    return identity


def key_of(scope: Scope, deps: Deps) -> tuple[bytes | None, bool]:
    """What tells who asks from others, None: a stranger; and whether that is known to be good, which a trusted proxy's
    word is, and a token that is somebody's. Nothing is looked up for it."""
    try:
        found = asks(scope, deps)
    except Problem:
        return None, False
    if isinstance(found, Identity):
        return tokens.digest(f"\0{found.name}"), True  # no token has a zero in it
    if found is None:
        return None, False
    digest = tokens.digest(found[0])
    return digest, deps.is_good(digest)


def has_expired(scope: Scope, deps: Deps) -> bool:
    """Whether the credential that is sent was good once, and has run out. Nothing is looked up for it."""
    try:
        found = credential(Headers(scope=scope), deps.public_url)
    except Problem:
        return False
    return found is not None and deps.is_expired(tokens.digest(found[0]))


_FOUND = frozenset({"role", "cluster", "tells_of", "scrapes", "identity"})
BEGUN = "begun"
"""In the state of a request that began a session: the digest of its token."""


def is_known(scope: Scope) -> bool:
    """Whether the guard found who asks: what was refused before it looked, or while the database was away, says nothing
    of a credential."""
    return not _FOUND.isdisjoint(scope.get("state") or ())


def begun(scope: Scope) -> bytes | None:
    """What ``key_of`` will be of who signed in with this request; None: nobody did."""
    found: bytes | None = (scope.get("state") or {}).get(BEGUN)
    return found


async def bearer(deps: Deps, token: str, purpose: tokens.Purpose) -> tokens.Bearer | None:
    """Who sends a token that is good for this now, else None; that it was used is to be noted. Raises the driver's
    errors."""
    async with deps.read.connect() as conn:
        found = await tokens.bearer(conn, token, purpose=purpose, now=deps.clock(), used=deps.used)
    if found is not None and found.token_id is not None:
        deps.note_use(found.token_id)
    return found


class Guard:
    """Checks the credential and the origin, then adds the headers.

    Left in ``scope["state"]`` is the ``role``, with what the token is for as ``who``, what the role is limited to as
    ``scope`` (None: it holds everywhere), and as ``identity`` whom a proxy or a provider named (None: nobody did); or
    the ``cluster`` whose API server or Prometheus it is; or the one that its external changes are of, as ``tells_of``
    ("": any); or that it ``scrapes`` our own metrics.
    """

    def __init__(self, app: ASGIApp, *, deps: Deps) -> None:
        self._app = app
        self._deps = deps

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                is_named = message["status"] in _FILES and assets.is_of(scope["path"], scope["query_string"])
                found = headers.of(self._deps.public_url, for_ever=is_named)
                MutableHeaders(scope=message).update(found)
            await send(message)

        refusal = await self._refusal(scope)
        if refusal is None and "\0" in scope["path"]:  # PostgreSQL takes no such text
            refusal = Problem(404, "there is nothing at this address")
        if refusal is None:
            await self._app(scope, receive, send_with_headers)
        else:
            response = answer(refusal, scope)
            if refusal.status == 401:
                onward.remember(response, scope, self._deps.public_url)
            await response(scope, receive, send_with_headers)

    async def _refusal(self, scope: Scope) -> Problem | None:
        sent = Headers(scope=scope)
        if is_foreign(scope["method"], sent, self._deps.public_url):
            return Problem(403, "this request came from another site")
        if is_open(scope["path"]):
            return None
        try:
            found = asks(scope, self._deps)
        except Problem as problem:
            return problem
        if found is None:
            return Problem(401, "sign in with a login link, or send Authorization: Bearer TOKEN")
        if isinstance(found, Identity):
            return self._refusal_of(scope, found)
        token, purpose = found
        of = next((PURPOSE[under] for under in PURPOSE if scope["path"].startswith(under)), None)
        if of is not None:
            try:
                cluster = self._deps.cluster_of(token, of)
            except NoRoomError as error:
                return Problem(503, str(error), retry_after=1)
            if cluster is None:
                return Problem(
                    401, f"this takes the token of a cluster: foreshock token create --role {of} --cluster NAME"
                )
            scope.setdefault("state", {})["cluster"] = cluster
            return None
        if scope["path"] == METRICS and purpose is tokens.Purpose.API and self._scrapes(token):
            scope.setdefault("state", {})["scrapes"] = True
            return None
        return await self._refusal_by_database(scope, token, purpose)

    def _refusal_of(self, scope: Scope, identity: Identity) -> Problem | None:
        state, granted = scope.setdefault("state", {}), self._deps.access().of(identity.name, identity.groups)
        state["who"], state["identity"] = identity.name, identity
        if granted is None:
            return nobody(identity)
        if scope["path"].startswith(tuple(PURPOSE)):
            return Problem(401, "this takes the token of a cluster, and no person")
        state["role"], state["scope"] = granted.role, granted.scope
        return None

    async def _refusal_by_database(self, scope: Scope, token: str, purpose: tokens.Purpose) -> Problem | None:
        state = scope.setdefault("state", {})
        tells = scope["method"] == "POST" and scope["path"] in TELLING and purpose is tokens.Purpose.API
        try:
            teller = await self._teller(token) if tells else None
            if teller is not None:
                state["tells_of"] = teller.cluster
                return None
            found = await bearer(self._deps, token, purpose)
        except UNAVAILABLE as error:
            return of_database(error)
        if found is None:
            return Problem(401, "this credential is unknown, expired, revoked, or good for something else")
        if purpose is tokens.Purpose.SESSION and says_no_site(scope["method"], Headers(scope=scope)):
            return Problem(403, "this does not say from which site it is: a program sends a token instead of a session")
        state["role"], state["who"], state["scope"] = found.role, found.note, found.scope
        state["identity"] = None if found.groups is None else Identity(found.note, found.groups)
        return None

    async def _teller(self, token: str) -> tokens.ClusterToken | None:
        """The token, where it is one that is good for telling of external changes and nothing else."""
        async with self._deps.read.connect() as conn:
            found = await tokens.check_for_changes(conn, token, now=self._deps.clock())
        if found is not None:
            self._deps.note_use(found.id)
        return found

    def _scrapes(self, token: str) -> bool:
        """Whether it is one to scrape with: that is known without the database, of which the scrape is to tell."""
        try:
            return self._deps.cluster_of(token, tokens.Purpose.SCRAPE) is not None
        except NoRoomError:
            return False
