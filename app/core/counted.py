"""Call counts of a window as columns: hours of a busy cluster are a hundred thousand counts of a few hundred keys."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import compress

import numpy as np
from numpy.typing import NDArray

from app.core.model import CallCount, CallKey

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Calls:
    """Call counts: of which of ``keys``, in which slot (its start, epoch seconds), how many, and the sum of their
    latencies. What tells calls apart looks at each of the keys once; going through the counts one by one is for few.
    """

    keys: tuple[CallKey, ...]
    key: Ints
    slot: Ints
    count: Ints
    latency_us: Ints

    @staticmethod
    def of(counts: Iterable[CallCount]) -> Calls:
        """Counts as columns, in the order in which they come."""
        keys: dict[CallKey, int] = {}
        rows = [(keys.setdefault(one.key, len(keys)), one.slot, one.count, one.latency_us) for one in counts]
        return Calls(tuple(keys), *np.array(rows, dtype=np.int64).reshape(-1, 4).T)

    def __len__(self) -> int:
        return len(self.key)

    def __iter__(self) -> Iterator[CallCount]:
        columns = (self.key.tolist(), self.slot.tolist(), self.count.tolist(), self.latency_us.tolist())
        for key, slot, count, latency_us in zip(*columns, strict=True):
            yield CallCount(self.keys[key], slot, count, latency_us)

    def where(self, wanted: Callable[[CallKey], bool]) -> Calls:
        """The counts of the keys that are wanted."""
        fits = np.array(list(map(wanted, self.keys)), dtype=bool)
        mine = np.flatnonzero(fits[self.key])
        number = np.cumsum(fits) - 1
        keys = tuple(compress(self.keys, fits.tolist()))
        return Calls(keys, number[self.key[mine]], self.slot[mine], self.count[mine], self.latency_us[mine])

    def during(self, start: float = -math.inf, end: float = math.inf) -> Calls:
        """The counts of the slots that begin in [start, end)."""
        return self.at((self.slot >= start) & (self.slot < end))

    def at(self, rows: NDArray[np.bool_]) -> Calls:
        """The counts that ``rows`` tells of, one for each count."""
        return Calls(self.keys, self.key[rows], self.slot[rows], self.count[rows], self.latency_us[rows])

    def sums(self) -> list[tuple[CallKey, int]]:
        """How many calls were made of each key, in the order in which they are first counted."""
        return [(key, count) for key, count, _ in self.totals()]

    def totals(self) -> list[tuple[CallKey, int, int]]:
        """As ``sums``, with the sum of their latencies in microseconds."""
        size, first = len(self.keys), firsts(self.key, len(self.keys))
        order = np.argsort(first, kind="stable")[: np.count_nonzero(first < len(self))]
        counts, latencies = (
            np.bincount(self.key, weights=column, minlength=size)[order] for column in (self.count, self.latency_us)
        )
        return [
            (self.keys[number], int(count), int(latency))
            for number, count, latency in zip(order.tolist(), counts, latencies, strict=True)
        ]


def firsts(group: Ints, size: int) -> Ints:
    """Where each of ``size`` groups comes first; how many entries there are for one that does not come."""
    found = np.full(size, len(group), dtype=np.int64)
    found[group[::-1]] = np.arange(len(group))[::-1]  # of several values for one place, the last one stays
    return found


def by_first(group: Ints, size: int) -> tuple[Ints, Ints]:
    """Groups numbered anew in the order in which they first come, and which each of these was; without those that do
    not come."""
    first = firsts(group, size)
    was = np.argsort(first, kind="stable")[: np.count_nonzero(first < len(group))]
    place = np.zeros(size, dtype=np.int64)
    place[was] = np.arange(len(was))
    return place[group], was


NO_CALLS = Calls.of(())
