from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.onset import (
    Burst,
    Floats,
    count_burst,
    count_bursts,
    count_step,
    count_steps,
    level_burst,
    level_step,
    level_steps,
)

RNG = np.random.default_rng(7)


@pytest.mark.parametrize(("before", "after", "at"), [(0, 20, 20), (5, 50, 12), (100, 400, 30), (1, 8, 25)])
def test_a_step_is_found_where_it_is(before: float, after: float, at: int) -> None:
    counts = np.concatenate([RNG.poisson(before, at), RNG.poisson(after, 40 - at)]).astype(float)
    step = count_step(counts)
    assert step is not None
    assert abs(step.index - at) <= 1
    assert step.after > step.before


@pytest.mark.parametrize("rate", [0.2, 3, 40, 500])
def test_steady_traffic_has_no_step(rate: float) -> None:
    found = [count_step(np.random.default_rng(seed).poisson(rate, 60).astype(float)) for seed in range(50)]
    assert sum(step is not None for step in found) <= 1


def test_a_fall_is_no_rise() -> None:
    assert count_step(np.array([50.0] * 20 + [2.0] * 20)) is None


def test_a_ramp_begins_where_it_leaves_the_noise() -> None:
    counts = np.array([0.0] * 20 + [5, 10, 15, 20, 25, 30] + [30.0] * 20)
    step = count_step(counts)
    assert step is not None
    assert step.index <= 21


@pytest.mark.parametrize(("begins", "top"), [(20, 0), (40, 0), (20, 5), (50, 2)])
@pytest.mark.parametrize("noise", [0.0, 0.05])
def test_what_grows_to_the_end_began_where_it_left_the_level(begins: int, top: int, noise: float) -> None:
    grows = np.minimum(np.maximum(np.arange(60.0) - begins, 0), 60 - begins - top)
    step = level_step(grows / grows.max() + np.random.default_rng(3).normal(0, noise, 60), floor=0.05)
    assert step is not None
    assert abs(step.index - begins) <= 2
    assert step.after == pytest.approx(1.0, abs=0.15)


@pytest.mark.parametrize("grows", [lambda since: np.log1p(0.5 * since), np.sqrt, np.square])
def test_what_does_not_grow_evenly_is_dated_as_well(grows: Callable[[Floats], Floats]) -> None:
    """As the logarithm of a latency that rises by as much each second, or what feeds on itself."""
    rises = grows(np.maximum(np.arange(64.0) - 30, 0))
    step = level_step(rises / rises.max() + np.random.default_rng(3).normal(0, 0.01, 64), floor=0.05)
    assert step is not None
    assert abs(step.index - 30) <= 3


def test_a_ramp_that_ends_soon_is_no_leak() -> None:
    step = level_step(np.array([0.0] * 20 + [2, 4, 6, 8] + [10.0] * 20), floor=0.3)
    assert step is not None
    assert abs(step.index - 20) <= 2


def test_a_level_needs_a_rise_that_matters() -> None:
    flat = np.array([1.0] * 20 + [1.001] * 20)
    assert level_step(flat, floor=0.1) is None
    assert level_step(np.array([1.0] * 20 + [3.0] * 20), floor=0.1) is not None


def test_gaps_are_left_out() -> None:
    values = np.array([1.0, np.nan, 1.0, 1.0, np.nan, 1.0, 9.0, np.nan, 9.0, 9.0])
    step = level_step(values, floor=0.5)
    assert step is not None
    assert step.index == 6


@given(st.lists(st.integers(0, 10_000), max_size=60))
def test_any_counts_are_answered(counts: list[int]) -> None:
    step = count_step(np.array(counts, dtype=float))
    assert step is None or 0 < step.index < len(counts)


def test_of_many_series_those_rise_that_rise_by_themselves() -> None:
    """Most are told to stay where they are without being looked at one by one."""
    rng = np.random.default_rng(3)
    level, rise = rng.choice([0.0, 0.3, 4.0, 60.0], 400), rng.choice([0.0, 0.0, 1.5, 9.0, 40.0], 400)
    rates = level[:, np.newaxis] + rise[:, np.newaxis] * (np.arange(50) >= 35)
    counts = dict(enumerate(rng.poisson(rates).astype(float)))
    levels = {key: np.where(rng.random(50) < 0.1, np.nan, line) for key, line in counts.items()}
    levels[400] = np.full(50, np.nan)
    steps = {key: step for key, line in counts.items() if (step := count_step(line))}
    assert 20 < len(steps) < 300
    assert count_steps(counts) == steps
    assert count_bursts(counts) == {key: burst for key, line in counts.items() if (burst := count_burst(line))}
    assert level_steps(levels, floor=0.5) == {k: s for k, line in levels.items() if (s := level_step(line, floor=0.5))}
    assert count_steps({}) == {}


def test_a_stretch_of_a_level_may_end_again() -> None:
    line = np.zeros(60)
    line[30:34] = 0.5
    line[10] = line[31] = np.nan
    assert level_burst(line, floor=0.01) == Burst(30, 34, 0.0, 0.5)
    quiet = np.random.default_rng(7).normal(0.2, 0.01, 60)
    assert level_burst(quiet, floor=0.01) is None
    assert level_burst(line[:3], floor=0.01) is None
