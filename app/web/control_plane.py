"""The page of one cluster's control plane: its panels on one axis, with the changes that may matter."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Depends, Query, Request
from sqlalchemy.ext.asyncio import AsyncConnection
from starlette.concurrency import run_in_threadpool
from starlette.responses import HTMLResponse

from app.core.matching import written
from app.core.metrics.blocks import Block, block_graph
from app.core.metrics.callers import CallsQuery, Tally, call_graph
from app.core.metrics.lines import STARTED, Grid
from app.core.metrics.measures import Graph, window_grid
from app.core.metrics.panels import GROUPS, METRICS, Panel
from app.core.roles import Role
from app.core.screen.axis import Axis, Tick, ticks
from app.core.screen.plots import ENDLESS, Marker, markers, plot
from app.store import lines, surroundings
from app.store.seen import Seen, unknown_cluster
from app.store.series import TooMuchError
from app.web import templates, windows
from app.web.auth import Needs
from app.web.deps import deps_of
from app.web.graphs import DrawnGraph, draw
from app.web.problems import Problem
from app.web.reading import check_whole, reading

router = APIRouter(
    include_in_schema=False,
    default_response_class=HTMLResponse,
    dependencies=[Depends(Needs(Role.VIEWER, limited=True))],
)
CALLS_LONGEST = timedelta(days=1)
"""Calls are counted in slots of five seconds by caller and answer: more of them at once takes too long to add up."""
BINS = 120
"""Of a small multiple: three pixels each on a wide page."""
_PANELS = tuple(panel for group in GROUPS for panel in group.panels)


@dataclass(frozen=True, slots=True)
class PanelGroup:
    """The panels of a group that are known in the window; ``missing`` are the titles of the others."""

    key: str
    title: str
    graphs: tuple[tuple[DrawnGraph, dict[str, Any]], ...]
    missing: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ControlPlanePage:
    """``metrics_at`` is up to when metrics are recorded at all, None where there never were any."""

    cluster: str
    axis: Axis
    ticks: tuple[Tick, ...]
    markers: tuple[Marker, ...]
    groups: tuple[PanelGroup, ...]
    asked: dict[str, Any]
    beside: dict[str, dict[str, datetime] | None]
    seen: Seen
    metrics_at: datetime | None
    calls_left_out: bool

    @property
    def empty(self) -> bool:
        return not any(group.graphs for group in self.groups)

    @property
    def others(self) -> bool:
        """Whether metrics are recorded up to within this time, and none of them is of the control plane."""
        at = self.metrics_at
        return self.empty and at is not None and self.axis.from_at < at <= self.axis.to_at


def explored(panel: Panel) -> dict[str, Any]:
    """The panel's question as the explorer's address asks it."""
    query = panel.query
    asked = {"by": ",".join(query.by), "where": written(query.where), "measure": query.measure.value}
    if isinstance(query, CallsQuery):
        return {"of": "calls", **asked, "most": 20}
    return {"metric": "|".join(query.metrics), **asked, "most": 20}


def graphs(blocks: Sequence[Block], tally: Tally, grid: Grid) -> dict[str, Graph]:
    """Every panel's graph by its key."""
    named: dict[str, list[Block]] = defaultdict(list)
    for block in blocks:
        named[block.name].append(block)
    found = {}
    for panel in _PANELS:
        if isinstance(panel.query, CallsQuery):
            found[panel.key] = call_graph(tally, grid, panel.query)
        else:
            names = dict.fromkeys((*panel.query.names, STARTED))
            found[panel.key] = block_graph([block for name in names for block in named[name]], grid, panel.query)
    return found


def drawn(panel: Panel, graph: Graph, axis: Axis) -> DrawnGraph:
    """A panel as it is drawn."""
    return draw(plot(panel.key, panel.title, panel.unit, graph=graph, axis=axis, asked=panel.query.measure))


def groups_of(found: dict[str, Graph], axis: Axis) -> tuple[PanelGroup, ...]:
    """The groups as they are drawn."""
    return tuple(
        PanelGroup(
            group.key,
            group.title,
            tuple((drawn(one, found[one.key], axis), explored(one)) for one in group.panels if found[one.key].measured),
            tuple(_missing(one, found[one.key]) for one in group.panels if not found[one.key].measured),
        )
        for group in GROUPS
    )


def _missing(panel: Panel, graph: Graph) -> str:
    """A panel that cannot be drawn, and why where something is stored."""
    return f"{panel.title} ({ENDLESS})" if graph.endless else panel.title


async def measured(conn: AsyncConnection, cluster: str, axis: Axis) -> Callable[[], dict[str, Graph]]:
    """Reads what all panels need; what is answered makes their graphs of it, which takes a processor. Without calls
    where the window is longer than CALLS_LONGEST. Raises Problem."""
    grid = window_grid(axis.from_at.timestamp(), axis.to_at.timestamp(), most=BINS)
    try:
        blocks = await lines.read_series(conn, cluster, METRICS, grid, end=axis.to_at)
    except TooMuchError as error:
        raise Problem(422, str(error), "from") from None
    with_calls = axis.to_at - axis.from_at <= CALLS_LONGEST
    tally = await lines.read_calls(conn, cluster, grid, end=axis.to_at) if with_calls else nothing(grid)
    return lambda: graphs(blocks, tally, grid)


@router.get("/clusters/{cluster}/control-plane")
async def read_control_plane(request: Request, cluster: str, asked: Annotated[windows.Range, Query()]) -> HTMLResponse:
    """Whether it serves, whether it is overloaded, who loads it, and its store, controllers, processes and size."""
    check_whole(request, cluster)
    now = deps_of(request).clock()
    axis = asked.axis(now)
    async with reading(request) as conn:
        around = await surroundings.read_surroundings(conn, cluster, from_at=axis.from_at, to_at=axis.to_at)
        if not around.seen.freshness:
            raise await unknown_cluster(conn, cluster)
        made = await measured(conn, cluster, axis)
    groups = await run_in_threadpool(lambda: groups_of(made(), axis))
    page = ControlPlanePage(
        cluster=cluster,
        axis=axis,
        ticks=ticks(axis, wanted=4),
        markers=markers(axis, around.marks),
        groups=groups,
        asked=asked.named(request.query_params.get("minus")),
        beside=windows.beside(axis, now),
        seen=around.seen,
        metrics_at=around.seen.freshness[0].sources.get("metrics"),
        calls_left_out=axis.to_at - axis.from_at > CALLS_LONGEST,
    )
    return templates.page("control_plane.html", page=page, ranges=windows.RANGES, now=now)


def nothing(grid: Grid) -> Tally:
    """No calls at all."""
    empty = np.empty(0, dtype=np.int64)
    return Tally((), empty, empty, empty, empty, grid.start)
