"""Samples as columns, and how they lie in PostgreSQL. Pure: no query here.

Two forms, each a byte that says which and zstd. *Told*: what came at once, in the order in which it came, cheap to
make. A *block*: the samples of up to BLOCK series in one stretch of time, small. In a block times stand once for all
series that were scraped together, as differences of their differences; values stand as the differences of whole
numbers where a power of ten makes all of a series whole, else as what changed in their bits (XOR). Numbers lie with
their bytes transposed, so that the many zero bytes lie together: zstd takes it from there.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from app.store import codec

BLOCK = 128
"""Series of neighbouring ids that lie together: fewer cost more room, more cost who reads few of them."""
TOLD, BLOCKS = b"\x01", b"\x02"
SCALES = np.array([1.0, 10.0, 100.0, 1000.0])
BITS = len(SCALES)
"""In the place of a scale: the values stand as bits."""
MOST_APART = 10_000_000
"""Ids between the first and the last series that is wanted, of which a table, a byte for each, is made."""
_HEAD = struct.Struct("<HH")

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]
Bytes = NDArray[np.uint8]


class Columns(NamedTuple):
    """Samples, one a row: the series' id, the time in epoch milliseconds, the value."""

    series: Integers
    times: Integers
    values: Floats

    def where(self, rows: NDArray[np.bool_] | NDArray[np.intp]) -> Columns:
        """Those rows only."""
        places = np.flatnonzero(rows) if rows.dtype == np.bool_ else rows  # looked for once, not for each column
        some = _room(len(places))
        for column, into in zip(self, some, strict=True):
            np.take(column, places, out=into, mode="clip")  # "raise" would make a copy first
        return some

    def between(self, start: int, end: int) -> Columns:
        """The rows [start, end)."""
        return Columns(self.series[start:end], self.times[start:end], self.values[start:end])


def _room(count: int) -> Columns:
    """Columns to be filled, in one piece: for large ones NumPy asks for large pages, which come much faster than small
    ones do."""
    room = np.empty((3, count), np.int64)
    return Columns(room[0], room[1], room[2].view(np.float64))


NONE = _room(0)


def joined(parts: Iterable[Columns]) -> Columns:
    """One behind the other."""
    told = [NONE, *parts]
    every = _room(sum(len(part.series) for part in told))
    for column, into in zip(zip(*told, strict=True), every, strict=True):
        np.concatenate(column, out=into)
    return every


def merged(parts: Iterable[Columns]) -> Columns:
    """Sorted by series and time, a sample told twice once: of two values the one told later, in the order of parts."""
    every = joined(parts)
    if (every.series[1:] < every.series[:-1]).any():
        # Where one part goes on where the other ends, this is enough, and takes a tenth of the time.
        every = every.where(_by_series(every.series))
    again, back = _steps(every)
    if back.any():
        every = every.where(np.lexsort((every.times, every.series)))
        again, _ = _steps(every)
    return every.where(np.append(~again, True)) if again.any() else every


def _by_series(series: Integers) -> NDArray[np.intp]:
    """A stable argsort. numpy sorts by counting, several times as fast, where numbers have no more than 16 bits
    (https://numpy.org/doc/stable/reference/generated/numpy.sort.html): so the low ones first, then the high ones."""
    first = series.min()
    low = np.subtract(series, first, out=np.empty(len(series), np.uint16), casting="unsafe")  # the low 16 bits
    order = np.argsort(low, kind="stable")
    if series.max() - first < 1 << 16:
        return order
    high = (series[order] - first) >> 16  # of ids, which are of 32 bits
    return order[np.argsort(high.astype(np.uint16), kind="stable")]


def _steps(rows: Columns) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Of each row but the last: whether the next one is the same sample, and whether it should stand before it."""
    same = rows.series[1:] == rows.series[:-1]
    back = (rows.series[1:] < rows.series[:-1]) | (same & (rows.times[1:] < rows.times[:-1]))
    return same & (rows.times[1:] == rows.times[:-1]), back


def starts_of(series: Integers) -> NDArray[np.intp]:
    """Where each series begins in rows as ``merged`` gives them."""
    return np.flatnonzero(np.append(True, series[1:] != series[:-1])[: len(series)])


def chooser(wanted: Integers) -> Callable[[Integers], NDArray[np.bool_]]:
    """Which of some series are wanted. As np.isin, whose table is made once instead of for each of a thousand rows."""
    low, high = (int(wanted.min()), int(wanted.max())) if len(wanted) else (0, 0)
    if high - low > MOST_APART:
        return lambda some: np.isin(some, wanted)
    told = np.zeros(high - low + 3, np.bool_)
    told[wanted - low + 1] = True  # the first and the last stand for what is below and above
    return lambda some: told.take(some - (low - 1), mode="clip")


def _planes(numbers: NDArray[np.generic]) -> bytes:
    return numbers.view(np.uint8).reshape(len(numbers), numbers.itemsize).T.tobytes()


class _Reader:
    """Takes one column after the other from unpacked bytes."""

    def __init__(self, raw: bytes, at: int = 0) -> None:
        self._raw, self._at = np.frombuffer(raw, np.uint8), at

    def take(self, count: int, kind: str) -> NDArray[np.generic]:
        width = np.dtype(kind).itemsize
        part = self._raw[self._at : self._at + count * width]
        self._at += count * width
        return np.ascontiguousarray(part.reshape(width, count).T).view(kind).ravel()

    def integers(self, count: int, kind: str) -> Integers:
        return self.take(count, kind).astype(np.int64)


def pack_told(rows: Columns) -> bytes:
    """What came at once, in its order."""
    columns = (
        np.diff(rows.series, prepend=0).astype("<u4"),  # wraps around, and back when it is summed up
        np.diff(rows.times, prepend=0).astype("<i8"),
        rows.values.astype("<f8"),
    )
    return TOLD + codec.pack(b"".join(map(_planes, columns)))


def unpack_told(payload: bytes) -> Columns:
    """The inverse of pack_told."""
    raw = codec.unpack(payload[1:])
    reader, count = _Reader(raw), len(raw) // 20
    series = np.cumsum(reader.take(count, "<u4"), dtype=np.uint32).astype(np.int64)
    return Columns(series, np.cumsum(reader.integers(count, "<i8")), reader.take(count, "<f8").astype(np.float64))


def pack_block(rows: Columns) -> bytes:
    """Samples of at most BLOCK series, as ``merged`` gives them."""
    starts = starts_of(rows.series)
    lengths = np.diff(np.append(starts, len(rows.series)))
    scrapes: dict[bytes, int] = {}
    scraped = [
        scrapes.setdefault(rows.times[start : start + length].tobytes(), len(scrapes))
        for start, length in zip(starts, lengths, strict=True)
    ]
    vectors = [np.frombuffer(one, np.int64) for one in scrapes]
    times = np.concatenate(vectors)
    counts = np.array([len(one) for one in vectors])
    begins = np.cumsum(counts) - counts
    scales, whole = _scaled(rows.values, starts, lengths)
    bits = rows.values.view(np.int64)
    is_whole = np.repeat(scales < BITS, lengths)
    changed = np.append(0, bits[1:] ^ bits[:-1])
    changed[starts] = 0
    columns = (
        np.diff(rows.series[starts], prepend=0).astype("<u4"),
        np.array(scraped).astype("<u2"),
        scales.astype("u1"),
        counts.astype("<u4"),
        times[begins].astype("<i8"),
        _zigzag(_differences(_differences(times, begins), begins)),
        np.where(scales < BITS, whole[starts], bits[starts]).astype("<i8"),
        _zigzag(_differences(whole, starts)[is_whole]),
        changed[~is_whole].astype("<i8"),
    )
    raw = _HEAD.pack(len(starts), len(vectors)) + b"".join(map(_planes, columns))
    return BLOCKS + codec.pack(raw)


def unpack_block(payload: bytes) -> Columns:
    """The inverse of pack_block."""
    raw = codec.unpack(payload[1:])
    size, vectors = _HEAD.unpack_from(raw)
    reader = _Reader(raw, _HEAD.size)
    series = np.cumsum(reader.integers(size, "<u4"))
    scraped = reader.integers(size, "<u2")
    scales = reader.integers(size, "u1")
    counts = reader.integers(vectors, "<u4")
    begins, firsts = np.cumsum(counts) - counts, reader.integers(vectors, "<i8")
    steps = _summed(_unzigzag(reader.integers(int(counts.sum()), "<i8")), begins, counts, firsts=np.zeros_like(counts))
    times = _summed(steps, begins, counts, firsts=firsts)
    lengths = counts[scraped]
    starts = np.cumsum(lengths) - lengths
    places = np.arange(lengths.sum()) + np.repeat(begins[scraped] - starts, lengths)
    values = np.empty(len(places), np.float64)
    first, is_whole = reader.integers(size, "<i8"), scales < BITS
    of_whole, of_bits = lengths[is_whole], lengths[~is_whole]
    told = np.repeat(is_whole, lengths)
    whole = _unzigzag(reader.integers(int(of_whole.sum()), "<i8"))
    whole = _summed(whole, np.cumsum(of_whole) - of_whole, of_whole, firsts=first[is_whole])
    values[told] = whole / np.repeat(SCALES[scales[is_whole]], of_whole)
    changed = np.bitwise_xor.accumulate(reader.integers(int(of_bits.sum()), "<i8"))
    begun = np.cumsum(of_bits) - of_bits
    values[~told] = (changed ^ np.repeat(changed[begun] ^ first[~is_whole], of_bits)).view(np.float64)
    return Columns(np.repeat(series, lengths), times[places], values)


def _scaled(values: Floats, starts: Integers, lengths: Integers) -> tuple[Integers, Integers]:
    """Of each series the first of SCALES that makes it whole, BITS if none does; and the values, scaled so.

    Whole is what comes back bit for bit: not NaN, not minus zero, not what has more digits than a float64.
    """
    scales, whole = np.full(len(starts), BITS), np.zeros(len(values), np.int64)
    bits = values.view(np.int64)
    for scale in reversed(range(BITS)):
        with np.errstate(invalid="ignore", over="ignore"):
            near = np.rint(values * SCALES[scale])
            near = np.where(np.abs(near) < 2**53, near, 0.0).astype(np.int64)
        fits = np.logical_and.reduceat((near / SCALES[scale]).view(np.int64) == bits, starts)
        scales[fits] = scale
        of_these = np.repeat(fits, lengths)
        whole[of_these] = near[of_these]
    return scales, whole


def _differences(numbers: Integers, starts: Integers) -> Integers:
    """From each number to the next; zero where a stretch starts."""
    steps = np.diff(numbers, prepend=0)
    steps[starts] = 0
    return steps


def _summed(steps: Integers, starts: Integers, lengths: Integers, *, firsts: Integers) -> Integers:
    """The inverse of _differences."""
    sums = np.cumsum(steps)
    return sums + np.repeat(firsts - sums[starts], lengths)


def _zigzag(numbers: Integers) -> Integers:
    """Small numbers of either sign as small ones without: their high bytes are zero."""
    return (numbers << 1) ^ (numbers >> 63)


def _unzigzag(coded: Integers) -> Integers:
    return (coded >> 1 & 0x7FFF_FFFF_FFFF_FFFF) ^ -(coded & 1)


def unpack(payload: bytes) -> Columns:
    """What pack_told or pack_block made. Raises ValueError on what a later version made."""
    if payload[:1] not in {TOLD, BLOCKS}:
        raise ValueError(f"samples of version {payload[:1].hex()}, which only a later Foreshock can read")
    return unpack_told(payload) if payload[:1] == TOLD else unpack_block(payload)


def blocks_of(rows: Columns) -> list[tuple[int, Columns]]:
    """Rows as ``merged`` gives them, by their block (number, rows)."""
    if not len(rows.series):
        return []
    numbers = rows.series // BLOCK
    cuts = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(numbers)]
    return [(int(numbers[a]), rows.between(a, b)) for a, b in pairwise(cuts)]
