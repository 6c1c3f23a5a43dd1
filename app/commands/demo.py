"""The demo: one recorded incident, replayed into a cluster of its own as if it had happened minutes ago."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

from sqlalchemy.ext.asyncio import AsyncEngine

from app.collect.alerts import parse
from app.collect.importer import Import
from app.collect.inputs import InputKind, find_inputs, read_document
from app.core.redact import Redactor
from app.correlate import open_incidents, rank_incident
from app.store.incidents import list_incidents

CLUSTER = "demo"
AGO = timedelta(minutes=5)
FOLDER = Path(__file__).parents[2] / "demo"
ANY_KEY = Redactor(bytes(16))
"""Only the time of what this redacts is looked at."""


async def replay(engine: AsyncEngine, *, now: datetime, folder: Path = FOLDER) -> str:
    """The id of the demo's incident, replaying the recording if it is not there (any more)."""
    async with engine.connect() as conn:
        known = await list_incidents(conn, cluster=CLUSTER, limit=1)
    if known:
        return known[0].id
    inputs = find_inputs([str(folder)])
    payload = next(one for one in inputs if one.kind is InputKind.ALERTS)
    fired = min(alert.at for alert in parse(read_document(payload.path), ANY_KEY))
    seconds = int((now - AGO - fired).total_seconds())
    # A replay after the first one's rows have expired is another import of the same files.
    inputs = [replace(one, file_hash=f"{one.file_hash}+{seconds}s") for one in inputs]
    report = await Import(engine, CLUSTER, now=now, progress=_quiet, shift_seconds=seconds).run(inputs)
    async with engine.begin() as conn:
        (incident, *_) = await open_incidents(conn, CLUSTER, report.alerts)
    async with engine.begin() as conn:
        await rank_incident(conn, incident, report.to_at or now)
    return incident.id


def _quiet(_path: str, _lines: int, _offset: int) -> None:
    """A replay takes seconds: it shows no progress."""
