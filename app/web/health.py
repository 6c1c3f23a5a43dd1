"""Whether the process lives, and whether it can do its work: for probes, without a credential."""

from __future__ import annotations

from fastapi import APIRouter, Request
from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError
from starlette.responses import JSONResponse

from app.web.deps import deps_of

router = APIRouter(include_in_schema=False)


@router.get("/healthz")
async def healthz() -> JSONResponse:
    """200 while the event loop turns."""
    return JSONResponse({"status": "ok"})


@router.get("/readyz")
async def readyz(request: Request) -> JSONResponse:
    """200 when the database answers and nothing is in the way, else 503 and the reasons."""
    deps = deps_of(request)
    reasons = list(deps.not_ready())
    try:
        async with deps.read.connect() as conn:
            await conn.execute(text("SELECT 1"))
    except SQLAlchemyError:
        reasons.append("the database does not answer")
    return JSONResponse({"status": "not ready" if reasons else "ready", "reasons": reasons}, 503 if reasons else 200)
