"""What one version of a Deployment, StatefulSet or DaemonSet says of how it rolls out.

Done is what `kubectl rollout status` calls done: the controller has observed the generation, and updated, available and
desired replicas agree. Field facts: https://kubernetes.io/docs/concepts/workloads/controllers/deployment/#deployment-status
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import NamedTuple

import msgspec

from app.core.model import Progress
from app.core.objects.raw_workload import RawCondition, RawSpec, RawStatus
from app.core.objects.stalls import EXCEEDED

WAITS = "waits for deletions of its pods: its update strategy is OnDelete"
PAUSED = "is paused"
HELD_BACK = "its partition keeps {} of {} pods as they were"
_AVAILABLE = "NewReplicaSetAvailable"
SPEC, STATUS = msgspec.json.Decoder(RawSpec), msgspec.json.Decoder(RawStatus)
_NO_TIME = datetime.min.replace(tzinfo=UTC)
_NEW = frozenset({"ReplicaSetUpdated", "NewReplicaSetCreated", "FoundNewReplicaSet"})


class Standing(NamedTuple):
    """Of a workload of any kind, at one moment.

    ``observed``: its controller has seen the template; until then the status tells of the pods of the one before it.
    ``completed_at`` is since when it says that it is ``complete``, where it does, and ``leaves`` why some pods stay as
    they were nevertheless. ``failed`` is why it failed, "" where it did not, and ``goes_on`` that it does so no more.
    ``waits`` is why nothing moves by itself, and ``under_way`` that more pods are of an older template than stay so,
    and it has not failed. ``template`` is what its controller calls the template that all this is of, "" where it does
    not say.
    """

    now: Progress
    observed: bool
    complete: bool
    under_way: bool
    completed_at: datetime | None = None
    leaves: str = ""
    failed: str = ""
    failed_at: datetime | None = None
    goes_on: bool = False
    waits: str = ""
    template: str = ""


def standing(kind: str, spec: RawSpec, status: RawStatus, *, generation: int, at: datetime) -> Standing:
    """What this spec and status say at that time."""
    now, rest = _progress(kind, spec, status, at=at), _rest(kind, spec, status)
    told = progressing(status)
    is_over = told.reason == _AVAILABLE and status.replicas == status.updatedReplicas > 0
    held_back = now.desired - now.updated if rest < 0 else 0
    return Standing(
        now,
        observed=is_observed(status, generation),
        complete=is_over or _is_complete(now, rest=rest),
        under_way=_under_way(kind, spec, status),
        completed_at=told.lastUpdateTime if told.reason == _AVAILABLE else None,
        leaves=HELD_BACK.format(held_back, now.desired) if held_back > 0 else "",
        failed=told.reason if told.reason == EXCEEDED else "",
        failed_at=told.lastTransitionTime or told.lastUpdateTime,
        goes_on=told.status == "True",
        waits=WAITS if spec.waits else PAUSED if spec.paused else "",
    )


def has_rolled_out(kind: str, spec: bytes, status: bytes, *, generation: int) -> bool:
    """Whether a status says that all of the pods that are to have the template have it and are available: no later
    status of the same spec tells of a rollout. False where it cannot be read."""
    try:
        wanted, told = SPEC.decode(spec or b"{}"), STATUS.decode(status or b"{}")
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return False
    now = _progress(kind, wanted, told, at=_NO_TIME)
    return is_observed(told, generation) and _is_complete(now, rest=_rest(kind, wanted, told))


def is_observed(status: RawStatus, generation: int) -> bool:
    """Whether a status is of this generation, or a later one."""
    return status.observedGeneration >= generation > 0


def progressing(status: RawStatus) -> RawCondition:
    """The condition that says how a rollout goes; an empty one where there is none."""
    return next((found for found in status.conditions or () if found.type == "Progressing"), RawCondition())


def is_wait(reason: str) -> bool:
    """Whether a rollout's reason is that nothing moves by itself."""
    return reason == WAITS or reason.startswith(PAUSED)


def _progress(kind: str, spec: RawSpec, status: RawStatus, *, at: datetime) -> Progress:
    if kind == "DaemonSet":
        return Progress(at, status.desiredNumberScheduled, status.updatedNumberScheduled, status.numberAvailable)
    return Progress(at, spec.replicas, status.updatedReplicas, status.availableReplicas)


def _rest(kind: str, spec: RawSpec, status: RawStatus) -> int:
    """Old pods that still have to go (a Deployment's), or less than 0: so many may stay (a partition's)."""
    return max(0, status.replicas - status.updatedReplicas) if kind == "Deployment" else -spec.held_back


def _is_complete(now: Progress, *, rest: int) -> bool:
    """Pods that are too many, as it was scaled down amid the rollout, have to go first, unless they are available:
    kubectl rollout status waits for them, too."""
    is_updated = now.updated >= now.desired + min(rest, 0)
    return is_updated and now.available >= max(now.desired, now.updated) and rest <= 0


def _under_way(kind: str, spec: RawSpec, status: RawStatus) -> bool:
    """Whether a workload whose template nobody was seen to change is in the middle of a rollout, not of a scaling:
    more pods are of an older template than stay so."""
    if kind == "Deployment":
        reasons = {condition.reason for condition in status.conditions or () if condition.type == "Progressing"}
        return bool(reasons & _NEW)
    if spec.waits:
        return False
    if kind == "DaemonSet":
        return status.updatedNumberScheduled < status.currentNumberScheduled
    # Not what is left of all its pods: one that is going counts to them, and to no template.
    return status.currentRevision != status.updateRevision and status.currentReplicas > spec.held_back
