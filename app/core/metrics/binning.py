"""Samples of series -> a value for each bin of a grid: rates, levels, peaks, how often something happened.

NaN is a bin of which nothing is known: one in a gap, or where a series ended. Each series is a row, with as many
samples as the others.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from app.core.metrics.lines import Grid
from app.core.onset import Floats

Places = NDArray[np.intp]
BRIDGED = 2.5
"""Samples further apart than so many times the series' usual interval have a gap between them."""


@dataclass(frozen=True, slots=True, eq=False)
class Scrapes:
    """When series were scraped: rows of ``times``, and which of them is that of each series."""

    times: Floats
    of: Places

    @property
    def several(self) -> bool:
        """Whether there is anything between two of them."""
        return len(self.times[0]) > 1

    def before(self, moments: NDArray[np.floating]) -> Places:
        """In each row the place of the last time that is no later, -1 where there is none."""
        return np.array([np.searchsorted(row, moments, side="right") for row in self.times]) - 1

    def near(self) -> NDArray[np.bool_]:
        """In each row, whether there is no gap from a time to the next."""
        seconds = np.diff(self.times)
        # The median, the lower one of two.
        usual = np.sort(seconds)[:, (seconds.shape[1] - 1) // 2]
        return np.asarray(seconds <= BRIDGED * usual[:, np.newaxis])

    def cells(self, axis: Grid) -> tuple[Places, NDArray[np.bool_]]:
        """Of each sample the number of its bin, counted through all series, and whether it is in any."""
        place = ((self.times - axis.start) // axis.step).astype(np.intp)[self.of]
        inside = (place >= 0) & (place < axis.size)
        return place + axis.size * np.arange(len(self.of))[:, np.newaxis], inside


def rates(scrapes: Scrapes, increases: Floats, axis: Grid) -> Floats:
    """Increases between samples, a row of them for each series -> the rate a second in each bin; NaN where no two
    samples span any of it.

    What grew between two samples grew evenly, so a bin that they span in part has its part of it. An increase that is
    NaN, to or from where a series ended, was not seen. Neither is one over a gap.
    """
    if not scrapes.several:
        return np.full((len(increases), axis.size), np.nan)
    of, seconds = scrapes.of, np.diff(scrapes.times)
    seen = scrapes.near()[of] & ~np.isnan(increases)
    edges = axis.start + axis.step * np.arange(axis.size + 1)
    before = np.clip(scrapes.before(edges), 0, seconds.shape[1] - 1)
    begin, length = (np.take_along_axis(column, before, axis=1) for column in (scrapes.times, seconds))
    share = np.clip((edges - begin) / length, 0.0, 1.0)[of]
    before = before[of]

    def between_edges(steps: Floats) -> Floats:
        """How much of what was seen lies in each bin."""
        steps = np.where(seen, steps, 0.0)
        until = np.zeros((len(steps), steps.shape[1] + 1))
        np.cumsum(steps, axis=1, out=until[:, 1:])
        at, within = (np.take_along_axis(column, before, axis=1) for column in (until, steps))
        return np.diff(at + share * within)

    covered = between_edges(seconds[of])
    known = covered > 1e-3  # samples are told to the millisecond: less is the rounding of an edge
    return np.asarray(np.where(known, between_edges(increases) / np.where(known, covered, 1.0), np.nan))


def per_bin(scrapes: Scrapes, events: NDArray[np.bool_], axis: Grid) -> Floats:
    """How many events, each told by the sample after it, fell into each bin; NaN where no sample did."""
    cells, inside = scrapes.cells(axis)
    cells, inside = cells[:, 1:], inside[:, 1:]
    sampled, counts = _added(cells[inside], events[inside], axis, rows=len(events))
    return _bridged(np.where(sampled > 0, counts, np.nan), scrapes, axis, values=None)


def levels(scrapes: Scrapes, values: Floats, axis: Grid) -> Floats:
    """A gauge in each bin: the mean of its samples there, else the last one before while that is no gap."""
    cells, inside = scrapes.cells(axis)
    inside &= ~np.isnan(values)
    counts, sums = _added(cells[inside], values[inside], axis, rows=len(values))
    return _bridged(np.where(counts > 0, sums / np.maximum(counts, 1), np.nan), scrapes, axis, values=values)


def peaks(scrapes: Scrapes, values: Floats, axis: Grid) -> Floats:
    """A gauge in each bin: the highest of its samples there, else the last one before while that is no gap."""
    cells, inside = scrapes.cells(axis)
    lines = np.full(len(values) * axis.size, np.nan)
    np.fmax.at(lines, cells[inside], values[inside])
    return _bridged(lines.reshape(len(values), axis.size), scrapes, axis, values=values)


def _added(cells: Places, values: Floats | NDArray[np.bool_], axis: Grid, *, rows: int) -> tuple[Places, Floats]:
    """How many values each cell has, and their sum."""
    size = rows * axis.size
    counts = np.bincount(cells, minlength=size).reshape(rows, axis.size)
    return counts, np.bincount(cells, weights=values, minlength=size).astype(np.float64).reshape(rows, axis.size)


def _bridged(lines: Floats, scrapes: Scrapes, axis: Grid, *, values: Floats | None) -> Floats:
    """Bins between two samples that are no gap apart take the value at the earlier one, or nothing happened there."""
    empty = np.isnan(lines)
    if not scrapes.several or not empty.any():
        return lines
    before = scrapes.before(axis.start + axis.step * np.arange(axis.size))
    last = scrapes.times.shape[1] - 2
    between = (before >= 0) & (before <= last)
    before = np.clip(before, 0, last)
    bridged = (between & np.take_along_axis(scrapes.near(), before, axis=1))[scrapes.of] & empty
    fill = 0.0 if values is None else np.take_along_axis(values, before[scrapes.of], axis=1)
    return np.asarray(np.where(bridged, fill, lines))
