"""What REST answers hold: the shapes of what was asked for, how fresh that is and what was not seen."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Self

from pydantic import Field

from app.core.changes.recipe import Recipe
from app.core.metrics.measures import Measure
from app.core.model import Change as Noun
from app.store.seen import Seen
from app.web import shapes


class Answer(shapes.Shape):
    """What every answer says beside its content: how fresh it is and what was not seen."""

    freshness: list[shapes.Freshness]
    gaps: list[shapes.Gap]


def context(seen: Seen) -> dict[str, Any]:
    """``freshness`` and ``gaps`` for an Answer."""
    return {
        "freshness": [shapes.Freshness.model_validate(one) for one in seen.freshness],
        "gaps": [shapes.Gap.model_validate(one) for one in seen.gaps],
    }


class Changes(Answer):
    """A page of changes, newest first; ``next`` null is the end."""

    items: list[shapes.Change]
    next: str | None


class OneChange(Answer):
    """A change and what controllers wrote because of it."""

    change: shapes.Change
    began: list[shapes.Change]
    links: list[shapes.Link] = Field(description="where other programs show its object")


class Revert(Answer):
    """How to undo a change."""

    change_id: str
    command: str = Field(description="for a shell; empty where none can be given")
    dry_run: str = Field(description="the same, made harmless; empty where there is none")
    steps: list[shapes.Step] = Field(description="all that is to be done, in order, the two above among it")
    warnings: list[shapes.Warned]

    @classmethod
    def of(cls, change: Noun, recipe: Recipe, seen: Seen) -> Self:
        return cls(
            change_id=change.id,
            command=recipe.command,
            dry_run=recipe.dry_run,
            steps=[shapes.Step.model_validate(step) for step in recipe.steps],
            warnings=[shapes.Warned(text=one.text, change_id=one.change_id or None) for one in recipe.cautions],
            **context(seen),
        )


class History(Answer):
    """One object: its last known state and its changes, newest first."""

    resource: shapes.Resource
    state: Any
    deleted_at: datetime | None
    items: list[shapes.Change]
    next: str | None


class Difference(Answer):
    """One object at two times."""

    resource: shapes.Resource
    from_at: datetime
    to_at: datetime
    diffs: list[shapes.Diff] | None = Field(
        description="the fields that differ; the whole where it was not there at one of the times; null: not known"
    )
    unknown: str = Field(description="why diffs is not known, else empty")
    changes: list[shapes.Change] = Field(description="made in between, the newest hundred, newest first")


class Rollouts(Answer):
    """A page of rollouts, newest first."""

    items: list[shapes.Rollout]
    next: str | None


class Incidents(Answer):
    """A page of incidents, newest first."""

    items: list[shapes.Incident]
    next: str | None


class AuditLog(Answer):
    """A page of what was done in Foreshock itself, newest first."""

    items: list[shapes.AuditEntry]
    next: int | None


class OneIncident(Answer):
    """An incident."""

    incident: shapes.Incident


class SaidIncident(OneIncident):
    """An incident as it is after something was said of it."""

    remarks: list[str] = Field(description="what of it names nothing that is recorded, in sentences; it is kept")


class Suspects(Answer):
    """The newest ranking of an incident; ``items`` is empty while it was not ranked."""

    items: list[shapes.Suspect]
    none_of_these: float | None = Field(description="null: it was not ranked yet, or its ranking is forgotten by now")
    ranked_at: datetime | None = Field(description="as of when it is, or was, ranked; null: it was not ranked yet")
    candidates: int
    findings: list[shapes.Evidence] = Field(description="what turned bad, whatever began it: as a write fight")
    not_measured: list[str]


class Calls(Answer):
    """Top callers, those that rose most first."""

    items: list[shapes.Call]
    now_from: datetime
    before_from: datetime
    to: datetime


class Metrics(Answer):
    """The names of all series that are stored of a cluster."""

    items: list[shapes.Metric]


class Lines(Answer):
    """Lines on one grid. ``measure`` is how they were measured: a quantile without buckets becomes the mean."""

    items: list[shapes.Line]
    start: datetime
    step_seconds: float
    measure: Measure
    unit: str


class Evaluated(Lines):
    """What a Prometheus answered to a query, and what it warned of: that some of its stores did not answer, say."""

    warnings: list[str]


class Annotations(Answer):
    """What a dashboard marks, newest first."""

    items: list[shapes.Annotation]


class Gaps(Answer):
    """What was not seen."""

    items: list[shapes.Gap]


class Clusters(Answer):
    """Every cluster."""

    items: list[shapes.Cluster]


class FollowedChange(shapes.Shape):
    """A line of what is followed: a change that was recorded. ``after`` is where to go on from."""

    change: shapes.Change
    after: str


class FollowedIncident(shapes.Shape):
    """A line of what is followed: an incident as it stands now. ``after`` is where to go on from."""

    incident: shapes.Incident
    after: str


class FollowedGap(shapes.Shape):
    """A line of what is followed: something that is known as not seen."""

    gap: shapes.Gap


class FollowedFreshness(shapes.Shape):
    """A line of what is followed: all that was recorded up to then stands above it."""

    freshness: list[shapes.Freshness]
    after: str
