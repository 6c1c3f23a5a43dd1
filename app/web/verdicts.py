"""What people say of suspects: this was it, this was not. And how good the rankings were by that."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Depends, Path, Request
from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy.ext.asyncio import AsyncConnection
from starlette.responses import HTMLResponse, RedirectResponse, Response

from app.core.evaluation.verdicts import Judged, own
from app.core.findings import NONE, Opinion, Verdict
from app.core.roles import Role
from app.store import incidents, verdicts
from app.store.record import lock
from app.store.seen import read_seen
from app.web import answers, examples, params, templates
from app.web.api import one_incident
from app.web.auth import Needs
from app.web.deps import deps_of
from app.web.incident_api import IncidentId, who
from app.web.incident_forms import read_form
from app.web.matching import IfMatch, matching
from app.web.problems import Problem, described
from app.web.reading import reading
from app.web.requests import KIB, read_json
from app.web.telling import schema
from app.web.writing import check_judging

LIMIT = 4 * KIB
rest = APIRouter(
    prefix="/api/v1",
    dependencies=[Depends(Needs(Role.RESPONDER, limited=True)), Depends(params.once)],
    responses=described(400, 401, 403, 404, 408, 409, 412, 413, 415, 422, 429, 503),
)
forms = APIRouter(include_in_schema=False, dependencies=[Depends(Needs(Role.RESPONDER, limited=True))])
pages = APIRouter(include_in_schema=False, dependencies=[Depends(Needs(Role.VIEWER))])
SUSPECT = r"^(none|[0-9a-f]{28})$"
ChangeId = Annotated[
    str,
    Path(pattern=SUSPECT, description="the suspect's change, or none: none of these", examples=[examples.CULPRIT.id]),
]


class Said(BaseModel):
    """What somebody says of a suspect."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    opinion: Opinion = Field(description="this was it, or it was not")


async def _say(request: Request, incident_id: str, verdict: Verdict, if_match: str = "") -> None:
    try:
        await check_judging(request, incident_id)
        async with deps_of(request).write.begin() as conn:
            await _check(request, conn, incident_id, if_match)
            await verdicts.say(conn, incident_id, verdict)
    except LookupError:
        raise Problem(404, "there is no incident of this id", "incident_id") from None
    except verdicts.MergedError as error:
        raise _elsewhere(error) from None


async def _take_back(
    request: Request, incident_id: str, change_id: str, if_match: str = "", *, must: bool = True
) -> None:
    missing = Problem(404, "nobody said anything of this suspect of this incident", "change_id")
    deps = deps_of(request)
    try:
        await check_judging(request, incident_id)
        async with deps.write.begin() as conn:
            await _check(request, conn, incident_id, if_match)
            if not await verdicts.take_back(conn, incident_id, change_id, now=deps.clock()) and must:
                raise missing
    except LookupError:
        raise missing from None
    except verdicts.MergedError as error:
        raise _elsewhere(error) from None


async def _check(request: Request, conn: AsyncConnection, incident_id: str, if_match: str) -> None:
    """Raises what verdicts.check_whole does; with ``if_match`` Problem 412 as well, and nobody else writes of the
    incident's cluster until the transaction ends."""
    if check := matching(request, incident_id, if_match):
        if (found := await incidents.read_incident(conn, incident_id)) is None:
            raise LookupError(incident_id)
        await lock(conn, found[0].cluster)
        await check(conn)
    await verdicts.check_whole(conn, incident_id)


def _elsewhere(error: verdicts.MergedError) -> Problem:
    return Problem(409, str(error), "incident_id", onward=f"/incidents/{error.into}")


@rest.put(
    "/incidents/{incident_id}/verdicts/{change_id}",
    summary="Say whether a suspect was it",
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": schema(Said), "example": {"opinion": "it"}}},
        }
    },
)
async def say(request: Request, incident_id: IncidentId, change_id: ChangeId, if_match: IfMatch) -> answers.OneIncident:
    """Kept with who and when, in the place of an earlier verdict on the same suspect. The incident, as it is then."""
    said = await read_json(request, Said, most=LIMIT)
    deps = deps_of(request)
    await _say(request, incident_id, Verdict(change_id, said.opinion, who(request), deps.clock()), if_match)
    async with reading(request) as conn:
        return await one_incident(conn, incident_id)


@rest.delete("/incidents/{incident_id}/verdicts/{change_id}", summary="Take a verdict back")
async def take_back(
    request: Request, incident_id: IncidentId, change_id: ChangeId, if_match: IfMatch
) -> answers.OneIncident:
    """404 where there is none. The incident, as it is then."""
    await _take_back(request, incident_id, change_id, if_match)
    async with reading(request) as conn:
        return await one_incident(conn, incident_id)


@forms.post("/incidents/{incident_id}/verdicts")
async def say_by_form(request: Request, incident_id: str) -> Response:
    """The same by a button of the incident's page, which it leads back to; without an opinion the verdict goes."""
    form = await read_form(request)
    change_id, opinion = form.get("change", ""), form.get("opinion", "")
    if not re.fullmatch(SUSPECT, change_id):
        raise Problem(422, "change: the id of a change, or none", "change")
    if opinion not in ("", *Opinion):
        raise Problem(422, "opinion: it, not it, or empty", "opinion")
    deps = deps_of(request)
    if opinion:
        await _say(request, incident_id, Verdict(change_id, Opinion(opinion), who(request), deps.clock()))
    else:
        await _take_back(request, incident_id, change_id, must=False)
    return RedirectResponse(f"/incidents/{incident_id}", 303)


@dataclass(frozen=True, slots=True)
class SaidRow:
    """What one person said of one suspect. ``change_id`` None: of "none of these". ``place`` is where the suspect stood
    in the first ranking, None where it was not among the suspects."""

    incident_id: str
    title: str
    change_id: str | None
    name: str
    place: int | None
    verdict: Verdict


def rows(judged: list[Judged]) -> Iterator[SaidRow]:
    """A row for each verdict."""
    for case in judged:
        names: dict[str, str] = {}
        for one in (*case.newest.suspects, *case.first.suspects):
            names |= {other.change_id: other.resource.name for other in (*one.also, *one.beside)}
            names[one.change.id] = one.change.resource.name
        places = case.first.places
        for verdict in case.verdicts:
            of = verdict.change_id
            change_id, name = (None, "none of these") if of == NONE else (of, names.get(of, "a change"))
            yield SaidRow(case.incident_id, case.title, change_id, name, places.get(of), verdict)


@pages.get("/accuracy")
async def accuracy(request: Request) -> HTMLResponse:
    """How good this installation's rankings were, by what people said of them."""
    deps = deps_of(request)
    async with reading(request) as conn:
        judged = await verdicts.read_judged(conn)
        seen = await read_seen(conn, None, from_at=None, to_at=None)
    return templates.page("accuracy.html", own=own(judged), rows=tuple(rows(judged)), seen=seen, now=deps.clock())
