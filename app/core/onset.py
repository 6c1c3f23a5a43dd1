"""Where a series turns bad: the best split into a before and an after.

Counts are variance-stabilised with Anscombe's transform 2·sqrt(x + 3/8) (Biometrika 35, 1948), so that the noise of
a Poisson count is about one unit at any level; API traffic is over-dispersed, so the noise is measured from the
series itself and one unit is only its floor. A "best split" finds change points in operations data far better than
a z-score against a baseline, at a fraction of a millisecond a series.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

MIN_BEFORE = 3
MIN_AFTER = 2
MIN_EFFECT = 3.0
MIN_T = 5.0


@dataclass(frozen=True, slots=True)
class Step:
    """A rise. ``index`` is the first bad bin; ``before`` and ``after`` are means in the series' own unit.

    ``effect`` is the rise in noise units, ``t`` its Student-like significance.
    """

    index: int
    before: float
    after: float
    effect: float
    t: float


def count_step(counts: Floats) -> Step | None:
    """The most significant rise of a count series, or None. Bins are equal and none is missing."""
    return _best_split(2.0 * np.sqrt(np.maximum(counts, 0.0) + 0.375), counts, floor=1.0)


def level_step(values: Floats, *, floor: float) -> Step | None:
    """The most significant rise of a measured level (log it first where ratios matter). NaN bins are left out.

    ``floor`` is the smallest rise that could matter, in the unit of ``values``: it bounds the noise from below,
    so that a flat line has no infinitely significant steps.
    """
    known = np.flatnonzero(~np.isnan(values))
    if len(known) < MIN_BEFORE + MIN_AFTER:
        return None
    dense = values[known]
    step = _best_split(dense, dense, floor=floor)
    if step is None:
        return None
    return Step(int(known[step.index]), step.before, step.after, step.effect, step.t)


def _best_split(y: Floats, raw: Floats, *, floor: float) -> Step | None:
    n = len(y)
    if n < MIN_BEFORE + MIN_AFTER:
        return None
    cuts = np.arange(MIN_BEFORE, n - MIN_AFTER + 1)
    sums, squares = np.cumsum(y), np.cumsum(y * y)
    left_n, right_n = cuts.astype(float), (n - cuts).astype(float)
    left = sums[cuts - 1] / left_n
    right = (sums[-1] - sums[cuts - 1]) / right_n
    variance_left = np.maximum(squares[cuts - 1] / left_n - left**2, 0.0)
    variance_right = np.maximum((squares[-1] - squares[cuts - 1]) / right_n - right**2, 0.0)
    pooled = (variance_left * left_n + variance_right * right_n) / n
    noise = np.sqrt(np.maximum(pooled, floor**2))
    t = (right - left) / (noise * np.sqrt(1.0 / left_n + 1.0 / right_n))
    best = int(np.argmax(t))
    # The effect is measured against the noise before: what comes after is part of the trouble.
    noise_before = max(float(np.sqrt(variance_left[best])), floor)
    effect = float((right[best] - left[best]) / noise_before)
    if t[best] < MIN_T or effect < MIN_EFFECT:
        return None
    index = int(cuts[best])
    # A ramp's best split lies in its middle: walk back to where it left the noise.
    while index > 1 and y[index - 1] > left[best] + 3.0 * noise_before:
        index -= 1
    cut = int(cuts[best])
    return Step(index, float(raw[:index].mean()), float(raw[cut:].mean()), effect, float(t[best]))
