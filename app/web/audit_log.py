"""What was done in Foreshock itself, for admins: a page and REST."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request
from pydantic import BeforeValidator, Field
from starlette.responses import HTMLResponse

from app.core.roles import Role
from app.store import audit
from app.store.audit import Action, Entry
from app.store.seen import read_seen
from app.web import answers, params, problems, shapes, templates
from app.web.api import Conn
from app.web.auth import Needs
from app.web.deps import deps_of
from app.web.reading import reading
from app.web.representations import Negotiated

PAGE = 200
router = APIRouter(
    prefix="/api/v1",
    dependencies=[Depends(Needs(Role.ADMIN)), Depends(params.once)],
    responses=problems.described(400, 401, 403, 406, 422, 429, 503),
    route_class=Negotiated,
)
pages = APIRouter(
    include_in_schema=False, default_response_class=HTMLResponse, dependencies=[Depends(Needs(Role.ADMIN))]
)


class AuditAsked(params.Asked):
    """Which entries."""

    action: Annotated[Action | None, BeforeValidator(params.blank)] = Field(None, json_schema_extra=params.or_empty)
    who: Annotated[params.Text | None, BeforeValidator(params.blank)] = None
    from_at: Annotated[params.Time | None, BeforeValidator(params.blank)] = Field(
        None, alias="from", description="ISO 8601 with a zone; included", json_schema_extra=params.or_empty
    )
    to_at: Annotated[params.Time | None, BeforeValidator(params.blank)] = Field(
        None, alias="to", description="not included", json_schema_extra=params.or_empty
    )
    after: int | None = Field(None, ge=1, le=2**62, description="``next`` of the page before")

    def wanted(self) -> audit.Wanted:
        """The same, as the store asks. Raises Problem for an empty window."""
        if self.from_at and self.to_at and self.from_at >= self.to_at:
            raise problems.Problem(422, "from must be before to", "from")
        return audit.Wanted(self.action, self.who, self.from_at, self.to_at)


class AuditPage(AuditAsked):
    """A page of entries."""

    limit: params.Limit = 100


def _next(found: list[Entry], limit: int) -> int | None:
    return found[-1].id if len(found) == limit else None


@router.get("/audit", summary="What was done in Foreshock itself, newest first")
async def list_entries(asked: Annotated[AuditPage, Query()], conn: Conn) -> answers.AuditLog:
    """Who signed in, was refused, made tokens, changed incidents, said what it was, took something away as a file."""
    found = list(await audit.read(conn, asked.wanted(), before=asked.after, limit=asked.limit))
    seen = await read_seen(conn, None, from_at=None, to_at=None)
    return answers.AuditLog(
        items=[shapes.AuditEntry.of(one) for one in found], next=_next(found, asked.limit), **answers.context(seen)
    )


@pages.get("/audit")
async def show_entries(request: Request, asked: Annotated[AuditAsked, Query()]) -> HTMLResponse:
    """The same, for people."""
    deps = deps_of(request)
    async with reading(request) as conn:
        found = list(await audit.read(conn, asked.wanted(), before=asked.after, limit=PAGE))
        seen = await read_seen(conn, None, from_at=None, to_at=None)
    named = asked.model_dump(by_alias=True, exclude={"after"})
    return templates.page(
        "audit.html",
        rows=found,
        next=_next(found, PAGE),
        asked=named,
        narrowed=any(value is not None for value in named.values()) or asked.after is not None,
        actions=tuple(Action),
        kept=audit.KEPT.days,
        seen=seen,
        now=deps.clock(),
    )
