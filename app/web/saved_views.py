"""Making, renaming and deleting saved views: plain forms of the explorer."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import parse_qsl, urlencode

from fastapi import APIRouter, Depends, Path, Request
from pydantic import ValidationError
from starlette.responses import RedirectResponse, Response

from app.core.metrics.views import ASKED, MisnamedError, named
from app.core.phrases import refusal
from app.core.roles import Role
from app.store import views
from app.web.auth import Needs
from app.web.deps import deps_of
from app.web.explorer import ExploreAsked, Unnamed, explored
from app.web.problems import Problem
from app.web.requests import read_form

router = APIRouter(prefix="/views", include_in_schema=False, dependencies=[Depends(Needs(Role.RESPONDER))])
_LEFT_OUT = ("cluster", "from", "to", "minus")
ViewId = Annotated[int, Path(ge=1, le=2**31 - 1)]


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


def _shown(text: str) -> dict[str, str]:
    """What the explorer shows: with the cluster and the time, which a view leaves out and who saves it goes on with."""
    told = [told for told in parse_qsl(text.removeprefix("?")) if told[0] in (*_LEFT_OUT, *ASKED)]
    return dict(sorted(told, key=lambda told: told[0] in ASKED))


def _unnamed(error: MisnamedError | views.TakenError) -> Problem:
    return Problem(409 if isinstance(error, views.TakenError) else 422, str(error), "name")


@router.post("")
async def add_view(request: Request) -> Response:
    """Saves the question that a page of the explorer shows, under a name. Of a name that it is not given the same page
    says why, with the name and the question as they were."""
    form = await read_form(request, "name", "query")
    name, deps = form["name"], deps_of(request)
    shown, kept = _shown(form["query"]), _query(form["query"])
    try:
        async with deps.write.begin() as conn:
            await views.add_view(conn, named(name), kept, now=deps.clock())
    except (MisnamedError, views.TakenError) as error:
        return await explored(request, shown, unnamed=Unnamed(name, _unnamed(error)))
    return _onward(shown)


@router.post("/{view_id}/rename")
async def rename_view(request: Request, view_id: ViewId) -> Response:
    """Gives a view another name; of one that it is not given the explorer says why, with the name as it was typed."""
    form = await read_form(request, "name")
    name, deps = form["name"], deps_of(request)
    shown = _shown(form.get("query", ""))
    try:
        async with deps.write.begin() as conn:
            found = await views.rename_view(conn, view_id, named(name), now=deps.clock())
    except (MisnamedError, views.TakenError) as error:
        return await explored(request, shown, unnamed=Unnamed(name, _unnamed(error), view_id))
    if not found:
        raise _missing()
    return _onward(shown)


@router.post("/{view_id}/delete")
async def delete_view(request: Request, view_id: ViewId) -> Response:
    """Deletes a view."""
    form, deps = await read_form(request), deps_of(request)
    async with deps.write.begin() as conn:
        found = await views.delete_view(conn, view_id, now=deps.clock())
    if not found:
        raise _missing()
    return _onward(_shown(form.get("query", "")))


def _missing() -> Problem:
    return Problem(404, "there is no view of this id")


def _onward(shown: dict[str, str]) -> Response:
    return RedirectResponse(f"/explore?{urlencode(shown)}" if shown else "/explore", 303)
