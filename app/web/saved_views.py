"""Making, renaming and deleting saved views: plain forms of the explorer."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import parse_qsl, urlencode

from fastapi import APIRouter, Depends, Path, Request
from pydantic import ValidationError
from starlette.responses import RedirectResponse, Response

from app.core.metrics.views import ASKED, named
from app.core.phrases import refusal
from app.core.roles import Role
from app.store import views
from app.web.auth import Needs
from app.web.deps import deps_of
from app.web.explorer import ExploreAsked
from app.web.problems import Problem
from app.web.requests import read_form

router = APIRouter(prefix="/views", include_in_schema=False, dependencies=[Depends(Needs(Role.RESPONDER))])
ViewId = Annotated[int, Path(ge=1, le=2**31 - 1)]


def _name(text: str) -> str:
    try:
        return named(text)
    except ValueError as error:
        raise Problem(422, str(error), "name") from None


def _query(text: str) -> str:
    """What a view keeps of the explorer's query. Raises Problem for what cannot be asked."""
    asked = {name: value for name, value in parse_qsl(text.removeprefix("?")) if name in ASKED}
    try:
        question = ExploreAsked.model_validate(asked).query()
    except ValidationError as error:
        raise Problem(
            422, f"this is no question of the explorer: {refusal(error.errors()[0]['msg'])}", "query"
        ) from None
    if question is None:
        raise Problem(422, "there is no question to save: choose a metric, or calls", "query")
    return urlencode(asked)


def _shown(text: str) -> str:
    """The cluster and the time of the explorer's query, which a view leaves out and who saves it goes on to look at."""
    return urlencode(
        [told for told in parse_qsl(text.removeprefix("?")) if told[0] in ("cluster", "from", "to", "minus")]
    )


@router.post("")
async def add_view(request: Request) -> Response:
    """Saves the question that a page of the explorer shows, under a name."""
    name, query = await read_form(request, "name", "query")
    deps = deps_of(request)
    kept = _query(query)
    try:
        async with deps.write.begin() as conn:
            await views.add_view(conn, _name(name), kept, now=deps.clock())
    except views.TakenError as error:
        raise Problem(409, str(error), "name") from None
    return RedirectResponse(f"/explore?{'&'.join(filter(None, (_shown(query), kept)))}", 303)


@router.post("/{view_id}/rename")
async def rename_view(request: Request, view_id: ViewId) -> Response:
    """Gives a view another name."""
    (name,) = await read_form(request, "name")
    deps = deps_of(request)
    try:
        async with deps.write.begin() as conn:
            found = await views.rename_view(conn, view_id, _name(name), now=deps.clock())
    except views.TakenError as error:
        raise Problem(409, str(error), "name") from None
    return _back(found)


@router.post("/{view_id}/delete")
async def delete_view(request: Request, view_id: ViewId) -> Response:
    """Deletes a view."""
    deps = deps_of(request)
    async with deps.write.begin() as conn:
        return _back(await views.delete_view(conn, view_id, now=deps.clock()))


def _back(found: bool) -> Response:
    if not found:
        raise Problem(404, "there is no view of this id")
    return RedirectResponse("/explore", 303)
