"""Incidents by hand, for people: the forms that open and correct one, and what resolves, reopens and merges it."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Annotated, Literal, Self
from urllib.parse import parse_qsl

from fastapi import APIRouter, Depends, Query, Request
from pydantic import BaseModel, ConfigDict, Field, Json, ValidationError
from starlette.responses import HTMLResponse, RedirectResponse, Response

from app.core.findings import Incident, Said
from app.core.incidents.hands import CannotError
from app.core.phrases import refusal
from app.core.roles import Role
from app.store import incidents
from app.store.idempotency import OtherRequestError
from app.store.seen import read_seen
from app.web import params, templates
from app.web.asked_incidents import IncidentToChange, IncidentToMerge, IncidentToOpen, SaidOfIncident
from app.web.auth import Needs
from app.web.deps import deps_of
from app.web.idempotency import key_of
from app.web.incident_api import in_words, not_recorded, who
from app.web.problems import Problem
from app.web.reading import reading
from app.web.requests import KIB, read_body
from app.web.writing import check_incident, check_opening, scope_texts

LIMIT = 16 * KIB
MOST_CORRECTED = 1024 * KIB
"""Of a storm of alerts an incident is about thousands of names, and the form that corrects it has them twice."""
FIELDS = 20
router = APIRouter(
    include_in_schema=False,
    default_response_class=HTMLResponse,
    dependencies=[Depends(Needs(Role.RESPONDER, limited=True))],
)


class NewAsked(params.Asked):
    """What the form begins with."""

    cluster: params.Text | None = None


class _About(BaseModel):
    """What an incident is about, as a form has it: names with spaces between them. ``sure`` are namespaces of which it
    was said that nothing is recorded: sent again, they are meant."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    namespaces: str
    workloads: str
    nodes: str
    control_plane: Literal["", "on"] = ""
    sure: str = ""

    def names(self) -> dict[str, list[str]]:
        """Those of each field, as REST has them."""
        return {name: getattr(self, name).replace(",", " ").split() for name in ("namespaces", "workloads", "nodes")}


class _Filled(_About):
    """The form that opens one, filled in. ``once`` is its own: sent twice, it opens one incident."""

    cluster: str
    title: str
    since: str = ""
    namespaces: str = ""
    workloads: str = ""
    nodes: str = ""
    severity: str = ""
    once: Annotated[str, Field(pattern="^[0-9a-f]{32}$")]

    def asked(self) -> IncidentToOpen:
        """The same as REST has it; the times of a form are UTC. Raises ValidationError."""
        told: dict[str, object] = {"cluster": self.cluster, "title": self.title.strip()}
        if self.since:
            told["started_at"] = _utc(self.since)
        told |= {name: names for name, names in self.names().items() if names}
        if self.control_plane:
            told["control_plane"] = True
        if self.severity:
            told["severity"] = self.severity
        return IncidentToOpen.model_validate(told)


class _Correction(_About):
    """Since when an incident is and what it is about, as a form has it."""

    since: str

    @classmethod
    def of(cls, incident: Incident) -> Self:
        """As it is now."""
        scope = incident.scope
        return cls(
            since=f"{incident.started_at:%Y-%m-%d %H:%M:%S}",
            namespaces=" ".join(scope.namespaces),
            workloads=" ".join(scope.workloads),
            nodes=" ".join(scope.nodes),
            control_plane="on" if scope.control_plane else "",
        )


class _Corrected(_Correction):
    """The form that says so, filled in. ``known`` is what it began with: what others said of the incident since, or its
    alerts, is not taken back by who left it as it was."""

    known: Json[_Correction]

    def asked(self) -> IncidentToChange | None:
        """The same as REST has it, of what is otherwise than ``known``: the rest is not said. None where nothing is.
        Raises ValidationError."""
        told: dict[str, object] = {}
        if self.since.strip() != self.known.since:
            told["started_at"] = _utc(self.since.strip())
        known = self.known.names()
        told |= {name: names for name, names in self.names().items() if names != known[name]}
        if self.control_plane != self.known.control_plane:
            told["control_plane"] = bool(self.control_plane)
        return IncidentToChange.model_validate(told) if told else None


_LABELS = {
    "started_at": "Since",
    "namespaces": "Namespace",
    "workloads": "Workload",
    "nodes": "Node",
    "title": "Title",
    "cluster": "Cluster",
    "id": "Incident",
}


async def _not_recorded(request: Request, cluster: str, asked: SaidOfIncident, sure: str) -> str:
    """What to say before an incident is about a namespace of which nothing is recorded; "" where none is left that is
    not meant."""
    async with reading(request) as conn:
        said = await not_recorded(conn, cluster, [one for one in asked.all_namespaces() if one not in sure.split()])
    return f"{'. '.join(said)}. Send it once more if that is meant." if said else ""


def _utc(time: str) -> str:
    """A time of a form, which is UTC."""
    return time if time.endswith("Z") else f"{time}Z"


def _wrong(error: ValidationError | CannotError) -> str:
    """What is wrong in which field, in words; of several names in one, which of them."""
    if isinstance(error, CannotError):
        return f"{_LABELS.get(error.field, error.field)}: {error}"
    first = error.errors()[0]
    field, *place = first["loc"]
    which = f" “{first['input']}”" if place else ""
    return f"{_LABELS.get(str(field), str(field))}{which}: {refusal(first['msg'])}"


async def read_form(request: Request, *, most: int = LIMIT) -> dict[str, str]:
    """The fields of a form as a browser sends them without scripts. Raises Problem."""
    body = await read_body(request, most=most)
    try:
        found = parse_qsl(body.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=FIELDS)
    except ValueError:
        raise Problem(400, "this is no form of ours, as a browser sends it") from None
    if any("\x00" in value for _, value in found):
        raise Problem(422, "a field holds the character U+0000")
    return dict(found)


async def _page(
    request: Request, filled: Mapping[str, str], *, once: str, detail: str = "", status: int = 200
) -> HTMLResponse:
    deps = deps_of(request)
    async with reading(request) as conn:
        seen = await read_seen(conn, None, from_at=None, to_at=None)
    shown = {name: filled.get(name, "") for name in _Filled.model_fields}
    return templates.page(
        "incident_new.html", status, filled=shown, once=once, detail=detail, seen=seen, now=deps.clock()
    )


@router.get("/incidents/new")
async def new_incident(request: Request, asked: Annotated[NewAsked, Query()]) -> HTMLResponse:
    """The form that opens an incident by hand."""
    return await _page(request, {"cluster": asked.cluster or ""}, once=secrets.token_hex(16))


@router.post("/incidents")
async def open_incident(request: Request) -> Response:
    """Opens it and leads to it; or the form again, as it was filled in, with what is wrong."""
    form = await read_form(request)
    deps = deps_of(request)
    try:
        filled = _Filled.model_validate(form)
    except ValidationError:
        raise Problem(422, "this is no form of ours: open it again and fill it in") from None
    try:
        asked = filled.asked()
        check_opening(request, asked.cluster, asked.said())
        if unsure := await _not_recorded(request, asked.cluster, asked, filled.sure):
            form["sure"] = " ".join(asked.all_namespaces())
            return await _page(request, form, once=filled.once, detail=unsure, status=422)
        key = key_of(filled.once, "the form of an incident", *scope_texts(request))
        incident, _ = await deps.by_hand.open(asked.cluster, asked.said(), by=who(request), key=key, now=deps.clock())
    except (ValidationError, CannotError) as error:
        return await _page(request, form, once=filled.once, detail=_wrong(error), status=422)
    except OtherRequestError:  # the browser's Back leads to a form that was sent
        again = "this form has opened an incident already: send it once more to open another as it is filled in now"
        return await _page(request, form, once=secrets.token_hex(16), detail=again, status=409)
    return RedirectResponse(f"/incidents/{incident.id}", 303)


async def _incident(request: Request, incident_id: str) -> Incident:
    async with reading(request) as conn:
        found = await incidents.read_incident(conn, incident_id)
    if found is None:
        raise Problem(404, "there is no incident of this id", "incident_id")
    return found[0]


async def _correcting(
    request: Request,
    incident: Incident,
    filled: _Correction,
    *,
    known: _Correction,
    detail: str = "",
    status: int = 200,
) -> HTMLResponse:
    deps = deps_of(request)
    async with reading(request) as conn:
        seen = await read_seen(conn, None, from_at=None, to_at=None)
    shown = {"incident": incident, "filled": filled, "known": known.model_dump_json(), "detail": detail}
    return templates.page("incident_correct.html", status, **shown, seen=seen, now=deps.clock())


@router.get("/incidents/{incident_id}/correct")
async def correct_form(request: Request, incident_id: str) -> HTMLResponse:
    """The form that corrects since when an incident is and what it is about, filled in as that is now."""
    incident = await _incident(request, incident_id)
    now = _Correction.of(incident)
    return await _correcting(request, incident, now, known=now)


@router.post("/incidents/{incident_id}/correct")
async def correct_incident(request: Request, incident_id: str) -> Response:
    """Says what was filled in otherwise than it began, has it ranked anew, and leads back; or the form again, with what
    is wrong."""
    form = await read_form(request, most=MOST_CORRECTED)
    deps = deps_of(request)
    try:
        filled = _Corrected.model_validate(form)
    except ValidationError:
        raise Problem(422, "this is no form of ours: open it again and fill it in") from None
    incident = await _incident(request, incident_id)
    try:
        asked = filled.asked()
        if asked is not None:
            await check_incident(request, incident_id, asked.said())
            if unsure := await _not_recorded(request, incident.cluster, asked, filled.sure):
                filled = filled.model_copy(update={"sure": " ".join(asked.all_namespaces())})
                return await _correcting(request, incident, filled, known=filled.known, detail=unsure, status=422)
            await deps.by_hand.amend(incident_id, asked.said(), now=deps.clock())
    except (ValidationError, CannotError) as error:
        return await _correcting(request, incident, filled, known=filled.known, detail=_wrong(error), status=422)
    return RedirectResponse(f"/incidents/{incident_id}", 303)


@router.post("/incidents/{incident_id}/status")
async def set_status(request: Request, incident_id: str) -> Response:
    """Resolves an incident, or opens it again, and leads back to it."""
    status = (await read_form(request)).get("status", "")
    if status not in ("open", "resolved"):
        raise Problem(422, "status: open or resolved", "status")
    deps = deps_of(request)
    with in_words():
        await check_incident(request, incident_id)
        await deps.by_hand.amend(incident_id, Said(status=status), now=deps.clock())
    return RedirectResponse(f"/incidents/{incident_id}", 303)


@router.post("/incidents/{incident_id}/merge")
async def merge_incident(request: Request, incident_id: str) -> Response:
    """Makes an incident a part of another, and leads to that one."""
    try:
        asked = IncidentToMerge.model_validate(await read_form(request))
    except ValidationError:
        raise Problem(422, "into: the id of the other incident", "into") from None
    deps = deps_of(request)
    with in_words():
        await check_incident(request, incident_id)
        await check_incident(request, asked.into)
        whole = await deps.by_hand.merge(incident_id, asked.into, now=deps.clock())
    return RedirectResponse(f"/incidents/{whole.id}", 303)
