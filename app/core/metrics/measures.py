"""Stored samples -> the curves of a graph: rates, levels, means, quantiles, split by labels, on one grid.

A gap stays a gap: a bin is NaN where nothing was scraped on both sides of it. One scrape that is missing is bridged;
where a series ended (NaN), nothing is, and nothing beside it is lost.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np

from app.core.matching import Match
from app.core.metrics.binning import Scrapes, levels, peaks, per_bin, rates
from app.core.metrics.lines import STARTED, Grid, added
from app.core.metrics.lives import one_after_another
from app.core.metrics.scraped import Rows, Split, highest, since_first_scrape, sums
from app.core.onset import Floats

LOOKBACK_SECONDS = 300.0
"""How long before a window its samples begin to count: Prometheus' --query.lookback-delta."""


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
    buckets is drawn as the mean; beside others that have some, ``bucketless`` counts those that are not drawn, and
    ``endless`` those of whose buckets the last is missing, ``le="+Inf"``: of them there is no quantile.
    """

    axis: Grid
    curves: tuple[Curve, ...]
    measure: Measure = Measure.RATE
    bucketless: int = 0
    endless: int = 0

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


def graph(rows: Iterable[Rows], axis: Grid, query: SeriesQuery) -> Graph:
    """What is asked, of these series, which meet its conditions; a metric under a later name only where none is stored
    under an earlier."""
    named: dict[str, list[Rows]] = defaultdict(list)
    for one in rows:
        named[one.name].append(one)
    endless = 0
    for metric in query.metrics:
        endless = endless or _endless(named, metric, query)
        for measure in (query.measure, Measure.MEAN) if query.measure is Measure.QUANTILE else (query.measure,):
            curves = _curves(named, axis, query, metric=metric, measure=measure)
            if curves:
                bucketless = _bucketless(named, metric) if measure is Measure.QUANTILE else 0
                return Graph(axis, curves, measure, bucketless, endless)
    return Graph(axis, (), query.measure, endless=endless)


def _bucketless(named: dict[str, list[Rows]], metric: str) -> int:
    """Of how many lines only the sums are stored."""
    counted, split = (
        {key for one in named.get(f"{metric}{part}", ()) for key, _ in one.asked} for part in ("_count", "_bucket")
    )
    return len(counted - split)


def _endless(named: dict[str, list[Rows]], metric: str, query: SeriesQuery) -> int:
    """Of how many lines buckets are stored, and none of them has no bound above."""
    if query.measure is not Measure.QUANTILE or "le" in query.by:
        return 0
    asked = {key for one in named.get(f"{metric}_bucket", ()) for key in one.asked}
    return len({split for split, _ in asked} - {split for split, bound in asked if _bound(bound) == np.inf})


@dataclass(slots=True)
class _Line:
    """A line in the making: the lines that it is made of, by what they are of it (sum and count, or le)."""

    parts: dict[str, list[Floats]] = field(default_factory=lambda: defaultdict(list))


def _curves(
    named: dict[str, list[Rows]], axis: Grid, query: SeriesQuery, *, metric: str, measure: Measure
) -> tuple[Curve, ...]:
    wanted = {f"{metric}{part}": part for part in PARTS.get(measure, ("",))}
    if measure is Measure.QUANTILE:
        wanted = {f"{metric}_bucket": ""}
    own = [one for name in wanted for one in named.get(name, ())]
    if own and measure in (Measure.RATE, Measure.MEAN, Measure.QUANTILE):
        every = since_first_scrape([*own, *named.get(STARTED, ())], query.by)
        own = [one for one in every if one.name in wanted]
    if metric == STARTED and measure is Measure.CHANGES:
        own = one_after_another(own, query.by)
    lines: dict[Split, _Line] = defaultdict(_Line)
    for (name, split, bound), line in _measured(own, axis, measure=measure).items():
        lines[split].parts[wanted[name] or bound].append(line)
    if not lines:
        return ()
    splits = list(lines)
    values = np.vstack([_finished(line, measure, query.quantile) for line in lines.values()])
    worst = np.fmax.reduce(values, axis=1)
    known = ~np.isnan(worst)
    something = np.fmax.reduce(np.abs(values), axis=1) > 0
    if something.any():  # lines that never were anything but nothing say nothing beside others
        known = something
    # what adds up is compared by how much there was; what does not, by its worst
    weight = np.nansum(values, axis=1) if measure in ADDITIVE else worst
    order = sorted(np.flatnonzero(known).tolist(), key=lambda place: (-weight[place], splits[place]))
    shown, rest = order[: query.most], order[query.most :]
    if len(rest) == 1:
        shown, rest = order, []
    curves = tuple(Curve(splits[place], values[place]) for place in shown)
    return (*curves, _others([lines[splits[place]] for place in rest], measure, query.quantile)) if rest else curves


def _others(lines: Sequence[_Line], measure: Measure, quantile: float) -> Curve:
    together = _Line()
    for line in lines:
        for name, parts in line.parts.items():
            together.parts[name] += parts
    return Curve((), _finished(together, measure, quantile), len(lines))


def _measured(rows: Iterable[Rows], axis: Grid, *, measure: Measure) -> dict[tuple[str, Split, str], Floats]:
    """(name, split, upper bound of a bucket) -> its line; what was scraped as often at once."""
    alike: dict[int, list[Rows]] = defaultdict(list)
    for one in rows:
        alike[len(one.times)].append(one)
    numbers: dict[tuple[str, Split, str], int] = {}
    every = [(one.name, *key) for some in alike.values() for one in some for key in one.asked]
    number = np.array([numbers.setdefault(key, len(numbers)) for key in every], np.intp)
    if not numbers:
        return {}
    order = np.argsort(number, kind="stable")
    binned = np.concatenate([_binned(some, axis, measure) for some in alike.values()])[order]
    begins = np.searchsorted(number[order], np.arange(len(numbers)))
    lines = highest(binned, begins) if measure is Measure.HIGHEST else sums(binned, begins)
    known = np.flatnonzero(~np.isnan(lines).all(axis=1)).tolist()
    keys = list(numbers)
    return {keys[place]: lines[place] for place in known}


def _binned(rows: Sequence[Rows], axis: Grid, measure: Measure) -> Floats:
    """The line of each series, all of which were scraped as often as each other."""
    # by which array it is, not by what it holds: to compare hundreds of times takes longer than to add them up
    times = {id(one.times): one.times for one in rows}
    place = {name: number for number, name in enumerate(times)}
    of = np.repeat([place[id(one.times)] for one in rows], [len(one.asked) for one in rows])
    scrapes, values = Scrapes(np.vstack(list(times.values())), of), np.concatenate([one.values for one in rows])
    if measure is Measure.HIGHEST:
        return peaks(scrapes, values, axis)
    if measure is Measure.LEVEL:
        return levels(scrapes, values, axis)
    if measure is Measure.CHANGES:
        return _changes(scrapes, values, axis)
    steps = np.diff(values)
    steps = np.where(steps < 0, values[:, 1:], steps)  # a reset: it counted up from zero again
    return rates(scrapes, steps, axis)


def _changes(scrapes: Scrapes, values: Floats, axis: Grid) -> Floats:
    """As PromQL's changes(): what began again as another changed once."""
    lines = per_bin(scrapes, np.diff(values) != 0, axis)
    for row in np.flatnonzero(np.isnan(values).any(axis=1)).tolist():
        known = ~np.isnan(values[row])
        alone = Scrapes(scrapes.times[scrapes.of[row], known][np.newaxis], np.zeros(1, np.intp))
        lines[row] = per_bin(alone, np.diff(values[row, known])[np.newaxis] != 0, axis)[0]
    return lines


def _finished(line: _Line, measure: Measure, quantile: float) -> Floats:
    if measure is Measure.HIGHEST:
        return np.asarray(highest(np.vstack(line.parts[""]), np.zeros(1, np.intp))[0])
    if measure is Measure.QUANTILE:
        return histogram_quantile(quantile, _buckets(line.parts))
    parts = {name: added(rows) for name, rows in line.parts.items()}
    if measure is Measure.MEAN:
        total, observed = parts.get("_sum"), parts.get("_count")
        if total is None or observed is None:
            return np.full_like(next(iter(parts.values())), np.nan)
        return np.asarray(np.where(observed > 0, total / np.where(observed > 0, observed, 1.0), np.nan))
    return parts[""]


def _buckets(parts: dict[str, list[Floats]]) -> dict[float, Floats]:
    """The rates of buckets by their upper bounds, of which one is written in several ways: before its release 3
    Prometheus kept ``le="1"`` as a target told it, and since then it is ``1.0``. What is no number is no bucket."""
    together: dict[float, list[Floats]] = defaultdict(list)
    for bound, rates_of in parts.items():
        together[_bound(bound)] += rates_of
    return {bound: added(some) for bound, some in together.items() if not np.isnan(bound)}


def _bound(written: str) -> float:
    """The upper bound of a bucket; NaN for what is no number."""
    with suppress(ValueError):
        return float(written)
    return np.nan


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
