"""Warning events, pod states, conditions of nodes, namespaces and custom resources -> Symptoms.

Reasons are those of the kubelet and the scheduler (https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/);
an event's own time is used, so that a repeat of the same event is the same symptom.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from dataclasses import replace as altered
from datetime import UTC, datetime, timedelta
from hashlib import blake2b

import msgspec
from msgspec.structs import replace

from app.core.bounded import put
from app.core.model import Resource, Symptom, SymptomSource
from app.core.objects.body import Shown
from app.core.objects.conditions import failing
from app.core.objects.pod_states import (
    ENDINGS,
    NOT_SCALED_UP,
    PENDING_AFTER,
    UNREADY_AFTER,
    Found,
    awaited,
    condition_of,
    endings,
    pod_states,
)
from app.core.objects.raw_status import RawEvent, RawNodeStatus, RawPodStatus
from app.core.objects.starting import Starting
from app.core.phrases import both_ends

UNSCHEDULED_AFTER = timedelta(seconds=10)
"""A pod that no scheduler has looked at for longer hurts: twice the scalability SLO of Kubernetes for starting a pod
(https://github.com/kubernetes/community/blob/master/sig-scalability/slos/pod_startup_latency.md)."""

_UNSEEN = "no scheduler has looked at it"
_CHOSEN = "a node was chosen, and it waits for volumes or devices there"
"""Of a pod that has a node to go to and no condition yet: its scheduler waits for what is to be there first
(https://github.com/kubernetes/enhancements/tree/master/keps/sig-scheduling/5278-nominated-node-name-for-expectation)."""
LONGEST = 500
"""Characters of a message that are kept."""
_LATE = {"Pending": PENDING_AFTER, "Unready": UNREADY_AFTER}
"""What hurts by lasting: nothing is written to a pod that goes on waiting."""
_PRESSURES = frozenset({"MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable"})


_event = msgspec.json.Decoder(RawEvent)
_pod = msgspec.json.Decoder(RawPodStatus)
_node = msgspec.json.Decoder(RawNodeStatus)


SPELL = timedelta(minutes=1)
"""For so long at most a warning's repeats are one symptom."""
LULL = timedelta(seconds=15)
"""A warning that was not told for longer has begun again: by default probes fail every ten seconds
(https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-v1/#Probe)."""


@dataclass(frozen=True, slots=True)
class _Spell:
    """A warning that is told again and again: when for the first and the last time, and how often."""

    first: datetime
    last: datetime
    told: datetime | None
    count: int


@dataclass(slots=True)
class _Seen:
    """What hurt at the last sighting of a pod or node. ``ready``: it has been ready.

    ``waits``: what will hurt if it lasts (a reason of _LATE, since when, the message); ``chosen``: a node was chosen.
    """

    open: dict[str, Symptom] = field(default_factory=dict)
    ready: bool = False
    waits: tuple[str, datetime, str] | None = None
    chosen: bool = False


class Symptoms:
    """The symptoms of one cluster. ``workload_of`` finds the top of an owner chain, ``text`` redacts a message.

    What is seen is seen ``at`` a time; ``told`` is when the API server had been told of it for sure (Symptom.told_at).
    """

    def __init__(
        self, workload_of: Callable[[Resource], Resource | None], text: Callable[[str], str], *, limit: int = 50_000
    ) -> None:
        self._workload_of = workload_of
        self._text = text
        self._limit = limit
        self._seen: dict[Resource, _Seen | None] = {}  # None: it has been ready, and nothing hurts
        self._spells: dict[str, _Spell] = {}
        self._events: dict[str, int] = {}
        self._starting = Starting()
        self._unscheduled: OrderedDict[Resource, datetime] = OrderedDict()  # the first of these are looked for often
        self._late: dict[str, OrderedDict[Resource, datetime]] = {reason: OrderedDict() for reason in _LATE}

    def recall(self, lately: Iterable[Symptom]) -> None:
        """What hurt when an earlier run ended: what has not ended since goes on, and warnings go on adding up."""
        for symptom in lately:
            if symptom.source is SymptomSource.EVENT:
                spell = _Spell(symptom.at, symptom.ended_at or symptom.at, symptom.told_at, symptom.count)
                put(self._spells, symptom.fingerprint, spell, limit=self._limit)
            elif symptom.resource and symptom.ended_at is None and symptom.reason not in ENDINGS:
                seen = self._seen.get(symptom.resource) or _Seen()
                seen.open[symptom.reason] = symptom
                put(self._seen, symptom.resource, seen, limit=self._limit)

    def await_node(self, resource: Resource, body: Shown) -> None:
        """Keep an eye on a pod that a watch shows, whoever told of it first: its binding would be seen (an audit log
        need not tell of it)."""
        if body.created and resource not in self._unscheduled:
            put(self._unscheduled, resource, body.created, limit=self._limit)

    def await_status(self, resource: Resource) -> None:
        """Keep an eye on a pod whose next status would be told too, as a watch or a log with status writes does."""
        seen = self._seen.get(resource)
        if seen is not None and seen.waits is not None:
            reason, since, _ = seen.waits
            if self._late[reason].get(resource) != since:  # the place in the line is that of the time
                self._late[reason].pop(resource, None)
                put(self._late[reason], resource, since, limit=self._limit)

    def overdue(self, at: datetime) -> tuple[Symptom, ...]:
        """Pods that nobody has put on a node until now, that run nowhere or are not ready: nothing is written to them,
        so time has to tell."""
        found: list[Symptom] = []
        for reason, waiting in self._late.items():
            if waiting:
                found += self._lasted(reason, waiting, at=at)
        while self._unscheduled:
            resource, created = next(iter(self._unscheduled.items()))
            if at - created <= UNSCHEDULED_AFTER:
                break
            del self._unscheduled[resource]
            seen = self._seen.get(resource)
            if seen is not None and "Pending" not in seen.open:
                message = _CHOSEN if seen.chosen else _UNSEEN
                symptom = self._symptom(SymptomSource.POD, resource, "Pending", since=created, message=message)
                seen.open["Pending"] = symptom
                found.append(symptom)
        return tuple(found)

    def _lasted(self, reason: str, waiting: OrderedDict[Resource, datetime], *, at: datetime) -> list[Symptom]:
        found: list[Symptom] = []
        while waiting:
            resource, since = next(iter(waiting.items()))
            if at - since <= _LATE[reason]:
                break
            del waiting[resource]
            seen = self._seen.get(resource)
            if seen is None or seen.open or seen.waits is None or seen.waits[:2] != (reason, since):
                continue
            symptom = self._symptom(SymptomSource.POD, resource, reason, since=since, message=seen.waits[2])
            seen.open[reason] = symptom
            found.append(symptom)
        return found

    def event(self, cluster: str, raw: bytes, *, at: datetime, told: datetime | None = None) -> tuple[Symptom, ...]:
        """A Warning event, or one that says why pods get no node: one symptom for each object, reason and spell, whose
        count grows. Others teach nothing."""
        try:
            event = _event.decode(raw)
        except (msgspec.MsgspecError, ValueError):
            return ()
        about = event.involvedObject or event.regarding
        hurts = event.type == "Warning" or event.reason == NOT_SCALED_UP
        if not hurts or about is None or not about.name:
            return ()
        total = (event.series.count if event.series else 0) or event.count or event.deprecatedCount or 1
        uid = event.metadata.uid or event.metadata.name
        before = self._events.get(uid, 0)
        if total <= before:
            return ()
        put(self._events, uid, total, limit=self._limit)
        group, _, version = about.apiVersion.rpartition("/")
        resource = Resource(cluster, group if version else "", about.kind, about.namespace or None, about.name)
        when = _event_time(event) or at
        fingerprint = _fingerprint(SymptomSource.EVENT, resource, event.reason)
        spell = self._spells.get(fingerprint)
        if spell is None or not spell.first - LULL <= when <= min(spell.last + LULL, spell.first + SPELL):
            spell = _Spell(when, when, told, 0)
        # A first sight of an old event says how often in all, not how often just now.
        more = total - before if before else 1
        spell = altered(spell, last=max(spell.last, when), count=spell.count + more)
        put(self._spells, fingerprint, spell, limit=self._limit)
        symptom = Symptom(
            SymptomSource.EVENT,
            event.reason,
            spell.first,
            fingerprint,
            resource,
            self._workload_of(resource),
            both_ends(self._text(event.message or event.note), LONGEST),
            "warning",
            spell.count,
            ended_at=spell.last,
            told_at=spell.told,
        )
        return (self._starting.heard(symptom, was_ready=self._was_ready(resource)),)

    def pod(
        self, resource: Resource, body: Shown, *, at: datetime, told: datetime | None = None
    ) -> tuple[Symptom, ...]:
        """What a pod's status says: states that began, and those that ended since the last sighting."""
        try:
            status = _pod.decode(body.status() or b"{}")
        except (msgspec.MsgspecError, ValueError):
            return ()
        seen = self._seen_of(resource)
        seen.chosen = bool(status.nominatedNodeName)
        ready = condition_of(status.conditions, "Ready")
        lasting = {} if body.deleting else pod_states(status, at, created=body.created)
        if status.conditions or status.phase != "Pending" or body.deleting:
            self._unscheduled.pop(resource, None)
        elif "Pending" in seen.open:
            lasting["Pending"] = (seen.open["Pending"].at, "")
        seen.waits = None
        if not lasting and not body.deleting:
            waits = awaited(status, ready, at, created=body.created)
            if waits and waits[0] == "Unready" and (seen.ready or at - waits[1] > UNREADY_AFTER):
                lasting["Unready"] = waits[1:]
            else:
                seen.waits = waits
        starts = not seen.ready
        seen.ready = seen.ready or bool(ready and ready.status == "True")
        found = self._changed(SymptomSource.POD, resource, seen, lasting, at=at, told=told)
        self._keep(resource, seen)
        if starts and ready and ready.status == "True":
            found += self._starting.ready(resource, ready.lastTransitionTime or at, at=at)
        for reason, since, message in endings(status):
            found.append(self._symptom(SymptomSource.POD, resource, reason, since=since, message=message, told=told))
        return tuple(found)

    def node(
        self, resource: Resource, body: Shown, *, at: datetime, told: datetime | None = None
    ) -> tuple[Symptom, ...]:
        """What a node's conditions say."""
        try:
            conditions = _node.decode(body.status() or b"{}").conditions or []
        except (msgspec.MsgspecError, ValueError):
            return ()
        seen = self._seen_of(resource)
        lasting: Found = {}
        for condition in conditions:
            since = condition.lastTransitionTime or at
            if condition.type == "Ready" and condition.status != "True":
                lasting["NodeNotReady"] = (since, condition.message)
            elif condition.type in _PRESSURES and condition.status == "True":
                lasting[condition.type] = (since, condition.message)
        found = self._changed(SymptomSource.NODE, resource, seen, lasting, at=at, told=told)
        self._keep(resource, seen)
        return tuple(found)

    def conditions(
        self, resource: Resource, body: Shown, *, at: datetime, told: datetime | None = None
    ) -> tuple[Symptom, ...]:
        """What the conditions of any other object say; of one that is being deleted, those of a Namespace alone."""
        goes = body.deleting and resource.kind != "Namespace"
        lasting = {} if goes else failing(body.status() or b"{}", at)
        if not lasting and resource not in self._seen:
            return ()
        seen = self._seen_of(resource)
        found = self._changed(SymptomSource.CONDITION, resource, seen, lasting, at=at, told=told)
        self._keep(resource, seen)
        return tuple(found)

    def forget(self, resource: Resource, at: datetime) -> tuple[Symptom, ...]:
        """The pod or node is gone: what hurt has ended."""
        self._unscheduled.pop(resource, None)
        self._starting.forget(resource)
        seen = self._seen.pop(resource, None)
        return tuple(replace(symptom, ended_at=max(at, symptom.at)) for symptom in seen.open.values()) if seen else ()

    def _was_ready(self, resource: Resource) -> bool:
        seen = self._seen.get(resource)
        return seen.ready if seen is not None else resource in self._seen

    def _seen_of(self, resource: Resource) -> _Seen:
        """What hurt when the object was last seen, to be altered and kept."""
        return self._seen.get(resource) or _Seen(ready=resource in self._seen)

    def _keep(self, resource: Resource, seen: _Seen) -> None:
        is_well = seen.ready and not seen.open and seen.waits is None
        put(self._seen, resource, None if is_well else seen, limit=self._limit)

    def _changed(
        self,
        source: SymptomSource,
        resource: Resource,
        seen: _Seen,
        lasting: Found,
        *,
        at: datetime,
        told: datetime | None,
    ) -> list[Symptom]:
        found: list[Symptom] = []
        if not seen.open and not lasting:
            return found
        for reason in [reason for reason in seen.open if reason not in lasting]:
            symptom = seen.open.pop(reason)
            found.append(replace(symptom, ended_at=max(at, symptom.at)))
        for reason, (since, message) in lasting.items():
            if reason not in seen.open:
                seen.open[reason] = self._symptom(source, resource, reason, since=since, message=message, told=told)
                found.append(seen.open[reason])
        return found

    def _symptom(
        self,
        source: SymptomSource,
        resource: Resource,
        reason: str,
        *,
        since: datetime,
        message: str,
        told: datetime | None = None,
    ) -> Symptom:
        return Symptom(
            source,
            reason,
            since.astimezone(UTC),
            _fingerprint(source, resource, reason),
            resource,
            self._workload_of(resource),
            both_ends(self._text(message), LONGEST),
            "warning",
            told_at=told,
        )


def _fingerprint(source: SymptomSource, resource: Resource, reason: str) -> str:
    parts = (source, resource.api_group, resource.kind, resource.namespace or "", resource.name, reason)
    return blake2b("\0".join(parts).encode("utf-8", "replace"), digest_size=12).hexdigest()


def _event_time(event: RawEvent) -> datetime | None:
    last = event.series.lastObservedTime if event.series else None
    when = (
        last
        or event.lastTimestamp
        or event.deprecatedLastTimestamp
        or event.eventTime
        or event.metadata.creationTimestamp
    )
    return when.astimezone(UTC) if when else None
