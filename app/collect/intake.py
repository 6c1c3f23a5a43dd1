"""Lines of an audit log and of a watch -> one Piece at a time: what they say, before anything is learned from it.

A line that cannot be used becomes a Reject and never stops the rest. Nothing here knows an object's state, so a log
can be read in a process of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from sys import intern

import msgspec
from msgspec.structs import replace

from app.collect.counting import Counting, KeyedCount
from app.collect.files import Line
from app.collect.refusals import UnusableError
from app.collect.repeats import Repeats
from app.core.changes import audit
from app.core.changes.lateness import When
from app.core.changes.sightings import Sighting
from app.core.model import CallKey, Gap, Reject, Resource, Verb
from app.core.objects.body import AsBefore
from app.core.objects.redact import Redactor

JUST_CREATED = timedelta(seconds=5)
"""A watch's ADDED of an older object is part of its first LIST: the object was seen, not created."""
EARLIEST = timedelta(days=400)
LATEST = timedelta(days=1)


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


_VERBS = {"ADDED": Verb.CREATE, "MODIFIED": Verb.UPDATE, "DELETED": Verb.DELETE}
_watch_event = msgspec.json.Decoder(RawWatchEvent)
_object = msgspec.json.Decoder(RawObject)


class Tally(msgspec.Struct):
    """What an import tells at its end.

    ``lines`` of logs and metrics, ``objects`` of dumps, ``alerts`` of payloads; ``used`` are events, objects and alerts
    that were no rejects.
    """

    lines: int = 0
    objects: int = 0
    alerts: int = 0
    used: int = 0
    calls: int = 0
    changes: int = 0
    no_ops: int = 0
    failed_writes: int = 0
    rejects: int = 0
    repeated: int = 0

    def add(self, more: Tally) -> None:
        for name in self.__struct_fields__:
            setattr(self, name, getattr(self, name) + getattr(more, name))


class Place(msgspec.Struct):
    """How far a log is read: the bytes and lines of its content, and the bytes of the file, packed as it may be.

    ``at`` is when the last event before was, None where there is none.
    """

    offset: int
    lines: int
    stored_bytes: int
    done: bool
    at: datetime | None = None


class KeyedRequest(msgspec.Struct, array_like=True, gc=False):
    """A model.Request with the number of its key."""

    key: int
    at: datetime
    event_key: int
    name: str
    latency_us: int


class Piece(msgspec.Struct):
    """What some lines say. ``places`` of logs by their order among those that are read together, where one moved.

    A key of calls is told once, in the piece that counts by it first; ``keys`` are numbered from ``first_key`` on, and
    what had these numbers before is forgotten.
    """

    sightings: list[Sighting]
    first_key: int
    keys: list[CallKey]
    calls: list[KeyedCount]
    requests: list[KeyedRequest]
    gaps: list[Gap]
    rejects: list[Reject]
    tally: Tally
    places: dict[int, Place]


@dataclass(slots=True)
class Intake:
    """Collects what lines say until ``take`` turns it into a Piece."""

    cluster: str
    redactor: Redactor
    now: datetime
    """When it was told; of files, the import's start. A time must lie within EARLIEST before it and LATEST after."""
    tally: Tally = field(default_factory=Tally)
    _latest: datetime | None = None
    _sightings: list[Sighting] = field(default_factory=list)
    _requests: list[KeyedRequest] = field(default_factory=list)
    _gaps: list[Gap] = field(default_factory=list)
    _blind: dict[int, Gap] = field(default_factory=dict)
    _rejects: list[Reject] = field(default_factory=list)
    _repeats: Repeats = field(default_factory=Repeats)
    _counting: Counting = field(init=False)
    _earliest: datetime = field(init=False)
    _latest_allowed: datetime = field(init=False)

    def __post_init__(self) -> None:
        self._counting = Counting(self.redactor)
        self._bound()

    def move_to(self, now: datetime) -> None:
        """What comes from here on was told at ``now``: one moment, which is held once."""
        if now != self.now:
            self.now = now
            self._bound()

    def _bound(self) -> None:
        self._earliest, self._latest_allowed = self.now - EARLIEST, self.now + LATEST

    def audit_event(self, event: audit.RawAuditEvent) -> None:
        """Count the call, once, and keep the objects it wrote."""
        reads = event.verb in audit.READS
        if audit.is_counted(event):
            if self._repeats.told(event):
                self.tally.repeated += 1
                return
            key, latency = self._counting.add(event)
            self.tally.calls += 1
            if not reads and audit.is_kept(event):
                self._keep_request(event, key, latency)
        if not reads:
            self._keep(audit.sightings(self.cluster, event))

    def _keep_request(self, event: audit.RawAuditEvent, key: int, latency: int) -> None:
        name = event.objectRef.name if event.objectRef else ""
        event_key = audit.event_key(self.cluster, event)
        self._requests.append(KeyedRequest(key, event.requestReceivedTimestamp, event_key, name, latency))
        if audit.code_of(event) >= 400:
            self.tally.failed_writes += 1

    def watched(self, event: RawWatchEvent, when: When, *, first: bool) -> None:
        """Keep the object of one event of a live watch; ``first``: one of all that there are. Raises UNUSABLE."""
        peek = _object.decode(event.object)
        _check(peek)
        verb = None if first else _VERBS[event.type]
        self._keep([_seen(self.cluster, bytes(event.object), peek, when, source="watch", verb=verb)])

    def moved(self, api_group: str, kind: str, now: AsBefore, *, at: datetime, since: datetime | None) -> None:
        """Keep the new version of an object whose desired state is as a live watch told it before; ``since`` as in
        Sighting."""
        self._latest = max(self._latest, at) if self._latest else at
        self._sightings.append(
            Sighting(
                Resource(self.cluster, api_group, kind, now.namespace or None, now.name),
                at,
                "watch",
                Verb.UPDATE,
                uid=now.uid,
                resource_version=str(now.version),
                since=since,
                as_before=now,
            )
        )

    def watch_event(self, event: RawWatchEvent, at: datetime, *, log: int, rounded: bool = False) -> None:
        """Keep the object of one event of the watch number ``log``; a BOOKMARK is nothing. Raises UNUSABLE.

        ``rounded`` as in Sighting. An ERROR ends a watch: nothing is seen from the event before it until an ADDED of
        the same watch tells of an older object, as the LIST does with which it begins anew.
        """
        if event.type == "BOOKMARK":
            return
        peek = _object.decode(event.object)
        if event.type == "ERROR":
            why = f"watch ended: {self.redactor.text(peek.message)} ({peek.code})"
            blind = self._blind.setdefault(log, Gap(self.cluster, "", self._latest or at, at, why))
            self._gaps.append(replace(blind, to_at=at))
            return
        _check(peek)
        sighting = _sighting(self.cluster, event, peek, When(at, rounded=rounded))
        if sighting.verb is None and log in self._blind:
            self._gaps.append(replace(self._blind.pop(log), to_at=at))
        self._keep([sighting])

    def blind(self, from_at: datetime, to_at: datetime, why: str, *, kind: str = "") -> None:
        """Note that what happened in between was not told: of one ``kind``, or of all."""
        self._gaps.append(Gap(self.cluster, kind, from_at, to_at, self.redactor.text(why)))

    def vanished(self, resource: Resource, uid: str, at: datetime) -> None:
        """Keep that an object that was there is gone ``at`` the latest, though nobody saw it go."""
        self._keep([Sighting(resource, at, "watch", Verb.DELETE, uid=uid)])

    def dump_item(self, raw: msgspec.Raw, at: datetime) -> None:
        """Keep one object of a dump, seen at ``at`` at the latest. Raises UNUSABLE."""
        self.tally.objects += 1
        peek = _object.decode(raw)
        _check(peek)
        self._keep([_seen(self.cluster, bytes(raw), peek, When(at), source="state", verb=None)])
        self.tally.used += 1

    def _keep(self, sightings: list[Sighting]) -> None:
        for sighting in sightings:
            self._latest = max(self._latest, sighting.at) if self._latest else sighting.at
        self._sightings += sightings

    def reject(self, source: str, line: Line, reason: str, *, column: int = 1, again: bool = False) -> None:
        """Count a line as refused, and keep it for quarantine, redacted. ``column`` counts bytes of its data from 1.

        ``again`` as in Reject.
        """
        said, excerpt = self.redactor.text(reason)[:300], self.redactor.excerpt(line.data)
        before = line.data[: column - 1]
        column = len(before) - before.rfind(b"\n") + (0 if b"\n" in before else line.begins)
        self._rejects.append(Reject(source, line.number + before.count(b"\n"), column, said, excerpt, again))
        self.tally.rejects += 1

    def check_times(self, event: audit.RawAuditEvent) -> str:
        """Why an audit event's times cannot be stored, or an empty string: asked of every line of a log."""
        received, told = event.requestReceivedTimestamp, event.stageTimestamp
        if received.tzinfo and told.tzinfo and self._earliest <= received <= told <= self._latest_allowed:
            return ""
        return self.check_time(received) or self.check_time(told)

    def check_time(self, at: datetime) -> str:
        """Why a time cannot be stored, or an empty string."""
        if at.tzinfo is None:
            return "the time has no zone"
        if self._earliest <= at <= self._latest_allowed:
            return ""
        if at > self.now:
            return f"the time {at.isoformat()} is in the future: is a clock wrong?"
        return f"the time {at.isoformat()} is more than {EARLIEST.days} days ago"

    def take(self, places: dict[int, Place]) -> Piece:
        """Everything read since the last take, and forget it."""
        first_key, keys, calls = self._counting.take()
        piece = Piece(
            sightings=self._sightings,
            first_key=first_key,
            keys=keys,
            calls=calls,
            requests=self._requests,
            gaps=self._gaps,
            rejects=self._rejects,
            tally=self.tally,
            places=places,
        )
        self._sightings, self._requests, self._gaps, self._rejects, self.tally = [], [], [], [], Tally()
        return piece


def _check(peek: RawObject) -> None:
    """Raises UnusableError on what is no object that can be known again."""
    if peek.kind == "Table":
        raise UnusableError("a Table leaves the objects out: ask kubectl for them with -o json")
    if not peek.kind or not peek.metadata.name:
        raise UnusableError("it says no kind, or no name")


def decode_watch(line: bytes) -> RawWatchEvent:
    """Decode one line of a watch. Raises msgspec.MsgspecError."""
    return _watch_event.decode(line)


def _sighting(cluster: str, event: RawWatchEvent, peek: RawObject, when: When) -> Sighting:
    verb = _VERBS.get(event.type)
    created = peek.metadata.creationTimestamp
    if verb is Verb.CREATE and (created is None or when.at - created > JUST_CREATED):
        verb = None
    return _seen(cluster, bytes(event.object), peek, when, source="watch", verb=verb)


def _seen(cluster: str, body: bytes, peek: RawObject, when: When, *, source: str, verb: Verb | None) -> Sighting:
    group, _, version = peek.apiVersion.rpartition("/")
    meta = peek.metadata
    return Sighting(
        resource=Resource(
            cluster, intern(group if version else ""), intern(peek.kind), intern(meta.namespace) or None, meta.name
        ),
        at=when.at.astimezone(UTC),
        source=source,
        verb=verb,
        body=body,
        uid=meta.uid,
        resource_version=meta.resourceVersion,
        rounded=when.rounded,
        since=when.since,
    )
