"""A graph as a table for a chat, where no picture is: of each line its last value and its highest, and when."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np

from app.core.changes.report import as_text
from app.core.metrics.lines import Grid
from app.core.metrics.measures import Curve, Graph
from app.core.phrases import clock_time, measure

ROWS = 10
"""Lines that there is room for."""
DAY = 86_400
"""Seconds."""
_WIDE = 10


def graph_table(title: str, graph: Graph, *, unit: str) -> str:
    """``title`` is what was asked; times are UTC."""
    known = [one for one in graph.curves if not np.isnan(one.values).all()]
    if not known:
        return as_text([title, "nothing was measured of it then"])
    head = "  ".join([*(f"{name:>{_WIDE}}  {'AT':<11}" for name in ("LAST", "HIGHEST")), "OF"])
    more = [f"and {len(known) - ROWS} more"] if len(known) > ROWS else []
    return as_text([title, head, *(_row(one, graph, unit) for one in known[:ROWS]), *more])


def _row(one: Curve, graph: Graph, unit: str) -> str:
    last, highest = int(np.flatnonzero(~np.isnan(one.values))[-1]), int(np.nanargmax(one.values))
    told = (
        f"{measure(float(one.values[place]), unit):>{_WIDE}}  {_moment(graph.axis, place):<11}"
        for place in (last, highest)
    )
    return "  ".join([*told, one.name])


def _moment(axis: Grid, place: int) -> str:
    at = datetime.fromtimestamp(axis.epoch(place), UTC)
    return f"{at:%m-%d %H:%M}" if axis.step * axis.size > DAY else clock_time(at)
