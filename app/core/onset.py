"""Where a series turns bad: the best split into a before and an after.

Counts are variance-stabilised with Anscombe's transform 2·sqrt(x + 3/8) (Biometrika 35, 1948), so that the noise of
a Poisson count is about one unit at any level; API traffic is over-dispersed, so the noise is measured from the
series itself and one unit is only its floor. A "best split" finds change points in operations data far better than
a z-score against a baseline, at a fraction of a millisecond a series.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
K = TypeVar("K", bound=Hashable)
Rise = TypeVar("Rise")

MIN_BEFORE = 3
MIN_AFTER = 2
MIN_EFFECT = 3.0
MIN_T = 5.0
FAR = 3 * MIN_EFFECT
"""Noise units from which on one bin says that something rose."""
MIN_SURPRISE = 7.0
"""What happens at the later rate would have been missed before with a chance of e^-7: it is new, not just rare."""
RARE = 0.25
"""Up to this share of the later rate, what happened before was something else."""
STRAIGHT = 0.5
"""A rising line that leaves at most this much of a step's squared error describes the series better than the step."""


@dataclass(frozen=True, slots=True)
class Step:
    """A rise. ``index`` is the first bad bin; ``before`` and ``after`` are means in the series' own unit.

    Of what grows to the end, ``after`` is where it is then.

    ``effect`` is the rise in noise units, ``t`` its Student-like significance.
    """

    index: int
    before: float
    after: float
    effect: float
    t: float


def count_steps(series: Mapping[K, Floats]) -> dict[K, Step]:
    """The most significant rise of each of these count series that has one; all are as long."""
    return _risen(series, count_step, stabilised, floor=1.0)


def count_bursts(series: Mapping[K, Floats]) -> dict[K, Burst]:
    """As ``count_steps``, of rises that may end again."""
    return _risen(series, count_burst, stabilised, floor=1.0)


def level_steps(series: Mapping[K, Floats], *, floor: float) -> dict[K, Step]:
    """The most significant rise of each of these measured levels that has one; all are as long."""
    return _risen(series, lambda values: level_step(values, floor=floor), np.asarray, floor=floor)


def _risen(
    series: Mapping[K, Floats], find: Callable[[Floats], Rise | None], scaled: Callable[[Floats], Floats], floor: float
) -> dict[K, Rise]:
    """What is found in those series whose extremes are far enough apart for any effect: in most, they are not.

    What is larger is larger ``scaled``, too.
    """
    if not series:
        return {}
    values = np.array(list(series.values()))
    highest, lowest = (scaled(extreme.reduce(values, axis=1)) for extreme in (np.fmax, np.fmin))
    far = highest - lowest >= MIN_EFFECT * floor
    return {key: found for (key, line), may in zip(series.items(), far, strict=True) if may and (found := find(line))}


def stabilised(counts: Floats) -> Floats:
    return np.asarray(2.0 * np.sqrt(np.maximum(counts, 0.0) + 0.375))


def count_step(counts: Floats) -> Step | None:
    """The most significant rise of a count series, or None. Bins are equal and none is missing."""
    y = stabilised(counts)
    found = _best_split(y, counts, floor=1.0)
    return found[0] if found else _just_begun(y, counts)


def _just_begun(y: Floats, counts: Floats) -> Step | None:
    """A rise in the last bin alone: whoever is called at once sees no more of it. It has to be far beyond any noise."""
    before = y[:-1]
    if len(before) < MIN_BEFORE or y[-1] - before.min() < FAR:  # the mean is no lower
        return None
    noise = max(1.0, float(before.std()))
    effect = float(y[-1] - before.mean()) / noise
    if effect < FAR:
        return None
    return Step(len(before), float(counts[:-1].mean()), float(counts[-1]), effect, effect)


def beginning(slots: NDArray[np.intp], counts: Floats, *, end: int) -> int:
    """Of the slots in which something happened so many times, the place of that in which it began, as it goes on until
    ``end``. What happened long before, and then not at all, is not it."""
    last, after = slots[:-1], slots[1:]
    before = np.cumsum(counts)[:-1]
    rate = (counts.sum() - before) / (end - after)
    other = (rate * (after - last - 1) >= MIN_SURPRISE) & (before / np.maximum(after, 1) <= RARE * rate)
    return int(np.flatnonzero(other)[-1]) + 1 if other.any() else 0


@dataclass(frozen=True, slots=True)
class Burst:
    """A rise that may end again: bins ``start`` up to, not with, ``end``; means outside of it and in it."""

    start: int
    end: int
    before: float
    during: float


def count_burst(counts: Floats) -> Burst | None:
    """The most significant stretch of a count series above its median, or None; one bin can be one.

    A rise that holds for more than half of the series is a step, and found as one.
    """
    if len(counts) < MIN_BEFORE + 1:
        return None
    if found := _stretch(stabilised(counts), floor=1.0):
        start, end = found
        outside = np.delete(counts, np.s_[start:end])
        return Burst(start, end, float(outside.mean()), float(counts[start:end].mean()))
    step = count_step(counts)
    return Burst(step.index, len(counts), step.before, step.after) if step else None


def level_burst(values: Floats, *, floor: float) -> Burst | None:
    """The most significant stretch of a measured level above its median, or None. NaN bins are left out."""
    known = np.flatnonzero(~np.isnan(values))
    dense = values[known]
    found = _stretch(dense, floor=floor) if len(dense) > MIN_BEFORE else None
    if found is None:
        return None
    start, end = found
    outside = np.delete(dense, np.s_[start:end])
    return Burst(int(known[start]), int(known[end - 1]) + 1, float(outside.mean()), float(dense[start:end].mean()))


def _stretch(y: Floats, *, floor: float) -> tuple[int, int] | None:
    """The bins, up to, not with, the second one, that lie above the median: those with the greatest sum of what is over
    half of an effect worth telling (Kadane's algorithm)."""
    usual = _median(y)
    above = y - usual
    if above.max() / floor < MIN_EFFECT:  # no mean of what is less is more
        return None
    noise = max(floor, 1.4826 * _median(np.abs(above)))
    excess = above / noise
    sums = np.concatenate(([0.0], np.cumsum(excess - MIN_EFFECT / 2)))
    lowest = np.minimum.accumulate(sums)
    end = int(np.argmax(sums - lowest))
    start = int(np.flatnonzero(sums[: end + 1] == lowest[end])[-1])
    effect = float(excess[start:end].mean()) if end > start else 0.0
    return (start, end) if effect >= MIN_EFFECT and effect * np.sqrt(end - start) >= MIN_T else None


def _median(y: Floats) -> float:
    """As numpy has it, where all are numbers: to find out whether they are takes it longer than to sort them."""
    ordered, middle = np.sort(y), len(y) // 2
    return float(ordered[middle] if len(y) % 2 else (ordered[middle - 1] + ordered[middle]) / 2)


def moves(values: Floats, *, floor: float) -> bool:
    """Whether the extremes of a measured level are far enough apart for a step, a beginning or a burst."""
    return bool(np.fmax.reduce(values) - np.fmin.reduce(values) >= MIN_EFFECT * floor)


def level_step(values: Floats, *, floor: float) -> Step | None:
    """The most significant rise of a measured level (log it first where ratios matter). NaN bins are left out.

    ``floor`` is the smallest rise that could matter, in the unit of ``values``: it bounds the noise from below,
    so that a flat line has no infinitely significant steps.
    """
    known = np.flatnonzero(~np.isnan(values))
    if len(known) < MIN_BEFORE + MIN_AFTER:
        return None
    dense = values[known]
    found = _best_split(dense, dense, floor=floor)
    if found is None:
        return None
    step, error = found
    turn, left = _hinge(dense)
    if left < STRAIGHT * error:
        # A leak has no step: it grows to the end, and began where it left the level.
        step = replace(step, index=turn, before=float(dense[:turn].mean()), after=float(dense[-MIN_AFTER:].mean()))
    return replace(step, index=int(known[step.index]))


def level_begun(values: Floats, *, floor: float) -> Step | None:
    """A rise of a measured level in its last bin alone, far beyond any noise: as much as is seen of it at once."""
    known = np.flatnonzero(~np.isnan(values))
    found = _just_begun(values[known] / floor, values[known])
    return replace(found, index=int(known[found.index])) if found else None


def _best_split(y: Floats, raw: Floats, *, floor: float) -> tuple[Step, float] | None:
    """The step, with the squared error that it leaves in ``y``."""
    n = len(y)
    if n < MIN_BEFORE + MIN_AFTER:
        return None
    left_n, right_n, spread = _sizes(n)
    places = slice(MIN_BEFORE - 1, n - MIN_AFTER)
    sums = y.cumsum()
    left = sums[places] / left_n
    right = (sums[-1] - sums[places]) / right_n
    gain = right - left
    # In most that move, the means before and after do not: no noise is needed. They differ less than extremes do.
    if gain.max() / floor < MIN_EFFECT or y.max() - y.min() < MIN_EFFECT * floor:
        return None
    squares = (y * y).cumsum()
    left_squares = squares[places]
    variance_left = np.maximum(left_squares / left_n - left**2, 0.0)
    variance_right = np.maximum((squares[-1] - left_squares) / right_n - right**2, 0.0)
    pooled = (variance_left * left_n + variance_right * right_n) / n
    noise = np.sqrt(np.maximum(pooled, floor**2))
    t = gain / (noise * spread)
    best = int(np.argmax(t))
    # The effect is measured against the noise before: what comes after is part of the trouble.
    noise_before = max(float(np.sqrt(variance_left[best])), floor)
    effect = float(gain[best] / noise_before)
    if t[best] < MIN_T or effect < MIN_EFFECT:
        return None
    cut = index = MIN_BEFORE + best
    # A ramp's best split lies in its middle: walk back to where it left the noise.
    while index > 1 and y[index - 1] > left[best] + 3.0 * noise_before:
        index -= 1
    step = Step(index, float(raw[:index].mean()), float(raw[cut:].mean()), effect, float(t[best]))
    return step, float(pooled[best]) * n


@lru_cache(maxsize=16)
def _sizes(n: int) -> tuple[Floats, Floats, Floats]:
    """Of each place to split ``n`` bins: how many lie before it and after it, and how many times a bin's noise the
    difference of their means has."""
    before = np.arange(MIN_BEFORE, n - MIN_AFTER + 1, dtype=float)
    after = n - before
    return before, after, np.sqrt(1.0 / before + 1.0 / after)


def _hinge(y: Floats) -> tuple[int, float]:
    """Where a level turns into what grows: the first bin above it, and the squared error that a rising line leaves.

    What grows seldom does so evenly, least of all in logarithms. So a parabola says where: by a line it is dated up to
    six bins too early where growth slows down, and ten too late where it gathers speed (of 64).
    """
    n = len(y)
    y = y - y.mean()
    turns = np.arange(0, n - MIN_AFTER)
    longest = n - 1.0 - turns  # a line is 0 up to the turn, then 1, 2, ... longest
    sums = longest * (longest + 1) / 2
    squares = sums * (2 * longest + 1) / 3
    cubes = sums**2
    fourths = squares * (3 * longest * (longest + 1) - 1) / 5
    tails = y[::-1].cumsum().cumsum()
    line = tails[::-1][1:][turns]
    parabola = 2 * tails.cumsum()[::-1][1:][turns] - line
    ones, mixed, twos = squares - sums**2 / n, cubes - sums * squares / n, fourths - squares**2 / n
    explained = np.maximum(line, 0.0) ** 2 / ones
    curved = (twos * line**2 - 2 * mixed * line * parabola + ones * parabola**2) / (ones * twos - mixed**2)
    return int(np.argmax(curved)) + 1, max(0.0, float((y * y).sum() - explained.max()))
