"""A workload's pod template and status over time -> Rollouts. How it stands its controller says (standing.py)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache, partial
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from app.core.bounded import put
from app.core.changes import standing_argo
from app.core.changes.standing import SPEC, STATUS, Standing, is_wait, standing
from app.core.model import Json, Outcome, Progress, Resource, Rollout
from app.core.objects.body import AsBefore, Body, Shown
from app.core.objects.normalise import pod_template
from app.core.objects.raw_workload import RawArgoSpec, RawArgoStatus, RawSpec, RawStatus, RawTemplate
from app.core.objects.redact import decode

ARGO = ("argoproj.io", "Rollout")
KINDS = frozenset({("apps", "Deployment"), ("apps", "StatefulSet"), ("apps", "DaemonSet"), ARGO})
"""By API group and kind. OpenKruise has a kind Rollout of its own, which goes by another's pods."""
MAX_PROGRESS = 20
_TEMPLATES = 10
"""How many earlier templates of a workload are remembered, to know a rollback when it comes."""
_AT_ONCE = timedelta(seconds=10)
"""What was so for longer when it is seen was not seen as it happened: clocks are not so far apart, and conditions hold
whole seconds."""


_NO_TEMPLATE = msgspec.Raw()
_argo_spec = msgspec.json.Decoder(RawArgoSpec)
_argo_status = msgspec.json.Decoder(RawArgoStatus, strict=False)
"""Not strictly: its observedGeneration is a text."""
_template = msgspec.json.Decoder(RawTemplate)


@dataclass(slots=True)
class _Workload:
    """What is known of one workload: its template now, those before it, and the rollout under way or last ended.

    ``uid`` is of the object that has its name now. ``template`` is "" where it has another's and is not told yet.
    ``spec`` is without the template. ``held_back``: how many pods the partition kept when it was last seen, None before
    that. ``called``: a template, and what its controller calls it.
    """

    uid: str
    template: str
    images: tuple[str, ...]
    spec: RawSpec
    earlier: tuple[str, ...] = ()
    last: Rollout | None = None
    held_back: int | None = None
    called: tuple[str, str] = ("", "")


class _Said(NamedTuple):
    """What one version of a workload says: ``spec`` is without the template, whose fingerprint is ``template``, and
    ``generation`` that of the object which has the template."""

    spec: RawSpec
    stands: Standing
    template: str
    images: tuple[str, ...]
    generation: int


class Rollouts:
    """The rollouts of one cluster. Bounded: the workloads seen longest ago are forgotten.

    ``fingerprint`` makes a word of a template that is the same in every run and tells nothing of what is in it;
    ``clean`` leaves no secret in what a controller says in words.
    """

    def __init__(
        self, fingerprint: Callable[[Json], str], limit: int = 20_000, *, clean: Callable[[str], str] = str
    ) -> None:
        self._limit, self._clean = limit, clean
        # Whatever spaces and order of keys it is written with: API servers write the order of the types, kubectl that
        # of the alphabet. Most versions of a workload have the template of the one before.
        self._digest = lru_cache(maxsize=1024)(lambda raw: fingerprint(decode(raw or b"null")))
        self._digest_argo = lru_cache(maxsize=1024)(lambda raw: fingerprint(pod_template(decode(raw or b"null"))))
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
        said = (
            self._as_before(resource, body, spec_known, at=at)
            if isinstance(body, AsBefore)
            else self._said(resource, body, at=at)
        )
        if said is None:
            return ()
        spec, stands, template, images, generation = said
        found = [*self._end_of_another(resource, body, at)]
        begin = partial(_begin, resource, body.uid, generation, at=at)
        known = self._workloads.get(resource) or self._known(resource, body, template, images=images, spec=spec)
        if known is None:
            known = self._remember(resource, _Workload(body.uid, template, images, spec))
            change_id = begun_by()
            if created or change_id or stands.under_way:
                was_late = created and body.created is not None and at - body.created > _AT_ONCE
                started_at = body.created if was_late else None
                known.last = begin(known, change_id=change_id, before=(), started_at=started_at)
        elif _rests(known, spec):
            known.spec, known.held_back = spec, spec.held_back
            return tuple(found)
        elif known.template != template:
            found += _end_last(known, template, at=at)
            before = known.images
            known.earlier = (*known.earlier, *filter(None, [known.template]))[-_TEMPLATES:]
            known.template, known.images = template, images
            known.last = begin(known, change_id=begun_by(), before=before)
            if template in known.earlier:
                known.last = replace(known.last, reason="back to an earlier template")
        elif _is_let_go(known, spec) and stands.under_way:
            before = known.last.images_before if known.last else ()
            known.last = begin(known, change_id=begun_by(), before=before)
        known.spec, known.held_back = spec, spec.held_back
        stands = _of_this_template(known, stands)
        if known.last is None or _is_settled(known.last):
            return tuple(found)
        may_be_of = min(known.last.started_at, since or known.last.started_at)
        moved = _told_to_wait(_move(known.last, stands, since=may_be_of), stands)
        if moved is not known.last or not known.last.progress:
            found.append(moved)
        known.last = moved
        return tuple(found)

    def template_of(self, resource: Resource) -> Resource | None:
        """The workload whose pod template a workload has in place of one of its own; None for its own."""
        known = self._workloads.get(resource)
        told = known.spec.workloadRef if known and isinstance(known.spec, RawArgoSpec) else None
        return Resource(resource.cluster, "apps", told.kind, resource.namespace, told.name) if told else None

    def _said(self, resource: Resource, body: Body, *, at: datetime) -> _Said | None:
        """What a whole object says; None where it cannot be read, or does not tell its template yet."""
        try:
            spec = (_argo_spec if _is_argo(resource) else SPEC).decode(body.spec() or b"{}")
            status = _status_of(resource, body)
            digest = self._digest_argo if _is_argo(resource) else self._digest
            template = self._named_by(status) if _refers(spec) else digest(bytes(spec.template))
            known = self._workloads.get(resource)
            images = known.images if known and known.template == template else _images(bytes(spec.template))
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return None
        spec = replace(spec, template=_NO_TEMPLATE)
        if not template and known is None:
            self._remember(resource, _Workload(body.uid, template, images, spec))
        stands = self._stands(resource, body, spec, status, at)
        return _Said(spec, stands, template, images, _generation(body, spec, status)) if template else None

    def _as_before(
        self, resource: Resource, body: AsBefore, spec_known: Callable[[], Json], *, at: datetime
    ) -> _Said | None:
        """What a status says; None where it cannot be read, or what it belongs to is not known or settled."""
        known = self._workloads.get(resource) or self._taken_up(resource, body, spec_known)
        if known is None:
            return None
        refers = _refers(known.spec)
        if _is_settled(known.last) and not _is_let_go(known, known.spec) and not refers:
            return None
        try:
            status = _status_of(resource, body)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return None
        template = self._named_by(status) if refers else known.template
        stands = self._stands(resource, body, known.spec, status, at)
        generation = _generation(body, known.spec, status)
        return _Said(known.spec, stands, template, known.images, generation) if template else None

    def _stands(self, resource: Resource, body: Shown, spec: RawSpec, status: RawStatus, at: datetime) -> Standing:
        generation = body.generation or 0
        if isinstance(spec, RawArgoSpec) and isinstance(status, RawArgoStatus):
            return standing_argo.standing(spec, status, generation=generation, at=at, clean=self._clean)
        return standing(resource.kind, spec, status, generation=generation, at=at)

    def _named_by(self, status: RawStatus) -> str:
        """The template of a Rollout that has another workload's, by the hash that its controller has made of it; ""
        where it has not."""
        found = status.currentPodHash if isinstance(status, RawArgoStatus) else ""
        return self._digest(msgspec.json.encode(found)) if found else ""

    def _taken_up(self, resource: Resource, body: AsBefore, spec_known: Callable[[], Json]) -> _Workload | None:
        """A workload as an earlier run left it; None where that saw no rollout of it, or does not say which."""
        last = self._recalled.get(resource)
        if last is None or not last.templates:
            return None
        held = spec_known()
        kind = RawArgoSpec if _is_argo(resource) else RawSpec
        try:
            known = msgspec.convert({**held, "template": _NO_TEMPLATE} if isinstance(held, dict) else {}, kind)
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
        if last is None or last.uid != body.uid:
            return None
        if (body.generation or 0) < last.generation and not _refers(spec):
            return None
        templates = last.templates or (template if images == last.images else "",)  # a row older than its column
        return self._remember(resource, _Workload(body.uid, templates[0], last.images, spec, templates[:0:-1], last))

    def _remember(self, resource: Resource, workload: _Workload) -> _Workload:
        put(self._workloads, resource, workload, limit=self._limit)
        return workload


def _begin(
    resource: Resource,
    uid: str,
    generation: int,
    known: _Workload,
    *,
    at: datetime,
    change_id: str | None,
    before: tuple[str, ...],
    started_at: datetime | None = None,
) -> Rollout:
    return Rollout(
        resource,
        uid,
        generation,
        started_at or at,
        Outcome.RUNNING,
        change_id=change_id,
        images=known.images,
        images_before=before,
        templates=(known.template, *reversed(known.earlier)),
    )


def deleted(kind: str) -> str:
    """Why a rollout is over whose workload is gone."""
    return f"{kind} deleted"


def _of_this_template(known: _Workload, stands: Standing) -> Standing:
    """How a workload stands; as not observed where its controller has seen the generation, but tells of the template
    before, as Argo's may for a moment."""
    if not stands.observed or not stands.template:
        return stands
    template, called = known.called
    if stands.template == called and template != known.template:
        return stands._replace(observed=False, waits="")
    known.called = known.template, stands.template
    return stands


def _is_argo(resource: Resource) -> bool:
    return (resource.api_group, resource.kind) == ARGO


def _refers(spec: RawSpec) -> bool:
    """Whether it has the template of another workload."""
    return isinstance(spec, RawArgoSpec) and spec.workloadRef is not None


def _generation(body: Shown, spec: RawSpec, status: RawStatus) -> int:
    """A Rollout's own generation stays as it is when the workload whose template it has gets another one."""
    if isinstance(status, RawArgoStatus) and _refers(spec):
        return status.workloadObservedGeneration
    return body.generation or 0


def _status_of(resource: Resource, body: Shown) -> RawStatus:
    return (_argo_status if _is_argo(resource) else STATUS).decode(body.status() or b"{}")


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


def _move(rollout: Rollout, stands: Standing, *, since: datetime) -> Rollout:
    """The rollout with what its workload says now; the same object where it says nothing new.

    ``since``: a failure that is said to be of before is of the rollout before.
    """
    now = stands.now
    if not stands.observed:
        return rollout
    if not _same(rollout.progress, now):
        rollout = replace(rollout, progress=thinned((*rollout.progress, now)))
    if stands.complete:
        ended_at = max(_seen_late(stands, rollout), rollout.started_at)
        return replace(rollout, outcome=Outcome.COMPLETE, ended_at=ended_at, reason=stands.leaves)
    if stands.failed:
        failed_at = stands.failed_at or now.at
        # One from before the rollout tells of the rollout before: the controller has not looked at it again.
        if rollout.outcome is Outcome.FAILED or failed_at < since:
            return rollout
        ended_at = max(failed_at, rollout.started_at)
        return replace(rollout, outcome=Outcome.FAILED, ended_at=ended_at, reason=stands.failed)
    if rollout.outcome is Outcome.FAILED and stands.goes_on:
        return _goes_on(rollout, now)
    return rollout


def _seen_late(stands: Standing, rollout: Rollout) -> datetime:
    """When a rollout was complete that is seen to be so: what its workload says of that, where nobody looked then."""
    at, told = stands.now.at, stands.completed_at
    return told if told and rollout.started_at <= told < at - _AT_ONCE else at


def _told_to_wait(rollout: Rollout, stands: Standing) -> Rollout:
    """A rollout under way, saying that nothing moves by itself where that is so."""
    why, said = stands.waits, rollout.reason if is_wait(rollout.reason) else ""
    if rollout.outcome is not Outcome.RUNNING or why == said:
        return rollout
    return replace(_goes_on(rollout, stands.now) if said else rollout, reason=why)


def _goes_on(rollout: Rollout, now: Progress) -> Rollout:
    """What held a rollout up is over. The step makes this a later telling of it, though no count has changed."""
    progress = thinned((*rollout.progress, now))
    return replace(rollout, outcome=Outcome.RUNNING, ended_at=None, reason="", progress=progress)


def _rests(known: _Workload, spec: RawSpec) -> bool:
    """Whether there is nothing that may roll out: no pods are asked for, as of a Deployment whose template a Rollout of
    Argo's has. The template that it has by then rolls out when they are asked for again."""
    return spec.replicas == 0 and (known.last is None or _is_settled(known.last))


def _is_let_go(known: _Workload, spec: RawSpec) -> bool:
    """Whether a workload may roll out with the template that it has: no rollout of it was seen, or its partition holds
    fewer pods back than before."""
    if known.last is None:
        return True
    if known.last.resource.kind != "StatefulSet" or known.last.outcome is not Outcome.COMPLETE:
        return False
    return known.held_back is None or spec.held_back < known.held_back


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
