"""Prometheus' staleness marker, told from every other NaN."""

from __future__ import annotations

import struct

from app.core.stale import BITS


def is_stale(value: float) -> bool:
    """Whether a sample ends its series."""
    return struct.pack("<d", value) == BITS.to_bytes(8, "little")
