"""Samples of Prometheus series: appended as they come, read from there and from the blocks that become of them.

A sample is its series' at a millisecond; told twice it is one, and of two values the one told later counts. What
Prometheus marks as stale (core/stale.py) is kept as it came.
"""

from __future__ import annotations

import asyncio
from array import array
from collections import defaultdict
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from operator import attrgetter, itemgetter
from typing import Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.core.counted import NO_CALLS, Calls
from app.core.edges.served import MOST_SERVED, NAMESPACES, SERVED
from app.core.metrics.series_bins import drawn, is_counter
from app.core.model import SLOT_SECONDS, CallKey, MetricSeries
from app.core.onset import Floats
from app.core.screen.aftermath import METRICS, Measured, added_up, told_apart
from app.core.stale import table
from app.store import calls, chunks, codec, partitions, series_keys
from app.store.chunks import Columns
from app.store.copy import copy
from app.store.series_keys import DAY, Key

Line = TypeVar("Line", bound=Hashable)

HOUR = timedelta(hours=1)
HOUR_MS = 3_600_000
MOST_BLOCKS = 2_000
"""Of one reading: of samples every 15 s, full blocks of an hour hold sixty million of them."""
_MILLISECOND = timedelta(milliseconds=1)
_EPOCH, _MONDAY = datetime(1970, 1, 1, tzinfo=UTC), datetime(1970, 1, 5, tzinfo=UTC)
COLUMNS = {"cluster_id": "int4", "at": "timestamptz", "count": "int4", "blocks": "int4[]", "payload": "bytea"}


def milliseconds(at: datetime) -> int:
    """Epoch milliseconds, of a time that may be finer: the last one that is no later."""
    return (at - _EPOCH) // _MILLISECOND


def moment(time: int) -> datetime:
    """The inverse of ``milliseconds``."""
    return _EPOCH + time * _MILLISECOND


def hour_of(at: datetime) -> datetime:
    """The start of the hour (UTC) that holds ``at``: no row of samples spans two of them."""
    return _EPOCH + (at - _EPOCH) // HOUR * HOUR


async def write(conn: AsyncConnection, cluster_id: int, told: Iterable[MetricSeries]) -> int:
    """Appends samples; returns how many were told. Their times are kept to the millisecond, as Prometheus does."""
    batch = [series for series in told if series.times]
    if not batch:
        return 0
    ids = await series_keys.ids(conn, cluster_id, [series_keys.key_of(series) for series in batch])
    lengths = [len(series.times) for series in batch]
    times = np.concatenate([np.array(series.times) for series in batch])
    values = np.concatenate([np.array(series.values, np.float64) for series in batch])
    await append(
        conn, cluster_id, Columns(np.repeat(np.array(ids), lengths), np.rint(times * 1000).astype(np.int64), values)
    )
    return len(times)


async def append(conn: AsyncConnection, cluster_id: int, rows: Columns) -> None:
    """Appends samples of series whose ids are known: one row for each hour that they are of."""
    hours = rows.times // HOUR_MS
    told = [(hour * 3600, rows.where(hours == hour)) for hour in np.unique(hours).tolist()]
    packed = [
        (cluster_id, codec.utc(at), len(part.times), _blocks(part.series), chunks.pack_told(part)) for at, part in told
    ]
    await partitions.ensure(conn, "samples_told", (row[1] for row in packed))
    await copy(conn, "samples_told", COLUMNS, packed)


class TooMuchError(Exception):
    """More is stored of what is asked for than is read at once; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Tier:
    """A table of blocks: of how much time each is, and of which bins it keeps something (None: every sample)."""

    table: str
    stretch: timedelta
    step: timedelta | None

    def start_of(self, at: datetime) -> datetime:
        """The start of the block's stretch that holds ``at``; weeks begin on Mondays."""
        return _MONDAY + (at - _MONDAY) // self.stretch * self.stretch

    def starts(self, start: datetime, end: datetime) -> list[datetime]:
        """The stretches that [start, end] touches, by their starts."""
        first = self.start_of(start)
        return [first + self.stretch * n for n in range(max(0, (end - first) // self.stretch + 1))]


RAW = Tier("samples", HOUR, None)
MINUTE = timedelta(minutes=1)
MINUTES = Tier("samples_minutes", 6 * HOUR, MINUTE)
HOURS = Tier("samples_hours", timedelta(days=7), HOUR)
TIERS = (RAW, MINUTES, HOURS)
"""From the finest to the coarsest, which reaches back the furthest."""

_TOLD = "SELECT number, payload FROM samples_told WHERE cluster_id = :cluster AND at BETWEEN :hour AND :end"
_PACKED = "SELECT 0, payload FROM {table} WHERE cluster_id = :cluster AND at = ANY(CAST(:starts AS timestamptz[]))"
_ALL = {tier: text(f"{_TOLD} UNION ALL {_PACKED.format(table=tier.table)}") for tier in TIERS}
_SOME = {
    tier: text(
        f"{_TOLD} AND blocks && CAST(:blocks AS int[]) UNION ALL {_PACKED.format(table=tier.table)}"
        " AND block = ANY(CAST(:blocks AS int[]))"
    )
    for tier in TIERS
}
"""One statement each, so one snapshot: what compaction moves from the one table to the other is seen in one of them."""
_OF_APPS = "name = ANY(CAST(:apps AS text[])) AND seen_at >= :since"
_NEAR = "labels @> ANY(CAST(:near AS jsonb[]))"
_ABOUT = text(f"""
SELECT id, (SELECT min(at) FROM samples WHERE cluster_id = clusters.id) AS samples,
  (SELECT min(at) FROM samples_minutes WHERE cluster_id = clusters.id) AS samples_minutes,
  (SELECT min(at) FROM samples_hours WHERE cluster_id = clusters.id) AS samples_hours,
  ARRAY(SELECT id FROM series_keys WHERE cluster_id = clusters.id AND name = ANY(CAST(:names AS text[]))) AS named,
  ARRAY(
    SELECT id FROM series_keys
    WHERE cluster_id = clusters.id AND {_OF_APPS} AND {_NEAR} ORDER BY id DESC LIMIT :most
  ) AS near_apps,
  ARRAY(SELECT id FROM series_keys WHERE cluster_id = clusters.id AND {_OF_APPS} ORDER BY id DESC LIMIT :most) AS apps
FROM clusters WHERE name = :cluster
""")  # noqa: S608 - our own text only
"""The cluster, how far back each of TIERS reaches, and the series of these names; of apps the newest in some namespaces
and the newest of all, each by an index: to sort all by both would look into the labels of each of them."""


async def read(
    conn: AsyncConnection,
    cluster: str,
    start: datetime,
    end: datetime,
    *,
    names: Collection[str] | None = None,
    near: Collection[str] | None = None,
    step: timedelta | None = None,
) -> list[MetricSeries]:
    """Every series with samples in [start, end], those samples only; else as read_rows."""
    rows, _, keys = await read_rows(conn, cluster, start, end, names=names, near=near, step=step)
    times_of: dict[bytes, tuple[float, ...]] = {}
    shared: tuple[float, ...] = ()
    last, told = b"", []
    for series_id, part in by_series(rows):
        scraped = rows.times[part].tobytes()
        if scraped != last:  # neighbours are of one target, mostly
            last = scraped
            if scraped not in times_of:
                times_of[scraped] = seconds(rows.times[part])
            shared = times_of[scraped]
        told.append(MetricSeries(*keys[series_id], shared, array("d", rows.values[part].tobytes())))
    return sorted(told, key=attrgetter("name", "labels"))


class Rows(NamedTuple):
    """Samples, sorted by series and time; of each the ``greatest`` of what it stands for, which is itself where every
    sample is there; and what the series are called, among others."""

    rows: Columns
    greatest: Floats
    keys: dict[int, Key]


async def read_rows(
    conn: AsyncConnection,
    cluster: str,
    start: datetime,
    end: datetime,
    *,
    names: Collection[str] | None = None,
    near: Collection[str] | None = None,
    step: timedelta | None = None,
    around: bool = False,
) -> Rows:
    """The samples in [start, end]; of ``names`` only, where they are given, and where ``near`` is, of what apps served:
    MOST_SERVED series, those in these namespaces first.

    They are of the finest tier that reaches back to ``start``, all of them, or of a coarser one that still has bins of
    ``step``. Of a gauge there is then the last sample of each of the tier's bins. Of a counter the last one of each
    ``step`` and those around resets: it rises as much. ``around``: what stands for the tier's bin in which the window
    ends, too, and where that is longer than ``step``, a bin before, between which a line is drawn. Raises TooMuchError
    where names are given.
    """
    asked_for: dict[str, object] = {
        "cluster": cluster,
        "names": list(names or ()),
        **_of_apps(near, since=start),
    }
    about = (await conn.execute(_ABOUT, asked_for)).one_or_none()
    if about is None:
        return Rows(chunks.NONE, chunks.NONE.values, {})
    tier = _tier({one: getattr(about, one.table) for one in TIERS}, start, step=step)
    if around and tier.step is not None:
        start -= tier.step if tier.step > (step or timedelta(0)) else timedelta(0)
        end += tier.step
    starts = tier.starts(start, end)
    asked: dict[str, object] = {"cluster": about.id, "hour": hour_of(start), "end": end, "starts": starts}
    wanted, statement = None, _ALL[tier]
    if names is not None:
        of_apps = list(dict.fromkeys([*about.near_apps, *about.apps]))[:MOST_SERVED]
        wanted = np.array([*about.named, *of_apps], np.int64)
        blocks = _blocks(wanted)
        if len(blocks) * len(starts) > MOST_BLOCKS:
            raise TooMuchError("this is too much to read at once: ask for a shorter time")
        asked["blocks"] = blocks
        statement = _SOME[tier]
    found = (await conn.execute(statement, asked)).all()
    rows = await asyncio.to_thread(_unpacked, found, wanted, start, end=end)
    present = _present(rows)
    keys = await series_keys.load(conn, present)
    if tier.step is None:
        return Rows(rows, rows.values, keys)
    counters = {number for number in present if keys[number].counts}
    return Rows(*_in_bins(rows, counters, of=tier.step, step=max(tier.step, step or tier.step)), keys)


def _of_apps(near: Collection[str] | None, *, since: datetime) -> dict[str, object]:
    """What _OF_APPS and _NEAR ask for: series of requests told of since then, and these namespaces. None: no series."""
    return {
        "apps": list(() if near is None else SERVED),
        "near": [codec.dumps([[label, one]]).decode() for one in near or () for label in NAMESPACES],
        "since": since - DAY,  # that they were told of is noted to the day
        "most": MOST_SERVED,
    }


def _tier(since: Mapping[Tier, datetime | None], start: datetime, *, step: timedelta | None) -> Tier:
    """The coarsest tier that still has a sample for each ``step``, or a coarser one if that reaches further back."""
    chosen = max((tier for tier in TIERS if tier.step and step and tier.step <= step), key=TIERS.index, default=RAW)
    for coarser in TIERS[TIERS.index(chosen) + 1 :]:
        known, further = since[chosen], since[coarser]
        reaches = known is not None and (start >= known or further is None or coarser.start_of(known) <= further)
        if not reaches and further is not None:
            chosen = coarser
    return chosen


def _in_bins(rows: Columns, counters: set[int], *, of: timedelta, step: timedelta) -> tuple[Columns, Floats]:
    counted = np.isin(rows.series, list(counters))
    keep, greatest = drawn(*rows, counters=counted, of=of // _MILLISECOND, step=step // _MILLISECOND)
    return rows.where(keep), greatest[keep]


def _blocks(series: NDArray[np.int64]) -> list[int]:
    """The blocks that these are in."""
    found: list[int] = np.unique(series // chunks.BLOCK).tolist()
    return found


def _unpacked(
    found: Iterable[tuple[int, bytes]], wanted: NDArray[np.int64] | None, start: datetime, *, end: datetime
) -> Columns:
    """The samples in [start, end] of the series that are wanted (None: of all), from rows (order, payload)."""
    low, high = -((_EPOCH - start) // _MILLISECOND), milliseconds(end)
    chosen = None if wanted is None else chunks.chooser(wanted)
    parts = []
    for order, payload in found:
        part = chunks.unpack(payload)
        inside = (part.times >= low) & (part.times <= high)
        if chosen is not None:
            inside &= chosen(part.series)
        if inside.any():
            some = part if inside.all() else part.where(inside)
            parts.append((order, int(some.times[0]), some))
    return chunks.merged(part for *_, part in sorted(parts, key=itemgetter(0, 1)))


def by_series(rows: Columns) -> Iterator[tuple[int, slice]]:
    """Each series that there is, and which of the rows are its."""
    starts = chunks.starts_of(rows.series)
    ends = np.append(starts[1:], len(rows.series))
    return zip(rows.series[starts].tolist(), map(slice, starts.tolist(), ends.tolist()), strict=False)


def _present(rows: Columns) -> list[int]:
    """The series that there are."""
    found: list[int] = rows.series[chunks.starts_of(rows.series)].tolist()
    return found


def seconds(times: NDArray[np.int64]) -> tuple[float, ...]:
    return tuple((times / 1000).tolist())


@dataclass(frozen=True, slots=True)
class Together(Generic[Line]):
    """Series of one line that were scraped at the same ``times``; ``values`` has the shape (series, times)."""

    line: Line
    times: tuple[float, ...]
    values: Floats


def _together(rows: Columns, line_of: dict[int, Line]) -> Iterator[Together[Line]]:
    """What is scraped together is read together: a page asks for a thousand series of two dozen samples each."""
    groups: dict[tuple[Line, bytes], list[Floats]] = defaultdict(list)
    for series_id, part in by_series(rows):
        groups[line_of[series_id], rows.times[part].tobytes()].append(rows.values[part])
    for (line, scraped), members in groups.items():
        yield Together(line, seconds(np.frombuffer(scraped, np.int64)), table(members))


_AROUND = f"""
WITH mine AS (SELECT id FROM clusters WHERE name = :cluster),
named AS (
  SELECT id, name, labels FROM series_keys
  WHERE cluster_id = (SELECT id FROM mine) AND name = ANY(CAST(:names AS text[]))
  UNION ALL
  (
    SELECT id, name, labels FROM series_keys
    WHERE cluster_id = (SELECT id FROM mine) AND {_OF_APPS} AND {_NEAR} ORDER BY id DESC LIMIT :most
  )
),
around AS (
  SELECT at, 'minute' AS what, CAST(extract(epoch FROM at) AS bigint) AS number, '' AS name, '' AS told, payload
  FROM call_minutes
  WHERE cluster_id = (SELECT id FROM mine) AND at > :minute AND at < :end
  UNION ALL
  SELECT NULL, 'key', k.id, w.word, CAST(jsonb_build_array(k.verb, k.api_group, k.resource, k.code) AS text), NULL
  FROM call_keys k JOIN words w ON w.id = k.user_id
  WHERE w.word = ANY(CAST(:users AS text[]))
  UNION ALL
  SELECT NULL, 'series', id, name, CAST(labels AS text), NULL FROM named
  UNION ALL
  SELECT NULL, 'samples', 0, '', '', payload FROM samples
  WHERE cluster_id = (SELECT id FROM mine) AND at = ANY(CAST(:hours AS timestamptz[]))
    AND block = ANY(ARRAY(SELECT id / :block FROM named))
  UNION ALL
  SELECT NULL, 'bins', 0, '', '', payload FROM samples_minutes
  WHERE cluster_id = (SELECT id FROM mine) AND at = ANY(CAST(:minutes AS timestamptz[]))
    AND block = ANY(ARRAY(SELECT id / :block FROM named))
    AND coalesce((SELECT min(at) FROM samples WHERE cluster_id = (SELECT id FROM mine)), 'infinity') > :hour
  UNION ALL
  SELECT NULL, 'samples', number, '', '', payload FROM samples_told
  WHERE cluster_id = (SELECT id FROM mine) AND at = ANY(CAST(:hours AS timestamptz[]))
    AND blocks && ARRAY(SELECT id / :block FROM named)
)
SELECT what, number, name, told, payload FROM around ORDER BY at
"""  # noqa: S608 - our own text only
"""Few and plain columns: of a thousand series, turning rows into values costs more than finding them. Bins are for what
is older than all samples that are kept: of an hour that is not packed yet there are none, and nothing is left out."""


async def read_around(
    conn: AsyncConnection,
    cluster: str,
    users: Iterable[str],
    *,
    near: Collection[str] = (),
    start: datetime,
    end: datetime,
) -> Measured:
    """What ``users`` asked of the API server, the control plane's lines, and what apps of the namespaces ``near``
    served, in [start, end). One query.

    Keys of calls hold no pod, agent or namespace here: who, what and the answer's code are enough to draw a line.
    Series that no line tells apart are added up.
    """
    asked = {
        "cluster": cluster,
        "users": list(users),
        "names": sorted(METRICS),
        "start": start,
        "end": end,
        "minute": start - timedelta(seconds=calls.MINUTE),
        "hour": hour_of(start),
        "hours": RAW.starts(start, end),
        "minutes": MINUTES.starts(start, end),
        "block": chunks.BLOCK,
        **_of_apps(near or None, since=start),
    }
    minutes, keys, about_series, samples, in_bins = [], {}, {}, [], False
    for what, number, name, about, payload in await conn.execute(text(_AROUND), asked):
        if what == "minute":
            minutes.append((number, payload))
        elif what == "key":
            verb, group, resource, code = codec.loads(about)
            keys[number] = CallKey(name, "", "", verb, group, resource, "", code)
        elif what == "series":
            about_series[number] = (name, about)
        else:
            in_bins |= what == "bins"
            samples.append((number, payload))
    slots, counts = _counts(minutes, keys, start.timestamp(), end=end.timestamp())
    wanted = np.fromiter(about_series, np.int64)
    rows = await asyncio.to_thread(_unpacked, samples, wanted, start, end=end)
    if in_bins:
        counters = {number for number, (name, _) in about_series.items() if is_counter(name, "unknown")}
        rows, _ = _in_bins(rows, counters, of=MINUTE, step=MINUTE)
    series = [
        one
        for group in _together(rows, _lines(about_series, _present(rows)))
        for one in added_up(*group.line, times=group.times, values=group.values)
    ]
    return Measured(slots, counts, tuple(series))


def _lines(
    about: dict[int, tuple[str, str]], present: Sequence[int]
) -> dict[int, tuple[str, tuple[tuple[str, str], ...]]]:
    """The line that each series is of, by its name and its labels as JSON; those are read all at once."""
    labels = codec.loads(f"[{','.join(about[number][1] for number in present)}]")
    return {
        number: (about[number][0], told_apart(about[number][0], of)) for number, of in zip(present, labels, strict=True)
    }


def _counts(
    minutes: list[tuple[int, bytes]], keys: dict[int, CallKey], start: float, *, end: float
) -> tuple[tuple[int, int] | None, Calls]:
    """The first and the last slot that holds any call, and the counts of ``keys``."""
    every, lengths = calls.unpack_all(payload for _, payload in minutes)
    every[1] = every[1] * SLOT_SECONDS + np.repeat([at for at, _ in minutes], lengths)
    every = every[:, (every[1] >= start) & (every[1] < end)]
    if not every.size:
        return None, NO_CALLS
    mine = every[:, np.isin(every[0], np.array(list(keys), dtype=np.int64))]
    return (int(every[1].min()), int(every[1].max())), calls.as_calls(*mine, keys=keys)
