"""Call counts as columns say what they say one by one."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np

from app.core.counted import NO_CALLS, Calls, by_first
from app.core.model import SLOT_SECONDS, CallCount, CallKey
from app.core.signals.calls import axis, grouped


def made(*, seed: int) -> list[CallCount]:
    """A thousand counts of forty keys, in no order; some of them again and again."""
    dice = random.Random(seed)
    keys = [CallKey(f"user-{n % 7}", "", "", "list", "", f"kind-{n}", "", 200 if n % 3 else 503) for n in range(40)]
    return [
        CallCount(dice.choice(keys), 1000 + SLOT_SECONDS * dice.randrange(60), dice.randrange(1, 9), dice.randrange(99))
        for _ in range(1000)
    ]


def fails(key: CallKey) -> bool:
    return key.code >= 400


def test_counts_come_back_as_they_were() -> None:
    counts = made(seed=1)
    assert list(Calls.of(counts)) == counts
    assert (list(NO_CALLS), len(NO_CALLS), NO_CALLS.sums()) == ([], 0, [])


def test_parts_are_those_of_their_keys_and_slots() -> None:
    counts, calls = made(seed=2), Calls.of(made(seed=2))
    failed = calls.where(fails)
    assert list(failed) == [one for one in counts if fails(one.key)]
    assert set(failed.keys) == {one.key for one in counts if fails(one.key)}
    assert list(calls.during(1050, 1100)) == [one for one in counts if 1050 <= one.slot < 1100]
    assert list(calls.where(lambda _: False)) == []


def test_sums_are_told_in_the_order_of_the_first_count_and_of_what_is_there() -> None:
    late = [one for one in made(seed=3) if one.slot >= 1290]
    expected: dict[CallKey, int] = {}
    waited: Counter[CallKey] = Counter()
    for one in late:
        expected[one.key] = expected.get(one.key, 0) + one.count
        waited[one.key] += one.latency_us
    calls = Calls.of(made(seed=3)).during(1290)
    assert len(expected) < len(calls.keys)
    assert calls.sums() == list(expected.items())
    assert {key: latency for key, _, latency in calls.totals()} == waited


def test_groups_are_added_up_slot_by_slot() -> None:
    counts = made(seed=4)
    calls = Calls.of(counts)
    slots = axis(calls, until=1200)
    assert slots is not None
    expected: dict[str, list[float]] = {}
    for one in counts:
        index = slots.index(one.slot)
        if fails(one.key) and 0 <= index < slots.size:
            expected.setdefault(one.key.user, [0.0] * slots.size)[index] += one.count
    found = grouped(calls, slots, lambda key: key.user if fails(key) else None)
    assert [(user, values.tolist()) for user, values in found.items()] == list(expected.items())
    assert grouped(calls, slots, lambda _: None) == {}


def test_groups_are_numbered_in_the_order_in_which_they_first_come() -> None:
    number, was = by_first(np.array([4, 4, 0, 2, 0, 4]), 6)
    assert number.tolist() == [0, 0, 1, 2, 1, 0]
    assert was.tolist() == [4, 0, 2]
    assert [one.tolist() for one in by_first(np.array([], dtype=np.int64), 3)] == [[], []]
