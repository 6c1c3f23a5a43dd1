"""``foreshock what-changed``: the table of REST's what-changed, straight from the database."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Annotated, Any

import typer
from pydantic import TypeAdapter, ValidationError

from app.core.report import what_changed
from app.store import surroundings, timeline
from app.store.database import check, open_database
from app.web import params, shapes

MOST = 1000


class Output(StrEnum):
    """How the answer is written."""

    TABLE = "table"
    JSON = "json"


def _duration(text: str) -> timedelta:
    found: timedelta = _parsed(params.Duration, text, "30s, 30m, 2h or 1d")
    return found


def _time(text: str) -> datetime:
    found: datetime = _parsed(params.Time, text, "a time with a zone, like 2026-11-21T14:03:00Z")
    return found


def _parsed(kind: Any, text: str, wanted: str) -> Any:
    try:
        return TypeAdapter(kind).validate_python(text)
    except ValidationError:
        raise typer.BadParameter(f"{text!r} is not {wanted}") from None


Minus = Annotated[timedelta, typer.Option(parser=_duration, help="How far back: 30s, 30m, 2h, 1d.", metavar="TIME")]
USUAL = timedelta(minutes=30)
At = Annotated[datetime | None, typer.Option(parser=_time, help="Until when; now when left out.", metavar="TIME")]
Namespace = Annotated[str | None, typer.Option(help="Only this namespace.")]
Cluster = Annotated[str | None, typer.Option(help="Only this cluster.")]
OutputOption = Annotated[Output, typer.Option(help="A table of 20 lines, or everything as JSON.")]


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
    typer.echo(asyncio.run(_answer(dsn, wanted, output)), nl=output is Output.JSON)


async def _answer(dsn: str, wanted: timeline.ChangeFilter, output: Output) -> str:
    from_at, to_at = wanted.from_at, wanted.to_at
    if from_at is None or to_at is None:
        raise ValueError("what changed needs a window with two ends")
    database = open_database(dsn, readers=1, writers=1)
    try:
        await check(database)
        async with database.read.connect() as conn:
            found = await timeline.list_changes(conn, wanted, limit=MOST)
            seen = await surroundings.read_seen(conn, wanted.cluster, from_at=from_at, to_at=to_at)
    finally:
        await database.close()
    if output is Output.JSON:
        answer = shapes.Changes(items=[shapes.Change.of(c) for c in found], next=None, **shapes.context(seen))
        return answer.model_dump_json(indent=2)
    more = " or more" if len(found) == MOST else ""
    return what_changed(found, from_at=from_at, to_at=to_at, gaps=seen.gaps, more=more)
