"""What a Prometheus answers to a query of somebody's own, as a graph like any other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from app.core.metrics.lines import Grid
from app.core.metrics.measures import Curve, Graph, Measure
from app.core.metrics.questions import MOST_LINES
from app.core.model import MetricSeries


@dataclass(frozen=True, slots=True)
class PromQuery:
    """A query in PromQL, evaluated at the end of each step of a grid."""

    text: str
    measure: Measure = Measure.LEVEL


def evaluated(series: Sequence[MetricSeries], axis: Grid) -> tuple[Graph, tuple[str, ...]]:
    """The graph of an answer, the highest lines first, and the labels that tell its lines apart.

    What is infinite cannot be drawn and counts as not known. Raises ValueError, in words, for more lines than are
    shown: they may be no parts of one whole, so nothing can be added up.
    """
    if len(series) > MOST_LINES:
        raise ValueError(
            f"it has {len(series):,} lines, and {MOST_LINES} can be shown: aggregate it, as with topk(10, …)"
        )
    labels = [dict(one.labels) | ({"__name__": one.name} if one.name else {}) for one in series]
    names = sorted({name for one in labels for name in one})
    apart = tuple(name for name in names if len({one.get(name) for one in labels}) > 1)
    curves = []
    for one, known in zip(series, labels, strict=True):
        values = np.full(axis.size, np.nan)
        place = np.rint((np.array(one.times) - axis.start) / axis.step).astype(int) - 1
        inside = (place >= 0) & (place < axis.size)
        told = np.array(one.values)
        values[place[inside]] = np.where(np.isfinite(told), told, np.nan)[inside]
        if not np.isnan(values).all():
            curves.append(Curve(tuple(known.get(name, "") for name in apart), values))
    curves.sort(key=lambda curve: (-float(np.nanmax(curve.values)), curve.of))
    return Graph(axis, tuple(curves), Measure.LEVEL), apart
