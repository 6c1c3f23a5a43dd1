"""Control-plane metrics -> the lines that are watched, on one grid of equal bins.

Counters become rates as Prometheus defines them: a value lower than the one before is a reset. A gap in the samples
stays a gap, and where Prometheus marked a series as stale (a NaN) it ends: no rate is drawn across, and no level. What
client libraries make at its first use (a counter of errors by code, a gauge of watches by resource) was zero while its
target was scraped without it; a target's own first scrape says nothing of what came before.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import compress, pairwise
from statistics import median

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from app.core.metrics.families import FAMILIES, Family
from app.core.model import MetricSeries
from app.core.onset import Floats
from app.core.stale import endings, table

TARGET = ("instance", "job", "metrics_path")
"""Labels that say where a series was scraped."""
Target = tuple[str, ...]
"""Their values, "" for none."""
Told = tuple[bool, ...]
SINCE = ", up since "
"""Stands in the name of every API server that is scraped by ourselves, and in no other's: its start follows."""
STARTED = "process_start_time_seconds"
UP = "up"
"""1 where a target answered, 0 where it did not: as Prometheus calls it."""
LEVELS = frozenset(metric for family in FAMILIES if family.measure == "level" for metric in family.metrics)
JOINS = 2
"""A target first scraped more than so many bins after others joined them."""


@dataclass(frozen=True, slots=True)
class Grid:
    """Equal bins for series that were scraped at slightly different moments."""

    start: float
    step: float
    size: int

    def epoch(self, index: int) -> float:
        return self.start + index * self.step


def grid(series: Iterable[MetricSeries], *, until: float) -> Grid | None:
    """A grid whose step is the median scrape interval, ending at ``until``."""
    firsts, gaps = [], []
    # By which tuple it is, not by what it holds: to hash hundreds of times takes longer than all else that is done.
    scraped = {id(one.times): one.times for one in series}
    counted = Counter(id(one.times) for one in series)
    for number, times in scraped.items():
        known = [t for t in times if t <= until]
        if len(known) >= 3:
            firsts.append(known[0])
            gaps += [_interval(known)] * counted[number]
    if not firsts:
        return None
    step = max(1.0, median(gaps))
    start = min(firsts)
    return Grid(start, step, max(0, int((until - start) // step)))


def _interval(times: Sequence[float]) -> float:
    """Seconds from one scrape to the next, mostly."""
    return float(median([after - before for before, after in pairwise(times)]))


def whole(series: Iterable[MetricSeries]) -> list[MetricSeries]:
    """Series as they are, less those that begin after their target did: these are zero from its first scrape on.

    A counter that begins with a restart of its target begins with its first value: when it got there is not known.
    """
    targets: dict[Target, list[MetricSeries]] = defaultdict(list)
    for one in series:
        if one.times:
            labels = dict(one.labels)
            targets[tuple([labels.get(name, "") for name in TARGET])].append(one)
    scraped: dict[tuple[Told, Target], list[MetricSeries]] = defaultdict(list)
    for told in set(map(_told, targets)):
        for target, members in targets.items():
            scraped[told, tuple(compress(target, told))] += members
    return [
        one
        for target, members in targets.items()
        for one in _since_first_scrape(members, scraped[_told(target), tuple(filter(None, target))])
    ]


def _told(target: Target) -> Told:
    """Which of TARGET a target's series have."""
    return tuple(map(bool, target))


def _since_first_scrape(members: list[MetricSeries], scraped: list[MetricSeries]) -> Iterator[MetricSeries]:
    """The series of one target, of all that were ``scraped`` of it. One that was summed up over instances began when
    any of these did. Those that begin together have the same times then, too.

    What begins with a STARTED of the target is told by somebody else from then on, under other labels, as those of a
    second replica of a Prometheus: what was counted before was so long before that."""
    scrapes = max((one.times for one in scraped), key=len)
    tellers = [one.times[0] for one in scraped if one.name == STARTED and one.times[0] > scrapes[0]]
    drift: float | None = None
    restarts: list[float] = []
    earlier: dict[int, tuple[tuple[float, ...], tuple[float, ...], bool]] = {}
    for one in members:
        begins = one.times[0]
        if begins <= scrapes[0] or one.name == STARTED:
            yield one
            continue
        if drift is None:
            drift = _interval(scrapes) / 2 if len(scrapes) > 1 else 0.0
            restarts = sorted(_restarts(scraped))
        if any(-drift <= begins - joined <= 2 * drift for joined in tellers):  # sums follow within a scrape
            yield one
            continue
        if id(one.times) not in earlier:
            before = tuple(time for time in scrapes if time < begins - drift)
            fresh = bool(before) and any(before[-1] < time <= begins + drift for time in restarts)
            earlier[id(one.times)] = before, before + one.times, fresh
        before, times, fresh = earlier[id(one.times)]
        first = one.values[0] if fresh and one.name not in LEVELS else 0.0
        yield replace(one, times=times, values=(first,) * len(before) + tuple(one.values)) if before else one


def _restarts(members: list[MetricSeries]) -> set[float]:
    """The scrapes of a target before which it started anew: it says so, or a counter of it fell."""
    together: dict[int, list[MetricSeries]] = defaultdict(list)
    found = set()
    for one in members:
        if one.name == STARTED:
            known = [(at, value) for at, value in zip(one.times, one.values, strict=True) if not math.isnan(value)]
            found |= {at for (_, old), (at, new) in pairwise(known) if new > old + 1}
        elif one.name not in LEVELS:
            together[id(one.times)].append(one)
    for told in together.values():
        values = table([one.values for one in told])
        before = values[:, :-1]
        if (missing := np.isnan(values)).any():  # a target that starts anew often fails a scrape: then its series end
            last_known = np.maximum.accumulate(np.where(missing, 0, np.arange(values.shape[1])), axis=1)
            before = np.take_along_axis(values, last_known[:, :-1], axis=1)
        fell = np.flatnonzero((values[:, 1:] < before).any(axis=0))
        found |= {told[0].times[at + 1] for at in fell.tolist()}
    return found


def addable(values: Floats, *, counts: bool) -> NDArray[np.intp]:
    """Which of the series that were scraped together, a row each, may be added up: those of the same number.

    What ended (NaN) does not end the others. ``counts``: they are counters, and the rate of a sum is the sum of the
    rates, but not over a reset: one that was reset stays by itself, with a number below 0.
    """
    if not counts:
        return endings(values)
    reset = (values[:, 1:] < values[:, :-1]).any(axis=1)
    return np.where(reset, -1 - np.arange(len(values)), endings(values))


def _rates(times: Floats, values: Floats, axis: Grid) -> Floats:
    """Counters scraped together: increase per second in each bin; NaN where it was not scraped on both sides."""
    if len(times) < 2:
        return np.full((len(values), axis.size), np.nan)
    increase = values[:, 1:] - values[:, :-1]
    np.copyto(increase, values[:, 1:], where=increase < 0)  # a reset: it counted up from zero again
    increase /= np.maximum(times[1:] - times[:-1], 1e-3)
    return _bin(times[1:], increase, axis)


def _bin(times: Floats, values: Floats, axis: Grid) -> Floats:
    """Rows of values at common times, each laid into the bins."""
    index = ((times - axis.start) // axis.step).astype(int)
    inside = (index >= 0) & (index < axis.size)
    bins, scrapes = index[inside], np.flatnonzero(inside)
    last = np.full(axis.size, -1)  # of each bin; -1 where there was none
    last[bins] = scrapes
    out = values.take(last, axis=1)
    empty = np.flatnonzero(last < 0)
    if not len(empty):
        return out
    out[:, empty] = np.nan
    # Scrapes drift against the grid: a single empty bin between two scrapes is drift, not a gap. In a bin that says
    # that the series ended, or that it was not a number, there was a scrape.
    single = empty[(empty > 0) & (empty < axis.size - 1)]
    out[:, single] = (out[:, single - 1] + out[:, single + 1]) / 2
    # Where the next bin has two, the first of them is that of the empty one, a little late.
    first = np.full(axis.size, -1)
    first[bins[::-1]] = scrapes[::-1]
    late = single[first[single + 1] < last[single + 1]]
    out[:, late] = values[:, first[late + 1]]
    return out


@dataclass(frozen=True, slots=True, eq=False)
class Laid:
    """Series on a grid, each measured once: families ask for the same again and again, split one way and another."""

    axis: Grid
    series: list[MetricSeries]
    labels: list[dict[str, str]]
    rows: Floats
    """A row for each series: rates of counters, levels of gauges; NaN where it was not measured."""
    named: dict[str, list[int]]
    """The places of the series of a name."""


def laid(series: Iterable[MetricSeries], *, until: float) -> Laid | None:
    """Series laid on their grid up to ``until``; None where there is too little of them."""
    told = list(series)
    axis = grid(told, until=until)
    if axis is None or not axis.size:
        return None
    told = whole(told)
    named: dict[str, list[int]] = defaultdict(list)
    together: dict[tuple[bool, int], list[int]] = defaultdict(list)
    for place, one in enumerate(told):
        named[one.name].append(place)
        together[one.name in LEVELS or one.name == STARTED, id(one.times)].append(place)
    rows = np.empty((len(told), axis.size))
    for (is_level, _), places in together.items():
        measure, times = _bin if is_level else _rates, np.asarray(told[places[0]].times)
        rows[places] = measure(times, table([told[place].values for place in places]), axis)
    return Laid(axis, told, [dict(one.labels) for one in told], rows, named)


def lines(told: Laid, family: Family) -> dict[tuple[str, ...], Floats]:
    """The family's lines, one for each combination of its ``by`` labels (NaN: not measured)."""
    wanted = (f"{family.metrics[0]}_sum", f"{family.metrics[0]}_count") if family.measure == "mean" else family.metrics
    grouped: dict[tuple[str, tuple[str, ...]], list[int]] = defaultdict(list)
    for place in sorted(place for name in wanted for place in told.named.get(name, ())):
        labels = told.labels[place]
        if family.keep(labels):
            grouped[told.series[place].name, tuple([labels.get(name, "") for name in family.by])].append(place)
    measured = {key: _measured(members, told) for key, members in grouped.items()}
    if family.measure == "mean":
        return _means(measured, family.metrics[0])
    parts: dict[tuple[str, ...], list[Floats]] = defaultdict(list)
    for (_, split), line in measured.items():
        parts[split].append(line)
    return {split: added(members) for split, members in parts.items()}


def _measured(members: list[int], told: Laid) -> Floats:
    """The sum of the members."""
    there = _there(members, told)
    return told.rows[there[0]] if len(there) == 1 else summed(told.rows[there])


def _there(members: list[int], told: Laid) -> list[int]:
    """The members without those of targets that joined others: that there is one more is no rise of what is measured.

    What begins where the others end takes their place.
    """
    if len(members) == 1:
        return members
    series = told.series
    joined = min(series[one].times[0] for one in members) + JOINS * told.axis.step
    first = [one for one in members if series[one].times[0] <= joined]
    end = max(series[one].times[-1] for one in first)
    return [*first, *(one for one in members if series[one].times[0] > max(joined, end))]


def _means(measured: dict[tuple[str, tuple[str, ...]], Floats], base: str) -> dict[tuple[str, ...], Floats]:
    """Mean of a histogram: the rate of its sum by the rate of its count; NaN where nothing was observed."""
    out = {}
    for (name, split), total in measured.items():
        observed = measured.get((f"{base}_count", split))
        if name == f"{base}_sum" and observed is not None:
            with np.errstate(divide="ignore", invalid="ignore"):
                out[split] = np.where(observed > 0, total / observed, np.nan)
    return out


def added(parts: list[Floats]) -> Floats:
    """The sum of lines: absent everywhere stays absent, absent in one series counts as nothing of that series."""
    if len(parts) == 1:  # one line by itself, as most are that are split by much
        return parts[0].copy()
    return summed(np.concatenate(parts).reshape(len(parts), -1))


def summed(rows: Floats) -> Floats:
    """As ``added``, of rows that nobody else sees changed."""
    absent = np.isnan(rows)
    if not absent.any():
        return np.asarray(rows.sum(axis=0))
    rows[absent] = 0.0
    out = rows.sum(axis=0)
    out[absent.all(axis=0)] = np.nan
    return np.asarray(out)
