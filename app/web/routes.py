"""Puts the web application together: routes, their policies, what stands before them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import cache
from typing import Any

from fastapi import APIRouter, Depends, FastAPI
from starlette.middleware.gzip import GZipMiddleware
from starlette.responses import JSONResponse
from starlette.staticfiles import StaticFiles

from app.core.roles import Role
from app.web import (
    api,
    assets,
    audit_intake,
    audit_log,
    audited,
    auth,
    cluster_pages,
    control_plane,
    control_plane_api,
    curves,
    diff_api,
    examples,
    explorer,
    external,
    follow,
    health,
    hurts_api,
    incident_api,
    incident_forms,
    incident_pages,
    installation_api,
    intake,
    marks,
    metrics,
    numbered,
    oidc,
    pages,
    problems,
    prometheus_intake,
    rates,
    revert_api,
    saved_views,
    senders,
    slack,
    undoing,
    verdicts,
)
from app.web.auth import Needs
from app.web.deps import Deps
from app.web.guard import Guard
from app.web.head import Head

Lifespan = Callable[[FastAPI], AbstractAsyncContextManager[None]]

DESCRIPTION = """\
Which change preceded an incident. Every list answers `items`; `next`, where there is one, is the `after` of the next
page. Lists can be had as a table (`Accept: text/plain`) or as a line for each item (`application/x-ndjson`). Every
answer to a GET has an `ETag` and, but for manifests, says how fresh it is (`freshness`) and what was not seen (`gaps`).
Times are ISO 8601 with a zone.
Bodies are `application/json`. Errors are `application/problem+json`. Every answer has an id of its request
(`X-Request-ID`), errors as `request_id`, too. Send `Authorization: Bearer TOKEN`.
"""


def create_app(deps: Deps, *, lifespan: Lifespan | None = None, limits: rates.Limits | None = None) -> FastAPI:
    """The whole site. ``lifespan`` starts and stops what runs beside it (workers, the database)."""
    app = FastAPI(
        title="Foreshock",
        version="1",
        description=DESCRIPTION,
        lifespan=_with_tally(lifespan or _nothing_beside),
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
    )
    app.state.deps = deps
    app.state.answers = metrics.Answers()
    app.state.followers = follow.Followers()
    app.state.tally = audited.Tally(deps)
    for router in (
        health.router,
        metrics.router,
        auth.router,
        oidc.router,
        api.router,
        marks.router,
        hurts_api.router,
        control_plane_api.router,
        installation_api.router,
        revert_api.router,
        undoing.router,
        diff_api.router,
        curves.router,
        external.router,
        incident_api.router,
        intake.router,
        intake.pagers,
        audit_intake.router,
        prometheus_intake.router,
        senders.router,
        audit_log.router,
        audit_log.pages,
        incident_forms.router,
        incident_pages.router,
        pages.router,
        cluster_pages.router,
        control_plane.router,
        explorer.router,
        saved_views.router,
        verdicts.rest,
        verdicts.forms,
        verdicts.pages,
        slack.asked,
        slack.pages,
        slack.forms,
        _openapi(app),
    ):
        app.include_router(router)
    app.mount("/static", StaticFiles(directory=assets.STATIC), name="static")
    problems.install(app)
    app.add_middleware(Guard, deps=deps)
    app.add_middleware(rates.Rated, deps=deps, limits=limits or rates.Limits())
    app.add_middleware(audited.Audited, deps=deps, tally=app.state.tally)
    app.add_middleware(metrics.Counted, answers=app.state.answers, deps=deps)  # refusals of the guard are answers, too
    app.add_middleware(GZipMiddleware, minimum_size=1000, compresslevel=5)  # around the guard: refusals are packed too
    app.add_middleware(Head)
    app.add_middleware(numbered.Numbered)
    return app


@asynccontextmanager
async def _nothing_beside(_app: FastAPI) -> AsyncIterator[None]:
    yield


def _with_tally(lifespan: Lifespan) -> Lifespan:
    """The same, and what is counted for the audit log is written each minute, and while the database is still there."""

    @asynccontextmanager
    async def around(app: FastAPI) -> AsyncIterator[None]:
        async with lifespan(app):
            keeping = asyncio.create_task(app.state.tally.keep())
            try:
                yield
            finally:
                keeping.cancel()
                await app.state.tally.flush()

    return around


def _openapi(app: FastAPI) -> APIRouter:
    """The description of the REST interface, behind the same guard as what it describes."""
    described = app.openapi

    @cache
    def with_examples() -> dict[str, Any]:
        found = described()
        examples.illustrate(found)
        return found

    app.openapi = with_examples  # type: ignore[method-assign]  # as FastAPI's manual extends it
    router = APIRouter(include_in_schema=False, dependencies=[Depends(Needs(Role.VIEWER, limited=True))])

    @router.get("/openapi.json")
    async def openapi() -> JSONResponse:
        return JSONResponse(app.openapi())

    return router
