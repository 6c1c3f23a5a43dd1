"""Lines of an audit log and of a watch -> one Batch at a time. Holds what is known of one cluster between batches.

A line that cannot be used becomes a Reject and never stops the rest.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import msgspec

from app.collect.files import Line
from app.collect.repeats import Repeats
from app.core import audit
from app.core.model import (
    Batch,
    CallCount,
    CallKey,
    Change,
    Gap,
    ObjectState,
    Position,
    Reject,
    Request,
    Resource,
    Rollout,
    Symptom,
    Verb,
)
from app.core.redact import Redactor
from app.core.sightings import Sighting
from app.core.tracker import Tracker

JUST_CREATED = timedelta(seconds=5)
"""A watch's ADDED of an older object is part of its first LIST: the object was seen, not created."""
EARLIEST = timedelta(days=400)
LATEST = timedelta(days=1)
KEY_CACHE = 50_000


class RawMeta(msgspec.Struct, gc=False):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resourceVersion: str = ""  # noqa: N815 - the wire's name
    creationTimestamp: datetime | None = None  # noqa: N815


class RawObject(msgspec.Struct, gc=False):
    kind: str = ""
    apiVersion: str = ""  # noqa: N815
    metadata: RawMeta = msgspec.field(default_factory=RawMeta)
    message: str = ""
    code: int = 0


class RawWatchEvent(msgspec.Struct, gc=False):
    type: str
    object: msgspec.Raw
    at: datetime | None = None


_watch_event = msgspec.json.Decoder(RawWatchEvent)
_object = msgspec.json.Decoder(RawObject)


@dataclass(slots=True)
class Tally:
    """What an import tells at its end."""

    lines: int = 0
    calls: int = 0
    changes: int = 0
    no_ops: int = 0
    failed_writes: int = 0
    rejects: int = 0
    repeated: int = 0


@dataclass(slots=True)
class Intake:
    """Collects what lines teach until ``take`` turns it into a Batch."""

    cluster: str
    redactor: Redactor
    tracker: Tracker
    now: datetime
    """The import's start: an event's time must lie within EARLIEST before it and LATEST after."""
    tally: Tally = field(default_factory=Tally)
    latest: datetime | None = None
    _changes: list[Change] = field(default_factory=list)
    _improvements: list[Change] = field(default_factory=list)
    _states: dict[Resource, ObjectState] = field(default_factory=dict)
    _rollouts: dict[tuple[Resource, datetime], Rollout] = field(default_factory=dict)
    _symptoms: dict[tuple[str, datetime], Symptom] = field(default_factory=dict)
    _calls: dict[tuple[CallKey, int], list[int]] = field(default_factory=dict)
    _requests: list[Request] = field(default_factory=list)
    _gaps: list[Gap] = field(default_factory=list)
    _rejects: list[Reject] = field(default_factory=list)
    _keys: dict[tuple[object, ...], CallKey] = field(default_factory=dict)
    _repeats: Repeats = field(default_factory=Repeats)
    pending: int = 0

    def audit_event(self, event: audit.RawAuditEvent) -> list[Sighting]:
        """Count the call, once; give back the objects it wrote, to be observed."""
        if audit.is_counted(event):
            if self._repeats.told(event):
                self.tally.repeated += 1
                return []
            self._count(event)
        return audit.sightings(self.cluster, event)

    def _count(self, event: audit.RawAuditEvent) -> None:
        key = self._key(event)
        latency = audit.latency_us(event) if event.verb != "watch" else 0
        slot = audit.slot_of(event.requestReceivedTimestamp)
        cell = self._calls.get((key, slot))
        if cell is None:
            self._calls[(key, slot)] = [1, latency]
            self.pending += 1
        else:
            cell[0] += 1
            cell[1] += latency
        self.tally.calls += 1
        request = audit.request_row(self.cluster, event, key)
        if request:
            self._requests.append(request)
            self.pending += 1
            if key.code >= 400:
                self.tally.failed_writes += 1

    def _key(self, event: audit.RawAuditEvent) -> CallKey:
        ref, status, user = event.objectRef, event.responseStatus, event.user
        raw = (
            user.username,
            event.userAgent,
            event.verb,
            (ref.apiGroup, ref.resource, ref.subresource, ref.namespace) if ref else event.requestURI[:100],
            status.code if status else 0,
            status.message if status and status.code >= 400 else "",
            audit.list_class(event.requestURI) if event.verb == "list" else "",
            user.extra.get("authentication.kubernetes.io/pod-name", ("",))[0] if user.extra else "",
            event.stage == "Panic",
        )
        key = self._keys.get(raw)
        if key is None:
            if len(self._keys) >= KEY_CACHE:
                self._keys.clear()
            key = self._keys[raw] = audit.call_key(event, self.redactor)
        return key

    def watch_event(self, event: RawWatchEvent, at: datetime) -> list[Sighting]:
        """The object of one watch event, to be observed; an ERROR is a gap, a BOOKMARK nothing."""
        if event.type == "BOOKMARK":
            return []
        peek = _object.decode(event.object)
        if event.type == "ERROR":
            since = self.latest or at
            self._gaps.append(
                Gap(self.cluster, "", since, at, f"watch ended: {self.redactor.text(peek.message)} ({peek.code})")
            )
            self.pending += 1
            return []
        return [_sighting(self.cluster, event, peek, at)]

    def dump_item(self, raw: msgspec.Raw, at: datetime) -> Sighting:
        """One object of a dump, seen at ``at`` at the latest, to be observed."""
        return _seen(self.cluster, bytes(raw), _object.decode(raw), at, source="state", verb=None)

    def held_back(self, resource: Resource) -> ObjectState | None:
        """What was learned of an object since the last ``take``: newer than what the store has."""
        return self._states.get(resource)

    def observe(self, sighting: Sighting) -> None:
        """Learn from one sighting, in the order of what happened."""
        learned = self.tracker.observe(sighting)
        self.latest = max(self.latest, sighting.at) if self.latest else sighting.at
        if learned.no_op:
            self.tally.no_ops += 1
        self._changes += learned.changes
        self._improvements += learned.improvements
        for state in learned.states:
            self._states[state.resource] = state
        for rollout in learned.rollouts:
            self._rollouts[(rollout.resource, rollout.started_at)] = rollout
        for symptom in learned.symptoms:
            self._symptoms[(symptom.fingerprint, symptom.at)] = symptom
        self.pending += (
            len(learned.changes)
            + len(learned.improvements)
            + len(learned.states)
            + len(learned.rollouts)
            + len(learned.symptoms)
        )

    def reject(self, source: str, line: Line, reason: str, *, column: int = 1) -> None:
        """Count a line as refused, and keep it for quarantine, redacted. ``column`` counts bytes from 1."""
        said, excerpt = self.redactor.text(reason)[:300], self.redactor.excerpt(line.data)
        self._rejects.append(Reject(source, line.number, column, said, excerpt))
        self.tally.rejects += 1
        self.pending += 1

    def check_time(self, at: datetime) -> str:
        """Why a time cannot be stored, or an empty string."""
        if at.tzinfo is None:
            return "the time has no zone"
        if at > self.now + LATEST:
            return f"the time {at.isoformat()} is in the future: is a clock wrong?"
        if at < self.now - EARLIEST:
            return f"the time {at.isoformat()} is more than {EARLIEST.days} days ago"
        return ""

    def take(self, positions: tuple[Position, ...], *, extra: tuple[Symptom, ...] = ()) -> Batch:
        """Everything learned since the last take, and forget it."""
        calls = tuple(CallCount(key, slot, n, us) for (key, slot), (n, us) in self._calls.items())
        batch = Batch(
            cluster=self.cluster,
            changes=tuple(self._changes),
            improvements=tuple(self._improvements),
            objects=tuple(self._states.values()),
            rollouts=tuple(self._rollouts.values()),
            calls=calls,
            requests=tuple(self._requests),
            symptoms=(*self._symptoms.values(), *extra),
            gaps=tuple(self._gaps),
            rejects=tuple(self._rejects),
            positions=positions,
        )
        for held in (self._changes, self._improvements, self._requests, self._gaps, self._rejects):
            held.clear()
        for table in (self._states, self._rollouts, self._symptoms, self._calls):
            table.clear()
        self.pending = 0
        return batch


def decode_watch(line: bytes) -> RawWatchEvent:
    """Decode one line of a watch. Raises msgspec.MsgspecError."""
    return _watch_event.decode(line)


def _sighting(cluster: str, event: RawWatchEvent, peek: RawObject, at: datetime) -> Sighting:
    verb = {"ADDED": Verb.CREATE, "MODIFIED": Verb.UPDATE, "DELETED": Verb.DELETE}.get(event.type)
    created = peek.metadata.creationTimestamp
    if verb is Verb.CREATE and (created is None or at - created > JUST_CREATED):
        verb = None
    return _seen(cluster, bytes(event.object), peek, at, source="watch", verb=verb)


def _seen(cluster: str, body: bytes, peek: RawObject, at: datetime, *, source: str, verb: Verb | None) -> Sighting:
    group, _, version = peek.apiVersion.rpartition("/")
    meta = peek.metadata
    return Sighting(
        resource=Resource(cluster, group if version else "", peek.kind, meta.namespace or None, meta.name),
        at=at.astimezone(UTC),
        source=source,
        verb=verb,
        body=body,
        uid=meta.uid,
        resource_version=meta.resourceVersion,
    )


def dump_items(document: bytes) -> Iterator[msgspec.Raw]:
    """The objects of `kubectl get -o json`: a List, an object, or a map of Lists by resource."""
    top = msgspec.json.decode(document, type=dict[str, msgspec.Raw])
    if "items" in top:
        yield from _items(document)
    elif "kind" in top and "metadata" in top:
        yield msgspec.Raw(document)
    else:
        for raw in top.values():
            yield from _items(raw)


class _List(msgspec.Struct):
    items: list[msgspec.Raw] = []
    kind: str = ""
    apiVersion: str = ""  # noqa: N815


def _items(raw: bytes | msgspec.Raw) -> Iterator[msgspec.Raw]:
    found = msgspec.json.decode(raw, type=_List)
    kind = found.kind.removesuffix("List")
    for item in found.items:
        peek = _object.decode(item)
        if peek.kind or not kind:
            yield item
        else:  # the items of a typed List leave out what the List says
            named = f'{{"kind":"{kind}","apiVersion":"{found.apiVersion}",'.encode()
            yield msgspec.Raw(named + bytes(item).lstrip()[1:])
