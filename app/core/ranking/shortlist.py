"""Which of a window's changes are read to be ranked: of a busy day's, the likeliest beforehand.

To read and to weigh a change takes a tenth of a millisecond, and there are days with a hundred thousand. What is known
of a change without reading it says already how likely it is, in the terms in which it is weighed later (evidence.py):
how long before the alert it was, how many came in between, and whether it is where the alert is. Of what one actor
writes to one object again and again the newest write stands for the others, but for what may be a write fight: of that
runs of blows are read, from the first to the last. docs/decisions/0024-the-likeliest-changes-are-read.md says what it
costs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from app.core.counted import Ints
from app.core.onset import Floats
from app.core.signals.fights import MIN_PER_SECOND, MIN_WRITES, PAUSE

TAU = timedelta(minutes=5).total_seconds()
BETWEEN = 0.25
"""As evidence.time_before has them."""
NEAR = 1.4
"""What it weighs beforehand to be in the alert's namespace, or in none, beside being elsewhere (scoped.py)."""
AFTER = 2.0
"""What weighs against a change that came after the alert, which an alert's start may be wrong about."""
BOUT = 2 * MIN_WRITES / MIN_PER_SECOND
"""Seconds: in every fight there are MIN_WRITES writes of an object within so long."""
RUN = 20
"""Writes of an object that are read together where not all are: who wrote in turns is still seen to."""
EACH = 100
"""Of an object that may be fought over so many writes are read, and up to as many more of a few runs."""


@dataclass(frozen=True, eq=False)
class Sketches:
    """What is known of changes before they are read, newest first: when (epoch seconds), of which object, by which
    actor, and whether it is in an alert's namespace, or in none. Twenty thousand are put in order once: to choose which
    are read, and to say of the others what is known."""

    at: Floats
    object: Ints
    actor: Ints
    near: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.at)

    @cached_property
    def by_pair(self) -> Ints:
        """The places of what one actor wrote to one object together, the newest first."""
        return np.lexsort((self.actor, self.object))

    @cached_property
    def fought(self) -> NDArray[np.bool_]:
        """Which are of objects that were written often enough within a short time to be fought over."""
        order = np.argsort(self.object, kind="stable")
        object_, at = self.object[order], self.at[order]
        last = MIN_WRITES - 1
        often = (object_[last:] == object_[:-last]) & (at[:-last] - at[last:] <= BOUT)
        return np.isin(self.object, np.unique(object_[last:][often]))


@dataclass(frozen=True, slots=True, eq=False)
class Unread:
    """What is known of the changes of a window that were not read.

    ``earlier`` says of changes that were read, by key, how often their actor had written their object before, and
    ``stands_for`` of blows of what may be a fight for how many each stands; ``times`` are those of the others, less the
    repeats; ``oldest`` is since when the window was looked over (epoch seconds).
    """

    count: int = 0
    earlier: Mapping[int, int] = field(default_factory=dict)
    stands_for: Mapping[int, float] = field(default_factory=dict)
    times: Floats = field(default_factory=lambda: np.empty(0))
    oldest: float | None = None


ALL_READ = Unread()


def shortlist(rows: Sketches, *, alert: float, most: int, blows: int) -> Ints:
    """The places of those to read, in order: the ``most`` likeliest, and of what may be fights ``blows`` at most."""
    fights = _runs(rows, np.flatnonzero(rows.fought))[:blows]
    others = np.flatnonzero(~rows.fought)
    if len(others) > most:
        best = np.argsort(-_beforehand(rows, alert)[others], kind="stable")[:most]
        others = others[best]
    return np.sort(np.concatenate((fights, others)))


def unread(rows: Sketches, read: Ints, keys: Ints) -> Unread:
    """What is known of those that are not at the places ``read``; ``keys`` are those of the changes at these."""
    left = np.ones(len(rows), dtype=bool)
    left[read] = False
    if not left.any():
        return Unread(oldest=float(rows.at[-1]) if len(rows) else None)
    order = rows.by_pair[::-1]  # of each pair the oldest first
    starts = _starts(rows, order)
    before = np.cumsum(left[order]) - left[order]
    earlier = np.empty(len(rows), dtype=np.int64)
    earlier[order] = before - before[np.maximum.accumulate(np.where(starts, np.arange(len(order)), 0))]
    first = np.empty(len(rows), dtype=bool)
    first[order] = starts
    repeated = {key: count for key, count in zip(keys.tolist(), earlier[read].tolist(), strict=True) if count}
    return Unread(
        count=int(left.sum()),
        earlier=repeated,
        stands_for=_stands_for(rows, read, keys),
        times=np.sort(rows.at[left & first]),
        oldest=float(rows.at[-1]),
    )


def _stands_for(rows: Sketches, read: Ints, keys: Ints) -> dict[int, float]:
    _, number = np.unique(rows.object, return_inverse=True)
    written = np.bincount(number)
    share = written / np.maximum(1, np.bincount(number[read], minlength=len(written)))
    blows = rows.fought[read] & (share[number[read]] > 1)
    return dict(zip(keys[blows].tolist(), share[number[read[blows]]].tolist(), strict=True))


def _runs(rows: Sketches, blows: Ints) -> Ints:
    """Of the writes of each object all, or where these are many and fast, runs of them: the first, the last and some
    between, so that no fight seems to pause."""
    order = blows[np.lexsort((blows, rows.object[blows]))]
    chosen = [blows[:0]]
    for written in np.split(order, np.flatnonzero(np.diff(rows.object[order])) + 1) if len(order) else ():
        pace = RUN * max(float(-np.median(np.diff(rows.at[written]))), 1e-3)
        every = max(1, min(-(-len(written) // EACH), 1 + int(PAUSE.total_seconds() / 2 / pace)))
        run, last = np.arange(len(written)) // RUN, (len(written) - 1) // RUN
        chosen.append(written[(run % every == 0) | (run >= last - 1)])
    return np.sort(np.concatenate(chosen))


def _beforehand(rows: Sketches, alert: float) -> Floats:
    """How likely each is before it is read, in log-odds but for a constant."""
    order = rows.by_pair
    begins = np.maximum.accumulate(np.where(_starts(rows, order), np.arange(len(order)), 0))
    newer = np.empty(len(rows))
    newer[order] = np.arange(len(order)) - begins
    between = np.maximum(0, np.arange(len(rows)) - np.searchsorted(-rows.at, -alert))
    lag = np.abs(alert - rows.at)
    prior = NEAR * rows.near - AFTER * (rows.at > alert)
    return np.asarray(prior - np.log1p(lag / TAU) - BETWEEN * np.log1p(between) - np.log1p(newer))


def _starts(rows: Sketches, order: Ints) -> NDArray[np.bool_]:
    """Where, in that order (or back), another pair begins."""
    first = np.ones(len(order), dtype=bool)
    object_, actor = rows.object[order], rows.actor[order]
    first[1:] = (object_[1:] != object_[:-1]) | (actor[1:] != actor[:-1])
    return first
