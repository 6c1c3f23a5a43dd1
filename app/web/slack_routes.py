"""Where a change or an incident is told, as the page shows it: each route, whether it fits, and why it does not."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

from pydantic import BeforeValidator, Field
from sqlalchemy.ext.asyncio import AsyncConnection

from app.core.changes.told import is_told, never_told
from app.core.incidents import route_remarks
from app.core.model import Change, Resource
from app.core.objects.kind_names import built_in
from app.core.routes import Labels, OfIncident, Route, Routes, incident_places, wanted_by, why_no_incident, why_not
from app.core.targets import is_target
from app.store import notices, timeline
from app.store.labels import labels_about, labels_of
from app.store.notices import Mute
from app.web.params import Asked, Text, blank
from app.web.problems import Problem

NO_SLACK = "Slack is not set up: set FORESHOCK_SLACK_TOKEN and FORESHOCK_SLACK_CHANNEL"
_ID = re.compile(r"(?:.*/changes/)?([0-9a-f]{28})(?:[?#].*)?")


class WhereAsked(Asked):
    """A change, by its id or its link; or what it would be of; or an incident of a cluster and a namespace, by its
    severity."""

    change: Annotated[Text | None, BeforeValidator(blank)] = Field(None, description="a change's id, or its link")
    cluster: Annotated[Text | None, BeforeValidator(blank)] = None
    namespace: Annotated[Text | None, BeforeValidator(blank)] = None
    kind: Annotated[Text | None, BeforeValidator(blank)] = None
    name: Annotated[Text | None, BeforeValidator(blank)] = None
    severity: Annotated[Text | None, BeforeValidator(blank)] = Field(None, description="of an incident that might be")

    @property
    def asks(self) -> bool:
        """Whether anything is asked."""
        return any(self.model_dump().values())


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one route does with it: ``why_not`` "" where it tells, ``quiet_until`` where it waits till then, ``mute``
    where people in the channel do not want it."""

    route: Route
    why_not: str
    quiet_until: datetime | None
    mute: Mute | None


@dataclass(frozen=True, slots=True)
class Where:
    """``resource`` is what was asked of, ``change`` what was made of it, where one was named; ``never`` says why no
    channel is told at all, "" where one may be. ``places`` are who is told, of an incident: None of a change."""

    resource: Resource
    change: Change | None
    never: str
    verdicts: tuple[Verdict, ...]
    places: tuple[str, ...] | None = None

    @property
    def nowhere(self) -> str:
        """Why it goes nowhere, where no route tells it."""
        return f"{NO_SLACK}." if any(one.why_not == NO_SLACK for one in self.verdicts) else "No route fits."


async def where(conn: AsyncConnection, asked: WhereAsked, routes: Routes, *, channel: str, now: datetime) -> Where:
    """Where it goes, with the routes, the labels and the mutes of now; ``channel`` is told of incidents that no route
    has told in another one, "" where Slack is not set up. Raises Problem for an unknown change."""
    if asked.severity:
        return await _where_incident(conn, asked, asked.severity, routes, channel)
    change = await _change(conn, asked.change) if asked.change else None
    resource = change.resource if change else _resource(asked)
    labels = (await labels_of(conn, [resource])).get(resource, Labels())
    mutes = [one for one in await notices.read_mutes(conn, now=now) if one.covers(resource)]
    held = dict(wanted_by(routes, resource, labels, now))  # another route may tell the same place at once
    verdicts = [
        Verdict(
            route,
            why_not(route, resource, labels) or _not_set_up(route, channel),
            held.get(route.place) if route.quiet else None,
            next((one for one in mutes if one.channel == route.place), None),
        )
        for route in routes.routes
    ]
    return Where(resource, change, _never(change, resource.kind), tuple(verdicts))


def remarks_of(routes: Routes, clusters: Collection[str], *, channel: str) -> list[list[str]]:
    """What of each route can never come true, or not yet; ``clusters`` are those of which anything is recorded."""
    return [
        [*filter(None, [_not_set_up(route, channel)]), *route_remarks.remarks(route, clusters)]
        for route in routes.routes
    ]


def _not_set_up(route: Route, channel: str) -> str:
    return NO_SLACK if route.channel and not channel else ""


async def _where_incident(
    conn: AsyncConnection, asked: WhereAsked, severity: str, routes: Routes, channel: str
) -> Where:
    cluster, namespaces = asked.cluster or "", (asked.namespace,) if asked.namespace else ()
    told = OfIncident(cluster, severity, namespaces, await labels_about(conn, cluster, namespaces, ()))
    if asked.change or asked.kind or asked.name:
        raise Problem(422, "an incident has a severity, a cluster and a namespace, and is of no change", "severity")
    verdicts: list[Verdict] = []
    for route in routes.routes:
        why = why_no_incident(route, told) or _not_set_up(route, channel)
        if not why and route.channel and any(one.route.channel and not one.why_not for one in verdicts):
            why = "a route above tells it in a channel, and one is enough"
        verdicts.append(Verdict(route, why, None, None))
    places = incident_places(routes, told, otherwise=channel)
    if not channel:
        places = [place for place in places if is_target(place)]
    resource = Resource(cluster, "", "Incident", asked.namespace, "")
    return Where(resource, None, "", tuple(verdicts), tuple(places))


async def _change(conn: AsyncConnection, named: str) -> Change:
    told = _ID.fullmatch(named.strip())
    try:
        found = await timeline.read_change(conn, told[1]) if told else None
    except (ValueError, OverflowError):
        found = None
    if found is None:
        raise Problem(404, "there is no change of this id", "change")
    return found


def _resource(asked: WhereAsked) -> Resource:
    """Of the API group that has such a kind, for the kind alone is asked, by any of its names."""
    kind = asked.kind or "Deployment"
    known = next(iter(built_in(kind, None)), None)
    namespace = None if known and not known.namespaced else asked.namespace
    group, spelled = (known.api_group, known.kind) if known else ("", kind)
    return Resource(asked.cluster or "", group, spelled, namespace, asked.name or "")


def _never(change: Change | None, kind: str) -> str:
    if change is not None:
        return "" if is_told(change) else "Changes like this one are on the timeline alone, wherever they are made."
    return f"Changes of {kind} are on the timeline alone." if never_told(kind) else ""
