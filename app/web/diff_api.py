"""REST: what an object held at one time beside what it held at another."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import PlainTextResponse
from pydantic import Field
from sqlalchemy.ext.asyncio import AsyncConnection

from app.core.model import Change, ObjectState, Resource
from app.core.objects.diff import diff
from app.core.objects.versions import Side, sides
from app.core.roles import Role
from app.store import history
from app.store.seen import read_seen
from app.store.timeline import Cursor
from app.store.undoing import MOST_UNDONE
from app.web import answers, params, problems, shapes
from app.web.accept import TEXT
from app.web.api import Conn
from app.web.auth import Needs
from app.web.deps import deps_of
from app.web.differences import MOST, difference_report
from app.web.objects_named import read_named
from app.web.problems import Problem
from app.web.representations import Negotiated, kind_of

router = APIRouter(
    prefix="/api/v1",
    route_class=Negotiated,
    dependencies=[Depends(Needs(Role.VIEWER, limited=True)), Depends(params.once)],
    responses=problems.described(401, 404, 406, 422, 429, 503),
)


class DiffAsked(params.Asked):
    """One object and two times."""

    cluster: params.Text = Field(examples=["shop"])
    object: params.Text = Field(
        description="KIND/NAME as kubectl knows it, a custom one as KIND.GROUP/NAME",
        examples=["deployment/checkout-api"],
    )
    namespace: params.Text | None = Field(None, description="passed over where the kind has none")
    from_at: params.Time = Field(alias="from", description="ISO 8601 with a zone", examples=["2026-11-20T14:00:00Z"])
    to_at: params.Time | None = Field(None, alias="to", description="now")


@router.get(
    "/diff",
    summary="One object at two times",
    responses={200: {"content": {TEXT: {"schema": {"type": "string"}}}}},
    response_model=answers.Difference,
)
async def read_diff(
    asked: Annotated[DiffAsked, Query()], conn: Conn, request: Request
) -> PlainTextResponse | answers.Difference:
    """The fields that differ, and the changes in between, newest first. Where what it held at one of the times was not
    recorded, ``diffs`` is null, and ``unknown`` says why."""
    to_at = asked.to_at or deps_of(request).clock()
    if asked.from_at >= to_at:
        raise Problem(422, "from must be before to", "from")
    seen = await read_seen(conn, asked.cluster, from_at=asked.from_at, to_at=to_at)
    last = await read_named(conn, asked.cluster, asked.object, asked.namespace)
    resource = last.resource
    old, new = await _at(conn, last, asked.from_at), await _at(conn, last, to_at)
    between = await _between(conn, resource, asked.from_at, to_at)
    unknown = _unknown(old, "from") or _unknown(new, "to")
    found = None if unknown or old is None or new is None else diff(old.state, new.state)
    answer = answers.Difference(
        resource=shapes.Resource.model_validate(resource),
        from_at=asked.from_at,
        to_at=to_at,
        diffs=None if found is None else [shapes.Diff.of(one) for one in found],
        unknown=unknown,
        changes=[shapes.Change.of(change) for change in between],
        **answers.context(seen),
    )
    if kind_of(request) == TEXT:
        return PlainTextResponse(difference_report(resource, answer, found))
    return answer


async def _at(conn: AsyncConnection, last: ObjectState, at: datetime) -> Side | None:
    """What the object held then: its last state with all that was written later undone; None where that is too much."""
    later = await history.read_newer(conn, last.resource, _behind(at), most=MOST_UNDONE)
    if later is None:
        return None
    if later:
        return sides(last.state, later)[0]
    gone = last.deleted_at is not None and last.deleted_at <= at
    return Side(None if gone else last.state, known=gone or last.state is not None)


def _behind(at: datetime) -> Cursor:
    """The place after all that was written up to then."""
    return Cursor(at + timedelta(microseconds=1), 0)


async def _between(conn: AsyncConnection, resource: Resource, from_at: datetime, to_at: datetime) -> list[Change]:
    found = await history.read_history(conn, resource, before=_behind(to_at), limit=MOST)
    return [change for change in found.changes if change.at > from_at] if found else []


def _unknown(side: Side | None, which: str) -> str:
    """Why it is not known what the object held at that time, "" where it is."""
    if side is None:
        return f"it was written more than {MOST_UNDONE:,} times since {which}, which are too many to undo"
    if not side.known:
        return f"what it held at {which} was not recorded: of a write since then no whole body was told"
    return ""
