"""What the web needs from the composition root, as plain values."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy.ext.asyncio import AsyncEngine
from starlette.requests import HTTPConnection


@dataclass(frozen=True, slots=True)
class Taken:
    """What became of a payload: the ids of the incidents opened or changed, and in words what was left out."""

    incidents: list[str]
    left_out: list[str]


TakeAlerts = Callable[[str, bytes], Awaitable[Taken]]


async def _refuse_alerts(_cluster: str, _body: bytes) -> Taken:
    raise ValueError("this process takes no alerts")


@dataclass(frozen=True, slots=True)
class Deps:
    """``read`` answers pages, ``write`` is used at login only.

    ``public_url`` is where people reach us (``https://foreshock.example``): it decides whether cookies are
    Secure. ``clock`` gives the time as aware UTC. ``not_ready`` lists, in words, why /readyz should fail; empty
    means ready. ``take_alerts`` is given a cluster and an Alertmanager payload; it raises ValueError, in words, for
    what is no such payload.
    """

    read: AsyncEngine
    write: AsyncEngine
    public_url: str
    clock: Callable[[], datetime]
    not_ready: Callable[[], list[str]] = list
    take_alerts: TakeAlerts = _refuse_alerts


def deps_of(connection: HTTPConnection) -> Deps:
    """The Deps of the application that serves this request."""
    deps: Deps = connection.app.state.deps
    return deps
