"""What happened as a dashboard marks it: changes, incidents, and times in which nothing was seen.

Grafana shows the title and the text of an annotation as HTML, which it sanitises; everything of a cluster is escaped
here already.
"""

from __future__ import annotations

from datetime import datetime
from html import escape
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request
from pydantic import BeforeValidator, Field
from sqlalchemy.ext.asyncio import AsyncConnection

from app.core.findings import Incident
from app.core.model import Change, Gap
from app.core.objects.actors import short
from app.core.roles import Role
from app.store import incidents, search
from app.store.seen import read_seen
from app.store.timeline import ChangeFilter
from app.web import answers, params, problems, shapes
from app.web.auth import Needs
from app.web.deps import deps_of
from app.web.reading import narrowed, reading
from app.web.representations import Negotiated

router = APIRouter(
    prefix="/api/v1",
    dependencies=[Depends(Needs(Role.VIEWER, limited=True)), Depends(params.once)],
    responses=problems.described(400, 401, 404, 406, 422, 429, 503),
    route_class=Negotiated,
)


class AnnotationsAsked(params.Window):
    """Of what, and when."""

    namespace: Annotated[params.Text | None, BeforeValidator(params.blank)] = None
    kind: Annotated[params.Text | None, BeforeValidator(params.blank)] = Field(None, description="of changes alone")
    limit: params.Limit = 100


@router.get("/annotations", summary="Changes, incidents and gaps, for dashboards")
async def list_annotations(request: Request, asked: Annotated[AnnotationsAsked, Query()]) -> answers.Annotations:
    """The newest ``limit`` changes that people and programs made, the incidents of that time, and what was not seen of
    it, newest first. ``text`` is HTML, ``tags`` have commas between them, as Grafana takes both."""
    deps = deps_of(request)
    asked.check(deps.clock())
    of = asked.model_dump(include={"cluster", "namespace", "kind", "from_at", "to_at"})
    wanted = narrowed(request, ChangeFilter(**of))
    async with reading(request) as conn:
        found = await search.find_changes(conn, wanted, before=None, limit=asked.limit, within=search.FURTHER)
        seen = await read_seen(conn, asked.cluster, from_at=asked.from_at, to_at=asked.to_at)
        until = min(asked.to_at or deps.clock(), deps.clock())
        called = await _incidents(conn, asked, until=until)
    url = deps.public_url.rstrip("/")
    made = [of_change(change, url) for change in found.changes]
    made += [of_incident(one, url, until=until) for one in called]
    made += [of_gap(gap) for gap in seen.gaps]
    made.sort(key=lambda one: one.time, reverse=True)
    return answers.Annotations(items=made, **answers.context(seen))


async def _incidents(conn: AsyncConnection, asked: AnnotationsAsked, *, until: datetime) -> list[Incident]:
    """Those that went on in the window, the newest ``limit``; without a beginning, the newest that began in it."""
    if asked.from_at is None:
        before = None if asked.to_at is None else (asked.to_at, "")
        return await incidents.list_incidents(
            conn, cluster=asked.cluster, namespace=asked.namespace, before=before, limit=asked.limit
        )
    during = await incidents.list_during(conn, asked.cluster, start=asked.from_at, end=until)
    found = [
        one
        for one in during
        if one.status in ("open", "resolved") and (asked.namespace is None or asked.namespace in one.scope.namespaces)
    ]
    return found[-asked.limit :]


def of_change(change: Change, url: str) -> shapes.Annotation:
    """A change as a mark at its time."""
    resource = change.resource
    title = change.summary or f"{resource.kind} {resource.name}: {change.verb.value}"
    text = f"by {escape(short(change.actor))}, {_to(f'{url}/changes/{change.id}')}"
    tags = ("change", resource.cluster, resource.namespace or "", resource.kind)
    return _annotation(change.at, None, title, text, tags)


def of_incident(incident: Incident, url: str, *, until: datetime) -> shapes.Annotation:
    """An incident as a region: one that goes on ends at ``until``."""
    text = f"{incident.status}, {_to(f'{url}/incidents/{incident.id}')}"
    tags = ("incident", incident.cluster, *incident.scope.namespaces[:3], incident.severity)
    end = incident.resolved_at or max(until, incident.started_at)
    return _annotation(incident.started_at, end, incident.title, text, tags)


def of_gap(gap: Gap) -> shapes.Annotation:
    """A time in which something was not seen, as a region."""
    title = f"not seen: {gap.kind or 'every kind'}"
    return _annotation(gap.from_at, gap.to_at, title, escape(gap.why), ("gap", gap.cluster))


def _annotation(at: datetime, end: datetime | None, title: str, text: str, tags: tuple[str, ...]) -> shapes.Annotation:
    named = ",".join(tag.replace(",", " ") for tag in tags if tag)
    return shapes.Annotation(time=at, time_end=end, title=escape(title), text=text, tags=named)


def _to(url: str) -> str:
    return f'<a href="{escape(url)}">open in Foreshock</a>'
