"""``foreshock what-changed``: the table of REST's what-changed, straight from the database."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import typer
import uvloop

from app.commands.options import Output
from app.core.report import COUNTED, LINES, what_changed
from app.store import search, surroundings, timeline
from app.store.database import check, open_database
from app.web import shapes


def print_what_changed(
    dsn: str,
    *,
    minus: timedelta,
    at: datetime | None,
    namespace: str | None,
    cluster: str | None,
    output: Output,
) -> None:
    """Prints what changed in the ``minus`` before ``at``. Raises DatabaseError when ``dsn`` cannot be read."""
    to_at = at or datetime.now(UTC)
    wanted = timeline.ChangeFilter(cluster=cluster, namespace=namespace, from_at=to_at - minus, to_at=to_at)
    typer.echo(uvloop.run(_answer(dsn, wanted, output)), nl=output is Output.JSON)


async def _answer(dsn: str, wanted: timeline.ChangeFilter, output: Output) -> str:
    from_at, to_at = wanted.from_at, wanted.to_at
    if from_at is None or to_at is None:
        raise ValueError("what changed needs a window with two ends")
    database = open_database(dsn, readers=1, writers=1)
    try:
        await check(database)
        async with database.read.connect() as conn:
            as_json = output is Output.JSON
            found = await timeline.list_changes(conn, wanted, limit=COUNTED if as_json else LINES)
            seen = await surroundings.read_seen(conn, wanted.cluster, from_at=from_at, to_at=to_at)
            if as_json:
                items = [shapes.Change.of(change) for change in found]
                return shapes.Changes(items=items, next=None, **shapes.context(seen)).model_dump_json(indent=2)
            total = await search.count_changes(conn, wanted, most=COUNTED)
            return what_changed(found, from_at=from_at, to_at=to_at, gaps=seen.gaps, total=total)
    finally:
        await database.close()
