"""What stands around everything: it says whose a request is, to who notes what was done, and notes itself what was
refused and what was taken away: as a file, in lines, or page by page as `foreshock export` does.

What may come often is counted: of refusals and downloads that are alike the first of a minute is a row at once, the
others are one row when the minute is over. So a flood makes a few rows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context, copy_context
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Never
from urllib.parse import parse_qs

import structlog
from sqlalchemy.exc import SQLAlchemyError
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.core.roles import Role
from app.store import audit, tokens
from app.store.audit import ASKER, Action, Asker
from app.web import guard
from app.web.accept import NDJSON
from app.web.deps import Deps
from app.web.problems import Problem

MOST = 200
"""Sorts of what is counted within a minute; all others are one."""
TAKEN_AWAY = frozenset({Action.DOWNLOADED, Action.FOLLOWED, Action.INCIDENTS_FOLLOWED})
"""Noted before it begins, for it may last."""
log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Alike:
    """What is counted together."""

    action: Action
    who: str
    address: str
    about: str


@dataclass(frozen=True, slots=True)
class Counted:
    """How often something was noted again since its row was written, since when, and in which context: ASKER's."""

    times: int
    since: datetime
    context: Context


class Tally:
    """Counts what comes often. ``every`` is in seconds."""

    def __init__(self, deps: Deps, every: float = 60.0) -> None:
        self._deps, self.every = deps, every
        self._more: dict[Alike, Counted] = {}

    async def count(self, one: Alike) -> None:
        """Notes it, or counts it where the like of it was noted within this minute. Of whom it is, ASKER says."""
        if one not in self._more and len(self._more) >= MOST:
            one = Alike(one.action, "", "elsewhere", "")
        now, known = self._deps.clock(), self._more.get(one)
        if known is not None:
            self._more[one] = Counted(known.times + 1, known.since if known.times else now, known.context)
            return
        self._more[one] = Counted(0, now, copy_context())
        await self._note(one, 1, now)

    async def keep(self) -> Never:
        """Writes what was counted, whenever a minute is over."""
        while True:
            await asyncio.sleep(self.every)
            await self.flush()

    async def flush(self) -> None:
        """Writes what was counted, and begins anew."""
        counted, self._more = self._more, {}
        for one, known in counted.items():
            if known.times:
                note = self._note(one, known.times, known.since)
                await asyncio.get_running_loop().create_task(note, context=known.context)

    async def _note(self, one: Alike, times: int, at: datetime) -> None:
        try:
            async with self._deps.write.begin() as conn:
                await audit.note(conn, one.action, one.about, by=one.who, address=one.address, now=at, times=times)
        except SQLAlchemyError as error:
            log.error("not in the audit log", action=one.action, times=times, error=type(error).__name__)  # noqa: TRY400


class Audited:
    """Sets ASKER for what is done behind it, and counts refusals and what is taken away."""

    def __init__(self, app: ASGIApp, *, deps: Deps, tally: Tally) -> None:
        self._app, self._deps, self._tally = app, deps, tally

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        asker = self._asker(scope)
        mark = ASKER.set(asker)

        refused: list[Alike] = []

        async def noting(message: Message) -> None:
            if message["type"] == "http.response.start":
                action = _action(scope, message, sent=asker.credential is not None)
                if action is not None:
                    one = Alike(action, asker.who(), asker.address, _about(scope, action))
                    if action in TAKEN_AWAY:
                        await self._tally.count(one)
                    else:
                        refused.append(one)
            await send(message)

        try:
            await self._app(scope, receive, noting)
            for one in refused:  # the answer is sent: nobody waits for what is written
                await self._tally.count(one)
        finally:
            ASKER.reset(mark)

    def _asker(self, scope: Scope) -> Asker:
        try:
            found = guard.asks(scope, self._deps)
        except Problem:
            found = None
        address = scope["client"][0] if scope.get("client") else ""
        return Asker(address, tokens.digest(found[0]) if isinstance(found, tuple) else None, _who(scope))


def _who(scope: Scope) -> Callable[[], str]:
    """Who asks, once the guard knows: what the token is for, else its role; of a cluster, that one."""

    def who() -> str:
        state: dict[str, Any] = scope.get("state") or {}
        if state.get("who"):
            return str(state["who"])
        if "role" in state:
            return Role(state["role"]).somebody
        return f"the cluster {state['cluster']}" if "cluster" in state else ""

    return who


def _action(scope: Scope, start: Message, *, sent: bool) -> Action | None:
    """What is noted of an answer."""
    status, told = start["status"], Headers(raw=start["headers"])
    if status == 403:
        return Action.DENIED
    if status == 401:
        return (
            Action.LOGIN_REFUSED if scope["path"].startswith("/login") else Action.CREDENTIAL_REFUSED if sent else None
        )
    if status != 200:
        return None
    asks = parse_qs(scope["query_string"].decode("latin-1"))
    in_lines = told.get("content-type", "").startswith(NDJSON)
    if in_lines and "follow" in asks:
        return Action.INCIDENTS_FOLLOWED if scope["path"].endswith("/incidents") else Action.FOLLOWED
    page_by_page = scope["path"].startswith("/api/") and "after" in asks
    is_file = told.get("content-disposition", "").startswith("attachment")
    return Action.DOWNLOADED if is_file or in_lines or page_by_page else None


def _about(scope: Scope, action: Action) -> str:
    """The address of what was there; of what was refused its form, since anybody may write anything into an address."""
    if action in TAKEN_AWAY:
        return str(scope["path"])
    route = scope.get("route")
    return f"{scope['method']} {route.path}" if route is not None else ""
