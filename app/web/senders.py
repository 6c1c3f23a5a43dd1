"""POST /intake/flux, /intake/launchdarkly: external changes of senders that have a body of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request
from msgspec.structs import replace
from starlette.responses import JSONResponse

from app.core.changes.senders import Sent, flux, launchdarkly
from app.web.auth import LAUNCHDARKLY, NeedsSignature, NeedsTeller
from app.web.external import take
from app.web.problems import Problem
from app.web.requests import MIB, read_body
from app.web.telling import Where

router = APIRouter(prefix="/intake", include_in_schema=False)
Place = Annotated[Where, Query()]


@router.post("/flux", dependencies=[Depends(NeedsTeller())])
async def take_flux(request: Request, where: Place) -> JSONResponse:
    """An event of Flux's notification-controller, provider ``generic``."""
    return await _take(request, flux, await read_body(request, most=MIB), where=where)


@router.post("/launchdarkly", dependencies=[Depends(NeedsSignature(MIB, LAUNCHDARKLY))])
async def take_launchdarkly(request: Request, where: Place) -> JSONResponse:
    """What LaunchDarkly's webhook sends."""
    return await _take(request, launchdarkly, request.state.body, where=where)


async def _take(request: Request, read: Callable[[bytes], Sent], body: bytes, *, where: Where) -> JSONResponse:
    """The ids of the changes that were made, once however often it is sent; or why there is none."""
    try:
        sent = read(body)
    except ValueError as error:
        raise Problem(400, f"this is not what it sends: {error}") from None
    if sent.told is None:
        return JSONResponse({"changes": [], "left_out": sent.left_out})
    told = replace(
        sent.told, cluster=where.cluster, namespace=where.namespace, workload=where.workload or sent.told.workload
    )
    changes, _ = await take(request, told, key=sent.key)
    return JSONResponse({"changes": [change.id for change in changes], "left_out": ""})
