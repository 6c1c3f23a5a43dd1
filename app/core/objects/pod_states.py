"""What a pod's status says of it at one moment: what hurts, what has ended badly, what it waits for.

Reasons are those of the kubelet (https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/).
"""

from __future__ import annotations

from datetime import datetime, timedelta

from app.core.objects.raw_status import RawPodStatus
from app.core.objects.raw_workload import RawCondition
from app.core.objects.stalls import DEADLINE

PENDING_AFTER = timedelta(seconds=30)
"""A pod that runs nowhere for longer than this hurts, whatever the reason."""

UNREADY_AFTER = DEADLINE / 2
"""A pod that was never ready hurts when it runs for longer than this without: half the time after which Kubernetes
gives up a rollout (``progressDeadlineSeconds``, 600 by default). One that was ready hurts at once."""

_WAITING = frozenset(
    {
        *("CrashLoopBackOff", "ImagePullBackOff", "ErrImagePull", "InvalidImageName", "ErrImageNeverPull"),
        *("CreateContainerConfigError", "CreateContainerError", "RunContainerError", "RegistryUnavailable"),
    }
)
_SAME = {"ErrImagePull": "ImagePullBackOff"}
"""The kubelet alternates between the two while it retries: one symptom."""

EVICTED = "EvictionByEvictionAPI"
"""Why a pod is taken away where somebody asked for its eviction: a drain, a descheduler, an autoscaler
(https://kubernetes.io/docs/concepts/workloads/pods/disruptions/#pod-disruption-conditions)."""
PREEMPTED = "PreemptionByScheduler"
"""Why a pod is taken away to make room for one of higher priority. The scheduler's Event of it is none of type Warning
(https://kubernetes.io/docs/concepts/scheduling-eviction/pod-priority-preemption/)."""
NOT_SCALED_UP = "NotTriggerScaleUp"
"""What an autoscaler of nodes says of a pod for which it makes no node, and why; its Event is none of type Warning
(https://github.com/kubernetes/autoscaler/blob/master/cluster-autoscaler/FAQ.md#what-events-are-emitted-by-ca)."""
TAKEN = frozenset({EVICTED, PREEMPTED})
"""What becomes of a pod that nothing in its own workload brings about."""
DIED = frozenset({"OOMKilled", "Error"})
"""Why a container ended that ended badly."""
ENDINGS = DIED | TAKEN
"""The reasons of ``endings``, which are moments; the others last."""
CUT = 2048
"""Bytes of a container's log that the kubelet takes for its last words, where it wrote none: less than 80 lines
(https://kubernetes.io/docs/tasks/debug/debug-application/determine-reason-pod-failure/)."""

Found = dict[str, tuple[datetime, str]]
"""What hurts now: reason -> (since, message)."""


def condition_of(conditions: list[RawCondition] | None, kind: str) -> RawCondition | None:
    """The condition of one type, None where it is not told."""
    for condition in conditions or ():
        if condition.type == kind:
            return condition
    return None


def pod_states(status: RawPodStatus, at: datetime, *, created: datetime | None) -> Found:
    """The states that last: a container that waits for a bad reason, a pod that found no node, one that failed."""
    found: Found = {}
    for container in (*(status.initContainerStatuses or ()), *(status.containerStatuses or ())):
        waiting = container.state.waiting if container.state else None
        if waiting and waiting.reason in _WAITING:
            found.setdefault(_SAME.get(waiting.reason, waiting.reason), (at, f"{container.name}: {waiting.message}"))
    scheduled = condition_of(status.conditions, "PodScheduled")
    if status.phase == "Failed":
        found[status.reason or "Failed"] = (at, status.message)
    elif scheduled and scheduled.status == "False" and scheduled.reason == "Unschedulable":
        found["Unschedulable"] = (scheduled.lastTransitionTime or at, scheduled.message)
    elif status.phase == "Pending" and not found and created and at - created > PENDING_AFTER:
        found["Pending"] = (created, status.message)
    return found


def awaited(
    status: RawPodStatus, ready: RawCondition | None, at: datetime, *, created: datetime | None
) -> tuple[str, datetime, str] | None:
    """What a pod waits for that may yet come: to run, or to be ready. Since when, and in whose words."""
    if status.phase == "Pending":
        return ("Pending", created, status.message) if created else None
    if status.phase == "Succeeded" or ready is None or ready.status != "False":
        return None
    since = ready.lastTransitionTime or at
    return "Unready", since if since <= at else created or at, ready.message


def endings(status: RawPodStatus) -> list[tuple[str, datetime, str]]:
    """Containers that ended badly: (OOMKilled or Error, when, how), and that the pod is taken away. A container's last
    end is told at each sighting."""
    found = []
    target = condition_of(status.conditions, "DisruptionTarget")
    if target and target.status == "True" and target.reason in TAKEN and target.lastTransitionTime:
        found.append((target.reason, target.lastTransitionTime, target.message))
    for container in (*(status.initContainerStatuses or ()), *(status.containerStatuses or ())):
        for states in (container.state, container.lastState):
            ended = states.terminated if states else None
            if ended is None or ended.finishedAt is None or (ended.exitCode == 0 and ended.reason != "OOMKilled"):
                continue
            reason = "OOMKilled" if ended.reason == "OOMKilled" else "Error"
            words = _last_words(ended.message)
            message = f"{container.name} ended with exit code {ended.exitCode}{': ' if words else ''}{words}"
            found.append((reason, ended.finishedAt, message))
    return found


def _last_words(message: str) -> str:
    """What a container says of its end, without a first line that may be cut: half a secret is not known as one."""
    return message.partition("\n")[2] if len(message.encode("utf-8", "replace")) >= CUT else message
