"""States come back as they were put, in few bytes, whether they are fresh, packed or too large to stay fresh."""

from __future__ import annotations

import pytest

from app.core.model import Object, Resource
from app.core.objects.memory import Entry, Memory

MANY = 1_000


def resource(number: int) -> Resource:
    return Resource("c", "", "ConfigMap", "shop", f"config-{number}")


def state(number: int) -> Object:
    return {"data": {"number": str(number), "text": "some text that is often the same " * 10}}


def put(memory: Memory, number: int, *, size: int = 400) -> Entry:
    entry = memory.get(resource(number)) or Entry(f"u-{number}")
    memory.store(entry, state(number), size=size)
    memory.put(resource(number), entry)
    return entry


@pytest.mark.parametrize("size", [400, 1 << 20])
def test_every_state_comes_back(size: int) -> None:
    memory = Memory(64 << 20)
    entries = [put(memory, number, size=size) for number in (*range(MANY), *range(50))]
    assert all(entry.is_known for entry in entries)
    assert [memory.state(entry) for entry in entries] == [state(n) for n in (*range(MANY), *range(50))]
    assert len(memory) == MANY


def test_few_are_held_unpacked_even_of_those_that_are_written_all_the_time() -> None:
    memory = Memory(64 << 20)
    for round_ in range(5):
        for number in (*range(MANY), *range(round_ * 10)):
            put(memory, number)
    held = [memory.get(resource(number)) for number in range(MANY)]
    assert 0 < sum(entry is not None and entry.fresh is not None for entry in held) <= 256


def test_it_is_bounded_and_the_latest_stay() -> None:
    memory = Memory(100_000)
    for number in range(MANY):
        put(memory, number)
    assert memory.size <= 100_000
    assert memory.get(resource(0)) is None
    assert memory.get(resource(MANY - 1)) is not None


def test_what_is_packed_counts_as_what_it_takes_then() -> None:
    memory = Memory(64 << 20)
    entries = [put(memory, number, size=8_000) for number in range(MANY)]
    assert memory.size == sum(entry.size for entry in entries)
    packed = [entry for entry in entries if entry.blob is not None]
    assert len(packed) > MANY / 2
    assert len({entry.size - len(entry.blob or b"") for entry in packed}) == 1
    assert packed[0].size < entries[-1].size
    memory.put(resource(0), Entry("another life"))
    assert memory.size == sum(entry.size for entry in entries) + memory.peek(resource(0)).size  # type: ignore[union-attr]


def test_what_is_gone_has_no_state_and_may_come_back() -> None:
    memory = Memory(64 << 20)
    entry = put(memory, 1)
    memory.forget(entry)
    assert (entry.is_known, memory.state(entry)) == (False, None)
    put(memory, 1)
    for number in range(2, MANY):
        put(memory, number)
    assert memory.state(entry) == state(1)
