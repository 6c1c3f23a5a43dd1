"""How good a ranking is: AC@k, mean reciprocal rank, whether its odds hold, and how far chance moves them."""

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


@dataclass(frozen=True, slots=True)
class Rank:
    """Where the culprit stands: behind ``above`` others, level with itself and ``tied`` - 1 more."""

    above: int
    tied: int = 1

    @property
    def mean(self) -> float:
        """The rank to expect when chance breaks the tie."""
        return self.above + (self.tied + 1) / 2

    def within(self, k: int) -> float:
        """The chance to be among the first k."""
        return min(1.0, max(0.0, (k - self.above) / self.tied))

    @property
    def reciprocal(self) -> float:
        """The expected 1/rank."""
        return sum(1 / rank for rank in range(self.above + 1, self.above + self.tied + 1)) / self.tied


def accuracy(ranks: Sequence[Rank | None]) -> Accuracy:
    """From the culprits' ranks (None: not among the candidates). Needs at least one."""
    n = len(ranks)
    reciprocal = np.array([rank.reciprocal if rank else 0.0 for rank in ranks])
    first = sum(rank.within(1) for rank in ranks if rank)
    third = sum(rank.within(3) for rank in ranks if rank)
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


@dataclass(frozen=True, slots=True)
class Reliability:
    """Of ``cases`` leaders whose probability was in [low, high): what was said on average, what was right."""

    low: float
    high: float
    cases: int
    said: float
    right: float
    right_interval: tuple[float, float]


def reliability(leaders: Sequence[tuple[float, bool]], *, bins: int = 5) -> list[Reliability]:
    """Whether probabilities hold, from each leader's (probability, was it right); empty bins are left out."""
    of_bin: dict[int, list[tuple[float, bool]]] = {}
    for said, right in leaders:
        of_bin.setdefault(min(int(said * bins), bins - 1), []).append((said, right))
    found = []
    for number, held in sorted(of_bin.items()):
        n, hits = len(held), sum(right for _, right in held)
        said = sum(said for said, _ in held) / n
        found.append(Reliability(number / bins, (number + 1) / bins, n, said, hits / n, wilson(hits, n)))
    return found


def auroc(with_culprit: Sequence[float], without: Sequence[float]) -> float | None:
    """How well P("none of these") tells incidents without a culprit from those with one: the chance that it is higher
    in one of the former than in one of the latter. 0.5 is chance; None where there are none of either."""
    if not with_culprit or not without:
        return None
    higher = [(there > here) + (there == here) / 2 for there in without for here in with_culprit]
    return sum(higher) / len(higher)


LEAST = 0.001
"""What is said to be less likely than that counts as this likely: one answer that is missed outright is not all."""


def surprise(said: Sequence[float]) -> float:
    """How surprising the right answers were, from what was said of each: the mean of -ln p (the logarithmic score:
    I. J. Good, J. R. Stat. Soc. B 14, 1952). 0 is certain of all that is right, ln 2 of each by half. Needs one."""
    return -sum(math.log(max(LEAST, p)) for p in said) / len(said)


@dataclass(frozen=True, slots=True)
class Comparison:
    """Incidents whose culprit one method has first and the other has not, and the chance of a difference as great where
    both are as good (exact McNemar test: Q. McNemar, Psychometrika 12, 1947)."""

    won: int
    lost: int
    p: float


def compare(ours: Sequence[Rank | None], theirs: Sequence[Rank | None]) -> Comparison:
    """Two methods over the same incidents, in the same order. First by a tie is not first."""
    firsts = [
        tuple(rank is not None and rank.within(1) == 1.0 for rank in pair) for pair in zip(ours, theirs, strict=True)
    ]
    won, lost = firsts.count((True, False)), firsts.count((False, True))
    tail = sum(math.comb(won + lost, k) for k in range(min(won, lost) + 1)) / 2 ** (won + lost)
    return Comparison(won, lost, min(1.0, 2 * tail))


def wilson(successes: float, n: int) -> tuple[float, float]:
    """The 95 % interval of a share (E. B. Wilson, JASA 22, 1927): honest for few cases and near 0 or 1."""
    p, z2 = successes / n, Z95**2
    centre = (p + z2 / (2 * n)) / (1 + z2 / n)
    half = Z95 * math.sqrt(p * (1 - p) / n + z2 / (4 * n * n)) / (1 + z2 / n)
    return max(0.0, centre - half), min(1.0, centre + half)
