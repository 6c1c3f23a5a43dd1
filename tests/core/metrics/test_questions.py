"""By which names series are asked for, and which of these nothing is stored of."""

from __future__ import annotations

import pytest

from app.core.metrics.measures import Measure
from app.core.metrics.questions import asked_for, series_query, unknown


@pytest.mark.parametrize(
    ("stored", "names"),
    [
        (("wait_seconds_bucket", "wait_seconds_sum", "wait_seconds_count"), ["wait_seconds"]),
        (("wait_seconds_bucket",), ["wait_seconds"]),
        (("wait_seconds", "wait_seconds_sum", "wait_seconds_count"), ["wait_seconds"]),
        (("go_goroutine_count", "up"), ["go_goroutine_count", "up"]),
        (("paid_sum",), ["paid_sum"]),
        (("paid", "paid_count"), ["paid", "paid_count"]),
    ],
)
def test_of_a_histogram_its_own_name_is_asked_for(stored: tuple[str, ...], names: list[str]) -> None:
    assert asked_for(stored) == names


@pytest.mark.parametrize(
    ("metric", "says"),
    [
        ("wait_seconds", ""),
        ("wait_seconds_sum", ""),
        ("go_goroutine_count", ""),
        ("go_goroutine", "no metric 'go_goroutine' of shop is stored; the nearest: go_goroutine_count"),
    ],
)
def test_what_only_begins_like_one_is_not_stored(metric: str, says: str) -> None:
    query = series_query(metric, Measure.MEAN, by="", where="", most=10, quantile=0.99)
    stored = ("wait_seconds_sum", "wait_seconds_count", "go_goroutine_count")
    assert unknown(query, "shop", stored) == says
