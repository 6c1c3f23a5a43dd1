"""Incidents: the list and the one screen, and the parts of both that an open page asks for by itself."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from pydantic import Field
from sqlalchemy.ext.asyncio import AsyncConnection
from starlette.responses import HTMLResponse, RedirectResponse, Response

from app.core.findings import Incident, Ranking
from app.core.roles import Role
from app.core.screen.axis import Axis
from app.store import deliveries, incidents, surroundings, timeline
from app.store.seen import read_seen
from app.store.timeline import ChangeFilter
from app.web import live, params, templates, views
from app.web.auth import Needs, has
from app.web.cursors import Listing
from app.web.deps import deps_of
from app.web.problems import Problem
from app.web.reading import partial_clusters, reading, scope_of

router = APIRouter(
    include_in_schema=False,
    default_response_class=HTMLResponse,
    dependencies=[Depends(Needs(Role.VIEWER, limited=True))],
)
PAGE = 100
MOST_ROWS = 1000
SUSPECTED = 20
"""The newest suspected incidents, which the list has in a fold."""
MERGEABLE = 50
"""The newest open incidents that another may be made a part of by its page; REST takes any."""
_IDS = r"^([0-9a-f]{28}(,[0-9a-f]{28})*)?$"


class WindowAsked(params.Asked):
    """Which part of an incident is shown."""

    from_at: params.Time | None = Field(None, alias="from")
    to_at: params.Time | None = Field(None, alias="to")
    rows: str = Field("before", pattern="^(before|all)$")
    derived: str = Field("hidden", pattern="^(hidden|shown)$")

    def named(self) -> dict[str, Any]:
        """What makes the address, without the place in the rows: the usual is left out."""
        return {
            "from": self.from_at,
            "to": self.to_at,
            "rows": "all" if self.rows == "all" else None,
            "derived": "shown" if self.derived == "shown" else None,
        }


class IncidentAsked(WindowAsked):
    """What an incident's address may say. ``change`` is the one open in the drawer: the browser reads it."""

    after: str | None = Field(None, max_length=64)
    change: str | None = Field(None, max_length=28)


class IncidentNewsAsked(WindowAsked):
    """What an open page shows: the version it was made from, the suspects' order when it was opened (``opened``),
    the suspects whose reasons are being read (``kept``), how many rows are there (``shown``).
    """

    since: str = Field(pattern=live.VERSION)
    opened: str = Field("", pattern=_IDS, max_length=1000)
    kept: str = Field("", pattern=_IDS, max_length=1000)
    shown: int = Field(PAGE, ge=0)


class IncidentsAsked(params.Asked):
    """Which incidents."""

    cluster: params.Text | None = None
    after: str | None = Field(None, max_length=64)


class IncidentsNewsAsked(params.Asked):
    """What an open list shows."""

    cluster: params.Text | None = None
    since: str = Field(pattern=live.LIST_VERSION)


def _ids(text: str) -> tuple[str, ...]:
    return tuple(filter(None, text.split(",")))


@router.get("/")
async def list_incidents(request: Request, asked: Annotated[IncidentsAsked, Query()]) -> HTMLResponse:
    """Incidents, newest first."""
    return await _listed("incidents.html", request, asked)


@router.get("/incidents")
async def find_incidents() -> RedirectResponse:
    """The list's address as one guesses it from that of an incident."""
    return RedirectResponse("/", 301)


@router.get("/_/incidents")
async def list_incidents_news(request: Request, asked: Annotated[IncidentsNewsAsked, Query()]) -> Response:
    """The list again, or 204 while it is as it was."""
    async with reading(request) as conn:
        standings = await incidents.list_standings(conn, cluster=asked.cluster, limit=PAGE, suspected=SUSPECTED)
    if asked.since == live.list_version(standings, deps_of(request).clock()):
        return Response(status_code=204)
    return await _listed("_incidents.html", request, IncidentsAsked(cluster=asked.cluster))


async def _listed(template: str, request: Request, asked: IncidentsAsked) -> HTMLResponse:
    listing = Listing("incidents", (asked.cluster, None))
    deps, before = deps_of(request), listing.decode(asked.after) if asked.after else None
    limited, now = scope_of(request) is not None, deps.clock()
    async with reading(request) as conn:
        found, quiet, suspects = await incidents.list_with_suspected(
            conn, cluster=asked.cluster, before=before, limit=PAGE, suspected=SUSPECTED
        )
        seen = await read_seen(conn, asked.cluster, from_at=None, to_at=None)
        untold = await deliveries.count_untold(conn, suspected=deps.slack.suspected, now=now) if not limited else None
    return templates.page(
        template,
        incidents=found,
        quiet=quiet,
        suspects=suspects,
        next=listing.encode(found[-1].started_at, found[-1].id) if len(found) == PAGE else None,
        seen=seen,
        cluster=asked.cluster,
        may_open=has(request, Role.RESPONDER),
        limited=limited,
        untold=untold,
        partial=partial_clusters(request),
        since=None if asked.after else live.list_version([*found, *quiet], now),
        now=now,
    )


async def _incident(request: Request, incident_id: str) -> tuple[Incident, Ranking | None]:
    async with reading(request) as conn:
        found = await incidents.read_incident(conn, incident_id)
    if found is None:
        raise Problem(404, "there is no incident of this id")
    return found


async def _incident_since_first(request: Request, incident_id: str) -> tuple[Incident, Ranking | None, Ranking | None]:
    async with reading(request) as conn:
        found = await incidents.read_incident_since_first(conn, incident_id)
    if found is None:
        raise Problem(404, "there is no incident of this id")
    return found


def _axis(incident: Incident, ranking: Ranking | None, asked: WindowAsked) -> Axis:
    if asked.from_at and asked.to_at and asked.from_at >= asked.to_at:
        raise Problem(422, "from must be before to", "from")
    start, end = views.window(incident, ranking, from_at=asked.from_at, to_at=asked.to_at)
    if end - start > params.LONGEST:
        raise Problem(422, "the time between from and to is longer than 400 days", "to")
    return Axis(start, end)


def _rows_of(incident: Incident, asked: WindowAsked) -> Listing:
    return Listing("rows of an incident", (incident.id, asked.rows, asked.derived))


def _rows_wanted(incident: Incident, ranking: Ranking | None, asked: WindowAsked, axis: Axis) -> ChangeFilter:
    end = views.rows_until(ranking, end=axis.to_at, rows=asked.rows)
    return ChangeFilter(incident.cluster, from_at=axis.from_at, to_at=end, derived=asked.derived)


@router.get("/incidents/{incident_id}")
async def read_incident(request: Request, incident_id: str, asked: Annotated[IncidentAsked, Query()]) -> HTMLResponse:
    """One incident: what preceded it, on one axis with all that surrounds it."""
    incident, ranking, first = await _incident_since_first(request, incident_id)
    opened = views.Opened(live.order(ranking), first)
    known = (incident, ranking)
    return await _screen("incident.html", request, known, asked=asked, opened=opened, after=asked.after)


@router.get("/_/incidents/{incident_id}/news")
async def read_incident_news(
    request: Request, incident_id: str, asked: Annotated[IncidentNewsAsked, Query()]
) -> Response:
    """The screen again as it is now, or 204 while it is as it was."""
    async with reading(request) as conn:
        standing = await incidents.read_standing(conn, incident_id)
    if standing is not None and asked.since == live.version(standing, deps_of(request).clock()):
        return Response(status_code=204)
    incident, ranking, first = await _incident_since_first(request, incident_id)
    opened = views.Opened(_ids(asked.opened) or live.order(ranking), first, _ids(asked.kept))
    known = (incident, ranking)
    limit = min(max(asked.shown, PAGE), MOST_ROWS)
    return await _screen("_incident.html", request, known, asked=asked, opened=opened, limit=limit)


async def _screen(
    template: str,
    request: Request,
    known: tuple[Incident, Ranking | None],
    *,
    asked: WindowAsked,
    opened: views.Opened,
    after: str | None = None,
    limit: int = PAGE,
) -> HTMLResponse:
    deps = deps_of(request)
    incident, ranking = known
    axis, listing = _axis(incident, ranking, asked), _rows_of(incident, asked)
    async with reading(request) as conn:
        around = await surroundings.read_surroundings(conn, incident.cluster, from_at=axis.from_at, to_at=axis.to_at)
        wanted = _rows_wanted(incident, ranking, asked, axis)
        rows = await timeline.list_changes(conn, wanted, before=listing.cursor(after), limit=limit)
        wholes = await _wholes(conn, incident) if has(request, Role.RESPONDER) else ()
        whole = await incidents.read_incidents(conn, [incident.merged_into]) if incident.merged_into else []
    now = deps.clock()
    page = views.incident_page(
        incident,
        ranking,
        axis=axis,
        around=around,
        rows=views.change_rows(rows, axis=axis, ranking=ranking, rollouts=around.rollouts),
        next_cursor=listing.next_of(rows, limit),
        asked=asked.named(),
        follow=views.follow(incident, ranking, opened, now=now),
    )
    return templates.page(
        template,
        page=page,
        may_act=has(request, Role.RESPONDER),
        wholes=wholes,
        whole=whole[0] if whole else None,
        partial=incident.cluster in partial_clusters(request),
        now=now,
    )


async def _wholes(conn: AsyncConnection, incident: Incident) -> tuple[Incident, ...]:
    """The open incidents that this one may be made a part of, the nearest in time first."""
    if incident.status == "merged":
        return ()
    found = await incidents.list_incidents(conn, cluster=incident.cluster, status="open", limit=MERGEABLE)
    others = (one for one in found if one.id != incident.id)
    return tuple(sorted(others, key=lambda one: abs(one.started_at - incident.started_at)))


@router.get("/_/incidents/{incident_id}")
async def read_incident_rows(
    request: Request, incident_id: str, asked: Annotated[IncidentAsked, Query()]
) -> HTMLResponse:
    """The rows behind a cursor."""
    incident, ranking = await _incident(request, incident_id)
    axis, listing = _axis(incident, ranking, asked), _rows_of(incident, asked)
    async with reading(request) as conn:
        wanted = _rows_wanted(incident, ranking, asked, axis)
        found = await timeline.list_changes(conn, wanted, before=listing.cursor(asked.after), limit=PAGE)
    return templates.page(
        "_rows.html",
        rows=views.change_rows(found, axis=axis, ranking=ranking),
        next=listing.next_of(found, PAGE),
        asked=asked.named(),
        searched_to=None,
        rows_path=f"/incidents/{incident.id}",
    )
