"""REST: what is of the whole installation. How good its rankings were, its saved views, and what is told where."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request

from app.core.evaluation.verdicts import Found, own
from app.core.metrics.views import SHIPPED
from app.core.roles import Role
from app.core.routes import Route, Routes
from app.store import deliveries, notices, outbox, verdicts, views
from app.store.seen import read_seen
from app.web import answers, params, problems, shapes, shown
from app.web.api import Conn, Nothing
from app.web.auth import Needs
from app.web.deps import deps_of
from app.web.problems import Problem
from app.web.representations import Negotiated
from app.web.slack_routes import Verdict, WhereAsked, remarks_of, where
from app.web.verdicts import rows

router = APIRouter(
    prefix="/api/v1",
    dependencies=[Depends(Needs(Role.VIEWER)), Depends(params.once)],
    responses=problems.described(401, 403, 404, 406, 422, 429, 503),
    route_class=Negotiated,
)


def _share(value: float, interval: tuple[float, float]) -> shown.Share:
    return shown.Share(share=value, low=interval[0], high=interval[1])


def _found(one: Found) -> shown.Found:
    low, high = one.interval or (None, None)
    return shown.Found(cases=one.cases, unnamed=one.unnamed, left_out=one.left_out, share=one.share, low=low, high=high)


@router.get("/accuracy", summary="How good rankings were here, by what people said of them")
async def read_accuracy(_: Nothing, conn: Conn) -> shown.Accuracy:
    """What was said, newest incident first, and what follows from it."""
    judged = await verdicts.read_judged(conn)
    seen = await read_seen(conn, None, from_at=None, to_at=None)
    found = own(judged)
    return shown.Accuracy(
        items=[
            shown.SaidOf(
                incident_id=one.incident_id,
                title=one.title,
                change_id=one.change_id,
                name=one.name,
                place=one.place,
                opinion=one.verdict.opinion,
                by=one.verdict.by,
                at=one.verdict.at,
            )
            for one in rows(judged)
        ],
        judged=found.judged,
        without_culprit=found.without_culprit,
        none_led=found.none_led,
        unnamed=found.unnamed,
        ranked=[
            shown.Ranked(when=when, first=_found(one.first), among_three=_found(one.among_three))
            for when, one in found.ranked.items()
        ],
        odds=[
            shown.Odds(said=one.said, cases=one.cases, right=_share(one.right, one.right_interval))
            for one in found.reliability
        ],
        **answers.context(seen),
    )


@router.get("/views", summary="Saved views")
async def list_views(_: Nothing, conn: Conn) -> shown.Views:
    """Questions of the explorer that a team shares; with a cluster and a time, ``query`` is its address."""
    found = [*SHIPPED, *await views.list_views(conn)]
    seen = await read_seen(conn, None, from_at=None, to_at=None)
    return shown.Views(items=[shown.View.model_validate(one) for one in found], **answers.context(seen))


@router.get("/deliveries", summary="What did not get through to Slack and other targets")
async def list_deliveries(request: Request, _: Nothing, conn: Conn) -> shown.Deliveries:
    """The newest hundred that were given up, with why; how many are there, how many wait, and of which place some are
    tried in vain for longer than a minute, with why."""
    deps = deps_of(request)
    found = await deliveries.read_delivery(conn, suspected=deps.slack.suspected, now=deps.clock())
    seen = await read_seen(conn, None, from_at=None, to_at=None)
    return shown.Deliveries(
        items=[
            shown.Undelivered(
                at=one.began_at,
                message=one.key,
                channel=one.channel,
                incident_id=one.incident_id or None,
                title=one.title,
                is_reply=one.part > 0,
                posted=one.posted,
                error=one.error,
            )
            for one in found.failed
        ],
        there=found.there,
        waiting=found.waiting,
        late=[shown.Late.model_validate(one) for one in found.late],
        **answers.context(seen),
    )


@router.get("/routes", summary="How Slack and other targets are told")
async def list_routes(request: Request, _: Nothing, conn: Conn) -> shown.RoutesTold:
    """The routes of the file in their order, with what of each can never come true, or not yet; what people muted, and
    which targets are turned off, with why."""
    deps = deps_of(request)
    routes, off = deps.slack.routes(), await outbox.read_off(conn)
    muted = await notices.read_mutes(conn, now=deps.clock())
    seen = await read_seen(conn, None, from_at=None, to_at=None)
    remarks = remarks_of(routes, [one.cluster for one in seen.freshness], channel=deps.slack.channel)
    return shown.RoutesTold(
        items=[
            _route(one, routes, off.get(one.target or "", ""), said)
            for one, said in zip(routes.routes, remarks, strict=True)
        ],
        incidents=deps.slack.channel or None,
        muted=[shown.Muted.model_validate(one) for one in muted],
        file_error=deps.slack.routes_error(),
        **answers.context(seen),
    )


def _route(one: Route, routes: Routes, off: str, remarks: list[str]) -> shown.RouteTold:
    return shown.RouteTold(
        place=one.place,
        of=routes.targets[one.target].LABEL if one.target else "Slack",
        tells=[str(what) for what in one.tell],
        clusters=list(one.clusters),
        namespaces=list(one.namespaces),
        kinds=list(one.kinds),
        severities=list(one.severities),
        labels=dict(one.labels),
        quiet=shown.QuietHours.model_validate(one.quiet) if one.quiet else None,
        off=off,
        remarks=remarks,
    )


@router.get("/routing", summary="Where a change or an incident goes: Slack's channels and other targets")
async def read_routing(request: Request, asked: Annotated[WhereAsked, Query()], conn: Conn) -> shown.Routing:
    """Of a change, or of one that would be of that cluster, namespace, kind and name, or with a severity of an incident
    of that cluster and namespace; each route of the file, in its order."""
    if not asked.asks:
        raise Problem(422, "name a change, or a cluster, namespace, kind or name, or a severity", "change")
    deps = deps_of(request)
    found = await where(conn, asked, deps.slack.routes(), channel=deps.slack.channel, now=deps.clock())
    seen = await read_seen(conn, None, from_at=None, to_at=None)
    return shown.Routing(
        items=[_goes(one, never=found.never) for one in found.verdicts],
        places=None if found.places is None else list(found.places),
        resource=shapes.Resource.model_validate(found.resource),
        change_id=found.change.id if found.change else None,
        never=found.never,
        **answers.context(seen),
    )


def _goes(found: Verdict, *, never: str) -> shown.Goes:
    mute: notices.Mute | None = found.mute
    return shown.Goes(
        place=found.route.place,
        tells=not never and not found.why_not and mute is None,
        why_not=found.why_not,
        quiet_until=found.quiet_until,
        muted_by=mute.said_by if mute else "",
    )
