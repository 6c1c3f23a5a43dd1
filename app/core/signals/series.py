"""Control-plane metrics -> the lines a page shows, and the rises that a suspect must explain."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import replace
from itertools import pairwise

import numpy as np

from app.core.entities import CLUSTER
from app.core.findings import Spark
from app.core.metrics.families import FAMILIES, Family, Labels
from app.core.metrics.lines import SINCE, STARTED, Grid, Laid, added, lines
from app.core.metrics.lives import Life, address, followed
from app.core.onset import Floats, Step, level_step, level_steps
from app.core.phrases import measure, rise
from app.core.signals.signal import Signal, SignalKind, moment

OF_PROCESS = ("job", "instance")
"""What tells processes apart, and splits what is each one's own."""
Begun = tuple[float, float]
"""The last scrape of a process before it ended, and when the next one began, as that says."""


def metric_signals(told: Laid) -> list[Signal]:
    """Rises of control-plane lines, strongest first; and restarts of its processes."""
    found = []
    begun = _begun(told)
    for family in FAMILIES:
        split = lines(told, family)
        rose = level_steps(split, floor=family.floor / 3.0)
        if family.by == OF_PROCESS and family.measure == "level":
            rose = _ended(split, told.axis, begun, floor=family.floor / 3.0) | rose
        steps = {key: step for key, step in rose.items() if step.after - step.before >= family.floor}
        extra = sum(s.after - s.before for s in steps.values()) or 1.0
        for key, step in steps.items():
            labels = dict(zip(family.by, key, strict=True))
            share = (step.after - step.before) / extra
            found.append(_signal(family, labels, step, told.axis, share=share))
    return sorted([*found, *_restarts(begun)], key=lambda s: -s.strength)


def _signal(family: Family, labels: Labels, step: Step, axis: Grid, *, share: float) -> Signal:
    what = _what(labels)
    low = axis.epoch(step.index)
    growth = min(1.0, np.log((step.after + family.floor) / (step.before + family.floor)) / np.log(10))
    return Signal(
        kind=SignalKind.METRIC,
        # A rate's bin says that it rose since the scrape before; scrapes are a step apart.
        low=moment(low - axis.step),
        high=moment(low + axis.step),
        strength=float(family.weight * max(0.1, growth) * (0.4 + 0.6 * share)),
        about=family.about(labels),
        sentence=f"{family.title.lower() if family.title != 'CPU' else 'CPU'}{f' ({what})' if what else ''} rose"
        f" {_from_to(step, family.unit)}",
        rate_before=step.before,
        rate_after=step.after,
        facts={"family": family.title, **labels},
    )


def _what(labels: Labels) -> str:
    """What a line is of: POST pods/binding, apiserver 10.0.0.7:6443."""
    shown = dict(labels)
    if below := shown.pop("subresource", ""):
        shown["resource"] = f"{shown.get('resource', '')}/{below}".replace("//", "/")
    return " ".join(value for value in shown.values() if value)


def _from_to(step: Step, unit: str) -> str:
    if unit == "/s":
        return rise(step.before, step.after)
    return f"from {measure(step.before, unit)} to {measure(step.after, unit)}"


def _begun(told: Laid) -> dict[tuple[str, ...], list[Begun]]:
    """By OF_PROCESS, the processes that say that they began anew, or after which another began at the same address."""
    found: dict[tuple[str, ...], list[Begun]] = defaultdict(list)
    lives: dict[tuple[str, str], list[Life]] = defaultdict(list)
    end = told.axis.epoch(told.axis.size)
    for place in told.named.get(STARTED, ()):
        one, labels = told.series[place], told.labels[place]
        scraped = zip(one.times, one.values, strict=True)
        known = [(at, start) for at, start in scraped if at < end and not math.isnan(start)]
        for (last, old), (at, start) in pairwise(known):
            if start > old + 1:
                found[tuple(labels.get(name, "") for name in OF_PROCESS)].append((last, max(last, min(at, start))))
        job, instance = (labels.get(name, "") for name in OF_PROCESS)
        if SINCE in instance and known:
            lives[job, address(instance)].append(Life(known[0][0], known[-1][0], known[0][1], instance))
    for (job, _), at_one in lives.items():
        for ended, began in followed(at_one):
            found[job, ended.name].append((ended.last, max(ended.last, min(began.first, began.start))))
    return found


def _ended(
    split: dict[tuple[str, ...], Floats], axis: Grid, begun: dict[tuple[str, ...], list[Begun]], *, floor: float
) -> dict[tuple[str, ...], Step]:
    """The last rises of lines before their processes ended, of which nothing shows in those that came after."""
    found = {}
    for key, line in split.items():
        for last, _ in begun.get(key, ()):
            until = np.where(np.arange(axis.size) <= (last - axis.start) // axis.step, line, np.nan)
            if step := level_step(until, floor=floor):
                found[key] = step
    return found


def _restarts(begun: dict[tuple[str, ...], list[Begun]]) -> list[Signal]:
    return [
        Signal(
            kind=SignalKind.METRIC,
            low=moment(last),
            high=moment(start),
            strength=0.6,
            about={CLUSTER: 0.5},
            sentence=f"{job or 'a process'} restarted",
            facts={"family": "Restarts", "job": job},
        )
        for (job, _), times in begun.items()
        for last, start in times
    ]


def sparks(told: Laid, *, most: int = 6) -> list[Spark]:
    """The lines for the page: the totals of the families that are there, those that turned bad first.

    Of a sum, targets that joined others are left out.
    """
    found: list[tuple[Family, Floats, float | None]] = []
    for family in FAMILIES:
        # a mean is that of its worst part; all else adds up, whatever it is split by
        split = lines(told, family if family.measure == "mean" else replace(family, by=()))
        if not split:
            continue
        total = added(list(split.values())) if family.measure != "mean" else np.fmax.reduce(list(split.values()))
        if np.isnan(total).all():
            continue
        step = level_step(total, floor=family.floor / 3.0)
        rose = step is not None and step.after - step.before >= family.floor
        found.append((family, total, told.axis.epoch(step.index) if step and rose else None))
    # First what turned bad, last what never moved from nothing.
    found.sort(key=lambda one: (one[2] is None, not np.nan_to_num(one[1]).any()))
    return [
        Spark(
            title=family.title,
            unit=family.unit,
            start=told.axis.start,
            step=told.axis.step,
            values=tuple(None if np.isnan(v) else float(v) for v in total),
            bad_from=bad_from,
        )
        for family, total, bad_from in found[:most]
    ]
