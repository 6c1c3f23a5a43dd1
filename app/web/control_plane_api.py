"""REST: a cluster's control plane, panel by panel, as its page shows it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated
from urllib.parse import urlencode

from fastapi import APIRouter, Depends, Query, Request
from starlette.concurrency import run_in_threadpool

from app.core.metrics.panels import GROUPS
from app.core.roles import Role
from app.store.seen import read_seen
from app.web import answers, params, problems, shown, windows
from app.web.api import Conn
from app.web.auth import Needs
from app.web.control_plane import CALLS_LONGEST, explored, measured
from app.web.curves import told
from app.web.deps import deps_of
from app.web.reading import check_whole
from app.web.representations import Negotiated

router = APIRouter(
    prefix="/api/v1",
    dependencies=[Depends(Needs(Role.VIEWER, limited=True)), Depends(params.once)],
    responses=problems.described(401, 403, 404, 406, 422, 429, 503),
    route_class=Negotiated,
)


@router.get("/clusters/{cluster}/control-plane", summary="Whether it serves, is overloaded, and by whom")
async def read_control_plane(
    request: Request, cluster: str, asked: Annotated[windows.Range, Query()], conn: Conn
) -> shown.ControlPlane:
    """Its store, controllers, processes and size, too: a panel each, of which anything is known in the window. Calls of
    at most a day."""
    check_whole(request, cluster)
    axis = asked.axis(deps_of(request).clock())
    seen = await read_seen(conn, cluster, from_at=axis.from_at, to_at=axis.to_at)
    graphs = await run_in_threadpool(await measured(conn, cluster, axis))
    grid = next(iter(graphs.values())).axis
    panels = [(group, panel, graphs[panel.key]) for group in GROUPS for panel in group.panels]
    return shown.ControlPlane(
        items=[
            shown.Panel(
                group=group.title,
                title=panel.title,
                unit=panel.unit,
                measure=graph.measure,
                lines=told(graph, panel.query.by),
                query=urlencode(explored(panel)),
            )
            for group, panel, graph in panels
            if graph.measured
        ],
        missing=[panel.title for _, panel, graph in panels if not graph.measured],
        calls_left_out=axis.to_at - axis.from_at > CALLS_LONGEST,
        start=datetime.fromtimestamp(grid.start, UTC),
        step_seconds=grid.step,
        **answers.context(seen),
    )
