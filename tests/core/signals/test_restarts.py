"""A process that began anew: when it ended, and what its memory was until then."""

from __future__ import annotations

import pytest

from app.core.metrics.lines import SINCE, laid
from app.core.model import MetricSeries
from app.core.signals.series import metric_signals
from app.core.signals.signal import Signal, moment

START, STEP, SIZE, MIB = 1_800_000_000.0, 5.0, 60, 2.0**20
LONG_AGO = START - 90_000.0


def scraped(name: str, values: list[float], *, missed: tuple[int, ...] = ()) -> MetricSeries:
    kept = [(START + STEP * n, value) for n, value in enumerate(values) if n not in missed]
    return MetricSeries(name, (("job", "apiserver"),), "gauge", *zip(*kept, strict=True))


def found(started: list[float], memory: list[float], *, missed: tuple[int, ...] = ()) -> list[Signal]:
    lines = laid(
        [
            scraped("process_start_time_seconds", started, missed=missed),
            scraped("process_resident_memory_bytes", memory, missed=missed),
        ],
        until=START + STEP * SIZE,
    )
    assert lines is not None
    return metric_signals(lines)


def test_it_ended_after_its_last_scrape_and_before_the_next_began() -> None:
    (signal,) = found([LONG_AGO] * 40 + [START + 197.5] * 20, [300 * MIB] * SIZE)
    assert (signal.sentence, signal.low, signal.high) == (
        "apiserver restarted",
        moment(START + 195),
        moment(START + 197.5),
    )


@pytest.mark.parametrize("missed", [(), (40,), (40, 41, 42)])
def test_a_scrape_that_it_missed_while_it_was_down_is_no_other_restart(missed: tuple[int, ...]) -> None:
    restarts = found([LONG_AGO] * 40 + [START + 197.5] * 20, [300 * MIB] * SIZE, missed=missed)
    assert [signal.high for signal in restarts] == [moment(START + 197.5)]


def test_a_clock_that_goes_wrong_does_not_turn_the_order_round() -> None:
    (signal,) = found([LONG_AGO] * 40 + [START + 20] * 20, [300 * MIB] * SIZE)
    assert signal.low == signal.high == moment(START + 195)


@pytest.mark.parametrize("again", [(), (44, 48, 52)])
def test_the_memory_that_a_process_ended_of_is_told(again: tuple[int, ...]) -> None:
    began = (40, *again)
    started = [max((START + STEP * n - 1 for n in began if n <= at), default=LONG_AGO) for at in range(SIZE)]
    memory = [300 * MIB] * 36 + [900 * MIB] * 4 + [200 * MIB] * 20
    rose = [signal for signal in found(started, memory) if signal.facts["family"] == "Memory"]
    assert [signal.sentence for signal in rose] == ["memory (apiserver) rose from 300 MiB to 900 MiB"]
    assert rose[0].low <= moment(START + STEP * 36) <= rose[0].high


def test_what_a_process_has_after_it_began_anew_counts_first() -> None:
    memory = [300 * MIB] * 8 + [400 * MIB] * 4 + [300 * MIB] * 28 + [900 * MIB] * 20
    (rose,) = [s for s in found([LONG_AGO] * 12 + [START + 59] * 48, memory) if s.facts["family"] == "Memory"]
    assert rose.sentence == "memory (apiserver) rose from 310 MiB to 900 MiB"


def a_life(since: float, first: int, last: int, *, address: str = "10.0.0.1:6443") -> list[MetricSeries]:
    """An API server that is scraped by ourselves, from one scrape to another: each life of it has a name of its own."""
    labels = (("job", "kube-apiserver"), ("instance", f"{address}{SINCE}{since}"))
    times = tuple(START + STEP * n for n in range(first, last))
    memory = tuple((900.0 if n >= last - 4 else 300.0) * MIB for n in range(first, last))
    return [
        MetricSeries("process_start_time_seconds", labels, "gauge", times, tuple(since for _ in times)),
        MetricSeries("process_resident_memory_bytes", labels, "gauge", times, memory),
    ]


def told(*lives: list[MetricSeries]) -> list[Signal]:
    lines = laid([one for life in lives for one in life], until=START + STEP * SIZE)
    assert lines is not None
    return metric_signals(lines)


def test_whoever_follows_at_one_address_was_started_anew() -> None:
    signals = told(a_life(LONG_AGO, 0, 40), a_life(START + 197.5, 41, SIZE))
    (restart,) = [one for one in signals if one.facts["family"] == "Restarts"]
    assert restart.sentence == "kube-apiserver restarted"
    assert (restart.low, restart.high) == (moment(START + 195), moment(START + 197.5))
    assert any("from 300 MiB to 900 MiB" in one.sentence for one in signals if one.facts["family"] == "Memory")


def test_another_behind_the_address_is_no_restart() -> None:
    assert not [
        one for one in told(a_life(LONG_AGO, 0, SIZE), a_life(START + 100, 21, SIZE)) if "restarted" in one.sentence
    ]
    two = told(a_life(LONG_AGO, 0, 40), a_life(LONG_AGO + 5, 0, SIZE), a_life(START + 197.5, 41, SIZE))
    assert [one.low for one in two if "restarted" in one.sentence] == [moment(START + 195)]
    apart = told(a_life(LONG_AGO, 0, 40), a_life(START + 197.5, 41, SIZE, address="10.0.0.2:6443"))
    assert not [one for one in apart if "restarted" in one.sentence]
