"""Slack: what it says that somebody clicked or asked, and the page of how it is told, with what did not get through."""

from __future__ import annotations

import re
from typing import Annotated
from urllib.parse import parse_qs, urlsplit

import msgspec
from fastapi import APIRouter, Depends, Query, Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, RedirectResponse, Response

from app.core.roles import Role
from app.store import audit, deliveries, notices, outbox
from app.store.places import places_of
from app.store.seen import read_seen
from app.web import templates
from app.web.auth import Needs, NeedsSlack, has
from app.web.deps import deps_of
from app.web.incident_forms import read_form
from app.web.problems import Problem
from app.web.reading import reading
from app.web.requests import MIB
from app.web.slack_routes import WhereAsked, remarks_of, where

LIMIT = MIB
"""A payload holds the message that was clicked."""
FIELDS = 30
"""Of a command there are thirteen, and Slack says that more may come."""
KEY = re.compile("([0-9a-f]{12}|n[0-9]{1,18})/[0-9]{1,6}(@[a-z][a-z0-9-]{0,62})?")
"""How a message is named (outbox.key_of)."""
LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
"""Hosts by which nobody else reaches us."""
asked = APIRouter(include_in_schema=False, dependencies=[Depends(NeedsSlack(LIMIT))])
pages = APIRouter(include_in_schema=False, dependencies=[Depends(Needs(Role.VIEWER))])
forms = APIRouter(include_in_schema=False, dependencies=[Depends(Needs(Role.RESPONDER))])


@asked.post("/intake/slack")
async def take(request: Request) -> Response:
    """What Slack sends: a button that somebody clicked and a command that somebody wrote as forms, an event as JSON."""
    try:
        if request.headers.get("Content-Type", "").startswith("application/json"):
            return await _event(request)
        form = parse_qs(request.state.body.decode(), keep_blank_values=True, strict_parsing=True, max_num_fields=FIELDS)
        if "command" in form:
            return JSONResponse(await deps_of(request).answer_command({name: told[0] for name, told in form.items()}))
        payload = msgspec.json.decode(form["payload"][0], type=dict)
        await deps_of(request).take_click(payload)
    except (ValueError, KeyError):
        why = "this is not what Slack sends of a click, a command or an event"
        raise Problem(400, why) from None
    return Response()


async def _event(request: Request) -> Response:
    """Its first one asks whether we are there (https://docs.slack.dev/reference/events/url_verification)."""
    event = msgspec.json.decode(request.state.body, type=dict)
    if event.get("type") == "url_verification":
        return PlainTextResponse(str(event["challenge"]))
    await deps_of(request).take_event(event)
    return Response()


@pages.get("/slack")
async def told(request: Request, asked: Annotated[WhereAsked, Query()]) -> HTMLResponse:
    """How Slack is told, where changes go, and what did not get through, with what to do."""
    deps = deps_of(request)
    now, routes = deps.clock(), deps.slack.routes()
    async with reading(request) as conn:
        delivery = await deliveries.read_delivery(conn, suspected=deps.slack.suspected, now=now)
        seen = await read_seen(conn, None, from_at=None, to_at=None)
        goes = await where(conn, asked, routes, channel=deps.slack.channel, now=now) if asked.asks else None
        mutes = await notices.read_mutes(conn, now=now)
        off = await outbox.read_off(conn)
    return templates.page(
        "slack.html",
        slack=deps.slack,
        listening=deps.slack.listening(),
        delivery=delivery,
        links=deps.public_url,
        leads_nowhere=urlsplit(deps.public_url).hostname in LOOPBACK,
        may_act=has(request, Role.RESPONDER),
        seen=seen,
        routes=routes.routes,
        remarks=remarks_of(routes, [one.cluster for one in seen.freshness], channel=deps.slack.channel),
        targets=routes.targets,
        off=off,
        asked=asked,
        goes=goes,
        mutes=mutes,
        now=now,
    )


@forms.post("/slack/again")
async def try_again(request: Request) -> Response:
    """Sends a message again that was given up; without one, all of them. What its channel was not told of, as it is
    archived or gone, is told in the one that is named now."""
    form, deps = await read_form(request), deps_of(request)
    which, now, slack, routes = form.get("message", ""), deps.clock(), deps.slack, deps.slack.routes()
    if form and not KEY.fullmatch(which):
        raise Problem(422, "message: the name of a message, or nothing for all", "message")

    async with deps.write.begin() as conn:
        if which and (why := await outbox.why_over(conn, which, now=now)):
            raise Problem(409, f"{why}: it is not sent again")
        places = places_of(routes, otherwise=slack.channel)
        await outbox.move(conn, places, named={slack.channel, *routes.channels}, key=which, now=now)
        await outbox.try_again(conn, which, now=now)
        await audit.note(conn, audit.Action.SENT_AGAIN, which or "all", now=now)
    return RedirectResponse("/slack", 303)


@forms.post("/slack/forget")
async def forget(request: Request) -> Response:
    """A message that was given up is counted no more, and not sent again."""
    form, deps = await read_form(request), deps_of(request)
    which = form.get("message", "")
    if not KEY.fullmatch(which):
        raise Problem(422, "message: the name of a message", "message")
    async with deps.write.begin() as conn:
        if await outbox.forget(conn, which):
            await audit.note(conn, audit.Action.FORGOTTEN, which, now=deps.clock())
    return RedirectResponse("/slack", 303)
