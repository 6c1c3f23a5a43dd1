"""The demo: one recorded incident, replayed into a cluster of its own as if it had happened minutes ago."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

from sqlalchemy.ext.asyncio import AsyncEngine

from app.collect.alerts import parse
from app.collect.importer import Import
from app.collect.inputs import Input, InputKind, find_inputs, read_document
from app.commands.importing import tell_waiting
from app.core.model import Position
from app.core.objects.redact import Redactor
from app.correlate import open_incidents, rank_news
from app.store.incidents import list_incidents, read_incident
from app.store.positions import read_positions
from app.store.turns import turn

CLUSTER = "demo"
AGO = timedelta(minutes=5)
FOLDER = Path(__file__).parents[2] / "demo"
ANY_KEY = Redactor(bytes(16))
"""Only the time of what this redacts is looked at."""


async def replay(engine: AsyncEngine, *, now: datetime, folder: Path = FOLDER) -> str:
    """The id of the demo's incident, replaying the recording if it is not there (any more), or not wholly.

    An incident is forgotten up to a week after what it was ranked by (store/retention): it is not there any more.
    """
    inputs = find_inputs([str(folder)])
    async with turn(engine, CLUSTER, waits=tell_waiting):
        async with engine.connect() as conn:
            positions = await read_positions(conn, CLUSTER)
            newest = await list_incidents(conn, cluster=CLUSTER, limit=1)
            known = await read_incident(conn, newest[0].id) if newest else None
        seconds = _begun(inputs, positions)
        if seconds is None and known and known[1]:
            return known[0].id
        if seconds is None:
            payload = next(one for one in inputs if one.kind is InputKind.ALERTS)
            found, _ = parse(read_document(payload.path), ANY_KEY, received=now)
            seconds = int((now - AGO - min(alert.at for alert in found)).total_seconds())
        # A replay after the first one's rows have expired is another import of the same files.
        inputs = [replace(one, file_hash=_shifted(one, seconds)) for one in inputs]
        run = Import(engine, CLUSTER, now=now, progress=_quiet, on_alerts=open_incidents, shift_seconds=seconds)
        await run.run(inputs)
    await rank_news(engine, CLUSTER, now)
    async with engine.connect() as conn:
        (incident,) = await list_incidents(conn, cluster=CLUSTER, limit=1)
    return incident.id


def _shifted(one: Input, seconds: int) -> str:
    return f"{one.file_hash}+{seconds}s"


def _begun(inputs: list[Input], positions: Mapping[str, Position]) -> int | None:
    """By how many seconds a replay that was ended in its midst shifts the recording; None where there is none."""
    shifts = {
        int(known.removeprefix(f"{one.file_hash}+").removesuffix("s"))
        for one in inputs
        for known in positions
        if known.startswith(f"{one.file_hash}+")
    }
    done = {known for known, position in positions.items() if position.done}
    halves = [shift for shift in shifts if not all(_shifted(one, shift) in done for one in inputs)]
    return max(halves, default=None)


def _quiet(_path: str, _lines: int, _offset: int) -> None:
    """A replay takes seconds: it shows no progress."""
