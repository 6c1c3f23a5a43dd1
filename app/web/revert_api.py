"""REST: how a change is undone, and the object before and after it."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Path, Query, Request
from fastapi.responses import PlainTextResponse, Response
from pydantic import Field
from sqlalchemy.ext.asyncio import AsyncConnection

from app.core.changes.revert import revert_recipe
from app.core.changes.revert_report import report
from app.core.model import Change
from app.core.objects.manifest import file_name
from app.core.roles import Role
from app.core.screen import tables
from app.store import timeline, undoing
from app.store.seen import read_seen
from app.web import answers, examples, params, problems
from app.web.accept import TEXT
from app.web.api import Conn
from app.web.auth import Needs
from app.web.manifests import NoManifestError, Which, read_manifest
from app.web.problems import Problem
from app.web.representations import Negotiated, kind_of

YAML = "application/yaml"  # RFC 9512
router = APIRouter(
    prefix="/api/v1",
    route_class=Negotiated,
    dependencies=[Depends(Needs(Role.VIEWER, limited=True)), Depends(params.once)],
    responses=problems.described(401, 404, 406, 422, 429, 503),
)
ChangeId = Annotated[str, Path(examples=[examples.CULPRIT.id])]


class ManifestAsked(params.Asked):
    """Which side of a change."""

    which: Which = Field(Which.BEFORE, description="the object right before the change, or right after it")


class RevertAsked(params.Asked):
    """How it is written."""

    format: Literal["json", "text"] | None = Field(None, description="text is made for a terminal")


async def one_change(conn: AsyncConnection, change_id: str) -> Change:
    """Raises Problem 404 for an id that is not known, or that is none."""
    try:
        change = await timeline.read_change(conn, change_id)
    except (ValueError, OverflowError):
        change = None
    if change is None:
        raise Problem(404, "there is no change of this id", "change_id")
    return change


@router.get(
    "/changes/{change_id}/revert",
    summary="How to undo a change",
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
    response_model=answers.Revert,
)
async def read_revert(
    change_id: ChangeId, _: Annotated[RevertAsked, Query()], conn: Conn, request: Request
) -> PlainTextResponse | answers.Revert:
    """The command, a dry run of it, all steps in order, and what to mind, as ``format`` or else Accept says. Nothing is
    run."""
    change = await one_change(conn, change_id)
    recipe = revert_recipe(change, await undoing.read_known(conn, change))
    seen = await read_seen(conn, change.resource.cluster, from_at=change.at, to_at=None)
    if kind_of(request) == TEXT:
        said = answers.Answer(**answers.context(seen)).model_dump(mode="json")
        return PlainTextResponse(report(change, recipe, tables.seen(said)))
    return answers.Revert.of(change, recipe, seen)


@router.get(
    "/changes/{change_id}/manifest",
    summary="The object right before or after a change",
    responses={200: {"content": {YAML: {"schema": {"type": "string"}}}}},
    response_class=Response,
)
async def read_one_manifest(change_id: ChangeId, asked: Annotated[ManifestAsked, Query()], conn: Conn) -> Response:
    """As YAML for kubectl, normalised; comments say what is kept secret. 404 says why where it is not known."""
    change = await one_change(conn, change_id)
    try:
        text = await read_manifest(conn, change, asked.which)
    except NoManifestError as error:
        raise Problem(404, str(error), "which") from None
    named = f'attachment; filename="{file_name(change.resource, asked.which)}"'
    return Response(text, media_type=YAML, headers={"content-disposition": named})
