"""Series on their grid: each bin as its definition says, of many series at once."""

from __future__ import annotations

import math
from array import array
from collections import defaultdict

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
    """The last value of each bin; of one without any the first of the next, where that has two, else the mean of those
    beside it."""
    told: dict[int, list[float]] = defaultdict(list)
    for time, value in zip(at, values, strict=True):
        told[int((time - axis.start) // axis.step)].append(value)
    there = [told[place][-1] if place in told else math.nan for place in range(axis.size)]
    inner = range(1, axis.size - 1)
    late = {place: told[place + 1][0] for place in inner if len(told.get(place + 1, ())) > 1}
    between = {place: (there[place - 1] + there[place + 1]) / 2 for place in inner}
    return [one if place in told else (between | late).get(place, math.nan) for place, one in enumerate(there)]


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


def test_a_scrape_that_is_a_little_late_is_no_rise_before_it() -> None:
    """The third comes a moment after its bin is over, and finds what the second found; the fourth finds more."""
    times = (0.0, 10.0, 20.2, 29.9, 40.0)
    series = [MetricSeries("apiserver_request_total", (), "", times, array("d", [5.0, 5.0, 5.0, 205.0, 405.0]))]
    told = laid(series, until=45.0)
    assert told is not None
    np.testing.assert_allclose(told.rows[0], [0.0, 0.0, 200 / 9.7, 200 / 10.1])
