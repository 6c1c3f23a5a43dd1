"""What other programs send us. Refusals that a sender should not repeat are 4xx, what it should repeat is 503."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Request
from pydantic import AfterValidator
from starlette.responses import JSONResponse

from app.core.clusters import LONGEST, cluster_name
from app.core.roles import Role
from app.web.auth import PAGERDUTY, Needs, NeedsSignature
from app.web.deps import Lost, Taken, deps_of
from app.web.metrics import Answers
from app.web.problems import Problem, described
from app.web.requests import read_body
from app.web.writing import check_sending

LIMIT = 1 << 20
ALERTS_LIMIT = 12 << 20
"""Of one group of Alertmanager's, some twelve thousand alerts: it sends a group whole, and never again after a 413."""
router = APIRouter(
    prefix="/intake",
    dependencies=[Depends(Needs(Role.RESPONDER, limited=True))],
    responses=described(400, 401, 403, 413, 415, 422, 503),
)


_STRINGS = {"type": "object", "additionalProperties": {"type": "string"}}
_ALERT = {
    "type": "object",
    "required": ["startsAt"],
    "properties": {
        "status": {"type": "string", "examples": ["firing", "resolved"]},
        "labels": _STRINGS,
        "annotations": _STRINGS,
        "startsAt": {"type": "string", "format": "date-time"},
        "endsAt": {"type": "string", "format": "date-time"},
        "fingerprint": {"type": "string"},
    },
}
_UNREADABLE = {"description": "anything else is left out of what is taken, in words"}
PAYLOAD = {
    "type": "object",
    "required": ["alerts"],
    "properties": {
        "version": {"enum": ["4", "1"], "type": "string"},
        "alerts": {"type": "array", "items": {"anyOf": [_ALERT, _UNREADABLE]}},
    },
}
"""What of https://prometheus.io/docs/alerting/latest/configuration/#webhook_config is read; Grafana's version is 1."""


ClusterToWrite = Annotated[
    str,
    Path(min_length=1, max_length=LONGEST, description="one line that can be printed, no /", examples=["shop"]),
    AfterValidator(cluster_name),
]


@router.post(
    "/alertmanager/{cluster}",
    summary="Alerts from Alertmanager or Grafana",
    openapi_extra={"requestBody": {"required": True, "content": {"application/json": {"schema": PAYLOAD}}}},
)
async def alertmanager(request: Request, cluster: ClusterToWrite) -> Taken:
    """Opens, extends or resolves incidents with the alerts of a webhook payload, and ranks them.

    Harmless to send again. What could not be taken of it is said in ``left_out``. Alertmanager repeats after a 5xx and
    gives up after a 4xx.
    """
    check_sending(request, cluster)
    body = await read_body(request, most=ALERTS_LIMIT)
    try:
        taken, lost = await deps_of(request).take_alerts(cluster, body)
    except ValueError as error:
        raise Problem(400, str(error)) from None
    _count(request, "alertmanager", lost)
    return taken


def _count(request: Request, intake: str, lost: Lost) -> None:
    answers: Answers = request.app.state.answers
    for reason, many in lost.items():
        answers.left_out.labels(intake, reason).inc(many)


pagers = APIRouter(prefix="/intake", include_in_schema=False)


@pagers.post("/pagerduty/{cluster}", dependencies=[Depends(NeedsSignature(LIMIT, PAGERDUTY))])
async def pagerduty(request: Request, cluster: ClusterToWrite) -> JSONResponse:
    """An event of PagerDuty, version 3 of its webhooks. Sent again, nothing happens."""
    return await _page(request, cluster, "pagerduty", request.state.body)


@pagers.post("/opsgenie/{cluster}", dependencies=[Depends(Needs(Role.RESPONDER, limited=True))])
async def opsgenie(request: Request, cluster: ClusterToWrite) -> JSONResponse:
    """What Opsgenie's outgoing webhook sends. Harmless to send again."""
    check_sending(request, cluster)
    return await _page(request, cluster, "opsgenie", await read_body(request, most=LIMIT))


async def _page(request: Request, cluster: str, pager: str, body: bytes) -> JSONResponse:
    try:
        taken, lost = await deps_of(request).take_page(cluster, pager, body)
    except ValueError as error:
        raise Problem(400, f"this is not what it sends: {error}") from None
    _count(request, pager, lost)
    return JSONResponse({"incidents": taken.incidents, "left_out": taken.left_out})
