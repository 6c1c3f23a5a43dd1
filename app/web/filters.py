"""How times, figures and values read on pages: the filters of every template."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote, urlencode

import humanize
import orjson

from app.core.alerted import WEB
from app.core.changes.summaries import subject_of
from app.core.model import Change, Json, Outcome, Resource, Rollout
from app.core.objects import kinds
from app.core.phrases import (
    clock_time,
    duration,
    first_of,
    in_parts,
    no_ranking,
    no_ranking_in_short,
    number,
    percent,
    short_actor,
    t_minus,
)

STUCK_AFTER = timedelta(hours=1)
_HUMP = re.compile(r"(?<=[a-z])(?=[A-Z])")


def day_time(at: datetime) -> str:
    """``20 Nov 14:02:27``."""
    at = at.astimezone(UTC)
    return f"{at.day} {at:%b %H:%M:%S}"


def dated(at: datetime, now: datetime) -> str:
    """``20 Nov 14:02:27`` of this year, ``20 Nov 2025 14:02:27`` of another: metrics are kept for longer than one."""
    at = at.astimezone(UTC)
    return day_time(at) if at.year == now.astimezone(UTC).year else f"{at.day} {at:%b %Y %H:%M:%S}"


def exact_time(at: datetime) -> str:
    """``2026-11-20T14:02:27.804Z``: for ``<time datetime>``, for addresses, for copying."""
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def written_time(at: datetime) -> str:
    """``2026-11-20T14:02:27Z``, with parts of a second where there are any: to be read, and read again as it is."""
    return at.astimezone(UTC).isoformat().replace("+00:00", "Z")


def value(json: Json) -> str:
    """A field's value in one line: text as it is, anything else as JSON."""
    return json if isinstance(json, str) else orjson.dumps(json).decode()


def object_path(resource: Resource) -> str:
    """The address of an object's history."""
    steps = (resource.cluster, resource.api_group or "core", resource.kind, resource.namespace or "-", resource.name)
    return "/objects/" + "/".join(quote(step, safe="") for step in steps)


def told(change: Change) -> str:
    """A change's summary beside its object: without the kind and name, which stand there already."""
    resource = change.resource
    rest = change.summary.removeprefix(f"{resource.kind} {resource.name}")
    rest = rest.replace(f" of {subject_of(resource)}", "", 1)
    return rest.removeprefix(":").strip() or change.verb.value


def lane_of(resource: Resource) -> str:
    """The lane of the timeline in which the object's changes are drawn: decides its colour and shape."""
    return kinds.lane(resource.api_group, resource.kind).value


def told_by(resource: Resource) -> str:
    """Who told of what Kubernetes does not know; "" for an object of Kubernetes."""
    return kinds.told_by(resource.api_group)


def how_far(rollout: Rollout) -> str:
    """``40 %`` of a rollout that runs, else what became of it: ``done``, ``failed at 40 %``, ``rolled back``."""
    if rollout.outcome is Outcome.RUNNING:
        return f"{rollout.percent} %"
    if rollout.outcome is Outcome.FAILED:
        return f"failed at {rollout.percent} %"
    return "done" if rollout.outcome is Outcome.COMPLETE else rollout.outcome.value


def is_elsewhere(text: str) -> bool:
    """Whether a text is an address of the web, which a link may lead to."""
    return text.startswith(WEB)


def is_moving(rollout: Rollout, now: datetime) -> bool:
    """Whether an open page asks how far it is: one that runs for an hour waits for somebody."""
    return rollout.outcome is Outcome.RUNNING and now - rollout.started_at < STUCK_AFTER


def humps(word: str) -> list[str]:
    """A kind or a reason, cut where it may go on in the next line: ``Horizontal``, ``Pod``, ``Autoscaler``."""
    return _HUMP.split(word)


def query(wanted: dict[str, Any], **changed: Any) -> str:
    """A query string: ``wanted`` with some of it changed; None and "" are left out."""
    merged = {name: item for name, item in (wanted | changed).items() if item not in (None, "")}
    texts = {name: exact_time(item) if isinstance(item, datetime) else str(item) for name, item in merged.items()}
    return "?" + urlencode(texts) if texts else "?"


FILTERS: dict[str, Callable[..., object]] = {
    "ago": humanize.naturaldelta,
    "actor": short_actor,
    "clock": clock_time,
    "commas": humanize.intcomma,
    "dated": dated,
    "day": day_time,
    "duration": duration,
    "in_parts": in_parts,
    "exact": exact_time,
    "how_far": how_far,
    "humps": humps,
    "is_elsewhere": is_elsewhere,
    "is_moving": is_moving,
    "lane": lane_of,
    "no_ranking": no_ranking,
    "no_ranking_in_short": no_ranking_in_short,
    "number": number,
    "object_path": object_path,
    "first_of": first_of,
    "percent": percent,
    "query": query,
    "t_minus": t_minus,
    "told": told,
    "told_by": told_by,
    "value": value,
    "written": written_time,
}
