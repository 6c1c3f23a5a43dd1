"""``foreshock what-changed``: what REST's what-changed answers, straight from the database."""

from __future__ import annotations

from sqlalchemy.ext.asyncio import AsyncEngine

from app.commands.options import Output
from app.core.changes.report import COUNTED, LINES, what_changed
from app.store import search, timeline
from app.store.seen import read_seen
from app.web import answers, shapes


async def told(engine: AsyncEngine, wanted: timeline.ChangeFilter, output: Output) -> str:
    """What changed in the window of ``wanted``, which has two ends. Raises UnknownClusterError."""
    from_at, to_at = wanted.from_at, wanted.to_at
    if from_at is None or to_at is None:
        raise ValueError("what changed needs a window with two ends")
    async with engine.connect() as conn:
        seen = await read_seen(conn, wanted.cluster, from_at=from_at, to_at=to_at)
        if output is Output.JSON:
            found = await timeline.list_changes(conn, wanted, limit=COUNTED)
            items = [shapes.Change.of(change) for change in found]
            return answers.Changes(items=items, next=None, **answers.context(seen)).model_dump_json(indent=2)
        found = await timeline.list_changes(conn, wanted, limit=LINES)
        total = await search.count_changes(conn, wanted, most=COUNTED)
    table = what_changed(found, from_at=from_at, to_at=to_at, gaps=seen.gaps, total=total, newest=seen.newest)
    return table.rstrip("\n")
