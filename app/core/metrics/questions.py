"""What may be asked of stored series and counted calls, checked, and in which unit the answer is."""

from __future__ import annotations

from collections.abc import Sequence

from app.core.matching import parse
from app.core.metrics.callers import FIELDS, CallsQuery
from app.core.metrics.measures import Measure, SeriesQuery

MOST_LINES = 100
BINS = 110
"""Of MOST_LINES lines these are 11,000 points, as many as Prometheus answers of one (its API's limit)."""
OF_CALLS = (Measure.RATE, Measure.MEAN)


def series_query(metric: str, measure: Measure, *, by: str, where: str, most: int, quantile: float) -> SeriesQuery:
    """A question about series. ``metric`` may be several names of one thing, with | between them, ``by`` several
    labels, with commas. Raises ValueError, in words.
    """
    return SeriesQuery(tuple(metric.split("|")), measure, _listed(by), parse(where), most, quantile)


def calls_query(measure: Measure, *, by: str, where: str, most: int) -> CallsQuery:
    """A question about calls. Raises ValueError, in words."""
    if measure not in OF_CALLS:
        raise ValueError("calls have a rate and a mean latency: measure must be rate or mean")
    query = CallsQuery(_listed(by), parse(where), most, measure)
    for name in (*query.by, *(match.name for match in query.where)):
        if name not in FIELDS:
            raise ValueError(f"calls have no {name!r}: they have {', '.join(FIELDS)}")
    return query


def _listed(by: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(filter(None, (name.strip() for name in by.split(",")))))


def unit(query: SeriesQuery | CallsQuery) -> str:
    """``/s`` of a rate; else what the metric's name says, by Prometheus' conventions."""
    if query.measure is Measure.RATE:
        return "/s"
    if isinstance(query, CallsQuery):
        return "s"
    if query.measure is Measure.CHANGES:
        return ""
    return _unit_of(query.metrics)


def _unit_of(metrics: Sequence[str]) -> str:
    name = metrics[0].removesuffix("_total")
    return "s" if name.endswith("_seconds") else "B" if name.endswith("_bytes") else ""
