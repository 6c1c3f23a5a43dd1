"""Prometheus' staleness marker: a sample that says that its series has ended.

A NaN of its own, told from every other by its bits: ``StaleNaN`` of github.com/prometheus/prometheus/model/value.
"""

from __future__ import annotations

import struct

BITS = 0x7FF0000000000002
STALE: float = struct.unpack("<d", BITS.to_bytes(8, "little"))[0]


def is_stale(value: float) -> bool:
    """Whether a sample ends its series; an ordinary NaN is a value like others."""
    return value != value and struct.pack("<d", value) == BITS.to_bytes(8, "little")  # noqa: PLR0124 - only a NaN
