"""REST: what hurt in a time, and what moved and hurt after a change."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query, Request
from pydantic import BeforeValidator, Field

from app.core.roles import Role
from app.core.screen import aftermath, lanes
from app.store import surroundings
from app.store.seen import read_seen
from app.web import answers, change_views, examples, params, problems, shown, windows
from app.web.aftermath import read_aftermath
from app.web.api import Conn, Nothing
from app.web.auth import Needs
from app.web.deps import deps_of
from app.web.representations import Negotiated
from app.web.revert_api import one_change

router = APIRouter(
    prefix="/api/v1",
    dependencies=[Depends(Needs(Role.VIEWER, limited=True)), Depends(params.once)],
    responses=problems.described(401, 404, 406, 422, 429, 503),
    route_class=Negotiated,
)


class ProblemsAsked(windows.Range):
    """Of which cluster, and when."""

    cluster: Annotated[params.Text, Field(examples=["demo"])]
    namespace: Annotated[params.Text | None, BeforeValidator(params.blank)] = None
    limit: params.Limit = 100


def _problem(cluster: str, found: lanes.Problem) -> shown.Problem:
    return shown.Problem(
        cluster=cluster,
        namespace=found.namespace,
        kind=found.kind,
        name=found.name,
        reason=found.reason,
        first_at=found.first_at,
        last_at=found.last_at,
        count=found.count,
    )


@router.get("/problems", summary="What hurt: warnings, and pods that fail")
async def list_problems(request: Request, asked: Annotated[ProblemsAsked, Query()], conn: Conn) -> shown.Problems:
    """By object and reason, the most frequent first. What only a healthy start or end brings is left out."""
    axis = asked.axis(deps_of(request).clock())
    found = await surroundings.list_problems(
        conn, asked.cluster, namespace=asked.namespace, from_at=axis.from_at, to_at=axis.to_at, limit=asked.limit
    )
    seen = await read_seen(conn, asked.cluster, from_at=axis.from_at, to_at=axis.to_at)
    return shown.Problems(items=[_problem(asked.cluster, one) for one in found], **answers.context(seen))


@router.get("/changes/{change_id}/after", summary="What moved, and what hurt, after a change")
async def read_after(
    change_id: Annotated[str, Path(examples=[examples.CULPRIT.id])], _: Nothing, conn: Conn
) -> shown.After:
    """Within ten minutes: requests of the apps that it acts on, calls of their accounts, the control plane, which were
    otherwise in the ten minutes before. That it is to blame is not said."""
    change = await one_change(conn, change_id)
    found = await read_aftermath(conn, change)
    return shown.After(
        items=[
            shown.Move(
                at=one.at,
                title=one.line.title,
                who=one.who,
                unit=one.line.unit,
                before=one.before,
                after=one.after,
                harm=one.harm,
            )
            for one in aftermath.moved(change.at, found.measured, found.whom)
        ],
        looked_at=list(change_views.looked_at(found.measured)),
        problems=[_problem(change.resource.cluster, one) for one in found.around.problems if one.first_at >= change.at],
        **answers.context(found.around.seen),
    )
