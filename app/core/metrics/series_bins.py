"""Fewer samples for a longer time: which of a series' samples a bin of a minute or an hour keeps.

What is kept are samples as they were scraped, none that is made up, so that whatever reads samples reads these. Of a
counter a bin keeps the last one, and on both sides of every reset the sample before it and the one after: its increase
over any stretch between kept samples is then what it is over all samples. Of anything else a bin keeps the last, the
least and the greatest. Where a series ends (NaN), or begins again, both sides are kept. Keeping twice keeps the same.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from app.core.onset import Floats
from app.core.stale import quiet

Integers = NDArray[np.int64]
Mask = NDArray[np.bool_]
_COUNTED = ("_total", "_count", "_sum", "_bucket")
"""How counters are called where nobody says what is one: https://prometheus.io/docs/practices/naming/ ."""


def is_counter(name: str, kind: str) -> bool:
    """Whether a series counts up: as its target says, else by its name."""
    return kind == "counter" or (kind != "gauge" and name.endswith(_COUNTED))


def kept(series: Integers, times: Integers, values: Floats, *, counters: Mask, step: int) -> Mask:
    """Which samples are kept in bins of ``step`` milliseconds.

    Sorted by series and time; ``counters`` says of each sample whether it is a counter's. The first sample of a series
    is always kept: what a counter was at before may be known elsewhere.
    """
    begins, bins = _bins(series, times, step)
    keep = begins | _last(bins) | _edges(values, begins, counters=counters)
    if len(times):
        for extreme in (np.fmin, np.fmax):
            keep[_where(extreme.reduceat(quiet(values), np.flatnonzero(bins)), values, bins, of=~counters)] = True
    return keep


def drawn(
    series: Integers, times: Integers, values: Floats, *, counters: Mask, of: int, step: int
) -> tuple[Mask, Floats]:
    """What lines need of samples that stand for bins ``of`` so many milliseconds: which of them, and the greatest of
    the bin that each stands for.

    Of a counter they are those that ``kept`` keeps of bins of ``step``, which is no less; of anything else the last of
    each bin, for levels are told evenly then, and what is told together stays so.
    """
    if not len(times):
        return np.zeros(0, np.bool_), values
    begins, bins = _bins(series, times, of)
    longer = bins if step == of else _bins(series, times, step)[1]
    keep = np.where(counters, begins | _last(longer), _last(bins)) | _edges(values, begins, counters=counters)
    greatest = np.fmax.reduceat(quiet(values), np.flatnonzero(bins))[np.cumsum(bins) - 1]
    return keep, np.where(counters | np.isnan(values), values, greatest)


def _bins(series: Integers, times: Integers, step: int) -> tuple[Mask, Mask]:
    """Where a series begins, and where a bin of it does."""
    number = times // step
    begins = np.append(True, series[1:] != series[:-1])[: len(series)]
    return begins, begins | np.append(True, number[1:] != number[:-1])[: len(series)]


def _last(bins: Mask) -> Mask:
    """The last sample of each bin."""
    return np.append(bins[1:], True)[: len(bins)]


def _edges(values: Floats, begins: Mask, *, counters: Mask) -> Mask:
    """Both sides of where a series ends or begins again, and of a counter's resets."""
    unknown = np.isnan(values)
    edge = ~begins[1:] & ((unknown[1:] != unknown[:-1]) | (counters[1:] & (values[1:] < values[:-1])))
    found = np.zeros(len(values), np.bool_)
    found[1:] = edge
    found[:-1] |= edge
    return found


def _where(extremes: Floats, values: Floats, bins: Mask, *, of: Mask) -> NDArray[np.intp]:
    """Where each bin has its extreme, the last time that it does: what never moves is kept once."""
    group = np.cumsum(bins) - 1
    places = np.flatnonzero(of & (values == extremes[group]))
    lasts: Mask = np.append(np.diff(group[places]) != 0, True)[: len(places)]
    return np.asarray(places[lasts])
