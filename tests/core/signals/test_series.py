"""Metrics become lines and rises: what a first sample says, who is compared with whom, and where a rise begins."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
import pytest

from app.core.counted import NO_CALLS
from app.core.metrics.lines import Laid, laid
from app.core.model import MetricSeries
from app.core.screen.aftermath import Measured, added_up, moved, told_apart
from app.core.signals.series import metric_signals, sparks
from app.core.signals.signal import Signal

START = 1_800_000_000.0
STEP = 5.0
SIZE = 60
OK = {"job": "apiserver", "verb": "GET", "group": "", "resource": "pods", "code": "200"}
FAILED = {"job": "apiserver", "verb": "POST", "group": "apps", "resource": "deployments", "code": "500"}
REQUESTS = "apiserver_request_total"
REFUSED = "apiserver_admission_webhook_rejection_count"
MEMORY = "process_resident_memory_bytes"
STARTED = "process_start_time_seconds"


def a_series(name: str, labels: dict[str, str], values: list[float], *, first: int = 0) -> MetricSeries:
    """One sample a scrape, from the ``first`` on."""
    times = tuple(START + STEP * (first + i) for i in range(len(values)))
    return MetricSeries(name, tuple(sorted(labels.items())), "unknown", times, tuple(map(float, values)))


def steady(labels: dict[str, str] = OK, *, each: float = 50, since: float = 0, first: int = 0) -> MetricSeries:
    return a_series(REQUESTS, labels, [since + each * i for i in range(SIZE - first)], first=first)


def rises(*series: MetricSeries) -> list[Signal]:
    return metric_signals(told(*series))


def told(*series: MetricSeries) -> Laid:
    found = laid(series, until=START + STEP * SIZE)
    assert found is not None
    return found


def began(signal: Signal) -> float:
    """The middle of the interval in which it began, in seconds from the first scrape."""
    return (signal.low.timestamp() + signal.high.timestamp()) / 2 - START


@pytest.mark.parametrize("zeros", [True, False])
def test_a_counter_that_is_made_by_the_first_error_was_zero_before(zeros: bool) -> None:
    counted = [400.0 * (i + 1) for i in range(24)]
    failed = (
        a_series(REQUESTS, FAILED, [0.0] * 36 + counted) if zeros else a_series(REQUESTS, FAILED, counted, first=36)
    )
    (signal,) = rises(steady(), failed)
    assert signal.sentence == "server errors (POST apps deployments 500) rose from 0 to 80/s"
    assert abs(began(signal) - 36 * STEP) <= STEP


def test_rejections_of_a_webhook_that_never_rejected_before() -> None:
    rejected = a_series(REFUSED, {"job": "apiserver", "name": "v.guard"}, [50.0 * (i + 1) for i in range(30)], first=30)
    (signal,) = rises(steady(), rejected)
    assert signal.sentence.endswith("rose from 0 to 10/s")
    assert abs(began(signal) - 30 * STEP) <= STEP


def test_what_is_summed_up_over_instances_was_zero_while_these_were_scraped() -> None:
    rejected = a_series(REFUSED, {"job": "apiserver", "name": "v.guard"}, [50.0 * (i + 1) for i in range(30)], first=30)
    (signal,) = rises(steady(OK | {"instance": "a"}), rejected)
    assert signal.sentence.endswith("rose from 0 to 10/s")


def test_after_a_restart_a_first_sample_says_nothing() -> None:
    failed = a_series(REQUESTS, FAILED, [4000.0] * 24, first=36)
    up = a_series(STARTED, {"job": "apiserver"}, [START - 9e4] * 36 + [START + 178] * 24)
    assert [signal.sentence for signal in rises(steady(), failed, up)] == ["apiserver restarted"]
    again = a_series(REQUESTS, OK, [1e6 + 50 * i for i in range(36)] + [50.0 * i for i in range(24)])
    assert rises(again, failed) == []


def test_a_target_that_is_scraped_for_the_first_time_did_not_count_up_just_then() -> None:
    other = steady(OK | {"instance": "b"}, since=12e6, first=30)
    assert rises(steady(OK | {"instance": "a"}), other) == []


def test_a_scrape_that_is_missing_is_no_zero() -> None:
    whole = steady()
    kept = [i for i in range(SIZE) if not 20 <= i < 40]
    holed = MetricSeries(
        REQUESTS, whole.labels, "", tuple(whole.times[i] for i in kept), tuple(whole.values[i] for i in kept)
    )
    (line,) = sparks(told(holed))
    assert None in line.values
    assert rises(holed) == []


def test_a_latency_of_which_nothing_was_observed_is_no_zero() -> None:
    observed = [0.0] * 20 + [10.0 * i for i in range(SIZE - 20)]
    name = "apiserver_request_duration_seconds"
    parts = {"count": 1.0, "sum": 0.3}
    timed = [a_series(f"{name}_{part}", OK, [each * n for n in observed]) for part, each in parts.items()]
    (line,) = sparks(told(*timed))
    assert line.values[:21] == (None,) * 21
    assert line.values[21:] == pytest.approx((0.3,) * (SIZE - 21))
    assert line.bad_from is None


def test_a_latency_that_is_not_measured_yet_after_a_change_did_not_fall() -> None:
    name = "apiserver_request_duration_seconds"
    parts = {"count": 1.0, "sum": 0.3}
    timed = [a_series(f"{name}_{part}", OK, [each * i for i in range(SIZE)]) for part, each in parts.items()]
    change_at = datetime.fromtimestamp(START + STEP * (SIZE - 10), UTC)
    assert moved(change_at, Measured(None, NO_CALLS, tuple(timed))) == ()


@pytest.mark.parametrize(("name", "gone"), [(REQUESTS, {0, 30, 31}), (MEMORY, {30})])
def test_a_series_ends_where_it_is_marked_as_stale(name: str, gone: set[int]) -> None:
    """A rate is one over two scrapes: neither up to the mark nor from it on."""
    values = [1000.0 + 50 * i for i in range(SIZE)]
    ended = a_series(name, OK, [*values[:30], float("nan"), *values[31:]])
    (line,) = sparks(told(ended))
    assert {place for place, value in enumerate(line.values) if value is None} == gone


def test_one_series_that_ends_does_not_end_those_it_is_added_up_with() -> None:
    values = np.array([[1.0, 2.0, np.nan], [1.0, 2.0, 3.0], [2.0, 2.0, 2.0]])
    whole, ended = added_up(MEMORY, (), times=(0.0, 5.0, 10.0), values=values)
    assert whole.values == (3.0, 4.0, 5.0)
    assert ended.values[:2] == (1.0, 2.0)
    assert np.isnan(ended.values[2])


def test_memory_of_a_server_that_joins_is_no_rise_of_the_others() -> None:
    one = a_series(MEMORY, {"job": "apiserver", "instance": "a"}, [1e9] * SIZE)
    two = a_series(MEMORY, {"job": "apiserver", "instance": "b"}, [1e9] * 30, first=30)
    assert rises(one, two) == []
    (line,) = sparks(told(one, two))
    assert line.bad_from is None


def test_a_server_that_grows_is_named_among_others() -> None:
    one = a_series(MEMORY, {"job": "apiserver", "instance": "a"}, [8e9] * SIZE)
    two = a_series(MEMORY, {"job": "apiserver", "instance": "b"}, [1e9] * 30 + [3e9] * 30)
    (signal,) = rises(one, two)
    assert signal.sentence.startswith("memory (apiserver b) rose from")


def test_a_leak_is_dated_to_where_it_begins() -> None:
    leak = a_series(MEMORY, {"job": "apiserver"}, [2e8 + 3e7 * max(0, i - 20) for i in range(SIZE)])
    (signal,) = rises(leak)
    assert abs(began(signal) - 20 * STEP) <= 2 * STEP


def test_watches_that_pile_up_are_seen() -> None:
    labels = {"job": "apiserver", "verb": "WATCH", "group": "batch", "resource": "cronjobs"}
    watches = a_series("apiserver_longrunning_requests", labels, [2.0] * 30 + [71.0] * 30)
    (signal,) = rises(watches)
    assert signal.sentence == "open watches (batch cronjobs) rose from 2 to 71"
    assert signal.about["api", "batch", "cronjobs", "watch"] > 0.5


def test_calls_of_a_subresource_are_their_own() -> None:
    pods, binding = OK | {"verb": "POST"}, OK | {"verb": "POST", "subresource": "binding"}
    bound = a_series(REQUESTS, binding, [0.0] * 30 + [100.0 * i for i in range(30)])
    (signal,) = rises(steady(pods), bound)
    assert signal.sentence.startswith("requests (POST pods/binding) rose from 0 to 20/s")
    assert ("api", "", "pods", "create") in signal.about


def test_what_moved_after_a_change_is_no_server_that_joined() -> None:
    change = datetime.fromtimestamp(START + 30 * STEP - 1, UTC)
    one = a_series(MEMORY, {"job": "apiserver", "instance": "a"}, [1e9] * SIZE)
    two = a_series(MEMORY, {"job": "apiserver", "instance": "b"}, [1e9] * 30, first=30)
    summed = [
        together
        for told in (one, two)
        for together in added_up(
            MEMORY, told_apart(MEMORY, told.labels), times=told.times, values=np.array([told.values])
        )
    ]
    assert moved(change, Measured(None, NO_CALLS, tuple(summed))) == ()
