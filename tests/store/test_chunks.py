"""What is packed comes back bit for bit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.stale import STALE
from app.store import chunks
from app.store.chunks import BLOCK, Columns

values = st.one_of(
    st.floats(), st.integers(-5, 5).map(float), st.integers(-9999, 9999).map(lambda n: n / 1000), st.just(STALE)
)
ids = st.integers(0, 3) | st.integers(2**16 - 1, 2**16 + 1) | st.integers(2**31 - 2, 2**31 - 1)
samples = st.tuples(st.integers(0, 3), st.integers(0, 400 * 86_400_000), values)
TIME = 1_763_800_000_000


def columns(rows: list[tuple[int, int, float]]) -> Columns:
    return Columns(
        np.array([series for series, _, _ in rows], np.int64),
        np.array([TIME + time for _, time, _ in rows], np.int64),
        np.array([value for _, _, value in rows], np.float64),
    )


def rows_of(packed: Columns) -> list[tuple[int, int, int]]:
    """Values by their bits: a NaN is not itself, and minus zero is not zero."""
    return list(zip(packed.series.tolist(), packed.times.tolist(), packed.values.view(np.int64).tolist(), strict=True))


@given(st.lists(samples, max_size=40))
def test_what_was_told_comes_back_in_its_order(rows: list[tuple[int, int, float]]) -> None:
    told = columns(rows)
    assert rows_of(chunks.unpack(chunks.pack_told(told))) == rows_of(told)


@given(st.lists(samples, min_size=1, max_size=40), st.integers(0, 2**31 // BLOCK - 1))
def test_a_block_comes_back(rows: list[tuple[int, int, float]], block: int) -> None:
    told = columns(rows)
    sorted_ = chunks.merged([told._replace(series=told.series + block * BLOCK)])
    assert rows_of(chunks.unpack(chunks.pack_block(sorted_))) == rows_of(sorted_)


@given(st.lists(st.lists(st.tuples(ids, st.integers(0, 3), values), max_size=10), max_size=5))
def test_of_two_values_the_one_told_later_counts(parts: list[list[tuple[int, int, float]]]) -> None:
    kept = {(series, TIME + time): value for part in parts for series, time, value in part}
    expected = columns([(series, time - TIME, value) for (series, time), value in sorted(kept.items())])
    assert rows_of(chunks.merged(map(columns, parts))) == rows_of(expected)


def test_blocks_are_of_neighbours() -> None:
    told = columns([(series, 0, 1.0) for series in (0, BLOCK - 1, BLOCK, 5 * BLOCK)])
    assert [(block, len(rows.times)) for block, rows in chunks.blocks_of(told)] == [(0, 2), (1, 1), (5, 1)]
    assert chunks.blocks_of(chunks.NONE) == []


def test_what_a_later_version_made_is_refused_in_words() -> None:
    with pytest.raises(ValueError, match="only a later Foreshock can read"):
        chunks.unpack(b"\x09whatever")


def test_series_that_are_scraped_together_take_little_room() -> None:
    """A tenth of what their times and values take, where two of three are counters and the rest is a level."""
    times = TIME + 15_000 * np.arange(240)
    random = np.random.default_rng(7)
    told = chunks.joined(
        Columns(np.full(240, n), times, (np.cumsum if n % 3 else np.array)(random.poisson(20, 240)).astype(float))
        for n in range(100)
    )
    assert len(chunks.pack_block(told)) < 1.6 * len(told.times)
