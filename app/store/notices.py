"""Which changes a channel of Slack is told of, in which message, and when each message is seen to next.

``arrivals`` says what was recorded since; what of it a channel is told becomes a notice in the transaction that notes
how far arrivals were seen to, so that a kill loses nothing and repeats nothing. What a notice shows is made of its
changes, and of the rollouts that they began, as these are when it is looked at.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import Row, and_, case, delete, func, insert, not_, or_, select, tuple_, update
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.ext.asyncio import AsyncConnection

from app.core.model import Change, Resource, parse_change_id
from app.core.targets import is_target
from app.store import audit, outbox
from app.store.arrivals import Arrival, Place, Places
from app.store.audit import Action
from app.store.slack_tables import messages, muted, noticed, notices, routed
from app.store.tables import changes, clusters, kinds, objects, words

SETTLES = timedelta(seconds=2)
"""So long a new notice waits: for the rollout that its change begins, and for others that come with it."""
EDITS = timedelta(seconds=5)
"""So long lies between two edits of one message."""
BURST = timedelta(minutes=1)
"""What comes within it of each other is a burst."""
APART = 3
"""Messages of a burst that stand by themselves; more of it go into one digest."""
AT_ONCE = 200
"""Notices that are looked at in one go."""
READ = 200
"""Changes of a digest that are read, the first ones: of the others it tells how many they are."""
LONGEST = timedelta(minutes=30)
"""After it a burst that goes on has another digest."""
_n, _d = notices.c, noticed.c
_UNTOLD = and_(
    _n.digest,
    _n.wanted == "",
    select(messages.c.id)
    .where(messages.c.notice_id == _n.id, messages.c.part == 0, messages.c.ts.is_(None))
    .correlate(notices)
    .exists(),
)
"""Of digests, those that nobody looked at yet: they gather what is to come together, or are held back."""


@dataclass(frozen=True, slots=True)
class Notice:
    """One message of a channel. ``arrived`` are its changes, the oldest first, of which the last came at ``joined_at``;
    in a ``digest`` there may be ``more`` than READ. ``reach`` are the workloads that a single change reached when first
    looked at, None before; ``followed`` are the lines that its thread was told of."""

    id: int
    channel: str
    opened_at: datetime
    joined_at: datetime
    look_at: datetime | None
    digest: bool
    reach: tuple[str, ...] | None
    followed: frozenset[str]
    arrived: tuple[Arrival, ...]
    more: int = 0


async def read_places(conn: AsyncConnection) -> dict[int, Place]:
    """Up to which arrival of each cluster routing has come; nothing where nothing was ever routed."""
    found = await conn.execute(select(routed.c.cluster_id, routed.c.number, routed.c.told))
    return {cluster_id: Place(number, told) for cluster_id, number, told in found}


async def write_places(conn: AsyncConnection, places: Places) -> None:
    """Notes up to which arrivals routing has come."""
    if not places:
        return
    row = upsert(routed)
    rows = [{"cluster_id": number, "number": place.number, "told": place.told} for number, place in places.items()]
    new = {"number": row.excluded.number, "told": row.excluded.told}
    await conn.execute(row.on_conflict_do_update(index_elements=["cluster_id"], set_=new), rows)


async def forget_places(conn: AsyncConnection) -> None:
    """Routing begins anew, with what arrives from then on."""
    await conn.execute(delete(routed))


async def tell(
    conn: AsyncConnection,
    channel: str,
    told: Sequence[tuple[Arrival, Change]],
    *,
    held_until: datetime | None,
    now: datetime,
) -> None:
    """The channel is told of these changes: each by itself, or in a digest where many come at once.

    ``held_until``: not before then, and all together. What it is told of already it is not told again.
    """
    known = select(_d.cluster_id, _d.at, _d.version_key).where(
        _d.channel == channel,
        tuple_(_d.cluster_id, _d.at, _d.version_key).in_([(one.cluster_id, one.at, one.key) for one, _ in told]),
    )
    already = set(map(tuple, await conn.execute(known)))
    fresh = [both for both in told if (both[0].cluster_id, both[0].at, both[0].key) not in already]
    if not fresh:
        return
    edits = not is_target(channel)
    digest = await _open_digest(conn, channel, held_until=held_until, edits=edits, now=now)
    if digest is None and held_until is None:
        lately = select(func.count()).where(_n.channel == channel, _n.opened_at > now - BURST)
        if (await conn.execute(lately)).scalar_one() + len(fresh) <= APART:
            for both in fresh:
                alone = await _open(conn, channel, both[1], digest=False, look_at=now + SETTLES, now=now)
                await _join(conn, channel, alone, [both])
            return
    if digest is None:
        look_at = held_until or now + (SETTLES if edits else BURST)
        digest = await _open(conn, channel, fresh[0][1], digest=True, look_at=look_at, now=now)
    else:
        soon = func.coalesce(func.least(_n.look_at, now + EDITS), now + EDITS)
        look_at_now = {"look_at": soon} if held_until is None and edits else {}
        joined = {"joined_at": now, **look_at_now}
        await conn.execute(update(notices).where(_n.id == digest).values(joined))
    await _join(conn, channel, digest, fresh)


async def _open_digest(
    conn: AsyncConnection, channel: str, *, held_until: datetime | None, edits: bool, now: datetime
) -> int | None:
    """The digest that takes more: of the burst that goes on, or the one that is held back for as long. Of a place that
    ``edits`` nothing a burst is gathered for BURST, and then told."""
    later = and_(_UNTOLD, _n.look_at > now + SETTLES)
    if held_until is not None:
        goes_on = and_(_UNTOLD, _n.look_at == held_until)
    elif edits:
        goes_on = and_(_n.joined_at > now - BURST, _n.opened_at > now - LONGEST, later.is_not(True))
    else:
        goes_on = and_(later, _n.look_at <= now + BURST)
    which = select(_n.id).where(_n.channel == channel, _n.digest, goes_on).order_by(_n.id.desc()).limit(1)
    found: int | None = (await conn.execute(which)).scalar()
    return found


async def _open(
    conn: AsyncConnection, channel: str, first: Change, *, digest: bool, look_at: datetime, now: datetime
) -> int:
    fixed = {"channel": channel, "title": (first.summary or str(first.resource))[:200], "digest": digest}
    row = insert(notices).values(**fixed, opened_at=now, joined_at=now, look_at=look_at)
    number: int = (await conn.execute(row.returning(_n.id))).scalar_one()
    await outbox.owe(conn, channel, notice_id=number, now=now)
    return number


async def _join(conn: AsyncConnection, channel: str, number: int, told: Sequence[tuple[Arrival, Change]]) -> None:
    rows = [
        {"channel": channel, "cluster_id": one.cluster_id, "at": one.at, "version_key": one.key, "notice_id": number}
        for one, _ in told
    ]
    await conn.execute(insert(noticed), rows)


async def read_due(conn: AsyncConnection, *, now: datetime) -> list[Notice]:
    """The notices that are to be looked at now, those that wait longest first. Two queries."""
    due = select(notices).where(_n.look_at <= now).order_by(_n.look_at, _n.id).limit(AT_ONCE)
    found = (await conn.execute(due)).all()
    of = await _arrived(conn, [row.id for row in found]) if found else {}
    return [_notice(row, *of.get(row.id, ([], 0))) for row in found]


async def read_notice(conn: AsyncConnection, number: int) -> Notice | None:
    """One notice; None where it is gone. Two queries."""
    row = (await conn.execute(select(notices).where(_n.id == number))).first()
    return _notice(row, *(await _arrived(conn, [number])).get(number, ([], 0))) if row else None


def _notice(row: Row[tuple[object, ...]], arrived: Sequence[Arrival], count: int) -> Notice:
    return Notice(
        row.id,
        row.channel,
        row.opened_at,
        row.joined_at,
        row.look_at,
        row.digest,
        None if row.reach is None else tuple(row.reach),
        frozenset(row.followed),
        tuple(arrived),
        max(0, count - len(arrived)),
    )


async def _arrived(conn: AsyncConnection, numbers: Sequence[int]) -> dict[int, tuple[list[Arrival], int]]:
    """The first READ changes of each notice, and how many there are."""
    each = select(
        noticed,
        func.row_number().over(partition_by=_d.notice_id, order_by=(_d.at, _d.version_key)).label("place"),
        func.count().over(partition_by=_d.notice_id).label("count"),
    )
    one = each.where(_d.notice_id.in_(numbers)).subquery("each").c
    query = (
        select(one.notice_id, one.count, one.cluster_id, clusters.c.name, one.at, one.version_key)
        .join(clusters, clusters.c.id == one.cluster_id)
        .where(one.place <= READ)
        .order_by(one.at, one.version_key)
    )
    found: dict[int, tuple[list[Arrival], int]] = {}
    for number, count, cluster_id, cluster, at, key in await conn.execute(query):
        arrived, _ = found.setdefault(number, ([], count))
        arrived.append(Arrival(cluster_id, Place(), cluster, at, key))
    return found


async def keep_reach(conn: AsyncConnection, number: int, reach: Sequence[str]) -> None:
    """Keeps what a notice's change reaches: looked up once, for it takes reading all that is beside it."""
    await conn.execute(update(notices).where(_n.id == number).values(reach=list(reach)))


async def looked(
    conn: AsyncConnection, notice: Notice, version: str, *, again_at: datetime | None, followed: Collection[str] = ()
) -> None:
    """Notes that it is to show ``version``, and when it is looked at again (None: never)."""
    shown = select(messages.c.shown["version"].astext).where(messages.c.notice_id == notice.id, messages.c.part == 0)
    differs = shown.scalar_subquery().is_distinct_from(version)
    wanted = version if (await conn.execute(select(differs))).scalar_one() else ""
    was_woken = _n.look_at.is_distinct_from(notice.look_at)  # since it was read
    look_at = case((was_woken, func.least(_n.look_at, again_at)), else_=again_at)
    news = {"look_at": look_at, "followed": sorted({*notice.followed, *followed}), "wanted": wanted}
    await conn.execute(update(notices).where(_n.id == notice.id).values(news))


async def wake(conn: AsyncConnection, cluster_id: int, began: Collection[str], *, at: datetime) -> None:
    """Has notices looked at from ``at`` on whose changes ``began`` what was over, and goes on or was taken back."""
    keys = [key for _, key in map(parse_change_id, began)]  # an id holds no more of a time than milliseconds
    own = select(_d.notice_id).where(_d.cluster_id == cluster_id, _d.version_key.in_(keys))
    fresh = _n.opened_at > at - outbox.KEPT
    await conn.execute(update(notices).where(_n.id.in_(own), fresh).values(look_at=func.least(_n.look_at, at)))


async def told_in(conn: AsyncConnection, channel: str, ts: str) -> tuple[Resource, ...]:
    """The object of which a message of Slack tells, two of them where it tells of several; none where it tells of no
    change."""
    query = (
        select(clusters.c.name, kinds.c.api_group, kinds.c.kind, words.c.word, objects.c.name)
        .select_from(messages)
        .join(noticed, _d.notice_id == messages.c.notice_id)
        .join(changes, and_(*(changes.c[name] == _d[name] for name in ("cluster_id", "at", "version_key"))))
        .join(objects, objects.c.id == changes.c.object_id)
        .join(kinds, kinds.c.id == objects.c.kind_id)
        .join(clusters, clusters.c.id == _d.cluster_id)
        .outerjoin(words, words.c.id == objects.c.namespace_id)
        .where(messages.c.channel == channel, messages.c.ts == ts, messages.c.notice_id.is_not(None))
        .distinct()
        .limit(2)
    )
    return tuple(Resource(*row) for row in await conn.execute(query))


async def is_of_incident(conn: AsyncConnection, channel: str, ts: str) -> bool:
    """Whether a message of Slack tells of an incident."""
    m = messages.c
    query = select(m.id).where(m.channel == channel, m.ts == ts, m.incident_id.is_not(None)).limit(1)
    return (await conn.execute(query)).first() is not None


@dataclass(frozen=True, slots=True)
class Mute:
    """What a channel is not told of until then: all, or what is of a cluster and in a namespace ("" stands for any); or
    one object, where ``name`` and ``kind`` are said: then nothing stands for any."""

    channel: str
    cluster: str
    namespace: str
    name: str
    until: datetime
    said_by: str
    api_group: str = ""
    kind: str = ""

    @classmethod
    def of(cls, channel: str, one: Resource, *, until: datetime, said_by: str) -> Mute:
        """Of one object."""
        return cls(channel, one.cluster, one.namespace or "", one.name, until, said_by, one.api_group, one.kind)

    def covers(self, resource: Resource) -> bool:
        own = Mute.of(self.channel, resource, until=self.until, said_by=self.said_by)
        if self.name:
            return own == self
        return self.cluster in ("", own.cluster) and self.namespace in ("", own.namespace)


async def mute(conn: AsyncConnection, what: Mute, *, now: datetime, reaction: str = "") -> None:
    """Mutes it; what is muted already is then muted until the new time. ``reaction`` tells the one that does so from
    others."""
    key = _key(what)
    news = {"until": what.until, "said_by": what.said_by, "said_at": now}
    row = upsert(muted).values(key | news | {"reactions": [reaction] if reaction else []})
    besides = func.array_append(func.array_remove(muted.c.reactions, reaction), reaction)
    held = case((muted.c.until > now, besides), else_=row.excluded.reactions) if reaction else row.excluded.reactions
    await conn.execute(row.on_conflict_do_update(index_elements=list(key), set_={**news, "reactions": held}))
    await audit.note(
        conn, Action.MUTED, f"{_named(what)} until {what.until:%Y-%m-%d %H:%M} UTC", by=what.said_by, now=now
    )


async def unmute(conn: AsyncConnection, what: Mute, *, now: datetime) -> int:
    """Ends what is muted in a channel: one object, or all that is of its cluster and in its namespace. How many that
    were, without those that were over; ``what`` says by whom, its ``until`` counts for nothing."""
    own = [muted.c[name] == value for name, value in _key(what).items() if value or what.name]
    gone = await conn.execute(delete(muted).where(*own).returning(muted.c.until))
    ended = len([until for until in gone.scalars() if until > now])
    if ended:
        await audit.note(conn, Action.UNMUTED, _named(what), by=what.said_by, now=now)
    return ended


async def take_back(conn: AsyncConnection, what: Mute, *, now: datetime, reaction: str) -> None:
    """Takes one reaction away: with the last of them what is muted ends, as by ``unmute``."""
    of_it = [muted.c[name] == value for name, value in _key(what).items()]
    left = func.array_remove(muted.c.reactions, reaction)
    found = await conn.execute(update(muted).where(*of_it).values(reactions=left).returning(muted.c.reactions))
    if not any(found.scalars()):
        await unmute(conn, what, now=now)


def _key(what: Mute) -> dict[str, str]:
    """What of a mute tells it from others."""
    return {
        "channel": what.channel,
        "cluster": what.cluster,
        "namespace": what.namespace,
        "name": what.name,
        "api_group": what.api_group,
        "kind": what.kind,
    }


def _named(what: Mute) -> str:
    return "/".join(filter(None, (what.channel, what.cluster, what.namespace, what.kind, what.name)))


async def read_mutes(conn: AsyncConnection, *, now: datetime) -> list[Mute]:
    """What is muted now, what ends first before the others."""
    c = muted.c
    columns = (c.channel, c.cluster, c.namespace, c.name, c.until, c.said_by, c.api_group, c.kind)
    return [Mute(*row) for row in await conn.execute(select(*columns).where(c.until > now).order_by(c.until))]


async def drop_muted(conn: AsyncConnection, *, now: datetime) -> None:
    """Takes out of what was held back, and is to be told now, what was muted meanwhile. Two statements."""
    due = and_(_UNTOLD, _n.look_at <= now)
    c, namespace = muted.c, func.coalesce(words.c.word, "")
    own = and_(c.name == objects.c.name, c.api_group == kinds.c.api_group, c.kind == kinds.c.kind)
    whole = and_(clusters.c.name == c.cluster, namespace == c.namespace)
    wide = and_(c.name == "", c.cluster.in_(["", clusters.c.name]), c.namespace.in_(["", namespace]))
    covered = (
        select(_d.channel, _d.cluster_id, _d.at, _d.version_key)
        .select_from(notices)
        .join(noticed, _d.notice_id == _n.id)
        .join(muted, and_(c.channel == _d.channel, c.until > now))
        .join(changes, and_(*(changes.c[name] == _d[name] for name in ("cluster_id", "at", "version_key"))))
        .join(objects, objects.c.id == changes.c.object_id)
        .join(kinds, kinds.c.id == objects.c.kind_id)
        .join(clusters, clusters.c.id == _d.cluster_id)
        .outerjoin(words, words.c.id == objects.c.namespace_id)
        .where(due, or_(wide, and_(own, whole)))
    )
    which = tuple_(_d.channel, _d.cluster_id, _d.at, _d.version_key)
    if (await conn.execute(delete(noticed).where(which.in_(covered)))).rowcount:
        is_empty = not_(select(_d.notice_id).where(_d.notice_id == _n.id).correlate(notices).exists())
        await conn.execute(delete(notices).where(due, is_empty))


async def forget(conn: AsyncConnection, now: datetime) -> None:
    """Deletes what is kept up to date no more, and what is muted no more."""
    await conn.execute(delete(notices).where(_n.opened_at < now - outbox.KEPT))
    await conn.execute(delete(muted).where(muted.c.until <= now))
