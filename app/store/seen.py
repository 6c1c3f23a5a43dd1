"""How far the record reaches, and where it has holes: said with every answer."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cache
from typing import Any

import msgspec
from sqlalchemy import CTE, Row, Select, Text, bindparam, func, literal_column, select, true
from sqlalchemy.ext.asyncio import AsyncConnection

from app.core.clusters import About, alerts_alone, remark, unknown
from app.core.model import Gap
from app.core.record import GIVEN_UP, NEARLY, NO_MORE, unrecorded
from app.core.watching import Followed
from app.failures import Expected
from app.store.collectors import Standing
from app.store.reach import ALERTS, AUDIT_LOG, EXTERNAL, TELL_OF_CHANGES
from app.store.remarks import REMARKED
from app.store.tables import changes, clusters, collectors, gaps, kinds, recorded, remarks

MOST_GAPS = 100
"""The latest gaps that an answer names."""

CLUSTER = bindparam("cluster", type_=Text)
FROM_AT = bindparam("from_at", type_=changes.c.at.type)
TO_AT = bindparam("to_at", type_=changes.c.at.type)
"""What every statement here asks for, so that it is built once: building one costs more than running it."""


class UnknownClusterError(Expected):
    """Nothing is recorded of a cluster of this name; the message names those that are known."""


@dataclass(frozen=True, slots=True)
class Freshness:
    """From when to when changes of a cluster are recorded (None where none ever were), and up to when each source tells
    of it (store/reach.py), the newest first: of alerts it may be later, which says nothing of changes."""

    cluster: str
    sources: Mapping[str, datetime]
    since: datetime | None = None
    remarked: Mapping[About, str] = field(default_factory=dict)
    """What lately came of it that is not as it should be, in words."""

    @property
    def at(self) -> datetime | None:
        return max((at for source, at in self.sources.items() if source in TELL_OF_CHANGES), default=None)


@dataclass(frozen=True, slots=True)
class Seen:
    """How far the record reaches, and where it has holes: said with every answer."""

    freshness: tuple[Freshness, ...]
    gaps: tuple[Gap, ...]
    """Those of the record, and what is not seen right now: that may yet be told, and then is none."""
    kinds: tuple[str, ...]
    unseen: tuple[Gap, ...] = ()
    """What is not seen right now, whatever window was asked for."""
    followed: tuple[Followed, ...] = ()

    @property
    def recorded(self) -> dict[str, datetime]:
        """Up to when a change of each of these clusters would have been seen, of those of which any would."""
        return {one.cluster: one.at for one in self.freshness if one.at is not None}

    def unheard(self, from_at: datetime, to_at: datetime) -> Seen:
        """With what comes after the end of each audit log within a time as a gap: that nobody counted is not that
        nobody called. Where there is no audit log at all, no call is known, and that is said otherwise."""
        ends = {one.cluster: max(one.sources[AUDIT_LOG], from_at) for one in self.freshness if AUDIT_LOG in one.sources}
        why = "the audit log is recorded no further"
        gaps = (Gap(cluster, "", end, to_at, why) for cluster, end in ends.items() if end < to_at - NEARLY)
        others = (gap for gap in self.gaps if gap.why != NO_MORE or gap.cluster not in ends)
        return replace(self, gaps=(*others, *gaps))

    def remarks(self, cluster: str) -> list[str]:
        """What is to be said of what is sent of a cluster: that it is alerts alone, that some of it is lost."""
        followed = {one.cluster for one in self.followed}
        alone = {one.cluster for one in self.freshness if _tells_alerts_alone(one)} - followed
        others = [one.cluster for one in self.freshness if one.cluster not in alone]
        said = [text for one in self.freshness if one.cluster == cluster for text in one.remarked.values()]
        return [*([alerts_alone(cluster, others)] if cluster in alone else []), *said]


def _tells_alerts_alone(fresh: Freshness) -> bool:
    return fresh.sources.keys() - {EXTERNAL} == {ALERTS} or (
        not fresh.sources and fresh.remarked.keys() == {About.ALERTS}
    )


def several(**queries: Select[Any]) -> Select[Any]:
    """Whole results as JSON, one a column: several queries in one round trip."""
    columns = []
    for label, query in queries.items():
        rows = query.subquery(f"of_{label}")
        found = select(func.json_agg(func.row_to_json(literal_column(f"of_{label}")))).select_from(rows)
        columns.append(found.scalar_subquery().label(label))
    return select(*columns)


def mine_of(*, named: bool) -> CTE:
    """The cluster that is asked for, or all."""
    c = clusters.c
    query = select(c.id, c.name)
    return (query.where(c.name == CLUSTER) if named else query).cte("mine")


def fresh(mine: CTE) -> Select[Any]:
    """Up to when each source tells of each cluster, and what is to be said of it."""
    r, m, said = recorded.c, mine.c, remarks.c
    told = select(func.json_object_agg(r.source, r.to_at)).where(r.cluster_id == m.id).scalar_subquery()
    first = select(func.min(r.from_at)).where(r.cluster_id == m.id, r.source.in_(TELL_OF_CHANGES)).scalar_subquery()
    lately = said.at > func.clock_timestamp() - REMARKED
    remarked = select(func.json_object_agg(said.about, func.json_build_array(said.why, said.since, said.at)))
    of = remarked.where(said.cluster_id == m.id, lately).scalar_subquery()
    columns = told.label("sources"), first.label("since"), of.label("remarked")
    return select(m.name, *columns).order_by(m.name)


def followed(mine: CTE) -> Select[Any]:
    """How well each cluster is followed, as the one who follows it said last; those that were given up left out."""
    c = collectors.c
    return (
        select(mine.c.name.label("cluster"), c.holder, c.renewed_at, c.watching, func.clock_timestamp().label("now"))
        .join(mine, mine.c.id == c.cluster_id)
        .where(c.standing != Standing.ENDED.value)
        .order_by(mine.c.name)
    )


def blind(mine: CTE, *, since: bool, until: bool, each: bool = False) -> Select[Any]:
    """The latest gaps, or the latest of ``each`` cluster; those that touch the window, where it has these ends."""
    g = gaps.c
    newest = select(g.kind, g.from_at, g.to_at, g.why).where(g.cluster_id == mine.c.id)
    if since:
        newest = newest.where(g.to_at > FROM_AT)
    if until:
        newest = newest.where(g.from_at < TO_AT)
    of = newest.order_by(g.from_at.desc(), g.kind).limit(MOST_GAPS).lateral("newest")
    query = select(mine.c.name.label("cluster"), of).join(of, true())
    return query if each else query.order_by(of.c.from_at.desc(), mine.c.name, of.c.kind).limit(MOST_GAPS)


@cache
def _how_far(*, named: bool, since: bool, until: bool, each: bool) -> Select[Any]:
    mine = mine_of(named=named)
    known = select(kinds.c.kind).distinct().order_by(kinds.c.kind)
    latest = blind(mine, since=since, until=until, each=each)
    return several(fresh=fresh(mine), blind=latest, followed=followed(mine), known=known)


async def read_seen(
    conn: AsyncConnection,
    cluster: str | None,
    *,
    from_at: datetime | None,
    to_at: datetime | None,
    each: bool = False,
) -> Seen:
    """Freshness, gaps that touch [from_at, to_at) (None leaves a side open), known kinds. One query.

    The gaps are the latest MOST_GAPS, or those of ``each`` cluster. Raises UnknownClusterError.
    """
    values = {"cluster": cluster, "from_at": from_at, "to_at": to_at}
    query = _how_far(named=cluster is not None, since=from_at is not None, until=to_at is not None, each=each)
    row = (await conn.execute(query, {name: one for name, one in values.items() if one is not None})).one()
    seen = seen_of(row, from_at, to_at)
    if cluster is not None and not seen.freshness:
        raise await unknown_cluster(conn, cluster)
    return seen


async def unknown_cluster(conn: AsyncConnection, cluster: str) -> UnknownClusterError:
    """What to raise of a cluster of which nothing is recorded. One query."""
    return UnknownClusterError(unknown(cluster, await conn.scalars(select(clusters.c.name))))


def time_of(text: str) -> datetime:
    """A time as JSON has it: in UTC, as every session is (database.py)."""
    return datetime.fromisoformat(text)


def _sources(found: dict[str, str] | None) -> dict[str, datetime]:
    """The newest first."""
    return dict(
        sorted(((name, time_of(at)) for name, at in (found or {}).items()), key=lambda one: one[1], reverse=True)
    )


def _remarked(found: dict[str, tuple[str, str, str]] | None) -> dict[About, str]:
    """In the order in which they are declared; of each why, since when, when last."""
    told = found or {}
    return {
        about: remark(about, told[about][0], since=time_of(told[about][1]), at=time_of(told[about][2]))
        for about in About
        if about in told
    }


def seen_of(row: Row[Any], from_at: datetime | None, to_at: datetime | None) -> Seen:
    """What the columns fresh, blind, followed and known of a row say."""
    recorded = [
        Gap(found["cluster"], found["kind"], time_of(found["from_at"]), time_of(found["to_at"]), found["why"])
        for found in reversed(row.blind or ())
    ]
    told = row.followed or ()
    followed = tuple(msgspec.convert(found, Followed) for found in told)
    unseen = tuple(gap for one, found in zip(followed, told, strict=True) for gap in one.gaps(time_of(found["now"])))
    within = [gap for gap in unseen if (not from_at or gap.to_at > from_at) and (not to_at or gap.from_at < to_at)]
    freshness = tuple(
        Freshness(
            found["name"],
            _sources(found["sources"]),
            time_of(found["since"]) if found["since"] else None,
            _remarked(found["remarked"]),
        )
        for found in row.fresh or ()
    )
    edges = _edges(freshness, {one.cluster for one in followed}, from_at, to_at)
    return Seen(
        freshness=freshness,
        gaps=tuple(sorted([*recorded, *within, *edges], key=lambda gap: (gap.from_at, gap.cluster, gap.kind))),
        kinds=tuple(found["kind"] for found in row.known or ()),
        unseen=unseen,
        followed=followed,
    )


def _edges(
    freshness: tuple[Freshness, ...], followed: Collection[str], from_at: datetime | None, to_at: datetime | None
) -> Iterator[Gap]:
    """What of a time lies before or after the record of changes. Of a cluster that is followed its collector says how
    far it is; of several, those that were given up are passed over."""
    if from_at is None and to_at is None:
        return
    now = datetime.now(UTC).replace(second=0, microsecond=0)  # two answers of one minute are alike
    until = min(to_at, now) if to_at else now
    for one in freshness:
        ends = until if one.cluster in followed and one.at is not None else one.at
        is_given_up = len(freshness) > 1 and (ends is None or ends < (from_at or until) - GIVEN_UP)
        if not is_given_up:
            yield from unrecorded(one.cluster, one.since, ends, from_at=from_at, to_at=until)
