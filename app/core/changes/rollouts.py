"""A workload's pod template and status over time -> Rollouts.

Done is what `kubectl rollout status` calls done: the controller has observed the generation, and updated, available and
desired replicas agree. Field facts: https://kubernetes.io/docs/concepts/workloads/controllers/deployment/#deployment-status
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache, partial
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from app.core.bounded import put
from app.core.model import Json, Outcome, Progress, Resource, Rollout
from app.core.objects.body import AsBefore, Body, Shown
from app.core.objects.raw_workload import RawCondition, RawSpec, RawStatus, RawTemplate
from app.core.objects.redact import decode
from app.core.objects.stalls import EXCEEDED

KINDS = frozenset({"Deployment", "StatefulSet", "DaemonSet"})
MAX_PROGRESS = 20
_TEMPLATES = 10
"""How many earlier templates of a workload are remembered, to know a rollback when it comes."""
WAITS = "waits for deletions of its pods: its update strategy is OnDelete"
PAUSED = "is paused"
HELD_BACK = "its partition keeps {} of {} pods as they were"
_NO_TIME = datetime.min.replace(tzinfo=UTC)
_AVAILABLE = "NewReplicaSetAvailable"
_AT_ONCE = timedelta(seconds=10)
"""What was so for longer when it is seen was not seen as it happened: clocks are not so far apart, and conditions hold
whole seconds."""


_NO_TEMPLATE = msgspec.Raw()
_spec = msgspec.json.Decoder(RawSpec)
_status = msgspec.json.Decoder(RawStatus)
_template = msgspec.json.Decoder(RawTemplate)


@dataclass(slots=True)
class _Workload:
    """What is known of one workload: its template now, those before it, and the rollout under way or last ended.

    ``uid`` is of the object that has its name now. ``spec`` is without the template. ``held_back``: how many pods the
    partition kept when it was last seen, None before that.
    """

    uid: str
    template: str
    images: tuple[str, ...]
    spec: RawSpec
    earlier: tuple[str, ...] = ()
    last: Rollout | None = None
    held_back: int | None = None


class _Said(NamedTuple):
    """What one version of a workload says: ``spec`` is without the template, whose fingerprint is ``template``."""

    spec: RawSpec
    status: RawStatus
    template: str
    images: tuple[str, ...]


class Rollouts:
    """The rollouts of one cluster. Bounded: the workloads seen longest ago are forgotten.

    ``fingerprint`` makes a word of a template that is the same in every run and tells nothing of what is in it.
    """

    def __init__(self, fingerprint: Callable[[Json], str], limit: int = 20_000) -> None:
        self._limit = limit
        # Whatever spaces and order of keys it is written with: API servers write the order of the types, kubectl that
        # of the alphabet. Most versions of a workload have the template of the one before.
        self._digest = lru_cache(maxsize=1024)(lambda raw: fingerprint(decode(raw or b"null")))
        self._workloads: dict[Resource, _Workload] = {}
        self._recalled: dict[Resource, Rollout] = {}

    def recall(self, last: Iterable[Rollout]) -> None:
        """The last rollout of each workload, as an earlier run left it: one under way goes on."""
        self._recalled = {rollout.resource: rollout for rollout in sorted(last, key=lambda one: one.started_at)}

    def observe(
        self,
        resource: Resource,
        body: Shown,
        *,
        at: datetime,
        created: bool,
        begun_by: Callable[[], str | None],
        spec_known: Callable[[], Json] = lambda: None,
        since: datetime | None = None,
    ) -> tuple[Rollout, ...]:
        """Rollouts that began, moved or ended with this version: each an upsert keyed (resource, started_at).

        ``created``: the object was made by this write, or nobody saw it made. ``begun_by`` finds the id of the change
        that touched the template last; it is asked only where a rollout begins. ``spec_known`` is the spec without
        secrets: it is asked only where neither the body nor what was observed here tells of it. ``since``: what is new
        in this version may have been so from then on, unseen.
        """
        said = self._as_before(resource, body, spec_known) if isinstance(body, AsBefore) else self._said(resource, body)
        if said is None:
            return ()
        spec, status, template, images = said.spec, said.status, said.template, said.images
        progress = _progress(resource.kind, spec, status, at=at)
        generation = body.generation or 0
        found = [*self._end_of_another(resource, body, at)]
        begin = partial(_begin, resource, body, at=at, images=images)
        known = self._workloads.get(resource) or self._known(resource, body, template, images=images, spec=spec)
        if known is None:
            known = self._remember(resource, _Workload(body.uid, template, images, spec))
            change_id = begun_by()
            if created or change_id or _under_way(resource.kind, spec, status):
                was_late = created and body.created is not None and at - body.created > _AT_ONCE
                started_at = body.created if was_late else None
                known.last = begin(known, change_id=change_id, before=(), started_at=started_at)
        elif known.template != template:
            found += _end_last(known, template, at=at)
            before = known.images
            known.earlier = (*known.earlier, known.template)[-_TEMPLATES:]
            known.template, known.images = template, images
            known.last = begin(known, change_id=begun_by(), before=before)
            if template in known.earlier:
                known.last = replace(known.last, reason="back to an earlier template")
        elif _is_let_go(known, spec) and _under_way(resource.kind, spec, status):
            before = known.last.images_before if known.last else ()
            known.last = begin(known, change_id=begun_by(), before=before)
        known.spec, known.held_back = spec, spec.held_back
        if known.last is None or _is_settled(known.last):
            return tuple(found)
        rest = _rest(resource.kind, spec, status)
        may_be_of = min(known.last.started_at, since or known.last.started_at)
        moved = _move(known.last, progress, status, generation=generation, rest=rest, since=may_be_of)
        moved = _told_to_wait(moved, spec, progress)
        if moved is not known.last or not known.last.progress:
            found.append(moved)
        known.last = moved
        return tuple(found)

    def _said(self, resource: Resource, body: Body) -> _Said | None:
        """What a whole object says; None where it cannot be read."""
        try:
            spec = _spec.decode(body.spec() or b"{}")
            status = _status.decode(body.status() or b"{}")
            raw = bytes(spec.template)
            template = self._digest(raw)
            known = self._workloads.get(resource)
            images = known.images if known and known.template == template else _images(raw)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return None
        return _Said(replace(spec, template=_NO_TEMPLATE), status, template, images)

    def _as_before(self, resource: Resource, body: AsBefore, spec_known: Callable[[], Json]) -> _Said | None:
        """What a status says; None where it cannot be read, or what it belongs to is not known or settled."""
        known = self._workloads.get(resource) or self._taken_up(resource, body, spec_known)
        if known is None or (_is_settled(known.last) and not _is_let_go(known, known.spec)):
            return None
        try:
            status = _status.decode(body.status() or b"{}")
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return None
        return _Said(known.spec, status, known.template, known.images)

    def _taken_up(self, resource: Resource, body: AsBefore, spec_known: Callable[[], Json]) -> _Workload | None:
        """A workload as an earlier run left it; None where that saw no rollout of it, or does not say which."""
        last = self._recalled.get(resource)
        if last is None or not last.templates:
            return None
        held = spec_known()
        try:
            known = msgspec.convert({**held, "template": _NO_TEMPLATE} if isinstance(held, dict) else {}, RawSpec)
        except msgspec.ValidationError:
            return None
        return self._known(resource, body, last.templates[0], images=last.images, spec=known)

    def forget(self, resource: Resource, at: datetime) -> tuple[Rollout, ...]:
        """The workload was deleted: what was under way will not be completed, though an earlier run saw it begin."""
        known, last = self._workloads.pop(resource, None), self._recalled.get(resource)
        if known is not None:
            last = known.last
        elif last is not None and at < last.started_at:  # of one that had the name before
            return ()
        self._recalled.pop(resource, None)
        if last is None or last.outcome is not Outcome.RUNNING:
            return ()
        ended_at = max(at, last.started_at)
        return (replace(last, outcome=Outcome.SUPERSEDED, ended_at=ended_at, reason=deleted(resource.kind)),)

    def _end_of_another(self, resource: Resource, body: Shown, at: datetime) -> tuple[Rollout, ...]:
        """Nobody saw the end of the workload that had this name before: it was over when this one was created."""
        known, recalled = self._workloads.get(resource), self._recalled.get(resource)
        uid = known.uid if known else recalled.uid if recalled else body.uid
        if uid == body.uid or not (uid and body.uid):
            return ()
        return self.forget(resource, body.created or at)

    def _known(
        self, resource: Resource, body: Shown, template: str, *, images: tuple[str, ...], spec: RawSpec
    ) -> _Workload | None:
        """A workload as an earlier run left it; None where that knew none, or a later version of it."""
        last = self._recalled.pop(resource, None)
        if last is None or last.uid != body.uid or (body.generation or 0) < last.generation:
            return None
        templates = last.templates or (template if images == last.images else "",)  # a row older than its column
        return self._remember(resource, _Workload(body.uid, templates[0], last.images, spec, templates[:0:-1], last))

    def _remember(self, resource: Resource, workload: _Workload) -> _Workload:
        put(self._workloads, resource, workload, limit=self._limit)
        return workload


def _begin(
    resource: Resource,
    body: Shown,
    known: _Workload,
    *,
    at: datetime,
    change_id: str | None,
    images: tuple[str, ...],
    before: tuple[str, ...],
    started_at: datetime | None = None,
) -> Rollout:
    return Rollout(
        resource,
        body.uid,
        body.generation or 0,
        started_at or at,
        Outcome.RUNNING,
        change_id=change_id,
        images=images,
        images_before=before,
        templates=(known.template, *reversed(known.earlier)),
    )


def deleted(kind: str) -> str:
    """Why a rollout is over whose workload is gone."""
    return f"{kind} deleted"


def has_rolled_out(kind: str, spec: bytes, status: bytes, *, generation: int) -> bool:
    """Whether a status says that all of the pods that are to have the template have it and are available: no later
    status of the same spec tells of a rollout. False where it cannot be read."""
    try:
        wanted, told = _spec.decode(spec or b"{}"), _status.decode(status or b"{}")
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return False
    observed = told.observedGeneration >= generation > 0
    now = _progress(kind, wanted, told, at=_NO_TIME)
    return observed and _is_complete(now, rest=_rest(kind, wanted, told))


def _is_settled(last: Rollout | None) -> bool:
    """Whether a rollout has ended for good: a failed one may yet go on."""
    return last is not None and last.outcome not in (Outcome.RUNNING, Outcome.FAILED)


def _end_last(known: _Workload, template: str, *, at: datetime) -> list[Rollout]:
    """A newer template ends the rollout before it: superseded, or rolled back where the template is an earlier one."""
    last = known.last
    if last is None:
        return []
    why = last.reason if last.outcome is Outcome.FAILED else ""  # else it tells of what is over now
    if template in known.earlier:
        return [replace(last, outcome=Outcome.ROLLED_BACK, ended_at=last.ended_at or at, reason=why)]
    if last.outcome in (Outcome.RUNNING, Outcome.FAILED):
        return [replace(last, outcome=Outcome.SUPERSEDED, ended_at=at, reason=why)]
    return []


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


def _move(
    rollout: Rollout, now: Progress, status: RawStatus, *, generation: int, rest: int, since: datetime
) -> Rollout:
    """The rollout with what this status says; the same object where it says nothing new. ``rest`` as of _rest.

    ``since``: what a condition says to have been before is of the rollout before.
    """
    observed = status.observedGeneration >= generation > 0
    # Until the controller has seen the template, the status tells of the pods of the one before it.
    if observed and not _same(rollout.progress, now):
        rollout = replace(rollout, progress=thinned((*rollout.progress, now)))
    if not observed:
        return rollout
    condition = next((found for found in status.conditions or () if found.type == "Progressing"), RawCondition())
    is_over = condition.reason == _AVAILABLE and status.replicas == status.updatedReplicas > 0
    if is_over or _is_complete(now, rest=rest):
        held_back = now.desired - now.updated if rest < 0 else 0
        ended_at = max(_seen_late(condition, rollout, at=now.at), rollout.started_at)
        reason = HELD_BACK.format(held_back, now.desired) if held_back > 0 else ""
        return replace(rollout, outcome=Outcome.COMPLETE, ended_at=ended_at, reason=reason)
    failed_at = condition.lastTransitionTime or condition.lastUpdateTime or now.at
    if condition.reason == EXCEEDED:
        # One from before the rollout tells of the rollout before: the controller has not looked at it again.
        if rollout.outcome is Outcome.FAILED or failed_at < since:
            return rollout
        ended_at = max(failed_at, rollout.started_at)
        return replace(rollout, outcome=Outcome.FAILED, ended_at=ended_at, reason=condition.reason)
    if rollout.outcome is Outcome.FAILED and condition.status == "True":
        return _goes_on(rollout, now)
    return rollout


def _seen_late(condition: RawCondition, rollout: Rollout, *, at: datetime) -> datetime:
    """When a rollout was complete that is seen to be so: what a Deployment says of that, where nobody looked then."""
    told = condition.lastUpdateTime if condition.reason == _AVAILABLE else None
    return told if told and rollout.started_at <= told < at - _AT_ONCE else at


def _told_to_wait(rollout: Rollout, spec: RawSpec, now: Progress) -> Rollout:
    """A rollout under way, saying that nothing moves by itself where that is so."""
    why = WAITS if spec.waits else PAUSED if spec.paused else ""
    said = rollout.reason if rollout.reason in (WAITS, PAUSED) else ""
    if rollout.outcome is not Outcome.RUNNING or why == said:
        return rollout
    return replace(rollout, reason=why) if why else _goes_on(rollout, now)


def _goes_on(rollout: Rollout, now: Progress) -> Rollout:
    """What held a rollout up is over. The step makes this a later telling of it, though no count has changed."""
    progress = thinned((*rollout.progress, now))
    return replace(rollout, outcome=Outcome.RUNNING, ended_at=None, reason="", progress=progress)


def _is_let_go(known: _Workload, spec: RawSpec) -> bool:
    """Whether a workload may roll out with the template that it has: no rollout of it was seen, or its partition holds
    fewer pods back than before."""
    if known.last is None:
        return True
    if known.last.resource.kind != "StatefulSet" or known.last.outcome is not Outcome.COMPLETE:
        return False
    return known.held_back is None or spec.held_back < known.held_back


def _under_way(kind: str, spec: RawSpec, status: RawStatus) -> bool:
    """Whether a workload whose template nobody was seen to change is in the middle of a rollout, not of a scaling:
    more pods are of an older template than stay so."""
    if kind == "Deployment":
        reasons = {condition.reason for condition in status.conditions or () if condition.type == "Progressing"}
        return bool(reasons & {"ReplicaSetUpdated", "NewReplicaSetCreated", "FoundNewReplicaSet"})
    if spec.waits:
        return False
    if kind == "DaemonSet":
        return status.updatedNumberScheduled < status.currentNumberScheduled
    # Not what is left of all its pods: one that is going counts to them, and to no template.
    return status.currentRevision != status.updateRevision and status.currentReplicas > spec.held_back


def _same(progress: tuple[Progress, ...], now: Progress) -> bool:
    return bool(progress) and replace(progress[-1], at=now.at) == now


def thinned(progress: tuple[Progress, ...], *, most: int = MAX_PROGRESS) -> tuple[Progress, ...]:
    """At most so many points: the first and the last stay, every second in between goes."""
    while len(progress) > most:
        progress = progress[0], *progress[1:-1:2], progress[-1]
    return progress


def _images(template: bytes) -> tuple[str, ...]:
    spec = _template.decode(template).spec if template else None
    if spec is None:
        return ()
    return tuple(
        container.image for container in (*(spec.containers or ()), *(spec.initContainers or ())) if container.image
    )
