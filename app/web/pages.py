"""The pages: each reads with at most four queries, makes one frozen view of it, renders it."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from pydantic import BeforeValidator, Field
from starlette.responses import HTMLResponse

from app.core.axis import Axis
from app.core.model import Change, Incident, Ranking, Resource, Verb
from app.core.roles import Role
from app.store import incidents, objects, surroundings, timeline
from app.store.timeline import ChangeFilter
from app.web import change_views, params, templates, views
from app.web.auth import Needs
from app.web.deps import deps_of
from app.web.problems import Problem

router = APIRouter(
    include_in_schema=False, default_response_class=HTMLResponse, dependencies=[Depends(Needs(Role.VIEWER))]
)
PAGE = 100
VERSIONS = 200
"""How far back an object's versions are rebuilt."""


class IncidentAsked(params.Asked):
    """What an incident's address may say. ``change`` is the one open in the drawer: the browser reads it."""

    from_at: params.Time | None = Field(None, alias="from")
    to_at: params.Time | None = Field(None, alias="to")
    rows: str = Field("before", pattern="^(before|all)$")
    derived: str = Field("hidden", pattern="^(hidden|shown)$")
    after: str | None = Field(None, max_length=64)
    change: str | None = Field(None, max_length=28)

    def named(self) -> dict[str, Any]:
        """What makes the address, without the place in the rows: the usual is left out."""
        return {
            "from": self.from_at,
            "to": self.to_at,
            "rows": "all" if self.rows == "all" else None,
            "derived": "shown" if self.derived == "shown" else None,
        }


class IncidentsAsked(params.Asked):
    """Which incidents."""

    cluster: params.Text | None = None
    after: str | None = Field(None, max_length=64)


class ChangesAsked(params.ChangesAsked):
    """Which changes; ``after`` continues a page."""

    after: str | None = Field(None, max_length=64)


class HistoryAsked(params.Asked):
    """Two versions to compare, as change ids: the state after each. "now" is the last known one."""

    old: Annotated[str | None, BeforeValidator(lambda text: text or None)] = Field(None, max_length=28)
    new: Annotated[str | None, BeforeValidator(lambda text: text or None)] = Field(None, max_length=28)


def next_of(found: list[Change]) -> str | None:
    """The cursor behind a full page, None at the end."""
    return params.encode(found[-1].at, f"{found[-1].key:x}") if len(found) == PAGE else None


@router.get("/")
async def list_incidents(request: Request, asked: Annotated[IncidentsAsked, Query()]) -> HTMLResponse:
    """Incidents, newest first."""
    async with deps_of(request).read.connect() as conn:
        before = params.decode(asked.after) if asked.after else None
        found = await incidents.list_incidents(conn, cluster=asked.cluster, before=before, limit=PAGE)
        suspects = await incidents.first_suspects(conn, [incident.id for incident in found])
        seen = await surroundings.read_seen(conn, asked.cluster, from_at=None, to_at=None)
    following = params.encode(found[-1].started_at, found[-1].id) if len(found) == PAGE else None
    return templates.page(
        "incidents.html",
        incidents=found,
        suspects=suspects,
        next=following,
        seen=seen,
        cluster=asked.cluster,
        now=deps_of(request).clock(),
    )


async def _incident(request: Request, incident_id: str) -> tuple[Incident, Ranking | None]:
    async with deps_of(request).read.connect() as conn:
        found = await incidents.read_incident(conn, incident_id)
    if found is None:
        raise Problem(404, "there is no incident of this id")
    return found


def _axis(incident: Incident, ranking: Ranking | None, asked: IncidentAsked) -> Axis:
    if asked.from_at and asked.to_at and asked.from_at >= asked.to_at:
        raise Problem(422, "from must be before to", "from")
    start, end = views.window(incident, ranking, from_at=asked.from_at, to_at=asked.to_at)
    if end - start > params.LONGEST:
        raise Problem(422, "the time between from and to is longer than 400 days", "to")
    return Axis(start, end)


def _rows_wanted(incident: Incident, ranking: Ranking | None, asked: IncidentAsked, axis: Axis) -> ChangeFilter:
    end = views.rows_until(ranking, end=axis.to_at, rows=asked.rows)
    return ChangeFilter(incident.cluster, from_at=axis.from_at, to_at=end, derived=asked.derived)


@router.get("/incidents/{incident_id}")
async def read_incident(request: Request, incident_id: str, asked: Annotated[IncidentAsked, Query()]) -> HTMLResponse:
    """One incident: what preceded it, on one axis with all that surrounds it."""
    incident, ranking = await _incident(request, incident_id)
    axis = _axis(incident, ranking, asked)
    async with deps_of(request).read.connect() as conn:
        around = await surroundings.read_surroundings(conn, incident.cluster, from_at=axis.from_at, to_at=axis.to_at)
        wanted = _rows_wanted(incident, ranking, asked, axis)
        rows = await timeline.list_changes(conn, wanted, before=params.change_cursor(asked.after), limit=PAGE)
    page = views.incident_page(
        incident,
        ranking,
        axis=axis,
        around=around,
        changes=rows,
        next_cursor=next_of(rows),
        asked=asked.named(),
    )
    return templates.page("incident.html", page=page, now=deps_of(request).clock())


@router.get("/_/incidents/{incident_id}")
async def read_incident_rows(
    request: Request, incident_id: str, asked: Annotated[IncidentAsked, Query()]
) -> HTMLResponse:
    """The rows behind a cursor."""
    incident, ranking = await _incident(request, incident_id)
    axis = _axis(incident, ranking, asked)
    async with deps_of(request).read.connect() as conn:
        wanted = _rows_wanted(incident, ranking, asked, axis)
        found = await timeline.list_changes(conn, wanted, before=params.change_cursor(asked.after), limit=PAGE)
    return templates.page(
        "_rows.html",
        rows=views.change_rows(found, axis=axis, ranking=ranking),
        next=next_of(found),
        asked=asked.named(),
        rows_path=f"/incidents/{incident.id}",
    )


def _plain_rows(found: list[Change]) -> tuple[views.ChangeRow, ...]:
    return tuple(views.ChangeRow(change, t_minus=None, x=None, rank=0) for change in found)


def _named(asked: params.ChangesAsked) -> dict[str, Any]:
    named = asked.model_dump(by_alias=True, exclude={"after"})
    named["derived"] = "shown" if asked.derived == "shown" else None
    return named


@router.get("/changes")
async def list_changes(request: Request, asked: Annotated[ChangesAsked, Query()]) -> HTMLResponse:
    """Changes with filters; the address says all of it."""
    now = deps_of(request).clock()
    wanted = asked.filter(now)
    async with deps_of(request).read.connect() as conn:
        found = await timeline.list_changes(conn, wanted, before=params.change_cursor(asked.after), limit=PAGE)
        seen = await surroundings.read_seen(conn, asked.cluster, from_at=asked.from_at, to_at=asked.to_at)
    return templates.page(
        "changes.html",
        rows=_plain_rows(found),
        next=next_of(found),
        asked=_named(asked),
        seen=seen,
        verbs=tuple(Verb),
        searched_from=wanted.from_at if asked.scans else None,
        now=now,
    )


@router.get("/_/changes")
async def list_change_rows(request: Request, asked: Annotated[ChangesAsked, Query()]) -> HTMLResponse:
    """The rows behind a cursor."""
    deps = deps_of(request)
    async with deps.read.connect() as conn:
        before = params.change_cursor(asked.after)
        found = await timeline.list_changes(conn, asked.filter(deps.clock()), before=before, limit=PAGE)
    return templates.page(
        "_rows.html", rows=_plain_rows(found), next=next_of(found), asked=_named(asked), rows_path="/changes"
    )


@router.get("/changes/{change_id}")
async def read_change(request: Request, change_id: str, _: Annotated[params.NoParameters, Query()]) -> HTMLResponse:
    """One change: who, what, and what it began. The drawer shows the same."""
    deps = deps_of(request)
    async with deps.read.connect() as conn:
        try:
            change = await timeline.read_change(conn, change_id)
        except (ValueError, OverflowError):
            change = None
        if change is None:
            raise Problem(404, "there is no change of this id")
        began = await timeline.list_begun_by(conn, change)
        around = await surroundings.read_surroundings(
            conn, change.resource.cluster, from_at=change.at, to_at=change.at + change_views.SOON
        )
        states = await objects.load_states(conn, change.resource.cluster, [change.resource])
    address = f"{deps.public_url.rstrip('/')}/changes/{change.id}"
    page = change_views.change_page(change, began, around, last=states.get(change.resource), address=address)
    return templates.page("change.html", page=page, now=deps.clock())


@router.get("/objects/{cluster}/{api_group}/{kind}/{namespace}/{name}")
async def read_object(
    request: Request,
    cluster: str,
    api_group: str,
    kind: str,
    namespace: str,
    name: str,
    asked: Annotated[HistoryAsked, Query()],
) -> HTMLResponse:
    """One object's history, with the difference between any two of its versions."""
    group, space = "" if api_group == "core" else api_group, None if namespace == "-" else namespace
    resource = Resource(cluster, group, kind, space, name)
    async with deps_of(request).read.connect() as conn:
        history = await timeline.read_history(conn, resource, limit=VERSIONS)
        if history is None:
            raise Problem(404, "there is no object of this name")
        seen = await surroundings.read_seen(conn, cluster, from_at=None, to_at=None)
    page = change_views.object_page(resource, history, old=asked.old, new=asked.new, seen=seen)
    if page is None:
        raise Problem(404, f"this version is not among the newest {VERSIONS} of the object")
    return templates.page("object.html", page=page, now=deps_of(request).clock())
