"""Graphs placed on an axis: points, where nothing was measured, and the figures that stand beside them as text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from math import isnan

import numpy as np

from app.core.metrics.lines import Grid
from app.core.metrics.measures import Curve, Graph, Measure
from app.core.objects import kinds
from app.core.objects.kinds import Lane, Policy
from app.core.onset import Floats
from app.core.phrases import many, measure
from app.core.screen.axis import WIDTH, Axis
from app.core.screen.lanes import Mark
from app.core.screen.timeline import Blind

MOST_MARKERS = 60
"""Markers on one axis; more would be a hedge."""
APART = 4.0
"""Units of the axis between two markers."""


SERVICE_ACCOUNT = "system:serviceaccount:"
"""Begins the names of most callers and says nothing that its namespace behind it does not."""


ENDED_SECONDS = 120.0
"""A line that is not known for so long before the last that is known of its graph has ended. Targets are not scraped at
one moment, and an API server once a minute."""


@dataclass(frozen=True, slots=True)
class Trace:
    """One curve: its points (x, 0 to 1 of the plot's peak; None breaks it) and its figures in words. ``last`` is "–"
    where it ended before its graph did."""

    name: str
    points: tuple[tuple[float, float] | None, ...]
    last: str
    mean: str
    highest: str
    others: bool


@dataclass(frozen=True, slots=True)
class Plot:
    """One graph on an axis; ``blind`` are the times in which nothing of it was measured. No traces: nothing is known.

    ``peak`` is what the full height stands for, in ``unit``. ``remark`` is what must be said of how it was measured.
    """

    key: str
    title: str
    unit: str
    peak: float
    peak_text: str
    traces: tuple[Trace, ...]
    blind: tuple[Blind, ...]
    remark: str


@dataclass(frozen=True, slots=True)
class Marker:
    """Changes that may matter at one place of the axis; ``change_id`` is that of the first."""

    x: float
    at: datetime
    change_id: str
    label: str


ENDLESS = 'no le="+Inf", without which there is no quantile'


def plot(key: str, title: str, unit: str, *, graph: Graph, axis: Axis, asked: Measure) -> Plot:
    """A graph as it is drawn; where a quantile was ``asked`` for and the mean is known alone, it says so."""
    peak = max((float(np.nanmax(curve.values)) for curve in graph.curves if _known(curve).any()), default=0.0)
    middles = [_at(graph.axis, number + 0.5) for number in range(graph.axis.size)]
    xs = [axis.x(at) for at in middles]
    if _is_mean(graph, asked):
        title = title.replace(", p99", ", mean")
    return Plot(
        key=key,
        title=title,
        unit=unit,
        peak=peak,
        peak_text=measure(peak, unit),
        traces=tuple(_trace(curve, xs, peak, unit=unit, ended=_ended(curve, graph)) for curve in graph.curves),
        blind=_blind(graph, axis),
        remark=remark(graph, asked=asked),
    )


def remark(graph: Graph, *, asked: Measure) -> str:
    """In which way a graph is not what was ``asked`` for; "" where it is."""
    if _is_mean(graph, asked):
        return f"{f'its buckets have {ENDLESS}' if graph.endless else 'no buckets are stored'}: this is the mean"
    why = {"without stored buckets": graph.bucketless, f"whose buckets have {ENDLESS}": graph.endless}
    lines = [f"{many(count, 'line')} {what}" for what, count in why.items() if count]
    return f"not drawn: {' and '.join(lines)}" if lines else ""


def _is_mean(graph: Graph, asked: Measure) -> bool:
    return asked is Measure.QUANTILE and graph.measure is Measure.MEAN


def _known(curve: Curve) -> Floats:
    return np.asarray(~np.isnan(curve.values))


def _at(grid: Grid, number: float) -> datetime:
    return datetime.fromtimestamp(grid.start + number * grid.step, UTC)


def _ended(curve: Curve, graph: Graph) -> bool:
    """Whether nothing is known of a curve any more where others of the graph still are."""
    last = max((int(np.flatnonzero(_known(one))[-1]) for one in graph.curves if _known(one).any()), default=0)
    recent = max(1, int(ENDED_SECONDS // graph.axis.step))
    return not _known(curve)[max(0, last - recent) : last + 1].any()


def _trace(curve: Curve, xs: Sequence[float], peak: float, *, unit: str, ended: bool) -> Trace:
    known = curve.values[_known(curve)]
    last, mean, highest = (known[-1], known.mean(), known.max()) if len(known) else (0.0, 0.0, 0.0)
    heights = (curve.values / peak if peak > 0 else curve.values * 0.0).tolist()
    points = tuple(None if isnan(height) else (x, max(height, 0.0)) for x, height in zip(xs, heights, strict=True))
    return Trace(
        name=curve.name.replace(SERVICE_ACCOUNT, ""),
        points=points,
        last="–" if ended else measure(float(last), unit),
        mean=measure(float(mean), unit),
        highest=measure(float(highest), unit),
        others=bool(curve.others),
    )


def _blind(graph: Graph, axis: Axis) -> tuple[Blind, ...]:
    """Runs of bins in which no curve is known."""
    if not graph.curves:
        return ()
    unknown = np.isnan(np.vstack([curve.values for curve in graph.curves])).all(axis=0)
    edges = np.flatnonzero(np.diff(np.concatenate([[0], unknown.astype(int), [0]])))
    found = []
    for begin, end in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
        x, until = axis.x(_at(graph.axis, begin)), axis.x(_at(graph.axis, end))
        if until > x:
            found.append(Blind(x, until, "not measured"))
    return tuple(found)


def markers(axis: Axis, marks: Iterable[Mark]) -> tuple[Marker, ...]:
    """What may matter of the changes of a window: what is told in chat (rollouts, webhooks, CRDs, nodes, quotas),
    configuration, and what Kubernetes does not see. Where there is no room, the first of them and how many more; of
    more than MOST_MARKERS the places are further apart, over all of the window.
    """
    told = sorted(
        (mark for mark in marks if matters(mark.api_group, mark.kind) and axis.holds(mark.at)), key=lambda mark: mark.at
    )
    found = _together(axis, told, APART)
    if len(found) > MOST_MARKERS:
        found = _together(axis, told, WIDTH / (MOST_MARKERS - 1))
    return tuple(_marker(axis, some) for some in found)


def _together(axis: Axis, marks: Iterable[Mark], apart: float) -> list[list[Mark]]:
    """Marks, in order, that stand at one place: less than ``apart`` behind the first of them."""
    found: list[list[Mark]] = []
    for mark in marks:
        if found and axis.x(mark.at) - axis.x(found[-1][0].at) < apart:
            found[-1].append(mark)
        else:
            found.append([mark])
    return found


def _marker(axis: Axis, marks: list[Mark]) -> Marker:
    first, more = marks[0], sum(mark.count for mark in marks) - 1
    label = f"{first.kind} {first.name}" + (f" and {more:,} more" if more else "")
    return Marker(axis.x(first.at), first.at, first.change_id, label)


@cache
def matters(api_group: str, kind: str) -> bool:
    """Whether changes of a kind are marked on graphs."""
    return kinds.policy(api_group, kind) is Policy.TOLD or kinds.lane(api_group, kind) in (Lane.CONFIG, Lane.EXTERNAL)
