"""The changes told lately: where a second sighting of the same write finds the first."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import islice
from typing import Any, NamedTuple

import orjson
from msgspec.structs import replace

from app.core.bounded import first_of, put
from app.core.changes import made
from app.core.changes.sightings import GENERATED, Sighting
from app.core.model import NOBODY, Actor, Change, DiffSource, FieldDiff, Object, Resource, Verb
from app.core.objects.body import Body
from app.core.objects.packed import Packing

SAME_WRITE = timedelta(seconds=2)
"""How far apart an audit event without a version and a watch event of one write may lie."""

_WHOLE = timedelta(seconds=1)
"""How much later than it says it may have been where a watch tells a time in whole seconds."""
_RANDOM = 5
"""Letters that the server puts behind ``generateName`` (randomLength of
https://github.com/kubernetes/apiserver/blob/master/pkg/storage/names/generate.go)."""
_MOST_MADE = 4_096
"""How many changes, the last told first, are looked through for what such a request made: an audit webhook sends its
events half a minute late."""
_MOST_NEAR = 64
"""How many changes of an object, the last told first, are looked at for that."""

_ROLLED_OUT = (("spec", "template"), ("spec", "updateStrategy"))

BEGAN_WITHIN = timedelta(seconds=10)
"""How far a change and the first sight of the rollout that it began may lie apart."""


_FRESH = 256
"""Changes of late whose states of whole objects are kept as they are."""
_LARGE = 1 << 10
"""Values of more bytes are counted: those of less are as many as there may be changes."""
_FRESH_BYTES = 16 << 10
"""The largest values that are kept as they are, in bytes of their JSON; Python's objects take ten times as much."""


class _Packed(NamedTuple):
    """A change, and packed what its diffs have as values. ``change`` has the diffs without them.

    ``is_state``: it is a creation or a deletion, and what is packed the state of its object.
    """

    change: Change
    values: bytes
    is_state: bool


class Recent:
    """The changes told last, found by key or by object: so many, and of so many bytes, at most."""

    def __init__(self, limit: int, packing: Packing, *, limit_bytes: int = 32 << 20) -> None:
        self._limit, self._limit_bytes = limit, limit_bytes
        self._packing = packing
        self._changes: dict[int, Change | _Packed] = {}
        self._large: dict[int, int] = {}  # bytes of the values that are not small
        self._bytes = 0
        self._fresh: deque[int] = deque()
        self._aliases: dict[int, int] = {}
        self._by_object: dict[Resource, list[int]] = {}
        self._unversioned: dict[Resource, None] = {}
        self._shown: dict[int, datetime] = {}

    def by_key(self, key: int) -> Change | None:
        found = self._changes.get(self._aliases.get(key, key))
        return self._unpacked(found) if isinstance(found, _Packed) else found

    def of_write(self, sighting: Sighting, uid: str, version: str) -> Change | None:
        """The change that a sighting tells of again, by its key."""
        if sighting.verb is Verb.CREATE and uid:
            return self.by_key(made.creation_key(sighting.resource, uid))
        return self.by_key(made.key_of(sighting.resource, uid, version)) if version else None

    def uid_of(self, sighting: Sighting, uid: str) -> str:
        """The uid of an object of which a sighting tells the name alone: the ``uid`` that is known by that name, ""
        where it is another's."""
        if sighting.verb is Verb.DELETE and (gone := self.near(sighting, None)):
            return gone.uid
        if sighting.verb is Verb.UPDATE or not uid:
            return uid
        made_or_gone = made.creation_key(sighting.resource, uid), made.deletion_key(sighting, uid)
        told = self.by_key(made_or_gone[sighting.verb is Verb.DELETE])
        return "" if told is not None and sighting.source in told.sources else uid

    def add(self, change: Change) -> None:
        self.update(change)
        if (keys := self._by_object.get(change.resource)) is None:
            self._by_object[change.resource] = [change.key]  # of most objects there is one
        else:
            keys.append(change.key)
        if not change.resource_version:
            put(self._unversioned, change.resource, None, limit=self._limit)
        while len(self._changes) > self._limit or (self._bytes > self._limit_bytes and len(self._changes) > 1):
            for key, gone in first_of(self._changes, min(self._limit, len(self._changes) - 1)):
                self._forget(key, _brief(gone).resource)

    def _forget(self, key: int, resource: Resource) -> None:
        del self._changes[key]
        self._count(key, 0)
        self._part(key, resource)

    def _part(self, key: int, resource: Resource) -> None:
        keys = self._by_object[resource]
        keys.remove(key)
        if not keys:
            del self._by_object[resource]

    def update(self, change: Change) -> None:
        """Put a better telling in the place of the first; it may know the object's name."""
        known = self._changes.get(change.key)
        if known is not None and (before := _brief(known).resource) != change.resource:
            self._part(change.key, before)
            self._by_object.setdefault(change.resource, []).append(change.key)
        size = len(orjson.dumps([(found.old, found.new) for found in change.diffs]))
        if size > _FRESH_BYTES:
            self._pack(change)
            return
        self._changes[change.key] = change
        self._count(change.key, size)
        if _state(change) is not None:
            self._fresh.append(change.key)
            if len(self._fresh) > _FRESH and isinstance(oldest := self._changes.get(self._fresh.popleft()), Change):
                self._pack(oldest)

    def _count(self, key: int, size: int) -> None:
        self._bytes -= self._large.pop(key, 0)
        if size > _LARGE:
            self._large[key] = size
            self._bytes += size

    def _pack(self, change: Change) -> None:
        state, bare = _state(change), tuple(FieldDiff(found.path, found.op) for found in change.diffs)
        values = self._packing.pack(state if state is not None else _values(change))
        self._changes[change.key] = _Packed(replace(change, diffs=bare), values, is_state=state is not None)
        self._count(change.key, len(values))

    def _unpacked(self, packed: _Packed) -> Change:
        change, held = packed.change, self._packing.unpack(packed.values)
        if packed.is_state:
            op = change.diffs[0].op
            return replace(change, diffs=(FieldDiff((), op, None, held) if op == "add" else FieldDiff((), op, held),))
        values: Any = held["values"]
        diffs = [replace(found, old=old, new=new) for found, (old, new) in zip(change.diffs, values, strict=True)]
        return replace(change, diffs=tuple(diffs))

    def alias(self, key: int, change: Change) -> None:
        """Another key under which the same write may be told again."""
        if key != change.key:
            if len(self._aliases) > self._limit:
                self._aliases.clear()
            self._aliases[key] = change.key

    def shown(self, key: int, at: datetime) -> None:
        """When a change was made, as the object says, that a LIST showed later."""
        put(self._shown, key, at, limit=self._limit)

    def of(self, resource: Resource) -> Iterator[Change]:
        """The object's recent changes, the last told first; the values of their diffs may be left out."""
        return (_brief(self._changes[key]) for key in reversed(self._by_object.get(resource, ())))

    def near(self, sighting: Sighting, body: Body | None, *, told: Change | None = None) -> Change | None:
        """The change that this sighting tells of again, where a version cannot say so; ``told`` is what it tells.

        One of the two has no version; same object, same verb, within SAME_WRITE, told by the other source only. Of
        several that fit the first: the audit log and a watch each tell of writes in the order in which they were made.
        """
        if body is not None and sighting.resource not in self._unversioned:
            return None
        fits = [
            change
            for change in islice(self.of(sighting.resource), _MOST_NEAR)
            if sighting.source not in change.sources
            and change.verb is sighting.verb
            and not (sighting.resource_version and change.resource_version)
            and abs(self._shown.get(change.key, change.at) - sighting.at) <= SAME_WRITE
        ]
        if not fits:
            return None
        best = min(fits, key=lambda change: _unlike(change, sighting, told)) if len(fits) > 1 else fits[0]
        return self.by_key(best.key)

    def made_by(self, sighting: Sighting) -> Resource | None:
        """The object that a request made which says how its name begins, if that ("build-*"): of those that a watch has
        told of by then, and nobody asked for yet, the first."""
        asked, begin = sighting.resource, sighting.resource.name.removesuffix(GENERATED)
        fits = [
            change
            for change in map(_brief, islice(reversed(self._changes.values()), _MOST_MADE))
            if replace(change.resource, name=asked.name) == asked
            and begin in ("", change.resource.name[:-_RANDOM])
            and self._is_other_half(change, sighting)
        ]
        return min(fits, key=lambda change: (change.at, change.key)).resource if fits else None

    def asked_unnamed(self, sighting: Sighting) -> Change | None:
        """The request that made an object of which a watch tells, and that said how its name begins, if that: the first
        of those of which no watch has told yet."""
        resource = sighting.resource
        for begin in (resource.name[:-_RANDOM], ""):
            asked = self.of(replace(resource, name=f"{begin}{GENERATED}"))
            fits = [one for one in islice(asked, _MOST_NEAR) if self._is_other_half(one, sighting)]
            if fits:
                return self.by_key(fits[-1].key)
        return None

    def _is_other_half(self, change: Change, sighting: Sighting) -> bool:
        """Whether something was made when a sighting says that, and only somebody else told of it."""
        is_made = change.verb is Verb.CREATE and sighting.source not in change.sources
        return is_made and abs(self._shown.get(change.key, change.at) - sighting.at) <= SAME_WRITE

    def asked_for(self, resource: Resource) -> list[Change]:
        """What the audit log alone told was asked to be made of an object, the first told first."""
        if resource not in self._unversioned:
            return []
        found = [one for one in self.of(resource) if one.diff_source is DiffSource.PATCH and one.verb is Verb.UPDATE]
        keys = [one.key for one in found if not one.resource_version and one.sources == {"audit"}]
        return [change for key in reversed(keys) if (change := self.by_key(key))]

    def is_overtaken(self, sighting: Sighting) -> bool:
        """Whether the same source told of a later write to the object before, as several API servers do that each send
        their events when they have some: what is known of the object then is no state before this one."""
        return any(
            change.at > sighting.at and sighting.source in change.sources
            for change in islice(self.of(sighting.resource), _MOST_NEAR)
        )

    def created(self, resource: Resource, uid: str) -> bool:
        """Whether this life of the object was told to begin."""
        return any(change.verb is Verb.CREATE and change.uid == uid for change in self.of(resource))

    def began_rollout(self, resource: Resource, at: datetime) -> str | None:
        """The id of the last change that touched the object's pod template, or how it is rolled out (a partition holds
        pods back), if it is about as old as ``at``."""
        for change in self.of(resource):
            if at - change.at > 5 * BEGAN_WITHIN:
                break
            if any(not found.path or found.path[:2] in _ROLLED_OUT for found in change.diffs):
                return change.id if abs(at - change.at) <= BEGAN_WITHIN else None
        return None

    def objects(self, kind: str) -> list[Resource]:
        """The objects of a kind with recent changes."""
        return [resource for resource in self._by_object if resource.kind == kind]


def _unlike(change: Change, sighting: Sighting, told: Change | None) -> tuple[bool, bool, bool, datetime]:
    """How little a change fits to what a sighting tells, for those that fit at all: whether something else was asked
    for, or another program wrote; whether a watch told of it before it was asked for."""
    asked, shown = ({found.path for found in one.diffs} if one else set() for one in (change, told))
    by_watch = sighting.source != "audit"
    request, manager = (change.actor, told.actor if told else NOBODY) if by_watch else (sighting.actor, change.actor)
    asked_at, told_at = (change.at, sighting.at) if by_watch else (sighting.at, change.at)
    early = told_at + (timedelta() if told_at.microsecond else _WHOLE) < asked_at
    return bool(shown) and not asked <= shown, _differ(request, manager), early, change.at


def _differ(request: Actor, manager: Actor) -> bool:
    """Whether the program that made a request is another than the one whose fields these are: a manager is called as
    its program, mostly with what that did behind it (kubectl-edit)."""
    return bool(manager.name and request.user_agent) and not manager.name.lower().startswith(request.user_agent.lower())


def _brief(found: Change | _Packed) -> Change:
    return found.change if isinstance(found, _Packed) else found


def _state(change: Change) -> Object | None:
    """The state of the object that was created or deleted, where that is the diff and nothing else."""
    if change.verb is Verb.UPDATE or len(change.diffs) != 1 or change.diffs[0].path:
        return None
    found = change.diffs[0]
    state, nothing = (found.new, found.old) if found.op == "add" else (found.old, found.new)
    return state if isinstance(state, dict) and nothing is None and found.op in ("add", "remove") else None


def _values(change: Change) -> Object:
    return {"values": [[found.old, found.new] for found in change.diffs]}
