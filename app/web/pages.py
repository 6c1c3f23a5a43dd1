"""The pages of changes: each reads with a few queries, makes one frozen view of it, renders it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from pydantic import BeforeValidator, Field
from starlette.responses import HTMLResponse

from app.core.model import Change, Resource, Rollout, Verb
from app.core.roles import Role
from app.store import history, rollouts, search, timeline
from app.store.namespaces import unknown_namespace
from app.store.seen import read_seen
from app.store.undoing import MOST_UNDONE, read_known
from app.web import change_views, params, templates, undoing, views
from app.web.aftermath import MOST_BESIDE, read_aftermath
from app.web.auth import Needs
from app.web.cursors import Listing, history_of
from app.web.deps import deps_of
from app.web.incident_pages import PAGE
from app.web.objects_named import unknown_kind
from app.web.problems import Problem
from app.web.reading import narrowed, partial_clusters, reading

router = APIRouter(
    include_in_schema=False,
    default_response_class=HTMLResponse,
    dependencies=[Depends(Needs(Role.VIEWER, limited=True))],
)


class ChangesAsked(params.ChangesAsked):
    """Which changes; ``after`` continues a page."""

    after: str | None = Field(None, max_length=64)


class HistoryAsked(params.Asked):
    """Two versions to compare, as change ids: the state after each. ``after`` is where a page of versions begins."""

    after: Annotated[str | None, BeforeValidator(lambda text: text or None)] = Field(None, max_length=64)
    old: Annotated[str | None, BeforeValidator(lambda text: text or None)] = Field(None, max_length=28)
    new: Annotated[str | None, BeforeValidator(lambda text: text or None)] = Field(None, max_length=28)


def _plain_rows(found: Sequence[Change], begun: Mapping[str, Rollout]) -> tuple[views.ChangeRow, ...]:
    return tuple(
        views.ChangeRow(change, t_minus=None, x=None, rank=0, rollout=begun.get(change.id)) for change in found
    )


def _named(asked: params.ChangesAsked) -> dict[str, Any]:
    named = asked.model_dump(by_alias=True, exclude={"after"})
    named["derived"] = "shown" if asked.derived == "shown" else None
    return named


def _onward(asked: ChangesAsked, found: search.Found) -> dict[str, Any]:
    """Where the rows go on; ``searched_to`` where that is an older time in which nothing was looked for yet."""
    searched_to = found.next.at if found.next and len(found.changes) < PAGE else None
    return {"next": asked.listing.next(found.next), "searched_to": searched_to}


@router.get("/changes")
async def list_changes(request: Request, asked: Annotated[ChangesAsked, Query()]) -> HTMLResponse:
    """Changes with filters; the address says all of it."""
    now = deps_of(request).clock()
    wanted, before = narrowed(request, asked.filter(now)), asked.listing.cursor(asked.after)
    async with reading(request) as conn:
        found = await search.find_changes(conn, wanted, before=before, limit=PAGE, within=search.AT_FIRST)
        seen = await read_seen(conn, asked.cluster, from_at=asked.from_at, to_at=asked.to_at)
        begun = await rollouts.begun_by(conn, found.changes)
        unknown = "" if found.changes else await unknown_namespace(conn, asked.cluster, asked.namespace)
        if not found.changes and not unknown:
            unknown = unknown_kind(asked.kind, seen.kinds, nearest=False)  # its form offers them
    return templates.page(
        "changes.html",
        unknown=unknown,
        rows=_plain_rows(found.changes, begun),
        **_onward(asked, found),
        asked=_named(asked),
        seen=seen,
        verbs=tuple(Verb),
        now=now,
    )


@router.get("/_/changes")
async def list_change_rows(request: Request, asked: Annotated[ChangesAsked, Query()]) -> HTMLResponse:
    """The rows behind a cursor."""
    now = deps_of(request).clock()
    wanted, before = narrowed(request, asked.filter(now)), asked.listing.cursor(asked.after)
    async with reading(request) as conn:
        found = await search.find_changes(conn, wanted, before=before, limit=PAGE, within=search.FURTHER)
        begun = await rollouts.begun_by(conn, found.changes)
    rows = _plain_rows(found.changes, begun)
    around = {"asked": _named(asked), "rows_path": "/changes", "now": now}
    return templates.page("_rows.html", rows=rows, **_onward(asked, found), **around)


@router.get("/_/changes/{change_id}/rollout")
async def read_rollout(request: Request, change_id: str, _: Annotated[params.NoParameters, Query()]) -> HTMLResponse:
    """How far the rollout is that a change began: what an open page asks while it runs."""
    async with reading(request) as conn:
        found = await rollouts.read_begun(conn, change_id)
    if found is None:
        raise Problem(404, "this change began no rollout")
    return templates.page("_rollout.html", rollout=found, now=deps_of(request).clock())


@router.get("/changes/{change_id}")
async def read_change(request: Request, change_id: str, _: Annotated[params.NoParameters, Query()]) -> HTMLResponse:
    """One change: who, what, and what it began. The drawer shows the same."""
    deps = deps_of(request)
    async with reading(request) as conn:
        try:
            change = await timeline.read_change(conn, change_id)
        except (ValueError, OverflowError):
            change = None
        if change is None:
            raise Problem(404, "there is no change of this id")
        began = await timeline.list_begun_by(conn, change)
        after = await read_aftermath(conn, change)
        known = await read_known(conn, change, last=after.state)
    address = f"{deps.public_url.rstrip('/')}/changes/{change.id}"
    page = change_views.change_page(
        change,
        began,
        after.around,
        known=known,
        after=change_views.after(change, after.measured, after.whom, among=MOST_BESIDE if after.is_cut else 0),
        address=address,
        neighbours=deps.neighbours,
        offer=undoing.offer(request, change, known),
    )
    partial = change.resource.cluster in partial_clusters(request)
    return templates.page("change.html", page=page, partial=partial, now=deps.clock())


@router.get("/objects/{cluster}/{api_group}/{kind}/{namespace}/{name:rest}")
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
    listing = history_of(resource)
    cursor = listing.cursor(asked.after)
    async with reading(request) as conn:
        found = await history.read_history(conn, resource, before=cursor, limit=PAGE)
        if found is None:
            raise Problem(404, "there is no object of this name")
        newer = await history.read_newer(conn, resource, cursor, most=MOST_UNDONE) if cursor else []
        seen = await read_seen(conn, cluster, from_at=None, to_at=None)
    shown = change_views.Shown(
        asked.after or _above(listing, found.changes), listing.next_of(list(found.changes), PAGE), asked.old, asked.new
    )
    page = change_views.object_page(resource, found, newer, shown=shown, seen=seen)
    if page is None:
        raise Problem(404, "this version is not on this page of the object's history")
    return templates.page("object.html", page=page, now=deps_of(request).clock())


def _above(listing: Listing, changes: Sequence[Change]) -> str | None:
    """The cursor that shows this page again when newer changes have come."""
    return listing.encode(changes[0].at, f"{changes[0].key + 1:x}") if changes else None
