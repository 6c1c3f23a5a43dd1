"""What a recording has of the time before its incident (docs/lab.md) -> the store, as if it had been kept all along."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import msgspec
from sqlalchemy.ext.asyncio import AsyncEngine

from app.collect.importer import Import
from app.collect.inputs import InputKind, survey
from app.commands.labels import NotJudgedError, RawChange, read
from app.core.findings import Incident, Opinion, Verdict
from app.correlate import open_incidents
from app.store import verdicts
from app.store.gathering import gather

FOLDER, PAST = "before", "past.json"
MUST = 'it must say {"cluster": NAME or "", "verdicts": [{"kind", "namespace", "name", "at", "opinion"}]}'


class RawVerdict(RawChange, kw_only=True):
    """What people said of a change: "it" or "not it"."""

    opinion: Opinion


class RawPast(msgspec.Struct):
    """``cluster`` is "" where it is the incident's own."""

    cluster: str = ""
    verdicts: tuple[RawVerdict, ...] = ()


async def keep_past(
    engine: AsyncEngine, folder: Path, cluster: str, *, now: datetime, leave_out: frozenset[InputKind]
) -> None:
    """Stretch by stretch, each with its alerts and with what people said. Raises NotJudgedError, UnreadableError."""
    for stretch in sorted((folder / FOLDER).glob(f"*/{PAST}"), key=lambda path: (len(path.parent.name), path)):
        past = read(stretch, RawPast, MUST)
        of = past.cluster or cluster
        inputs = [one for one in survey([str(stretch.parent)]).inputs if one.kind not in leave_out]
        report = await Import(engine, of, now=now, progress=lambda *_: None).run(inputs)
        async with engine.begin() as conn:
            opened = await open_incidents(conn, of, report.alerts)
        if past.verdicts:
            if not opened:
                raise NotJudgedError(f"{stretch}: somebody judged a change of it, but no alert beside it fired")
            await _say(engine, opened[0], past.verdicts)


async def _say(engine: AsyncEngine, incident: Incident, said: tuple[RawVerdict, ...]) -> None:
    """Of what was recorded: what nobody saw, nobody judged."""
    found = (await gather(engine, incident, incident.resolved_at or incident.started_at)).changes
    async with engine.begin() as conn:
        for one in said:
            for change in filter(one.is_of, found):
                await verdicts.say(conn, incident.id, Verdict(change.id, one.opinion, "label", one.at))
