"""What came after a change, read for its page and for REST."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy.ext.asyncio import AsyncConnection

from app.core.edges.touched import SERVES, Touched, touched
from app.core.metrics.turning import SOON
from app.core.model import Change, ObjectState
from app.core.screen.aftermath import Measured
from app.store import objects, series, surroundings
from app.store.surroundings import Surroundings

MOST_BESIDE = 500
"""Workloads and Services of a namespace among which it is looked for those on which a change acts."""


@dataclass(frozen=True, slots=True)
class Aftermath:
    """What was measured around a change, what surrounds the time after it, and on ``whom`` it acts: looked for among
    MOST_BESIDE objects where ``is_cut``. ``state`` is its object's last one."""

    around: Surroundings
    measured: Measured
    whom: Touched
    is_cut: bool
    state: ObjectState | None


async def read_aftermath(conn: AsyncConnection, change: Change) -> Aftermath:
    """Three queries."""
    cluster, at = change.resource.cluster, change.at
    around = await surroundings.read_surroundings(conn, cluster, from_at=at, to_at=at + SOON)
    beside = await objects.load_beside(conn, change.resource, SERVES, most=MOST_BESIDE)
    whom = touched(change, beside.states.values())
    measured = await series.read_around(conn, cluster, whom.users, near=whom.namespaces, start=at - SOON, end=at + SOON)
    return Aftermath(around, measured, whom, beside.is_cut, beside.states.get(change.resource))
