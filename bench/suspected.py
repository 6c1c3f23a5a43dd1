"""How often an incident is suspected in a cluster that is well: ``python -m bench.suspected FOLDER...``.

Each folder (tests/lab/quiet.py) is imported, and looked at once a minute, as a followed cluster is.
"""

from __future__ import annotations

import sys
from datetime import datetime, timedelta
from pathlib import Path

import uvloop
from sqlalchemy import text

from app import installation
from app.collect.importer import Import
from app.collect.inputs import survey
from app.commands.evaluate_cases import scratch
from app.correlate import suspect
from app.settings import load

EVERY = timedelta(minutes=1)
CLUSTER = "quiet"


async def look(dsn: str, folder: Path, *, now: datetime) -> None:
    """Prints what was suspected when, and of how many looks that was."""
    async with scratch(dsn) as engine:
        inputs = list(survey([str(folder)]).inputs)
        report = await Import(engine, CLUSTER, now=now, progress=lambda *_: None).run(inputs)
        async with engine.connect() as conn:
            began: datetime | None = (await conn.execute(text("SELECT min(at) FROM call_minutes"))).scalar()
        if began is None or report.to_at is None:
            raise SystemExit(f"{folder}: no audit log was imported: {'; '.join(report.problems)}")
        at, looks, opened = began + EVERY, 0, 0
        while at <= report.to_at:
            looks += 1
            if found := await suspect(engine, CLUSTER, at):
                opened += found.resolved_at is None
                print(f"{at:%H:%M} {found.title}{' is over' if found.resolved_at else ''}")
            at += EVERY
        print(f"{folder}: {opened} suspected in {looks} minutes")


def main() -> None:
    with installation.postgres(load(), migrated=False) as server:
        for folder in sys.argv[1:]:
            uvloop.run(look(server.dsn, Path(folder), now=installation.now()))


if __name__ == "__main__":
    main()
