"""The header that keeps a write from what somebody else has changed since it was read (RFC 9110, section 13.1.1)."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from fastapi import Depends, Header, Request
from sqlalchemy.ext.asyncio import AsyncConnection

from app.web import etags
from app.web.api import one_incident
from app.web.deps import Check
from app.web.problems import Problem
from app.web.reading import reading, scope_of


def _if_match(
    request: Request,
    _: Annotated[
        str | None,
        Header(
            alias="If-Match",
            max_length=1000,
            description="the ETag of the incident as it was read: 412 where it is another one by now",
        ),
    ] = None,
) -> str:
    return ", ".join(request.headers.getlist("if-match"))


IfMatch = Annotated[str, Depends(_if_match)]


def matching(request: Request, incident_id: str, if_match: str) -> Check | None:
    """What raises Problem 412 for an incident that is not as the client read it, and 404, for who writes: to be called
    when nobody else does, so that of two who read the same one is first. None where the client does not say."""
    return partial(_check_match, request, incident_id, if_match) if if_match else None


async def _check_match(request: Request, incident_id: str, if_match: str, conn: AsyncConnection) -> None:
    """``conn`` writes. Who is limited reads less than it does: by a connection of their own."""
    if scope_of(request) is None:
        answer = await one_incident(conn, incident_id)
    else:
        async with reading(request) as limited:
            answer = await one_incident(limited, incident_id)
    if not etags.is_of(if_match, etags.version(answer.model_dump(mode="json", by_alias=True))):
        raise Problem(
            412,
            "the incident is not as If-Match says: read it again, see what changed, and send its ETag of now",
            "If-Match",
        )
