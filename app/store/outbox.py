"""What Slack is still to be told: an incident, or a notice of changes, is its own outbox row.

What its message shows is kept beside it, so whoever changes an incident, ranks it or says something of it owes Slack
nothing more in that transaction: what differs from what is shown is due. Nothing is lost by a kill, and a burst of
changes becomes one edit. What a notice is to show is found by store/notices.py.

A target (core/targets.py) stands in the place of a channel. What it was told is not edited: it is told once more where
that matters, and what it is sent is sealed before it is sent for the first time (Letter).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import msgspec
from msgspec import Struct
from sqlalchemy import (
    ColumnElement,
    Text,
    Update,
    and_,
    bindparam,
    case,
    delete,
    func,
    insert,
    literal,
    or_,
    select,
    text,
    update,
)
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.ext.asyncio import AsyncConnection

from app.core.targets import is_target
from app.store import slack_tables, tables

BEFORE = timedelta(hours=1)
"""What began so long before a channel was named is told there, too: it may be what Foreshock was installed for."""
LATEST = timedelta(days=1)
"""What began longer ago is told no more; what was told is kept up to date for KEPT."""
KEPT = timedelta(days=7)
UNRANKED = timedelta(seconds=15)
"""So long the message waits for the first ranking."""
CLAIM = timedelta(seconds=30)
"""For so long a message is its sender's alone; longer than Slack is waited for."""
IN_ORDER = 5
"""So often what a target does not answer is tried before what comes after it is sent, too: some five minutes."""
EACH = timedelta(seconds=1)
"""Slack takes one message a second in a channel (https://docs.slack.dev/apis/web-api/rate-limits/)."""
EDIT, LOOK, LOOK_IN_THREAD = "chat.update", "conversations.history", "conversations.replies"
OF_WORKSPACE = frozenset({EDIT, LOOK, LOOK_IN_THREAD})
"""Methods of Slack's that it limits for all channels together, 50 times a minute each (the same page, tier 3). How long
one rests stands among the channels, by its name."""
REFUSED_FOR, TAKEN_UP = timedelta(minutes=1), timedelta(days=1)
"""What was refused for its place is tried again once something is taken there: not sooner, so that what is refused for
good costs little, and not later: who was not told for a day is not called for it any more."""
EACH_EDIT, AHEAD = timedelta(seconds=1.5), timedelta(seconds=10)
"""An edit takes so much time of all edits, which may be so far ahead of it: 47 a minute at the most, and those of
incidents come first."""
OLD = f"it began more than {KEPT.days} days ago, and is told no more"
MERGED = "it is part of another incident by now, and is told there"
_NOT_PUT_OFF = {"put_off": "", "put_off_since": None}
_channels, _messages = slack_tables.channels, slack_tables.messages
_m = _messages.c
GIVEN_UP = and_(_m.error != "", ~_m.dismissed)
"""Of messages those that wait for somebody."""

_NEW = text("""
    SELECT i.id AS incident_id, c.name AS cluster, i.severity, i.scope, i.started_at
    FROM incidents i JOIN clusters c ON c.id = i.cluster_id
    WHERE i.started_at > :latest AND i.status <> 'merged' AND (i.status <> 'suspected' OR :suspected)
        AND (i.ranked_at IS NOT NULL OR i.news_at <= :unranked)
        AND NOT EXISTS (SELECT FROM slack_messages m WHERE m.incident_id = i.id)
""")
_DUE_WHERE = r"""
    WITH incident_due AS (
        SELECT m.id, v.version, i.started_at
        FROM incidents i
        JOIN slack_messages m ON m.incident_id = i.id AND m.part = 0
        CROSS JOIN LATERAL (
            SELECT md5(concat_ws(E'\n', i.status, i.title, i.severity, extract(epoch FROM i.started_at), i.merged_into,
                extract(epoch FROM i.resolved_at), extract(epoch FROM i.ranked_at), i.scope, (
                    SELECT string_agg(
                        concat_ws(' ', s.change_id, s.opinion, s.said_by), ',' ORDER BY s.change_id, s.said_at)
                    FROM (SELECT i.id UNION ALL SELECT p.id FROM incidents p WHERE p.merged_into = i.id) said_of
                    JOIN verdicts s ON s.incident_id = said_of.id
                ))) AS version
        ) v
        WHERE i.started_at > :kept AND (i.status <> 'suspected' OR :suspected)
            AND (m.ts IS NOT NULL OR i.status <> 'merged')
            AND m.shown ->> 'version' IS DISTINCT FROM v.version AND {which}
    ), due AS (
        SELECT id, version, 0 AS urgency, started_at AS since FROM incident_due
        UNION ALL
        SELECT m.id, n.wanted, CASE WHEN m.ts IS NULL THEN 1 ELSE 3 END,
            CASE WHEN m.ts IS NULL THEN n.opened_at ELSE m.not_before END
        FROM slack_notices n
        JOIN slack_messages m ON m.notice_id = n.id AND m.part = 0
        WHERE n.wanted <> '' AND {which}
        UNION ALL
        SELECT m.id, '', CASE WHEN m.notice_id IS NULL THEN 0 ELSE 2 END, coalesce(i.started_at, p.not_before)
        FROM slack_messages m
        JOIN slack_messages p ON p.part = 0
            AND (p.incident_id = m.incident_id AND p.channel = m.channel OR p.notice_id = m.notice_id)
        LEFT JOIN incidents i ON i.id = m.incident_id
        WHERE m.part > 0 AND m.ts IS NULL AND p.ts IS NOT NULL AND {which}
            AND NOT EXISTS (
                SELECT FROM slack_messages e
                WHERE (e.incident_id = m.incident_id AND e.channel = m.channel OR e.notice_id = m.notice_id)
                    AND e.part BETWEEN 1 AND m.part - 1 AND e.ts IS NULL AND e.error = ''
                    AND NOT (e.channel ~ '^[a-z]' AND e.attempts > :in_order)
            )
    )
"""
DUE = _DUE_WHERE.format(which="true")
"""What is to be sent, by the ids of messages, whether or not it is given up: only that waits."""
DUE_PUT_OFF = _DUE_WHERE.format(which="m.put_off_since IS NOT NULL")
"""Of that what is tried in vain: it is looked for often, and mostly there is little of it."""
_DUE = text(f"""
{DUE}
    SELECT m.*, p.ts AS thread_ts, due.version, of.method
    FROM due
    JOIN slack_messages m ON m.id = due.id
    JOIN slack_channels c ON c.id = m.channel AND c.quiet_until <= :now AND c.off = ''
    CROSS JOIN LATERAL (SELECT CASE
        WHEN :to_targets OR m.ts IS NULL AND m.trying_since IS NULL THEN ''
        WHEN m.ts IS NOT NULL THEN :edit
        WHEN m.part = 0 THEN :look
        ELSE :look_in_thread
    END AS method) of
    LEFT JOIN slack_messages p ON m.part > 0 AND p.part = 0
        AND (p.incident_id = m.incident_id AND p.channel = m.channel OR p.notice_id = m.notice_id)
    WHERE m.error = '' AND m.not_before <= :now AND (m.channel ~ '^[a-z]') = :to_targets
        AND NOT EXISTS (SELECT FROM slack_channels r WHERE r.id = of.method AND r.quiet_until > :ahead)
    ORDER BY due.urgency, due.since, m.incident_id, m.notice_id, m.part
    LIMIT 1
    FOR UPDATE OF c SKIP LOCKED
""")  # noqa: S608 - it is made of words of our own
"""Incidents first, then what is new, then what was said of it, then what was told longest ago. Who claims a message
holds its channel: another process takes none of that meanwhile, and sees that it is too soon afterwards."""

_SETTLE = text(f"""
    {DUE_PUT_OFF}
    UPDATE slack_messages m SET put_off = '', put_off_since = NULL, attempts = 0
    WHERE m.put_off_since IS NOT NULL AND NOT EXISTS (SELECT FROM due WHERE due.id = m.id)
""")  # noqa: S608 - it is made of words of our own
_PACE = text("""
    INSERT INTO slack_channels AS c (id, since, quiet_until) VALUES (:edit, :now, :now + :each)
    ON CONFLICT (id) DO UPDATE SET quiet_until = greatest(c.quiet_until, :now) + :each WHERE c.quiet_until <= :ahead
""")
"""Writes nothing where edits are too far ahead of it meanwhile: others claim at the same time."""


class Shown(Struct, frozen=True):
    """What a message shows: the ``version`` of what it is about, its status, what led (a change's id, NONE, ""), of a
    digest the ids of the changes whose rollouts did not end well, and of an incident's the digest of what was ``made``
    of all that ("": not known)."""

    version: str
    status: str
    leader: str = ""
    failed: tuple[str, ...] = ()
    made: str = ""


class Letter(Struct, frozen=True):
    """What a target is sent: made once, so that it is the same however often it is tried. ``id`` is its own,
    ``body`` what is sent, ``shown`` what the target then knows (None of what follows the first one). ``for_people``:
    the body is a notify.documents.Document, else an event for a program; ``only`` are the addresses that it is still
    owed to (none: all), where others got it."""

    id: str
    made_at: datetime
    body: str
    shown: Shown | None = None
    for_people: bool = False
    only: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Due:
    """A message to be posted (``ts`` None) or edited, claimed by who got it: of an incident, or of a notice.

    ``part`` 0 is its own message, others are replies in its thread (``thread_ts``), which say ``body``.
    ``trying_since``: nobody answered when it was posted then, so it may be there.
    """

    id: int
    incident_id: str | None
    notice_id: int | None
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
        return key_of(self.incident_id, self.notice_id, self.part, self.channel)


def key_of(incident_id: str | None, notice_id: int | None, part: int, channel: str) -> str:
    """The name of a message: what it is of, its place in the thread, and the target, where it is to one."""
    return f"{incident_id or f'n{notice_id}'}/{part}" + (f"@{channel}" if is_target(channel) else "")


async def name_channel(conn: AsyncConnection, channel: str, *, now: datetime) -> datetime:
    """Something is told there from now on; once it is known nothing happens. Since when it is."""
    row = upsert(_channels).values(id=channel, since=now, quiet_until=now).on_conflict_do_nothing()
    since: datetime = (await conn.execute(row.returning(_channels.c.since))).scalar() or (
        await conn.execute(select(_channels.c.since).where(_channels.c.id == channel))
    ).scalar_one()
    return since


async def name_places(conn: AsyncConnection, places: Collection[str], *, now: datetime) -> None:
    """As name_channel, of all these channels and targets at once."""
    new = func.unnest(bindparam("places", list(places), ARRAY(Text))).column_valued("id")
    named = select(new, literal(now), literal(now))
    await conn.execute(upsert(_channels).from_select(["id", "since", "quiet_until"], named).on_conflict_do_nothing())


class New(Struct, frozen=True):
    """An incident that no channel was told of yet."""

    id: str
    cluster: str
    severity: str
    namespaces: tuple[str, ...]
    workloads: tuple[str, ...]
    started_at: datetime

    @classmethod
    def of(cls, row: Any) -> New:
        namespaces, workloads = (tuple(row.scope.get(name) or ()) for name in ("namespaces", "workloads"))
        return cls(row.incident_id, row.cluster, row.severity, namespaces, workloads, row.started_at)


Places = Callable[[AsyncConnection, New], Awaitable[Collection[str]]]
"""Where an incident is told, by the routes of now."""


async def assign(conn: AsyncConnection, places_of: Places, *, suspected: bool, now: datetime) -> None:
    """Gives each new incident the channel and the targets that it is told in. ``suspected`` says whether incidents are,
    that nobody is called for."""
    asked = {"latest": now - LATEST, "unranked": now - UNRANKED, "suspected": suspected}
    since: dict[str, datetime] = {}
    for row in (await conn.execute(_NEW, asked)).all():
        new = New.of(row)
        for channel in await places_of(conn, new):
            if channel not in since:
                since[channel] = await name_channel(conn, channel, now=now)
            if new.started_at >= since[channel] - BEFORE:
                await owe(conn, channel, incident_id=new.id, now=now)


async def owe(
    conn: AsyncConnection, channel: str, *, incident_id: str | None = None, notice_id: int | None = None, now: datetime
) -> None:
    """The channel is to be told of an incident or a notice; where it is already nothing happens."""
    which = {"incident_id": incident_id, "notice_id": notice_id, "part": 0}
    fixed = {"channel": channel, "body": "", "attempts": 0, "not_before": now, "error": ""}
    await conn.execute(upsert(_messages).values(**which, **fixed).on_conflict_do_nothing())


def due_at(now: datetime, *, suspected: bool) -> dict[str, object]:
    """What DUE asks for."""
    return {"suspected": suspected, "kept": now - KEPT, "in_order": IN_ORDER}


async def claim(conn: AsyncConnection, *, to_targets: bool, suspected: bool, now: datetime) -> Due | None:
    """What is to be sent next to Slack, or to a target, which is the caller's for CLAIM; None where nothing is due, or
    it is too soon. In its place nothing else is claimed meanwhile, unless the caller lets it ``rest`` for less."""
    asked = {"to_targets": to_targets, "now": now, "ahead": now + AHEAD, **due_at(now, suspected=suspected)}
    asked |= {"edit": EDIT, "look": LOOK, "look_in_thread": LOOK_IN_THREAD}
    row = (await conn.execute(_DUE, asked)).one_or_none()
    if row is None:
        return None
    pace = {"edit": EDIT, "now": now, "ahead": now + AHEAD, "each": EACH_EDIT}
    if row.method == EDIT and not (await conn.execute(_PACE, pace)).rowcount:
        return None
    due = Due(
        id=row.id,
        incident_id=row.incident_id,
        notice_id=row.notice_id,
        part=row.part,
        channel=row.channel,
        ts=row.ts,
        thread_ts=row.thread_ts,
        body=row.body,
        shown=msgspec.convert(row.shown, Shown | None),
        trying_since=row.trying_since,
        attempts=row.attempts,
        version=row.version,
    )
    mine = {"not_before": now + CLAIM, "attempts": due.attempts + 1}
    if due.ts is None:
        mine["trying_since"] = due.trying_since or now
    await conn.execute(_this(due, **mine))
    await rest(conn, due.channel, now + CLAIM)
    return due


async def rest_all(conn: AsyncConnection, method: str, until: datetime, *, now: datetime) -> None:
    """A method OF_WORKSPACE is not called until then, in no channel."""
    await name_channel(conn, method, now=now)
    await rest(conn, method, until + AHEAD)


async def rest(conn: AsyncConnection, channel: str, until: datetime) -> None:
    """Nothing is sent to the channel until then."""
    await conn.execute(update(_channels).where(_channels.c.id == channel).values(quiet_until=until))


async def bound(conn: AsyncConnection, longest: timedelta, *, now: datetime) -> None:
    """Nothing rests for longer than that from now on: what would was told by a clock that was ahead, and rests for
    CLAIM, within which is over what is being sent."""
    for table, until in ((_channels, _channels.c.quiet_until), (_messages, _m.not_before)):
        await conn.execute(update(table).where(until > now + longest).values({until: now + CLAIM}))


def _this(due: Due, **values: object) -> Update:
    return update(_messages).where(_m.id == due.id).values(**values)


async def sent(conn: AsyncConnection, due: Due, ts: str, *, shown: Shown, reply: str, now: datetime) -> None:
    """It is there as ``ts``, and shows that; where ``reply`` is not empty it is to follow in the thread."""
    kept = None if due.part else msgspec.to_builtins(shown)
    done = {"ts": ts, "shown": kept, "trying_since": None, "attempts": 0, "not_before": now, "error": ""}
    await conn.execute(_this(due, **done, **_NOT_PUT_OFF))
    if due.notice_id is not None and not due.part and shown.version:
        notices = slack_tables.notices
        # What was wanted when it was claimed is met, but not what a look found meanwhile; a letter may be of long ago.
        met = [shown.version] if is_target(due.channel) and due.ts is None else [shown.version, due.version]
        done_with = update(notices).where(notices.c.id == due.notice_id, notices.c.wanted.in_(met))
        await conn.execute(done_with.values(wanted=""))
    if reply:
        await say(conn, due.channel, reply, incident_id=due.incident_id, notice_id=due.notice_id, now=now)


async def say(
    conn: AsyncConnection,
    channel: str,
    reply: str,
    *,
    incident_id: str | None = None,
    notice_id: int | None = None,
    now: datetime,
) -> None:
    """``reply`` is to be said in the thread of an incident's message, or a notice's."""
    thread = and_(_m.incident_id == incident_id, _m.channel == channel) if incident_id else _m.notice_id == notice_id
    last = select(func.max(_m.part)).where(thread).scalar_subquery()
    which = {"incident_id": incident_id, "notice_id": notice_id, "part": last + 1}
    fixed = {"channel": channel, "body": reply, "attempts": 0, "not_before": now, "error": ""}
    await conn.execute(insert(_messages).values(**which, **fixed))


async def seal(conn: AsyncConnection, due: Due, letter: Letter) -> None:
    """Keeps what a target is sent, in the transaction that claims it."""
    await conn.execute(_this(due, body=msgspec.json.encode(letter).decode()))


async def take_up(conn: AsyncConnection, channel: str, codes: Collection[str], *, now: datetime) -> None:
    """What was given up of incidents in a channel, for one of these codes, is due again."""
    refused = _m.error.regexp_match(rf"\((?:{'|'.join(sorted(codes))})\)$")
    lately = _m.not_before.between(now - TAKEN_UP, now - REFUSED_FOR)
    of_incidents = (_m.channel == channel, _m.incident_id.is_not(None), GIVEN_UP)
    again = update(_messages).where(*of_incidents, refused, lately)
    await conn.execute(again.values(error="", attempts=0, not_before=now))


async def turn_off(conn: AsyncConnection, target: str, why: str) -> None:
    """The target is told nothing more until somebody sends again: what it is owed waits."""
    await conn.execute(update(_channels).where(_channels.c.id == target).values(off=why))


async def read_off(conn: AsyncConnection) -> dict[str, str]:
    """The targets that are told nothing more, each with why."""
    return {row.id: row.off for row in await conn.execute(select(_channels).where(_channels.c.off != ""))}


async def put_off(
    conn: AsyncConnection, due: Due, until: datetime, why: str, *, maybe_there: bool, now: datetime
) -> None:
    """It is tried again then; ``why`` holds no secret, and is kept until it is told. ``maybe_there``: it may have been
    posted; else it was not."""
    since = {} if maybe_there else {"trying_since": due.trying_since}
    waits = {"put_off": why, "put_off_since": func.coalesce(_m.put_off_since, now)}
    await conn.execute(_this(due, not_before=until, **waits, **since))


async def settle(conn: AsyncConnection, *, suspected: bool, now: datetime) -> None:
    """What was put off and is not owed any more, as a verdict that is taken back, is not tried in vain either: what is
    owed next begins anew."""
    await conn.execute(_SETTLE, due_at(now, suspected=suspected))


async def give_up(conn: AsyncConnection, due: Due, error: str, *, gone: bool) -> None:
    """It is not tried again until somebody says so, or it is taken up; ``error`` says why and what to do.

    What is refused is not there, unless an earlier try put it there. What is ``gone`` from Slack would be posted anew;
    who deleted it there does not want it, so it is dismissed.
    """
    anew = {"ts": None, "shown": None, "trying_since": None} if gone else {"trying_since": due.trying_since}
    await conn.execute(_this(due, error=error, dismissed=gone, **anew, **_NOT_PUT_OFF))


async def move(
    conn: AsyncConnection, places_of: Places, *, named: Collection[str], key: str = "", now: datetime
) -> None:
    """What was given up of incidents in a channel of Slack's that is not among those ``named`` any more is owed to the
    ones in which such an incident is told by now: as a new message, where it is not told already. ``key`` as of
    try_again."""
    i, c = tables.incidents.c, tables.clusters.c
    given_up = (
        select(_m.channel, i.id.label("incident_id"), c.name.label("cluster"), i.severity, i.scope, i.started_at)
        .join(tables.incidents, i.id == _m.incident_id)
        .join(tables.clusters, c.id == i.cluster_id)
        .where(GIVEN_UP, over(now) == "", _m.part == 0, _m.channel.regexp_match("^[CG]"), _m.channel.not_in(named))
        .where(*_named(key))
    )
    for row in (await conn.execute(given_up)).all():
        if channels := [channel for channel in await places_of(conn, New.of(row)) if not is_target(channel)]:
            said = (_m.incident_id == row.incident_id, _m.channel == row.channel)
            await conn.execute(delete(_messages).where(*said))
        for channel in channels:
            await name_channel(conn, channel, now=now)
            await owe(conn, channel, incident_id=row.incident_id, now=now)


async def try_again(conn: AsyncConnection, key: str = "", *, now: datetime) -> int:
    """What was given up is due again, unless it is over: the message of this key, "": all that wait for somebody. How
    many that were."""
    which = _m.error != "" if key else GIVEN_UP
    found = select(_m.id).outerjoin(tables.incidents, tables.incidents.c.id == _m.incident_id)
    sendable = found.where(which, over(now) == "", *_named(key)).correlate(None)
    anew = {"error": "", "dismissed": False, "attempts": 0, "not_before": now}
    again = update(_messages).where(_m.id.in_(sendable)).values(anew)
    on = update(_channels).where(_channels.c.off != "").values(off="", quiet_until=now)
    if key:
        on = on.where(_channels.c.id == key.partition("@")[2])
    await conn.execute(on)
    return (await conn.execute(again)).rowcount


async def forget(conn: AsyncConnection, key: str) -> int:
    """Nobody is to mend any more that the message of this key was given up. How many that were."""
    gone = update(_messages).where(GIVEN_UP, *_named(key)).values(dismissed=True)
    return (await conn.execute(gone)).rowcount


async def why_over(conn: AsyncConnection, key: str, *, now: datetime) -> str:
    """Why the message of this key is not sent any more, whoever asks for it; "" where it may be."""
    found = select(over(now)).outerjoin(tables.incidents, tables.incidents.c.id == _m.incident_id)
    return (await conn.execute(found.select_from(_messages).where(*_named(key)))).scalar() or ""


def over(now: datetime) -> ColumnElement[str]:
    """OLD, or MERGED, for a message beside its incident; "" where it may be sent yet (see DUE)."""
    i, above = tables.incidents.c, _messages.alias("above")
    own = (above.c.incident_id == _m.incident_id, above.c.channel == _m.channel, above.c.part == 0)
    threaded = select(above.c.id).where(*own, above.c.ts.is_not(None)).correlate(_messages).exists()
    untold = or_(and_(_m.part == 0, _m.ts.is_(None)), and_(_m.part > 0, ~threaded))
    old = and_(i.started_at <= now - KEPT, or_(_m.part == 0, ~threaded))
    return case((old, OLD), (and_(i.status == "merged", untold), MERGED), else_="")


def _named(key: str) -> tuple[ColumnElement[bool], ...]:
    """That a message is the one of this key; "": nothing is asked."""
    if not key:
        return ()
    of, _, rest_of = key.partition("/")
    part, _, target = rest_of.partition("@")
    own = _m.notice_id == int(of[1:]) if of.startswith("n") else _m.incident_id == of
    return own, _m.channel == target if target else _m.channel.regexp_match("^[CG]"), _m.part == int(part)
