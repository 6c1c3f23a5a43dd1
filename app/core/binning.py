"""Samples of series -> a value for each bin of a grid: rates, levels, peaks, how often something happened.

NaN is a bin of which nothing is known: one in a gap, or where a series ended.
"""

from __future__ import annotations

import numpy as np

from app.core.lines import Grid
from app.core.onset import Floats

BRIDGED = 2.5
"""Samples further apart than so many times the series' usual interval have a gap between them."""


def rates(times: Floats, increases: Floats, axis: Grid) -> Floats:
    """Increases between samples, a row of them for each series -> the rate a second in each bin; NaN where no two
    samples span any of it.

    What grew between two samples grew evenly, so a bin that they span in part has its part of it. An increase that is
    NaN, to or from where a series ended, was not seen; all rows end together. Neither is one over a gap.
    """
    if len(times) < 2:
        return np.full((len(increases), axis.size), np.nan)
    seconds = np.diff(times)
    seen = (seconds <= BRIDGED * _usual(seconds)) & ~np.isnan(increases[0])
    edges = axis.start + axis.step * np.arange(axis.size + 1)
    before = np.clip(np.searchsorted(times, edges, side="right") - 1, 0, len(seconds) - 1)
    share = np.clip((edges - times[before]) / seconds[before], 0.0, 1.0)

    def between_edges(steps: Floats) -> Floats:
        """How much of what was seen lies in each bin."""
        steps = np.where(seen, steps, 0.0)
        until = np.concatenate([np.zeros((len(steps), 1)), np.cumsum(steps, axis=1)], axis=1)
        return np.diff(until[:, before] + share * steps[:, before])

    covered = between_edges(seconds[np.newaxis])
    known = covered > 1e-3  # samples are told to the millisecond: less is the rounding of an edge
    return np.asarray(np.where(known, between_edges(increases) / np.where(known, covered, 1.0), np.nan))


def _usual(seconds: Floats) -> float:
    """The median, the lower one of two: numpy's takes longer than all that is done with it."""
    return float(np.sort(seconds)[(len(seconds) - 1) // 2])


def per_bin(times: Floats, events: Floats, axis: Grid) -> Floats:
    """How many events, each told by the sample after it, fell into each bin; NaN where no sample did."""
    place = ((times[1:] - axis.start) // axis.step).astype(int)
    inside = (place >= 0) & (place < axis.size)
    counts = np.bincount(place[inside], weights=events[inside], minlength=axis.size)[: axis.size]
    sampled = np.bincount(place[inside], minlength=axis.size)[: axis.size] > 0
    return _bridged(np.where(sampled, counts, np.nan), times, axis, fill=0.0)


def levels(times: Floats, values: Floats, axis: Grid) -> Floats:
    """A gauge in each bin: the mean of its samples there, else the last one before while that is no gap."""
    place = ((times - axis.start) // axis.step).astype(int)
    inside = (place >= 0) & (place < axis.size) & ~np.isnan(values)
    counts = np.bincount(place[inside], minlength=axis.size)[: axis.size]
    sums = np.bincount(place[inside], weights=values[inside], minlength=axis.size)[: axis.size]
    return _bridged(np.where(counts > 0, sums / np.maximum(counts, 1), np.nan), times, axis, values=values)


def peaks(times: Floats, values: Floats, axis: Grid) -> Floats:
    """A gauge in each bin: the highest of its samples there, else the last one before while that is no gap."""
    place = ((times - axis.start) // axis.step).astype(int)
    inside = (place >= 0) & (place < axis.size)
    line = np.full(axis.size, np.nan)
    np.fmax.at(line, place[inside], values[inside])
    return _bridged(line, times, axis, values=values)


def _bridged(line: Floats, times: Floats, axis: Grid, *, values: Floats | None = None, fill: float = np.nan) -> Floats:
    """Bins between two samples that are no gap apart take the earlier one's value, or ``fill``."""
    if len(times) < 2 or not np.isnan(line).any():
        return line
    seconds = np.diff(times)
    starts = axis.start + axis.step * np.arange(axis.size)
    before = np.searchsorted(times, starts, side="right") - 1
    between = (before >= 0) & (before < len(times) - 1)
    before = np.clip(before, 0, len(times) - 2)
    bridged = between & (seconds[before] <= BRIDGED * _usual(seconds)) & np.isnan(line)
    return np.asarray(np.where(bridged, fill if values is None else values[before], line))
