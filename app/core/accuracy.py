"""How good a ranking is: AC@k, mean reciprocal rank, and how far chance alone could move them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

Z95 = 1.959964


@dataclass(frozen=True, slots=True)
class Accuracy:
    """Over ``cases`` incidents. Each figure with its 95 % interval (Wilson for shares, bootstrap for MRR)."""

    cases: int
    ac1: float
    ac1_interval: tuple[float, float]
    ac3: float
    ac3_interval: tuple[float, float]
    mrr: float
    mrr_interval: tuple[float, float]


def accuracy(ranks: Sequence[float | None]) -> Accuracy:
    """From the culprits' ranks (None: not among the candidates; halves: broken ties). Needs at least one."""
    n = len(ranks)
    reciprocal = np.array([0.0 if rank is None else 1.0 / rank for rank in ranks])
    first = sum(_within(rank, 1) for rank in ranks)
    third = sum(_within(rank, 3) for rank in ranks)
    resampled = np.random.default_rng(0).choice(reciprocal, size=(2000, n)).mean(axis=1)
    low, high = np.quantile(resampled, [0.025, 0.975])
    return Accuracy(
        n,
        first / n,
        wilson(first, n),
        third / n,
        wilson(third, n),
        float(reciprocal.mean()),
        (float(low), float(high)),
    )


def _within(rank: float | None, k: int) -> float:
    """1 within the first k; a tied rank r stands for ranks 1 to 2r-1 with equal chance."""
    if rank is None:
        return 0.0
    if rank == int(rank) and rank <= k:
        return 1.0
    spread = 2 * rank - 1
    return min(1.0, k / spread) if rank > k or rank != int(rank) else 1.0


def wilson(successes: float, n: int) -> tuple[float, float]:
    """The 95 % interval of a share (E. B. Wilson, JASA 22, 1927): honest for few cases and near 0 or 1."""
    p, z2 = successes / n, Z95**2
    centre = (p + z2 / (2 * n)) / (1 + z2 / n)
    half = Z95 * math.sqrt(p * (1 - p) / n + z2 / (4 * n * n)) / (1 + z2 / n)
    return max(0.0, centre - half), min(1.0, centre + half)
