"""What was only made in the window and was never well yet: nobody relies on it, so it complains for itself alone."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

from app.core.entities import Entity, of_resource
from app.core.model import Change, Outcome, Rollout, Verb

Newborn = dict[Entity, datetime]
"""By workload or other object: until when it was not well yet."""
_NEVER = datetime.max.replace(tzinfo=UTC)


def newborn(changes: Iterable[Change], rollouts: Iterable[Rollout]) -> Newborn:
    """What was made in the window, until its pods were there for the first time; of what has no rollout, for good."""
    found = {of_resource(change.resource)[0]: _NEVER for change in changes if change.verb is Verb.CREATE}
    for rollout in rollouts:
        home = of_resource(rollout.resource)[0]
        if home in found and rollout.outcome is Outcome.COMPLETE and rollout.ended_at is not None:
            found[home] = min(found[home], rollout.ended_at)
    return found


def is_newborn(home: Entity, at: datetime, new: Newborn) -> bool:
    """Whether this had never been well by then."""
    return home in new and at <= new[home]
