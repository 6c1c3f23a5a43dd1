"""Prometheus' staleness marker: a sample that says that its series has ended, for the time being at least.

A NaN of its own, told from every other by its bits: ``StaleNaN`` of github.com/prometheus/prometheus/model/value.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

BITS = 0x7FF0000000000002
STALE: float = struct.unpack("<d", BITS.to_bytes(8, "little"))[0]


def quiet(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Values to calculate with: the marker is a signalling NaN, of which operations warn, and beside which fmax has no
    number either. What is infinite is not known: it can be neither drawn nor compared."""
    return np.where(np.isfinite(values), values, np.nan)


def table(rows: Sequence[Sequence[float] | NDArray[np.float64]]) -> NDArray[np.float64]:
    """A row of values to calculate with for each series, as ``quiet`` has them."""
    return quiet(np.array(rows, np.float64))


def endings(values: NDArray[np.float64]) -> NDArray[np.intp]:
    """A number for each row of values that were scraped together: 0 where all are numbers, else the same for those in
    which the same ones are none. What is added up within a number ends as each of its rows does, and no other."""
    missing = np.isnan(values)
    found = np.zeros(len(values), dtype=np.intp)
    known: dict[bytes, int] = {}
    for row in np.flatnonzero(missing.any(axis=1)).tolist():
        found[row] = known.setdefault(missing[row].tobytes(), len(known) + 1)
    return found
