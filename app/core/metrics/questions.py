"""What may be asked of stored series and counted calls, checked, and in which unit the answer is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches

from app.core.matching import parse
from app.core.metrics.blocks import Block
from app.core.metrics.callers import FIELDS, CallsQuery
from app.core.metrics.measures import Measure, SeriesQuery

MOST_LINES = 100
BINS = 110
"""Of MOST_LINES lines these are 11,000 points, as many as Prometheus answers of one (its API's limit)."""
_NEAREST = 3
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


def asked_for(names: Iterable[str]) -> list[str]:
    """Names of series as they are asked for: of a histogram or a summary its own, once."""
    stored = set(names)
    return sorted({_whole(name, stored) for name in stored})


def _whole(name: str, stored: set[str]) -> str:
    """What the series is a part of; itself where it is no part, as a gauge whose name happens to end so."""
    for part in ("_bucket", "_sum", "_count"):
        base = name.removesuffix(part)
        if base != name and (f"{base}_bucket" in stored or {f"{base}_sum", f"{base}_count"} <= stored):
            return base
    return name


def unknown(query: SeriesQuery, cluster: str, stored: Sequence[str]) -> str:
    """That none of the metrics of a question is among the names that are ``stored``, with the nearest; "" where one is,
    or where there are none at all: that says more."""
    names = asked_for(stored)
    if not names or not {*stored, *names}.isdisjoint(query.metrics):
        return ""
    said = f"no metric {' or '.join(map(repr, query.metrics))} of {cluster} is stored"
    near = get_close_matches(query.metrics[0], names, n=_NEAREST)
    return f"{said}; the nearest: {', '.join(near)}" if near else said


def unknown_label(query: SeriesQuery, blocks: Sequence[Block]) -> tuple[str, str]:
    """Which part of a question, "where" or "by", names a label that none of its series in this time has, and that in
    words; two "" where none does, where there are no series, and for a condition that what has no such label meets.
    What is told apart by a label is refused only where another is much the same: versions differ in theirs."""
    known = {name for block in blocks if block.name in query.names for labels in block.labels for name in labels}
    asked = [("where", match.name) for match in query.where if not match.fits("")] + [("by", name) for name in query.by]
    for part, name in ((part, name) for part, name in asked if known and name not in known):
        said = f"series of {query.metrics[0]} have no label {name!r} in this time"
        if near := get_close_matches(name, known, n=1):
            return part, f"{said}: is {near[0]} meant?"
        if part == "where":
            return part, f"{said}; they have {', '.join(sorted(known))}"
    return "", ""


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
