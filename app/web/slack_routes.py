"""Where a change goes in Slack, as the page shows it: each route, whether it fits, and why it does not."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

from pydantic import BeforeValidator, Field
from sqlalchemy.ext.asyncio import AsyncConnection

from app.core.changes.told import is_told, never_told
from app.core.model import Change, Resource
from app.core.objects import kinds
from app.core.routes import Labels, Route, Routes, why_not
from app.store import notices, timeline
from app.store.labels import labels_of
from app.store.notices import Mute
from app.web.params import Asked, Text, blank
from app.web.problems import Problem

_ID = re.compile(r"(?:.*/changes/)?([0-9a-f]{28})(?:[?#].*)?")


class WhereAsked(Asked):
    """A change, by its id or its link; or what it would be of."""

    change: Annotated[Text | None, BeforeValidator(blank)] = Field(None, description="a change's id, or its link")
    cluster: Annotated[Text | None, BeforeValidator(blank)] = None
    namespace: Annotated[Text | None, BeforeValidator(blank)] = None
    kind: Annotated[Text | None, BeforeValidator(blank)] = None
    name: Annotated[Text | None, BeforeValidator(blank)] = None

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
    channel is told at all, "" where one may be."""

    resource: Resource
    change: Change | None
    never: str
    verdicts: tuple[Verdict, ...]


async def where(conn: AsyncConnection, asked: WhereAsked, routes: Routes, now: datetime) -> Where:
    """Where it goes, with the routes, the labels and the mutes of now. Raises Problem for an unknown change."""
    change = await _change(conn, asked.change) if asked.change else None
    resource = change.resource if change else _resource(asked)
    labels = (await labels_of(conn, [resource])).get(resource, Labels())
    mutes = [one for one in await notices.read_mutes(conn, now=now) if one.covers(resource)]
    verdicts = [
        Verdict(
            route,
            why_not(route, resource, labels),
            route.quiet.until(now) if route.quiet else None,
            next((one for one in mutes if one.channel == route.place), None),
        )
        for route in routes.routes
    ]
    return Where(resource, change, _never(change, asked.kind), tuple(verdicts))


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
    """Of the API group that has such a kind, for the kind alone is asked."""
    kind = asked.kind or "Deployment"
    known = next((info for info in kinds.BUILT_IN.values() if info.kind.lower() == kind.lower()), None)
    namespace = None if known and not known.namespaced else asked.namespace
    group, spelled = (known.api_group, known.kind) if known else ("", kind)
    return Resource(asked.cluster or "", group, spelled, namespace, asked.name or "")


def _never(change: Change | None, kind: str | None) -> str:
    if change is not None:
        return "" if is_told(change) else "Changes like this one are on the timeline alone, wherever they are made."
    return f"Changes of {kind} are on the timeline alone." if kind and never_told(kind) else ""
