"""Recorded incidents as cases: each goes into a database of its own, and is ranked at the alert and later.

What happened after the moment of ranking is not even imported.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from uuid import uuid4

from msgspec.structs import replace
from sqlalchemy.engine import make_url
from sqlalchemy.ext.asyncio import AsyncEngine

from app.collect.importer import Import
from app.collect.inputs import InputKind, survey
from app.commands.evaluate_past import keep_past
from app.commands.labels import NotJudgedError, read_label, read_shift
from app.core.evaluation.accuracy import Rank
from app.core.findings import Ranking, Suspect
from app.core.incidents.bundles import LOOKS_BACK
from app.core.model import Change
from app.core.ranking.candidates import Candidate
from app.core.ranking.precedents import Memory, remembered
from app.core.ranking.suspects import Gathered, rank
from app.correlate import open_incidents
from app.store.database import open_database
from app.store.gathering import LARGE, gather
from app.store.migrate import migrate
from app.store.precedents import read_memory
from app.store.scratch import create_database, drop_database

LATER = timedelta(minutes=3)
CLUSTER = "recording"


@dataclass(frozen=True, slots=True)
class Answer:
    """``right`` are the ids of the changes that are the answer: none of them need be recorded. Without a culprit,
    "none of these" is."""

    has_culprit: bool
    right: frozenset[str] = frozenset()

    def is_in(self, one: Suspect | Candidate) -> bool:
        """Whether it is an answer, by itself or as one of those that it stands for."""
        return not self.right.isdisjoint(one.ids)

    def rank_in(self, ranking: Ranking) -> Rank | None:
        """Where the culprit stands; None where it is not shown."""
        return next((Rank(suspect.rank - 1) for suspect in ranking.suspects if self.is_in(suspect)), None)

    def said_in(self, ranking: Ranking) -> float:
        """The probability of what is right."""
        if not self.has_culprit:
            return ranking.none_of_these
        return sum(suspect.probability for suspect in ranking.suspects if self.is_in(suspect))


@dataclass(frozen=True, slots=True)
class Case:
    """One recording, ranked at the alert and later. ``remarks`` say what else should be known of it, ``memory`` is what
    is remembered of all its changes."""

    name: str
    at_alert: Gathered
    later: Gathered
    first: Ranking
    second: Ranking
    remarks: tuple[str, ...] = ()
    memory: Memory = field(default_factory=Memory)

    @property
    def changes(self) -> tuple[Change, ...]:
        """Those that were ranked."""
        return (*self.at_alert.changes, *self.later.changes)


async def recording(
    dsn: str,
    folder: Path,
    *,
    now: datetime,
    leave_out: frozenset[InputKind] = frozenset(),
    shift: timedelta = timedelta(0),
) -> tuple[Case, Answer]:
    """A recording, ranked, and only then its answer. Raises NotJudgedError, UnreadableError, DamagedError.

    ``shift`` is by how much the start of its alert is told wrong, besides what it was recorded with; it is ranked when
    the alert came all the same.
    """
    case = await _case(dsn, folder, now=now, leave_out=leave_out, shift=shift)
    answers = read_label(folder).answers
    right = frozenset(change.id for change in case.changes if any(one.is_of(change) for one in answers))
    return case, Answer(bool(answers), right)


async def _case(dsn: str, folder: Path, *, now: datetime, leave_out: frozenset[InputKind], shift: timedelta) -> Case:
    found = survey([str(folder)])
    if found.damaged:
        raise NotJudgedError(f"{'; '.join(found.damaged)}: copy it again, or take it away to judge without it")
    inputs = [one for one in found.inputs if one.kind not in leave_out]
    alerts = [one for one in inputs if one.kind is InputKind.ALERTS]
    if not alerts:
        raise NotJudgedError(f"{folder}: has no alert to rank for: put the Alertmanager payload beside the logs")
    async with scratch(dsn) as engine:
        await keep_past(engine, folder, CLUSTER, now=now, leave_out=leave_out)
        first = await Import(engine, CLUSTER, now=now, progress=_quiet).run(alerts)
        async with engine.begin() as conn:
            opened = await open_incidents(conn, CLUSTER, first.alerts)
        if not opened:
            silent = f"{', '.join(one.path for one in alerts)}: it holds no alert that fired"
            raise NotJudgedError(f"{'; '.join(first.problems) or silent}: put the payload there that called somebody")
        incident = min(opened, key=lambda i: i.started_at)
        came = incident.started_at - read_shift(folder)
        incident = replace(incident, started_at=incident.started_at + shift)
        await Import(engine, CLUSTER, now=now, progress=_quiet, until=came).run(inputs)
        at_alert = await gather(engine, incident, came)
        last = await Import(engine, CLUSTER, now=now, progress=_quiet, until=came + LATER).run(inputs)
        end = min(last.to_at or came, came + LATER)
        later = await gather(engine, incident, max(end, came))
        memory = await _memory(engine, later)
    first_ranking, second = (remembered(rank(one), memory) for one in (at_alert, later))
    return Case(folder.name, at_alert, later, first_ranking, second, memory=memory)


async def _memory(engine: AsyncEngine, gathered: Gathered) -> Memory:
    """Of every change, whichever of them are suspects by some of the rules."""
    incident = gathered.incident
    async with engine.connect() as conn:
        return await read_memory(
            conn,
            incident.id,
            gathered.changes,
            cluster=incident.cluster,
            before=incident.started_at - LOOKS_BACK,
            now=gathered.now,
            most_bytes=LARGE,
        )


@asynccontextmanager
async def scratch(dsn: str) -> AsyncIterator[AsyncEngine]:
    """An empty, migrated database beside the one of ``dsn``, dropped at the end."""
    name = f"foreshock_evaluate_{uuid4().hex[:12]}"
    create_database(dsn, name)
    try:
        own = make_url(dsn).set(database=name).render_as_string(hide_password=False)
        migrate(own)
        database = open_database(own)
        try:
            yield database.write
        finally:
            await database.close()
    finally:
        drop_database(dsn, name)


def _quiet(_path: str, _lines: int, _offset: int) -> None:
    """An evaluation shows no progress of its imports."""
