"""Two tellings of one write, or of one rollout, made into one. Pure, and the same in either order, but for ``at``, and
for which steps of a rollout are kept of very many."""

from __future__ import annotations

from msgspec.structs import replace

from app.core.changes.made import version_of
from app.core.changes.rollouts import thinned
from app.core.changes.sightings import GENERATED
from app.core.model import Actor, ActorSource, Change, DiffSource, Outcome, Rollout, Verb
from app.store import codec

STEPS = 200
"""Of a rollout, that are kept: each telling of it brings others, and it may go on for days."""
_ACTOR_RANK = {source: rank for rank, source in enumerate(ActorSource)}
_DIFF_RANK = {source: rank for rank, source in enumerate(DiffSource)}


def _trust(actor: Actor) -> tuple[object, ...]:
    """Sorts the better known actor first; the rest of the key only makes the choice the same in either order."""
    unnamed = not actor.user_agent, not actor.pod, not actor.impersonator
    texts = actor.name, actor.user_agent, actor.pod or "", actor.impersonator or ""
    return (_ACTOR_RANK[actor.source], *unnamed, *texts)


def _worth(change: Change) -> tuple[object, ...]:
    """Sorts the better diff first. Of two comparisons the smaller one missed fewer writes in between, of two last
    states of what was deleted the later one."""
    diff = codec.dumps(codec.diff_rows(change.diffs))
    later = -version_of(change) if change.verb is Verb.DELETE else 0
    return _DIFF_RANK[change.diff_source], not change.diffs, later, len(diff), diff, change.summary


def _later(one: int | None, other: int | None) -> int | None:
    known = [number for number in (one, other) if number is not None]
    return max(known, default=None)


def _better(known: Change, told: Change) -> Change:
    """The one with the better diff. Of two comparisons of what nobody saw written, the one that was known for longer to
    be as before missed fewer writes."""
    if known.since and told.since and known.since != told.since and known.diff_source is told.diff_source:
        return known if known.since > told.since else told
    return min(known, told, key=_worth)


def merge_changes(known: Change, told: Change) -> Change:
    """``known`` with what ``told`` knows better; its ``at``, and so its id, never moves."""
    better = _better(known, told)
    actor = min(known.actor, told.actor, key=_trust)
    return replace(
        known,
        resource=told.resource if known.resource.name.endswith(GENERATED) else known.resource,
        actor=actor,
        uid=known.uid or told.uid,
        resource_version=max(known.resource_version, told.resource_version),
        generation=_later(known.generation, told.generation),
        diffs=better.diffs,
        diff_source=better.diff_source,
        summary=better.summary,
        since=better.since if known.since and told.since else known.since,
        sources=known.sources | told.sources,
        begun_by=min(filter(None, (known.begun_by, told.begun_by)), default=None),
        audit_id=max(known.audit_id, told.audit_id),
        url=max(known.url, told.url),
        workload=max(known.workload, told.workload),
    )


def _progressed(rollout: Rollout) -> tuple[object, ...]:
    """Sorts the later telling of a rollout last."""
    last = max((step.at for step in rollout.progress), default=rollout.started_at)
    end = rollout.ended_at or rollout.started_at
    done = rollout.outcome is not Outcome.RUNNING, rollout.ended_at is not None
    return max(last, end), *done, end, rollout.outcome, rollout.reason


def merge_rollouts(known: Rollout, told: Rollout) -> Rollout:
    """The later telling, with the steps of both and what only one knows, under the start that ``known`` has."""
    newest = max(known, told, key=_progressed)
    steps = sorted({*known.progress, *told.progress}, key=lambda p: (p.at, p.updated, p.available, p.desired))
    return replace(
        newest,
        started_at=known.started_at,
        change_id=min(filter(None, (known.change_id, told.change_id)), default=None),
        images=max(known.images, told.images),
        images_before=max(known.images_before, told.images_before),
        progress=thinned(tuple(steps), most=STEPS),
        uid=known.uid or told.uid,
        templates=max(known.templates, told.templates, key=lambda found: (len(found), found)),
    )
