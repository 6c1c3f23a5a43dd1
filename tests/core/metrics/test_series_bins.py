"""What a bin keeps is enough: increases, extremes, ends; and keeping twice keeps the same."""

from __future__ import annotations

import math
from itertools import groupby, pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from app.core.metrics.series_bins import is_counter, kept
from app.core.stale import STALE

STEP = 60
Sample = tuple[int, float]
values = st.lists(st.integers(0, 9).map(float) | st.sampled_from([math.nan, STALE]), min_size=1, max_size=60)


def samples(told: list[float]) -> list[Sample]:
    """Three or four a bin."""
    return [(17 * n, value) for n, value in enumerate(told)]


def keep(told: list[Sample], *, counter: bool) -> list[Sample]:
    """Those samples of one series that are kept."""
    times, numbers = np.array([at for at, _ in told]), np.array([value for _, value in told])
    counters = np.full(len(told), counter)
    found = kept(np.zeros(len(told), np.int64), times, numbers, counters=counters, step=STEP)
    return [one for one, stays in zip(told, found, strict=True) if stays]


def increases(told: list[Sample]) -> list[float]:
    """Of each stretch between ends (NaN), as Prometheus has it."""
    parts = [list(part) for ended, part in groupby((v for _, v in told), key=math.isnan) if not ended]
    return [sum(new - old if new >= old else new for old, new in pairwise(part)) for part in parts]


@given(values)
def test_a_counter_rises_as_much_between_its_ends(told: list[float]) -> None:
    assert increases(keep(samples(told), counter=True)) == increases(samples(told))


def bins(told: list[Sample]) -> dict[int, tuple[float | None, ...]]:
    """The least, the greatest and the last of each bin."""
    found: dict[int, tuple[float | None, ...]] = {}
    for number, of_bin in groupby(told, key=lambda one: one[0] // STEP):
        numbers = [None if math.isnan(value) else value for _, value in of_bin]
        known = [value for value in numbers if value is not None]
        found[number] = (min(known, default=None), max(known, default=None), numbers[-1])
    return found


@given(values)
def test_a_gauge_keeps_the_least_the_greatest_and_the_last_of_each_bin(told: list[float]) -> None:
    assert bins(keep(samples(told), counter=False)) == bins(samples(told))


@given(values, st.booleans())
def test_keeping_twice_keeps_the_same(told: list[float], counter: bool) -> None:
    once = keep(samples(told), counter=counter)
    assert str(keep(once, counter=counter)) == str(once)


def test_what_never_moves_is_kept_once_a_bin_and_where_it_begins() -> None:
    told = [(20 * n, 5.0) for n in range(9)]
    assert keep(told, counter=False) == [(0, 5.0), (40, 5.0), (100, 5.0), (160, 5.0)]


def test_counters_are_known_by_what_their_target_says_or_by_their_names() -> None:
    assert is_counter("anything", "counter")
    assert is_counter("apiserver_request_total", "unknown")
    assert not is_counter("replicas_count", "gauge")
    assert not is_counter("workqueue_depth", "unknown")
