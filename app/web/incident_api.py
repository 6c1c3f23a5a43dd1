"""REST for incidents by hand: opened, amended, resolved, reopened, merged."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Request, Response
from pydantic import BaseModel
from sqlalchemy.ext.asyncio import AsyncConnection

from app.core.incidents.hands import CannotError
from app.core.roles import Role
from app.store.idempotency import OtherRequestError
from app.store.namespaces import unknown_namespaces
from app.store.seen import read_seen
from app.web import answers, examples, params
from app.web.api import one_incident
from app.web.asked_incidents import IncidentToChange, IncidentToMerge, IncidentToOpen, SaidOfIncident
from app.web.auth import Needs
from app.web.deps import deps_of
from app.web.idempotency import OPENED, IdempotencyKey, key_of
from app.web.matching import IfMatch, matching
from app.web.problems import Problem, described
from app.web.reading import reading
from app.web.requests import KIB, read_json
from app.web.telling import schema
from app.web.writing import check_incident, check_opening, scope_texts

LIMIT = 64 * KIB
router = APIRouter(
    prefix="/api/v1",
    dependencies=[Depends(Needs(Role.RESPONDER, limited=True)), Depends(params.once)],
    responses=described(400, 401, 403, 404, 408, 413, 415, 422, 429, 503),
)
IncidentId = Annotated[str, Path(max_length=40, examples=[examples.INCIDENT.id])]


def _body(model: type[BaseModel], example: dict[str, Any]) -> dict[str, Any]:
    content = {"schema": schema(model), "examples": {"incident": {"value": example}}}
    return {"requestBody": {"required": True, "content": {"application/json": content}}}


@contextmanager
def in_words() -> Iterator[None]:
    """What cannot be done to an incident, as a Problem."""
    try:
        yield
    except CannotError as error:
        raise Problem(422, f"{error.field}: {error}", error.field) from None
    except OtherRequestError as error:
        raise Problem(422, f"Idempotency-Key: {error}", "Idempotency-Key") from None
    except LookupError:
        raise Problem(404, "there is no incident of this id", "incident_id") from None


def who(request: Request) -> str:
    """Who asks, as far as a token says: what it is for, else its role."""
    role: Role = request.state.role
    return str(request.state.who) or role.somebody


async def _shown(request: Request, incident_id: str) -> answers.OneIncident:
    async with reading(request) as conn:
        return await one_incident(conn, incident_id)


async def not_recorded(conn: AsyncConnection, cluster: str, namespaces: Collection[str]) -> list[str]:
    """Which of the ``namespaces`` that an incident is said to be about are not recorded, a sentence each: they may be
    to come, or be known from metrics alone, but what is mistyped is ranked by nothing."""
    seen = await read_seen(conn, cluster, from_at=None, to_at=None)
    return await unknown_namespaces(conn, cluster, namespaces if cluster in seen.recorded else ())


async def _said(request: Request, incident_id: str, asked: SaidOfIncident) -> answers.SaidIncident:
    async with reading(request) as conn:
        found = await one_incident(conn, incident_id)
        remarks = await not_recorded(conn, found.incident.cluster, asked.all_namespaces())
    return answers.SaidIncident(remarks=remarks, **dict(found))


@router.post(
    "/incidents",
    summary="Open an incident by hand",
    status_code=201,
    responses={
        201: {"headers": {"Location": {"description": "the incident", "schema": {"type": "string"}}}},
        200: {"model": answers.SaidIncident, "description": "This request came before; nothing was done"},
    },
    openapi_extra=_body(IncidentToOpen, examples.OPENING),
)
async def open_incident(
    request: Request, response: Response, idempotency_key: IdempotencyKey = None
) -> answers.SaidIncident:
    """It is ranked at once; alerts that are about the same join it, and leave what was said of it as it is."""
    asked = await read_json(request, IncidentToOpen, most=LIMIT)
    deps = deps_of(request)
    key = key_of(idempotency_key, asked.cluster, OPENED, *scope_texts(request))
    with in_words():
        check_opening(request, asked.cluster, asked.said())
        incident, before = await deps.by_hand.open(
            asked.cluster, asked.said(), by=who(request), key=key, now=deps.clock()
        )
    if before:
        response.status_code = 200
    response.headers["location"] = f"/api/v1/incidents/{incident.id}"
    return await _said(request, incident.id, asked)


@router.patch(
    "/incidents/{incident_id}",
    summary="Amend, resolve or reopen an incident",
    responses=described(412),
    openapi_extra=_body(IncidentToChange, {"status": "resolved"}),
)
async def change_incident(request: Request, incident_id: IncidentId, if_match: IfMatch) -> answers.SaidIncident:
    """What is named changes, and stays so whatever the alerts say. It is ranked at once."""
    asked = await read_json(request, IncidentToChange, most=LIMIT)
    deps = deps_of(request)
    with in_words():
        await check_incident(request, incident_id, asked.said())
        check = matching(request, incident_id, if_match)
        incident = await deps.by_hand.amend(incident_id, asked.said(), now=deps.clock(), check=check)
    return await _said(request, incident.id, asked)


@router.post(
    "/incidents/{incident_id}/merge",
    summary="Merge an incident into another",
    responses=described(412),
    openapi_extra=_body(IncidentToMerge, {"into": examples.INCIDENT.id}),
)
async def merge_incident(request: Request, incident_id: IncidentId, if_match: IfMatch) -> answers.OneIncident:
    """The other one, which has its alerts now, and later ones of theirs. This cannot be undone."""
    asked = await read_json(request, IncidentToMerge, most=LIMIT)
    deps = deps_of(request)
    with in_words():
        await check_incident(request, incident_id)
        await check_incident(request, asked.into)
        check = matching(request, incident_id, if_match)
        whole = await deps.by_hand.merge(incident_id, asked.into, now=deps.clock(), check=check)
    return await _shown(request, whole.id)
