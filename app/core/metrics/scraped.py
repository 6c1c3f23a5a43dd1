"""What a question asks of stored series, as tables: series of one target that were scraped together, a row each.

A page asks some forty questions of twenty thousand series of hundreds of targets: what Python does for each of them
takes longer than all that is calculated.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from app.core.metrics.lines import STARTED, TARGET, Target, whole
from app.core.model import MetricSeries
from app.core.onset import Floats
from app.core.stale import table

Split = tuple[str, ...]
Asked = tuple[Split, str]
"""The values of what a question splits by, and the upper bound of a bucket, "" of what is none."""


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Series of one name and one target that were scraped at the same ``times``: a row of ``values``, a stale.table,
    for each of ``asked``."""

    name: str
    target: Target
    asked: Sequence[Asked]
    times: Floats
    values: Floats

    def series(self, by: Split, places: Sequence[int]) -> Iterator[MetricSeries]:
        """Some of them, one by one, with the labels that are known of them. When a target started is not split."""
        times = tuple(self.times.tolist())
        target = dict(zip(TARGET, self.target, strict=True))
        for place in places:
            split, bound = self.asked[place]
            labels = {"le": bound} | dict(zip(by, split, strict=False)) | target
            told = tuple((name, value) for name, value in sorted(labels.items()) if value)
            yield MetricSeries(self.name, told, "", times, tuple(self.values[place].tolist()))

    def telling(self) -> list[int]:
        """The first of them, and for each time at which any was lower than when it was last known, one that was."""
        known = ~np.isnan(self.values)
        last = np.maximum.accumulate(np.where(known, np.arange(len(self.times)), 0), axis=1)[:, :-1]
        fell = known[:, 1:] & (self.values[:, 1:] < np.take_along_axis(self.values, last, axis=1))
        return sorted({0, *fell.argmax(axis=0)[fell.any(axis=0)].tolist()})


def rows_of(series: Iterable[MetricSeries], by: Split) -> list[Rows]:
    """Series as tables of a single row; those that were scraped together have the same times."""
    together: dict[tuple[float, ...], Floats] = {}
    found = []
    for one in series:
        labels = dict(one.labels)
        times = together.setdefault(one.times, np.array(one.times))
        target = tuple(labels.get(name, "") for name in TARGET)
        found.append(Rows(one.name, target, (asked_of(labels, by),), times, table([one.values])))
    return found


def asked_of(labels: Mapping[str, str], by: Split) -> Asked:
    """What a question that splits by these labels tells apart."""
    return tuple(labels.get(name, "") for name in by), "" if "le" in by else labels.get("le", "")


def since_first_scrape(rows: Sequence[Rows], by: Split) -> list[Rows]:
    """As lines.whole, which is asked of those that begin later than others of their target: nearly none. What it needs
    of the others is when they were scraped, and which of them tell of a restart."""
    firsts = [float(one.times[0]) for one in rows]
    begins: dict[Target, float] = {}
    for one, first in zip(rows, firsts, strict=True):
        begins[one.target] = min(first, begins.get(one.target, first))
    over_all = len({tuple(map(bool, target)) for target in begins}) > 1  # some are sums over several targets
    if over_all:
        begins = dict.fromkeys(begins, min(firsts))
    late = [one for one, first in zip(rows, firsts, strict=True) if first > begins[one.target]]
    if not late:
        return list(rows)
    apart = {id(one) for one in late}
    concerned = set(begins) if over_all else {one.target for one in late}
    asked: list[MetricSeries] = []
    beside = set()
    for one in rows:
        if id(one) in apart:
            asked += one.series(by, range(len(one.asked)))
        elif one.target in concerned:
            known = list(one.series(by, range(len(one.asked)) if one.name == STARTED else one.telling()))
            beside |= set(map(id, known))
            asked += known
    prolonged = [one for one in whole(asked) if id(one) not in beside]
    return [*(one for one in rows if id(one) not in apart), *rows_of(prolonged, by)]


def sums(lines: Floats, begins: NDArray[np.intp]) -> Floats:
    """As lines.added, of the lines from each of ``begins`` to the next."""
    missing = np.isnan(lines)
    added = np.add.reduceat(np.where(missing, 0.0, lines), begins, axis=0)
    return np.asarray(np.where(np.logical_and.reduceat(missing, begins, axis=0), np.nan, added))


def highest(lines: Floats, begins: NDArray[np.intp]) -> Floats:
    """The highest of them in each bin; NaN where none of them is known."""
    return np.asarray(np.fmax.reduceat(lines, begins, axis=0))
