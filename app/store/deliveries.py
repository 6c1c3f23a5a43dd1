"""How what Slack and other targets are told gets through: what is there, what waits and why, and what was given up."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import func, select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.store import outbox, slack_tables, tables

LATE = timedelta(minutes=1)
"""What is tried in vain for so long is said to wait: a shorter while passes by itself."""
_m = slack_tables.messages.c
_LATE = "due.id IS NOT NULL AND m.error = '' AND m.put_off_since <= :late AND c.off = ''"
"""What is turned off is not tried, and says so itself (outbox.read_off)."""
_BY_PLACE = text(f"""
    {outbox.DUE}
    SELECT m.channel, count(m.ts) AS there,
        count(*) FILTER (WHERE due.id IS NOT NULL AND m.error = '' AND (m.ts IS NULL OR m.attempts > 0)) AS waiting,
        count(*) FILTER (WHERE {_LATE}) AS late,
        min(m.put_off_since) FILTER (WHERE {_LATE}) AS since,
        (array_agg(m.put_off ORDER BY m.put_off_since) FILTER (WHERE {_LATE}))[1] AS why
    FROM slack_messages m JOIN slack_channels c ON c.id = m.channel LEFT JOIN due ON due.id = m.id
    GROUP BY m.channel ORDER BY since, m.channel
""")  # noqa: S608 - it is made of words of our own
_UNTOLD = text(f"""
    {outbox.DUE_PUT_OFF}
    SELECT count(*) FILTER (WHERE m.error <> '' AND NOT m.dismissed) AS failed,
        count(*) FILTER (WHERE {_LATE}) AS late,
        min(m.put_off_since) FILTER (WHERE {_LATE}) AS since,
        array_agg(DISTINCT m.channel) FILTER (WHERE {_LATE}) AS places
    FROM slack_messages m JOIN slack_channels c ON c.id = m.channel LEFT JOIN due ON due.id = m.id
    WHERE m.error <> '' AND NOT m.dismissed OR m.put_off_since IS NOT NULL
""")  # noqa: S608


@dataclass(frozen=True, slots=True)
class Failed:
    """A message that was given up: its ``key``, of which incident ("": of changes), whether a reply, why, and whether
    it was never posted. ``began_at`` is when what it tells of did. ``over`` says why it is not sent any more, "" where
    it may be."""

    key: str
    incident_id: str
    title: str
    began_at: datetime
    part: int
    channel: str
    error: str
    posted: bool
    over: str


@dataclass(frozen=True, slots=True)
class Late:
    """Of a channel or a target: how many messages are tried in vain, the oldest since when, and why."""

    channel: str
    messages: int
    since: datetime
    why: str


@dataclass(frozen=True, slots=True)
class Delivery:
    """How messages get through: how many are there, how many wait, which of these for longer than LATE, and what
    failed."""

    there: int
    waiting: int
    late: tuple[Late, ...]
    failed: tuple[Failed, ...]


@dataclass(frozen=True, slots=True)
class Untold:
    """How many messages were given up, and how many are tried in vain: the oldest ``since`` when, and to which
    ``places``. Why is not for everybody: a mail server's words name addresses."""

    failed: int = 0
    late: int = 0
    since: datetime | None = None
    places: tuple[str, ...] = ()


async def read_delivery(conn: AsyncConnection, *, suspected: bool, now: datetime, limit: int = 100) -> Delivery:
    """With the newest ``limit`` failures; ``suspected`` as of outbox.claim. Two queries."""
    asked = {"late": now - LATE, **outbox.due_at(now, suspected=suspected)}
    places = (await conn.execute(_BY_PLACE, asked)).all()
    i, n = tables.incidents.c, slack_tables.notices.c
    began = func.coalesce(i.started_at, n.opened_at)
    title = func.coalesce(i.title, n.title)
    query = (
        select(_m.incident_id, _m.notice_id, title.label("title"), began.label("began_at"), _m.part, _m.channel)
        .add_columns(_m.error, _m.ts.is_not(None).label("posted"), outbox.over(now).label("over"))
        .outerjoin(tables.incidents, _m.incident_id == i.id)
        .outerjoin(slack_tables.notices, _m.notice_id == n.id)
        .where(outbox.GIVEN_UP)
        .order_by(began.desc(), _m.id)
        .limit(limit)
    )
    failed = [
        Failed(outbox.key_of(row.incident_id, row.notice_id, row.part, row.channel), row.incident_id or "", *row[2:])
        for row in await conn.execute(query)
    ]
    return Delivery(
        there=sum(place.there for place in places),
        waiting=sum(place.waiting for place in places),
        late=tuple(Late(place.channel, place.late, place.since, place.why) for place in places if place.late),
        failed=tuple(failed),
    )


async def count_untold(
    conn: AsyncConnection, *, suspected: bool, now: datetime, longer_than: timedelta = LATE
) -> Untold:
    """What was given up, and what is tried in vain for ``longer_than``. One query."""
    asked = {"late": now - longer_than, **outbox.due_at(now, suspected=suspected)}
    row = (await conn.execute(_UNTOLD, asked)).one()
    return Untold(row.failed, row.late, row.since, tuple(row.places or ()))
