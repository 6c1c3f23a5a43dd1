"""Series on their grid: each bin as its definition says, of many series at once."""

from __future__ import annotations

import math
from array import array

import numpy as np
import pytest

from app.core.metrics.lines import Grid, laid
from app.core.model import MetricSeries
from app.core.stale import STALE

START, STEP, SCRAPES = 1_800_000_000.0, 30.0, 60


def scraped(seed: int) -> tuple[tuple[float, ...], list[list[float]]]:
    """Scrapes that drift by half an interval, of which some fail; values that are reset, end, or are no number."""
    random = np.random.default_rng(seed)
    drift = random.uniform(-STEP / 2, STEP / 2, SCRAPES) * (seed % 2)
    times = START + STEP * np.arange(SCRAPES) + drift
    kept = np.flatnonzero(random.random(SCRAPES) < 0.8)
    rows = random.integers(0, 50, (4, len(kept))).cumsum(axis=1).astype(float)
    rows[1, len(kept) // 2 :] -= rows[1, len(kept) // 2]
    rows[2, len(kept) // 3] = STALE
    rows[3, -1] = math.nan
    return tuple(times[kept].tolist()), rows.tolist()


def in_bins(at: list[float], values: list[float], axis: Grid) -> list[float]:
    """The last value of each bin; of one without any, the mean of those beside it."""
    last = {int((time - axis.start) // axis.step): value for time, value in zip(at, values, strict=True)}
    there = [last.get(place, math.nan) for place in range(axis.size)]
    between = [(before + after) / 2 for before, after in zip(there, there[2:], strict=False)]
    middle = [there[place] if place in last else between[place - 1] for place in range(1, axis.size - 1)]
    return [there[0], *middle, there[-1]]


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("name", ["apiserver_request_total", "workqueue_depth"])
def test_a_bin_holds_its_last_scrape_or_what_lies_between_its_neighbours(name: str, seed: int) -> None:
    times, rows = scraped(seed)
    series = [MetricSeries(name, (("n", str(n)),), "", times, array("d", row)) for n, row in enumerate(rows)]
    told = laid(series, until=times[-1] + 1)
    assert told is not None
    for row, values in zip(told.rows, rows, strict=True):
        if name == "workqueue_depth":
            expected = in_bins(list(times), values, told.axis)
        else:
            pairs = list(zip(times, times[1:], values, values[1:], strict=False))
            rates = [(new if new < old else new - old) / (to - of) for of, to, old, new in pairs]
            expected = in_bins(list(times[1:]), rates, told.axis)
        np.testing.assert_allclose(row, expected)
