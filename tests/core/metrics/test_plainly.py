"""Graphs of many series at once are what they would be of each by itself, worked out one sample after the other."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from app.core.metrics.binning import BRIDGED
from app.core.metrics.blocks import block_graph
from app.core.metrics.lines import STARTED, Grid, whole
from app.core.metrics.measures import Measure, SeriesQuery
from app.core.model import MetricSeries
from tests.core.graphs import blocks

AXES = (Grid(0.0, 30.0, 12), Grid(60.0, 60.0, 5), Grid(7.0, 10.0, 30))
SCRAPES = 12
Line = list[float]
"""A value for each bin, NaN where nothing is known."""
Samples = Sequence[tuple[float, float]]


def near(samples: Samples) -> list[tuple[tuple[float, float], tuple[float, float]]]:
    """Each sample and the next, where there is no gap between them."""
    seconds = sorted(later - at for (at, _), (later, _) in pairwise(samples))
    usual = seconds[(len(seconds) - 1) // 2] if seconds else 0.0
    return [(one, other) for one, other in pairwise(samples) if other[0] - one[0] <= BRIDGED * usual]


def edges(axis: Grid) -> list[tuple[float, float]]:
    return [(axis.epoch(number), axis.epoch(number + 1)) for number in range(axis.size)]


def rate(samples: Samples, axis: Grid) -> Line:
    line = []
    for begin, end in edges(axis):
        covered = grown = 0.0
        for (at, value), (later, other) in near(samples):
            seconds = max(0.0, min(later, end) - max(at, begin))
            if not math.isnan(value) and not math.isnan(other):
                covered += seconds
                grown += (other - value if other >= value else other) * seconds / (later - at)
        line.append(grown / covered if covered > 1e-3 else math.nan)
    return line


def gauge(samples: Samples, axis: Grid, *, together: Callable[[list[float]], float]) -> Line:
    line = []
    for begin, end in edges(axis):
        inside = [value for at, value in samples if begin <= at < end and not math.isnan(value)]
        before = [value for (at, value), (later, _) in near(samples) if at <= begin < later]
        line.append(together(inside) if inside else (before or [math.nan])[0])
    return line


def changes(samples: Samples, axis: Grid) -> Line:
    known = [(at, value) for at, value in samples if not math.isnan(value)]
    line = []
    for begin, end in edges(axis):
        inside = [one != other for (_, one), (at, other) in pairwise(known) if begin <= at < end]
        bridged = any(at <= begin < later for (at, _), (later, _) in near(known))
        line.append(float(sum(inside)) if inside or bridged else math.nan)
    return line


PLAINLY: dict[Measure, Callable[[Samples, Grid], Line]] = {
    Measure.RATE: rate,
    Measure.LEVEL: lambda samples, axis: gauge(samples, axis, together=lambda values: sum(values) / len(values)),
    Measure.HIGHEST: lambda samples, axis: gauge(samples, axis, together=max),
    Measure.CHANGES: changes,
}


def joined(lines: Iterable[Line], together: Callable[[list[float]], float]) -> Line:
    known = ([value for value in column if not math.isnan(value)] for column in zip(*lines, strict=True))
    return [together(column) if column else math.nan for column in known]


def plainly(series: list[MetricSeries], axis: Grid, query: SeriesQuery) -> dict[str, Line]:
    """The lines by code."""
    found = defaultdict(list)
    for one in whole(series) if query.measure is Measure.RATE else series:
        if one.name in query.names:
            samples = list(zip(one.times, one.values, strict=True))
            found[dict(one.labels)["code"]].append(PLAINLY[query.measure](samples, axis))
    together = max if query.measure is Measure.HIGHEST else sum
    lines = {code: joined(some, together) for code, some in found.items()}
    known = {code: line for code, line in lines.items() if not all(map(math.isnan, line))}
    return {code: line for code, line in known.items() if any(value > 0 for value in line)} or known


@st.composite
def a_target(draw: st.DrawFn) -> list[MetricSeries]:
    """What one target tells: it starts anew, fails scrapes or misses them; its series begin, end, and are reset."""
    numbers = st.integers(0, SCRAPES - 1)
    target = (("instance", draw(st.sampled_from("abc"))), ("job", "apiserver"))
    missed, failed, anew = draw(st.sets(numbers, max_size=3)), draw(st.sets(numbers, max_size=1)), draw(numbers)
    at = [number for number in range(SCRAPES) if number not in missed]
    times = [30.0 * number + draw(st.integers(0, 3)) for number in at]

    def told(name: str, labels: tuple[tuple[str, str], ...], values: list[float], first: int) -> MetricSeries:
        ended = [math.nan if number in failed else value for number, value in zip(at, values, strict=True)]
        return MetricSeries(name, tuple(sorted(labels)), "", tuple(times[first:]), tuple(ended[first:]))

    found = [told(STARTED, target, [5.0 if number < anew else 300.0 for number in at], 0)]
    for code in range(draw(st.integers(1, 4))):
        steps = draw(st.lists(st.integers(0, 4), min_size=len(at), max_size=len(at)))
        values = np.cumsum(steps).astype(float)
        if draw(st.booleans()):
            values[at.index(max(at)) // 2 :] -= values[at.index(max(at)) // 2]
        first = draw(st.sampled_from([0, 0, 0, 3]))
        labels = (*target, ("code", str(code // 2)), ("verb", str(code)))
        found.append(told("requests_total", labels, values.tolist(), first))
    return found


@given(
    st.lists(a_target(), min_size=1, max_size=3, unique_by=lambda one: one[0].labels),
    st.sampled_from(AXES),
    st.sampled_from(list(PLAINLY)),
)
def test_many_series_at_once_are_each_by_itself(
    targets: list[list[MetricSeries]], axis: Grid, measure: Measure
) -> None:
    series = [one for target in targets for one in target]
    query = SeriesQuery(("requests_total",), measure, ("code",), most=20)
    found = {curve.name: curve.values for curve in block_graph(blocks(series), axis, query).curves}
    expected = plainly(series, axis, query)
    assert found.keys() == expected.keys()
    for code, line in expected.items():
        np.testing.assert_allclose(found[code], line, atol=1e-9)
