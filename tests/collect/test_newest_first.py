"""An audit log that tells the newest event first is refused; one that is merely out of order is not."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from itertools import chain, pairwise
from pathlib import Path

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from app.collect.files import UnreadableError
from app.collect.inputs import find_inputs, survey
from app.collect.newest_first import STEPS, is_newest_first
from tests.collect.exported import SAME, Event, compact, plain
from tests.collect.test_importer import T0, read

ENOUGH = STEPS + 1
"""Events that have so many steps."""


def times(seconds: Sequence[float]) -> list[datetime]:
    return [T0 + timedelta(seconds=second) for second in seconds]


@given(st.lists(st.integers(0, 10**6), min_size=ENOUGH, max_size=200, unique=True))
def test_what_goes_back_from_end_to_end_is_newest_first(seconds: list[int]) -> None:
    assert is_newest_first(times(sorted(seconds, reverse=True)))
    assert not is_newest_first(times(sorted(seconds)))


@given(st.integers(100, 300), st.data())
def test_that_now_and_then_two_are_swapped_hides_it_not(size: int, data: st.DataObject) -> None:
    seconds = list(range(size, 0, -1))
    places = st.integers(0, (size - 3) // 2).map(lambda half: 2 * half + 1)  # no two of them touch, nor the ends
    for place in data.draw(st.sets(places, max_size=size // 20)):
        seconds[place : place + 2] = reversed(seconds[place : place + 2])
    assert is_newest_first(times(seconds))


@given(st.integers(ENOUGH, 200), st.data())
def test_what_stands_nowhere_further_from_its_place_than_half_of_the_log_is_not(size: int, data: st.DataObject) -> None:
    late = data.draw(st.lists(st.integers(0, (size - 1) // 2), min_size=size, max_size=size))
    found = sorted(range(size), key=lambda second: second + late[second])
    assert not is_newest_first(times(found))


@pytest.mark.parametrize("buffer", [2, 7, 30, 59])
def test_buffers_that_are_told_from_their_ends_are_not(buffer: int) -> None:
    parts = [range(begin, min(begin + buffer, 60)) for begin in range(0, 60, buffer)]
    found = [*chain.from_iterable(map(reversed, parts))]
    assert sum(after < before for before, after in pairwise(found)) >= 30
    assert not is_newest_first(times(found))


@given(st.lists(st.lists(st.integers(0, 10**6), min_size=2, unique=True), min_size=2, max_size=50))
def test_logs_that_stand_one_behind_the_other_are_not_whatever_their_order(logs: list[list[int]]) -> None:
    for order in (logs, sorted(logs, key=max, reverse=True)):
        assert not is_newest_first(times([*chain.from_iterable(map(sorted, order))]))


@given(st.integers(ENOUGH, 500), st.integers())
def test_no_order_at_all_is_not(size: int, seed: int) -> None:
    seconds = list(range(size))
    random.Random(seed).shuffle(seconds)
    assert not is_newest_first(times(seconds))


def test_a_few_events_tell_nothing() -> None:
    assert not is_newest_first([])
    assert not is_newest_first(times(range(STEPS, 0, -1)))
    assert not is_newest_first(times([5] * 100))


# -- files

EVENTS: list[Event] = [json.loads(read(second)) for second in range(3 * ENOUGH)]
NEWEST = EVENTS[::-1]


def put(folder: Path, content: bytes, name: str = "audit.log") -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


@pytest.mark.parametrize(
    ("name", "pack", "advice"),
    [
        ("audit.log", bytes, "tac {} | foreshock import -"),
        ("audit.log.gz", gzip.compress, "zcat {} | tac | foreshock import -"),
        ("audit.log.zst", zstandard.compress, "zstdcat {} | tac | foreshock import -"),
        ("it's audit.log", bytes, "tac '{}' | foreshock import -"),
    ],
)
def test_it_is_refused_with_what_where_and_what_to_do(
    tmp_path: Path, name: str, pack: Callable[[bytes], bytes], advice: str
) -> None:
    path = put(tmp_path, pack(plain(NEWEST)), name)
    with pytest.raises(UnreadableError) as refused:
        find_inputs([str(path)])
    said = str(refused.value)
    assert said.startswith(f"{path}: tells the newest event first (line 1 is of 2026-11-21T11:01:02Z, line 63 of ")
    assert said.endswith(advice.format(str(path).replace("'", "'\"'\"'")))
    assert find_inputs([str(put(tmp_path, pack(plain(EVENTS)), name))])


@pytest.mark.parametrize("form", ["array", "EventList", *SAME])
def test_so_it_is_in_every_form(tmp_path: Path, form: str) -> None:
    def formed(events: list[Event]) -> bytes:
        if form == "array":
            return json.dumps(events, indent=2).encode()
        if form == "EventList":
            return compact({"kind": "EventList", "apiVersion": "audit.k8s.io/v1", "items": events}).encode()
        return SAME[form](events)

    with pytest.raises(UnreadableError, match="newest event first"):
        find_inputs([str(put(tmp_path, formed(NEWEST)))])
    assert find_inputs([str(put(tmp_path, formed(EVENTS)))])


def test_large_events_are_looked_at_far_enough(tmp_path: Path) -> None:
    large = [one | {"userAgent": "x" * 50_000} for one in EVENTS]
    with pytest.raises(UnreadableError, match="newest event first"):
        find_inputs([str(put(tmp_path, plain(large[::-1])))])


def test_times_of_whole_seconds_are_looked_at_far_enough(tmp_path: Path) -> None:
    crowded = [one for one in NEWEST for _ in range(100)]
    with pytest.raises(UnreadableError, match="newest event first"):
        find_inputs([str(put(tmp_path, plain(crowded)))])
    assert find_inputs([str(put(tmp_path, plain(crowded[::-1])))])


def test_a_beginning_that_is_told_from_its_end_is_not_the_whole_log(tmp_path: Path) -> None:
    many = [json.loads(read(second)) for second in range(1_000)]
    assert find_inputs([str(put(tmp_path, plain([*reversed(many[:400]), *reversed(many[400:])])))])


def test_sorted_by_when_requests_came_it_is_newest_first_too(tmp_path: Path) -> None:
    long_ones = [
        one | {"stageTimestamp": EVENTS[(n + 7 * (n % 3)) % 63]["stageTimestamp"]} for n, one in enumerate(EVENTS)
    ]
    with pytest.raises(UnreadableError, match="newest event first"):
        find_inputs([str(put(tmp_path, plain(long_ones[::-1])))])
    assert find_inputs([str(put(tmp_path, plain(long_ones)))])


def test_lines_that_cannot_be_read_hide_it_not(tmp_path: Path) -> None:
    no_times = [{**EVENTS[0], "stageTimestamp": "2026-11-21T11:00:00"}, {**EVENTS[0], "stageTimestamp": 7}]
    with pytest.raises(UnreadableError, match="newest event first"):
        find_inputs([str(put(tmp_path, plain(NEWEST[:30]) + b"oops\n[]\n" + plain(no_times) + plain(NEWEST[30:])))])


def test_in_a_folder_it_is_passed_over_in_words(tmp_path: Path) -> None:
    turned, good = put(tmp_path, plain(NEWEST), "a.log"), put(tmp_path, plain(EVENTS), "b.log")
    found = survey([str(tmp_path)])
    assert [one.path for one in found.inputs] == [str(good)]
    assert len(found.unknown) == 1
    assert found.unknown[0].startswith(f"{turned}: tells the newest event first")


def test_a_log_that_was_begun_is_not_looked_at_again(tmp_path: Path) -> None:
    [before] = find_inputs([str(put(tmp_path, plain(NEWEST[: ENOUGH - 1])))])
    assert before.size
    grown = str(put(tmp_path, plain(NEWEST)))
    assert survey([grown], {before.size: {before.file_hash}}).inputs
    with pytest.raises(UnreadableError, match="newest event first"):
        survey([grown])
