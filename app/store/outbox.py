"""What Slack is still to be told: an incident is its own outbox row.

What its message shows is kept beside it, so whoever changes an incident, ranks it or says something of it owes Slack
nothing more in that transaction: what differs from what is shown is due. Nothing is lost by a kill, and a burst of
changes becomes one edit.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

import msgspec
from msgspec import Struct
from sqlalchemy import Update, func, insert, select, text, update
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.ext.asyncio import AsyncConnection

from app.store import tables

BEFORE = timedelta(hours=1)
"""What began so long before a channel was named is told there, too: it may be what Foreshock was installed for."""
LATEST = timedelta(days=1)
"""What began longer ago is told no more; what was told is kept up to date for KEPT."""
KEPT = timedelta(days=7)
UNRANKED = timedelta(seconds=15)
"""So long the message waits for the first ranking."""
CLAIM = timedelta(seconds=30)
"""For so long a message is its sender's alone; longer than Slack is waited for."""
EACH = timedelta(seconds=1)
"""Slack takes one message a second in a channel (https://docs.slack.dev/apis/web-api/rate-limits/)."""
_channels, _messages = tables.slack_channels, tables.slack_messages
_m = _messages.c

_DUE = text(r"""
    SELECT i.id, 0 AS part, m.channel, m.ts, NULL AS thread_ts, '' AS body, m.shown, m.trying_since,
        coalesce(m.attempts, 0) AS attempts, v.version, i.started_at
    FROM incidents i
    LEFT JOIN slack_messages m ON m.incident_id = i.id AND m.part = 0
    CROSS JOIN LATERAL (
        SELECT md5(concat_ws(E'\n', i.status, i.title, i.severity, extract(epoch FROM i.started_at), i.merged_into,
            extract(epoch FROM i.resolved_at), extract(epoch FROM i.ranked_at), i.scope, (
                SELECT string_agg(concat_ws(' ', s.change_id, s.opinion, s.said_by), ',' ORDER BY s.change_id)
                FROM verdicts s WHERE s.incident_id = i.id
            ))) AS version
    ) v
    WHERE i.started_at > :kept AND (i.status <> 'suspected' OR :suspected)
        AND m.shown ->> 'version' IS DISTINCT FROM v.version
        AND CASE WHEN m.incident_id IS NULL THEN
            :channel = :named AND i.started_at > :latest AND i.started_at >= :since AND i.status <> 'merged'
            AND (i.ranked_at IS NOT NULL OR i.news_at <= :unranked)
        ELSE m.channel = :channel AND m.error = '' AND m.not_before <= :now END
    UNION ALL
    SELECT m.incident_id, m.part, m.channel, m.ts, p.ts, m.body, m.shown, m.trying_since, m.attempts, '', i.started_at
    FROM slack_messages m
    JOIN slack_messages p ON p.incident_id = m.incident_id AND p.part = 0
    JOIN incidents i ON i.id = m.incident_id
    WHERE m.part > 0 AND m.channel = :channel AND m.ts IS NULL AND p.ts IS NOT NULL AND m.error = ''
        AND m.not_before <= :now
        AND NOT EXISTS (
            SELECT FROM slack_messages e
            WHERE e.incident_id = m.incident_id AND e.part BETWEEN 1 AND m.part - 1 AND e.ts IS NULL AND e.error = ''
        )
    ORDER BY started_at, id, part
    LIMIT 1
""")


class Shown(Struct, frozen=True):
    """What a message shows: the incident's ``version``, its status, and what led (a change's id, NONE, "" before)."""

    version: str
    status: str
    leader: str = ""


@dataclass(frozen=True, slots=True)
class Due:
    """A message to be posted (``ts`` None) or edited, claimed by who got it.

    ``part`` 0 is the incident's own, others are replies in its thread (``thread_ts``), which say ``body``.
    ``trying_since``: nobody answered when it was posted then, so it may be there.
    """

    incident_id: str
    part: int
    channel: str
    ts: str | None
    thread_ts: str | None
    body: str
    shown: Shown | None
    trying_since: datetime | None
    attempts: int
    version: str

    @property
    def key(self) -> str:
        """What tells the message from all others, in its metadata."""
        return f"{self.incident_id}/{self.part}"


async def name_channel(conn: AsyncConnection, channel: str, *, now: datetime) -> None:
    """Incidents are told there from now on; once it is known nothing happens."""
    await conn.execute(upsert(_channels).values(id=channel, since=now, quiet_until=now).on_conflict_do_nothing())


async def claim(conn: AsyncConnection, named: str, *, suspected: bool, now: datetime) -> Due | None:
    """What is to be sent next, which is the caller's for CLAIM; None where nothing is due, or it is too soon.
    ``suspected`` says whether incidents are, that nobody is called for.

    New incidents go to the channel ``named``, which is known; what was told in others is kept up to date there.
    """
    open_now = select(_channels).where(_channels.c.quiet_until <= now).order_by(_channels.c.quiet_until)
    for channel in (await conn.execute(open_now.with_for_update(skip_locked=True))).all():
        asked = {
            "channel": channel.id,
            "named": named,
            "suspected": suspected,
            "now": now,
            "kept": now - KEPT,
            "latest": now - LATEST,
            "since": channel.since - BEFORE,
            "unranked": now - UNRANKED,
        }
        row = (await conn.execute(_DUE, asked)).one_or_none()
        if row is None:
            continue
        due = Due(
            incident_id=row.id,
            part=row.part,
            channel=channel.id,
            ts=row.ts,
            thread_ts=row.thread_ts,
            body=row.body,
            shown=msgspec.convert(row.shown, Shown | None),
            trying_since=row.trying_since,
            attempts=row.attempts,
            version=row.version,
        )
        await _claimed(conn, due, now=now)
        return due
    return None


async def _claimed(conn: AsyncConnection, due: Due, *, now: datetime) -> None:
    mine = {"not_before": now + CLAIM, "attempts": due.attempts + 1}
    if due.ts is None:
        mine["trying_since"] = due.trying_since or now
    fixed = {"incident_id": due.incident_id, "part": due.part, "channel": due.channel, "body": due.body, "error": ""}
    row = upsert(_messages).values(**fixed, **mine)
    await conn.execute(row.on_conflict_do_update(index_elements=["incident_id", "part"], set_=mine))
    await rest(conn, due.channel, now + EACH)


async def rest(conn: AsyncConnection, channel: str, until: datetime) -> None:
    """Nothing is sent to the channel until then."""
    await conn.execute(update(_channels).where(_channels.c.id == channel).values(quiet_until=until))


def _this(due: Due, **values: object) -> Update:
    return update(_messages).where(_m.incident_id == due.incident_id, _m.part == due.part).values(**values)


async def sent(conn: AsyncConnection, due: Due, ts: str, *, shown: Shown, reply: str, now: datetime) -> None:
    """It is there as ``ts``, and shows that; where ``reply`` is not empty it is to follow in the thread."""
    kept = None if due.part else msgspec.to_builtins(shown)
    done = {"ts": ts, "shown": kept, "trying_since": None, "attempts": 0, "not_before": now, "error": ""}
    await conn.execute(_this(due, **done))
    if reply:
        last = select(func.max(_m.part)).where(_m.incident_id == due.incident_id).scalar_subquery()
        await conn.execute(
            insert(_messages).values(
                incident_id=due.incident_id,
                part=last + 1,
                channel=due.channel,
                body=reply,
                attempts=0,
                not_before=now,
                error="",
            )
        )


async def put_off(conn: AsyncConnection, due: Due, until: datetime, *, maybe_there: bool) -> None:
    """It is tried again then. ``maybe_there``: it may have been posted; else it was not."""
    since = {} if maybe_there else {"trying_since": due.trying_since}
    await conn.execute(_this(due, not_before=until, **since))


async def give_up(conn: AsyncConnection, due: Due, error: str, *, gone: bool) -> None:
    """It is not tried again until somebody says so; ``error`` says why and what to do.

    What is ``gone`` from Slack would be posted anew then.
    """
    anew = {"ts": None, "shown": None, "trying_since": None} if gone else {}
    await conn.execute(_this(due, error=error, **anew))


@dataclass(frozen=True, slots=True)
class Failed:
    """A message that was given up: of which incident, whether a reply, why, and whether it was never posted."""

    incident_id: str
    title: str
    started_at: datetime
    part: int
    channel: str
    error: str
    posted: bool


@dataclass(frozen=True, slots=True)
class Delivery:
    """How messages get through: how many are there, how many of those that were tried still wait, and what failed."""

    there: int
    waiting: int
    failed: tuple[Failed, ...]


async def read_delivery(conn: AsyncConnection, *, limit: int = 100) -> Delivery:
    """The newest ``limit`` failures. Two queries."""
    waiting = _m.error.__eq__("") & (_m.ts.is_(None) | (_m.attempts > 0))
    counted = select(func.count(_m.ts), func.count().filter(waiting))
    there, left = (await conn.execute(counted)).one()
    i = tables.incidents.c
    query = (
        select(i.id, i.title, i.started_at, _m.part, _m.channel, _m.error, _m.ts.is_not(None))
        .join(_messages, _m.incident_id == i.id)
        .where(_m.error != "")
        .order_by(i.started_at.desc(), i.id, _m.part)
        .limit(limit)
    )
    return Delivery(there, left, tuple(Failed(*row) for row in await conn.execute(query)))


async def try_again(conn: AsyncConnection, which: tuple[str, int] | None = None, *, now: datetime) -> int:
    """What was given up is due again: the message of this incident and part, None: all. How many that were."""
    again = update(_messages).where(_m.error != "").values(error="", attempts=0, not_before=now)
    if which is not None:
        again = again.where(_m.incident_id == which[0], _m.part == which[1])
    return (await conn.execute(again)).rowcount
