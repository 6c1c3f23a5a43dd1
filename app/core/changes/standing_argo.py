"""What one version of a Rollout of Argo's (argoproj.io) says of how it rolls out.

Its controller says so itself: ``status.phase``, of the generation that it has observed
(https://argo-rollouts.readthedocs.io/en/stable/features/specification/). Done is what `kubectl argo rollouts status`
calls Healthy: the pods of this template are the stable ones. Until then a canary of which all pods that a step asks for
are there is in the middle of its rollout, whatever its conditions say. Aborted, or behind its deadline, it is Degraded.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from app.core.changes.standing import PAUSED, Standing, is_observed, progressing
from app.core.model import Progress
from app.core.objects.raw_workload import RawArgoSpec, RawArgoStatus, RawBlueGreen, RawCondition, RawStep
from app.core.objects.stalls import EXCEEDED

ABORTED = "RolloutAborted"
_INVALID = "InvalidSpec"
_AVAILABLE = "NewReplicaSetAvailable"
_HELD = frozenset({"RolloutPaused", "RolloutResumed"})
_PROMOTED = "until somebody promotes it"


def standing(
    spec: RawArgoSpec, status: RawArgoStatus, *, generation: int, at: datetime, clean: Callable[[str], str]
) -> Standing:
    """What this spec and status say at that time. ``clean`` leaves no secret in what a controller says in words."""
    invalid = next((one for one in status.conditions or () if one.type == _INVALID), None)
    observed = is_observed(status, generation) and bool(invalid or status.currentPodHash)
    is_stable = status.stableRS == status.currentPodHash != ""
    told = progressing(status)
    failed = (invalid or told) if status.phase == "Degraded" else RawCondition()
    return Standing(
        Progress(at, spec.replicas, _updated(spec, status, told), status.availableReplicas),
        observed=observed,
        complete=status.phase == "Healthy" and is_stable,
        under_way=status.currentPodHash != "" and not is_stable and status.phase != "Degraded",
        completed_at=told.lastUpdateTime if told.reason == _AVAILABLE else None,
        failed=_why_failed(failed, clean),
        failed_at=None if invalid else failed.lastUpdateTime or failed.lastTransitionTime,
        goes_on=status.phase in ("Progressing", "Paused"),
        waits=PAUSED if spec.paused else _why_paused(spec, status) if observed else "",
        template="" if invalid else status.currentPodHash,
    )


def _updated(spec: RawArgoSpec, status: RawArgoStatus, told: RawCondition) -> int:
    """Of the new pods of a blue-green one it is not told how many are available, before they are sent requests: only
    that all are, when it pauses for that."""
    is_blue_green = spec.strategy is not None and spec.strategy.blueGreen is not None
    active = status.blueGreen.activeSelector if status.blueGreen else ""
    is_ready = active in ("", status.currentPodHash) or bool(status.pauseConditions) or told.reason in _HELD
    return status.updatedReplicas if is_ready or not is_blue_green else 0


def _why_failed(told: RawCondition, clean: Callable[[str], str]) -> str:
    """The reason, and of what was not a person's doing what its controller says of it: which analysis failed."""
    if told.reason not in (ABORTED, EXCEEDED, _INVALID):
        return ""
    _, _, more = told.message.partition(": ")
    if told.reason == EXCEEDED or not more:
        return told.reason
    return f"{told.reason}: {clean(more)}"


def _why_paused(spec: RawArgoSpec, status: RawArgoStatus) -> str:
    reasons = [one.reason for one in status.pauseConditions or ()] if status.phase == "Paused" else []
    if not reasons:
        return ""
    if "InconclusiveAnalysisRun" in reasons:
        return f"{PAUSED}{_where(spec, status)} as its analysis is inconclusive, {_PROMOTED}"
    blue_green = spec.strategy.blueGreen if spec.strategy else None
    if blue_green is not None:
        return f"{PAUSED} before its pods are sent requests, {_until_cut_over(blue_green)}"
    return f"{PAUSED}{_where(spec, status)}, {_until_next(spec, status)}"


def _until_cut_over(blue_green: RawBlueGreen) -> str:
    seconds = blue_green.autoPromotionSeconds
    return f"for {seconds}s" if seconds else _PROMOTED


def _until_next(spec: RawArgoSpec, status: RawArgoStatus) -> str:
    steps, here = _steps(spec), status.currentStepIndex
    pause = steps[here].pause if here is not None and 0 <= here < len(steps) else None
    if pause is None or pause.duration is None:
        return _PROMOTED
    written = str(pause.duration)
    return f"for {written}s" if written.isdigit() else f"for {written}"


def _where(spec: RawArgoSpec, status: RawArgoStatus) -> str:
    """At which weight and step a canary is, where it has steps."""
    steps, here = _steps(spec), status.currentStepIndex
    if here is None or not 0 <= here < len(steps):
        return ""
    weights = status.canary.weights if status.canary else None
    asked = [step.setWeight for step in steps[: here + 1] if step.setWeight is not None]
    weight = weights.canary.weight if weights and weights.canary else asked[-1] if asked else None
    at = "" if weight is None else f" at a weight of {weight}"
    return f"{at} in step {here + 1} of {len(steps)}"


def _steps(spec: RawArgoSpec) -> list[RawStep]:
    canary = spec.strategy.canary if spec.strategy else None
    return (canary.steps if canary else None) or []
