"""Counts of calls as they lie in PostgreSQL."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from app.store import calls

entries = st.tuples(
    st.integers(1, 2**31 - 1), st.integers(0, 11), st.integers(0, 2**32 - 1), st.integers(0, 2**62)
)  # key id, slot, count, latency_us


@given(st.lists(st.lists(entries, min_size=1, max_size=5), max_size=4))
def test_minutes_that_are_unpacked_together_are_as_each_alone(minutes: list[list[tuple[int, int, int, int]]]) -> None:
    payloads = [calls.pack(minute) for minute in minutes]
    columns, lengths = calls.unpack_all(payloads)
    assert lengths.tolist() == [len(minute) for minute in minutes]
    assert list(zip(*columns.tolist(), strict=True)) == [one for minute in minutes for one in sorted(minute)]
    assert [one for payload in payloads for one in calls.unpack(payload).tolist()] == columns.T.tolist()
