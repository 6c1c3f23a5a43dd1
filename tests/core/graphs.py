"""Graphs of series that were not read from a store: each by itself, or as the blocks in which they are read."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

import numpy as np

from app.core.metrics import measures
from app.core.metrics.blocks import Block
from app.core.metrics.lines import TARGET, Grid
from app.core.metrics.measures import Graph, SeriesQuery
from app.core.metrics.scraped import rows_of
from app.core.model import MetricSeries
from app.core.stale import table


def graph(series: Iterable[MetricSeries], axis: Grid, query: SeriesQuery) -> Graph:
    """As measures.graph, of each by itself."""
    return measures.graph(rows_of(series, query.by), axis, query)


def blocks(series: Iterable[MetricSeries]) -> list[Block]:
    """As they are read: a block of what is called alike and was scraped of one target at the same times."""
    groups: dict[tuple[str, tuple[float, ...], tuple[str, ...]], list[tuple[dict[str, str], Sequence[float]]]]
    groups = defaultdict(list)
    for one in series:
        labels = dict(one.labels)
        target = tuple(labels.get(label, "") for label in TARGET)
        groups[one.name, one.times, target].append((labels, one.values))
    found, scraped = [], {times: np.array(times) for _, times, _ in groups}
    for (name, times, _), rows in groups.items():
        values = table([values for _, values in rows])
        found.append(Block(name, [labels for labels, _ in rows], scraped[times], values, values))
    return found
