"""An incident, or a change, in a few lines: where it is listed, or a link to it is shown. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from app.core.findings import Incident
from app.core.model import Change
from app.core.objects.actors import short
from app.core.objects.values import moved
from app.core.phrases import duration, many, percent
from app.notify.blocks import NAME, SENTENCE, escape, link, moment
from app.notify.message import SIGNS, part_of, where
from app.store.history import History
from app.store.incidents import FirstSuspect

FIELDS = 4
"""Of a change that are shown; its page has the rest."""


def incident_line(incident: Incident, first: FirstSuspect | None, *, url: str, now: datetime) -> str:
    """Its name, as a link, since when it is and for how long, and what is likeliest to have begun it."""
    name = link(f"{url}/incidents/{incident.id}", incident.title)
    lasted = duration(((incident.resolved_at or now) - incident.started_at).total_seconds())
    since = f"*{incident.status}*, since {moment(incident.started_at)}, for {lasted}"
    leads = part_of(incident.merged_into, url=url) if incident.merged_into else _likeliest(first, incident.ranked_at)
    return f"{SIGNS[incident.status]} *{name}*\ncluster *{escape(incident.cluster)}*, {since}\n{leads}"


def _likeliest(first: FirstSuspect | None, ranked_at: datetime | None) -> str:
    if first is None:
        return "Not ranked yet." if ranked_at is None else "No suspect of it is known."
    if first.none_leads:
        return f"Likeliest: none of the changes that were seen ({percent(first.none_of_these)})"
    return f"Likeliest: {first.kind} {escape(first.name)} ({percent(first.probability)})"


def object_lines(history: History, *, url: str) -> str:
    """What it is, whether it is there still, and its last change."""
    resource, gone = history.state.resource, history.state.deleted_at
    name = f"*{escape(f'{resource.kind} {resource.name}')}*"
    named = f"{name} in {escape(resource.namespace)}" if resource.namespace else name
    there = f", gone since {moment(gone)}" if gone else ""
    last = change_lines(history.changes[0], url=url) if history.changes else "No change of it is recorded."
    return f"{named}, cluster *{escape(resource.cluster)}*{there}\n{last}"


def listed_lines(changes: Sequence[Change], *, url: str, most: int, is_all: bool) -> str:
    """The newest changes of a list, a line each. ``is_all`` says that no older ones can fit."""
    lines = [
        f"• {moment(one.at)} {link(f'{url}/changes/{one.id}', _name(one))}, {where(one.resource)},"
        f" by {escape(short(one.actor), NAME)}"
        for one in changes[:most]
    ]
    if len(changes) > most:
        lines.append("and older ones")
    elif not is_all:
        lines.append("Older ones were not looked for.")
    return "\n".join(lines or ["No change that is recorded fits."])


def _name(change: Change) -> str:
    return change.summary or f"{change.verb.value} {change.resource.kind} {change.resource.name}"


def change_lines(change: Change, *, url: str) -> str:
    """What changed, as a link, where, who did it and when; then its first fields, before and after."""
    resource = change.resource
    name = link(f"{url}/changes/{change.id}", _name(change))
    fields = [one for one in change.diffs if one.path]  # not the whole object, as of one that was made
    who = f"{moment(change.at)} by {escape(short(change.actor))}"
    lines = [
        f"*{name}*",
        f"cluster *{escape(resource.cluster)}*, {where(resource)} · {who}",
        *(f"• {escape(f'{one.path_text}{moved(one)}', SENTENCE)}" for one in fields[:FIELDS]),
    ]
    if len(fields) > FIELDS:
        lines.append(f"and {many(len(fields) - FIELDS, 'other field')}")
    return "\n".join(lines)
