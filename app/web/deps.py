"""What the web needs from the composition root, as plain values."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Protocol

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine
from starlette.requests import HTTPConnection

from app.core.access import NO_ACCESS, Access, Identity, Proxy
from app.core.changes.revert_write import Tried, UndoError, Write
from app.core.findings import Incident, Said
from app.core.model import Evaluated
from app.core.routes import NO_ROUTES, Routes
from app.core.screen.elsewhere import NO_NEIGHBOURS, Neighbours
from app.core.vitals import Listening, Vitals
from app.store.tokens import Purpose


@dataclass(frozen=True, slots=True)
class Taken:
    """What became of a payload: the ids of the incidents opened or changed, and in words what was left out."""

    incidents: list[str]
    left_out: list[str]


class NoRoomError(Exception):
    """What is sent cannot be taken now; the message says why."""


class TooLargeError(Exception):
    """What is sent is too large ever to be taken; the message says how large it may be."""


Lost = Mapping[str, int]
"""How many alerts of a payload could not be taken, by reason."""
TakeAlerts = Callable[[str, bytes], Awaitable[tuple[Taken, Lost]]]
TakePage = Callable[[str, str, bytes], Awaitable[tuple[Taken, Lost]]]
ReplayDemo = Callable[[], Awaitable[str]]
TakeSamples = Callable[[str, bytes], Awaitable[None]]
TakeTold = Callable[[dict[str, Any]], Awaitable[None]]
AnswerCommand = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]
TakeAudit = Callable[[str, AsyncIterator[bytes], int], Awaitable[None]]


Check = Callable[[AsyncConnection], Awaitable[None]]
"""Raises where something is not to be done; it is given the connection that would do it."""


class ByHand(Protocol):
    """What people do to incidents. All raise core.hands.CannotError, LookupError for an id that is not known."""

    async def open(
        self, cluster: str, said: Said, *, by: str, key: bytes | None, now: datetime
    ) -> tuple[Incident, bool]:
        """Opens an incident, once for each ``key``; the incident, and whether it was there."""
        ...

    async def amend(self, incident_id: str, told: Said, *, now: datetime, check: Check | None = None) -> Incident:
        """Changes what is named of an incident, or resolves or reopens it. ``check`` is called when nobody else writes
        of it, and raises where this is not to be done."""
        ...

    async def merge(self, incident_id: str, into: str, *, now: datetime, check: Check | None = None) -> Incident:
        """Makes an incident a part of another, which it answers. ``check`` as of ``amend``."""
        ...


class _NoHands:
    """Of a process that changes no incidents."""

    async def open(
        self, _cluster: str, _said: Said, *, by: str, key: bytes | None, now: datetime
    ) -> tuple[Incident, bool]:
        raise ValueError(f"this process opens no incidents: not by {by}, with {key!r}, at {now}")

    async def amend(self, _incident_id: str, _told: Said, *, now: datetime, check: Check | None = None) -> Incident:
        raise ValueError(f"this process changes no incidents, with {check}, at {now}")

    async def merge(self, _incident_id: str, _into: str, *, now: datetime, check: Check | None = None) -> Incident:
        raise ValueError(f"this process merges no incidents, with {check}, at {now}")


async def _refuse_alerts(_cluster: str, _body: bytes) -> tuple[Taken, Lost]:
    raise ValueError("this process takes no alerts")


async def _refuse_page(_cluster: str, _pager: str, _body: bytes) -> tuple[Taken, Lost]:
    raise ValueError("this process takes nothing from pagers")


async def _no_demo() -> str:
    raise ValueError("this process replays no demo")


async def _refuse_audit(_cluster: str, _chunks: AsyncIterator[bytes], _declared: int) -> None:
    raise NoRoomError("this process takes no audit events")


class QueryError(Exception):
    """A query in PromQL was not answered; the message says why. ``refused`` where another query may be."""

    def __init__(self, message: str, *, refused: bool) -> None:
        super().__init__(message)
        self.refused = refused


Evaluate = Callable[[str, str, datetime, datetime, timedelta], Awaitable[Evaluated]]


async def _no_prometheus(_cluster: str, _query: str, _start: datetime, _end: datetime, _step: timedelta) -> Evaluated:
    raise QueryError("this process asks no Prometheus", refused=False)


async def refuse_told(_payload: dict[str, Any]) -> None:
    """Of a process that tells Slack nothing."""
    raise ValueError("this process is told nothing by Slack")


async def refuse_command(_payload: dict[str, Any]) -> dict[str, Any]:
    """Of a process that tells Slack nothing."""
    raise ValueError("this process is told nothing by Slack")


async def _refuse_samples(_cluster: str, _body: bytes) -> None:
    raise NoRoomError("this process takes no samples")


def _no_cluster(_token: str, _purpose: Purpose) -> None:
    """Nobody's token."""


def _not_known(_digest: bytes) -> bool:
    """Of a process that looks each credential up."""
    return False


def _not_noted(_token_id: int) -> None:
    """Of a process that ends with its command: its token does, too."""


@dataclass(frozen=True, slots=True)
class Slack:
    """How Slack is told: in which ``channel`` ("": it is not), whether our own connection by which clicks come is open
    (None: there is none), and the secret that it signs requests with ("": none are taken). ``routes`` gives the routes
    as they are now, and ``routes_error`` why a newer file of them is not taken, "" where it is. ``suspected``: also
    incidents are told that nobody is called for."""

    channel: str = ""
    listening: Callable[[], Listening | None] = lambda: None
    signing_secret: str = ""
    routes: Callable[[], Routes] = lambda: NO_ROUTES
    routes_error: Callable[[], str] = str
    suspected: bool = False


class Undoes(Protocol):
    """Undoes changes in clusters, as the people who ask: reverting.Reverts is one."""

    def is_offered(self, cluster: str) -> bool:
        """Whether that is done in a cluster at all."""
        ...

    def known_as(self, cluster: str, person: Identity) -> Identity:
        """Who somebody is there. Raises core.changes.revert_write.UndoError."""
        ...

    async def attempt(self, write: Write, person: Identity, *, seen: str | None) -> Tried:
        """A dry run; and where that does what was ``seen`` before, the write itself. Raises UndoError."""
        ...


class _NoReverts:
    """Where nothing is undone."""

    def is_offered(self, _cluster: str) -> bool:
        return False

    def known_as(self, cluster: str, _person: Identity) -> Identity:
        raise UndoError(f"nothing is undone from here in {cluster}")

    async def attempt(self, write: Write, _person: Identity, *, seen: str | None) -> Tried:
        raise UndoError(f"nothing is undone from here in {write.resource.cluster}, seen or not ({seen})")


class SignsIn(Protocol):
    """Signs people in elsewhere: oidc.Oidc is one. Both steps raise core.oidc.SignInError."""

    @property
    def name(self) -> str:
        """What people know it by."""
        ...

    async def begin(self, secret: str) -> str:
        """Where a browser that keeps ``secret`` is to go."""
        ...

    async def finish(self, secret: str, sent: Mapping[str, str]) -> Identity:
        """Who came back with this query, to a browser that kept ``secret``."""
        ...


@dataclass(frozen=True, slots=True)
class Deps:
    """``read`` answers pages, ``write`` is for logins and external changes; those may be ``changes_kept`` old at most.

    ``launchdarkly_secret`` is what LaunchDarkly signs with, "" where nothing of it is taken; ``pagerduty_secrets`` are
    those of PagerDuty's subscriptions.

    ``public_url`` is where people reach us (``https://foreshock.example``): it decides whether cookies are
    Secure. ``clock`` gives the time as aware UTC. ``not_ready`` lists, in words, why /readyz should fail; empty
    means ready. ``vitals`` says how the process does, ``warnings`` how many remarks on each of its clusters name
    nothing that fails. ``take_alerts`` is given a cluster and an Alertmanager payload; it raises ValueError, in words,
    for what is no such payload. So does ``take_page``, which is also given the pager (pagerduty, opsgenie).

    ``cluster_of`` answers the cluster that a token for a purpose is of, without the database, or raises NoRoomError.
    ``is_good`` says without the database whether what is stored of a credential is somebody's, as of some seconds ago,
    and ``is_expired`` whether it has run out;
    ``note_use`` is told the id of a token that was used: it writes nothing yet, and waits for nothing. ``used`` answers
    when that was, where it is not written yet.
    ``take_audit`` is given a cluster, the chunks of a body and how many bytes it says to have (0: it does not say); it
    returns when the body is durable, and raises NoRoomError, before it reads, or TooLargeError.

    ``take_samples`` is given a cluster and the body of a remote-write; it returns when that is committed, and raises
    TooLargeError, or ValueError, in words, for what can never be taken of it.

    ``take_click`` is given what Slack says that somebody clicked, ``take_event`` what happened there, and
    ``answer_command`` what somebody wrote behind /foreshock, for whom it returns the message. All raise ValueError for
    what Slack does not send.

    ``evaluate`` is given a cluster, a query in PromQL for its Prometheus, from, to and the step; it raises QueryError.

    ``replay_demo`` answers the path of the recorded incident that comes along.

    ``scoped`` answers who is limited to a scope (database.Database.scoped), None where nobody such is answered.

    ``proxy`` says whose headers say who asks, None: nobody's; ``oidc`` signs people in elsewhere, None: nobody does;
    ``access`` gives what such people may do, as it is now. ``neighbours`` are the programs that pages lead to.

    ``reverts`` undoes changes in clusters, for who asks and as who they are there.
    """

    read: AsyncEngine
    write: AsyncEngine
    public_url: str
    clock: Callable[[], datetime]
    not_ready: Callable[[], list[str]] = list
    vitals: Callable[[], Vitals] = Vitals
    warnings: Callable[[], Mapping[str, int]] = dict
    take_alerts: TakeAlerts = _refuse_alerts
    cluster_of: Callable[[str, Purpose], str | None] = _no_cluster
    is_good: Callable[[bytes], bool] = _not_known
    is_expired: Callable[[bytes], bool] = _not_known
    note_use: Callable[[int], None] = _not_noted
    used: Callable[[int], datetime | None] = _not_noted
    take_page: TakePage = _refuse_page
    take_audit: TakeAudit = _refuse_audit
    take_samples: TakeSamples = _refuse_samples
    evaluate: Evaluate = _no_prometheus
    replay_demo: ReplayDemo = _no_demo
    by_hand: ByHand = field(default_factory=_NoHands)
    changes_kept: timedelta = timedelta(days=90)
    launchdarkly_secret: str = ""
    pagerduty_secrets: tuple[str, ...] = ()
    slack: Slack = Slack()
    take_click: TakeTold = refuse_told
    take_event: TakeTold = refuse_told
    answer_command: AnswerCommand = refuse_command
    scoped: AsyncEngine | None = None
    proxy: Proxy | None = None
    oidc: SignsIn | None = None
    neighbours: Neighbours = NO_NEIGHBOURS
    access: Callable[[], Access] = lambda: NO_ACCESS
    reverts: Undoes = field(default_factory=_NoReverts)


def deps_of(connection: HTTPConnection) -> Deps:
    """The Deps of the application that serves this request."""
    deps: Deps = connection.app.state.deps
    return deps
