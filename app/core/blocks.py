"""Series that were scraped together, as one table: a question adds up thousands of them at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from app.core.lines import STARTED, TARGET, Grid, addable
from app.core.measures import Graph, Measure, SeriesQuery, graph
from app.core.model import MetricSeries
from app.core.onset import Floats

Places = NDArray[np.intp]


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """Series of one name and one target that were scraped at the same times: a row of ``values``, a stale.table, for
    each of ``labels``; ``highest`` are the greatest of what they stand for, where not every sample is kept."""

    name: str
    labels: Sequence[dict[str, str]]
    times: tuple[float, ...]
    values: Floats
    highest: Floats
    _known: dict[str, tuple[Places, list[str]]] = field(default_factory=dict)
    _starts: list[MetricSeries] = field(default_factory=list)

    def coded(self, label: str) -> tuple[Places, list[str]]:
        """A label's values, each once, and which of them each row has; "" where it has none."""
        if label not in self._known:
            codes: dict[str, int] = {}
            rows = [codes.setdefault(one.get(label, ""), len(codes)) for one in self.labels]
            self._known[label] = (np.array(rows, dtype=np.intp), list(codes))
        return self._known[label]

    def asked(self, query: SeriesQuery) -> Iterator[MetricSeries]:
        """The rows that meet the question's conditions, added up over what it does not tell apart.

        Of levels of which the highest is asked for, that is kept instead of the sum.
        """
        rows = np.arange(len(self.labels))
        for match in query.where:
            codes, values = self.coded(match.name)
            rows = rows[np.array([match.fits(value) for value in values])[codes[rows]]]
        if not len(rows):
            return
        apart = (*query.by, *TARGET, *(("le",) if query.measure is Measure.QUANTILE else ()))
        group = np.zeros(len(rows), dtype=np.intp)
        for label in apart:
            codes, values = self.coded(label)
            group = group * len(values) + codes[rows]
        told = (self.highest if query.measure is Measure.HIGHEST else self.values)[rows]
        number = addable(told, counts=query.measure not in (Measure.LEVEL, Measure.HIGHEST))
        group = np.where(number < 0, number, group * (number.max() + 1) + number)
        if query.measure is Measure.CHANGES:  # of a sum are not those of what it is the sum of
            group = np.arange(len(rows))
        _, first, number, sizes = np.unique(group, return_index=True, return_inverse=True, return_counts=True)
        begins = np.concatenate([[0], np.cumsum(sizes)[:-1]])
        together = np.maximum if query.measure is Measure.HIGHEST else np.add
        sums = together.reduceat(told[np.argsort(number, kind="stable")], begins, axis=0)
        for row, line in zip(rows[first].tolist(), sums.tolist(), strict=True):
            known = self.labels[row]
            labels = tuple((label, known[label]) for label in sorted(set(apart)) if label in known)
            yield MetricSeries(self.name, labels, "", self.times, tuple(line))

    def starts(self) -> list[MetricSeries]:
        """Of a block of STARTED: when its target started. Worked out once, as every question of counters needs it."""
        if not self._starts:
            self._starts.extend(self.asked(SeriesQuery((STARTED,), Measure.LEVEL)))
        return self._starts


def block_graph(blocks: Iterable[Block], axis: Grid, query: SeriesQuery) -> Graph:
    """As measures.graph, of those series that meet the question's conditions."""
    names = frozenset(query.names)
    series: list[MetricSeries] = []
    for block in blocks:
        if block.name in names:
            series += block.asked(query)
        elif block.name == STARTED:  # a counter that begins with its process did not begin at zero
            series += block.starts()
    return graph(series, axis, query)
