"""The changes told lately: where a second sighting of the same write finds the first."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import NamedTuple

from msgspec.structs import replace

from app.core.body import Body
from app.core.bounded import first_of, put
from app.core.model import Change, FieldDiff, Object, Resource, Verb
from app.core.packed import Packing
from app.core.sightings import Sighting

SAME_WRITE = timedelta(seconds=2)
"""How far apart an audit event without a version and a watch event of one write may lie."""

_ROLLED_OUT = (("spec", "template"), ("spec", "updateStrategy"))

BEGAN_WITHIN = timedelta(seconds=10)
"""How far a change and the first sight of the rollout that it began may lie apart."""


_FRESH = 256
"""Changes of late whose states of whole objects are kept as they are."""


class _Packed(NamedTuple):
    """A creation or a deletion, and the state of its object, packed: as Python's objects it takes ten times as much.

    ``change`` says that there is a state, and not which.
    """

    change: Change
    state: bytes


class Recent:
    """A bounded number of changes, found by key or by object."""

    def __init__(self, limit: int, packing: Packing) -> None:
        self._limit = limit
        self._packing = packing
        self._changes: dict[int, Change | _Packed] = {}
        self._fresh: deque[int] = deque()
        self._aliases: dict[int, int] = {}
        self._by_object: dict[Resource, list[int]] = {}
        self._unversioned: dict[Resource, None] = {}

    def by_key(self, key: int) -> Change | None:
        found = self._changes.get(self._aliases.get(key, key))
        return self._unpacked(found) if isinstance(found, _Packed) else found

    def add(self, change: Change) -> None:
        self.update(change)
        if (keys := self._by_object.get(change.resource)) is None:
            self._by_object[change.resource] = [change.key]  # of most objects there is one
        else:
            keys.append(change.key)
        if not change.resource_version:
            put(self._unversioned, change.resource, None, limit=self._limit)
        if len(self._changes) > self._limit:
            for key, gone in first_of(self._changes, self._limit):
                self._forget(key, _brief(gone).resource)

    def _forget(self, key: int, resource: Resource) -> None:
        del self._changes[key]
        keys = self._by_object[resource]
        keys.remove(key)
        if not keys:
            del self._by_object[resource]

    def update(self, change: Change) -> None:
        """Put a better telling in the place of the first."""
        self._changes[change.key] = change
        if _state(change) is not None:
            self._fresh.append(change.key)
            if len(self._fresh) > _FRESH:
                self._pack(self._fresh.popleft())

    def _pack(self, key: int) -> None:
        change = self._changes.get(key)
        state = _state(change) if isinstance(change, Change) else None
        if isinstance(change, Change) and state is not None:
            whole = FieldDiff((), change.diffs[0].op)
            self._changes[key] = _Packed(replace(change, diffs=(whole,)), self._packing.pack(state))

    def _unpacked(self, packed: _Packed) -> Change:
        change, state = packed.change, self._packing.unpack(packed.state)
        op = change.diffs[0].op
        return replace(change, diffs=(FieldDiff((), op, None, state) if op == "add" else FieldDiff((), op, state),))

    def alias(self, key: int, change: Change) -> None:
        """Another key under which the same write may be told again."""
        if key != change.key:
            if len(self._aliases) > self._limit:
                self._aliases.clear()
            self._aliases[key] = change.key

    def of(self, resource: Resource) -> Iterator[Change]:
        """The object's recent changes, the last told first; the states of whole objects may be left out."""
        return (_brief(self._changes[key]) for key in reversed(self._by_object.get(resource, ())))

    def near(self, sighting: Sighting, body: Body | None) -> Change | None:
        """The change that this sighting tells of again, where a version cannot say so.

        One of the two has no version; same object, same verb, within SAME_WRITE, told by the other source only.
        """
        if body is not None and sighting.resource not in self._unversioned:
            return None
        best: Change | None = None
        for change in self.of(sighting.resource):
            if sighting.at - change.at > 5 * SAME_WRITE:
                break
            if sighting.source in change.sources or change.verb is not sighting.verb:
                continue
            if body is not None and change.resource_version:
                continue
            apart = abs(change.at - sighting.at)
            if apart <= SAME_WRITE and (best is None or apart < abs(best.at - sighting.at)):
                best = change
        return best and self.by_key(best.key)

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


def _brief(found: Change | _Packed) -> Change:
    return found.change if isinstance(found, _Packed) else found


def _state(change: Change) -> Object | None:
    """The state of the object that was created or deleted, where that is the diff and nothing else."""
    if change.verb is Verb.UPDATE or len(change.diffs) != 1 or change.diffs[0].path:
        return None
    found = change.diffs[0]
    state, nothing = (found.new, found.old) if found.op == "add" else (found.old, found.new)
    return state if isinstance(state, dict) and nothing is None and found.op in ("add", "remove") else None
