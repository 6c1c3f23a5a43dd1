"""Series as they were told, of those that are read: these have their values as an array, which equals no tuple."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from app.core.model import MetricSeries


def plain(found: Iterable[MetricSeries]) -> list[MetricSeries]:
    """With tuples of values."""
    return [replace(one, values=tuple(one.values)) for one in found]
