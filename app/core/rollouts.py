"""A workload's pod template and status over time -> Rollouts.

Done is what `kubectl rollout status` calls done: the controller has observed the generation, and updated, available and
desired replicas agree. Field facts: https://kubernetes.io/docs/concepts/workloads/controllers/deployment/#deployment-status
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import lru_cache

import msgspec

from app.core.body import Body
from app.core.model import Outcome, Progress, Resource, Rollout

KINDS = frozenset({"Deployment", "StatefulSet", "DaemonSet"})
MAX_PROGRESS = 20
_TEMPLATES = 10
"""How many earlier templates of a workload are remembered, to know a rollback when it comes."""


class RawCondition(msgspec.Struct, gc=False):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    lastTransitionTime: datetime | None = None  # noqa: N815 - the wire's name


class RawStatus(msgspec.Struct, gc=False):
    """The statuses of apps/v1 workloads, as one."""

    observedGeneration: int = 0  # noqa: N815
    replicas: int = 0
    updatedReplicas: int = 0  # noqa: N815
    availableReplicas: int = 0  # noqa: N815
    desiredNumberScheduled: int = 0  # noqa: N815
    updatedNumberScheduled: int = 0  # noqa: N815
    numberAvailable: int = 0  # noqa: N815
    conditions: list[RawCondition] | None = None


class RawContainer(msgspec.Struct, gc=False):
    image: str = ""


class RawPodSpec(msgspec.Struct, gc=False):
    containers: list[RawContainer] | None = None
    initContainers: list[RawContainer] | None = None  # noqa: N815


class RawTemplate(msgspec.Struct, gc=False):
    spec: RawPodSpec | None = None


class RawRollingUpdate(msgspec.Struct, gc=False):
    partition: int = 0


class RawUpdateStrategy(msgspec.Struct, gc=False):
    rollingUpdate: RawRollingUpdate | None = None  # noqa: N815


class RawSpec(msgspec.Struct, gc=False):
    replicas: int = 1
    template: msgspec.Raw = msgspec.Raw()
    updateStrategy: RawUpdateStrategy | None = None  # noqa: N815

    @property
    def held_back(self) -> int:
        """How many pods of a StatefulSet its partition keeps on the old template."""
        rolling = self.updateStrategy.rollingUpdate if self.updateStrategy else None
        return rolling.partition if rolling else 0


_spec = msgspec.json.Decoder(RawSpec)
_status = msgspec.json.Decoder(RawStatus)
_template = msgspec.json.Decoder(RawTemplate)


@dataclass(slots=True)
class _Workload:
    """What is known of one workload: its template now, those before it, and the rollout under way or last ended."""

    template: int
    images: tuple[str, ...]
    earlier: list[int] = field(default_factory=list)
    last: Rollout | None = None


class Rollouts:
    """The rollouts of one cluster. Bounded: the workloads seen longest ago are forgotten."""

    def __init__(self, limit: int = 20_000) -> None:
        self._limit = limit
        self._workloads: OrderedDict[Resource, _Workload] = OrderedDict()
        self._recalled: dict[Resource, Rollout] = {}

    def recall(self, last: Iterable[Rollout]) -> None:
        """The last rollout of each workload, as an earlier run left it: one under way goes on."""
        self._recalled = {rollout.resource: rollout for rollout in last}

    def observe(
        self, resource: Resource, body: Body, *, at: datetime, created: bool, begun_by: Callable[[], str | None]
    ) -> tuple[Rollout, ...]:
        """Rollouts that began, moved or ended with this version: each an upsert keyed (resource, started_at).

        ``created``: the object was made by this write. ``begun_by`` finds the id of the change that touched the
        template last; it is asked only where a rollout begins.
        """
        try:
            spec = _spec.decode(body.spec() or b"{}")
            status = _status.decode(body.status() or b"{}")
            template = _hash(bytes(spec.template))
            known = self._workloads.get(resource)
            images = known.images if known and known.template == template else _images(bytes(spec.template))
        except msgspec.MsgspecError:
            return ()
        progress = _progress(resource.kind, spec, status, at=at)
        generation = body.generation or 0
        found: list[Rollout] = []
        last = self._recalled.pop(resource, None) if known is None else None
        if last is not None and last.uid == body.uid:
            known = self._remember(resource, _Workload(template, images, last=last))
            change_id = begun_by() if generation > last.generation else None
            if generation > last.generation and (change_id or images != last.images):
                found += _end_last(known, template, at=at)
                known.last = _begin(resource, body, at=at, change_id=change_id, images=images, before=last.images)
        elif known is None:
            known = self._remember(resource, _Workload(template, images))
            change_id = begun_by()
            if created or change_id or _under_way(resource.kind, progress, status):
                known.last = _begin(resource, body, at=at, change_id=change_id, images=images, before=())
        elif known.template != template:
            found += _end_last(known, template, at=at)
            before, known.images = known.images, images
            known.earlier = [*known.earlier, known.template][-_TEMPLATES:]
            known.last = _begin(resource, body, at=at, change_id=begun_by(), images=images, before=before)
            if template in known.earlier:
                known.last = replace(known.last, reason="back to an earlier template")
            known.template = template
        if known.last is None or known.last.outcome not in (Outcome.RUNNING, Outcome.FAILED):
            return tuple(found)
        rest = max(0, status.replicas - status.updatedReplicas) if resource.kind == "Deployment" else -spec.held_back
        moved = _move(known.last, progress, status, generation=generation, rest=rest)
        if moved is not known.last or not known.last.progress:
            found.append(moved)
        known.last = moved
        return tuple(found)

    def forget(self, resource: Resource, at: datetime) -> tuple[Rollout, ...]:
        """The workload was deleted: what was under way will not be completed."""
        known = self._workloads.pop(resource, None)
        if known is None or known.last is None or known.last.outcome is not Outcome.RUNNING:
            return ()
        return (replace(known.last, outcome=Outcome.SUPERSEDED, ended_at=at, reason=f"{resource.kind} deleted"),)

    def _remember(self, resource: Resource, workload: _Workload) -> _Workload:
        self._workloads[resource] = workload
        if len(self._workloads) > self._limit:
            self._workloads.popitem(last=False)
        return workload


def _begin(
    resource: Resource,
    body: Body,
    *,
    at: datetime,
    change_id: str | None,
    images: tuple[str, ...],
    before: tuple[str, ...],
) -> Rollout:
    return Rollout(resource, body.uid, body.generation or 0, at, Outcome.RUNNING, None, change_id, images, before)


@lru_cache(maxsize=1024)
def _hash(template: bytes) -> int:
    """What tells one template from another, whatever spaces and order of keys it is written with: API servers write
    the order of the types, kubectl that of the alphabet."""
    return hash(msgspec.json.encode(msgspec.json.decode(template or b"null"), order="sorted"))


def _end_last(known: _Workload, template: int, *, at: datetime) -> list[Rollout]:
    """A newer template ends the rollout before it: superseded, or rolled back where the template is an earlier one."""
    last = known.last
    if last is None:
        return []
    if template in known.earlier:
        return [replace(last, outcome=Outcome.ROLLED_BACK, ended_at=last.ended_at or at)]
    if last.outcome in (Outcome.RUNNING, Outcome.FAILED):
        return [replace(last, outcome=Outcome.SUPERSEDED, ended_at=at)]
    return []


def _progress(kind: str, spec: RawSpec, status: RawStatus, *, at: datetime) -> Progress:
    if kind == "DaemonSet":
        return Progress(at, status.desiredNumberScheduled, status.updatedNumberScheduled, status.numberAvailable)
    return Progress(at, spec.replicas, status.updatedReplicas, status.availableReplicas)


def _move(rollout: Rollout, now: Progress, status: RawStatus, *, generation: int, rest: int) -> Rollout:
    """The rollout with what this status says; the same object where it says nothing new.

    ``rest``: old pods that still have to go (a Deployment's), or less than 0: so many may stay (a partition's).
    """
    observed = status.observedGeneration >= generation > 0
    # Until the controller has seen the template, the status tells of the pods of the one before it.
    if observed and not _same(rollout.progress, now):
        rollout = replace(rollout, progress=_thinned((*rollout.progress, now)))
    if not observed:
        return rollout
    if now.updated >= now.desired + min(rest, 0) and now.available >= now.desired and rest <= 0:
        return replace(rollout, outcome=Outcome.COMPLETE, ended_at=now.at, reason="")
    for condition in status.conditions or ():
        if condition.type == "Progressing" and condition.reason == "ProgressDeadlineExceeded":
            if rollout.outcome is Outcome.FAILED:
                return rollout
            ended = condition.lastTransitionTime or now.at
            return replace(
                rollout, outcome=Outcome.FAILED, ended_at=max(ended, rollout.started_at), reason=condition.reason
            )
    return rollout


def _under_way(kind: str, now: Progress, status: RawStatus) -> bool:
    """Whether a workload that is seen for the first time is in the middle of a rollout, not of a scaling."""
    if kind == "Deployment":
        reasons = {condition.reason for condition in status.conditions or () if condition.type == "Progressing"}
        return bool(reasons & {"ReplicaSetUpdated", "NewReplicaSetCreated", "FoundNewReplicaSet"})
    return 0 < now.updated < now.desired


def _same(progress: tuple[Progress, ...], now: Progress) -> bool:
    return bool(progress) and replace(progress[-1], at=now.at) == now


def _thinned(progress: tuple[Progress, ...]) -> tuple[Progress, ...]:
    """At most MAX_PROGRESS points: the first and the last stay, every second in between goes."""
    return progress if len(progress) <= MAX_PROGRESS else (progress[0], *progress[1:-1:2], progress[-1])


def _images(template: bytes) -> tuple[str, ...]:
    spec = _template.decode(template).spec if template else None
    if spec is None:
        return ()
    return tuple(
        container.image for container in (*(spec.containers or ()), *(spec.initContainers or ())) if container.image
    )
