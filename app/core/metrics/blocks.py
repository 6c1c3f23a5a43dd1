"""Series that were scraped together, as one table: a question adds up thousands of them at once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from app.core.metrics.lines import STARTED, TARGET, Grid, Target, addable
from app.core.metrics.measures import Graph, Measure, SeriesQuery, graph
from app.core.metrics.scraped import Asked, Rows
from app.core.onset import Floats

Places = NDArray[np.intp]


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """Series of one name and one target that were scraped at the same times: a row of ``values``, a stale.table, for
    each of ``labels``; ``highest`` are the greatest of what they stand for, where not every sample is kept."""

    name: str
    labels: Sequence[dict[str, str]]
    times: Floats
    values: Floats
    highest: Floats
    _known: dict[str, tuple[Places, list[str]]] = field(default_factory=dict)
    _apart: dict[bool, Places] = field(default_factory=dict)
    _starts: list[Rows] = field(default_factory=list)

    def coded(self, label: str) -> tuple[Places, list[str]]:
        """A label's values, each once, and which of them each row has; "" where it has none."""
        if label not in self._known:
            codes: dict[str, int] = {}
            rows = [codes.setdefault(one.get(label, ""), len(codes)) for one in self.labels]
            self._known[label] = (np.array(rows, dtype=np.intp), list(codes))
        return self._known[label]

    @property
    def target(self) -> Target:
        """What all of it was scraped of."""
        return tuple(self.labels[0].get(name, "") for name in TARGET)

    def _addable(self, measure: Measure) -> Places:
        """As lines.addable; worked out once, as it does not depend on what is asked."""
        counts = measure not in (Measure.LEVEL, Measure.HIGHEST)
        if counts not in self._apart:
            self._apart[counts] = addable(self.values, counts=counts)
        return self._apart[counts]

    def asked(self, query: SeriesQuery) -> Rows | None:
        """The rows that meet the question's conditions, added up over what it does not tell apart; None if none does.

        Of levels of which the highest is asked for, that is kept instead of the sum.
        """
        told = self.highest if query.measure is Measure.HIGHEST else self.values
        if len(self.labels) == 1:  # as most are that a controller tells of itself: nothing to add up
            (labels,) = self.labels
            if not all(match.fits(labels.get(match.name, "")) for match in query.where):
                return None
            return Rows(self.name, self.target, self._told_apart(np.arange(1), query), self.times, told)
        rows = np.arange(len(self.labels))
        for match in query.where:
            codes, values = self.coded(match.name)
            rows = rows[np.array([match.fits(value) for value in values])[codes[rows]]]
        if not len(rows):
            return None
        group = self._addable(query.measure)[rows]
        group = group - group.min()
        for label in (*query.by, *(("le",) if query.measure is Measure.QUANTILE else ())):
            codes, values = self.coded(label)
            group = group * len(values) + codes[rows]
        if query.measure is Measure.CHANGES:  # of a sum are not those of what it is the sum of
            group = np.arange(len(rows))
        _, first, number, sizes = np.unique(group, return_index=True, return_inverse=True, return_counts=True)
        begins = np.concatenate([[0], np.cumsum(sizes)[:-1]])
        together = np.maximum if query.measure is Measure.HIGHEST else np.add
        sums = together.reduceat(told[rows[np.argsort(number, kind="stable")]], begins, axis=0)
        return Rows(self.name, self.target, self._told_apart(rows[first], query), self.times, sums)

    def _told_apart(self, rows: Places, query: SeriesQuery) -> list[Asked]:
        """As scraped.asked_of; the bounds of buckets only where they are asked for."""
        bounds = query.measure is Measure.QUANTILE and "le" not in query.by
        columns = [self._column(label, rows) for label in query.by]
        splits = zip(*columns, strict=True) if columns else [()] * len(rows)
        return list(zip(splits, self._column("le", rows) if bounds else [""] * len(rows), strict=True))

    def _column(self, label: str, rows: Places) -> list[str]:
        codes, values = self.coded(label)
        return [values[code] for code in codes[rows].tolist()]

    def starts(self) -> list[Rows]:
        """Of a block of STARTED: when its target started. Worked out once, as every question of counters needs it."""
        if not self._starts:
            self._starts.extend(filter(None, [self.asked(SeriesQuery((STARTED,), Measure.LEVEL))]))
        return self._starts


def block_graph(blocks: Iterable[Block], axis: Grid, query: SeriesQuery) -> Graph:
    """What is asked, of those series that meet the question's conditions."""
    names = frozenset(query.names)
    found: list[Rows] = []
    for block in blocks:
        if block.name in names:
            found += filter(None, [block.asked(query)])
        elif block.name == STARTED:  # a counter that begins with its process did not begin at zero
            found += block.starts()
    return graph(found, axis, query)
