"""Control-plane metrics -> the lines a page shows, and the rises that a suspect must explain.

Counters become rates as Prometheus defines them: a value lower than the one before is a reset, and the first sample
of a series says nothing. A gap in the samples stays a gap.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from app.core.entities import CLUSTER
from app.core.families import FAMILIES, Family, Labels
from app.core.model import MetricSeries, Spark
from app.core.onset import Floats, Step, level_step
from app.core.signals import Signal, SignalKind, moment


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
    for times, together in Counter(one.times for one in series).items():
        known = [t for t in times if t <= until]
        if len(known) >= 3:
            firsts.append(known[0])
            gaps += [float(np.median(np.diff(known)))] * together
    if not firsts:
        return None
    step = max(1.0, float(np.median(gaps)))
    start = min(firsts)
    return Grid(start, step, max(0, int((until - start) // step)))


def _rates(times: Floats, values: Floats, axis: Grid) -> Floats:
    """Counters scraped together: increase per second in each bin; NaN where it was not scraped on both sides."""
    if len(times) < 2:
        return np.full((len(values), axis.size), np.nan)
    increase = np.diff(values)
    increase = np.where(increase < 0, values[:, 1:], increase)  # a reset: it counted up from zero again
    return _bin(times[1:], increase / np.maximum(np.diff(times), 1e-3), axis)


def level(series: MetricSeries, axis: Grid) -> Floats:
    """A gauge in each bin: the last sample in it; NaN where there was none."""
    return np.asarray(_bin(np.asarray(series.times), np.asarray([series.values]), axis)[0])


def _bin(times: Floats, values: Floats, axis: Grid) -> Floats:
    """Rows of values at common times, each laid into the bins."""
    out = np.full((len(values), axis.size), np.nan)
    index = ((times - axis.start) // axis.step).astype(int)
    inside = (index >= 0) & (index < axis.size)
    out[:, index[inside]] = values[:, inside]
    # Scrapes drift against the grid: a single empty bin between two scrapes is drift, not a gap.
    between = (out[:, :-2] + out[:, 2:]) / 2
    out[:, 1:-1] = np.where(np.isnan(out[:, 1:-1]), between, out[:, 1:-1])
    return out


def lines(series: list[MetricSeries], axis: Grid, family: Family) -> dict[tuple[str, ...], Floats]:
    """The family's lines, one for each combination of its ``by`` labels (NaN: not measured)."""
    wanted = (f"{family.metrics[0]}_sum", f"{family.metrics[0]}_count") if family.measure == "mean" else family.metrics
    grouped: dict[tuple[str, tuple[str, ...]], list[MetricSeries]] = defaultdict(list)
    for one in series:
        if one.name not in wanted:
            continue
        labels = dict(one.labels)
        if family.keep(labels):
            grouped[(one.name, tuple(labels.get(name, "") for name in family.by))].append(one)
    measured = {key: _measured(members, axis, family) for key, members in grouped.items()}
    if family.measure == "mean":
        return _means(measured, family.metrics[0])
    parts: dict[tuple[str, ...], list[Floats]] = defaultdict(list)
    for (_, split), line in measured.items():
        parts[split].append(line)
    return {split: _total(members) for split, members in parts.items()}


def _measured(members: list[MetricSeries], axis: Grid, family: Family) -> Floats:
    """The sum of the members, each measured as the family says; those scraped together at once."""
    together: dict[tuple[float, ...], list[tuple[float, ...]]] = defaultdict(list)
    for member in members:
        together[member.times].append(member.values)
    measure = _bin if family.measure == "level" else _rates
    return _total([measure(np.asarray(times), np.asarray(values), axis) for times, values in together.items()])


def _means(measured: dict[tuple[str, tuple[str, ...]], Floats], base: str) -> dict[tuple[str, ...], Floats]:
    """Mean of a histogram: the rate of its sum by the rate of its count; NaN where nothing was observed."""
    out = {}
    for (name, split), total in measured.items():
        observed = measured.get((f"{base}_count", split))
        if name == f"{base}_sum" and observed is not None:
            with np.errstate(divide="ignore", invalid="ignore"):
                out[split] = np.where(observed > 0, total / observed, np.nan)
    return out


def _total(parts: list[Floats]) -> Floats:
    """The sum of lines: absent everywhere stays absent, absent in one series counts as nothing of that series."""
    stack = np.vstack(parts)
    out = np.nansum(stack, axis=0)
    out[np.isnan(stack).all(axis=0)] = np.nan
    return np.asarray(out)


def metric_signals(series: list[MetricSeries], axis: Grid) -> list[Signal]:
    """Rises of control-plane lines, strongest first; and restarts of its processes."""
    found = []
    for family in FAMILIES:
        split = lines(series, axis, family)
        steps = {key: step for key, line in split.items() if (step := level_step(line, floor=family.floor / 3.0))}
        steps = {key: step for key, step in steps.items() if step.after - step.before >= family.floor}
        extra = sum(s.after - s.before for s in steps.values()) or 1.0
        for key, step in steps.items():
            labels = dict(zip(family.by, key, strict=True))
            share = (step.after - step.before) / extra
            found.append(_signal(family, labels, step, axis, share=share))
    return sorted([*found, *_restarts(series, axis)], key=lambda s: -s.strength)


def _signal(family: Family, labels: Labels, step: Step, axis: Grid, *, share: float) -> Signal:
    what = " ".join(value for value in labels.values() if value)
    low = axis.epoch(step.index)
    growth = min(1.0, np.log((step.after + family.floor) / (step.before + family.floor)) / np.log(10))
    return Signal(
        kind=SignalKind.METRIC,
        # A rate's bin says that it rose since the scrape before; scrapes are a step apart.
        low=moment(low - axis.step),
        high=moment(low + axis.step),
        strength=float(family.weight * max(0.1, growth) * (0.4 + 0.6 * share)),
        about=family.about(labels),
        sentence=f"{family.title.lower() if family.title != 'CPU' else 'CPU'}{f' ({what})' if what else ''} rose from"
        f" {number(step.before, family.unit)} to {number(step.after, family.unit)}",
        rate_before=step.before,
        rate_after=step.after,
        facts={"family": family.title, **labels},
    )


def _restarts(series: list[MetricSeries], axis: Grid) -> list[Signal]:
    found = []
    for one in series:
        if one.name != "process_start_time_seconds":
            continue
        values = level(one, axis)
        known = np.flatnonzero(~np.isnan(values))
        for before, after in pairwise(known):
            if values[after] > values[before] + 1:
                job = dict(one.labels).get("job", "a process")
                found.append(
                    Signal(
                        kind=SignalKind.METRIC,
                        low=moment(axis.epoch(int(before))),
                        high=moment(axis.epoch(int(after)) + axis.step),
                        strength=0.6,
                        about={CLUSTER: 0.5},
                        sentence=f"{job} restarted",
                        facts={"family": "Restarts", "job": job},
                    )
                )
    return found


def sparks(series: list[MetricSeries], axis: Grid, *, most: int = 6) -> list[Spark]:
    """The lines for the page: the totals of the families that are there, those that turned bad first."""
    out = []
    for family in FAMILIES:
        # a mean is that of its worst part; all else adds up, whatever it is split by
        split = lines(series, axis, family if family.measure == "mean" else replace(family, by=()))
        if not split:
            continue
        total = _total(list(split.values())) if family.measure != "mean" else np.nanmax(_stack(split), axis=0)
        if np.isnan(total).all():
            continue
        step = level_step(total, floor=family.floor / 3.0)
        rose = step is not None and step.after - step.before >= family.floor
        out.append(
            Spark(
                title=family.title,
                unit=family.unit,
                start=axis.start,
                step=axis.step,
                values=tuple(None if np.isnan(v) else float(v) for v in total),
                bad_from=axis.epoch(step.index) if step and rose else None,
            )
        )
    # First what turned bad, last what never moved from nothing.
    out.sort(key=lambda s: (s.bad_from is None, not any(s.values)))
    return out[:most]


def _stack(split: dict[tuple[str, ...], Floats]) -> Floats:
    stacked = np.vstack(list(split.values()))
    stacked[:, np.isnan(stacked).all(axis=0)] = 0.0
    return np.asarray(stacked)


def number(value: float, unit: str) -> str:
    """A measured value as a person reads it: 41/s, 48 s, 37 ms, 1.2 GB."""
    if unit == "s" and value < 1:
        return f"{value * 1000:.0f} ms"
    if unit == "B":
        return f"{value / 1e9:.1f} GB" if value >= 1e9 else f"{value / 1e6:.0f} MB"
    text = f"{value:.1f}".rstrip("0").rstrip(".") if value < 100 else f"{value:.0f}"
    return f"{text}{unit}" if unit.startswith("/") or not unit else f"{text} {unit}"
