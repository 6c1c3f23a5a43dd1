"""How much one credential, or one address without one, may ask of a process that all share.

Buckets of tokens: each request takes one, and they come back at a steady rate. Who is known (its credential is
somebody's, or was good just now) has a bucket of its own. Who is not has one with all others of its address, and only
what is refused takes from that: so nobody who guesses can shut out who is signed in, also behind one proxy.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from ipaddress import IPv6Address, ip_address, ip_network
from math import ceil
from time import monotonic
from weakref import WeakValueDictionary

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.web import assets, guard, headers
from app.web.deps import Deps
from app.web.problems import Problem, answer

MOST = 10_000
"""Credentials, and addresses, that are remembered; the one that asked longest ago is forgotten first."""
OF_PROVIDER = "/login/oidc"
UNLIMITED = frozenset({"/healthz", "/readyz", guard.METRICS})
UNLIMITED_UNDER = (assets.PATH, guard.OF_CLUSTERS, guard.OF_METRICS)
"""Probes, files, and what sends more than people ask: its own limits are the spool's and the receiver's."""
INTAKE = "/intake/"
BUSY = "this credential has as many requests at work as it may: wait for one to end"


@dataclass(frozen=True, slots=True)
class Rate:
    """So many at once, and then so many a second."""

    burst: float
    per_second: float


class Buckets:
    """A bucket for each key, all of one rate. ``now`` is a monotonic time in seconds."""

    def __init__(self, rate: Rate) -> None:
        self.rate = rate
        self._levels: OrderedDict[Hashable, tuple[float, float]] = OrderedDict()

    def wait(self, key: Hashable, now: float) -> float:
        """Seconds until there is a token; 0 where there is one. Takes none."""
        return max(0.0, 1 - self._level(key, now)) / self.rate.per_second

    def take(self, key: Hashable, now: float) -> None:
        """Takes a token, if there is one."""
        self._levels[key] = (max(0.0, self._level(key, now) - 1), now)
        self._levels.move_to_end(key)
        while len(self._levels) > MOST:
            self._levels.popitem(last=False)

    def give(self, key: Hashable, now: float) -> None:
        """Puts a token back."""
        self._levels[key] = (min(self.rate.burst, self._level(key, now) + 1), now)

    def _level(self, key: Hashable, now: float) -> float:
        level, at = self._levels.get(key, (self.rate.burst, now))
        return min(self.rate.burst, level + (now - at) * self.rate.per_second)


class _Credentials:
    """Those of which something is known, by their digests; the one that asked longest ago is forgotten first."""

    def __init__(self) -> None:
        self._known: OrderedDict[bytes, None] = OrderedDict()

    def __contains__(self, key: bytes) -> bool:
        return key in self._known

    def note(self, key: bytes) -> None:
        self._known[key] = None
        self._known.move_to_end(key)
        while len(self._known) > MOST:
            self._known.popitem(last=False)

    def forget(self, key: bytes) -> None:
        self._known.pop(key, None)


@dataclass(slots=True)
class Limits:
    """What may be asked. Of one credential ``at_once`` requests are worked on, a further one waits ``within`` seconds
    for its turn. A page asks for a handful of things, a display on a wall four times a minute."""

    credential: Rate = Rate(burst=1000, per_second=100)
    stranger: Rate = Rate(burst=60, per_second=1)
    at_once: int = 6
    within: float = 5.0
    clock: Callable[[], float] = field(default=monotonic)


class Rated:
    """Refuses, before anything is looked up, who asks too much: with 429, and senders with 503, as Alertmanager takes
    only that for "try again"."""

    def __init__(self, app: ASGIApp, *, deps: Deps, limits: Limits) -> None:
        self._app, self._deps, self._limits = app, deps, limits
        self._credentials, self._strangers = Buckets(limits.credential), Buckets(limits.stranger)
        self._good, self._refused = _Credentials(), _Credentials()
        self._turns: WeakValueDictionary[bytes, asyncio.Semaphore] = WeakValueDictionary()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in UNLIMITED or scope["path"].startswith(UNLIMITED_UNDER):
            await self._app(scope, receive, send)
            return
        key, is_good = guard.key_of(scope, self._deps)
        if key is not None and (key in self._good or (is_good and key not in self._refused)):
            await self._known(scope, receive, send, key)
        else:
            await self._stranger(scope, receive, send, key)

    async def _stranger(self, scope: Scope, receive: Receive, send: Send, key: bytes | None) -> None:
        again = key is not None and key in self._refused
        place, now = _place(scope, key, again=again), self._limits.clock()
        if wait := self._strangers.wait(place, now):
            await self._refuse("too much was refused at your address", wait, scope, receive, send)
            return
        self._strangers.take(place, now)  # before it is known: many come at once

        async def note(message: Message) -> None:
            if message["type"] == "http.response.start":
                if not _is_refused(scope, message["status"]):
                    self._strangers.give(place, self._limits.clock())
                self._learn(scope, key, message["status"])
            await send(message)

        await self._app(scope, receive, note)

    async def _known(self, scope: Scope, receive: Receive, send: Send, key: bytes) -> None:
        now = self._limits.clock()
        if wait := self._credentials.wait(key, now):
            await self._refuse("this credential asks more than it may", wait, scope, receive, send)
            return
        self._credentials.take(key, now)
        held = list[asyncio.Semaphore]()
        if not scope["path"].startswith(INTAKE):
            turns = self._turns.setdefault(key, asyncio.Semaphore(self._limits.at_once))
            if not await self._turn(turns):
                await self._refuse(BUSY, 1, scope, receive, send)
                return
            held.append(turns)

        async def note(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._learn(scope, key, message["status"])
                while held:  # what follows, as lines of who follows changes, takes as long as who reads it
                    held.pop().release()
            await send(message)

        try:
            await self._app(scope, receive, note)
        finally:
            while held:
                held.pop().release()

    async def _turn(self, turns: asyncio.Semaphore) -> bool:
        """Whether a turn came in time; it is to be given back."""
        try:
            async with asyncio.timeout(self._limits.within):
                await turns.acquire()
        except TimeoutError:
            return False
        return True

    def _learn(self, scope: Scope, key: bytes | None, status: int) -> None:
        """What an answer tells of a credential, where the guard looked at it: that it is good, or was refused, as one
        that ended; and of who signs in the one that they are given."""
        if (session := guard.begun(scope)) is not None:
            self._good.note(session)
        if key is None or guard.is_open(scope["path"]):
            return
        if guard.is_known(scope):
            self._good.note(key)
        elif status == 401:
            self._good.forget(key)
            self._refused.note(key)

    async def _refuse(self, why: str, wait: float, scope: Scope, receive: Receive, send: Send) -> None:
        seconds = max(1, ceil(wait))
        status = 503 if scope["path"].startswith(INTAKE) else 429
        problem = Problem(status, f"{why}: try again in {seconds} s", retry_after=seconds)
        response = answer(problem, scope)
        MutableHeaders(raw=response.raw_headers).update(headers.of(self._deps.public_url))
        await response(scope, receive, send)


def _is_refused(scope: Scope, status: int) -> bool:
    """Whether an answer counts against the address that it went to: so does a sign-in at a provider that fails, where
    the provider was asked about it, and not where anybody's link to the way back is told (400) that it is none's."""
    return status == 401 or (status > 400 and scope["path"].startswith(OF_PROVIDER))


def _place(scope: Scope, key: bytes | None, *, again: bool) -> tuple[str, str]:
    """An address, and at which door it knocks. Of IPv6 it is the network of one customer (/64); ``::ffff:192.0.2.1`` is
    one of IPv4, as a socket for both has it.

    A door is an open one; or all others with a credential that nobody looked at yet; with one that was refused before,
    ``again``; or with none. So neither a page that stays open when its session ended, nor a program with a token of
    last year, shuts out who comes with another.
    """
    host = scope["client"][0] if scope.get("client") else ""
    try:
        address = ip_address(host)
    except ValueError:
        address = None
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        host = str(address.ipv4_mapped)
    elif isinstance(address, IPv6Address):
        host = str(ip_network((address, 64), strict=False))
    path: str = scope["path"]
    if guard.is_open(path):
        return host, "/".join(path.split("/")[:3])
    return host, "without" if key is None else "again" if again else ""
