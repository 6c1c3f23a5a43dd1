"""Recorded incidents as cases: each goes into a database of its own, and is ranked at the alert and later.

What happened after the moment of ranking is not even imported.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated
from uuid import uuid4

import msgspec
from msgspec.structs import replace
from sqlalchemy.engine import make_url
from sqlalchemy.ext.asyncio import AsyncEngine

from app.collect.importer import Import
from app.collect.inputs import LABEL, InputKind, survey
from app.core.findings import Ranking
from app.core.model import Change
from app.core.suspects import Gathered, rank
from app.correlate import open_incidents
from app.failures import Expected
from app.store.database import open_database
from app.store.gathering import gather
from app.store.migrate import migrate
from app.store.scratch import create_database, drop_database

LATER = timedelta(minutes=3)
SAME_MOMENT = timedelta(seconds=3)
"""A label's time is when the writer sent it; ours when the API server took or told it."""
CLUSTER = "recording"


class NotJudgedError(Expected):
    """A recording cannot be judged; the message names the file, what is wrong with it and what to do."""


class RawCulprit(msgspec.Struct):
    kind: str
    name: str
    at: Annotated[datetime, msgspec.Meta(tz=True)]
    namespace: str | None = None

    def is_of(self, change: Change) -> bool:
        """Whether this is the change that is meant."""
        resource = change.resource
        same = (resource.kind, resource.namespace, resource.name) == (self.kind, self.namespace, self.name)
        return same and abs(change.at - self.at) <= SAME_MOMENT


class RawLabel(msgspec.Struct):
    """``culprit`` is None where no change preceded the incident: then "none of these" should win. ``accepted`` are
    other changes that are as right an answer, as a second write of the same hand for the same purpose."""

    culprit: RawCulprit | None = None
    accepted: tuple[RawCulprit, ...] = ()

    @property
    def answers(self) -> tuple[RawCulprit, ...]:
        """What is right; nothing where it was no change."""
        return (self.culprit, *self.accepted) if self.culprit else ()


@dataclass(frozen=True, slots=True)
class Answer:
    """``right`` are the ids of the changes that are the answer: none of them need be recorded. Without a culprit,
    "none of these" is."""

    has_culprit: bool
    right: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Case:
    """One recording, ranked at the alert and later. ``remarks`` say what else should be known of it."""

    name: str
    at_alert: Gathered
    later: Gathered
    first: Ranking
    second: Ranking
    remarks: tuple[str, ...] = ()

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
    """A recording, ranked, and only then its label. Raises NotJudgedError, UnreadableError, DamagedError.

    ``shift`` is by how much the start of its alert is told wrong; it is ranked when the alert came all the same.
    """
    case = await _case(dsn, folder, now=now, leave_out=leave_out, shift=shift)
    answers = _label(folder).answers
    right = frozenset(change.id for change in case.changes if any(one.is_of(change) for one in answers))
    return case, Answer(bool(answers), right)


def _label(folder: Path) -> RawLabel:
    """The answer of a recording. Raises NotJudgedError."""
    path = folder / LABEL
    try:
        return msgspec.json.decode(path.read_bytes(), type=RawLabel)
    except OSError as error:
        raise NotJudgedError(f"{path}: cannot be read: {error.strerror}") from None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise NotJudgedError(
            f'{path}: {error}; it must say {{"culprit": {{"kind", "namespace", "name", "at"}}}},'
            " or null where no change preceded the incident"
        ) from None


async def _case(dsn: str, folder: Path, *, now: datetime, leave_out: frozenset[InputKind], shift: timedelta) -> Case:
    found = survey([str(folder)])
    if found.damaged:
        raise NotJudgedError(f"{'; '.join(found.damaged)}: copy it again, or take it away to judge without it")
    inputs = [one for one in found.inputs if one.kind not in leave_out]
    alerts = [one for one in inputs if one.kind is InputKind.ALERTS]
    if not alerts:
        raise NotJudgedError(f"{folder}: has no alert to rank for: put the Alertmanager payload beside the logs")
    async with scratch(dsn) as engine:
        first = await Import(engine, CLUSTER, now=now, progress=_quiet).run(alerts)
        async with engine.begin() as conn:
            opened = await open_incidents(conn, CLUSTER, first.alerts)
        if not opened:
            silent = f"{', '.join(one.path for one in alerts)}: it holds no alert that fired"
            raise NotJudgedError(f"{'; '.join(first.problems) or silent}: put the payload there that called somebody")
        incident = min(opened, key=lambda i: i.started_at)
        started = incident.started_at
        incident = replace(incident, started_at=started + shift)
        await Import(engine, CLUSTER, now=now, progress=_quiet, until=started).run(inputs)
        at_alert = await gather(engine, incident, started)
        last = await Import(engine, CLUSTER, now=now, progress=_quiet, until=started + LATER).run(inputs)
        end = min(last.to_at or started, started + LATER)
        later = await gather(engine, incident, max(end, started))
    return Case(folder.name, at_alert, later, rank(at_alert), rank(later))


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
