"""What of an incident or a notice a target is told, which cannot be edited: at first, and then only what matters. Pure.

The types of events are stable: docs/webhooks.md lists them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from typing import Any
from uuid import uuid4

import msgspec

from app.core.findings import Incident, Ranking, Suspect
from app.core.model import Change, Outcome, Rollout
from app.notify import message, notice
from app.store.outbox import Letter, Shown

Json = dict[str, Any]

VERSION = 1
"""Of what stands in events: counted up where something of it is renamed or goes."""
LISTED = 20
"""Changes of a digest that an event holds; the page has the rest."""
MOST = 64_000
"""Bytes of an event with the fields that changed; a longer one is sent without them. Many receivers take no more than
some 100,000."""
_ROLLOUTS = {
    Outcome.RUNNING: "rollout.started",
    Outcome.COMPLETE: "rollout.completed",
    Outcome.FAILED: "rollout.failed",
    Outcome.ROLLED_BACK: "rollout.rolled_back",
    Outcome.SUPERSEDED: "rollout.superseded",
}
_ENDS = (Outcome.COMPLETE, Outcome.FAILED, Outcome.ROLLED_BACK)


@dataclass(frozen=True, slots=True)
class Represent:
    """How REST represents each."""

    change: Callable[[Change], Json]
    rollout: Callable[[Rollout], Json]
    incident: Callable[[Incident, Ranking | None], Json]
    suspect: Callable[[Suspect], Json]


def stage(told: notice.Told) -> str:
    """The version of a notice as a target sees it: another where its rollout ended, or one of a digest failed."""
    failed = "".join(notice.failed_of(told))
    return f"stage {_outcome(told) or (sha256(failed.encode()).hexdigest()[:16] if failed else '')}".rstrip()


def shown(told: notice.Told | message.Told, version: str) -> Shown:
    """What a target knows once it is told this; ``version`` is an incident's."""
    if isinstance(told, notice.Told):
        return Shown(stage(told), _outcome(told), failed=notice.failed_of(told))
    return message.shown(told, version)


def type_of(told: notice.Told | message.Told, before: Shown | None) -> str:
    """The type of the event that a target is sent which knows ``before`` (None: nothing yet); "" where nothing of
    matter is new."""
    if isinstance(told, message.Told):
        return _of_incident(told, before)
    rollout = _rollout(told)
    if before is None:
        if len(told.items) > 1:
            return "changes.digest"
        return _ROLLOUTS[rollout.outcome] if rollout else "change.recorded"
    if set(notice.failed_of(told)) - set(before.failed):
        return "changes.failed"
    is_new = rollout is not None and rollout.outcome.value != before.status and rollout.outcome in _ENDS
    return _ROLLOUTS[rollout.outcome] if rollout and is_new else ""


def _of_incident(told: message.Told, before: Shown | None) -> str:
    status = told.incident.status
    if before is None:
        return f"incident.{'opened' if status == 'open' else status}"
    if status != before.status:
        reopened = status == "open" and before.status != "suspected"
        return "incident.reopened" if reopened else f"incident.{'opened' if status == 'open' else status}"
    return "incident.ranked" if told.ranking and not before.leader and status != "merged" else ""


def letter(
    told: notice.Told | message.Told, kind: str, *, represent: Represent, shows: Shown | None, now: datetime
) -> Letter:
    """The event of this type, sealed."""
    event = _event(told, kind, represent, now)
    body = msgspec.json.encode(event)
    if len(body) > MOST:
        body = msgspec.json.encode({**_without_fields(event), "diffs_left_out": True})
    return Letter(f"msg_{uuid4().hex}", now, body.decode(), shows)


def _event(told: notice.Told | message.Told, kind: str, represent: Represent, now: datetime) -> Json:
    if isinstance(told, message.Told):
        suspects = told.ranking.suspects[: message.SHOWN] if told.ranking else ()
        data: Json = {
            "text": message.sentence(told),
            "link": told.page,
            "incident": represent.incident(told.incident, told.ranking),
            "suspects": [represent.suspect(one) for one in suspects],
        }
    elif kind == "changes.failed":
        failed = [one for one in told.items if one.is_failed]
        data = {
            "text": notice.sentence(told),
            "link": notice.page_of(told),
            "count": len(failed),
            "changes": [represent.change(one.change) for one in failed[:LISTED]],
        }
    elif len(told.items) > 1:
        data = {
            "text": notice.sentence(told),
            "link": notice.page_of(told),
            "count": len(told.items) + told.notice.more,
            "changes": [represent.change(one.change) for one in told.items[:LISTED]],
        }
    else:
        (item,) = told.items
        data = {
            "text": notice.sentence(told),
            "link": f"{told.url}/changes/{item.change.id}",
            "change": represent.change(item.change),
            "rollout": represent.rollout(item.rollout) if item.rollout else None,
            "reaches": list(item.reach),
        }
    return {"type": kind, "version": VERSION, "timestamp": now, "diffs_left_out": False, "data": data}


def _without_fields(part: Any) -> Any:
    """Without the values that changed, which alone can be long."""
    if isinstance(part, dict):
        return {k: [] if k == "diffs" else _without_fields(v) for k, v in part.items()}
    return [_without_fields(one) for one in part] if isinstance(part, list) else part


def _rollout(told: notice.Told) -> Rollout | None:
    return told.items[0].rollout if len(told.items) == 1 else None


def _outcome(told: notice.Told) -> str:
    rollout = _rollout(told)
    return rollout.outcome.value if rollout else ""
