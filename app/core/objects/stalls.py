"""When a rollout hangs: nothing of it has moved for half of the time that it is given."""

from __future__ import annotations

from datetime import datetime, timedelta

from app.core.model import Json, Object, Outcome, Progress, Rollout

DEADLINE = timedelta(seconds=600)
"""``progressDeadlineSeconds`` of a Deployment that sets none, and what is allowed to kinds that have no such field:
https://kubernetes.io/docs/concepts/workloads/controllers/deployment/#progress-deadline-seconds ."""

EXCEEDED = "ProgressDeadlineExceeded"
"""Why Kubernetes says that a rollout failed."""


def patience(state: Object | None) -> timedelta:
    """How long a rollout of a workload in this state may rest: half its deadline, after which Kubernetes gives up."""
    spec: Json = (state or {}).get("spec")
    seconds = spec.get("progressDeadlineSeconds") if isinstance(spec, dict) else None
    given = isinstance(seconds, int) and not isinstance(seconds, bool) and 0 < seconds < 2**31 - 1
    return (timedelta(seconds=seconds) if given else DEADLINE) / 2  # type: ignore[arg-type]


def rests(rollout: Rollout, now: datetime) -> timedelta:
    """How long no further pod of a rollout was updated or became available; 0 of one that has ended."""
    if rollout.outcome is not Outcome.RUNNING:
        return timedelta()
    moved, before = rollout.started_at, Progress(rollout.started_at, 0, 0, 0)
    for step in rollout.progress:
        if step.updated > before.updated or step.available > before.available:
            moved = max(moved, step.at)
        before = step
    return max(timedelta(), now - moved)


def lacks(rollout: Rollout) -> Progress | None:
    """The last step of a rollout with fewer pods available than wanted; None where that is not so."""
    last = rollout.progress[-1] if rollout.progress else None
    return last if last and last.available < last.desired else None
