"""Counted calls of a window -> the curves of a graph: who calls how often, or waits how long."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.core.matching import Match
from app.core.metrics.lines import Grid
from app.core.metrics.measures import Curve, Graph, Measure
from app.core.metrics.scraped import Split
from app.core.model import CallKey
from app.core.onset import Floats

Ints = NDArray[np.int64]
FIELDS = (
    "user", "pod", "user_agent", "verb", "api_group", "resource", "namespace", "code", "list_class", "waited_for"
)  # fmt: skip
"""What calls are told apart by."""


@dataclass(frozen=True, slots=True)
class CallsQuery:
    """What is asked of counted calls; ``by`` and ``where`` name FIELDS. Measured is the rate, or the mean latency."""

    by: tuple[str, ...] = ("user",)
    where: tuple[Match, ...] = ()
    most: int = 6
    measure: Measure = Measure.RATE


@dataclass(frozen=True, slots=True, eq=False)
class Tally:
    """Calls of a window, an entry for each key and bin: which of ``keys``, in which bin, how many, and the sum of their
    latencies. ``until`` is the end of the last slot in which any call was counted, epoch seconds.
    """

    keys: tuple[CallKey, ...]
    key: Ints
    place: Ints
    count: Ints
    latency_us: Ints
    until: float


def call_graph(tally: Tally, axis: Grid, query: CallsQuery) -> Graph:
    """The curves that are asked for. A bin in which nobody's call was counted is a gap: no API server is silent."""
    split_of, splits = _splits(tally.keys, query)
    group = split_of[tally.key] if len(tally.key) else np.empty(0, np.int64)
    mine = group >= 0
    counts, waits = (
        _laid(group[mine], tally.place[mine], values[mine], (len(splits), axis.size))
        for values in (tally.count, tally.latency_us)
    )
    known = np.bincount(tally.place, minlength=axis.size)[: axis.size] > 0
    edges = axis.start + axis.step * np.arange(axis.size + 1)
    seconds = np.clip(tally.until - edges[:-1], 1.0, axis.step)
    weight = counts.sum(axis=1)
    order = sorted((n for n in range(len(splits)) if weight[n]), key=lambda n: (-weight[n], splits[n]))
    shown, rest = order[: query.most], order[query.most :]
    if len(rest) == 1:
        shown, rest = order, []
    rows = [([n], splits[n], 0) for n in shown] + ([(rest, (), len(rest))] if rest else [])
    curves = []
    for members, of, others in rows:
        count, wait = counts[members].sum(axis=0), waits[members].sum(axis=0)
        if query.measure is Measure.MEAN:
            values = np.where(count > 0, wait / 1e6 / np.maximum(count, 1), np.nan)
        else:
            values = np.where(known, count / seconds, np.nan)
        curves.append(Curve(of, np.asarray(values), others))
    return Graph(axis, tuple(curves), query.measure)


def _splits(keys: Iterable[CallKey], query: CallsQuery) -> tuple[Ints, Sequence[Split]]:
    """Which split each key belongs to, -1 for none that is asked for; and the splits."""
    found: dict[Split, int] = {}
    places = []
    for key in keys:
        if all(match.fits(_text(key, match.name)) for match in query.where):
            places.append(found.setdefault(tuple(_text(key, name) for name in query.by), len(found)))
        else:
            places.append(-1)
    return np.array(places, dtype=np.int64), list(found)


def _text(key: CallKey, name: str) -> str:
    value: Any = getattr(key, name)
    return str(value)


def _laid(group: Ints, place: Ints, values: Ints, shape: tuple[int, int]) -> Floats:
    """Entries added up into a table of groups and bins."""
    cells = np.bincount(group * shape[1] + place, weights=values, minlength=shape[0] * shape[1])
    return np.asarray(cells.reshape(shape))
