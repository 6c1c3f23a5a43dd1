"""Stored samples -> the curves of a graph: rates, levels, means, quantiles, split by labels, on one grid.

A gap stays a gap: a bin is NaN where nothing was scraped on both sides of it. One scrape that is missing is bridged;
where a series ended (NaN), nothing is, and nothing beside it is lost.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np

from app.core.binning import levels, peaks, per_bin, rates
from app.core.lines import STARTED, Grid, added, whole
from app.core.matching import Match
from app.core.model import MetricSeries
from app.core.onset import Floats
from app.core.stale import endings, table

LOOKBACK_SECONDS = 300.0
"""How long before a window its samples begin to count: Prometheus' --query.lookback-delta."""
Split = tuple[str, ...]


class Measure(StrEnum):
    """How a line comes from its series."""

    RATE = "rate"  # of counters, a second, added up
    LEVEL = "level"  # of gauges, added up
    HIGHEST = "highest"  # of gauges: the highest, where each replica tells the same
    MEAN = "mean"  # of a histogram or summary: its _sum by its _count
    QUANTILE = "quantile"  # of a histogram's buckets
    CHANGES = "changes"  # how often a value became another one


PARTS: dict[Measure, tuple[str, ...]] = {
    Measure.MEAN: ("_sum", "_count"),
    Measure.QUANTILE: ("_bucket", "_sum", "_count"),
}
"""What stands behind a metric's name in those of its series; nothing where it is not listed."""
ADDITIVE = (Measure.RATE, Measure.LEVEL, Measure.CHANGES)


@dataclass(frozen=True, slots=True)
class SeriesQuery:
    """What is asked of stored series. Of ``metrics`` the first that was stored counts: one thing under the names that
    it has had. At most ``most`` lines; the others become one.
    """

    metrics: tuple[str, ...]
    measure: Measure
    by: tuple[str, ...] = ()
    where: tuple[Match, ...] = ()
    most: int = 6
    quantile: float = 0.99

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all series that it may need."""
        return tuple(f"{metric}{part}" for metric in self.metrics for part in PARTS.get(self.measure, ("",)))


@dataclass(frozen=True, slots=True, eq=False)
class Curve:
    """One line of a graph, NaN where it is not known. ``of`` are the values of what it was split by; ``others`` is how
    many lines it stands for, 0 for one of its own.
    """

    of: Split
    values: Floats
    others: int = 0

    @property
    def name(self) -> str:
        """``LIST pods``; ``all`` of a graph that is not split, ``none`` where nothing is told of what splits it."""
        if self.others:
            return f"{self.others} others"
        return " ".join(filter(None, self.of)) or ("none" if self.of else "all")


@dataclass(frozen=True, slots=True, eq=False)
class Graph:
    """The curves of a question, those that say most first. ``measure`` is how they were measured: a quantile without
    buckets is drawn as the mean.
    """

    axis: Grid
    curves: tuple[Curve, ...]
    measure: Measure = Measure.RATE

    @property
    def measured(self) -> bool:
        """Whether anything is known in this window."""
        return bool(self.curves)


STEPS = (5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400, 172800, 345600)
"""Seconds of a bin."""


def window_grid(start: float, end: float, *, most: int = 180) -> Grid:
    """A grid over [start, end] of at most ``most`` bins, one more where its ends are not round."""
    step = next((step for step in STEPS if (end - start) / step <= most), STEPS[-1])
    first = start // step * step
    return Grid(first, step, int(np.ceil((end - first) / step)))


def graph(series: Iterable[MetricSeries], axis: Grid, query: SeriesQuery) -> Graph:
    """What is asked, of these series, which meet its conditions; a metric under a later name only where none is stored
    under an earlier."""
    named: dict[str, list[MetricSeries]] = defaultdict(list)
    for one in series:
        named[one.name].append(one)
    for metric in query.metrics:
        for measure in (query.measure, Measure.MEAN) if query.measure is Measure.QUANTILE else (query.measure,):
            curves = _curves(named, axis, query, metric=metric, measure=measure)
            if curves:
                return Graph(axis, curves, measure)
    return Graph(axis, (), query.measure)


@dataclass(slots=True)
class _Line:
    """A line in the making: the lines that it is made of, by what they are of it (sum and count, or le)."""

    parts: dict[str, list[Floats]] = field(default_factory=lambda: defaultdict(list))


def _curves(
    named: dict[str, list[MetricSeries]], axis: Grid, query: SeriesQuery, *, metric: str, measure: Measure
) -> tuple[Curve, ...]:
    wanted = {f"{metric}{part}": part for part in PARTS.get(measure, ("",))}
    if measure is Measure.QUANTILE:
        wanted = {f"{metric}_bucket": ""}
    own = [one for name in wanted for one in named.get(name, ())]
    if measure in (Measure.RATE, Measure.MEAN, Measure.QUANTILE):
        own = [one for one in whole([*own, *named.get(STARTED, ())]) if one.name in wanted]
    lines: dict[Split, _Line] = defaultdict(_Line)
    for (name, split, bound), line in _measured(own, axis, query.by, measure=measure).items():
        lines[split].parts[wanted[name] or bound].append(line)
    finished = {split: _finished(line, measure, query.quantile) for split, line in lines.items()}
    known = {split: values for split, values in finished.items() if not np.isnan(values).all()}
    if len(known) > 1:  # lines that never were anything but nothing say nothing beside others
        known = {split: values for split, values in known.items() if np.nanmax(values) > 0} or known
    order = sorted(known, key=lambda split: (-_weight(known[split], measure), split))
    shown, rest = order[: query.most], order[query.most :]
    if len(rest) == 1:
        shown, rest = order, []
    curves = tuple(Curve(split, known[split]) for split in shown)
    return (*curves, _others([lines[split] for split in rest], measure, query.quantile)) if rest else curves


def _weight(values: Floats, measure: Measure) -> float:
    """What adds up is compared by how much there was; what does not, by its worst."""
    return float(np.nansum(values) if measure in ADDITIVE else np.nanmax(values))


def _others(lines: Sequence[_Line], measure: Measure, quantile: float) -> Curve:
    together = _Line()
    for line in lines:
        for name, parts in line.parts.items():
            together.parts[name] += parts
    return Curve((), _finished(together, measure, quantile), len(lines))


def _measured(
    series: Iterable[MetricSeries], axis: Grid, by: Split, *, measure: Measure
) -> dict[tuple[str, Split, str], Floats]:
    """(name, split, upper bound of a bucket) -> its line; what was scraped together at once."""
    together: dict[int, tuple[tuple[float, ...], list[tuple[str, Split, str]], list[tuple[float, ...]]]] = {}
    for one in series:
        labels = dict(one.labels)
        # by which tuple it is, not by what it holds: to hash hundreds of times takes longer than to add them up
        _, keys, told = together.setdefault(id(one.times), (one.times, [], []))
        keys.append((one.name, tuple(labels.get(name, "") for name in by), labels.get("le", "")))
        told.append(one.values)
    lines: dict[tuple[str, Split, str], list[Floats]] = defaultdict(list)
    for times, keys, told in together.values():
        values = table(told)
        number = endings(values)
        for which in np.unique(number):
            rows = np.flatnonzero(number == which)
            for row, line in zip(rows, _binned(np.asarray(times), values[rows], axis, measure), strict=True):
                lines[keys[row]].append(line)
    summed = {key: highest(rows) if measure is Measure.HIGHEST else added(rows) for key, rows in lines.items()}
    return {key: line for key, line in summed.items() if not np.isnan(line).all()}


def _binned(times: Floats, values: Floats, axis: Grid, measure: Measure) -> Iterable[Floats]:
    """The line of each row; they were scraped together and ended (NaN) together."""
    if measure is Measure.HIGHEST:
        return [peaks(times, row, axis) for row in values]
    if measure is Measure.LEVEL:
        return [levels(times, row, axis) for row in values]
    if measure is Measure.CHANGES:  # as PromQL's changes(): what began again as another changed once
        known = ~np.isnan(values[0])
        return [per_bin(times[known], np.diff(row[known]) != 0, axis) for row in values]
    steps = np.diff(values)
    steps = np.where(steps < 0, values[:, 1:], steps)  # a reset: it counted up from zero again
    return rates(times, steps, axis)


def highest(rows: Sequence[Floats]) -> Floats:
    """The highest of lines in each bin; NaN where none of them is known."""
    return np.asarray(np.fmax.reduce(np.vstack(rows), axis=0))


def _finished(line: _Line, measure: Measure, quantile: float) -> Floats:
    parts = {name: added(rows) for name, rows in line.parts.items()}
    if measure is Measure.QUANTILE:
        return histogram_quantile(quantile, {float(bound): rate for bound, rate in parts.items() if bound})
    if measure is Measure.MEAN:
        total, observed = parts.get("_sum"), parts.get("_count")
        if total is None or observed is None:
            return np.full_like(next(iter(parts.values())), np.nan)
        return np.asarray(np.where(observed > 0, total / np.where(observed > 0, observed, 1.0), np.nan))
    if measure is Measure.HIGHEST:
        return highest([row for rows in line.parts.values() for row in rows])
    return parts[""]


def histogram_quantile(quantile: float, buckets: dict[float, Floats]) -> Floats:
    """The quantile in each bin, from upper bounds and the cumulative rates below them, as PromQL's histogram_quantile:
    evenly spread within a bucket, the lowest of which begins at 0; within +Inf, the highest finite bound.

    NaN without a bucket +Inf, without a second one, and where nothing was observed.
    https://prometheus.io/docs/prometheus/latest/querying/functions/#histogram_quantile
    """
    bounds = sorted(buckets)
    size = len(next(iter(buckets.values()), np.empty(0)))
    if len(bounds) < 2 or bounds[-1] != np.inf:
        return np.full(size, np.nan)
    counts = np.vstack([buckets[bound] for bound in bounds])
    missing = np.isnan(counts).any(axis=0)
    counts = np.maximum.accumulate(np.nan_to_num(counts), axis=0)  # replicas are not scraped at one moment
    rank = quantile * counts[-1]
    place = np.argmax(counts[:-1] >= rank, axis=0)
    above = ~(counts[:-1] >= rank).any(axis=0)  # it lies in +Inf
    found = np.empty(size)
    for bin_, at in enumerate(place):
        low, below = (bounds[at - 1], counts[at - 1, bin_]) if at else (min(bounds[0], 0.0), 0.0)
        within = counts[at, bin_] - below
        if at == 0 and bounds[0] <= 0:
            found[bin_] = bounds[0]
        else:
            share = (rank[bin_] - below) / within if within > 0 else 1.0
            found[bin_] = low + (bounds[at] - low) * share
    found[above] = bounds[-2]
    found[missing | (counts[-1] <= 0)] = np.nan
    return found
